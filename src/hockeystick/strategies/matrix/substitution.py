"""Forward substitution for Toeplitz matrices of few diagonals."""

import numpy as np
from numpy.typing import ArrayLike

from hockeystick.compiling import kernel
from hockeystick.strategies.matrix.base import Array


def toeplitz_solve(coefficients: ArrayLike, z: ArrayLike) -> Array:
    """The solution x of ``sum_j coefficients[j] x[t - j] = z[t]``, for each column of z.

    The operations and their order are those of ``scipy.signal.lfilter([1.0], coefficients, z, axis=0)``, whose import
    takes longer than most solutions: two roundings for each term, and two for the first coefficient.

    Args:
        coefficients: shape (p,), the first not zero.
        z: shape (n, ...).

    Cost: O(n * p) for each column.
    """
    right = np.asarray(z, dtype=np.float64)
    taps = np.asarray(coefficients, dtype=np.float64)
    solution = _solved(1.0 / taps[0], taps / taps[0], np.ascontiguousarray(right.reshape(right.shape[0], -1).T))
    return np.ascontiguousarray(solution.T).reshape(right.shape)


@kernel
def _solved(scale: float, taps: Array, rows: Array) -> Array:
    """The solution for each row, shape (d, n); ``ahead[j]`` is what the rows so far take from the one j + 1 on."""
    result = np.empty_like(rows)
    last = taps.size - 2
    for i in range(rows.shape[0]):
        ahead = np.zeros(taps.size)
        for t in range(rows.shape[1]):
            z = rows[i, t]
            x = ahead[0] + scale * z
            nothing = 0.0 * z  # lfilter multiplies by zeros; with them even the signs of zeros are the same
            for j in range(last):
                ahead[j] = ahead[j + 1] + nothing - x * taps[j + 1]
            if last >= 0:
                ahead[last] = nothing - x * taps[last + 1]
            result[i, t] = x
    return result
