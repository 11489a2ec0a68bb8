"""Audits test whether the code that ran does what its certificate says.

:func:`sampler` looks at batches, :func:`noise` at rows of noise, :func:`mechanism` at the outputs of both against a
certificate, and :func:`replay` at a training loop. All return a :class:`Verdict`. The names load on first use.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hockeystick.audit.loaders import batches_of
    from hockeystick.audit.outputs import mechanism
    from hockeystick.audit.replaying import replay
    from hockeystick.audit.sampling import sampler
    from hockeystick.audit.tape import Tape
    from hockeystick.audit.verdict import EpsilonInterval, Finding, Verdict
    from hockeystick.audit.whiteness import noise

_HOMES = {
    "EpsilonInterval": "verdict",
    "Finding": "verdict",
    "Tape": "tape",
    "Verdict": "verdict",
    "batches_of": "loaders",
    "mechanism": "outputs",
    "noise": "whiteness",
    "replay": "replaying",
    "sampler": "sampling",
}

__all__ = [
    "EpsilonInterval",
    "Finding",
    "Tape",
    "Verdict",
    "batches_of",
    "mechanism",
    "noise",
    "replay",
    "sampler",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hockeystick.audit' has no attribute {name!r}")
    value = getattr(import_module(f"hockeystick.audit.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
