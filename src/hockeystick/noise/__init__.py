"""The noise that a run adds: rows of ``C^{-1} z``, streamed with a state of a few rows.

:func:`stream` is what a training loop needs; :func:`streaming_solver` is the linear map under it. ``GENERATORS`` are
those of other libraries, and :func:`floor` is the delta that no run with their noise goes below.
"""

from hockeystick.lazily import loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hockeystick.noise.generators import GENERATORS, KnownGenerator, floor
    from hockeystick.noise.noise_stream import NoiseStream, stream
    from hockeystick.noise.registry import SOLVERS, streaming_solver
    from hockeystick.noise.rows import MappedFile, Memory, Replay, Rows
    from hockeystick.noise.solver import StreamingSolver

_HOMES = {
    "GENERATORS": "generators",
    "KnownGenerator": "generators",
    "MappedFile": "rows",
    "Memory": "rows",
    "NoiseStream": "noise_stream",
    "Replay": "rows",
    "Rows": "rows",
    "SOLVERS": "registry",
    "StreamingSolver": "solver",
    "floor": "generators",
    "stream": "noise_stream",
    "streaming_solver": "registry",
}

__all__ = [
    "GENERATORS",
    "SOLVERS",
    "KnownGenerator",
    "MappedFile",
    "Memory",
    "NoiseStream",
    "Replay",
    "Rows",
    "StreamingSolver",
    "floor",
    "stream",
    "streaming_solver",
]


def __getattr__(name: str) -> object:
    globals()[name] = value = loaded(__name__, _HOMES, name)
    return value
