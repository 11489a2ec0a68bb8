"""Averaged steps: random allocation, and bins that are replayed."""

from dataclasses import dataclass

from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.samplers import BallsInBins, RandomAllocation


@dataclass(frozen=True, kw_only=True)
class AveragedSteps(DominatingPair):
    """``epochs`` independent copies of a ``participations``-of-``bins`` random allocation.

    One copy: P is the mixture over all sets S of ``participations`` bins of ``N(1_S, sigma^2 I)``, Q is
    ``N(0, sigma^2 I)`` in ``bins`` dimensions. Tightly dominates DP-SGD with random allocation
    (feldman-shenfeld-2025, Lemma 3.1). Balls-in-bins, the same bins in each of k epochs, is one copy with one
    participation and k replays: the k visits of a bin are one Gaussian of sensitivity sqrt(k).

    Attributes:
        bins: t, steps of one copy.
        participations: k of t, from 1 to ``bins``.
        epochs: number of independent copies.
        replays: how often the batches of each copy are run through.
    """

    bins: int
    participations: int = 1
    epochs: int = 1
    replays: int = 1

    @property
    def visit_noise(self) -> float:
        """Standard deviation of the noise in units of what all replays of one visit contribute."""
        return self.noise_multiplier / float(self.replays**0.5)

    @property
    def full_sensitivity(self) -> float:
        """The root of the number of visits, which is fixed: only their places are hidden."""
        return float((self.participations * self.epochs * self.replays) ** 0.5)

    @property
    def batches_are_public(self) -> bool:
        """True when the example is in every step."""
        return self.participations == self.bins


def from_random_allocation(mechanism: Mechanism) -> AveragedSteps:
    """Pair of a mechanism that draws fresh bins in every epoch."""
    sampler = require(mechanism.sampler, RandomAllocation)
    return AveragedSteps(
        noise_multiplier=mechanism.sigma,
        bins=sampler.bins,
        participations=sampler.participations,
        epochs=sampler.epochs,
    )


def from_balls_in_bins(mechanism: Mechanism) -> AveragedSteps:
    """Pair of a mechanism that replays the same bins in every epoch."""
    sampler = require(mechanism.sampler, BallsInBins)
    return AveragedSteps(noise_multiplier=mechanism.sigma, bins=sampler.bins, replays=sampler.epochs)
