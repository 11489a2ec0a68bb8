"""Correlated noise with batches that everybody knows: a single Gaussian."""

from dataclasses import dataclass

from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.samplers import Deterministic
from hockeystick.strategies.sensitivity import fixed_epochs


@dataclass(frozen=True, kw_only=True)
class KnownBatches(DominatingPair):
    """``N(m, sigma^2 I)`` against ``N(0, sigma^2 I)``: m is the sum of the columns of C of one example's steps.

    Tightly dominates fixed batches with any strategy, also for adaptive gradients (C is causal and non-negative).

    Attributes:
        sensitivity: ``max |m|`` over the batches, within the relative error ``sensitivity_error``.
    """

    sensitivity: float
    error: float

    @property
    def full_sensitivity(self) -> float:
        """The largest norm of a sum of columns."""
        return self.sensitivity

    @property
    def sensitivity_error(self) -> float:
        """Of the sums that the sensitivity was computed with."""
        return self.error

    @property
    def batches_are_public(self) -> bool:
        """Always."""
        return True


def from_deterministic(mechanism: Mechanism) -> KnownBatches:
    """Fixed batches: batch i of every epoch holds the same examples."""
    sampler = require(mechanism.sampler, Deterministic)
    matrix = mechanism.matrix
    return KnownBatches(
        noise_multiplier=mechanism.sigma,
        sensitivity=fixed_epochs(matrix, sampler.bins).value,
        error=8.0 * matrix.rounding,
    )
