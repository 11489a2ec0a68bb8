"""Kernels of :mod:`.strips`: sums over multisets of bins by an integer label, and normal probabilities.

Numbers are pairs (:mod:`.double_double`). All terms of all sums are positive.

Proofs: ``docs/theory/moment-majorants/strips.md``.
"""

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.laws.law import Array
from hockeystick.moments.double_double import RECIPROCALS, Pairs, add_positive, multiply
from hockeystick.moments.normal_tail import FARTHEST, LEAST_CHANCE, LEFT_OUT, in_range, normal_tail

Integers = NDArray[np.int64]


@kernel(inline="always")
def _add_all(row: Pairs, weight: complex, key: int, field: Pairs, last: int, times: int, labels: Integers) -> None:
    """Add every choice of one more bin from ``last`` on, which was drawn ``times`` times so far."""
    for i in range(last, labels.size):
        value = multiply(weight, field[i])
        if i == last:
            value = multiply(value, RECIPROCALS[times + 1])
        row[key + labels[i]] = add_positive(row[key + labels[i]], value)


@kernel
def add_draws(table: Pairs, first: int, start: int, stop: int, factors: Pairs, labels: Integers) -> None:
    """Add all multisets of 1, 2, ... bins whose smallest one is ``first`` and whose next is in ``start..stop-1``.

    The multiset of a single draw is added where ``start`` is ``first``. The weight of counts r is
    ``prod_i E_ii^(r_i (r_i - 1) / 2) / r_i!  prod_(i<j) E_ij^(r_i r_j)``.

    Args:
        table: shape (largest + 1, keys), largest >= 2; by the number of draws and the sum of their labels.
        factors: ``E_ij >= 1``, shape (bins, bins).
        labels: shape (bins,), >= 0.
    """
    largest, bins = table.shape[0] - 1, labels.size
    # by the number of draws: products of E_il over them, their weight, label, last bin, how often it came, what is next
    fields, weights = np.empty((largest + 1, bins), dtype=np.complex128), np.ones(largest + 1, dtype=np.complex128)
    keys, last = np.zeros(largest + 1, dtype=np.int64), np.zeros(largest + 1, dtype=np.int64)
    times, following = np.zeros(largest + 1, dtype=np.int64), np.zeros(largest + 1, dtype=np.int64)
    fields[1], keys[1], last[1], times[1], following[1] = factors[first], labels[first], first, 1, start
    if start == first:
        table[1, keys[1]] = add_positive(table[1, keys[1]], weights[1])
    n = 1
    while n > 0:
        if n > 1 and n + 1 == largest:
            _add_all(table[largest], weights[n], keys[n], fields[n], last[n], times[n], labels)
            n -= 1
            continue
        i = following[n]
        if i == (stop if n == 1 else bins):
            n -= 1
            continue
        following[n] += 1
        again = times[n] + 1 if i == last[n] else 1
        value = multiply(multiply(weights[n], fields[n, i]), RECIPROCALS[again])
        key = keys[n] + labels[i]
        table[n + 1, key] = add_positive(table[n + 1, key], value)
        if n + 1 < largest:
            for m in range(i, bins):
                fields[n + 1, m] = multiply(fields[n, m], factors[i, m])
            n += 1
            weights[n], keys[n], last[n], times[n], following[n] = value, key, i, again, i


@kernel
def tails_of(step: complex, first: int, tails: Pairs) -> None:
    """``Pr(N(0, 1) > |n| step)`` for n = first, first - 1, ..., into ``tails`` of shape (count,)."""
    for j in range(tails.size):
        z = multiply(step, complex(abs(float(first - j)), 0.0))
        tails[j] = normal_tail(z) if z.real <= FARTHEST else complex(0.0, 0.0)


@kernel
def strip_sums(sums: Pairs, sizes: Array, row: Pairs, offset: int, edges: Integers, lowest: int, tails: Pairs) -> None:
    """``sums[s] = sum_N T[N] Pr(N(N step, 1) in strip s)`` for strips that end at the edges.

    Args:
        sums: shape (edges + 1,), the strips; the outermost ones are half lines.
        sizes: shape (edges + 1,): the same with the sizes of the terms of every probability.
        row: shape (keys,), T by the key ``N - offset``.
        edges: increasing, in steps.
        lowest: at most every N.
        tails: shape (edges, count): :func:`tails_of` from ``edges[e] - lowest`` on.
    """
    one = complex(1.0, 0.0)
    for key in range(row.size):
        value, mean = row[key], key + offset
        if value.real == 0.0:
            continue
        left, left_above = complex(0.0, 0.0), False
        for s in range(edges.size + 1):
            right, right_above = complex(0.0, 0.0), True
            if s < edges.size:
                right, right_above = tails[s, mean - lowest], edges[s] >= mean
            chance = in_range(one, left, left_above, right, right_above)
            size = left.real + right.real + (1.0 if right_above and not left_above else 0.0)
            sizes[s] += value.real * (size + LEFT_OUT)
            if chance.real > LEAST_CHANCE:
                sums[s] = add_positive(sums[s], multiply(value, chance))
            left, left_above = right, right_above
