"""Proposals for Poisson and cyclic Poisson sampling with many bands (docs/theory/monte-carlo/many-bands.md).

The recursion over patterns of recent participations visits 2^bands of them. Here the ratio is bounded for each sample
instead, so every proposal gives bounds of one side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import log, log1p
from typing import ClassVar

import numpy as np

from hockeystick.monte_carlo.proposals import Array, Proposal, rounded
from hockeystick.monte_carlo.subsets.history_kernels import chain_table, draw_above, draw_add, draw_below
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL, bounded_exp, log_factor
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction, Side

MAX_ENTRIES = 1 << 22
"""Of the columns, and of their inner products: 32 MB each."""
SECONDS_PER_OPPORTUNITY = 2.2e-8
SECONDS_PER_ENTRY = 1.2e-9
HISTORIES = 4
"""Estimates of the ratio whose mean is taken."""
CHAIN_SHARE, BELOW_SHARE = 0.8, 0.9
"""How often outputs are those of the chain (upper bounds), and not those of P (lower bounds)."""
NODES = 64
"""For the field that earlier participations exert in the chain."""
DECAYS = (0.8, 0.87, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995)
MAX_ORDER = 16
RATES = np.geomspace(1.0, 64.0, 49)
"""Rates of the filtered outputs, in units of the sampling rate. They, and DECAYS, are all that there are: whoever wants
another bound from the same seed finds few designs to try."""
MAX_RATE = 0.9
LARGEST_BOUND = 1.0
"""Upper bounds whose M is larger than this take more samples than anybody draws."""
TRIED = 48
"""Outputs by which rates are compared."""
MAX_BETA = 1e4
BETAS = np.array([rounded(beta) for beta in np.geomspace(1e-2, 1e3, 501)])


@dataclass(frozen=True, eq=False)
class Columns:
    """What each opportunity adds to the rows from its own on, and the inner products of these columns.

    Attributes:
        columns: in units of sigma, shape (opportunities, rows that a column reaches).
        couplings: ``<c_u, c_(u+e)>``, 0 where there is no opportunity u + e; shape (opportunities, w).
        every: rows from one opportunity to the next.
        steps: rows.
        prob: the chance of every opportunity.
    """

    columns: Array
    couplings: Array
    every: int
    steps: int
    prob: float

    @cached_property
    def row_sums(self) -> Array:
        """What all opportunities together add to each row."""
        sums = np.zeros(self.steps)
        for u, column in enumerate(self.columns):
            rows = sums[u * self.every :][: column.size]
            rows += column[: rows.size]
        return sums

    def largest_exponent(self, copies: float) -> float:
        """At least ``sum_t c_t |y_t|`` for every column c, and ``m_t |y_t|`` for the sum m of a row."""
        farthest = copies * float(self.row_sums.max()) + FARTHEST_NORMAL
        return farthest * max(float(self.columns.sum(axis=1).max()), float(self.row_sums.max()))

    def rounding(self, copies: float, slope: float) -> float:
        """First-order bound on the rounding of the loss, and of ``slope`` times each logarithm in a weight."""
        opportunities, window = self.couplings.shape
        terms = float(self.columns.shape[1] + 16)
        exponents = terms * self.largest_exponent(copies)
        fields = (opportunities + terms + window) * float(self.couplings.max(axis=0).sum())
        return float(4.0 * UNIT_ROUNDOFF * (1.0 + slope) * (self.steps * (exponents + 16.0) + opportunities * fields))


def columns_of(pair: SubsetMixture) -> Columns:
    """Those of a pair of Poisson sampling, or of cyclic Poisson sampling with a Toeplitz matrix: the first group's."""
    return _columns(pair.matrix, pair.groups, pair.noise_multiplier, pair.sampling_prob)


@lru_cache(maxsize=2)
def _columns(matrix: StrategyMatrix, every: int, sigma: float, prob: float) -> Columns:
    """O(opportunities^2 steps)."""
    opportunities = -(-matrix.steps // every)
    whole = matrix.columns(np.arange(0, matrix.steps, every)) / sigma
    gram = whole.T @ whole
    reach, window = matrix.bands, min(-(-matrix.bands // every), opportunities)
    columns, couplings = np.zeros((opportunities, reach)), np.zeros((opportunities, window))
    for u in range(opportunities):
        own = whole[u * every :, u][:reach]
        columns[u, : own.size] = own
        couplings[u, : gram[u, u : u + window].size] = gram[u, u : u + window]
    return Columns(columns, couplings, every, matrix.steps, prob)


@dataclass(frozen=True, kw_only=True, eq=False)
class _ManyBands(Proposal):
    """What the proposals share.

    Attributes:
        pair: not refused by :func:`too_large`, and not without subsampling.
    """

    pair: SubsetMixture

    @property
    def own(self) -> Columns:
        """The columns of the opportunities."""
        return columns_of(self.pair)

    @property
    def proved(self) -> bool:
        return too_large(self.pair) is None and not self.pair.batches_are_public

    @property
    def cost(self) -> float:
        """Passes over the columns and their inner products."""
        entries = self.own.columns.size + 0.5 * self.own.couplings.size
        return float(entries * SECONDS_PER_ENTRY + 3.0 * self.own.columns.shape[0] * SECONDS_PER_OPPORTUNITY)


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyBandsAbove(_ManyBands):
    """Remove, upper bounds: a mixture of a chain of counts, which proves M, and of filtered outputs.

    Attributes:
        order: a >= 2, the power of X' that the chain dominates.
        decay: of the chain's field, one of DECAYS.
        rate: the chance of an opportunity in the filtered outputs, one of :func:`rates`.
    """

    name: ClassVar[str] = "many_bands_above"
    chosen: ClassVar[tuple[str, ...]] = ("order", "decay", "rate")
    directions: ClassVar[tuple[Direction, ...]] = (Direction.REMOVE,)
    order: int
    decay: float
    rate: float

    @property
    def sides(self) -> tuple[Side, ...]:
        """The ratio is estimated without bias, and the profile is convex in it."""
        return (Side.UPPER,)

    @property
    def proved(self) -> bool:
        return (
            2 <= self.order <= MAX_ORDER and self.decay in DECAYS and self.rate in rates(self.pair) and super().proved
        )

    @property
    def cost(self) -> float:
        return float(super().cost + HISTORIES * self.own.columns.shape[0] * SECONDS_PER_OPPORTUNITY)

    @property
    def loss_error(self) -> float:
        """That of the products and filters, and of the chain's table, whose entries are sums of positive terms."""
        own, table = self.own, _chain(self.own, self.order, self.decay)[-1]
        largest = float(np.abs(table).max()) + self.order * abs(log(own.prob)) + 1.0
        entries = 16.0 * UNIT_ROUNDOFF * own.columns.shape[0] * (self.order + largest + self._largest_term)
        return float(max(1e-9, own.rounding(self.order + 1.0, self.order + 1.0) + entries))

    @property
    def _largest_term(self) -> float:
        _, squares, nodes, _ = _chain(self.own, self.order, self.decay)
        return self.order * (float(nodes[-1]) + self.order * float(squares.max()))

    def weight_bound(self, epsilon: float) -> float:
        """``Z e^(-(a-1) epsilon) (a-1)^(a-1) / a^a``, divided by the share of the chain."""
        return bounded_exp(log_largest(self.own, self.order, self.decay, epsilon) + 1e-12)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        own, drawn = self.own, np.empty((losses.size, 3))
        chain = _chain(own, self.order, self.decay)
        draw_above(
            rng,
            own.steps,
            own.columns,
            own.couplings,
            own.every,
            own.prob,
            self.decay,
            chain,
            self.order,
            self.rate,
            CHAIN_SHARE,
            HISTORIES,
            drawn,
        )
        with np.errstate(invalid="ignore"):  # what leaves the range of doubles is not a number, and counts as M
            tilted = log(CHAIN_SHARE) + self.order * drawn[:, 1] - chain[-1][0, 0]
            losses[:] = drawn[:, 0]
            log_weights[:] = drawn[:, 0] - np.logaddexp(tilted, log1p(-CHAIN_SHARE) + drawn[:, 2])
            _lose(log_weights, losses)


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyBandsBelow(_ManyBands):
    """Remove, lower bounds: a mixture of P and of filtered outputs.

    Attributes:
        rate: the chance of an opportunity in the filtered outputs, one of :func:`rates`.
    """

    name: ClassVar[str] = "many_bands_below"
    chosen: ClassVar[tuple[str, ...]] = ("rate",)
    directions: ClassVar[tuple[Direction, ...]] = (Direction.REMOVE,)
    rate: float

    @property
    def sides(self) -> tuple[Side, ...]:
        """The ratio is bounded from below, and the samples grow with it."""
        return (Side.LOWER,)

    @property
    def proved(self) -> bool:
        return self.rate in rates(self.pair) and super().proved

    @property
    def loss_error(self) -> float:
        return float(max(1e-9, self.own.rounding(2.0, 2.0)))

    def weight_bound(self, epsilon: float) -> float:
        """The share of P bounds it; a lower bound does not use it."""
        return 1.0 / (1.0 - BELOW_SHARE) * (1.0 + 8.0 * UNIT_ROUNDOFF)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        own, drawn = self.own, np.empty((losses.size, 2))
        draw_below(rng, own.steps, own.columns, own.couplings, own.every, own.prob, self.rate, BELOW_SHARE, drawn)
        with np.errstate(invalid="ignore"):
            losses[:] = drawn[:, 0]
            log_weights[:] = losses - np.logaddexp(log1p(-BELOW_SHARE) + losses, log(BELOW_SHARE) + drawn[:, 1])
            _lose(log_weights, losses)


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyBandsAdd(_ManyBands):
    """Add, upper bounds: ``y ~ N(-beta C E x, sigma^2 I)``; ``g = |C E x|^2 / sigma^2``, ``A = E |C x|^2 / sigma^2``.

    Attributes:
        beta: > 0.
    """

    name: ClassVar[str] = "many_bands_add"
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
        return bounded_exp(log_largest_add(self.own, self.beta, epsilon))

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        own, drawn = self.own, np.empty((losses.size, 2))
        squared_mean, mean_square = moments(own)
        mean = own.prob * own.row_sums
        draw_add(rng, own.columns, own.couplings, own.every, own.prob, self.beta, mean, drawn)
        with np.errstate(invalid="ignore"):
            losses[:] = -np.maximum(drawn[:, 0], drawn[:, 1] - 0.5 * mean_square)
            log_weights[:] = self.beta * drawn[:, 1] + 0.5 * self.beta**2 * squared_mean
            _lose(log_weights, losses)


def _lose(log_weights: Array, losses: Array) -> None:
    """Not a number is what has no finite weight and loss."""
    lost = ~(np.isfinite(log_weights) & np.isfinite(losses))
    log_weights[lost] = np.nan
    losses[lost] = np.nan


@lru_cache(maxsize=4)
def _chain(own: Columns, order: int, decay: float) -> tuple[Array, Array, Array, Array]:
    """Pulls, squares, nodes and table of the chain of so many copies.

    Earlier participations exert at least their inner products: ``pull_u decay^e >= <c_u, c_(u+e)>`` at every lag.
    """
    lags = np.arange(1, own.couplings.shape[1])
    squares = np.ascontiguousarray(own.couplings[:, 0]) * (1.0 + 1e-9)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        needed = np.where(own.couplings[:, 1:] > 0.0, own.couplings[:, 1:] / decay**lags, 0.0)
    pulls = needed.max(axis=1, initial=0.0) * (1.0 + 1e-9)
    largest = max(decay / (1.0 - decay) * order * float(pulls.max()), 1e-9)  # no field at or below it leads above it
    nodes = 1.001 * largest * np.linspace(0.0, 1.0, NODES) ** 2
    return pulls, squares, nodes, chain_table(pulls, squares, own.prob, order, decay, nodes)


@lru_cache(maxsize=512)
def log_norm(own: Columns, order: int, decay: float) -> float:
    """log Z of the chain."""
    return float(_chain(own, order, decay)[-1][0, 0])


def log_largest(own: Columns, order: int, decay: float, epsilon: float) -> float:
    """log M of the upper bounds for remove."""
    return log_norm(own, order, decay) - (order - 1.0) * epsilon + log_factor(order - 1.0) - log(CHAIN_SHARE)


def moments(own: Columns) -> tuple[float, float]:
    """``|C E x|^2 / sigma^2`` and ``E |C x|^2 / sigma^2``."""
    squared_mean = float(np.square(own.prob * own.row_sums).sum())
    return squared_mean, squared_mean + own.prob * (1.0 - own.prob) * float(own.couplings[:, 0].sum())


def log_largest_add(own: Columns, beta: float, epsilon: float) -> float:
    """log M of the upper bounds for add."""
    squared_mean, mean_square = moments(own)
    return -beta * (epsilon - 0.5 * mean_square) + 0.5 * beta**2 * squared_mean + log_factor(beta)


def too_large(pair: SubsetMixture) -> str | None:
    """Why the columns of this pair are not held."""
    opportunities = -(-pair.matrix.steps // pair.groups)
    if opportunities * max(pair.matrix.bands, opportunities) > MAX_ENTRIES:
        return f"its columns have more than {MAX_ENTRIES} entries"
    return None


def proposals(pair: SubsetMixture, direction: Direction, epsilon: float) -> Sequence[Proposal]:
    """One for each side, for lower bounds first, where M is of any use; for add one for upper bounds."""
    own = columns_of(pair)
    if direction is Direction.ADD:
        beta = float(min(BETAS, key=lambda beta: log_largest_add(own, float(beta), epsilon)))
        return (ManyBandsAdd(direction=direction, pair=pair, beta=beta),)
    order, decay = min(_best_orders(own, epsilon), key=lambda one: log_largest(own, one[0], one[1], epsilon))
    rate = _best_rate(pair, epsilon)
    below = ManyBandsBelow(direction=direction, pair=pair, rate=rate)
    above = ManyBandsAbove(direction=direction, pair=pair, order=order, decay=decay, rate=rate)
    return (below, above) if above.weight_bound(epsilon) < LARGEST_BOUND else (below,)


def _best_orders(own: Columns, epsilon: float) -> Iterator[tuple[int, float]]:
    """The order with the smallest M, for each decay; log Z is nearly convex in the order."""
    for decay in DECAYS:
        best = 2
        while best < MAX_ORDER and log_largest(own, best + 1, decay, epsilon) < log_largest(own, best, decay, epsilon):
            best += 1
        yield best, decay


def rates(pair: SubsetMixture) -> list[float]:
    """The rates of filtered outputs that are proposed, ascending."""
    return sorted({rounded(min(pair.sampling_prob * rate, MAX_RATE)) for rate in RATES})


def _best_rate(pair: SubsetMixture, epsilon: float) -> float:
    """The rate whose filtered outputs have a loss of about epsilon on the average."""
    some = rates(pair)[::4]
    losses = np.maximum.accumulate([_mean_loss(columns_of(pair), rate) for rate in some])
    wanted = float(np.interp(epsilon, losses, some))
    return min(rates(pair), key=lambda rate: abs(rate - wanted))


@lru_cache(maxsize=64)
def _mean_loss(own: Columns, rate: float) -> float:
    """The mean loss of a few filtered outputs; only choices rest on it."""
    drawn = np.empty((TRIED, 2))
    rng = np.random.Generator(np.random.SFC64(0))
    draw_below(rng, own.steps, own.columns, own.couplings, own.every, own.prob, rate, 1.0, drawn)
    return float(drawn[:, 0].mean())
