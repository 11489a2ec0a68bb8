"""Noise multipliers in some hundredths of a second, from simpler mechanisms. Estimates, never claims."""

from dataclasses import dataclass
from math import log, log2, sqrt

import numpy as np

from hockeystick.bracketing import smallest_passing
from hockeystick.mechanism import Mechanism, Unit
from hockeystick.recommendation.moments import WIDTH, allocation_noise, fixed_size_noise, poisson_noise
from hockeystick.recommendation.sketches import gram_rows, sketch
from hockeystick.samplers import (
    BallsInBins,
    BMinSep,
    CyclicPoisson,
    Deterministic,
    FixedSize,
    Poisson,
    RandomAllocation,
)
from hockeystick.strategies import Identity
from hockeystick.strategies.matrix.base import Array, StrategyMatrix

MOST_BINS = 4096
"""The most bins whose Gram matrix of means takes less than seconds."""
MOST_ROWS = 256
"""Rows of it that are looked at, evenly spread."""


@dataclass(frozen=True)
class Estimate:
    """A noise multiplier that is about what a calibration would find.

    Attributes:
        noise_multiplier: the estimate.
        room: how much smaller the certified one may be, relative to it; measured in docs/reference/recommend.md.
        how: where it comes from.
    """

    noise_multiplier: float
    room: float
    how: str


def estimate(mechanism: Mechanism, epsilon: float, delta: float) -> Estimate:
    """About the smallest noise multiplier that is certified for (epsilon, delta); promises no side.

    * Poisson sampling of independent steps, and cyclic Poisson sampling with at least as many groups as bands: moments
      of the likelihood ratio, for the largest column norm.
    * Batches of a fixed size: moments of the bound on a step or cohort, or no amplification where that needs less.
    * Random allocation: the same, of a mean of ratios.
    * Balls-in-bins: random allocation of as many orthogonal bins as collide as often as these, where two bins collide
      in the second moment of the likelihood ratio, ``E_ij exp(G_ij / sigma^2)``.
    * b-min-sep: cyclic Poisson sampling with min_sep groups.
    * Anything else: the Gaussian mechanism without amplification.

    Raises: UnsupportedError for a combination that nobody has analysed; CannotCertifyError as a calibration does.
    """
    sampler, plain = mechanism.sampler, isinstance(mechanism.strategy, Identity)
    if mechanism.unit != Unit():
        return _unamplified(mechanism, epsilon, delta)
    if isinstance(sampler, BMinSep):
        prob = min(sampler.rate * sampler.min_sep, 1.0)
        groups = CyclicPoisson(groups=sampler.min_sep, sampling_prob=prob, steps=sampler.steps)
        alike = estimate(mechanism.model_copy(update={"sampler": groups}), epsilon, delta)
        return Estimate(alike.noise_multiplier, 0.3, "cyclic Poisson sampling with min_sep groups")
    if plain and isinstance(sampler, Poisson) and sampler.truncated_batch_size is None:
        noise = poisson_noise(sampler.sampling_prob, sampler.steps, epsilon, delta)
        return Estimate(noise, 0.02, "moments of Poisson sampling")
    if plain and isinstance(sampler, FixedSize):
        return _of_fixed_size(mechanism, sampler, epsilon, delta)
    if plain and isinstance(sampler, RandomAllocation):
        blocks = max(sampler.bins // sampler.participations, 1)
        noise = allocation_noise(blocks, sampler.epochs * sampler.participations, epsilon, delta)
        return Estimate(noise, 0.1, "moments of random allocation")
    if isinstance(sampler, CyclicPoisson) and not sampler.groups_are_secret:
        matrix = sketch(mechanism)
        if matrix.bands <= sampler.groups:  # the columns of one example's steps do not overlap
            opportunities = -(-sampler.steps // sampler.groups)
            noise = matrix.max_column_norm * poisson_noise(sampler.sampling_prob, opportunities, epsilon, delta)
            return Estimate(noise, 0.02, "moments of cyclic Poisson sampling")
    if isinstance(sampler, BallsInBins):
        return _of_bins(sketch(mechanism), sampler.bins, epsilon, delta)
    if isinstance(sampler, Deterministic):
        noise = _gaussian(float(sketch(mechanism).bin_norms(sampler.bins).max()), epsilon, delta)
        return Estimate(noise, 0.005, "Gaussian mechanism")
    return _unamplified(mechanism, epsilon, delta)


def _of_fixed_size(mechanism: Mechanism, sampler: FixedSize, epsilon: float, delta: float) -> Estimate:
    unamplified = _unamplified(mechanism, epsilon, delta)
    together = min(sampler.cohort_steps, sampler.steps)
    noise = sqrt(together) * fixed_size_noise(sampler.rate, -(-sampler.steps // together), epsilon, delta)
    if noise >= unamplified.noise_multiplier:
        return unamplified
    return Estimate(noise, 0.05, "moments of batches of a fixed size")


def _of_bins(matrix: StrategyMatrix, bins: int, epsilon: float, delta: float) -> Estimate:
    unamplified = _gaussian(float(matrix.bin_norms(bins).max()), epsilon, delta)
    if bins <= MOST_BINS:
        noise = colliding_bins(gram_rows(matrix, bins), epsilon, delta)
        if noise < unamplified:
            return Estimate(noise, 0.25, "random allocation with as many collisions")
    return Estimate(unamplified, 0.6, "Gaussian mechanism without amplification")


def _unamplified(mechanism: Mechanism, epsilon: float, delta: float) -> Estimate:
    """The estimate for what the closed forms do not know; the pairs take a while to import."""
    from hockeystick.pairs.registry import dominating_pair

    pair = dominating_pair(mechanism.with_noise(1.0))
    room = 0.005 if pair.batches_are_public else 0.6
    return Estimate(_gaussian(pair.full_sensitivity, epsilon, delta), room, "Gaussian mechanism without amplification")


def _gaussian(sensitivity: float, epsilon: float, delta: float) -> float:
    return sensitivity * poisson_noise(1.0, 1, epsilon, delta)


def colliding_bins(gram: Array, epsilon: float, delta: float) -> float:
    """The noise multiplier of random allocation over orthogonal bins that collide as often as these.

    Args:
        gram: inner products of the means of the bins, shape (bins, bins); or evenly spread rows of it, with the largest
            entry.
    """
    largest, bins_in_all = float(gram.max()), gram.shape[1]
    gram = gram[:: -(-len(gram) // MOST_ROWS)]

    def needed(noise: float) -> float:
        """Noise of the orthogonal bins that collide as often at this noise, over the noise itself."""
        scaled = gram / noise**2
        peak = largest / noise**2
        # 1 / bins = chance of a collision, so that (1 / bins) (e^peak - 1) = E exp(G / sigma^2) - 1.
        chance = float(np.mean(np.exp(scaled - peak)) - np.exp(-peak)) / -float(np.expm1(-peak))
        bins = float(np.clip(1.0 / chance, 1, bins_in_all))
        return _of_orthogonal(bins, bins_in_all, epsilon, delta) * sqrt(largest) / noise

    return smallest_passing(needed, 1.0, sqrt(largest), WIDTH)[1]


def _of_orthogonal(bins: float, most: int, epsilon: float, delta: float) -> float:
    """The noise multiplier of random allocation over so many bins of norm 1, between powers of two by a straight line.

    The line is in logarithms of both, so that all candidates share the few moments at its ends.
    """
    below = 1 << int(log2(bins))
    above = min(2 * below, most)
    noise = allocation_noise(below, 1, epsilon, delta)
    if bins <= below or above == below:
        return noise
    share = log(bins / below) / log(above / below)
    return float(noise ** (1.0 - share) * allocation_noise(above, 1, epsilon, delta) ** share)
