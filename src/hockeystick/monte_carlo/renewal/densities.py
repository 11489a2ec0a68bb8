"""The densities of proposals for b-min-sep, as the recursions that kernels evaluate, and their rounding."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf, log1p
from typing import NamedTuple

import numpy as np

from hockeystick.moments.copies.renewal import Renewal
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.proposals import Plain
from hockeystick.monte_carlo.renewal.kernels import Recursion, draw_outputs
from hockeystick.monte_carlo.renewal.proposal_kernels import Densities
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF, StrategyMatrix
from hockeystick.types import Direction

ORDERS = range(2, 13)
FARTHEST = 4.0
"""The largest shift of a chain."""
LARGEST_SPREAD = 100.0
"""Steps that are one separation apart differ by no larger factor from skipping, ``(1-q)^-b``, in logarithms."""
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


@dataclass(frozen=True, kw_only=True, eq=False)
class PlainRenewal(Plain):
    """Outputs that are not tilted.

    Attributes:
        pair: what is sampled.
    """

    pair: RenewalMixture

    @cached_property
    def law(self) -> Recursion:
        """What the kernels need."""
        return recursion(self.pair, self.direction)

    @property
    def mean(self) -> tuple[Array, float, float]:
        """``C E[x] / sigma``, its square norm g, and A."""
        return renewal_of(self.pair).mean

    def outputs(self, rng: np.random.Generator, samples: int, beta: float | None) -> Array:
        """O(n p) a sample."""
        drawn, mean = np.empty((samples, 2)), self.mean[0] if beta else np.zeros(self.law.half_squares.size)
        draw_outputs(rng, self.law, beta is None, mean, beta or 0.0, drawn)
        return drawn


def recursion(pair: RenewalMixture, direction: Direction) -> Recursion:
    """The recursion that gives X, or for overlapping columns a bound on it that is safe in this direction."""
    from scipy.stats import binom

    sigma, users, prob = pair.noise_multiplier, pair.examples_per_user, pair.participation_prob
    column = pair.matrix.toeplitz_column
    if column is None:
        taps = np.ascontiguousarray(pair.columns.T) / sigma
        half_squares = 0.5 * np.einsum("di,di->i", taps, taps)
    else:
        taps = column[: pair.matrix.bands, None] / sigma
        half_squares = 0.5 * np.cumsum((column / sigma) ** 2)[::-1].copy()
    shifts = np.zeros(half_squares.size)
    if direction is Direction.ADD and not pair.banded:
        shifts = users * pair.overlaps / sigma**2
    return Recursion(
        taps=taps,
        half_squares=half_squares,
        shifts=shifts,
        times=np.arange(1.0, users + 1.0),
        log_weights=np.asarray(binom.logpmf(np.arange(1, users + 1), users, prob), dtype=np.float64),
        log_stay=users * log1p(-prob) if prob < 1.0 else -inf,
        min_sep=pair.min_sep,
        first=pair.first_available,
    )


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


def densities_of(pair: RenewalMixture, separation: int, gap: int, chain: Hits) -> Densities:
    """X, Xt and a chain whose participations are at least ``gap`` steps apart.

    Weights of the participations in Xt are shifts of their exponents: each adds one column.
    """
    exact, renewal = recursion(pair, Direction.REMOVE), renewal_of(pair)
    relaxed = exact._replace(
        shifts=exact.log_weights[0] - renewal.log_takes(separation),
        min_sep=separation,
        first=np.exp(renewal.log_starts(separation)),
    )
    with np.errstate(divide="ignore"):  # few copies do not take part more often than they are
        log_weights = np.log(chain.rate * chain.shares)
    boosted = exact._replace(
        times=chain.shifts,
        log_weights=log_weights,
        log_stay=log1p(-chain.rate),
        min_sep=gap,
        first=np.ones(1),
    )
    return exact, relaxed, boosted


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
