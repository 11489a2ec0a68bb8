"""Upper bounds for binary trees from tuples of histories, drawn by links (docs/theory/monte-carlo/links.md).

A tuple of histories has the weight e^S, S what pairs of its participations have in common. Coins that do not wait are
drawn with that weight, exactly, from the roots of the trees down. Links between pairs say which of their participations
matter; those are kept, and histories that wait, or visits, are drawn around them.
"""

from dataclasses import dataclass
from math import inf, log
from typing import ClassVar

import numpy as np

from hockeystick.laws.coins import tails
from hockeystick.moments.copies.trees import Counts, Forest, counts_of, levels_of
from hockeystick.monte_carlo.arrays import Integers
from hockeystick.monte_carlo.far.columns import Columns
from hockeystick.monte_carlo.far.limits import TAILS, Limits, chance_of_others, limits, tail_beside
from hockeystick.monte_carlo.far.linked_kernels import LinkedHistories, LinkedVisits, work_of
from hockeystick.monte_carlo.far.proposals import Above
from hockeystick.monte_carlo.far.subjects import subject_of
from hockeystick.monte_carlo.memo import remembered
from hockeystick.monte_carlo.weighing import TILTED_SHARE, log_largest
from hockeystick.monte_carlo.weight_bounds import bounded_exp
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.renewal_kernels import availability
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF

ORDERS = range(2, 41)
MAX_STEPS = 1 << 14
MAX_TABLES = 1 << 22
"""Numbers in the tables of counts: 32 MB."""
LEAST_LINK = 1e-9
"""The least that two participations may have in common at a node: random numbers are too coarse for less."""
LEAST_CHANCE = 1e-6
"""The least chance of a participation, for the same reason."""
LARGER = 1.0 + 1e-9
"""The factor by which entries of the forest are larger than those of C, so that no rounding makes S too small."""
OUTSIDE = 1e-9
"""The chance, at most, that a tuple's other coins need more room than tables have; the density is that much smaller."""
SECONDS_PER_PARTICIPATION, SECONDS_PER_NODE = 1e-7, 1e-8


@dataclass(frozen=True)
class Trees:
    """Perfect binary trees, one after the other, whose leaves are the opportunities.

    Attributes:
        sizes: their leaves, powers of two.
        sigma: a participation adds 1 to each node above its leaf, in units of which this is the noise.
    """

    sizes: tuple[int, ...]
    sigma: float

    @property
    def levels(self) -> Integers:
        """Of the roots."""
        return levels_of(self.sizes)

    @property
    def link(self) -> float:
        """What two participations below a node have in common there; no less than it is with rounding."""
        return (LARGER / self.sigma) ** 2


def trees_of(pair: DominatingPair) -> Trees | None:
    """Those whose nodes the matrix of a pair releases, where tuples are drawn by their links; None for others."""
    subject = subject_of(pair)
    sizes = subject.matrix.tree_sizes if subject.tuples else None
    return None if sizes is None else Trees(sizes, pair.noise_multiplier)


@dataclass(frozen=True, kw_only=True, eq=False)
class Linked(Above):
    """Outputs of tuples of histories whose weight is that of what they have in common; for trees alone."""

    name: ClassVar[str] = "far_linked"
    chosen: ClassVar[tuple[str, ...]] = ("order", "rate", "block", "limit")

    @property
    def trees(self) -> Trees:
        """The trees whose nodes the columns share."""
        trees = trees_of(self.pair)
        assert trees is not None
        return trees

    @property
    def proved(self) -> bool:
        if trees_of(self.pair) is None or self.order not in ORDERS or not super().proved:
            return False
        return served(self.own, self.trees) and caps_of(self.own, self.trees, self.order, self._each) is not None

    @property
    def cost(self) -> float:
        """Most tuples are given up before a history is drawn."""
        return super().cost * (1.0 - TILTED_SHARE) + draw_cost(self.own, self.trees, self.order)

    @property
    def loss_error(self) -> float:
        """That of the products and filters, of the tables of counts, and of what tuples are drawn with."""
        own, order = self.own, self.order + 1.0
        return float(max(1e-9, own.rounding(order, order) + drawing_error(own, self.trees, self.order, self._law)))

    @property
    def _law(self) -> Counts:
        return law_of_coins(self.own, self.trees, self.order, self._each)

    @property
    def _each(self) -> tuple[int, ...]:
        return most_below(self.own, self.trees, self.limits)

    @property
    def log_norm(self) -> float:
        return log_norm(self.own, self.trees, self.order, self._each)

    @property
    def source(self) -> LinkedHistories | LinkedVisits:
        own, law, order = self.own, self.own.law, self.order
        *_, splits, roots = self._law.arrays
        drawn_from, work = (self.trees.levels, splits, roots, self.trees.link), work_of(own.steps, order)
        if law.bins:
            return LinkedVisits(drawn_from, np.empty((order, own.steps // law.bins), np.int64), work)
        available, again = (availability(own.steps, law.min_sep, law.prob, at) for at in (law.start, np.ones(1)))
        return LinkedHistories((law.prob, law.min_sep, law.start, available, again), drawn_from, order, work)


def served(own: Columns, trees: Trees) -> bool:
    """Whether histories are drawn by links for these columns, which are those of the trees but for rounding."""
    if own.law.coins != 1 or own.steps > MAX_STEPS or own.law.prob < LEAST_CHANCE or trees.link < LEAST_LINK:
        return False
    return own.steps == sum(trees.sizes) and _no_more_in_common(own, trees)


@remembered
def _no_more_in_common(own: Columns, trees: Trees) -> bool:
    """Whether no two columns have more in common than the nodes above both steps. O(levels steps w)."""
    sizes = np.array(trees.sizes)
    starts, levels = (np.repeat(of_tree, sizes) for of_tree in (np.cumsum(sizes) - sizes, trees.levels))
    step = np.arange(own.steps)
    later = np.minimum(step[:, None] + np.arange(own.couplings.shape[1]), own.steps - 1)
    nodes = np.zeros(later.shape)
    for height in range(int(levels.max()) + 1):
        above = starts + ((step - starts) >> height << height)  # the first leaf of the node
        nodes += (above[:, None] == above[later]) & (levels >= height)[:, None] & (levels >= height)[later]
    return bool((own.couplings <= trees.link * nodes).all())


@remembered
def coins_of(own: Columns, trees: Trees) -> Forest:
    """Coins that do not wait."""
    return Forest(trees.levels, LARGER / trees.sigma, own.law.prob, 1)


def drawing_error(own: Columns, trees: Trees, order: int, law: Counts) -> float:
    """Of the logarithm of the chance of a tuple: of tables, of links, and of the chances of its histories."""
    participations = order * float(np.sum(law.arrays[2][trees.levels]))
    chances = participations * 16.0 * own.steps  # of histories: each is a sum of at most so many terms
    links = participations**2 * (1.0 + trees.levels.max()) + participations / own.law.prob
    return float(2.0 * UNIT_ROUNDOFF * (chances + links) + law.error)


def most_below(own: Columns, trees: Trees, limit: Limits) -> tuple[int, ...]:
    """By level, the most participations below a node of a history within the limits; of visits in as many epochs."""
    each, bins = [], own.law.bins
    for height in range(int(trees.levels.max()) + 1):
        leaves = 1 << height
        if bins:
            each.append(min((leaves + bins - 2) // bins + 1, leaves, own.steps // bins))
        else:
            each.append(min(-(-leaves // own.law.min_sep), limit.most * -(-leaves // limit.block), leaves))
    return tuple(each)


@remembered
def caps_of(own: Columns, trees: Trees, order: int, each: tuple[int, ...]) -> tuple[int, ...] | None:
    """Participations below a node, by level, that tables have room for; None where they are too large.

    There is room for a tuple of histories, and for other coins: some node has more of them than there is room for with
    a chance of at most OUTSIDE.

    Args:
        each: the most participations of one history below a node, by level.
    """
    forest = coins_of(own, trees)
    caps: list[int] = []
    for height, nodes in enumerate(forest.nodes_at.tolist()):
        leaves = 1 << height
        more = nodes * tails(own.law.prob, order * leaves)
        beside = int(np.argmax(more <= OUTSIDE / forest.nodes_at.size))
        caps.append(min(order * each[height] + beside, order * leaves, 2 * caps[-1] if caps else order))
        if len(caps) * (caps[-1] + 1.0) ** 2 > MAX_TABLES:
            return None
    return tuple(caps)


def law_of_coins(own: Columns, trees: Trees, order: int, each: tuple[int, ...]) -> Counts:
    """The counts of so many copies' coins with the weight ``e^S``, in tables of :func:`caps_of`, which are there."""
    caps = caps_of(own, trees, order, each)
    assert caps is not None  # else nothing is proved
    return counts_of(coins_of(own, trees), order, caps, apart=True)


@remembered
def log_norm(own: Columns, trees: Trees, order: int, each: tuple[int, ...]) -> float:
    """log Z, and what tables may lack; infinite where they are too large."""
    if caps_of(own, trees, order, each) is None:
        return inf
    return law_of_coins(own, trees, order, each).log_norm + 2.0 * OUTSIDE


def best_linked(own: Columns, trees: Trees, epsilon: float) -> tuple[int, Limits] | None:
    """Order and limits with the smallest M times cost; what is left out is a small part of M. None without any."""
    if not served(own, trees):
        return None
    best = None
    for tail in TAILS:
        limit = limits(own, tail)
        each = most_below(own, trees, limit)
        order = best_order(own, trees, each, epsilon)
        if order is None:
            break
        best = order, limit
        if not chance_of_others(own, limit):
            break
        if tail <= tail_beside(bounded_exp(log_largest(order, log_norm(own, trees, order, each), epsilon))):
            break
    return best


def best_order(own: Columns, trees: Trees, each: tuple[int, ...], epsilon: float) -> int | None:
    """The order with the smallest M times cost; None without any."""
    work, order = min((_log_work(own, trees, order, each, epsilon), order) for order in ORDERS)
    return None if work == inf else order


def _log_work(own: Columns, trees: Trees, order: int, each: tuple[int, ...], epsilon: float) -> float:
    return log_largest(order, log_norm(own, trees, order, each), epsilon) + log(1e-4 + draw_cost(own, trees, order))


def draw_cost(own: Columns, trees: Trees, order: int) -> float:
    """Seconds for the coins of a tuple and their links."""
    participations = order * own.law.prob * own.steps
    heights = float(trees.levels.max()) + 1.0
    return 2.0 * own.steps * SECONDS_PER_NODE + SECONDS_PER_PARTICIPATION * participations * heights
