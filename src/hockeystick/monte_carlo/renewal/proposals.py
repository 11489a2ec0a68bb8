"""Proposals for b-min-sep: towards outputs on which several copies of the participations agree, or away from all."""

from abc import abstractmethod
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb, inf, lgamma, log, log1p
from typing import Any, ClassVar

import numpy as np

from hockeystick.moments.copies.renewal import Renewal, Table, state_count
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.proposals import Proposal, rounded
from hockeystick.monte_carlo.renewal.densities import (
    ENTRY_SECONDS,
    FARTHEST,
    LARGEST_SPREAD,
    ORDERS,
    STEP_SECONDS,
    Hits,
    covered,
    densities_of,
    loss_error_of,
    recursion,
    renewal_of,
)
from hockeystick.monte_carlo.renewal.kernels import RANGE, sum_logs
from hockeystick.monte_carlo.renewal.means import MeanProposal, ThinnedProposal, propose_means
from hockeystick.monte_carlo.renewal.proposal_kernels import Densities, draw_tilted
from hockeystick.monte_carlo.weighing import weigh
from hockeystick.monte_carlo.weight_bounds import bounded_exp, log_power_bound
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.types import Direction

MAX_ENTRIES = 1 << 24
"""Doubles in the table of a proposal."""
MAX_STATES = 20_000
"""States of the copies that a table follows."""
MAX_STARTS = 600_000
"""Sets of first steps at which the copies of a warm start are available."""
SHARES = (1.0, 0.6)
"""Weights of the order-a proposal in the mixtures that are proposed."""
MOST_BUSY = 0.8
"""The largest fraction of the steps that participations of a chain block."""
MOVE_SECONDS, FAR_MOVE_SECONDS, FAR_ENTRIES = 1.2e-8, 4e-8, 1 << 21
"""Rough cost of a term of a move of the copies, made at every step at which one of them is blocked; and the same for a
table of more doubles than the caches hold."""
NEAR, SMALL_M = 0.3, 0.7
"""Weights of the order-a proposal beside a chain of many copies: for a small variance, and for a small M."""
MAX_REACH = 96
"""The most copies that a chain stands for."""
MAX_CAP = 3
"""The largest shift of the chains of many copies that are proposed."""
NEARER = (1.0, 0.8, 1.25)
"""Numbers of copies that are worth a pilot, in proportion to the one that should be best."""


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
            and covered(self.pair)
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
        far = state_count(self.order, self.separation) * self.pair.matrix.steps > FAR_ENTRIES
        moves = (FAR_MOVE_SECONDS if far else MOVE_SECONDS) * self.share * (self.order + 1.0) * busy
        products = ENTRY_SECONDS * self.pair.columns.shape[1]
        return float(self.pair.matrix.steps * (STEP_SECONDS * recursions + moves + products))

    @property
    def loss_error(self) -> float:
        """Of a + 1 recursions' logs, and of log Z_a."""
        return (self.order + 1) * loss_error_of(self.pair, self.gap) + self.table.error

    def weight_bound(self, epsilon: float) -> float:
        rounding = 1e-13 * self.order * (1.0 + epsilon)
        return bounded_exp(log_power_bound(self.order, self.table.log_moment, epsilon) + rounding) / self.share

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        """O(n p) a sample."""
        drawn = np.empty((losses.size, 3))  # log X, log Xt and the log-density of the chain
        draw_tilted(rng, self.densities, self.table, self.order, self.share, drawn)
        tilted = self.order * drawn[:, 1] - self.table.log_moment
        weigh(drawn[:, 0], ((self.share, tilted), (1.0 - self.share, drawn[:, 2])), log_weights, losses)

    @cached_property
    def densities(self) -> Densities:
        """What kernels evaluate."""
        return densities_of(self.pair, self.separation, self.gap, self.chain)

    @property
    def table(self) -> Table:
        """What kernels draw R_a from."""
        return _table(renewal_of(self.pair), self.order, self.separation)


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


KINDS = (OrderProposal, CopiesProposal, MeanProposal, ThinnedProposal)


def propose(pair: RenewalMixture, direction: Direction, epsilon: float) -> list[Proposal]:
    """Proposals whose M is below that of the naive one, the most promising first; none where they are not proved.

    Seconds on the first call for a pair, which makes the tables of the orders that are compared.
    """
    if not covered(pair):
        return []
    if direction is Direction.ADD:
        return propose_means(pair, epsilon)
    orders = _orders(pair, epsilon)
    if not orders:
        return []
    first, *others = orders
    hits, reach = _hits(pair, epsilon), _reach(pair, epsilon)
    proposals: list[Proposal] = []
    if reach < MAX_REACH:
        reaches = dict.fromkeys(max(first, round(part * reach)) for part in NEARER)
        proposals.extend(_copies_proposal(pair, first, more, NEAR) for more in reaches)
        proposals.append(_copies_proposal(pair, first, max(first, reach), SMALL_M))
    proposals.extend(_order_proposal(pair, first, share, epsilon, hits) for share in SHARES)
    proposals.extend(_order_proposal(pair, order, SHARES[-1], epsilon, hits) for order in others[:1])
    return [proposal for proposal in proposals if proposal.weight_bound(epsilon) < 1.0]


def quick(pair: RenewalMixture, direction: Direction, epsilon: float) -> Proposal | None:
    """The chain of many copies beside the smallest table; None where it is not proved, or sees too little."""
    reach = _reach(pair, epsilon) if direction is Direction.REMOVE and covered(pair) else MAX_REACH
    if reach >= MAX_REACH or _separation(pair, ORDERS[0]) is None:
        return None
    return _copies_proposal(pair, ORDERS[0], max(ORDERS[0], reach), NEAR)


def _copies_proposal(pair: RenewalMixture, order: int, reach: int, share: float) -> CopiesProposal:
    """Mixed with a chain that stands for so many copies, or for the most that are allowed."""
    return CopiesProposal(**_tilted(pair, order, share), reach=min(reach, MAX_REACH), cap=MAX_CAP)


def _tilted(pair: RenewalMixture, order: int, share: float) -> dict[str, Any]:
    """The fields that both kinds have, for an order that has a table."""
    separation = _separation(pair, order)
    assert separation is not None
    return {"direction": Direction.REMOVE, "pair": pair, "order": order, "separation": separation, "share": share}


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
    renewal = renewal_of(pair)
    rate = pair.participation_prob / (1.0 + (pair.min_sep - 1) * pair.participation_prob)
    lagged = np.expm1(np.minimum(renewal.lagged().max(axis=0), RANGE))
    nearby = 1.0 + 2.0 * float(lagged[1:].sum()) / max(float(lagged[0]), 1e-300)
    taken = np.arange(1, cap + 1)
    exponents = np.minimum(0.5 * taken * (taken - 1) * float(renewal.squares.max()), RANGE)
    chances = np.array([comb(reach, int(j)) for j in taken]) * rate**taken * nearby ** (taken - 1.0)
    return np.asarray(chances * (np.exp(exponents) - excess))


def _orders(pair: RenewalMixture, epsilon: float) -> list[int]:
    """Orders that are worth a table, by M; the search ends when M grows twice, or certainly would."""
    bounds: dict[int, float] = {}
    for order in ORDERS:
        separation = _separation(pair, order)
        if separation is None:
            break
        least = log_power_bound(order, _least_log_moment(pair, order, separation), epsilon)
        if least > min(bounds.values(), default=inf):
            break
        bounds[order] = log_power_bound(order, _log_moment(renewal_of(pair), order, separation), epsilon)
        if order >= ORDERS[0] + 2 and bounds[order] > bounds[order - 1] > bounds[order - 2]:
            break
    return sorted(bounds, key=lambda order: bounds[order])


def _least_log_moment(pair: RenewalMixture, order: int, separation: int) -> float:
    """At most log Z_a, without a table: ``(E_Q Xt)^a``, or the terms in which all copies take part together. O(n)."""
    renewal, law = renewal_of(pair), recursion(pair, Direction.REMOVE)
    log_takes, log_starts = renewal.log_takes(separation), renewal.log_starts(separation)
    values = np.empty(renewal.steps + separation)

    def log_sum(copies: int, shared: Array) -> float:
        starts = np.exp(copies * log_starts)
        joint = law._replace(log_stay=copies * law.log_stay, min_sep=separation, first=starts)
        return float(sum_logs(joint, copies * log_takes + shared, values))

    together = 0.5 * order * (order - 1) * renewal.squares
    return max(order * log_sum(1, 0.0 * together), log_sum(order, together))


def _separation(pair: RenewalMixture, order: int) -> int | None:
    """The largest for which the table is small enough: Z_a falls with it."""
    longer = range(1, pair.min_sep + 1)
    largest = bisect_left(longer, True, key=lambda separation: not _small(pair, order, separation))
    return largest if largest >= pair.columns.shape[1] and _weights_fit(pair, largest) else None


def _small(pair: RenewalMixture, order: int, separation: int) -> bool:
    """Whether a table is within the limits above."""
    states = state_count(order, separation)
    starts = comb(separation + order - 1, order) if pair.warm_start else 1
    return states <= MAX_STATES and starts <= MAX_STARTS and states * pair.matrix.steps <= MAX_ENTRIES


def _weights_fit(pair: RenewalMixture, separation: int) -> bool:
    """Whether the weights of Xt can be written without logarithms."""
    return (pair.min_sep - separation) * -log1p(-pair.participation_prob) <= LARGEST_SPREAD


def _order_proposal(pair: RenewalMixture, order: int, share: float, epsilon: float, hits: int) -> OrderProposal:
    """Mixed with a chain of about so many far hits, and as many others as there are under P."""
    others = float(renewal_of(pair).chances.sum())
    density = min((hits + others) / pair.matrix.steps, MOST_BUSY / pair.min_sep)
    return OrderProposal(
        **_tilted(pair, order, share),
        rate=rounded(density / (1.0 - density * (pair.min_sep - 1))),
        shift=float(np.clip(np.round(2.0 * _shift(pair, epsilon, hits)) / 2.0, 1.5, FARTHEST)),
        far=min(rounded(hits / (hits + others)), 0.999),
    )


def _shift(pair: RenewalMixture, epsilon: float, hits: int) -> float:
    """The shift at which each of so many participations multiplies X by ``e^(epsilon / hits)``."""
    return 0.5 + (epsilon / hits - log(pair.participation_prob)) / float(renewal_of(pair).squares.max())


def _hits(pair: RenewalMixture, epsilon: float) -> int:
    """The number of participations by which X most probably gets to ``e^epsilon`` under P."""
    expected = float(renewal_of(pair).chances.sum())
    square = float(renewal_of(pair).squares.max())

    def log_chance(hits: int) -> float:
        excess = max(0.0, _shift(pair, epsilon, hits) - 1.0)
        return hits * log(expected) - lgamma(hits + 1.0) - 0.5 * hits * excess**2 * square

    return max(range(1, 2 + pair.matrix.steps // pair.min_sep), key=log_chance)


@lru_cache(maxsize=3)
def _table(renewal: Renewal, order: int, separation: int) -> Table:
    return Table.of(renewal, order, separation)


@lru_cache(maxsize=256)
def _log_moment(renewal: Renewal, order: int, separation: int) -> float:
    """log Z_a, kept for more orders than tables are."""
    return _table(renewal, order, separation).log_moment
