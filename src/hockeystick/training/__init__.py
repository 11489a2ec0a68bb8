"""Training that is what its certificate says: a run that draws the batches, gives the noise and keeps the record.

:class:`Run` needs numpy alone. ``hockeystick.torch`` puts it behind Opacus,
``hockeystick.huggingface`` behind the Trainer of transformers.
"""

from hockeystick.training.record import Check, RunRecord, Status
from hockeystick.training.run import Run

__all__ = ["Check", "Run", "RunRecord", "Status"]
