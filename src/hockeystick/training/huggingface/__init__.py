"""Hugging Face's Trainer, on the batches and the noise of a plan. Needs the extra ``huggingface``.

:class:`Trainer` takes the place of ``transformers.Trainer``; adapters of peft work as they are. ``private(base)`` does
the same for a subclass of it, such as ``trl.SFTTrainer`` and ``trl.DPOTrainer``.
"""

from hockeystick.errors import install
from hockeystick.lazily import loaded

try:
    import accelerate as _accelerate  # noqa: F401
    import opacus as _opacus  # noqa: F401
    import torch as _torch  # noqa: F401
    import transformers as _transformers  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"hockeystick.huggingface needs torch, opacus, transformers and accelerate ({error}); {install('huggingface')}."
    ) from error

from hockeystick.training.huggingface.artefacts import Artefact, Artefacts, Cover
from hockeystick.training.huggingface.trainer import Trainer, private

__all__ = ["Artefact", "Artefacts", "Cover", "Trainer", "private"]


def __getattr__(name: str) -> object:
    return loaded(__name__, {}, name, rooms=__all__)
