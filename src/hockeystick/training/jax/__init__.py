"""Training with JAX and JAX Privacy that is what its certificate says. Needs the extra ``jax``.

:class:`ExecutionPlanConfig` turns a plan into JAX Privacy's execution plan. :class:`Noise` and :class:`BatchSampler`
are its parts, for training loops without JAX Privacy's; :class:`Accountant` answers for its ``dp_event``,
:func:`invariance` looks at the bits of per-example gradients, and :func:`recover` ends an error that JAX repeats.
"""

from hockeystick.errors import install
from hockeystick.lazily import loaded

try:
    import jax as _jax  # noqa: F401
    import jax_privacy as _jax_privacy  # noqa: F401
    import optax as _optax  # noqa: F401
except ImportError as error:
    raise ImportError(f"hockeystick.jax needs jax, optax and jax-privacy ({error}); {install('jax')}.") from error

from hockeystick.training.jax.accountant import Accountant, MechanismDpEvent
from hockeystick.training.jax.batches import BatchSampler
from hockeystick.training.jax.execution_plan import ExecutionPlanConfig
from hockeystick.training.jax.invariance import invariance
from hockeystick.training.jax.noise import Noise, NoiseState
from hockeystick.training.jax.private_names import recover

__all__ = [
    "Accountant",
    "BatchSampler",
    "ExecutionPlanConfig",
    "MechanismDpEvent",
    "Noise",
    "NoiseState",
    "invariance",
    "recover",
]


def __getattr__(name: str) -> object:
    return loaded(__name__, {}, name, rooms=__all__)
