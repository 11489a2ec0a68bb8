"""Numba kernels for binary trees: sums over all participations from the leaves upwards, and draws from the root down.

A forest is a row of perfect binary trees. ``levels[t]`` is the level of the root of tree t, leaves are at level 0, and
the nodes of a tree stand level by level from its leaves on. A node with s participations below it has the mean
``scale s``. Every sum here is one over numbers s_v of participations below the nodes v, at most ``caps[l]`` at level l,
of ``prod_leaves leaf[s] prod_nodes e^(scale s y - costs[s])``: with the costs ``scale^2 s^2 / 2`` it is the ratio.

Proof: docs/theory/monte-carlo/trees.md.
"""

from typing import NamedTuple

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.monte_carlo.arrays import Array, Integers
from hockeystick.monte_carlo.draws import draw_moved, draw_noise, draw_number

RESCALE = 1e20
"""The largest term of a node is kept within this factor of 1."""
SMALLEST = 1e-290
"""Terms below this may have lost what the range of doubles does not show."""


@kernel
def log_forest(
    y: Array, levels: Integers, scale: float, leaf: Array, costs: Array, caps: Integers, work: Array
) -> float:
    """The logarithm of the product of the sums of all trees, for outputs y; not a number where doubles end.

    O(nodes cap^2) at most; a node at level l costs ``caps[l - 1]^2``.

    Args:
        y: shape (nodes,), in units of sigma.
        leaf: weights of 0, 1, ..., caps[0] participations at a leaf; positive.
        costs: at least of the numbers up to the largest cap.
        caps: for each level, at most twice that of the level below.
        work: overwritten, shape (2, leaves of the largest tree, at least the largest cap + 1).
    """
    factors = np.exp(-costs)
    log_total, first = 0.0, 0
    for level in levels:
        nodes = 1 << level
        for node in range(nodes):
            moved, power = np.exp(scale * y[first + node]), 1.0
            for s in range(caps[0] + 1):
                factor = power * factors[s]
                work[0, node, s] = leaf[s] * factor
                if not (min(factor, factors[s], work[0, node, s]) >= SMALLEST and factor < np.inf):
                    return float(np.nan)
                power *= moved
        first += nodes
        here = 0
        for above in range(1, level + 1):
            nodes //= 2
            width, wider = caps[above - 1], caps[above]
            for node in range(nodes):
                left, right = work[here, 2 * node], work[here, 2 * node + 1]
                log_total += _joined(y[first + node], scale, left, right, width, factors, wider, work[1 - here, node])
            first += nodes
            here = 1 - here
        total = 0.0
        for s in range(caps[level] + 1):
            total += work[here, 0, s]
        log_total += np.log(total)
    return float(log_total)


@kernel(inline="always")
def _joined(
    y: float, scale: float, left: Array, right: Array, width: int, factors: Array, wider: int, out: Array
) -> float:
    """The terms of a node from those of its children, and the logarithm of what they were divided by."""
    for s in range(wider + 1):
        out[s] = 0.0
    for i in range(width + 1):
        for j in range(min(width, wider - i) + 1):
            out[i + j] += left[i] * right[j]
    moved, power, largest, smallest = np.exp(scale * y), 1.0, 0.0, np.inf
    for s in range(wider + 1):
        factor = power * factors[s]
        out[s] *= factor
        power *= moved
        largest, smallest = max(largest, out[s]), min(smallest, out[s], factor, factors[s])
    if not (smallest >= SMALLEST and largest < np.inf):  # or not a number
        return float(np.nan)
    if largest > RESCALE or largest < 1.0 / RESCALE:
        for s in range(wider + 1):
            out[s] /= largest
        return float(np.log(largest))
    return 0.0


@kernel
def add_counts(
    rng: np.random.Generator,
    levels: Integers,
    scale: float,
    splits: Array,
    roots: Array,
    y: Array,
    counts: Integers,
) -> None:
    """Add the means of numbers that are drawn with these weights, from every root down.

    Args:
        splits: of :func:`hockeystick.moments.copies.trees.count_tables`.
        roots: ``roots[l, s]``, the chance of at most s participations below a root at level l.
        y: shape (nodes,).
        counts: overwritten, shape (2 leaves of the largest tree,).
    """
    first = 0
    for level in levels:
        draw_tree(rng, level, splits, roots, counts)
        _add_means(counts, level, scale, y[first:])
        first += (2 << level) - 1


@kernel
def draw_tree(rng: np.random.Generator, level: int, splits: Array, roots: Array, counts: Integers) -> None:
    """The numbers of one tree: the root's at place 1, the children of place p at ``2 p`` and ``2 p + 1``."""
    counts[1] = _drawn(rng, roots[level])
    for depth in range(level):
        for place in range(1 << depth, 2 << depth):
            above, left = counts[place], 0
            if above > 0:
                left = _drawn(rng, splits[level - depth, above])
            counts[2 * place], counts[2 * place + 1] = left, above - left


@kernel(inline="always")
def add_participations(
    rng: np.random.Generator, levels: Integers, scale: float, chances: Array, caps: Integers, y: Array, counts: Integers
) -> None:
    """Add the means of participations of every leaf for itself, given that at most ``caps[l]`` are at level l."""
    first = 0
    for level in levels:
        while not _drawn_inside(rng, level, chances, caps, counts):
            pass
        _add_means(counts, level, scale, y[first:])
        first += (2 << level) - 1


@kernel(inline="always")
def _drawn_inside(rng: np.random.Generator, level: int, chances: Array, caps: Integers, counts: Integers) -> bool:
    """Draw the participations of one tree; whether they keep to the caps."""
    inside = True
    for place in range(1 << level, 2 << level):
        counts[place] = draw_number(rng, chances)
        inside = inside and counts[place] <= caps[0]
    for depth in range(level - 1, -1, -1):
        for place in range(1 << depth, 2 << depth):
            counts[place] = counts[2 * place] + counts[2 * place + 1]
            inside = inside and counts[place] <= caps[level - depth]
    return inside


@kernel
def _add_means(counts: Integers, level: int, scale: float, y: Array) -> None:
    """Of one tree, whose counts stand from the root at place 1 on, level by level."""
    node = 0
    for depth in range(level, -1, -1):
        for place in range(1 << depth, 2 << depth):
            if counts[place] > 0:
                y[node] += scale * counts[place]
            node += 1


@kernel
def _drawn(rng: np.random.Generator, chances: Array) -> int:
    """A number, by the chances to be at most that large."""
    level, number = rng.random(), 0
    while number < chances.size - 1 and level >= chances[number]:
        number += 1
    return number


class Ratio(NamedTuple):
    """What X_A is summed from: chances of a leaf's participations, costs, and the most of them at each level."""

    chances: Array
    costs: Array
    caps: Integers


@kernel
def draw_from_counts(
    rng: np.random.Generator,
    levels: Integers,
    scale: float,
    shares: tuple[float, float],
    ratio: Ratio,
    near: tuple[Array, Array, Integers, Array, Array],
    far: tuple[Array, Array, Integers, Array, Array],
    out: Array,
) -> None:
    """Fill ``out``, shape (samples, 3), with ``log X_A`` and the logarithms of the near and the far sum.

    Outputs are those of the near and of the far counts with the chances ``shares``, else those of P given A. The near
    sum is left out where its share is 0.

    Args:
        ratio: of X_A.
        near, far: leaf, costs, caps, splits and roots of two laws of counts.
    """
    chances, costs, caps = ratio
    nodes, most = 0, 1
    for level in levels:
        nodes += (2 << level) - 1
        most = max(most, 1 << level)
    y, counts = np.empty(nodes), np.zeros(2 * most, dtype=np.int64)
    work = np.empty((2, most, max(costs.size, near[1].size, far[1].size)))
    for sample in range(out.shape[0]):
        draw_noise(rng, y)
        which = rng.random()
        if which < shares[0]:
            add_counts(rng, levels, scale, near[3], near[4], y, counts)
        elif which < shares[0] + shares[1]:
            add_counts(rng, levels, scale, far[3], far[4], y, counts)
        else:
            add_participations(rng, levels, scale, chances, caps, y, counts)
        out[sample, 0] = log_forest(y, levels, scale, chances, costs, caps, work)
        out[sample, 1] = -np.inf
        if shares[0] > 0.0:
            out[sample, 1] = log_forest(y, levels, scale, near[0], near[1], near[2], work)
        out[sample, 2] = log_forest(y, levels, scale, far[0], far[1], far[2], work)


@kernel
def draw_moved_trees(
    rng: np.random.Generator,
    levels: Integers,
    scale: float,
    ratio: Ratio,
    beta: float,
    mean: Array,
    out: Array,
) -> None:
    """Fill ``out``, shape (samples, 2), with ``log X_A`` and ``<mean, y>`` of outputs ``y = z - beta mean``."""
    chances, costs, caps = ratio
    most = 1
    for level in levels:
        most = max(most, 1 << level)
    y, work = np.empty(mean.size), np.empty((2, most, costs.size))
    for sample in range(out.shape[0]):
        out[sample, 1] = draw_moved(rng, mean, beta, y)
        out[sample, 0] = log_forest(y, levels, scale, chances, costs, caps, work)
