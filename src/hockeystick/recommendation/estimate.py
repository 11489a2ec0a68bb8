"""Noise multipliers in a tenth of a second: closed forms and laws of simpler mechanisms. Estimates, never claims."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from math import log, log2, sqrt

import numpy as np

from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.bracketing import smallest_passing
from hockeystick.certification.schedule import COARSE_NODES
from hockeystick.errors import UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.mechanism import Mechanism, Unit
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samplers import BallsInBins, BMinSep, CyclicPoisson
from hockeystick.settings import Settings
from hockeystick.strategies import Identity
from hockeystick.strategies.matrix.base import Array
from hockeystick.types import Side

LAW, UNAMPLIFIED = "direct", "gaussian"
"""Accountants that take no more than a tenth of a second on coarse grids."""
WIDTH = 5e-3
"""Relative width of the bracket of an estimate."""
MOST_BINS = 4096
"""For more bins, the Gram matrix of their means takes seconds."""
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

    * Independent steps, and cyclic Poisson sampling with at least as many groups as bands: the law itself, on a coarse
      grid, for the largest column norm.
    * Balls-in-bins: random allocation of as many orthogonal bins as collide as often as these, where two bins collide
      in the second moment of the likelihood ratio, ``E_ij exp(G_ij / sigma^2)``.
    * b-min-sep: cyclic Poisson sampling with min_sep groups.
    * Anything else: the Gaussian mechanism without amplification.

    Raises: UnsupportedError, CannotCertifyError as a calibration does.
    """
    sampler = mechanism.sampler
    if isinstance(sampler, BMinSep):
        prob = min(sampler.rate * sampler.min_sep, 1.0)
        groups = CyclicPoisson(groups=sampler.min_sep, sampling_prob=prob, steps=sampler.steps)
        alike = estimate(mechanism.model_copy(update={"sampler": groups}), epsilon, delta)
        return Estimate(alike.noise_multiplier, 0.3, "cyclic Poisson sampling with min_sep groups")
    plain = isinstance(mechanism.strategy, Identity)
    if mechanism.unit == Unit() and (plain or (isinstance(sampler, CyclicPoisson) and _apart(mechanism, sampler))):
        found = mechanism.matrix.max_column_norm * _of_law(Mechanism(sampler=sampler), epsilon, delta)
        return Estimate(found, 0.02, "law of independent steps" if plain else "law of cyclic Poisson sampling")
    unamplified = _smallest(
        lambda noise: _epsilon(dominating_pair(mechanism.with_noise(noise)), UNAMPLIFIED, delta), epsilon
    )
    if isinstance(sampler, BallsInBins) and sampler.bins <= MOST_BINS and mechanism.unit == Unit():
        found = colliding_bins(mechanism.matrix.bin_gram(sampler.bins), epsilon, delta)
        if found < unamplified:
            return Estimate(found, 0.25, "random allocation with as many collisions")
    room = 0.005 if sampler.batches_are_public else 0.6
    return Estimate(unamplified, room, "Gaussian mechanism without amplification")


def _apart(mechanism: Mechanism, sampler: CyclicPoisson) -> bool:
    """Whether the columns of one example's steps do not overlap."""
    return mechanism.matrix.bands <= sampler.groups


def colliding_bins(gram: Array, epsilon: float, delta: float) -> float:
    """The noise multiplier of random allocation over orthogonal bins that collide as often as these.

    Args:
        gram: inner products of the means of the bins, shape (bins, bins).
    """
    largest, bins_in_all = float(gram.max()), len(gram)
    gram = gram[:: -(-bins_in_all // MOST_ROWS)]

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

    The line is in logarithms of both, so that all candidates share the few laws at its ends.
    """
    below = 1 << int(log2(bins))
    above = min(2 * below, most)
    noise = _of_bins(below, epsilon, delta)
    if bins <= below or above == below:
        return noise
    share = log(bins / below) / log(above / below)
    return float(noise ** (1.0 - share) * _of_bins(above, epsilon, delta) ** share)


@lru_cache(maxsize=256)
def _of_bins(bins: int, epsilon: float, delta: float) -> float:
    """By the law of random allocation over orthogonal bins of norm 1; half of the bins need a little more."""
    start = _of_bins(bins // 2, epsilon, delta) if bins > 1 else 1.0
    pair = partial(AveragedSteps, bins=bins)
    return _smallest(lambda noise: _epsilon(pair(noise_multiplier=noise), LAW, delta), epsilon, start)


@lru_cache(maxsize=256)
def _of_law(mechanism: Mechanism, epsilon: float, delta: float) -> float:
    """By the law of independent noise; strategies that share a sampler share the answer."""
    return _smallest(lambda noise: _epsilon(dominating_pair(mechanism.with_noise(noise)), LAW, delta), epsilon)


def _smallest(epsilon_at: Callable[[float], float], epsilon: float, start: float = 1.0) -> float:
    return smallest_passing(epsilon_at, epsilon, start, WIDTH)[1]


def _epsilon(pair: DominatingPair, method: str, delta: float) -> float:
    one = ACCOUNTANTS[method]
    reason = one.why_not(pair, Side.UPPER)
    if reason is not None:
        raise UnsupportedError(f"The method {method!r} does not apply here: {reason}.")
    return one.bound(pair, Side.UPPER, Settings(Resolution(COARSE_NODES, delta))).epsilon(delta)
