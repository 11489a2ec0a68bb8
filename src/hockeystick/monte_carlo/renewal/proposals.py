"""Proposals for b-min-sep: towards outputs on which several copies of the participations agree, or away from all."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb, lgamma, log, log1p
from typing import ClassVar, NamedTuple

import numpy as np

from hockeystick.monte_carlo.proposals import Array, Proposal, rounded
from hockeystick.monte_carlo.renewal.proposal_kernels import (
    LARGEST_EXPONENT,
    LARGEST_SPREAD,
    Density,
    Recursion,
    draw_shifted,
    draw_tilted,
)
from hockeystick.monte_carlo.renewal.proposal_tables import Renewal, Table, state_count
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL, exp_or_inf
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF, StrategyMatrix
from hockeystick.types import Direction

ORDERS = range(2, 13)
MAX_ENTRIES = 1 << 23
"""Doubles in the table of a proposal."""
MAX_STATES = 20_000
MAX_STARTS = 200_000
SHARES = (1.0, 0.6)
"""Weights of the order-a proposal in the mixtures that are proposed."""
FARTHEST = 4.0
"""The largest shift of a chain."""
MOST_BUSY = 0.8
"""The largest fraction of the steps that participations of a chain block."""
MAX_BETA = 1e3
BETAS = np.concatenate([np.arange(0.25, 4.0, 0.25), np.arange(4.0, 16.0, 1.0), np.arange(16.0, 129.0, 8.0)])
STEP_SECONDS = 1.7e-8
ENTRY_SECONDS = 1e-9
"""Rough costs of a step, and of an entry of C, in one sample."""
MOVE_SECONDS = 1.2e-8
"""And of a term of a move of the copies, made at every step at which one of them is blocked."""
NEAR = 0.3
"""Weight of the order-a proposal beside a chain of many copies."""
MAX_REACH = 96
MAX_CAP = 3
NEARER = (1.0, 0.8, 1.25)
"""Numbers of copies that are worth a pilot, in proportion to the one that should be best."""


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
class TiltedProposal(Proposal):
    """``share R_a + (1 - share) chain``: R_a has density ``Xt^a / E_Q Xt^a`` relative to Q, Xt >= X; remove.

    ``Y <= M = Z_a e^(-(a-1) epsilon) (a-1)^(a-1) / a^a / share`` whatever the chain is
    (docs/theory/monte-carlo/renewal-proposals.md).

    Attributes:
        pair: what is sampled.
        order: a, at least 2.
        separation: how many steps a participation blocks in Xt, from p to min_sep; Xt = X at min_sep.
        share: weight of R_a, in (0, 1].
    """

    directions: ClassVar[tuple[Direction, ...]] = (Direction.REMOVE,)

    pair: RenewalMixture
    order: int
    separation: int
    share: float

    @property
    @abstractmethod
    def gap(self) -> int:
        """How many steps a participation of the chain blocks."""

    @property
    @abstractmethod
    def chain(self) -> Hits:
        """The chain's chance to take part when available, its shifts and their probabilities."""

    @property
    def proved(self) -> bool:
        """Where the table is small enough and holds no number beyond the range of doubles."""
        possible = self.order in ORDERS and self.pair.columns.shape[1] <= self.separation <= self.pair.min_sep
        return (
            0.0 < self.share <= 1.0
            and _covered(self.pair)
            and possible
            and _small(self.pair, self.order, self.separation)
            and _weights_fit(self.pair, self.separation)
        )

    @property
    def cost(self) -> float:
        """Normals and one or two exponentials for each step, the inner products, and the moves of the copies."""
        recursions = 1.0 + 0.4 * (self.share < 1.0) + 0.2 * (self.separation < self.pair.min_sep)
        blocked = (self.separation - 1) * self.pair.participation_prob
        busy = 1.0 - (1.0 + blocked) ** -self.order
        moves = MOVE_SECONDS * self.share * (self.order + 1.0) * busy
        products = ENTRY_SECONDS * self.pair.columns.shape[1]
        return float(self.pair.matrix.steps * (STEP_SECONDS * recursions + moves + products))

    @property
    def loss_error(self) -> float:
        """Of a + 1 recursions' logs, and of log Z_a."""
        return (self.order + 1) * _loss_error(self.pair, self.gap) + self.table.error

    def weight_bound(self, epsilon: float) -> float:
        rounding = 1e-13 * self.order * (1.0 + epsilon)
        return exp_or_inf(self.table.log_moment + _log_factor(self.order, epsilon) + rounding) / self.share

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        """O(n p) a sample."""
        draw_tilted(rng, log_weights, losses, self.density, self.table, self.order, self.share)

    @cached_property
    def density(self) -> Density:
        """What kernels evaluate."""
        return _density(self.pair, self.separation, self.gap, self.chain)

    @property
    def table(self) -> Table:
        """What kernels draw R_a from."""
        return _table(_renewal(self.pair), self.order, self.separation)


@dataclass(frozen=True, kw_only=True, eq=False)
class OrderProposal(TiltedProposal):
    """With a chain of few participations that are far, for outputs in which a few of them decide.

    Attributes:
        rate: the chain's chance to take part when available, in (0, 1).
        shift: of its far participations, a multiple of 1/2; the others have shift 1.
        far: the probability of a participation to be far.
    """

    name: ClassVar[str] = "renewal_order"
    chosen: ClassVar[tuple[str, ...]] = ("order", "separation", "share", "rate", "shift", "far")

    rate: float
    shift: float
    far: float

    @property
    def proved(self) -> bool:
        inside = 0.0 < self.rate < 1.0 and 0.0 < self.far < 1.0
        return inside and self.shift in np.arange(1.0, FARTHEST + 0.5, 0.5) and super().proved

    @property
    def gap(self) -> int:
        return self.pair.min_sep

    @property
    def chain(self) -> Hits:
        return Hits(self.rate, np.array([1.0, self.shift]), np.array([1.0 - self.far, self.far]))


@dataclass(frozen=True, kw_only=True, eq=False)
class CopiesProposal(TiltedProposal):
    """With a chain that stands for more copies than any table can follow, for outputs in which many steps decide.

    A participation of the chain blocks p steps, has shift j = 1, ..., cap, and is about as frequent as steps are in
    which j of ``reach`` copies take part under the tilt of that order.

    Attributes:
        reach: how many copies.
        cap: the largest shift, from 1 to 4.
    """

    name: ClassVar[str] = "renewal_copies"
    chosen: ClassVar[tuple[str, ...]] = ("order", "separation", "share", "reach", "cap")

    reach: int
    cap: int

    @property
    def proved(self) -> bool:
        return 1 <= self.cap <= FARTHEST and 2 <= self.reach <= MAX_REACH and super().proved

    @property
    def gap(self) -> int:
        return int(self.pair.columns.shape[1])

    @property
    def chain(self) -> Hits:
        weights = _copies(self.pair, self.reach, self.cap)
        busy = min(float(weights.sum() / (1.0 + weights.sum())), MOST_BUSY / self.gap)
        rate = busy / (1.0 - (self.gap - 1) * busy)
        return Hits(rate, np.arange(1.0, self.cap + 1.0), weights / weights.sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanProposal(Proposal):
    """``N(-beta C E[x], sigma^2 I)``, in the direction add.

    With ``A = E |C x|^2 / sigma^2`` and ``g = |C E[x]|^2 / sigma^2``, ``Y <= M =
    e^(-beta (epsilon - A/2) + beta^2 g / 2) beta^beta / (beta + 1)^(beta + 1)``.

    Attributes:
        pair: what is sampled.
        beta: at least 0.
    """

    name: ClassVar[str] = "renewal_mean"
    chosen: ClassVar[tuple[str, ...]] = ("beta",)
    directions: ClassVar[tuple[Direction, ...]] = (Direction.ADD,)

    pair: RenewalMixture
    beta: float

    @property
    def proved(self) -> bool:
        return _covered(self.pair) and 0.0 < self.beta <= MAX_BETA

    @property
    def cost(self) -> float:
        """Normals and one exponential for each step, and the inner products."""
        return float(self.pair.matrix.steps * (STEP_SECONDS + ENTRY_SECONDS * self.pair.columns.shape[1]))

    @property
    def loss_error(self) -> float:
        """Of the recursion, and of the weight's inner product."""
        return (2.0 + self.beta) * _loss_error(self.pair, self.pair.min_sep)

    def weight_bound(self, epsilon: float) -> float:
        """The closed form, rounded up."""
        _, square, energy = _renewal(self.pair).mean
        beta = self.beta
        log_largest = -beta * (epsilon - 0.5 * energy) + 0.5 * beta**2 * square
        log_largest += beta * log(beta) - (beta + 1.0) * log1p(beta) + 1e-12 * (1.0 + beta * (epsilon + energy))
        return exp_or_inf(log_largest + 1e-12 * beta**2 * square)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        """O(n p) a sample."""
        draw_shifted(rng, log_weights, losses, self.density, _renewal(self.pair).mean[0], self.beta)

    @cached_property
    def density(self) -> Density:
        return _density(self.pair, self.pair.min_sep, self.pair.min_sep, Hits(0.5, np.ones(1), np.ones(1)))


KINDS = (OrderProposal, CopiesProposal, MeanProposal)


def propose(pair: RenewalMixture, direction: Direction, epsilon: float) -> list[Proposal]:
    """Proposals whose M is below that of the naive one, the most promising first; none where they are not proved.

    Seconds on the first call for a pair, which makes the tables of the orders that are compared.
    """
    if not _covered(pair):
        return []
    if direction is Direction.ADD:
        proposals: list[Proposal] = [MeanProposal(direction=direction, pair=pair, beta=float(beta)) for beta in BETAS]
        return sorted(
            (proposal for proposal in proposals if proposal.weight_bound(epsilon) < 1.0),
            key=lambda t: t.weight_bound(epsilon),
        )[:2]
    orders = _orders(pair, epsilon)
    if not orders:
        return []
    first, *others = orders
    hits, reach = _hits(pair, epsilon), _reach(pair, epsilon)
    found: list[Proposal] = []
    if reach < MAX_REACH:
        reaches = dict.fromkeys(max(first, round(part * reach)) for part in NEARER)
        found.extend(_copies_proposal(pair, first, more) for more in reaches)
    found.extend(_order_proposal(pair, first, share, epsilon, hits) for share in SHARES)
    found.extend(_order_proposal(pair, order, SHARES[-1], epsilon, hits) for order in others[:1])
    return [proposal for proposal in found if proposal.weight_bound(epsilon) < 1.0]


def _copies_proposal(pair: RenewalMixture, order: int, reach: int) -> CopiesProposal:
    separation = _separation(pair, order)
    assert separation is not None
    return CopiesProposal(
        direction=Direction.REMOVE,
        pair=pair,
        order=order,
        separation=separation,
        share=NEAR,
        reach=min(reach, MAX_REACH),
        cap=MAX_CAP,
    )


def _reach(pair: RenewalMixture, epsilon: float) -> int:
    """The first number of copies at which outputs of their chain have a loss of about epsilon; MAX_REACH if none has.

    That loss is about what one copy more adds to the log-moment, as if steps were independent.
    """
    steps = pair.matrix.steps
    moments = [steps * log1p(float(_copies(pair, reach, MAX_CAP, excess=1.0).sum())) for reach in range(2, MAX_REACH)]
    return next((reach for reach, more in enumerate(np.diff(moments), start=2) if more >= epsilon), MAX_REACH)


def _copies(pair: RenewalMixture, reach: int, cap: int, excess: float = 0.0) -> Array:
    """About how often j of so many copies take part in a step, or close to it, under their tilt; shape (cap,).

    ``binom(reach, j) r^j``, r the long-run rate, times ``e^(j (j-1) k / 2) - excess`` for what they share, k the
    longest column's square, times a factor for each copy beyond the first that may be some steps off.
    """
    renewal = _renewal(pair)
    rate = pair.participation_prob / (1.0 + (pair.min_sep - 1) * pair.participation_prob)
    lagged = np.expm1(np.minimum(renewal.lagged().max(axis=0), LARGEST_EXPONENT))
    nearby = 1.0 + 2.0 * float(lagged[1:].sum()) / max(float(lagged[0]), 1e-300)
    taken = np.arange(1, cap + 1)
    exponents = np.minimum(0.5 * taken * (taken - 1) * float(renewal.squares.max()), LARGEST_EXPONENT)
    chances = np.array([comb(reach, int(j)) for j in taken]) * rate**taken * nearby ** (taken - 1.0)
    return np.asarray(chances * (np.exp(exponents) - excess))


def _covered(pair: RenewalMixture) -> bool:
    return pair.banded and pair.too_large is None and pair.examples_per_user == 1


def _orders(pair: RenewalMixture, epsilon: float) -> list[int]:
    """Orders for which there is a table, by M; the search ends when M grows twice."""
    bounds: dict[int, float] = {}
    for order in ORDERS:
        separation = _separation(pair, order)
        if separation is None:
            break
        bounds[order] = _log_moment(_renewal(pair), order, separation) + _log_factor(order, epsilon)
        if order >= ORDERS[0] + 2 and bounds[order] > bounds[order - 1] > bounds[order - 2]:
            break
    return sorted(bounds, key=lambda order: bounds[order])


def _separation(pair: RenewalMixture, order: int) -> int | None:
    """The largest for which the table is small enough: Z_a falls with it."""
    bands, most = pair.columns.shape[1], pair.min_sep
    low, high = 0, most  # the table of low is small, that of anything above high is not
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _small(pair, order, middle) else (low, middle - 1)
    return low if low >= bands and _weights_fit(pair, low) else None


def _small(pair: RenewalMixture, order: int, separation: int) -> bool:
    states = state_count(order, separation)
    starts = comb(separation + order - 1, order) if pair.warm_start else 1
    return states <= MAX_STATES and starts <= MAX_STARTS and states * pair.matrix.steps <= MAX_ENTRIES


def _weights_fit(pair: RenewalMixture, separation: int) -> bool:
    """Whether the weights of Xt can be written without logarithms."""
    return (pair.min_sep - separation) * -log1p(-pair.participation_prob) <= LARGEST_SPREAD


def _order_proposal(pair: RenewalMixture, order: int, share: float, epsilon: float, hits: int) -> OrderProposal:
    """Mixed with a chain of about so many far hits, and as many others as there are under P."""
    separation = _separation(pair, order)
    assert separation is not None
    others = float(_renewal(pair).chances.sum())
    density = min((hits + others) / pair.matrix.steps, MOST_BUSY / pair.min_sep)
    return OrderProposal(
        direction=Direction.REMOVE,
        pair=pair,
        order=order,
        separation=separation,
        share=share,
        rate=rounded(density / (1.0 - density * (pair.min_sep - 1))),
        shift=float(np.clip(np.round(2.0 * _shift(pair, epsilon, hits)) / 2.0, 1.5, FARTHEST)),
        far=min(rounded(hits / (hits + others)), 0.999),
    )


def _shift(pair: RenewalMixture, epsilon: float, hits: int) -> float:
    """The shift at which each of so many participations multiplies X by ``e^(epsilon / hits)``."""
    return 0.5 + (epsilon / hits - log(pair.participation_prob)) / float(_renewal(pair).squares.max())


def _hits(pair: RenewalMixture, epsilon: float) -> int:
    """The number of participations by which X most probably gets to ``e^epsilon`` under P."""
    expected = float(_renewal(pair).chances.sum())
    square = float(_renewal(pair).squares.max())

    def log_chance(hits: int) -> float:
        excess = max(0.0, _shift(pair, epsilon, hits) - 1.0)
        return hits * log(expected) - lgamma(hits + 1.0) - 0.5 * hits * excess**2 * square

    return max(range(1, 2 + pair.matrix.steps // pair.min_sep), key=log_chance)


def _log_factor(order: int, epsilon: float) -> float:
    """log of ``sup_x x^(1-a) (1 - e^epsilon / x)``, at ``x = a e^epsilon / (a - 1)``."""
    return (order - 1) * (log(order - 1) - epsilon) - order * log(order)


def _renewal(pair: RenewalMixture) -> Renewal:
    return _renewal_of(pair.matrix, pair.noise_multiplier, pair.min_sep, pair.participation_prob, pair.warm_start)


@lru_cache(maxsize=8)
def _renewal_of(matrix: StrategyMatrix, sigma: float, min_sep: int, prob: float, warm: bool) -> Renewal:
    """By fields, as two different pairs can compare equal."""
    pair = RenewalMixture(
        noise_multiplier=sigma, matrix=matrix, min_sep=min_sep, participation_prob=prob, warm_start=warm
    )
    chances = prob * pair.availability
    return Renewal(columns=pair.columns / sigma, min_sep=min_sep, prob=prob, warm=warm, chances=chances)


@lru_cache(maxsize=3)
def _table(renewal: Renewal, order: int, separation: int) -> Table:
    return Table.of(renewal, order, separation)


@lru_cache(maxsize=256)
def _log_moment(renewal: Renewal, order: int, separation: int) -> float:
    return _table(renewal, order, separation).log_moment


def _density(pair: RenewalMixture, separation: int, gap: int, chain: Hits) -> Density:
    """What kernels need of X, of Xt and of a chain whose participations are at least ``gap`` steps apart."""
    renewal, (rate, shifts, shares) = _renewal(pair), chain
    steps, halves = renewal.steps, 0.5 * renewal.squares
    polynomial = np.zeros((int(2.0 * shifts.max()) + 1, steps))
    for shift, share in zip(shifts, shares, strict=True):
        polynomial[int(2.0 * shift)] += share * np.exp(-(shift**2) * halves)
    boosted = (log1p(-rate), gap, np.full(steps, rate), np.full(steps, log(rate)), np.ones(1))
    spread = -min(gap * log1p(-rate), pair.min_sep * log1p(-pair.participation_prob))
    gentle = spread <= LARGEST_SPREAD and float(shifts.max() ** 2 * halves.max()) <= LARGEST_EXPONENT
    return (
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


def _loss_error(pair: RenewalMixture, gap: int) -> float:
    """Rounding error of log X: n steps of a recursion, whose value sums no more than this for each participation.

    Also that of the log-density of a chain whose participations are ``gap`` steps apart.
    """
    renewal = _renewal(pair)
    shared = 2.0 * float(renewal.lagged().sum(axis=1).max())
    drawn = FARTHEST_NORMAL * float(renewal.columns.sum(axis=1).max())
    largest = LARGEST_SPREAD + FARTHEST * (max(ORDERS) * shared + drawn)
    participations = -(-renewal.steps // gap)
    return 8.0 * UNIT_ROUNDOFF * largest * participations * (renewal.steps + renewal.bands)
