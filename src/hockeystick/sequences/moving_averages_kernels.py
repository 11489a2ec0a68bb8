"""Hot loops of the sums over moving averages: plain arrays in, plain arrays out, compiled by numba.

Complex numbers are kept as real parts and imaginary ones, each in an array of its own.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def window_sums(
    begins: Counts, counts: Counts, chances: Array, values: Array, tables: Array, kinds: Counts, first: Counts
) -> Array:
    """One group of bins backwards: for each state the mean over its windows of what the group adds times what follows.

    Args:
        begins, counts, chances: of :class:`..moving_averages.Windows`.
        values: shape (2, S), of the states that windows lead to.
        tables: shape (kinds, 2, K), the transform of what a bin adds at each place.
        kinds: shape (q,), the table of each bin.
        first: shape (q, S), the place of the first window of each state in each bin's table; the others follow.
    """
    rows, bins = begins.size, kinds.size
    weighed = np.empty((2, rows))
    for s in range(rows):
        weighed[0, s] = chances[s] * values[0, s]
        weighed[1, s] = chances[s] * values[1, s]
    found = np.empty((2, rows))
    most = 0
    for s in range(rows):
        most = max(most, counts[s])
    x, y = np.empty(most), np.empty(most)
    for s in range(rows):
        n, begin = counts[s], begins[s]
        real = imaginary = 0.0
        if bins == 1:
            a, b = weighed[0, begin : begin + n], weighed[1, begin : begin + n]
        else:
            x[:n] = weighed[0, begin : begin + n]
            y[:n] = weighed[1, begin : begin + n]
            for i in range(1, bins):
                table, place = tables[kinds[i]], first[i, s]
                c, d = table[0, place : place + n], table[1, place : place + n]
                for j in range(n):
                    u, v = x[j], y[j]
                    x[j] = u * c[j] - v * d[j]
                    y[j] = u * d[j] + v * c[j]
            a, b = x[:n], y[:n]
        table, place = tables[kinds[0]], first[0, s]
        c, d = table[0, place : place + n], table[1, place : place + n]
        for j in range(n):
            real += a[j] * c[j] - b[j] * d[j]
            imaginary += a[j] * d[j] + b[j] * c[j]
        found[0, s], found[1, s] = real, imaginary
    return found


@njit(cache=True, nogil=True)
def window_means(
    begins: Counts, counts: Counts, chances: Array, values: Array, scales: Array, kinds: Counts, first: Counts
) -> Array:
    """The same for mass and mean of the rest of the sum; ``scales`` has the mean that a bin adds at each place."""
    found = np.zeros((2, begins.size))
    for s in range(begins.size):
        for j in range(counts[s]):
            t = begins[s] + j
            added = 0.0
            for i in range(kinds.size):
                added += scales[kinds[i], first[i, s] + j]
            found[0, s] += chances[t] * values[0, t]
            found[1, s] += chances[t] * (values[1, t] + added * values[0, t])
    return found


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def factor_of(before: Array, after: Array, weights: Array) -> tuple[float, float, float]:
    """The complex factor that best explains ``after`` by ``before``, of shape (2, S), and the mean size of the rest."""
    size = real = imaginary = 0.0
    for s in range(weights.size):
        a, b, c, d, w = before[0, s], before[1, s], after[0, s], after[1, s], weights[s]
        size += w * (a * a + b * b)
        real += w * (c * a + d * b)
        imaginary += w * (d * a - c * b)
    if size > 0.0:
        real, imaginary = real / size, imaginary / size
    rest = 0.0
    for s in range(weights.size):
        a, b, c, d = before[0, s], before[1, s], after[0, s], after[1, s]
        rest += weights[s] * np.sqrt((c - real * a + imaginary * b) ** 2 + (d - real * b - imaginary * a) ** 2)
    return real, imaginary, rest
