"""Training that is what its certificate says: a run that draws the batches, gives the noise and keeps the record.

:class:`Run`, the adaptive optimisers and :func:`exact_sum` need numpy alone. ``hockeystick.torch`` puts them behind
Opacus, ``hockeystick.huggingface`` behind the Trainer of transformers, ``hockeystick.jax`` puts runs behind JAX
Privacy, ``hockeystick.flower`` behind Flower's rounds.
"""

from hockeystick.lazily import loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hockeystick.training.adaptive import IndependentAdam, ScaledAdam, clipped, noise_variance
    from hockeystick.training.exact_sums import exact_sum, steps_within
    from hockeystick.training.record import Check, RunRecord, Status
    from hockeystick.training.run import Run

_HOMES = {
    "Check": "record",
    "IndependentAdam": "adaptive",
    "Run": "run",
    "RunRecord": "record",
    "ScaledAdam": "adaptive",
    "Status": "record",
    "clipped": "adaptive",
    "exact_sum": "exact_sums",
    "noise_variance": "adaptive",
    "steps_within": "exact_sums",
}

__all__ = [
    "Check",
    "IndependentAdam",
    "Run",
    "RunRecord",
    "ScaledAdam",
    "Status",
    "clipped",
    "exact_sum",
    "noise_variance",
    "steps_within",
]


def __getattr__(name: str) -> object:
    globals()[name] = value = loaded(__name__, _HOMES, name)
    return value
