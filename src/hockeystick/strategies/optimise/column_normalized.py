"""The banded matrix with columns of norm 1 that has the smallest error of prefix sums.

``|A C^{-1}|_F^2`` is the sum of the variances of the prefix sums ``S = A C^{-1} z``. They are an autoregression over p
steps, ``S_t = s_t z_t + sum_{d=1}^{p} a_{t,d} S_{t-d}``, whose covariances over p steps follow from the earlier ones
exactly: O(n p^2) instead of the O(n^2 p) of solving for every column. The gradient is the same recursion run backwards.
"""

from typing import NamedTuple

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.errors import OptimisationError
from hockeystick.strategies.banded_square_root import square_root_coefficients
from hockeystick.strategies.matrix.banded import REASSOCIATE, add_covariances
from hockeystick.strategies.matrix.base import Array
from hockeystick.strategies.optimise.minimise import minimise


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

    work = Work.of(steps, bands)

    def ratios(free: Array) -> Array:
        work.columns[:, 0] = 1.0
        work.columns[:, 1:] = free.reshape(inside.shape)
        return work.columns

    def objective(free: Array) -> tuple[float, Array]:
        value, gradient = log_error(ratios(free), work)
        return value, (gradient[:, 1:] * inside).ravel()

    start = (square_root_coefficients(bands)[1:] * inside).ravel()
    subject = f"a banded matrix with {bands} bands for {steps} steps"
    optimum = ratios(minimise(objective, start, subject))
    if optimum.min() < 0.0:
        raise OptimisationError(f"The optimum of {subject} has negative entries; choose another number of bands.")
    unit: Array = optimum / np.linalg.norm(optimum, axis=1)[:, None]
    return unit


class Work(NamedTuple):
    """Arrays that one gradient after the other is computed in, as new ones of this size are slow to get.

    Attributes:
        columns, unit, rows, slope: shape (steps, bands): columns as given, and of norm 1; rows of C, and then slopes in
            them; the gradient, zero past the last row.
        memory, covariance, in_memory, in_covariance: shape (steps, bands + 1): those of
            :func:`~hockeystick.strategies.matrix.banded.autoregression` and of its covariances, and slopes in them.
        in_scale: shape (steps,).
        square, weights: what :func:`~hockeystick.strategies.matrix.banded.add_covariances` works in.
        pulled: shape (bands + 1,).
    """

    columns: Array
    unit: Array
    rows: Array
    slope: Array
    memory: Array
    covariance: Array
    in_memory: Array
    in_covariance: Array
    in_scale: Array
    square: Array
    weights: Array
    pulled: Array

    @classmethod
    def of(cls, steps: int, bands: int) -> "Work":
        narrow, wide = np.zeros((4, steps, bands)), np.zeros((4, steps, bands + 1))
        return cls(
            columns=narrow[0],
            unit=narrow[1],
            rows=narrow[2],
            slope=narrow[3],
            memory=wide[0],
            covariance=wide[1],
            in_memory=wide[2],
            in_covariance=wide[3],
            in_scale=np.zeros(steps),
            square=np.zeros((bands, bands)),
            weights=np.zeros(bands),
            pulled=np.zeros(bands + 1),
        )


def log_error(columns: Array, work: Work | None = None) -> tuple[float, Array]:
    """``log(mean squared error of prefix sums)`` after normalising the columns, and its gradient in them.

    Args:
        columns: shape (steps, bands), [i, d] is proportional to ``C[i + d, i]``.
        work: has the gradient until the next call; new by default.
    """
    work = work or Work.of(*columns.shape)
    norms = np.sqrt(np.einsum("id,id->i", columns, columns))[:, None]
    unit = np.divide(columns, norms, out=work.unit)
    total, slope = squared_error(unit, work)
    unit *= np.einsum("id,id->i", slope, unit)[:, None]  # what is along the columns
    slope -= unit
    slope /= norms * total
    return float(np.log(total / columns.shape[0])), slope


def squared_error(columns: Array, work: Work) -> tuple[float, Array]:
    """``|A C^{-1}|_F^2`` for prefix sums A, and its gradient in the entries of C, both exact.

    Args:
        columns: shape (steps, bands), [i, d] is ``C[i + d, i]``, zero past the last row.
        work: has the gradient until the next call.
    """
    scale, memory, covariance = 1.0 / columns[:, 0], _autoregression(columns, work), work.covariance
    add_covariances(scale, memory, work.square, work.weights, covariance)
    work.in_covariance[:] = 0.0
    _adjoint(scale, memory, covariance, work.in_covariance, work.pulled, work.in_scale, work.in_memory)
    return float(covariance[:, 0].sum()), _to_columns(scale, work)


def _autoregression(columns: Array, work: Work) -> Array:
    """The memory a of the prefix sums, as :func:`~hockeystick.strategies.matrix.banded.autoregression` has it."""
    n, p = columns.shape
    rows, memory = work.rows, work.memory
    for d in range(p):  # C[t, t - d] at [t, d]: by lag, as numpy takes three times as long along skewed rows
        rows[:d, d] = 0.0
        rows[d:, d] = columns[: n - d, d]
    np.subtract(rows[:, : p - 1], rows[:, 1:], out=memory[:, 1:p])
    memory[:, p] = rows[:, p - 1]
    memory *= (1.0 / columns[:, 0])[:, None]
    first = np.arange(min(n, p))
    memory[first, first + 1] = 0.0  # from before the first step
    return memory


@kernel(fastmath=REASSOCIATE)
def _adjoint(
    scale: Array,
    memory: Array,
    covariance: Array,
    slope: Array,
    pulled: Array,
    slope_scale: Array,
    slope_memory: Array,
) -> None:
    """Derivatives of ``sum_t K[t, 0]`` in s, shape (n,), and a, shape (n, p + 1). O(n p^2).

    Undoes the steps of :func:`~hockeystick.strategies.matrix.banded.covariances` from the last to the first. ``slope``,
    zeros of shape (n, p + 1), becomes that of the total in K; ``pulled``, shape (p + 1,), is to work in. No entry of
    ``slope_memory`` with d = 0 or d > t is touched.
    """
    n, width = memory.shape
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


def _to_columns(scale: Array, work: Work) -> Array:
    """From s and a to C: ``s_t = 1 / C[t, t]`` and ``a_{t,d} = (C[t, t-d+1] - C[t, t-d]) / C[t, t]``."""
    n, p = work.slope.shape
    # In each row t of C at d = 0..p-1; both s and a are proportional to 1 / C[t, t].
    in_memory, rows, slope = work.in_memory, work.rows, work.slope
    np.subtract(in_memory[:, 1:], in_memory[:, :p], out=rows)
    rows[:, 0] = in_memory[:, 1] - work.in_scale * scale - np.einsum("td,td->t", in_memory, work.memory)
    rows *= scale[:, None]
    for d in range(p):
        slope[: n - d, d] = rows[d:, d]
    return slope
