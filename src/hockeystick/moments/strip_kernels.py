"""Kernels of :mod:`.strip_moments`: sums over multisets of bins by an integer label, and normal probabilities.

Everything in pairs of doubles (high, low). Fields of numbers by bin have the shape (2, bins), high parts first; tables
of sums have a last axis of length 2. All terms of all sums are positive.

Proofs: ``docs/theory/moment-majorants/strips.md``.
"""

from fractions import Fraction

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hockeystick.laws.law import Array
from hockeystick.moments.cell_kernels import FARTHEST, normal_tail
from hockeystick.moments.double_double import add, add_positive, multiply, pair_of

Integers = NDArray[np.int64]

LONGEST = 16
"""Of a multiset."""

LEAST_CHANCE = 1e-260
"""Strips of smaller probability are left out."""

LEFT_OUT = 1e-225
"""Counted among the sizes for it: times an error of at least 2^-100 it is more than what is left out."""

_RECIPROCALS = np.array([(0.0, 0.0)] + [pair_of(Fraction(1, n)) for n in range(1, LONGEST + 1)])


@njit(cache=True)
def _add_to(row: Array, key: int, value: float, low: float) -> None:
    row[key, 0], row[key, 1] = add_positive(row[key, 0], row[key, 1], value, low)


@njit(cache=True)
def _draw(after: Array, field: Array, factors: Array, i: int) -> None:
    """``after[l] = field[l] E_il`` for the bins l from i on."""
    for m in range(i, field.shape[1]):
        after[0, m], after[1, m] = multiply(field[0, m], field[1, m], factors[i, 0, m], factors[i, 1, m])


@njit(cache=True)
def _add_all(
    row: Array, weight: float, low: float, key: int, field: Array, last: int, times: int, labels: Integers
) -> None:
    """Add every choice of one more bin from ``last`` on, which was drawn ``times`` times so far."""
    value, value_low = multiply(weight, low, field[0, last], field[1, last])
    value, value_low = multiply(value, value_low, _RECIPROCALS[times + 1, 0], _RECIPROCALS[times + 1, 1])
    _add_to(row, key + labels[last], value, value_low)
    for i in range(last + 1, labels.size):
        value, value_low = multiply(weight, low, field[0, i], field[1, i])
        _add_to(row, key + labels[i], value, value_low)


@njit(cache=True, nogil=True)
def add_draws(table: Array, first: int, start: int, stop: int, factors: Array, labels: Integers) -> None:
    """Add all multisets of 1, 2, ... bins whose smallest one is ``first`` and whose next is in ``start..stop-1``.

    The multiset of a single draw is added where ``start`` is ``first``. The weight of counts r is
    ``prod_i E_ii^(r_i (r_i - 1) / 2) / r_i!  prod_(i<j) E_ij^(r_i r_j)``.

    Args:
        table: shape (largest + 1, keys, 2), largest >= 2; by the number of draws and the sum of their labels.
        factors: ``E_ij >= 1``, shape (bins, 2, bins).
        labels: shape (bins,), >= 0.
    """
    largest, bins = table.shape[0] - 1, labels.size
    # by the number of draws: products of E_il over them, their weight, label, last bin, how often it came, what is next
    fields, weights = np.empty((largest + 1, 2, bins)), np.empty((largest + 1, 2))
    keys, last = np.zeros(largest + 1, dtype=np.int64), np.zeros(largest + 1, dtype=np.int64)
    times, following = np.zeros(largest + 1, dtype=np.int64), np.zeros(largest + 1, dtype=np.int64)
    fields[1], weights[1, 0], weights[1, 1], keys[1] = factors[first], 1.0, 0.0, labels[first]
    last[1], times[1], following[1] = first, 1, start
    if start == first:
        _add_to(table[1], labels[first], 1.0, 0.0)
    n = 1
    while n > 0:
        if n > 1 and n + 1 == largest:
            _add_all(table[largest], weights[n, 0], weights[n, 1], keys[n], fields[n], last[n], times[n], labels)
            n -= 1
            continue
        i = following[n]
        if i == (stop if n == 1 else bins):
            n -= 1
            continue
        following[n] += 1
        again = times[n] + 1 if i == last[n] else 1
        value, low = multiply(weights[n, 0], weights[n, 1], fields[n, 0, i], fields[n, 1, i])
        value, low = multiply(value, low, _RECIPROCALS[again, 0], _RECIPROCALS[again, 1])
        key = keys[n] + labels[i]
        _add_to(table[n + 1], key, value, low)
        if n + 1 < largest:
            _draw(fields[n + 1], fields[n], factors, i)
            n += 1
            weights[n, 0], weights[n, 1], keys[n], last[n], times[n], following[n] = value, low, key, i, again, i


@njit(cache=True, nogil=True)
def tails_of(step: float, step_low: float, first: int, tails: Array) -> None:
    """``Pr(N(0, 1) > |n| step)`` for n = first, first - 1, ..., into ``tails`` of shape (count, 2)."""
    for j in range(tails.shape[0]):
        z, z_low = multiply(step, step_low, abs(float(first - j)), 0.0)
        tails[j, 0], tails[j, 1] = 0.0, 0.0
        if z <= FARTHEST:
            tails[j, 0], tails[j, 1] = normal_tail(z, z_low)


@njit(cache=True)
def _chance(left: int, near: Array, right: int, far: Array) -> tuple[float, float, float]:
    """``Pr(left < N(0, 1) < right)``, in steps, from the tails of both, and the sum of the terms' sizes."""
    size = near[0] + far[0]
    if left >= 0:
        value, low = add(near[0], near[1], -far[0], -far[1])
    elif right <= 0:
        value, low = add(far[0], far[1], -near[0], -near[1])
    else:
        value, low = add(1.0, 0.0, -near[0], -near[1])
        value, low = add(value, low, -far[0], -far[1])
        size += 1.0
    return value, low, size


@njit(cache=True, nogil=True)
def strip_sums(sums: Array, sizes: Array, row: Array, offset: int, edges: Integers, lowest: int, tails: Array) -> None:
    """``sums[s] = sum_N T[N] Pr(N(N step, 1) in strip s)`` for strips that end at the edges.

    Args:
        sums: shape (edges + 1, 2), the strips; the outermost ones are half lines.
        sizes: shape (edges + 1,): the same with the sizes of the terms of every probability.
        row: shape (keys, 2), T by the key ``N - offset``.
        edges: increasing, in steps.
        lowest: at most every N.
        tails: shape (edges, count, 2): :func:`tails_of` from ``edges[e] - lowest`` on.
    """
    beyond = 2**60
    nothing = np.zeros(2)
    for key in range(row.shape[0]):
        value, value_low = row[key, 0], row[key, 1]
        if value == 0.0:
            continue
        mean = key + offset
        left, near = -beyond, nothing
        for s in range(edges.size + 1):
            right, far = beyond, nothing
            if s < edges.size:
                right, far = int(edges[s]) - mean, tails[s, mean - lowest]
            chance, chance_low, size = _chance(left, near, right, far)
            sizes[s] += value * (size + LEFT_OUT)
            if chance > LEAST_CHANCE:
                term, term_low = multiply(value, value_low, chance, chance_low)
                _add_to(sums, s, term, term_low)
            left, near = right, far
