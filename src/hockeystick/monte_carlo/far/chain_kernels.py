"""Numba kernel that draws from a chain of counts of :mod:`hockeystick.moments.copies.fields`, whose notation it has.

Proof: docs/theory/monte-carlo/many-bands.md.
"""

import numpy as np
from numba import njit

from hockeystick.moments.copies.fields import ChainTables, split
from hockeystick.monte_carlo.arrays import Array


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
