"""Independent steps: deterministic batches and Poisson sampling."""

from dataclasses import dataclass

from hockeystick.pairs.base import DominatingPair


@dataclass(frozen=True, kw_only=True)
class IndependentSteps(DominatingPair):
    """``steps`` independent copies of ``(1-q) N(0, sigma^2) + q N(1, sigma^2)`` against ``N(0, sigma^2)``.

    Tightly dominates DP-SGD with Poisson batches at rate q (chua-2024, section 3) and, with q = 1 and one step for
    every participation, with batches that are fixed beforehand.

    Attributes:
        sampling_prob: q in (0, 1].
        steps: number of copies, at least 1.
    """

    sampling_prob: float
    steps: int

    @property
    def full_sensitivity(self) -> float:
        """sqrt(steps): the example may be in every batch."""
        return float(self.steps**0.5)

    @property
    def batches_are_public(self) -> bool:
        """True without subsampling."""
        return self.sampling_prob == 1.0
