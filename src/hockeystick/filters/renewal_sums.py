"""The law of a sum over the participations of a renewal process, on a lattice.

Proof: docs/theory/separated-windows.md, "From below". Only non-negative terms are multiplied and added.
"""

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.mixture_kernels import Counts


def renewal_sum(counts: Counts, chances: Array, min_sep: int, first: Array) -> tuple[Array, float]:
    """Masses of ``sum_t counts[t] x_t`` at 0, 1, 2, ..., and a proved bound on their relative error.

    At an available step x is j with probability ``chances[j]``, and if it is positive the next ``min_sep - 1`` steps
    are not available; at those x = 0.

    Args:
        counts: shape (n,), whole and non-negative.
        chances: shape (k + 1,), a law on 0, ..., k.
        first: probabilities that the first available step is 0, 1, 2, ...

    Cost: O(n k largest sum) time, O(min(min_sep, n) largest sum) memory.
    """
    gap, most = min(min_sep, counts.size), chances.size - 1
    largest = _largest(counts, most, gap)
    ring, masses = np.zeros((gap + 1, largest[0] + 1)), np.zeros(largest[0] + 1)
    ring[:, 0] = 1.0
    _backwards(counts, chances, gap, first, largest, ring, masses)
    return masses, (counts.size + 2.0) * 4.0 * (chances.size + 1.0) * UNIT_ROUNDOFF


def _largest(counts: Counts, most: int, min_sep: int) -> Counts:
    """The largest sum from each step on, shape (n + min_sep + 1,)."""
    n, steps = counts.size, counts.tolist()
    best = [0] * (n + min_sep + 1)
    for t in range(n - 1, -1, -1):
        best[t] = max(best[t + 1], most * steps[t] + best[t + min_sep])
    return np.array(best, dtype=np.int64)


@kernel
def _backwards(
    counts: Counts, chances: Array, min_sep: int, first: Array, largest: Counts, ring: Array, law: Array
) -> None:
    """``f_t = chances[0] f_(t+1) + sum_j chances[j] f_(t+min_sep)``, shifted by j counts[t]; f is 1 at 0 in the end.

    The masses of the mean of f over ``first`` are added to ``law``; ``ring`` holds min_sep + 1 of the f.
    """
    n, most = counts.size, chances.size - 1
    for u in range(n, first.size):
        law[0] += first[u]
    for t in range(n - 1, -1, -1):
        now = ring[t % (min_sep + 1)]  # held f_(t + min_sep + 1), which nobody needs any more
        after, returned = ring[(t + 1) % (min_sep + 1)], ring[(t + min_sep) % (min_sep + 1)]
        for k in range(largest[t + 1] + 1):
            now[k] = chances[0] * after[k]
        for j in range(1, most + 1):
            shift = j * counts[t]
            for k in range(largest[t + min_sep] + 1):
                now[k + shift] += chances[j] * returned[k]
        if t < first.size:
            for k in range(largest[t] + 1):
                law[k] += first[t] * now[k]
