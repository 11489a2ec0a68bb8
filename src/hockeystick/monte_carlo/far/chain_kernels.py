"""Numba kernels of a chain of counts whose field dominates what earlier participations add to the weight of later ones.

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

from typing import NamedTuple

import numpy as np
from numba import njit

from hockeystick.monte_carlo.arrays import Array, Integers


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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True, inline="always")
def draw_counts(
    rng: np.random.Generator,
    chain: ChainTables,
    first: int,
    last: int,
    place: int,
    state: int,
    counts: Array,
) -> tuple[int, int]:
    """Draw the counts of the opportunities from ``first`` up to ``last``, beginning at a node and in a state.

    Returns: the node and the state at ``last``. All of them begin at 0 and 0.
    """
    decay, pulls, squares, chances, nodes, pulled, table, norms, waits = chain
    free, within, shifted, bonus, freed = waits
    for u in range(first, last):
        here, able = u % bonus.size, free[state]
        at_place = chances[here % chances.shape[0]]
        rest = rng.random() * table[u, state, place] * norms[u]
        weight, count = 1.0, 0
        while True:
            following = within[state, count]
            if here == bonus.size - 1:
                following = shifted[following]
            below, share = split(decay * (nodes[place] + pulls[u] * count), nodes)
            low, high = (1.0 - share) * table[u + 1, following, below], share * table[u + 1, following, below + 1]
            rest -= weight * at_place[able, count] * freed[state, count] * (low + high)
            if rest < 0.0 or count == able:
                break
            weight *= pulled[place] * np.exp(count * squares[u]) * bonus[here]
            count += 1
        place = below + 1 if rng.random() * (low + high) < high else below
        counts[u], state = count, following
    return place, state
