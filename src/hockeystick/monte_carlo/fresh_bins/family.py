"""Proposals for random allocation with correlated noise, one visit in each epoch, for any C >= 0.

Inner products of columns tie the epochs together, so the ratio is bounded for each sample, from below by a mean field
and from above by visits that are drawn.

Proof: docs/theory/monte-carlo/fresh-bins.md.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log1p
from typing import Any, ClassVar

import numpy as np

from hockeystick.monte_carlo.forests.linked import (
    ORDERS,
    Trees,
    best_order,
    caps_of,
    draw_cost,
    drawing_error,
    law_of_coins,
    served,
)
from hockeystick.monte_carlo.forests.linked import log_norm as log_norm_of_coins
from hockeystick.monte_carlo.fresh_bins.epochs import chain_of, log_norm, most_below
from hockeystick.monte_carlo.fresh_bins.kernels import (
    VisitDraws,
    draw_above,
    draw_add,
    draw_below,
    draw_linked_above,
)
from hockeystick.monte_carlo.histories.chances import binomial
from hockeystick.monte_carlo.histories.columns import Columns, columns_of, why_no_columns
from hockeystick.monte_carlo.histories.limited_histories import DECAYS, MAX_ORDER, best_decay
from hockeystick.monte_carlo.histories.one_sided import (
    BELOW_SHARE,
    BETAS,
    HISTORIES,
    LARGEST_BOUND,
    SECONDS_PER_ENTRY,
    SECONDS_PER_ENTRY_ABOVE,
    TILTED_SHARE,
    TRIED,
    Add,
    Below,
    OneSided,
    log_largest_add,
    lose,
    rates,
)
from hockeystick.monte_carlo.memo import remembered
from hockeystick.monte_carlo.proposals import Array, Family, Proposal
from hockeystick.monte_carlo.weight_bounds import bounded_exp, log_power_bound
from hockeystick.pairs.fresh_bins import FreshBins
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction, Side

MAX_BINS = 1024
"""Chances of counts are held for every place of an epoch."""
SECONDS_PER_STEP, SECONDS_PER_STEP_ADD, SECONDS_PER_STEP_ABOVE = 5e-8, 2e-8, 1e-7


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fresh(OneSided):
    """Of a pair that is not refused by :func:`why_not`."""

    pair: FreshBins

    @property
    def own(self) -> Columns:
        return fresh_columns(self.pair, self.sides[0])

    @property
    def covered(self) -> bool:
        return why_not(self.pair, self.sides[0]) is None

    @property
    def cost(self) -> float:
        """Filtered outputs, products with the columns, and a mean field: passes over columns and inner products."""
        return self.own.steps * SECONDS_PER_STEP + self._entries * SECONDS_PER_ENTRY


@dataclass(frozen=True, kw_only=True, eq=False)
class _FreshAbove(_Fresh):
    """Remove, upper bounds: outputs whose density is at least a power of ``X'``, mixed with filtered outputs.

    Attributes:
        order: a >= 2, the power.
        rate: the chance of a visit in the filtered outputs, one of :func:`.one_sided.rates`.
    """

    directions: ClassVar[tuple[Direction, ...]] = (Direction.REMOVE,)
    order: int
    rate: float

    @property
    @abstractmethod
    def log_norm(self) -> float:
        """log Z: the density is at least ``X'^order / Z``."""

    @abstractmethod
    def fill(self, rng: np.random.Generator, drawn: Array) -> None:
        """Draw estimates of log X, ``log X'`` and ``log F``, shape (samples, 3)."""

    @property
    def draws(self) -> VisitDraws:
        """How outputs are drawn."""
        return VisitDraws(binomial(1, self.rate), TILTED_SHARE, HISTORIES)

    @property
    def sides(self) -> tuple[Side, ...]:
        """The ratio is estimated without bias, and the profile is convex in it."""
        return (Side.UPPER,)

    @property
    def proved(self) -> bool:
        return super().proved and self.rate in rates(self.own)

    def weight_bound(self, epsilon: float) -> float:
        """``Z e^(-(a-1) epsilon) (a-1)^(a-1) / a^a`` over the share of that density."""
        return bounded_exp(log_largest(self.order, self.log_norm, epsilon) + 1e-12)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        drawn = np.empty((losses.size, 3))
        self.fill(rng, drawn)
        with np.errstate(invalid="ignore"):  # what leaves the range of doubles is not a number, and counts as M
            tilted = log(TILTED_SHARE) + self.order * drawn[:, 1] - self.log_norm
            losses[:] = drawn[:, 0]
            log_weights[:] = losses - np.logaddexp(tilted, log1p(-TILTED_SHARE) + drawn[:, 2])
            lose(log_weights, losses)


@dataclass(frozen=True, kw_only=True, eq=False)
class FreshCounted(_FreshAbove):
    """Outputs of a chain of counts.

    Attributes:
        decay: of the chain's field, one of DECAYS.
    """

    name: ClassVar[str] = "fresh_counted"
    chosen: ClassVar[tuple[str, ...]] = ("order", "decay", "rate")
    decay: float

    @property
    def proved(self) -> bool:
        return 2 <= self.order <= MAX_ORDER and self.decay in DECAYS and super().proved

    @property
    def cost(self) -> float:
        """Most counts are given up early, so few samples take passes over columns."""
        return self.own.steps * SECONDS_PER_STEP_ABOVE + self._entries * SECONDS_PER_ENTRY_ABOVE

    @property
    def loss_error(self) -> float:
        """That of the products and filters, and of the chain's table, whose entries are sums of positive terms."""
        own, chain = self.own, chain_of(self.own, self.pair.bins, self.order, self.decay)
        terms = self.order + abs(chain.log_norm) + 2.0 * chain.largest_log
        entries = 16.0 * UNIT_ROUNDOFF * own.steps * (terms + self.order + 16.0)
        return float(max(1e-9, own.rounding(self.order + 1.0, self.order + 1.0) + entries))

    @property
    def log_norm(self) -> float:
        return log_norm(self.own, self.pair.bins, self.order, self.decay)

    def fill(self, rng: np.random.Generator, drawn: Array) -> None:
        own, chain = self.own, chain_of(self.own, self.pair.bins, self.order, self.decay)
        assert chain.tables is not None  # M is infinite where there is none
        draw_above(rng, own.overlaps, self.pair.bins, chain.tables, self.draws, drawn)


@dataclass(frozen=True, kw_only=True, eq=False)
class FreshLinked(_FreshAbove):
    """Outputs of tuples that are drawn by links, for trees."""

    name: ClassVar[str] = "fresh_linked"
    chosen: ClassVar[tuple[str, ...]] = ("order", "rate")

    @property
    def covered(self) -> bool:
        return super().covered and trees_of(self.pair) is not None

    @property
    def trees(self) -> Trees:
        """Those whose nodes the matrix releases."""
        found = trees_of(self.pair)
        assert found is not None
        return found

    @property
    def proved(self) -> bool:
        if not super().proved or not served(self.own, self.trees) or self.order not in ORDERS:
            return False
        return caps_of(self.own, self.trees, self.order, self._each) is not None

    @property
    def cost(self) -> float:
        """Most tuples are given up before anything is multiplied."""
        return super().cost * (1.0 - TILTED_SHARE) + draw_cost(self.own, self.trees, self.order)

    @property
    def loss_error(self) -> float:
        """That of the products and filters, of the tables of counts, and of what tuples are drawn with."""
        own, order = self.own, self.order + 1.0
        law = law_of_coins(own, self.trees, self.order, self._each)
        return float(max(1e-9, own.rounding(order, order) + drawing_error(own, self.trees, self.order, law)))

    @property
    def _each(self) -> tuple[int, ...]:
        return most_below(self.trees, self.pair.bins, self.pair.epochs)

    @property
    def log_norm(self) -> float:
        return log_norm_of_coins(self.own, self.trees, self.order, self._each)

    def fill(self, rng: np.random.Generator, drawn: Array) -> None:
        own, trees = self.own, self.trees
        *_, splits, roots = law_of_coins(own, trees, self.order, self._each).arrays
        drawn_from = trees.levels, splits, roots, trees.link
        draw_linked_above(rng, own.overlaps, self.pair.bins, drawn_from, self.order, self.draws, drawn)


@dataclass(frozen=True, kw_only=True, eq=False)
class FreshBelow(_Fresh, Below):
    """Remove, lower bounds."""

    name: ClassVar[str] = "fresh_below"

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        own, drawn = self.own, np.empty((losses.size, 2))
        draw_below(rng, own.columns, own.couplings, self.pair.bins, binomial(1, self.rate), BELOW_SHARE, drawn)
        self.weigh(drawn, log_weights, losses)


@dataclass(frozen=True, kw_only=True, eq=False)
class FreshAdd(_Fresh, Add):
    """Add, upper bounds."""

    name: ClassVar[str] = "fresh_add"

    @property
    def cost(self) -> float:
        """Outputs are not filtered."""
        return self.own.steps * SECONDS_PER_STEP_ADD + self._entries * SECONDS_PER_ENTRY

    @property
    def moments(self) -> tuple[float, float]:
        return moments_of(self.own, self.pair.bins)

    def fill(self, rng: np.random.Generator, drawn: Array) -> None:
        own = self.own
        draw_add(rng, own.columns, own.couplings, self.pair.bins, self.beta, own.mean, drawn)


def log_largest(order: int, log_norm: float, epsilon: float) -> float:
    """log M of the upper bounds for remove."""
    return log_power_bound(order, log_norm, epsilon) - log(TILTED_SHARE)


@remembered
def moments_of(own: Columns, bins: int) -> tuple[float, float]:
    """``|C E x|^2 / sigma^2`` and ``E |C x|^2 / sigma^2``: visits of different epochs are independent."""
    total, steps = float(own.couplings[:, 0].sum()) / bins, np.arange(own.steps)
    for lag in range(1, own.couplings.shape[1]):
        other_epoch = steps[:-lag] // bins != steps[lag:] // bins
        total += 2.0 * float(own.couplings[:-lag, lag][other_epoch].sum()) / bins**2
    return float(np.square(own.mean).sum()), total * (1.0 + 1e-9)


def trees_of(pair: FreshBins) -> Trees | None:
    """Those whose nodes the matrix releases; None for others."""
    sizes = pair.matrix.tree_sizes
    return None if sizes is None else Trees(sizes, pair.noise_multiplier)


def fresh_columns(pair: FreshBins, side: Side) -> Columns:
    """The columns of the steps, on this side of those of the pair, with coins of the rate of visits."""
    return columns_of(pair.matrix, pair.noise_multiplier, 1.0 / pair.bins, side)


def propose(pair: FreshBins, direction: Direction, epsilon: float) -> Sequence[Proposal]:
    """One for each side, for lower bounds first, where M is of any use; for add one for upper bounds."""
    first = first_proposal(pair, direction, epsilon)
    if direction is Direction.ADD:
        return (first,)
    above = [one for one in (_counted(pair, epsilon, first), _linked(pair, epsilon, first)) if one is not None]
    best = min(above, key=lambda one: one.weight_bound(epsilon))
    return (first, best) if best.weight_bound(epsilon) < LARGEST_BOUND else (first,)


def first_proposal(pair: FreshBins, direction: Direction, epsilon: float) -> Proposal:
    """The first one of :func:`propose`: no chain is looked for, which takes a second."""
    own = fresh_columns(pair, Side.UPPER)
    if direction is Direction.ADD:
        moments = moments_of(own, pair.bins)
        beta = float(min(BETAS, key=lambda beta: log_largest_add(moments, float(beta), epsilon)))
        return FreshAdd(direction=direction, pair=pair, beta=beta)
    return FreshBelow(direction=direction, pair=pair, rate=_best_rate(own, pair.bins, epsilon))


def _counted(pair: FreshBins, epsilon: float, first: Proposal) -> FreshCounted:
    own = fresh_columns(pair, Side.UPPER)

    def largest(order: int, decay: float) -> float:
        return log_largest(order, log_norm(own, pair.bins, order, decay), epsilon)

    order, decay = best_decay(largest, DECAYS[len(DECAYS) // 2], 2)
    rate = first.parameters["rate"]
    return FreshCounted(direction=Direction.REMOVE, pair=pair, order=order, decay=decay, rate=rate)


def _linked(pair: FreshBins, epsilon: float, first: Proposal) -> FreshLinked | None:
    own, trees = fresh_columns(pair, Side.UPPER), trees_of(pair)
    if trees is None or not served(own, trees):
        return None
    order = best_order(own, trees, most_below(trees, pair.bins, pair.epochs), epsilon)
    if order is None:
        return None
    return FreshLinked(direction=Direction.REMOVE, pair=pair, order=order, rate=first.parameters["rate"])


def _best_rate(own: Columns, bins: int, epsilon: float) -> float:
    """The rate whose filtered outputs have a loss of about epsilon on the average."""
    some = rates(own)
    losses = np.maximum.accumulate([_mean_loss(own, bins, rate) for rate in some])
    wanted = float(np.interp(epsilon, losses, some))
    return min(some, key=lambda rate: abs(rate - wanted))


@remembered
def _mean_loss(own: Columns, bins: int, rate: float) -> float:
    """The mean loss of a few filtered outputs; only choices rest on it."""
    drawn = np.empty((TRIED, 2))
    rng = np.random.Generator(np.random.SFC64(0))
    draw_below(rng, own.columns, own.couplings, bins, binomial(1, rate), 1.0, drawn)
    return float(drawn[:, 0].mean())


def why_not(pair: FreshBins, side: Side) -> str | None:
    """Why the pair cannot be sampled."""
    if pair.batches_are_public:
        return "the example is in every batch: nothing is random"
    if pair.bins > MAX_BINS:
        return f"it is for at most {MAX_BINS} bins"
    return why_no_columns(pair.matrix)


def fingerprint(pair: FreshBins) -> Sequence[Any]:
    """The bins, and what stands for the entries of C."""
    return (pair.bins, pair.matrix.steps, np.frombuffer(bytes.fromhex(pair.matrix.digest), dtype=np.uint8))


FAMILY = Family(
    pair=FreshBins,
    kinds=(FreshBelow, FreshCounted, FreshLinked, FreshAdd),
    propose=propose,
    quick=first_proposal,
    fingerprint=fingerprint,
    refusal=why_not,
)
