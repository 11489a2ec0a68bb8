"""Correlated noise with public batches: a single Gaussian."""

from dataclasses import dataclass

from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.samplers import Deterministic


@dataclass(frozen=True, kw_only=True)
class KnownBatches(DominatingPair):
    """``N(m, sigma^2 I)`` against ``N(0, sigma^2 I)``: m is the sum of the columns of C of one example's steps.

    Tightly dominates fixed batches with any strategy, also for adaptive gradients (C is causal and non-negative).

    Attributes:
        sensitivity: ``max |m|`` over the batches.
        error: proved relative rounding error of ``sensitivity``.
    """

    sensitivity: float
    error: float

    @property
    def full_sensitivity(self) -> float:
        """The largest norm of a sum of columns."""
        return self.sensitivity

    @property
    def sensitivity_error(self) -> float:
        """The relative rounding of the sums behind the sensitivity."""
        return self.error

    @property
    def batches_are_public(self) -> bool:
        """True: the batches are fixed."""
        return True


@dataclass(frozen=True, kw_only=True)
class RevealedBatches(KnownBatches):
    """Random batches that are revealed to the adversary, who can tell most of them anyway: an upper bound only."""

    @property
    def batches_are_public(self) -> bool:
        """False: revealing the batches is what makes it an upper bound."""
        return False


def from_deterministic(mechanism: Mechanism) -> KnownBatches:
    """Fixed batches: batch i of every epoch holds the same examples."""
    from hockeystick.strategies.sensitivity import fixed_epochs

    sampler = require(mechanism.sampler, Deterministic)
    matrix = mechanism.matrix
    return KnownBatches(
        noise_multiplier=mechanism.sigma,
        sensitivity=fixed_epochs(matrix, sampler.bins).value,
        error=8.0 * matrix.rounding,
    )
