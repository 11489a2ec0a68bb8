"""Hugging Face's Trainer, on the batches and the noise of a plan. Needs ``pip install 'hockeystick[huggingface]'``.

:class:`Trainer` takes the place of ``transformers.Trainer``; adapters of peft work as they are.
"""

try:
    import accelerate as _accelerate  # noqa: F401
    import opacus as _opacus  # noqa: F401
    import torch as _torch  # noqa: F401
    import transformers as _transformers  # noqa: F401
except ImportError as error:
    raise ImportError(
        "hockeystick.huggingface needs torch, opacus, transformers and accelerate: "
        f"pip install 'hockeystick[huggingface]' ({error})."
    ) from error

from hockeystick.training.huggingface.trainer import Trainer

__all__ = ["Trainer"]
