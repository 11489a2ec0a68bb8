"""The chain of counts of some copies of coins that columns of a few opportunities couple: its moment, as a table.

The copies know of each other only through their counts J_u, so a chain over the counts of the last w opportunities
draws them. ``couplings[u, e]`` is ``G_u(u-e) = <c_u, c_(u-e)>``, the inner product of what opportunities u and u - e
add to all rows, in units of sigma. ``chances[j]`` is the log of the weight of j copies in an opportunity. A *state* has
the digit ``J_(u-e)`` at place e - 1, newest first, in base ``chances.size``.

Proof: docs/theory/monte-carlo/subsets.md, "The proposal by counts".
"""

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.laws.law import Array

SETTLED = 1e-13
"""Rows of a table that differ by a constant, up to this, repeat: the rows before them are not computed."""


@kernel
def count_table(couplings: Array, chances: Array, most: int) -> Array:
    """Logs of ``Z = sum_J prod_u e^chances[J_u] exp(sum_u G_uu J_u (J_u - 1) / 2 + sum_(v < u) G_uv J_u J_v)``.

    Entry (k, s) is the log of the part that the last k opportunities make, given the counts s of the w - 1 before them.
    Shape (rows, counts^(w - 1)), with opportunities + 1 rows, or fewer where couplings stay the same and the rows have
    settled: the last row then stands for all that follow, less a constant. No rows where more than ``most`` are needed.

    O(rows counts^w) time. See :func:`log_sum` for log Z.

    Args:
        couplings: shape (opportunities, w).
        chances: shape (counts,), finite.
        most: none are made where it is below 1.
    """
    opportunities, window = couplings.shape
    counts = chances.size
    states = counts ** (window - 1)
    if most < 1:
        return np.empty((0, 0))
    table, terms = np.zeros((min(opportunities, most) + 1, states)), np.empty(counts)
    for k in range(1, opportunities + 1):
        if k > most:
            return table[:0]
        u = opportunities - k
        for state in range(states):
            pull = pull_of(couplings[u], state, counts)
            for count in range(counts):
                following = (state * counts + count) % states
                terms[count] = chances[count] + attraction(couplings[u, 0], pull, count) + table[k - 1, following]
            top = terms.max()
            total = 0.0
            for count in range(counts):
                total += np.exp(terms[count] - top)
            table[k, state] = top + np.log(total)
        change = table[k] - table[k - 1] - (table[k, 0] - table[k - 1, 0])
        if np.abs(change).max() <= SETTLED and (couplings[: u + 1] == couplings[0]).all():
            return table[: k + 1]
    return table


@kernel
def log_sum(table: Array, opportunities: int) -> float:
    """log Z from the table of :func:`count_table`; infinite where it has no rows."""
    if table.shape[0] == 0:
        return np.inf
    last = table.shape[0] - 1
    if last == opportunities:
        return float(table[last, 0])
    return float(table[last, 0] + (opportunities - last) * (table[last, 0] - table[last - 1, 0]))


@kernel
def attraction(own: float, pull: float, count: int) -> float:
    """What ``count`` copies in an opportunity add to the exponent, among themselves and with those before."""
    return count * (pull + 0.5 * (count - 1) * own)


@kernel
def pull_of(couplings: Array, state: int, counts: int) -> float:
    """``sum_e couplings[e] J_(u-e)`` over the opportunities before."""
    total = 0.0
    for e in range(1, couplings.size):
        if state == 0:  # nearly always, where participations are rare
            break
        total += couplings[e] * (state % counts)
        state //= counts
    return total
