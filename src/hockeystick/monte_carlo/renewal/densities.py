"""What proposals for b-min-sep share: the pair in units of its noise, and the densities that kernels evaluate."""

from functools import lru_cache
from math import log, log1p
from typing import NamedTuple

import numpy as np

from hockeystick.monte_carlo.proposals import Array
from hockeystick.monte_carlo.renewal.proposal_kernels import LARGEST_EXPONENT, LARGEST_SPREAD, Density, Recursion
from hockeystick.monte_carlo.renewal.proposal_tables import Renewal
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF, StrategyMatrix

ORDERS = range(2, 13)
FARTHEST = 4.0
"""The largest shift of a chain."""
STEP_SECONDS = 1.7e-8
ENTRY_SECONDS = 1e-9
"""Rough costs of a step, and of an entry of C, in one sample."""


class Hits(NamedTuple):
    """The participations of a chain.

    Attributes:
        rate: the chance to take part when available, in (0, 1).
        shifts: positive multiples of 1/2, shape (kinds,).
        shares: their probabilities.
    """

    rate: float
    shifts: Array
    shares: Array


def covered(pair: RenewalMixture) -> bool:
    """Whether the proofs cover the pair: one example, whose columns do not overlap."""
    return pair.banded and pair.too_large is None and pair.examples_per_user == 1


def renewal_of(pair: RenewalMixture) -> Renewal:
    """The pair in units of its noise."""
    return _renewal(pair.matrix, pair.noise_multiplier, pair.min_sep, pair.participation_prob, pair.warm_start)


@lru_cache(maxsize=8)
def _renewal(matrix: StrategyMatrix, sigma: float, min_sep: int, prob: float, warm: bool) -> Renewal:
    """By fields, as two different pairs can compare equal."""
    pair = RenewalMixture(
        noise_multiplier=sigma, matrix=matrix, min_sep=min_sep, participation_prob=prob, warm_start=warm
    )
    chances = prob * pair.availability
    return Renewal(columns=pair.columns / sigma, min_sep=min_sep, prob=prob, warm=warm, chances=chances)


def density_of(pair: RenewalMixture, separation: int, gap: int, chain: Hits) -> Density:
    """What kernels need of X, of Xt and of a chain whose participations are at least ``gap`` steps apart."""
    renewal, (rate, shifts, shares) = renewal_of(pair), chain
    steps, halves = renewal.steps, 0.5 * renewal.squares
    polynomial = np.zeros((int(2.0 * shifts.max()) + 1, steps))
    for shift, share in zip(shifts, shares, strict=True):
        polynomial[int(2.0 * shift)] += share * np.exp(-(shift**2) * halves)
    boosted = (log1p(-rate), gap, np.full(steps, rate), np.full(steps, log(rate)), np.ones(1))
    spread = -min(gap * log1p(-rate), pair.min_sep * log1p(-pair.participation_prob))
    gentle = spread <= LARGEST_SPREAD and float(shifts.max() ** 2 * halves.max()) <= LARGEST_EXPONENT
    return Density(
        np.ascontiguousarray(renewal.columns.T),
        halves,
        _recursion(renewal, pair.min_sep),
        _recursion(renewal, separation),
        boosted,
        (rate, shifts, shares),
        polynomial,
        np.exp(-halves),
        gentle,
    )


def _recursion(renewal: Renewal, separation: int) -> Recursion:
    logs = renewal.log_takes(separation)
    return log1p(-renewal.prob), separation, np.exp(logs), logs, np.exp(renewal.log_starts(separation))


def loss_error_of(pair: RenewalMixture, gap: int) -> float:
    """Rounding error of log X: n steps of a recursion, whose value sums no more than this for each participation.

    Also that of the log-density of a chain whose participations are ``gap`` steps apart.
    """
    renewal = renewal_of(pair)
    shared = 2.0 * float(renewal.lagged().sum(axis=1).max())
    drawn = FARTHEST_NORMAL * float(renewal.columns.sum(axis=1).max())
    largest = LARGEST_SPREAD + FARTHEST * (max(ORDERS) * shared + drawn)
    participations = -(-renewal.steps // gap)
    return 8.0 * UNIT_ROUNDOFF * largest * participations * (renewal.steps + renewal.bands)
