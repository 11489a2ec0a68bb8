"""Correlated noise with public batches: a single Gaussian."""

from dataclasses import dataclass

from hockeystick.errors import UnsupportedError
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.samplers import Deterministic, MultiAttribution
from hockeystick.strategies.sensitivity import fixed_epochs, min_separation


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
        """The relative rounding of the sums behind the sensitivity."""
        return self.error

    @property
    def batches_are_public(self) -> bool:
        """True: the batches are fixed."""
        return True


@dataclass(frozen=True, kw_only=True, eq=False)
class RevealedBatches(DominatingPair):
    """Random batches that are revealed to the adversary, who can tell most of them anyway: an upper bound only.

    Attributes:
        sensitivity: the largest distance that the data of one user can make.
        error: proved relative rounding error of ``sensitivity``.
    """

    sensitivity: float
    error: float

    @property
    def full_sensitivity(self) -> float:
        """The sensitivity of the worst batches."""
        return self.sensitivity

    @property
    def sensitivity_error(self) -> float:
        """The relative rounding of the sums behind the sensitivity."""
        return self.error


def from_deterministic(mechanism: Mechanism) -> KnownBatches:
    """Fixed batches: batch i of every epoch holds the same examples."""
    sampler = require(mechanism.sampler, Deterministic)
    matrix = mechanism.matrix
    return KnownBatches(
        noise_multiplier=mechanism.sigma,
        sensitivity=fixed_epochs(matrix, sampler.bins).value,
        error=8.0 * matrix.rounding,
    )


def from_multi_attribution(mechanism: Mechanism) -> RevealedBatches:
    """Users who share examples: all k_u examples of a user in the worst batches that are ``min_sep`` apart.

    Raises: UnsupportedError for exclusion by participating examples, whose separation is no more than that but whose
    analysis is a conjecture that no certificate rests on.
    """
    sampler = require(mechanism.sampler, MultiAttribution)
    if sampler.exclusion != "sampled":
        raise UnsupportedError(
            f"The 'exclusion' field must be 'sampled': nobody has proved an analysis of {sampler.exclusion!r}."
        )
    matrix = mechanism.matrix
    return RevealedBatches(
        noise_multiplier=mechanism.sigma,
        sensitivity=sampler.examples_per_user * min_separation(matrix, sampler.min_sep).value,
        error=8.0 * matrix.rounding,
    )
