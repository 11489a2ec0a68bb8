"""The chain of counts of some copies whose field dominates what earlier participations add to the weight of later ones.

The weight of counts J, of some copies, is ``prod_u chances[i_u, F_u, J_u] exp(squares_u J_u (J_u - 1) / 2 + J_u f_u)``,
with F_u the copies that are free, and i_u the place of u in its cell, or 0 where all places have the same chances. The
field h starts at 0; then it is one of the two nodes next to ``decay (h + pulls_u J_u)``, at random, with this mean, or
the last node if it is above. ``f_u = min(h_u, cap) + spare``.

Which copies are free follows from the counts: opportunities stand in cells of ``bonus.size``, and ``waits`` holds, for
each state of the cells that matter, how many copies are free, the state after j participations and their factor, and
the state at the end of a cell. A participation at place i of its cell has the factor ``bonus[i]`` too. Where nobody
waits there is one state.

Proof: docs/theory/monte-carlo/many-bands.md.
"""

from functools import lru_cache
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.laws.coins import log_chances
from hockeystick.laws.law import Array

Integers = NDArray[np.int64]


class Waits(NamedTuple):
    """Who waits, as one of some states.

    Attributes:
        free: copies that are free, shape (states,).
        within: the state after j participations, shape (states, copies + 1).
        shifted: the state at the end of a cell, shape (states,).
        bonus: the factor of a participation at each place of a cell, shape (cell,).
        freed: the factor of j participations, shape (states, copies + 1).
    """

    free: Integers
    within: Integers
    shifted: Integers
    bonus: Array
    freed: Array


class ChainTables(NamedTuple):
    """What counts are drawn from.

    Attributes:
        decay: of the field.
        pulls, squares: shape (opportunities,).
        chances: of counts, by the place in a cell and by the copies that are free.
        nodes, pulled: of the field, and ``exp(f)`` there, shape (nodes,).
        table, norms: of :func:`chain_table`, and the exponentials of its logs.
        waits: who waits.
    """

    decay: float
    pulls: Array
    squares: Array
    chances: Array
    nodes: Array
    pulled: Array
    table: Array
    norms: Array
    waits: Waits


@kernel
def chain_table(
    pulls: Array, squares: Array, chances: Array, waits: Waits, decay: float, nodes: Array, cap: float, spare: float
) -> tuple[Array, Array]:
    """What the opportunities from u on make of the weight, given the state and the node, over that of the first ones.

    Shape (opportunities + 1, states, nodes), and the logs of the weights at the first state and node over those of the
    opportunities after u, shape (opportunities + 1,), which sum to log Z. Not finite where doubles end.

    O(opportunities states nodes counts).
    """
    free, within, shifted, bonus, freed = waits
    opportunities, places, counts, cell = pulls.size, nodes.size, chances.shape[2], bonus.size
    table, logs = np.ones((opportunities + 1, free.size, places)), np.zeros(opportunities + 1)
    below, share = np.zeros((counts, places), dtype=np.int64), np.zeros((counts, places))
    pulled, more = np.exp(np.minimum(nodes, cap) + spare), np.empty(counts)
    for u in range(opportunities - 1, -1, -1):
        if u == opportunities - 1 or pulls[u] != pulls[u + 1]:
            for count in range(counts):
                for place in range(places):
                    nearest = split(decay * (nodes[place] + pulls[u] * count), nodes)
                    below[count, place], share[count, place] = nearest
        here = u % cell
        at_place = chances[here % chances.shape[0]]
        for count in range(counts):
            more[count] = np.exp(count * squares[u]) * bonus[here]
        for state in range(free.size):
            able = free[state]
            for place in range(places):
                weight, total = 1.0, 0.0
                for count in range(able + 1):
                    following = within[state, count]
                    if here == cell - 1:
                        following = shifted[following]
                    at, part, row = below[count, place], share[count, place], table[u + 1, following]
                    moved = (1.0 - part) * row[at] + part * row[at + 1]
                    total += weight * at_place[able, count] * freed[state, count] * moved
                    weight *= pulled[place] * more[count]
                table[u, state, place] = total
        logs[u] = np.log(table[u, 0, 0])
        table[u] /= table[u, 0, 0]
    return table, logs


@kernel
def split(field: float, nodes: Array) -> tuple[int, float]:
    """The node below a field, or the last but one, and the share of the node above it; nodes are those of squares."""
    moved = field * (1.0 + 1e-12)  # more than the share loses by rounding
    below = int(min(np.sqrt(moved / nodes[-1]), 1.0) * (nodes.size - 1))
    below = min(below, nodes.size - 2)
    while below > 0 and nodes[below] > moved:
        below -= 1
    while below < nodes.size - 2 and nodes[below + 1] < moved:
        below += 1
    return below, min((moved - nodes[below]) / (nodes[below + 1] - nodes[below]), 1.0)


def coin_chances(copies: int, prob: float) -> Array:
    """``chances[f, j]``: j of f coins show 1; 0 for j > f. Shape (copies + 1, copies + 1)."""
    chances = np.eye(copies + 1, 1) @ np.eye(1, copies + 1)
    for able in range(1, copies + 1):
        chances[able, : able + 1] = np.exp(log_chances(prob, able, able + 1))
    return chances


@lru_cache(maxsize=64)
def unlimited(copies: int) -> Waits:
    """Nobody waits, and nothing is counted."""
    none = np.zeros(1, dtype=np.int64)
    after = np.zeros((1, copies + 1), dtype=np.int64)
    return Waits(np.full(1, copies), after, none, np.ones(1), np.ones((1, copies + 1)))


@lru_cache(maxsize=64)
def within_limit(copies: int, block: int, most: int) -> Waits:
    """Nobody waits, and in every block of opportunities there are at most so many participations of all copies."""
    numbers = np.arange(most + 1)
    after = np.add.outer(numbers, np.arange(copies + 1))
    none = np.zeros(numbers.size, dtype=np.int64)
    allowed = (after <= most).astype(float)
    return Waits(np.full(numbers.size, copies), np.minimum(after, most), none, np.ones(block), allowed)


@lru_cache(maxsize=64)
def visits_of(bins: int, copies: int) -> Waits:
    """The state is the number of copies that have visited in the epoch; it starts again at 0 in the next."""
    numbers = np.arange(copies + 1)
    after = np.minimum(np.add.outer(numbers, numbers), copies)
    start = np.zeros(copies + 1, dtype=np.int64)
    return Waits(copies - numbers, after, start, np.ones(bins), np.ones((copies + 1, copies + 1)))


@lru_cache(maxsize=64)
def visit_chances(bins: int, copies: int) -> Array:
    """``chances[i, f, j]``: j of the f copies without a visit take theirs at place i of an epoch.

    Each of them with the chance ``1 / (bins - i)``: all at the last place. Shape (bins, copies + 1, copies + 1).
    """
    last = np.eye(copies + 1)[None]
    return np.concatenate([*(coin_chances(copies, 1.0 / left)[None] for left in range(bins, 1, -1)), last])


@lru_cache(maxsize=64)
def waits_of(min_sep: int, prob: float, copies: int, cells: int, most: int) -> Waits:
    """A copy waits until the start of the cell that is ``cells`` after its own, no longer than it has to.

    If more than ``most`` would wait, those that have waited longest are free at once. For every opportunity at which a
    copy is free too early there is the factor ``1 / (1 - p)``.
    """
    size = min_sep // cells
    placed = [
        multiset for waiting in range(most + 1) for multiset in combinations_with_replacement(range(cells), waiting)
    ]
    states = [tuple(multiset.count(cell) for cell in range(cells)) for multiset in placed]
    number = {state: place for place, state in enumerate(states)}
    within, freed = np.zeros((len(states), copies + 1), dtype=np.int64), np.ones((len(states), copies + 1))
    for place, state in enumerate(states):
        for count in range(copies - sum(state) + 1):
            left, early = _forget((state[0] + count, *state[1:]), most, size)
            within[place, count], freed[place, count] = number[left], (1.0 - prob) ** -early
    free = np.array([copies - sum(state) for state in states])
    shifted = np.array([number[(0, *state[:-1])] for state in states])
    waited = min_sep - cells * size + np.arange(size, dtype=float)
    return Waits(free, within, shifted, (1.0 - prob) ** -waited, freed)


def _forget(state: tuple[int, ...], most: int, size: int) -> tuple[tuple[int, ...], int]:
    """The state with at most so many who wait, and at least how many opportunities too early the others are free."""
    left, early, over = list(state), 0, max(sum(state) - most, 0)
    for cell in range(len(left) - 1, -1, -1):
        gone = min(over, left[cell])
        left[cell] -= gone
        over -= gone
        early += gone * ((len(left) - cell) * size - 1)
    return tuple(left), early
