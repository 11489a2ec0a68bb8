"""Proposals that bound the ratio of every sample from one side (docs/theory/monte-carlo/many-bands.md).

Where the columns of many opportunities overlap, no recursion computes the ratio. Here it is bounded, from below by a
mean field and from above by histories that are drawn, so every proposal gives bounds of one side. A family says which
columns its pairs have.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, log1p
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hockeystick.monte_carlo.histories.chances import binomial
from hockeystick.monte_carlo.histories.columns import Columns
from hockeystick.monte_carlo.histories.history_kernels import ENDLESS, draw_above, draw_add, draw_below
from hockeystick.monte_carlo.histories.limited_histories import (
    BLOCKS,
    DECAYS,
    MAX_ORDER,
    TAILS,
    Chain,
    Limits,
    best_chain,
    chain_of,
    chance_of_others,
    fewest,
    kept_shares,
    log_power_bound,
)
from hockeystick.monte_carlo.histories.waiting_kernels import (
    draw_waiting_above,
    draw_waiting_add,
    draw_waiting_below,
)
from hockeystick.monte_carlo.memo import remembered
from hockeystick.monte_carlo.proposals import Array, Proposal, rounded
from hockeystick.monte_carlo.weight_bounds import bounded_exp, log_factor
from hockeystick.pairs.base import DominatingPair
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction, Side

SECONDS_PER_OPPORTUNITY = 1.2e-7
SECONDS_PER_ENTRY, SECONDS_PER_WAITED_ENTRY = 8e-10, 1.1e-9
SECONDS_PER_ENTRY_ABOVE = 1.5e-10
"""Of an upper bound: most counts are given up before anything is multiplied."""
HISTORIES = 2
"""Estimates of the ratio whose mean is taken."""
CHAIN_SHARE, BELOW_SHARE = 0.8, 0.9
"""How often outputs are those of the chain (upper bounds), and not those of P (lower bounds)."""
OTHER_SHARE = 1 / 64
"""How often a sample stands for histories that are left out."""
RATES = np.geomspace(1.0, 64.0, 17)
"""Rates of the filtered outputs, in units of the sampling rate. They, and what :mod:`.limited_histories` lists, are all
that there are: whoever wants another bound from the same seed finds few designs to try."""
MAX_RATE = 0.9
LARGEST_BOUND = 1.0
"""Upper bounds whose M is larger than this take more samples than anybody draws."""
TRIED = 48
"""Outputs by which rates are compared."""
MAX_BETA = 1e4
BETAS = np.array([rounded(beta) for beta in np.geomspace(1e-2, 1e3, 501)])


@dataclass(frozen=True, kw_only=True, eq=False)
class OneSided(Proposal):
    """What the proposals share.

    Attributes:
        pair: one that is :attr:`covered`.
    """

    pair: DominatingPair

    @property
    @abstractmethod
    def own(self) -> Columns:
        """The columns of the opportunities, on the side that is bounded."""

    @property
    @abstractmethod
    def covered(self) -> bool:
        """Whether the pair has such columns."""

    @property
    def proved(self) -> bool:
        return self.covered

    @property
    def cost(self) -> float:
        """Filtered outputs, products with the columns, and a mean field: passes over columns and inner products."""
        each = SECONDS_PER_ENTRY if self.own.min_sep == 1 else SECONDS_PER_WAITED_ENTRY
        return self.own.steps * SECONDS_PER_OPPORTUNITY + self._entries * each

    @property
    def _entries(self) -> float:
        """Pairs of an opportunity and a later one that its column reaches."""
        opportunities, reach = self.own.couplings.shape
        return float(reach * (opportunities - 0.5 * reach))


@dataclass(frozen=True, kw_only=True, eq=False)
class Above(OneSided):
    """Remove, upper bounds: a mixture of a chain of counts, which proves M, and of filtered outputs.

    Histories with many participations in a block are left out; the chance of them is added by samples of their own.

    Attributes:
        order: a >= 2, the power of ``X'_A`` that the chain dominates.
        decay: of the chain's field, one of DECAYS.
        rate: the chance of an opportunity in the filtered outputs, one of :func:`rates`.
        block: opportunities of a block, one of BLOCKS.
        limit: the most participations in a block, exceeded with one of the chances TAILS.
    """

    chosen: ClassVar[tuple[str, ...]] = ("order", "decay", "rate", "block", "limit")
    directions: ClassVar[tuple[Direction, ...]] = (Direction.REMOVE,)
    order: int
    decay: float
    rate: float
    block: int
    limit: int

    @property
    def sides(self) -> tuple[Side, ...]:
        """The ratio is estimated without bias, and the profile is convex in it."""
        return (Side.UPPER,)

    @property
    def proved(self) -> bool:
        if not (2 <= self.order <= MAX_ORDER and self.decay in DECAYS and self.block in BLOCKS and super().proved):
            return False
        return self.rate in rates(self.own) and self.limit in {fewest(self.own, self.block, tail) for tail in TAILS}

    @property
    def cost(self) -> float:
        """Most counts of the chain are given up early, so few samples take passes over columns."""
        return self.own.steps * SECONDS_PER_OPPORTUNITY * self.own.coins + self._entries * SECONDS_PER_ENTRY_ABOVE

    @property
    def loss_error(self) -> float:
        """That of the products and filters, and of the chain's table, whose entries are sums of positive terms."""
        own, chain = self.own, self._chain
        terms = self.order * own.coins + abs(chain.log_norm) + 2.0 * chain.largest_log
        entries = 16.0 * UNIT_ROUNDOFF * own.steps * (terms + self.limit + 16.0)
        return float(max(1e-9, own.rounding(self.order + 1.0, self.order + 1.0) + entries))

    @property
    def _chain(self) -> Chain:
        return chain_of(self.own, self.order, self.decay, self._limits)

    @property
    def _limits(self) -> Limits:
        return Limits(self.block, self.limit)

    def weight_bound(self, epsilon: float) -> float:
        """``Z e^(-(a-1) epsilon) (a-1)^(a-1) / a^a`` over the share of the chain; what stands for other histories."""
        largest = log_power_bound(self.own, self.order, self.decay, self._limits, epsilon)
        share = log(CHAIN_SHARE) + log1p(-OTHER_SHARE)
        return max(bounded_exp(largest - share + 1e-12), 1.001 * exp(self._others))

    @property
    def _others(self) -> float:
        """log of the weight of the samples that stand for other histories."""
        return log(chance_of_others(self.own, self._limits)) - log(OTHER_SHARE)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        own, drawn, chain = self.own, np.empty((losses.size, 3)), self._chain
        others = rng.random(losses.size) < OTHER_SHARE
        assert chain.arrays is not None  # M is infinite where there is none
        limits, rates = (self.block, self.limit), binomial(own.coins, self.rate)
        more = chain.arrays, chain.decay, *limits, rates, CHAIN_SHARE, HISTORIES, drawn
        if own.min_sep > 1:
            draw_waiting_above(rng, own.columns, own.couplings, own.kept, own.prob, own.min_sep, own.first, *more)
        else:
            shares = kept_shares(own, self.order)
            draw_above(rng, own.columns, own.couplings, own.kept, own.chances, shares, *more)
        draw_weights(drawn, self.order, chain.log_norm, others, self._others, log_weights, losses)


@dataclass(frozen=True, kw_only=True, eq=False)
class Below(OneSided):
    """Remove, lower bounds: a mixture of P and of filtered outputs.

    Attributes:
        rate: the chance of an opportunity in the filtered outputs, one of :func:`rates`.
    """

    chosen: ClassVar[tuple[str, ...]] = ("rate",)
    directions: ClassVar[tuple[Direction, ...]] = (Direction.REMOVE,)
    rate: float

    @property
    def sides(self) -> tuple[Side, ...]:
        """The ratio is bounded from below, and the samples grow with it."""
        return (Side.LOWER,)

    @property
    def proved(self) -> bool:
        return self.rate in rates(self.own) and super().proved

    @property
    def loss_error(self) -> float:
        return float(max(1e-9, self.own.rounding(2.0, 2.0)))

    def weight_bound(self, epsilon: float) -> float:
        """The share of P bounds it; a lower bound does not use it."""
        return 1.0 / (1.0 - BELOW_SHARE) * (1.0 + 8.0 * UNIT_ROUNDOFF)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        own, drawn = self.own, np.empty((losses.size, 2))
        drawn_below(rng, own, self.rate, BELOW_SHARE, drawn)
        with np.errstate(invalid="ignore"):
            losses[:] = drawn[:, 0]
            log_weights[:] = losses - np.logaddexp(log1p(-BELOW_SHARE) + losses, log(BELOW_SHARE) + drawn[:, 1])
            lose(log_weights, losses)


@dataclass(frozen=True, kw_only=True, eq=False)
class Add(OneSided):
    """Add, upper bounds: ``y ~ N(-beta C E x, sigma^2 I)``; ``g = |C E x|^2 / sigma^2``, ``A = E |C x|^2 / sigma^2``.

    Attributes:
        beta: > 0.
    """

    chosen: ClassVar[tuple[str, ...]] = ("beta",)
    directions: ClassVar[tuple[Direction, ...]] = (Direction.ADD,)
    beta: float

    @property
    def sides(self) -> tuple[Side, ...]:
        """The ratio is bounded from below, and the samples fall with it."""
        return (Side.UPPER,)

    @property
    def proved(self) -> bool:
        return 0.0 < self.beta <= MAX_BETA and super().proved

    @property
    def loss_error(self) -> float:
        return float(max(1e-9, self.own.rounding(self.beta + 2.0, self.beta + 2.0)))

    def weight_bound(self, epsilon: float) -> float:
        """``exp(-beta (epsilon - A/2) + beta^2 g / 2) beta^beta / (beta + 1)^(beta + 1)``."""
        return bounded_exp(log_largest_add(self.own.moments, self.beta, epsilon))

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        own, drawn = self.own, np.empty((losses.size, 2))
        squared_mean, mean_square = own.moments
        if own.min_sep > 1:
            law = own.prob, own.min_sep, own.first
            draw_waiting_add(rng, own.columns, own.couplings, *law, self.beta, own.mean, drawn)
        else:
            draw_add(rng, own.columns, own.couplings, own.chances, self.beta, own.mean, drawn)
        with np.errstate(invalid="ignore"):
            losses[:] = -np.maximum(drawn[:, 0], drawn[:, 1] - 0.5 * mean_square)
            log_weights[:] = self.beta * drawn[:, 1] + 0.5 * self.beta**2 * squared_mean
            lose(log_weights, losses)


def draw_weights(
    drawn: Array,
    order: int,
    log_norm: float,
    others: NDArray[np.bool_],
    weight: float,
    log_weights: Array,
    losses: Array,
) -> None:
    """Weights and losses of outputs with a density of at least ``s X'_A^a / Z + (1 - s) F``, s the share of the first.

    Args:
        drawn: estimates of log X, ``log X'_A`` and ``log F``, shape (samples, 3).
        log_norm: log Z.
        others: which samples stand for what is left out, with the logarithm ``weight``.
    """
    with np.errstate(invalid="ignore"):  # what leaves the range of doubles is not a number, and counts as M
        tilted = log(CHAIN_SHARE) + order * drawn[:, 1] - log_norm
        losses[:] = drawn[:, 0]
        log_weights[:] = drawn[:, 0] - np.logaddexp(tilted, log1p(-CHAIN_SHARE) + drawn[:, 2])
        log_weights -= log1p(-OTHER_SHARE)
        lose(log_weights, losses)
    log_weights[others] = weight
    losses[others] = ENDLESS


def lose(log_weights: Array, losses: Array) -> None:
    """Not a number is what has no finite weight and loss."""
    lost = ~(np.isfinite(log_weights) & np.isfinite(losses))
    log_weights[lost] = np.nan
    losses[lost] = np.nan


def log_largest_add(moments: tuple[float, float], beta: float, epsilon: float) -> float:
    """log M of the upper bounds for add, from ``|C E x|^2 / sigma^2`` and ``E |C x|^2 / sigma^2``."""
    squared_mean, mean_square = moments
    return -beta * (epsilon - 0.5 * mean_square) + 0.5 * beta**2 * squared_mean + log_factor(beta)


def one_sided(
    pair: DominatingPair,
    own: Columns,
    kinds: tuple[type[Below], type[Above], type[Add]],
    direction: Direction,
    epsilon: float,
) -> Sequence[Proposal]:
    """One for each side, for lower bounds first, where M is of any use; for add one for upper bounds.

    Args:
        own: the columns for upper bounds.
        kinds: the family's own classes.
    """
    first = first_one_sided(pair, own, kinds, direction, epsilon)
    if not isinstance(first, Below):
        return (first,)
    order, decay, limit = best_chain(own, epsilon)
    above = kinds[1](
        direction=direction, pair=pair, order=order, decay=decay, rate=first.rate, block=limit.block, limit=limit.most
    )
    return (first, above) if above.weight_bound(epsilon) < LARGEST_BOUND else (first,)


def first_one_sided(
    pair: DominatingPair,
    own: Columns,
    kinds: tuple[type[Below], type[Above], type[Add]],
    direction: Direction,
    epsilon: float,
) -> Below | Add:
    """The first one of :func:`one_sided`: no chain is looked for, which takes seconds."""
    lower, _, add = kinds
    if direction is Direction.ADD:
        beta = float(min(BETAS, key=lambda beta: log_largest_add(own.moments, float(beta), epsilon)))
        return add(direction=direction, pair=pair, beta=beta)
    return lower(direction=direction, pair=pair, rate=_best_rate(own, epsilon))


def drawn_below(rng: np.random.Generator, own: Columns, rate: float, share: float, drawn: Array) -> None:
    """Lower bounds on log X and logarithms of F: of filtered outputs with the chance ``share``, else of P."""
    rates = binomial(own.coins, rate)
    if own.min_sep > 1:
        law = own.prob, own.min_sep, own.first
        draw_waiting_below(rng, own.columns, own.couplings, *law, rates, share, drawn)
    else:
        draw_below(rng, own.columns, own.couplings, own.chances, rates, share, drawn)


def rates(own: Columns) -> list[float]:
    """The rates of filtered outputs that are proposed, ascending."""
    return sorted({rounded(min(own.prob * rate, MAX_RATE)) for rate in RATES})


def _best_rate(own: Columns, epsilon: float) -> float:
    """The rate whose filtered outputs have a loss of about epsilon on the average."""
    some = rates(own)
    losses = np.maximum.accumulate([_mean_loss(own, rate) for rate in some])
    wanted = float(np.interp(epsilon, losses, some))
    return min(some, key=lambda rate: abs(rate - wanted))


@remembered
def _mean_loss(own: Columns, rate: float) -> float:
    """The mean loss of a few filtered outputs; only choices rest on it."""
    drawn = np.empty((TRIED, 2))
    rng = np.random.Generator(np.random.SFC64(0))
    drawn_below(rng, own, rate, 1.0, drawn)
    return float(drawn[:, 0].mean())
