"""Kernels of :mod:`.enumeration`: sums over multisets of bins in pairs of doubles.

**Rows.** A row of numbers is a flat array of ``2 STRIDE`` doubles, the high parts first and the low parts STRIDE
further: a distance that the compiler knows lets it see that rows do not overlap, and it works on four bins at once.
Bins are padded to a multiple of four, by zeros in the tables; whoever starts at bin i starts at ``i - i % 4``.

**Tables.** ``factors``: shape (padded, 2 STRIDE), row i holds ``E_i0, E_i1, ...``. ``halves``: shape (padded / 4,
8 STRIDE), four rows each: row i holds ``E_il`` for ``l > i``, ``E_ii / 2`` at ``l = i`` and 0 before.

**Sums.** With a field ``w`` and ``r`` earlier draws of bin ``first``, the sum of order n is

    T_n = sum over bins first <= i_1 <= ... <= i_n of prod_s w[i_s] prod_(s<t) E[i_s, i_t] r! / prod_i r_i!

where ``r_i`` counts the draws of bin i, for ``i = first`` with the r earlier ones. Everything is >= 0.
"""

from fractions import Fraction

import numpy as np
from numba import njit

from hockeystick.laws.law import Array
from hockeystick.moments.double_double import add_positive, multiply, pair_of, two_product

MOST_BINS = 1024
STRIDE = MOST_BINS + 8  # an odd number of cache lines
LONGEST = 64
"""Of a multiset."""

_RECIPROCALS = np.array([(0.0, 0.0)] + [pair_of(Fraction(1, n)) for n in range(1, LONGEST + 2)])
_1, _2, _3, _4, _5, _6, _7 = (np.uint64(n * STRIDE) for n in range(1, 8))


@njit(cache=True)
def empty_rows(count: int) -> Array:
    """Rows of zeros, shape (count, 2 STRIDE)."""
    return np.zeros((count, 2 * STRIDE))


@njit(cache=True)
def exact_products(scale: float, numbers: Array) -> tuple[Array, Array]:
    """``scale * numbers`` as high and low parts, exactly."""
    high, low = np.empty(numbers.size), np.empty(numbers.size)
    for i in range(numbers.size):
        high[i], low[i] = two_product(scale, numbers[i])
    return high, low


@njit(cache=True)
def _multiply_into(result: Array, a: Array, size: int) -> None:
    """``result *= a`` for the first ``size`` numbers."""
    for i in range(size):
        k = np.uint64(i)
        result[k], result[k + _1] = multiply(result[k], result[k + _1], a[k], a[k + _1])


@njit(cache=True)
def _sum(row: Array, spare: Array, size: int) -> tuple[float, float]:
    """The sum of the first numbers, each in ``ceil(log2 size)`` additions. Overwrites both rows."""
    while size > 1:
        half, pairs = (size + 1) // 2, size // 2
        upper = row[half:]
        for i in range(pairs):
            k = np.uint64(i)
            spare[k], spare[k + _1] = add_positive(row[k], row[k + _1], upper[k], upper[k + _1])
        if pairs < half:
            spare[pairs], spare[STRIDE + pairs] = row[pairs], row[STRIDE + pairs]
        row, spare, size = spare, row, half
    return row[0], row[STRIDE]


@njit(cache=True)
def _add_four(result: Array, w: Array, four: Array, size: int) -> None:
    """``result[l] += sum_(i<4) w[i] four[i, l]``."""
    a0, a1, a2, a3 = w[0], w[1], w[2], w[3]
    b0, b1, b2, b3 = w[STRIDE], w[STRIDE + 1], w[STRIDE + 2], w[STRIDE + 3]
    for i in range(size):
        k = np.uint64(i)
        p, p_low = multiply(a0, b0, four[k], four[k + _1])
        q, q_low = multiply(a1, b1, four[k + _2], four[k + _3])
        p, p_low = add_positive(p, p_low, q, q_low)
        q, q_low = multiply(a2, b2, four[k + _4], four[k + _5])
        s, s_low = multiply(a3, b3, four[k + _6], four[k + _7])
        q, q_low = add_positive(q, q_low, s, s_low)
        p, p_low = add_positive(p, p_low, q, q_low)
        result[k], result[k + _1] = add_positive(result[k], result[k + _1], p, p_low)


@njit(cache=True)
def _pairs(field: Array, sums: Array, halves: Array, first: int, repeats: int) -> tuple[float, float]:
    """``T_2``: ``sum_l w_l sum_(i<=l) w_i halves_il``, the bin ``first`` by its own weights. Overwrites field and sums.

    The field must be 0 from ``first - first % 4`` up to ``first``.
    """
    start, stop = first - first % 4, 4 * halves.shape[0]
    own, own_low = field[first], field[STRIDE + first]
    field[first], field[STRIDE + first] = multiply(
        own, own_low, _RECIPROCALS[repeats + 1, 0], _RECIPROCALS[repeats + 1, 1]
    )
    sums[start:stop] = 0.0
    sums[STRIDE + start : STRIDE + stop] = 0.0
    for i in range(start, stop, 4):
        _add_four(sums[i:], field[i:], halves[i // 4, i:], stop - i)
    # twice the bin itself: w_first / (r + 1) times E / 2 is there already, what is left is w_first 2 / (r + 2)
    own, own_low = multiply(own, own_low, 2.0 * _RECIPROCALS[repeats + 2, 0], 2.0 * _RECIPROCALS[repeats + 2, 1])
    field[first], field[STRIDE + first] = own, own_low
    _multiply_into(sums[start:], field[start:], stop - start)
    return _sum(sums[start:], field[start:], stop - start)


@njit(cache=True, nogil=True)
def multiset_sum(
    order: int, bins: int, first: int, repeats: int, factors: Array, halves: Array, fields: Array, sums: Array
) -> tuple[float, float]:
    """``T_order`` for an order >= 2 and the field ``fields[0]``, which is 0 from ``first - first % 4`` up to ``first``.

    Args:
        bins: b.
        fields, sums: shape (order - 1, 2 STRIDE); overwritten, past the end of the bins they must be 0.
    """
    if order == 2:
        return _pairs(fields[0], sums[0], halves, first, repeats)
    stop = 4 * halves.shape[0]
    for i in range(first, bins):
        draw(fields[1], fields[0], factors, i, stop)
        times = repeats + 1 if i == first else 1
        value, value_low = multiset_sum(order - 1, bins, i, times, factors, halves, fields[1:], sums[1:])
        if i == first:
            value, value_low = multiply(value, value_low, _RECIPROCALS[times, 0], _RECIPROCALS[times, 1])
        sums[0, i], sums[0, STRIDE + i] = value, value_low
    _multiply_into(sums[0, first:], fields[0, first:], bins - first)
    return _sum(sums[0, first:], fields[0, first:], bins - first)


@njit(cache=True)
def draw(result: Array, field: Array, factors: Array, i: int, stop: int) -> None:
    """The field after a draw of bin i, on the bins from i on: ``result[l] = field[l] E_il``."""
    start = i - i % 4
    into, from_field, from_factors = result[start:], field[start:], factors[i, start:]
    for n in range(stop - start):
        k = np.uint64(n)
        into[k], into[k + _1] = multiply(from_field[k], from_field[k + _1], from_factors[k], from_factors[k + _1])
    result[start:i] = 0.0
    result[STRIDE + start : STRIDE + i] = 0.0
