"""Numba kernels for tuples of histories, drawn by the links of their participations in a forest.

``available[u]`` is the chance that an example is free at opportunity u, ``again[d]`` that it is free d opportunities
after one at which it is free. Opportunities are the leaves of the trees, one tree after the other.

Proofs: docs/theory/monte-carlo/links.md, fresh-bins.md.
"""

from typing import NamedTuple

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.monte_carlo.arrays import Array, Flags, Integers
from hockeystick.monte_carlo.far.kernels import Overlaps
from hockeystick.monte_carlo.far.visits import draw_start, walk
from hockeystick.monte_carlo.tree_kernels import draw_tree
from hockeystick.pairs.visits import Edges

Law = tuple[float, int, Array, Array, Array]
"""Chance of a coin, separation, chances of the waits at first, available, and again."""
Trees = tuple[Integers, Array, Array, float]
"""Levels of the roots; splits and roots of :func:`.tree_kernels.add_counts`, for coins that do not wait with the weight
``e^S``, the sum of which is Z; link, the square of what a participation adds to a node."""
Work = tuple[Integers, Integers, Flags, Integers]


class LinkedHistories(NamedTuple):
    """Tuples of so many histories that wait, with what is overwritten."""

    law: Law
    trees: Trees
    order: int
    work: Work


class LinkedVisits(NamedTuple):
    """Tuples of copies that visit once in each epoch; overwritten is the step of every copy in every epoch."""

    trees: Trees
    visits: Integers
    work: Work


@kernel
def work_of(steps: int, order: int) -> Work:
    """Room for numbers below nodes; of participations for the opportunity, whether it has a link, and whose it is."""
    most = steps * order
    return np.zeros(4 * steps, np.int64), np.empty(most, np.int64), np.empty(most, np.bool_), np.empty(most, np.int64)


@kernel
def draw_linked_tuple(
    rng: np.random.Generator, overlaps: Overlaps, edges: Edges, source: LinkedHistories, counts: Array
) -> bool:
    """As :func:`.draws.draw_counts`, for histories that wait.

    Kept are tuples h with the chance ``prod_i Pr(h_i) e^S(h) / Z``, S the sum of ``link J_v (J_v - 1) / 2`` over the
    nodes v, J_v the participations below them.

    O(nodes + levels participations + order (opportunities + participations)).
    """
    law, trees, order, work = source
    times, owners = work[1], work[3]
    linked = draw_links(rng, trees, work)
    if rng.random() >= draw_owners(rng, times[:linked], order, law, owners):
        return False
    counts[:] = 0.0
    for copy in range(order):
        draw_history(rng, times[:linked], owners[:linked], copy, law, counts)
    return True


@kernel
def draw_linked_visits(
    rng: np.random.Generator, overlaps: Overlaps, edges: Edges, source: LinkedVisits, counts: Array
) -> bool:
    """As :func:`.draws.draw_counts`, for visits: participations with a link belong to copies drawn at random.

    They are kept if no copy has two in an epoch; all other visits are free. So tuples have the weight of
    :func:`draw_linked_tuple`. O(nodes + levels participations + copies epochs).
    """
    trees, visits, work = source
    times, copies, bins = work[1], visits.shape[0], edges.stride
    linked = draw_links(rng, trees, work)
    visits[:] = -1
    for i in range(linked):
        owner = int(copies * rng.random())
        while visits[owner, times[i] // bins] == times[i]:  # participations at one opportunity are of different copies
            owner = int(copies * rng.random())
        if visits[owner, times[i] // bins] >= 0:
            return False
        visits[owner, times[i] // bins] = times[i]
    counts[:] = 0.0
    for owner in range(copies):
        for epoch in range(visits.shape[1]):
            visited = visits[owner, epoch]
            counts[visited if visited >= 0 else epoch * bins + int(bins * rng.random())] += 1.0
    return True


@kernel
def draw_links(
    rng: np.random.Generator,
    trees: Trees,
    work: Work,
) -> int:
    """Opportunities of the participations with a link, in order, at the beginning of ``times``; how many they are.

    At every node each pair of participations below it has a link with the chance ``1 - e^-link``.
    """
    levels, splits, roots, link = trees
    places, times, linked, _ = work
    kept, leaf = 0, 0
    for level in levels:
        draw_tree(rng, level, splits, roots, places)
        size = places[1]
        linked[:size] = False
        for depth in range(level + 1):
            begin = 0
            for place in range(1 << depth, 2 << depth):
                _link_pairs(rng, link, linked[begin : begin + places[place]])
                begin += places[place]
        participation = 0
        for place in range(1 << level, 2 << level):
            for _ in range(places[place]):
                if linked[participation]:
                    times[kept] = leaf
                    kept += 1
                participation += 1
            leaf += 1
    return kept


@kernel(inline="always")
def _link_pairs(rng: np.random.Generator, link: float, linked: Flags) -> None:
    """Give each pair a link with the chance ``1 - e^-link``, from one link to the next. O(participations + links)."""
    size = linked.size
    first, other = 0, 0  # the pair of ``first`` and ``first + 1 + other``
    while first < size - 1:
        without = np.floor(-np.log1p(-rng.random()) / link)
        if without >= size * size:
            break
        other += int(without)
        while first < size - 1 and other >= size - 1 - first:
            other -= size - 1 - first
            first += 1
        if first < size - 1:
            linked[first] = True
            linked[first + 1 + other] = True
            other += 1


@kernel(inline="always")
def draw_owners(
    rng: np.random.Generator,
    times: Integers,
    order: int,
    law: Law,
    owners: Integers,
) -> float:
    """Give participations at one opportunity to different copies, at random, and return the chance to keep them.

    That is the chance that histories which wait have them, over ``prob`` for each.
    """
    _, min_sep, _, available, again = law
    last, chance = np.full(order, -1), 1.0
    for i in range(times.size):
        owner = int(order * rng.random())
        while last[owner] == times[i]:
            owner = int(order * rng.random())
        if last[owner] < 0:
            chance *= available[times[i]]
        elif times[i] - last[owner] < min_sep:
            return 0.0
        else:
            chance *= again[times[i] - last[owner] - min_sep]
        last[owner], owners[i] = times[i], owner
    return chance


@kernel(inline="always")
def draw_history(
    rng: np.random.Generator,
    times: Integers,
    owners: Integers,
    copy: int,
    law: Law,
    counts: Array,
) -> None:
    """Add the participations of a history that has those of a copy: what is between them has its chance given them."""
    prob, min_sep, first, _, again = law
    u = -1
    for i in range(times.size):
        if owners[i] != copy:
            continue
        if u < 0:
            u = _draw_start(rng, first, again, times[i])
        while u < times[i]:
            left = times[i] - u
            if left >= min_sep and rng.random() * again[left] < prob * again[left - min_sep]:
                counts[u] += 1.0
                u += min_sep
            else:
                u += 1
        counts[u] += 1.0
        u += min_sep
    walk(rng, draw_start(rng, first) if u < 0 else u, prob, min_sep, counts)


@kernel(inline="always")
def _draw_start(rng: np.random.Generator, first: Array, again: Array, target: int) -> int:
    """The first opportunity at which an example is free that is free at the target too."""
    last, total = min(first.size - 1, target), 0.0
    for u in range(last + 1):
        total += first[u] * again[target - u]
    rest, u = rng.random() * total, 0
    while u < last:
        rest -= first[u] * again[target - u]
        if rest < 0.0:
            break
        u += 1
    return u
