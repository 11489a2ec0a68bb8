"""Forests of perfect binary trees, and laws of the participations below their nodes.

Proof: docs/theory/monte-carlo/trees.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.laws.coins import log_chances, tails
from hockeystick.laws.law import UNIT_ROUNDOFF, Array

Integers = NDArray[np.int64]

MAX_COINS = 16
"""Most coins of a step."""
MAX_NODES = 1 << 17
MAX_CAP = 640
"""Participations of all copies below a node that a law of counts holds: its tables have levels times the square."""
FEWEST = 1e-4
"""The chance of the histories that are left out where fewest are kept."""


@dataclass(frozen=True, eq=False)
class Forest:
    """What the nodes of perfect binary trees release, for Poisson sampling of the leaves.

    Attributes:
        levels: levels of the roots; leaves are at level 0.
        scale: what a participation adds to every node above its leaf, in units of sigma.
        prob: the chance of every coin.
        coins: coins of every leaf.
    """

    levels: Integers
    scale: float
    prob: float
    coins: int
    memo: dict[Any, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def sizes(self) -> Integers:
        """Leaves of the trees."""
        return np.asarray(1 << self.levels)

    @property
    def nodes(self) -> int:
        """Nodes of all trees."""
        return int((2 * self.sizes - 1).sum())

    @cached_property
    def mean(self) -> Array:
        """``C E x / sigma``, shape (nodes,): tree after tree, level by level from the leaves on."""
        below = [np.repeat(1 << np.arange(level + 1), 1 << np.arange(level, -1, -1)) for level in self.levels.tolist()]
        mean: Array = self.scale * self.coins * self.prob * np.concatenate(below)
        return mean

    @cached_property
    def moments(self) -> tuple[float, float]:
        """``|C E x|^2 / sigma^2`` and ``E |C x|^2 / sigma^2``; the nodes above a leaf are one more than its level."""
        squared_mean = float(np.square(self.mean).sum())
        entries = float((self.sizes * (self.levels + 1)).sum())
        return squared_mean, squared_mean + self.coins * self.prob * (1.0 - self.prob) * self.scale**2 * entries

    @cached_property
    def nodes_at(self) -> Integers:
        """How many nodes there are at every level."""
        heights = np.arange(int(self.levels.max()) + 1)
        return np.array([int((self.sizes[self.levels >= height] >> height).sum()) for height in heights])

    def caps(self, tail: float) -> Integers:
        """For each level the fewest participations below a node that are exceeded somewhere with about such a chance.

        The chances of all levels together are ``tail`` or less, but for caps that a higher level lowers.
        """
        caps = []
        for height, nodes in enumerate(self.nodes_at.tolist()):
            more = nodes * tails(self.prob, self.coins << height)
            caps.append(max(int(np.argmax(more <= tail / self.nodes_at.size)), 1))
        return np.minimum.accumulate(np.array(caps, dtype=np.int64)[::-1])[::-1].copy()

    def chance_of_others(self, caps: Integers) -> float:
        """At least the chance of more participations below some node; never 0."""
        more = [tails(self.prob, self.coins << height)[cap] for height, cap in enumerate(caps.tolist())]
        return max(float(self.nodes_at @ np.array(more)) * (1.0 + 1e-9), 1e-300)


def levels_of(sizes: Sequence[int]) -> Integers:
    """Levels of the roots of trees with so many leaves, which are powers of two."""
    return np.array([size.bit_length() - 1 for size in sizes], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Counts:
    """The law of how many participations of some copies of an example, or user, are below each node.

    Their weight is ``prod_leaves leaf[s] prod_nodes e^(scale^2 s^2 / 2 - costs[s])``.

    Attributes:
        arrays: leaf, costs, caps, splits and roots, as kernels of Monte Carlo take them: weights at a leaf and of
            nodes, the most below a node of each level, and chances of how participations are divided, and of how many
            there are below a root.
        log_norm: the logarithm of the sum of all weights.
        error: of that, and of the logarithm of the chance of a draw.
    """

    arrays: tuple[Array, Array, Integers, Array, Array]
    log_norm: float
    error: float


def costs_of(forest: Forest, copies: float, most: int) -> Array:
    """Half of what the squares of the numbers of the copies below a node are together at least, times scale^2.

    With infinitely many copies half of the numbers themselves: no two participations are of the same copy.
    """
    numbers = np.arange(most + 1, dtype=float)
    costs: Array = 0.5 * forest.scale**2 * np.maximum(numbers, np.square(numbers) / copies)
    return costs


@lru_cache(maxsize=8)
def counts_of(forest: Forest, copies: int, caps: tuple[int, ...], *, apart: bool = False) -> Counts:
    """Numbers of ``copies``, at most ``caps[l]`` below a node at level l.

    With the caps of one copy times the copies, the weights are at least those of the tuples of copies: of the numbers
    of the copies below a node the squares sum to at least s and ``s^2 / copies``. ``apart``: participations attract
    each other whichever copies they are of.
    """
    most = max(caps)
    costs = costs_of(forest, inf if apart else copies, most)
    boosts = 0.5 * forest.scale**2 * np.square(np.arange(most + 1, dtype=float)) - costs
    log_leaf = log_chances(forest.prob, copies * forest.coins, copies * forest.coins + 1)[: caps[0] + 1]
    limits = np.array(caps, dtype=np.int64)
    splits, logs = count_tables(log_leaf, boosts, limits)
    tops = logs.max(axis=1, keepdims=True)
    weights = np.exp(logs - tops)
    totals = tops[:, 0] + np.log(weights.sum(axis=1))
    roots = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    roots[np.arange(most + 1) >= limits[:, None]] = 1.0
    largest = float(np.abs(logs[np.isfinite(logs)]).max())
    nodes = forest.levels.size * len(caps) * most * (most + 16.0 + largest)
    error = 4.0 * UNIT_ROUNDOFF * (nodes + 16.0 * float(forest.sizes.sum()))  # and logarithms of nobody at every leaf
    arrays = (np.exp(log_leaf), costs, limits, splits, roots)
    return Counts(arrays, float(totals[forest.levels].sum()), float(error))


@kernel
def count_tables(log_leaf: Array, boosts: Array, caps: Integers) -> tuple[Array, Array]:
    """How the participations below a node are divided among its children, and what a whole tree weighs.

    ``splits[l, s, i]`` is the chance that of s participations below a node at level l at most i are below its left
    child, where numbers s_v weigh ``prod_leaves e^log_leaf[s] prod_nodes e^boosts[s]``; ``logs[l, s]`` is the
    logarithm of the sum of these weights. Shapes (levels, cap + 1, cap + 1) and (levels, cap + 1), with the largest
    cap.

    O(levels cap^2).
    """
    most = caps.max()
    splits, logs = np.zeros((caps.size, most + 1, most + 1)), np.full((caps.size, most + 1), -np.inf)
    for s in range(caps[0] + 1):
        logs[0, s] = log_leaf[s] + boosts[s]
    for level in range(1, caps.size):
        below = logs[level - 1]
        for s in range(caps[level] + 1):
            fewest = max(s - caps[level - 1], 0)
            top = -np.inf
            for i in range(fewest, s - fewest + 1):
                top = max(top, below[i] + below[s - i])
            total = 0.0
            for i in range(fewest, s - fewest + 1):
                total += np.exp(below[i] + below[s - i] - top)
                splits[level, s, i] = total
            splits[level, s, s - fewest + 1 :] = total
            splits[level, s] /= total
            logs[level, s] = top + np.log(total) + boosts[s]
    return splits, logs
