"""Sums in logarithms, for compiled kernels."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def log_add(a: float, b: float) -> float:
    """``log(e^a + e^b)``; at most one of them is -inf."""
    return float(max(a, b) + np.log1p(np.exp(-abs(a - b))))
