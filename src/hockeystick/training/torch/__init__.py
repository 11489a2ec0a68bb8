"""Training with PyTorch and Opacus that is what its certificate says. Needs the extra ``torch``.

:class:`PrivacyEngine` takes the place of Opacus' own. :class:`Noise` and :class:`BatchSampler` are its parts, for
training loops without Opacus, and :class:`OnDevice` puts the rows of the noise on a GPU. :class:`ScaledAdam` and
:class:`IndependentAdam` are optimisers that it knows. Importing this module also registers the accountant
``"hockeystick"`` with Opacus.
"""

from hockeystick.errors import install
from hockeystick.lazily import loaded

try:
    import opacus as _opacus  # noqa: F401
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(f"hockeystick.torch needs torch and opacus ({error}); {install('torch')}.") from error

from hockeystick.training.torch.accountant import Accountant
from hockeystick.training.torch.adaptive import IndependentAdam, ScaledAdam
from hockeystick.training.torch.device_rows import OnDevice
from hockeystick.training.torch.engine import PrivacyEngine
from hockeystick.training.torch.loader import BatchSampler
from hockeystick.training.torch.noise import Noise

__all__ = ["Accountant", "BatchSampler", "IndependentAdam", "Noise", "OnDevice", "PrivacyEngine", "ScaledAdam"]


def __getattr__(name: str) -> object:
    return loaded(__name__, {}, name, rooms=__all__)
