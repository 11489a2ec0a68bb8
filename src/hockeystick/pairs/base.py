"""The base class of dominating pairs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar

from hockeystick.errors import UnsupportedError

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True, eq=False)
class DominatingPair(ABC):
    """The two distributions that an adversary has to tell apart, for one mechanism under zero-out adjacency.

    Attributes:
        noise_multiplier: that of the mechanism, in units of the clipping norm.
        slack: total-variation distance between the run and the pair (0 unless batches are truncated).
    """

    noise_multiplier: float
    slack: float = 0.0

    @property
    def members(self) -> "tuple[DominatingPair, ...]":
        """The pairs whose worst this one is, or that bound it from both sides: itself unless it says otherwise."""
        return (self,)

    @property
    @abstractmethod
    def full_sensitivity(self) -> float:
        """Largest l2 distance, in clipping norms, that one example can make when all batches are known.

        Knowing the batches only helps the adversary, so a Gaussian with this sensitivity is always a valid bound.
        """

    @property
    def sensitivity_error(self) -> float:
        """Proved relative rounding error of :attr:`full_sensitivity`."""
        return 0.0

    @property
    def why_not_from_below(self) -> str | None:
        """Why no dataset makes the run reveal as much as the pair, so that it bounds the run only from above; or None.

        No accountant gives lower bounds of such a pair.
        """
        return None

    @property
    def batches_are_public(self) -> bool:
        """Whether the batches are known anyway, which makes that Gaussian exact."""
        return False


def require(sampler: object, scheme: type[S]) -> S:
    """The sampler, checked to be of the scheme that a registry entry is for; raises UnsupportedError otherwise."""
    if not isinstance(sampler, scheme):
        raise UnsupportedError(f"The pair is registered for {scheme.__name__}, not for {type(sampler).__name__}.")
    return sampler
