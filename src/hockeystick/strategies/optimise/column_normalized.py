"""The banded matrix with columns of norm 1 that has the smallest error of prefix sums.

``|A C^{-1}|_F^2`` is the sum of the variances of the prefix sums ``S = A C^{-1} z``. They are an autoregression over p
steps, ``S_t = s_t z_t + sum_{d=1}^{p} a_{t,d} S_{t-d}``, whose covariances over p steps follow from the earlier ones
exactly: O(n p^2) instead of the O(n^2 p) of solving for every column. The gradient is the same recursion run backwards.
"""

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.errors import OptimisationError
from hockeystick.strategies.banded_square_root import square_root_coefficients
from hockeystick.strategies.matrix.banded import REASSOCIATE, autoregression, covariances
from hockeystick.strategies.matrix.base import Array
from hockeystick.strategies.optimise.minimise import minimise

DIFFERENCES = np.array([1.0, -1.0])
"""First column of the inverse of the prefix-sum matrix."""


def optimal_columns(steps: int, bands: int) -> Array:
    """Entries ``C[i + d, i]`` at [i, d], shape (steps, bands), of the C with the least mean squared error.

    Every column has norm 1, entries past the last row are zero. In terms of ``C^T C`` the problem is convex with one
    solution, so a minimum that was found is the minimum.

    Raises: OptimisationError when it does not converge, or to a negative entry.
    Reference: McKenna (2025), "Scaling up the banded matrix factorization mechanism for large scale differentially
    private machine learning"; convexity: Choquette-Choo et al. (2023), "(Amplified) banded matrix factorization".
    Cost: some hundreds of gradients of O(steps * bands^2) time and O(steps * bands) memory.
    """
    # Off-diagonal entries over diagonal ones are free coordinates, but for those past the last row, which start at zero
    # and have no slope; the norms then say the rest.
    inside = np.arange(steps)[:, None] + np.arange(1, bands)[None, :] < steps

    def ratios(free: Array) -> Array:
        return np.column_stack([np.ones(steps), free.reshape(inside.shape)])

    def objective(free: Array) -> tuple[float, Array]:
        value, gradient = log_error(ratios(free))
        return value, (gradient[:, 1:] * inside).ravel()

    start = (square_root_coefficients(bands)[1:] * inside).ravel()
    subject = f"a banded matrix with {bands} bands for {steps} steps"
    optimum = ratios(minimise(objective, start, subject))
    if optimum.min() < 0.0:
        raise OptimisationError(f"The optimum of {subject} has negative entries; choose another number of bands.")
    unit: Array = optimum / np.linalg.norm(optimum, axis=1)[:, None]
    return unit


def log_error(columns: Array) -> tuple[float, Array]:
    """``log(mean squared error of prefix sums)`` after normalising the columns, and its gradient in them.

    Args:
        columns: shape (steps, bands), [i, d] is proportional to ``C[i + d, i]``.
    """
    norms = np.sqrt(np.einsum("id,id->i", columns, columns))[:, None]
    unit = columns / norms
    total, slope = squared_error(unit)
    unit *= np.einsum("id,id->i", slope, unit)[:, None]  # what is along the columns
    slope -= unit
    slope /= norms * total
    return float(np.log(total / columns.shape[0])), slope


def squared_error(columns: Array) -> tuple[float, Array]:
    """``|A C^{-1}|_F^2`` for prefix sums A, and its gradient in the entries of C, both exact.

    Args:
        columns: shape (steps, bands), [i, d] is ``C[i + d, i]``, zero past the last row.
    """
    scale, memory = autoregression(columns, DIFFERENCES)
    covariance = covariances(scale, memory)
    slope_scale, slope_memory = _adjoint(scale, memory, covariance)
    return float(covariance[:, 0].sum()), _to_columns(scale, memory, slope_scale, slope_memory)


@kernel(fastmath=REASSOCIATE)
def _adjoint(scale: Array, memory: Array, covariance: Array) -> tuple[Array, Array]:
    """Derivatives of ``sum_t K[t, 0]`` in s, shape (n,), and a, shape (n, p + 1). O(n p^2).

    Undoes the steps of :func:`~hockeystick.strategies.matrix.banded.covariances` from the last to the first.
    """
    n, width = memory.shape
    slope_scale, slope_memory = np.empty(n), np.zeros((n, width))
    slope = np.zeros((n, width))  # of the total in K
    pulled = np.empty(width)
    for t in range(n - 1, -1, -1):
        last = min(t, width - 1)
        a, of_a = memory[t], slope_memory[t]
        variance = slope[t, 0] + 1.0
        slope_scale[t] = 2.0 * variance * scale[t]
        for d in range(1, last + 1):
            pulled[d] = slope[t, d] + variance * a[d]
            of_a[d] = variance * covariance[t, d]
        for d in range(1, last, 2):  # two at a time, as they read the same of what is pulled
            old, older = covariance[t - d], covariance[t - d - 1]
            of_old, of_older = slope[t - d], slope[t - d - 1]
            weight, next_weight, pull, next_pull = a[d], a[d + 1], pulled[d], pulled[d + 1]
            of_old[0] += weight * pull
            of_old[1] += weight * next_pull + pull * next_weight
            of_older[0] += next_weight * next_pull
            total, next_total = pull * old[0] + next_pull * old[1], next_pull * older[0]
            of_a[d + 1] += pull * old[1]
            for gap in range(1, last - d):
                total += pulled[d + 1 + gap] * old[gap + 1]
                next_total += pulled[d + 1 + gap] * older[gap]
                of_a[d + 1 + gap] += pull * old[gap + 1] + next_pull * older[gap]
                of_old[gap + 1] += weight * pulled[d + 1 + gap] + pull * a[d + 1 + gap]
                of_older[gap] += next_weight * pulled[d + 1 + gap] + next_pull * a[d + 1 + gap]
            of_a[d] += total
            of_a[d + 1] += next_total
        if last % 2 == 1:
            slope[t - last, 0] += a[last] * pulled[last]
            of_a[last] += pulled[last] * covariance[t - last, 0]
    return slope_scale, slope_memory


def _to_columns(scale: Array, memory: Array, slope_scale: Array, slope_memory: Array) -> Array:
    """From s and a to C: ``s_t = 1 / C[t, t]`` and ``a_{t,d} = (C[t, t-d+1] - C[t, t-d]) / C[t, t]``."""
    n, p = memory.shape[0], memory.shape[1] - 1
    # In each row t of C at d = 0..p-1; both s and a are proportional to 1 / C[t, t].
    rows = slope_memory[:, 1:] - slope_memory[:, :p]
    rows[:, 0] = slope_memory[:, 1] - slope_scale * scale - np.einsum("td,td->t", slope_memory, memory)
    padded = np.zeros((n + p, p))
    padded[:n] = rows * scale[:, None]
    row, column = padded.strides
    return np.lib.stride_tricks.as_strided(padded, (n, p), (row, row + column)).copy()
