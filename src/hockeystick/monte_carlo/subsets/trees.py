"""Proposals for Poisson sampling with binary trees (docs/theory/monte-carlo/trees.md).

Given how many participations are below a node, its two halves do not know of each other. So the ratio is a sum from the
leaves upwards, exact but for histories with very many participations, and the counts of several copies are drawn from
the roots down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import inf, log, log1p
from typing import ClassVar

import numpy as np

from hockeystick.moments.copies.trees import (
    FEWEST,
    MAX_CAP,
    MAX_COINS,
    MAX_NODES,
    Counts,
    Forest,
    costs_of,
    counts_of,
    levels_of,
)
from hockeystick.monte_carlo import weight_bounds
from hockeystick.monte_carlo.arrays import Array, Integers
from hockeystick.monte_carlo.far.limits import TAILS, tail_beside
from hockeystick.monte_carlo.far.proposals import LARGEST_BOUND, TRIED
from hockeystick.monte_carlo.memo import remembered
from hockeystick.monte_carlo.moved import MovedBelow, best_beta
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.tree_kernels import Ratio, draw_from_counts, draw_moved_trees
from hockeystick.monte_carlo.weighing import BELOW_SHARE, TILTED_SHARE, LowerBounds, UpperBounds
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.pairs.visits import binomial
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction

SECONDS_PER_NODE = 2e-8
SECONDS_PER_TERM = 2.5e-10
FAR_AT_LEAF = 3
"""The most of the far counts at a leaf: any law will do, and one of few numbers is cheap."""
FAR_MEANS, FAR_ROOTS = 1.6, 8.0
"""Below a node: so many means and roots of the mean. Terms of larger numbers would be smaller than doubles are."""
ADD_TAILS = TAILS[::-1]
"""Histories that are left out make upper bounds of add larger: the rarer, the better."""
LARGEST_EXPONENT = 710.0
"""Beyond it ``e^x`` is infinite or below the smallest term, and a sum is not a number."""
MAX_OF_ONE = 160
"""Participations of one copy in a tree: what takes more is left to proposals that know nothing of trees."""
ORDERS = REACHES = range(2, 41)
"""Copies that the near and the far counts stand for. With the tails they are all that there is to choose from."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Trees(Proposal):
    """What the proposals share.

    Attributes:
        pair: one that has a forest.
        tail: one of the chances TAILS; histories whose participations are too many for it are left out.
    """

    pair: SubsetMixture
    tail: float

    @property
    def forest(self) -> Forest:
        """The trees."""
        forest = forest_of(self.pair)
        assert forest is not None
        return forest

    @property
    def proved(self) -> bool:
        return forest_of(self.pair) is not None and self.tail in TAILS and self.caps.max() <= MAX_OF_ONE

    @property
    def cost(self) -> float:
        """Normals and exponentials for every node, and the products of the terms of its children."""
        return _cost(self.forest, self.caps)

    @property
    def loss_error(self) -> float:
        return float(max(1e-9, rounding_of(self.forest, self.caps)))

    @property
    def caps(self) -> Integers:
        """The most participations below a node, for each level."""
        return caps_of(self.forest, self.tail)

    @property
    def costs(self) -> Array:
        """Those of the ratio."""
        return costs_of(self.forest, 1, int(self.caps.max()))


@dataclass(frozen=True, kw_only=True, eq=False)
class _FromCounts(_Trees):
    """Remove, with outputs of far counts.

    Attributes:
        reach: the copies of the far counts, one of REACHES.
    """

    reach: int

    @property
    def proved(self) -> bool:
        return self.reach in REACHES and super().proved

    @property
    def cost(self) -> float:
        return super().cost + _cost(self.forest, self.far.arrays[2])

    @property
    def loss_error(self) -> float:
        rounding = rounding_of(self.forest, self.caps) + rounding_of(self.forest, self.far.arrays[2])
        return float(max(1e-9, rounding + self.far.error))

    @property
    def far(self) -> Counts:
        """Of ``reach`` copies, few of which are at a leaf."""
        return far_counts(self.forest, self.reach, self.tail)

    def _from(self, rng: np.random.Generator, samples: int, shares: tuple[float, float], near: Counts) -> Array:
        """``log X_A``, and the logarithms of the densities of near and far counts, shape (samples, 3)."""
        own, drawn = self.forest, np.empty((samples, 3))
        near_arrays, far_arrays = near.arrays, self.far.arrays
        ratio = Ratio(binomial(own.coins, own.prob), self.costs, self.caps)
        draw_from_counts(rng, own.levels, own.scale, shares, ratio, near_arrays, far_arrays, drawn)
        drawn[:, 1:] -= near.log_norm, self.far.log_norm
        return drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class TreesAbove(UpperBounds, _FromCounts):
    """A mixture of near counts, which dominate a power of ``X_A``, and of far ones.

    Histories with many participations in a tree are left out.
    """

    name: ClassVar[str] = "trees_above"
    chosen: ClassVar[tuple[str, ...]] = ("order", "reach", "tail")

    @property
    def proved(self) -> bool:
        return self.order in ORDERS and super().proved and self.order * self.caps.max() <= MAX_CAP

    @property
    def cost(self) -> float:
        return super().cost + _cost(self.forest, self.order * self.caps)

    @property
    def loss_error(self) -> float:
        return super().loss_error + rounding_of(self.forest, self.order * self.caps) + self.near.error

    @property
    def near(self) -> Counts:
        """Of ``order`` copies, all numbers that histories allow."""
        return near_counts(self.forest, self.order, self.tail)

    @property
    def log_norm(self) -> float:
        return log_norm(self.forest, self.order, self.tail)

    @property
    def left_out(self) -> float:
        return self.forest.chance_of_others(self.caps)

    def drawn(self, rng: np.random.Generator, samples: int) -> Array:
        return self._from(rng, samples, (TILTED_SHARE, 1.0 - TILTED_SHARE), self.near)


@dataclass(frozen=True, kw_only=True, eq=False)
class TreesBelow(LowerBounds, _FromCounts):
    """A mixture of outputs of P, given a history that is not left out, and of far counts."""

    name: ClassVar[str] = "trees_below"
    chosen: ClassVar[tuple[str, ...]] = ("reach", "tail")

    def weight_bound(self, epsilon: float) -> float:
        """With the room that runs were always given."""
        return super().weight_bound(epsilon) * (1.0 + 1e-6)

    def drawn(self, rng: np.random.Generator, samples: int) -> Array:
        """Histories that are left out make the ratio smaller."""
        drawn = self._from(rng, samples, (0.0, BELOW_SHARE), self.far)
        drawn[:, 1] = drawn[:, 0] - log1p(-self.forest.chance_of_others(self.caps))
        return drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class TreesAdd(MovedBelow, _Trees):
    """Add, upper bounds."""

    name: ClassVar[str] = "trees_add"
    chosen: ClassVar[tuple[str, ...]] = ("beta", "tail")

    @property
    def loss_error(self) -> float:
        """That of the sums, and of ``<C E x, y>``."""
        mean = self.forest.mean
        farthest = float(mean.sum()) * (FARTHEST_NORMAL + self.beta * float(mean.max()))
        products = UNIT_ROUNDOFF * (mean.size + 8.0) * farthest
        sums = rounding_of(self.forest, self.caps, self.beta * float(mean.max()))
        return (2.0 + self.beta) * (max(sums, 1e-9) + products)

    @property
    def moments(self) -> tuple[float, float]:
        return self.forest.moments

    def outputs(self, rng: np.random.Generator, samples: int, beta: float | None) -> Array:
        own, drawn = self.forest, np.empty((samples, 2))
        ratio = Ratio(binomial(own.coins, own.prob), self.costs, self.caps)
        draw_moved_trees(rng, own.levels, own.scale, ratio, beta or 0.0, own.mean, drawn)
        return drawn


def forest_of(pair: SubsetMixture) -> Forest | None:
    """The forest of a pair of Poisson sampling whose matrix is one; None for other pairs and for what is too large."""
    sizes = pair.step_matrix.tree_sizes
    if sizes is None or pair.groups > 1 or pair.sampling_prob == 1.0 or pair.coins > MAX_COINS:
        return None
    return _forest(sizes, pair.noise_multiplier, pair.sampling_prob, pair.coins)


@lru_cache(maxsize=4)
def _forest(sizes: tuple[int, ...], sigma: float, prob: float, coins: int) -> Forest | None:
    forest = Forest(levels_of(sizes), 1.0 / sigma, prob, coins)
    if forest.nodes > MAX_NODES or coins * prob * max(sizes) > MAX_OF_ONE or forest.caps(FEWEST).max() > MAX_OF_ONE:
        return None
    return forest


@remembered
def caps_of(forest: Forest, tail: float) -> Integers:
    """Those of the forest, kept."""
    return forest.caps(tail)


def rounding_of(forest: Forest, caps: Integers, shift: float | None = None) -> float:
    """Of the logarithm of a sum over numbers up to these: products and sums of positive terms (trees.md).

    ``shift`` is how far the outputs of a node are moved at most, by default as far as counts can.
    """
    moved = forest.scale * MAX_CAP if shift is None else shift
    farthest = min(forest.scale * (FARTHEST_NORMAL + moved), LARGEST_EXPONENT)
    factors = forest.levels.size * float((1 + forest.levels.max()) * caps.max()) * (farthest + 4.0)
    return 4.0 * UNIT_ROUNDOFF * (float(forest.nodes_at @ (caps + 8.0)) + factors)


def near_counts(forest: Forest, order: int, tail: float) -> Counts:
    """All that so many copies of a history can be together."""
    return counts_of(forest, order, tuple((order * caps_of(forest, tail)).tolist()))


def far_counts(forest: Forest, reach: int, tail: float) -> Counts:
    """Few of so many copies at a leaf, and below a node not many more than there are on the average."""
    caps, at_leaf = caps_of(forest, tail), min(FAR_AT_LEAF, reach * forest.coins)
    means = reach * forest.coins * forest.prob * 2.0 ** np.arange(caps.size)
    room = np.ceil(FAR_MEANS * means + FAR_ROOTS * (np.sqrt(means) + 1.0)).astype(np.int64).tolist()
    most = (min(at_leaf << height, reach * cap, room[height], MAX_CAP) for height, cap in enumerate(caps.tolist()))
    return counts_of(forest, reach, tuple(most))


@remembered
def log_norm(forest: Forest, order: int, tail: float) -> float:
    """log Z of the near counts."""
    return near_counts(forest, order, tail).log_norm


def log_power_bound(forest: Forest, tail: float, epsilon: float, order: int) -> float:
    """log of the largest ``(x - e^epsilon)_+ Z / x^order``."""
    return weight_bounds.log_power_bound(order, log_norm(forest, order, tail), epsilon)


def tree_proposals(pair: SubsetMixture, direction: Direction, epsilon: float) -> Sequence[Proposal]:
    """One for each side, for lower bounds first, where M is of any use; for add one for upper bounds."""
    forest = forest_of(pair)
    assert forest is not None
    if direction is Direction.ADD:
        beta = best_beta(forest.moments, epsilon)
        tail = next(tail for tail in ADD_TAILS if caps_of(forest, tail).max() <= MAX_OF_ONE)
        return (TreesAdd(direction=direction, pair=pair, beta=beta, tail=tail),)
    best = _best_order(forest, epsilon)
    tail = TAILS[0] if best is None else best[0]
    reach = _best_reach(forest, tail, epsilon)
    below = TreesBelow(direction=direction, pair=pair, reach=reach, tail=tail)
    if best is None:
        return (below,)
    above = TreesAbove(direction=direction, pair=pair, order=best[1], reach=reach, tail=tail)
    return (below, above) if above.weight_bound(epsilon) < LARGEST_BOUND else (below,)


def _best_order(forest: Forest, epsilon: float) -> tuple[float, int] | None:
    """Tail and order with the smallest M times cost among those whose other histories hardly matter beside M.

    None where no order has tables that are small.
    """
    best = None
    for tail in TAILS:
        caps = caps_of(forest, tail)
        orders = range(ORDERS[0], min(ORDERS[-1], MAX_CAP // int(caps.max())) + 1)
        tried = weight_bounds.falling(partial(log_power_bound, forest, tail, epsilon), orders)
        works = [(largest + log(_cost(forest, order * caps)), order, largest) for largest, order in tried]
        if not works:
            break
        _, order, largest = min(works)
        best = tail, order
        if tail <= tail_beside(weight_bounds.bounded_exp(largest)):
            break
    return best


def _best_reach(forest: Forest, tail: float, epsilon: float) -> int:
    """The first number of copies at which outputs of the far counts have a loss of about epsilon on the average."""
    losses = [_mean_loss(forest, reach, tail) for reach in REACHES]
    enough = [reach for reach, loss in zip(REACHES, losses, strict=True) if loss >= epsilon]
    return enough[0] if enough else REACHES[int(np.argmax(losses))]


@remembered
def _mean_loss(forest: Forest, reach: int, tail: float) -> float:
    """The mean loss of a few outputs of far counts, minus infinity if one is not a number; only choices rest on it."""
    drawn, far = np.empty((TRIED, 3)), far_counts(forest, reach, tail).arrays
    caps = caps_of(forest, tail)
    ratio = Ratio(binomial(forest.coins, forest.prob), costs_of(forest, 1, int(caps.max())), caps)
    rng = np.random.Generator(np.random.SFC64(0))
    draw_from_counts(rng, forest.levels, forest.scale, (0.0, 1.0), ratio, far, far, drawn)
    mean = float(drawn[:, [0, 2]].sum(axis=1).mean())
    return float(drawn[:, 0].mean()) if np.isfinite(mean) else -inf


def _cost(forest: Forest, caps: Integers) -> float:
    """Seconds for one sum."""
    terms = float(forest.nodes_at[1:] @ np.square(caps[:-1] + 1.0))
    return SECONDS_PER_NODE * forest.nodes + SECONDS_PER_TERM * terms
