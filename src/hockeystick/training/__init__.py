"""Training that is what its certificate says: a run that draws the batches, gives the noise and keeps the record.

:class:`Run` and the adaptive optimisers need numpy alone. ``hockeystick.torch`` puts them behind Opacus,
``hockeystick.huggingface`` behind the Trainer of transformers, ``hockeystick.jax`` puts runs behind JAX Privacy.
"""

from hockeystick.training.adaptive import IndependentAdam, ScaledAdam, clipped, noise_variance
from hockeystick.training.record import Check, RunRecord, Status
from hockeystick.training.run import Run

__all__ = ["Check", "IndependentAdam", "Run", "RunRecord", "ScaledAdam", "Status", "clipped", "noise_variance"]
