"""Kernels of participations that renew themselves: sums of inner products of columns, and when they are available."""

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.strategies.matrix.base import Array


@kernel
def best_of_toeplitz(column: Array, min_sep: int, overlaps: Array) -> None:
    """``<c_i, c_{i+l}>`` gains one term, ``column[n-1-i-l] column[n-1-i]``, when i falls by one. O(n^2)."""
    n = column.size
    products = np.zeros(n)  # by the lag l; only the lags below n - i are of columns that exist
    for i in range(n - 1, -1, -1):
        length = n - i
        for lag in range(length):
            products[lag] += column[length - 1 - lag] * column[length - 1]
        overlaps[i] = best_after(products[:length], min_sep, min_sep)


@kernel
def best_after(products: Array, first: int, min_sep: int) -> float:
    """``max sum_{j in S} products[j]`` over sets S of places from ``first`` on, min_sep apart. O(places)."""
    best = np.zeros(max(products.size - first, 0) + min_sep + 1)
    for j in range(products.size - 1, first - 1, -1):
        best[j - first] = max(best[j - first + 1], products[j] + best[j - first + min_sep])
    return float(best[0])


@kernel
def availability(steps: int, min_sep: int, hit: float, first: Array) -> Array:
    """``a_t = (1 - hit) a_{t-1} + hit a_{t-b} + P(first available at t)``: no subtraction, five roundings a step."""
    available = np.zeros(steps)
    for t in range(steps):
        value = first[t] if t < first.size else 0.0
        if t >= 1:
            value += (1.0 - hit) * available[t - 1]
        if t >= min_sep:
            value += hit * available[t - min_sep]
        available[t] = value
    return available
