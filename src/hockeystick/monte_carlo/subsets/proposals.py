"""Proposals for Poisson and cyclic Poisson sampling with banded matrices (docs/theory/monte-carlo/subsets.md)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import expm1, inf, log1p
from typing import ClassVar

import numpy as np

from hockeystick.bounds import Profile
from hockeystick.laws.coins import log_chances
from hockeystick.moments.copies.counts import SETTLED, count_table, log_sum
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.moved import Moved
from hockeystick.monte_carlo.proposals import Naive, Plain
from hockeystick.monte_carlo.subsets.count_kernels import draw_counts
from hockeystick.monte_carlo.subsets.kernels import draw_outputs
from hockeystick.monte_carlo.subsets.participations import Participations, participations, runs_recursion
from hockeystick.monte_carlo.weighing import weigh
from hockeystick.monte_carlo.weight_bounds import largest_of_power
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction

SECONDS_PER_PATTERN, SECONDS_PER_ROW, SECONDS_PER_COUNT = 2e-9, 3e-8, 6e-8
"""Rough cost of a sample: for each pattern and each row of a block, and for each opportunity of the chains."""
SHARE, NEAR = 0.9, 0.2
"""Weight of both chains in the proposal by counts, the rest of the samples come from P; and of the near one alone."""
ROUNDED = 1.0 + 8.0 * UNIT_ROUNDOFF
MAX_TABLE_TIME = 4e7
"""Terms that are summed for the table of a chain: a fraction of a second."""
MAX_TABLE = 1 << 22
"""Numbers in such a table: 32 MB."""
MAX_ORDER = 24
"""Largest order of a proposal by counts."""
MAX_REACH = 96
"""The most copies that the far chain stands for."""
LEAST_LOG_CHANCE = -600.0
"""Chances of counts must not leave the range of doubles."""
MAX_TILTED_EXPONENT = 660.0
"""Of a sample of a proposal: times the largest running weight of the recursion it stays in the range of doubles."""
SMALLEST_LARGEST = 1e-3
"""Below this the largest value of the naive proposal is not followed: rounding of the loss would show in it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SubsetProposal(Plain):
    """What the proposals share.

    Attributes:
        pair: the pair; not refused by :func:`.family.why_not`.
    """

    pair: SubsetMixture

    @property
    def opportunities(self) -> Participations:
        """In what steps the example may take part, and what that adds to later rows."""
        return participations(self.pair)

    @property
    def proved(self) -> bool:
        """Where there are not too many patterns to visit."""
        return runs_recursion(self.pair)

    @property
    def cost(self) -> float:
        """Seconds: one visit of 2^w patterns for each block of rows, w opportunities in the window of a row."""
        opportunities, rows, window = self.opportunities.scaled.shape
        return float(opportunities * (rows * SECONDS_PER_ROW + SECONDS_PER_PATTERN * 2.0**window))

    def outputs(self, rng: np.random.Generator, samples: int, beta: float | None) -> Array:
        own, drawn = self.opportunities, np.empty((samples, 2))
        draw_outputs(rng, own.mixture, beta is None, own.mean_shift, beta or 0.0, drawn)
        return drawn

    def _error(self, copies: float, slope: float, sums: int) -> float:
        """First-order bound: roundings of positive numbers and the exponents of every block (subsets.md, Rounding).

        Args:
            copies: how far outputs are shifted at most, in sums of rows, plus one.
            slope: how often an error of the loss, or of ``<mbar, y>``, counts in the log-weight; at least 1.
            sums: roundings of each exponent beyond those of the window and 6.
        """
        opportunities, _, window = self.opportunities.scaled.shape
        exponents = (6.0 + float(sums + window)) * self.opportunities.largest_exponent(copies)
        positive = 1.25 * window**2 + 2.5 * window + 8.0
        return float(max(1e-9, slope * 2.0 * UNIT_ROUNDOFF * opportunities * (positive + exponents)))


@dataclass(frozen=True, kw_only=True, eq=False)
class NaiveSubsets(Naive, SubsetProposal):
    """The pair itself."""

    @property
    def loss_error(self) -> float:
        return self._error(2.0, 1.0, self.opportunities.scaled.shape[1])

    def weight_bound(self, epsilon: float) -> float:
        """1, and for add ``1 - e^epsilon min X``."""
        if self.direction is Direction.REMOVE:
            return 1.0
        return max(smallest_ratio_bound(self.pair)(epsilon), SMALLEST_LARGEST)


@dataclass(frozen=True, kw_only=True, eq=False)
class CountSubsets(SubsetProposal):
    """Remove: a mixture of P and of two chains of counts.

    The near one, with density ``X'^order / Z``, ``X' >= X``, proves M; the far one, of ``reach`` copies of which at
    most ``cap`` count in an opportunity, gives most outputs the losses that matter.

    Attributes:
        order: a >= 2, in ``count_orders``.
        reach: >= order.
        cap: from 1 to ``order``.
    """

    name: ClassVar[str] = "counts"
    chosen: ClassVar[tuple[str, ...]] = ("order", "reach", "cap")
    directions: ClassVar[tuple[Direction, ...]] = (Direction.REMOVE,)
    order: int
    reach: int
    cap: int

    @property
    def proved(self) -> bool:
        """Where the chains stay in the range of doubles and of memory."""
        if not (super().proved and 1 <= self.cap <= self.order <= self.reach <= MAX_REACH):
            return False
        return self.order in count_orders(self.pair) and in_range(self.opportunities, self.reach, self.cap)

    @property
    def cost(self) -> float:
        """Seconds: the chains and the products take a few passes more over the opportunities."""
        return float(super().cost + self.opportunities.count * SECONDS_PER_COUNT)

    @property
    def _alone(self) -> bool:
        """Whether both chains are the same."""
        return self.reach == self.order == self.cap

    @property
    def _near(self) -> float:
        """The share of the near chain: that of both where they are the same."""
        return SHARE if self._alone else NEAR

    @property
    def loss_error(self) -> float:
        """That of the losses and products, and of the chains: roundings of every row, and where rows repeat."""
        own = self.opportunities
        _, rows, window = own.scaled.shape
        norms = abs(log_norm(own, self.order, self.order)) + abs(log_norm(own, self.reach, self.cap))
        chances = self.order * abs(float(log_chances(own.prob, self.order, self.order + 1).min()))
        rounding = 8.0 * UNIT_ROUNDOFF * (1.0 + norms + chances)
        common = self._error(self.order + 1.0, self.reach + 2.0, rows * window)
        return float(common + own.count * (4.0 * SETTLED + rounding))

    def weight_bound(self, epsilon: float) -> float:
        """Close to ``Z e^(-(a-1) epsilon) (a-1)^(a-1) / a^a``, divided by the share of the near chain."""
        return largest_of_counts(self.opportunities, self.order, epsilon, self._near)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        own, drawn = self.opportunities, np.empty((losses.size, 3))
        near = log_chances(own.prob, self.order, self.order + 1), _chain(own, self.order, self.order)
        far = log_chances(own.prob, self.reach, self.cap + 1), _chain(own, self.reach, self.cap)
        shares = self._near, SHARE - self._near
        draw_counts(rng, own.mixture, near, far, shares, drawn)
        tilted = self.order * drawn[:, 1] - log_norm(own, self.order, self.order)
        farther = drawn[:, 2] - log_norm(own, self.reach, self.cap)
        densities = (shares[0], tilted), (shares[1], farther), (1.0 - SHARE, drawn[:, 0])
        weigh(drawn[:, 0], densities, log_weights, losses)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanSubsets(Moved, SubsetProposal):
    """Add."""

    name: ClassVar[str] = "mean"

    @property
    def loss_error(self) -> float:
        return self._error(self.beta + 2.0, self.beta + 1.0, self.opportunities.scaled.shape[1])

    @property
    def moments(self) -> tuple[float, float]:
        return self.opportunities.moments


@lru_cache(maxsize=4)
def _chain(opportunities: Participations, copies: int, cap: int) -> Array:
    """The table of the chain of ``copies`` of which at most ``cap`` count in an opportunity."""
    chances = log_chances(opportunities.prob, copies, cap + 1)
    numbers = float(chances.size) ** (opportunities.window - 1)
    most = int(min(MAX_TABLE / numbers - 1.0, MAX_TABLE_TIME / (numbers * chances.size)))
    table: Array = count_table(opportunities.couplings, chances, most)
    return table


@lru_cache(maxsize=512)
def log_norm(opportunities: Participations, copies: int, cap: int) -> float:
    """log Z of that chain; infinite where its table is too large."""
    return float(log_sum(_chain(opportunities, copies, cap), opportunities.count))


def largest_of_counts(opportunities: Participations, order: int, epsilon: float, near: float = NEAR) -> float:
    """M of the proposal by counts; ``near`` is the share of the near chain."""
    kept = 1.0 - SHARE + near
    return largest_of_power(epsilon, order - 1.0, log_norm(opportunities, order, order), near / kept) / kept * ROUNDED


def smallest_ratio_bound(pair: SubsetMixture) -> Profile:
    """``delta_add <= (1 - e^epsilon (1-p)^k)_+``: X is at least the chance to take no opportunity of k. Rounded up."""
    if pair.batches_are_public:
        return lambda epsilon: 1.0
    log_smallest = -(-pair.matrix.steps // pair.groups) * log1p(-pair.sampling_prob) * (1.0 + 8.0 * UNIT_ROUNDOFF)
    return lambda epsilon: max(-expm1(min(epsilon + log_smallest, 0.0)) * (1.0 + 8.0 * UNIT_ROUNDOFF), 0.0)


def count_orders(pair: SubsetMixture) -> Iterator[int]:
    """The orders of the proposal by counts, from 2 on; none without subsampling.

    Copies that are all in the same steps must leave the factors of the recursion in the range of doubles, and the
    tables of the chain must be small enough.
    """
    if pair.batches_are_public:
        return
    opportunities = participations(pair)
    for order in range(2, MAX_ORDER + 1):
        if opportunities.largest_exponent(order) > MAX_TILTED_EXPONENT or not in_range(opportunities, order, order):
            return
        yield order


def in_range(opportunities: Participations, copies: int, cap: int) -> bool:
    """Whether the chances and the table of a chain are in the range of doubles and of memory."""
    chances = log_chances(opportunities.prob, copies, cap + 1)
    return float(chances.min()) >= LEAST_LOG_CHANCE and log_norm(opportunities, copies, cap) < inf
