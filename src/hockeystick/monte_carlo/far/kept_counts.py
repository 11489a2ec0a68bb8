"""Numba kernels that draw counts from a chain, and give them up so that they keep the weight that histories have.

What the chain of :mod:`hockeystick.moments.copies.fields` draws it draws too often: its field is larger than inner
products are, and its copies wait less long than they have to.

Proof: docs/theory/monte-carlo/many-bands.md, "Counts are given up again".
"""

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.moments.copies.fields import ChainTables, split
from hockeystick.monte_carlo.arrays import Array, Integers

Law = tuple[Array, Array, Array, Integers, Array]
"""Fields of opportunities, chances of nodes given the counts, room for the next ones, and where idle nodes move."""

NEGLIGIBLE = 1e-9
"""Fields of a smaller chance are left out where a chain's weight may be too small by as much: then counts are kept more
often, which only makes upper bounds larger."""
PART = 32
"""Opportunities that are drawn before it is asked whether the counts can still be kept."""


@kernel(inline="always")
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


@kernel(inline="always")
def draw_kept_counts(
    rng: np.random.Generator,
    chain: ChainTables,
    couplings: Array,
    min_sep: int,
    starts: Array,
    shares: Array,
    law: Law,
    counts: Array,
) -> bool:
    """Draw counts, and say whether they are kept: with the chance that leaves them their own weight.

    The excess only grows but for what copies that wait give back, so most counts that are given up are so before they
    are complete. O(opportunities (nodes + w)) if they are kept.

    Args:
        min_sep, starts: those of :func:`log_waited`; a ``min_sep`` of 1 where the chain knows who may take part.
        shares: what tuples of histories weigh with so many participations at an opportunity, over what the chain says,
            shape (opportunities, counts); empty for one coin.
        law: of :func:`law_of`; overwritten.
        counts: overwritten; complete if they are kept.
    """
    free, usual = chain.waits.free, np.log(chain.waits.bonus.max())
    longest = -min_sep * np.log(chain.chances[0, 1, 0])
    allowed = -np.log(1.0 - rng.random())
    excess, place, state, low, high, able, waiting = 0.0, 0, 0, 0, 0, free[0], 0
    begin(law)
    for first in range(0, counts.size, PART):
        last = min(first + PART, counts.size)
        place, state = draw_counts(rng, chain, first, last, place, state, counts)
        heavier, low, high = log_excess(counts, couplings, chain, first, last, low, high, law)
        excess += heavier
        if min_sep > 1:
            lighter, able, waiting = log_waited(counts, chain, min_sep, starts, first, last, able, waiting)
            excess -= lighter
        if shares.size > 0:
            for u in range(first, last):
                if counts[u] > 1.0:
                    excess -= np.log(shares[u, int(counts[u])])
        given_back = 0.0
        if min_sep > 1:
            given_back = (free[waiting] - able) * longest + (free[0] - free[waiting]) * usual
        if excess > allowed + given_back:
            return False
    return bool(excess <= allowed)


@kernel
def law_of(opportunities: int, chain: ChainTables) -> Law:
    """Room for :func:`log_excess`."""
    nodes = chain.nodes
    below, share = np.zeros(nodes.size, dtype=np.int64), np.zeros(nodes.size)
    for place in range(nodes.size):  # where nobody takes part, as at most opportunities, all moves are these
        below[place], share[place] = split(chain.decay * nodes[place], nodes)
    return np.zeros(opportunities), np.zeros(nodes.size), np.zeros(nodes.size), below, share


@kernel(inline="always")
def begin(law: Law) -> None:
    """No opportunity yet: no fields, and the first node."""
    law[0][:] = 0.0
    law[1][:] = 0.0
    law[1][0] = 1.0


@kernel(inline="always")
def log_excess(
    counts: Array,
    couplings: Array,
    chain: ChainTables,
    first: int,
    last: int,
    low: int,
    high: int,
    law: Law,
) -> tuple[float, int, int]:
    """The logarithm of the chain's weight of these counts, over all its fields, relative to their own weight.

    Of all opportunities, if it begins with :func:`begin` and the nodes 0 and 0; else what those from ``first`` up to
    ``last`` add to it, which is not negative for histories of the chain (but for NEGLIGIBLE).

    Returns: it, and the lowest and the highest node that the law has at ``last``.
    """
    decay, pulls, nodes, pulled = chain.decay, chain.pulls, chain.nodes, chain.pulled
    fields, chances, moved, idle_below, idle_share = law
    total = 0.0
    for u in range(first, last):
        count = counts[u]
        if count > 0.0:
            mass = 0.0
            for place in range(low, high + 1):
                chances[place] *= pulled[place] ** count
                mass += chances[place]
            chances[low : high + 1] /= mass
            total += np.log(mass) - count * fields[u]
            for e in range(1, min(couplings.shape[1], counts.size - u)):
                fields[u + e] += count * couplings[u, e]
        if count == 0.0 and high == 0:
            continue
        lowest, highest = nodes.size, 0
        for place in range(low, high + 1):
            mass = chances[place]
            chances[place] = 0.0
            if mass > NEGLIGIBLE:
                below, share = idle_below[place], idle_share[place]
                if count > 0.0:
                    below, share = split(decay * (nodes[place] + pulls[u] * count), nodes)
                moved[below] += mass * (1.0 - share)
                moved[below + 1] += mass * share
                lowest, highest = min(lowest, below), max(highest, below + 1)
        low, high = lowest, highest
        for place in range(low, high + 1):
            chances[place], moved[place] = moved[place], 0.0
    return total, low, high


@kernel(inline="always")
def log_waited(
    counts: Array, chain: ChainTables, min_sep: int, starts: Array, first: int, last: int, able: int, state: int
) -> tuple[float, int, int]:
    """The logarithm of the chance of these counts if copies wait as long as they have to, over the chain's.

    Of all opportunities, if it begins with all copies and the state 0: at most 0, and minus infinity where a copy that
    waits would have to take part. Else what those from ``first`` up to ``last`` add.

    Args:
        starts: ``starts[u]`` is the chance that an example that takes part at u < min_sep is free by then, over that
            at later steps: how a run starts.
        able: copies that may take part at ``first``, but for those whose wait ends there.
        state: of the chain.

    Returns: it, and the two at ``last``.
    """
    chances, (free, within, shifted, bonus, freed) = chain.chances[0], chain.waits
    total = 0.0
    for u in range(first, last):
        if u >= min_sep:
            able += int(counts[u - min_sep])
        count, here = int(counts[u]), u % bonus.size
        if count > able:
            return -np.inf, able, state
        if count > 0 or able != free[state]:
            total += np.log(chances[able, count] / chances[free[state], count])
            total -= count * np.log(bonus[here]) + np.log(freed[state, count])
        if u < starts.size:
            total += count * np.log(starts[u])
        able -= count
        state = within[state, count]
        if here == bonus.size - 1:
            state = shifted[state]
    return total, able, state
