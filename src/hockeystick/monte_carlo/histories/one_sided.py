"""Proposals that bound the ratio of every sample from one side (docs/theory/monte-carlo/many-bands.md).

Where the columns of many opportunities overlap, no recursion computes the ratio. Here it is bounded, from below by a
mean field and from above by histories that are drawn, so every proposal gives bounds of one side. A family says which
columns its pairs have.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log1p
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hockeystick.monte_carlo.histories.chances import binomial
from hockeystick.monte_carlo.histories.columns import Columns
from hockeystick.monte_carlo.histories.history_kernels import ENDLESS, Draws, draw_above, draw_add, draw_below
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
)
from hockeystick.monte_carlo.histories.waiting_kernels import (
    draw_waiting_above,
    draw_waiting_add,
    draw_waiting_below,
)
from hockeystick.monte_carlo.memo import remembered
from hockeystick.monte_carlo.proposals import Array, Proposal, rounded
from hockeystick.monte_carlo.weight_bounds import bounded_exp, log_factor, log_power_bound
from hockeystick.pairs.base import DominatingPair
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction, Side

SECONDS_PER_OPPORTUNITY = 1.2e-7
SECONDS_PER_ENTRY, SECONDS_PER_WAITED_ENTRY = 8e-10, 1.1e-9
SECONDS_PER_ENTRY_ABOVE = 1.5e-10
"""Of an upper bound: most counts are given up before anything is multiplied."""
HISTORIES = 2
"""Estimates of the ratio whose mean is taken."""
TILTED_SHARE, BELOW_SHARE = 0.8, 0.9
"""How often outputs are those of the density that proves M (upper bounds), and not those of P (lower bounds)."""
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
class Tilted(OneSided):
    """Remove, upper bounds: outputs whose density is at least a power of ``X'_A``, mixed with filtered outputs.

    Histories with many participations in a block are left out; the chance of them is added by samples of their own.

    Attributes:
        order: a >= 2, the power of ``X'_A`` that the density dominates.
        rate: the chance of an opportunity in the filtered outputs, one of :func:`rates`.
        block: opportunities of a block, one of BLOCKS.
        limit: the most participations in a block, exceeded with one of the chances TAILS.
    """

    directions: ClassVar[tuple[Direction, ...]] = (Direction.REMOVE,)
    order: int
    rate: float
    block: int
    limit: int

    @property
    @abstractmethod
    def log_norm(self) -> float:
        """log Z: the density is at least ``X'_A^order / Z``."""

    @property
    def left_out(self) -> float:
        """What left-out histories and outputs add to any profile, at most."""
        return chance_of_others(self.own, self.limits)

    @abstractmethod
    def fill(self, rng: np.random.Generator, drawn: Array) -> None:
        """Draw estimates of log X_A, ``log X'_A`` and ``log F``, shape (samples, 3)."""

    @property
    def sides(self) -> tuple[Side, ...]:
        """The ratio is estimated without bias, and the profile is convex in it."""
        return (Side.UPPER,)

    @property
    def proved(self) -> bool:
        if not super().proved or self.block not in BLOCKS or self.rate not in rates(self.own):
            return False
        return self.limit in {fewest(self.own, self.block, tail) for tail in TAILS}

    @property
    def draws(self) -> Draws:
        """How outputs are drawn."""
        return Draws(self.block, self.limit, binomial(self.own.coins, self.rate), TILTED_SHARE, HISTORIES)

    @property
    def limits(self) -> Limits:
        """On participations."""
        return Limits(self.block, self.limit)

    def weight_bound(self, epsilon: float) -> float:
        """The bound of :func:`log_largest`, and what stands for the rest."""
        largest = log_largest(self.order, self.log_norm, epsilon)
        return max(bounded_exp(largest + 1e-12), 1.001 * bounded_exp(self._log_rest))

    @property
    def _log_rest(self) -> float:
        """log of the weight of the samples that stand for what is left out."""
        return log(self.left_out) - log(OTHER_SHARE)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        drawn = np.empty((losses.size, 3))
        rest = rng.random(losses.size) < OTHER_SHARE
        self.fill(rng, drawn)
        with np.errstate(invalid="ignore"):
            tilted = self.order * drawn[:, 1] - self.log_norm
        weigh_mixture(drawn[:, 0], tilted, drawn[:, 2], rest, self._log_rest, log_weights, losses)


def log_largest(order: int, log_norm: float, epsilon: float) -> float:
    """log M, but for what stands for the rest: ``Z e^(-(a-1) epsilon) (a-1)^(a-1) / a^a`` over the share."""
    share = log(TILTED_SHARE) + log1p(-OTHER_SHARE)
    return log_power_bound(order, log_norm, epsilon) - share


@dataclass(frozen=True, kw_only=True, eq=False)
class Above(Tilted):
    """Outputs of a chain of counts.

    Attributes:
        decay: of the chain's field, one of DECAYS.
    """

    chosen: ClassVar[tuple[str, ...]] = ("order", "decay", "rate", "block", "limit")
    decay: float

    @property
    def proved(self) -> bool:
        return 2 <= self.order <= MAX_ORDER and self.decay in DECAYS and super().proved

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
        return chain_of(self.own, self.order, self.decay, self.limits)

    @property
    def log_norm(self) -> float:
        return self._chain.log_norm

    def fill(self, rng: np.random.Generator, drawn: Array) -> None:
        own, chain = self.own, self._chain
        assert chain.tables is not None  # M is infinite where there is none
        if own.min_sep > 1:
            draw_waiting_above(rng, own.overlaps, own.wait, chain.tables, self.draws, drawn)
        else:
            shares = kept_shares(own, self.order)
            draw_above(rng, own.overlaps, own.chances, shares, chain.tables, self.draws, drawn)


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
        drawn = np.empty((losses.size, 2))
        drawn_below(rng, self.own, self.rate, BELOW_SHARE, drawn)
        self.weigh(drawn, log_weights, losses)

    def weigh(self, drawn: Array, log_weights: Array, losses: Array) -> None:
        """Weights and losses from the logarithms of a lower bound on X and of F, shape (samples, 2)."""
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

    @property
    def moments(self) -> tuple[float, float]:
        """g and A."""
        return self.own.moments

    def weight_bound(self, epsilon: float) -> float:
        """``exp(-beta (epsilon - A/2) + beta^2 g / 2) beta^beta / (beta + 1)^(beta + 1)``."""
        return bounded_exp(log_largest_add(self.moments, self.beta, epsilon))

    def fill(self, rng: np.random.Generator, drawn: Array) -> None:
        """Draw lower bounds on log X, and ``<C E x, y> / sigma^2``, shape (samples, 2)."""
        own = self.own
        if own.min_sep > 1:
            draw_waiting_add(rng, own.overlaps, own.wait, self.beta, own.mean, drawn)
        else:
            draw_add(rng, own.columns, own.couplings, own.chances, self.beta, own.mean, drawn)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        drawn = np.empty((losses.size, 2))
        squared_mean, mean_square = self.moments
        self.fill(rng, drawn)
        with np.errstate(invalid="ignore"):
            losses[:] = -np.maximum(drawn[:, 0], drawn[:, 1] - 0.5 * mean_square)
            log_weights[:] = self.beta * drawn[:, 1] + 0.5 * self.beta**2 * squared_mean
            lose(log_weights, losses)


def weigh_mixture(
    log_ratios: Array,
    tilted: Array,
    other: Array,
    rest: NDArray[np.bool_],
    log_rest: float,
    log_weights: Array,
    losses: Array,
) -> None:
    """Weights and losses of outputs from a mixture of two densities, and of samples that stand for what is left out.

    Args:
        log_ratios: logs of estimates of X, shape (samples,), as all arrays.
        tilted, other: logs of the two densities relative to Q; the first has the share TILTED_SHARE.
        rest: which samples stand for what is left out, with the weight ``e^log_rest``.
    """
    with np.errstate(invalid="ignore"):  # what leaves the range of doubles is not a number, and counts as M
        density = np.logaddexp(log(TILTED_SHARE) + tilted, log1p(-TILTED_SHARE) + other)
        losses[:] = log_ratios
        log_weights[:] = log_ratios - density - log1p(-OTHER_SHARE)
        lose(log_weights, losses)
    log_weights[rest] = log_rest
    losses[rest] = ENDLESS


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
        draw_waiting_below(rng, own.overlaps, own.wait, rates, share, drawn)
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
