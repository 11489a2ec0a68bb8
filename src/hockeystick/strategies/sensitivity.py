"""How far one example can move ``C x``, for the patterns of participation of the field, when the batches are known.

A pattern is a set S of steps in which one example takes part; its sensitivity is ``max |sum_{i in S} C[:, i] g_i^T|``
over vectors g_i of norm 1 at most. As C has no negative entries, equal g_i attain the maximum, so it is the norm of the
sum of the columns in S, and only grows with S.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.strategies.matrix.base import BLOCK, UNIT_ROUNDOFF, Array, StrategyMatrix

SLACK = 1e-12
"""Relative difference of inner products that does not count when patterns are compared; the result pays for it."""


@dataclass(frozen=True)
class Sensitivity:
    """A sensitivity in clipping norms, rounded up.

    Attributes:
        value: at least the largest sensitivity of a pattern.
        exact: whether some pattern attains it, up to rounding; otherwise it is a certified upper bound.
    """

    value: float
    exact: bool


def single(matrix: StrategyMatrix) -> Sensitivity:
    """One participation, in any step: the largest column norm. Exact."""
    return Sensitivity(_up(matrix.max_column_norm**2, matrix), exact=True)


def fixed_epochs(matrix: StrategyMatrix, bins: int) -> Sensitivity:
    """Step i of every epoch of ``bins`` steps, for one i: ``max_i |sum_j C[:, i + j bins]|``. Exact.

    Raises: InvalidInputError when ``bins`` does not divide the steps.
    """
    if bins < 1 or matrix.steps % bins:
        raise InvalidInputError(f"The 'bins' parameter must divide the {matrix.steps} steps. Got {bins!r} instead.")
    return Sensitivity(_up(float(matrix.bin_norms(bins).max()) ** 2, matrix), exact=True)


def min_separation(matrix: StrategyMatrix, min_sep: int) -> Sensitivity:
    """As many steps as fit, any two of them at least ``min_sep`` apart.

    * *Columns that are at least min_sep apart are orthogonal* (no more bands than min_sep): the squared norms of the
      columns of a pattern add up, and the best pattern is found by dynamic programming. Exact.
    * *Toeplitz with columns that do not grow*, and some others: steps 0, min_sep, 2 min_sep, ... are the worst. Exact
      (:func:`spaced_steps_are_worst`; Kalinin and Lampert 2024, Theorem 2).
    * *Other Toeplitz*: that of ``max_{s >= t} c[s]``, which does not grow and is at least c. An upper bound.
    * *Otherwise*: with ``r_i`` the largest ``sum_{j in S} <C e_i, C e_j>`` over patterns S with i, the sum over a
      pattern of r_i bounds its squared sensitivity. An upper bound by dynamic programming twice; exact where the steps
      0, min_sep, 2 min_sep, ... attain it.

    O(steps * participations) time; in the last case O(steps^2 * rows).

    Raises: InvalidInputError for a ``min_sep`` below 1.
    Reference: Kalinin and Lampert (2024), "Banded square root matrix factorization"; orthogonal columns:
    Choquette-Choo et al. (2023), "(Amplified) banded matrix factorization", Theorem 2.
    """
    if min_sep < 1:
        raise InvalidInputError(f"The 'min_sep' parameter must be at least 1. Got {min_sep!r} instead.")
    min_sep = min(min_sep, matrix.steps)
    count = -(-matrix.steps // min_sep)
    if matrix.bands <= min_sep or count == 1:
        best = float(_best_patterns(matrix.column_norms[None] ** 2, min_sep)[0])
        return Sensitivity(_up(best, matrix), exact=True)
    column = matrix.toeplitz_column
    if column is not None:
        if spaced_steps_are_worst(column, min_sep):
            total = _comb(column, min_sep, count)
            slack = (SLACK + 2.0 * _transform_error(column.size)) * count**2 * float(column @ column)
            return Sensitivity(_up(float(total @ total) + slack, matrix), exact=True)
        majorant = np.maximum.accumulate(column[::-1])[::-1]
        total = _comb(majorant, min_sep, count)
        return Sensitivity(_up(float(total @ total), matrix), exact=False)
    bound = float(_best_patterns(_best_rows(matrix, min_sep)[None], min_sep)[0])
    attained = float((matrix.columns(np.arange(count) * min_sep).sum(axis=1) ** 2).sum())
    return Sensitivity(_up(bound, matrix), exact=bound <= attained * (1.0 + 4.0 * matrix.rounding))


def spaced_steps_are_worst(column: Array, distance: int) -> bool:
    """Whether no pattern of steps ``distance`` apart has a longer sum of columns than 0, distance, 2 distance, ...

    ``r_i(l) = <C e_i, C e_{i+l}> = sum_{t < n-i-l} c_t c_{t+l}`` falls with i. If also ``r_i(l) <= r_i(j distance)``
    whenever ``l >= j distance``, for each i that is a multiple of the distance, then the products of a pattern
    ``i_1 < i_2 < ...`` are at most those of the spaced one, as ``i_a >= (a-1) distance`` and
    ``i_c - i_a >= (c-a) distance``. A column that never grows meets this at once. Products are compared up to
    ``SLACK`` of the first one, and are themselves within ``_transform_error`` of it. O(steps^2 log(steps) / distance).
    """
    if np.all(np.diff(column) <= 0.0):
        return True
    for first in range(0, column.size, distance):
        kept = column[: column.size - first]
        spectrum = np.fft.rfft(kept, 2 * kept.size)
        products = np.fft.irfft(np.abs(spectrum) ** 2)[: kept.size]
        later = np.maximum.accumulate(products[::-1])[::-1]
        if np.any(later[distance::distance] > products[distance::distance] + SLACK * products[0]):
            return False
    return True


def _transform_error(size: int) -> float:
    """Error of an inner product by fast transforms of ``2 size`` numbers, relative to the column's squared norm."""
    return float(8.0 * UNIT_ROUNDOFF * np.log2(4.0 * size) * np.sqrt(2.0 * size))


def _up(square: float, matrix: StrategyMatrix) -> float:
    """The root, rounded up; the square is a sum of products of entries, all non-negative, each within ``rounding``."""
    return sqrt(square) * (1.0 + 4.0 * matrix.rounding)


def _comb(column: Array, distance: int, count: int) -> Array:
    """The sum of the columns 0, distance, 2 distance, ... of a Toeplitz matrix, ``count`` of them."""
    total = np.zeros(column.size)
    for first in range(0, count * distance, distance):
        total[first:] += column[: column.size - first]
    return total


def _best_rows(matrix: StrategyMatrix, min_sep: int) -> Array:
    """``r_i = max sum_{j in S} <C e_i, C e_j>`` over the patterns S that hold i, shape (steps,)."""
    blocks = [np.arange(first, min(first + BLOCK, matrix.steps)) for first in range(0, matrix.steps, BLOCK)]
    best = np.empty(matrix.steps)
    for which in blocks:
        products = np.concatenate([matrix.columns(which).T @ matrix.columns(other) for other in blocks], axis=1)
        own = products[np.arange(which.size), which]
        # The others of a pattern that holds i are at least ``min_sep`` away from it.
        products[np.abs(which[:, None] - np.arange(matrix.steps)) < min_sep] = 0.0
        best[which] = own + _best_patterns(products, min_sep)
    return best


def _best_patterns(rewards: Array, min_sep: int) -> Array:
    """Largest sums of non-negative rewards, of each row, over places that are ``min_sep`` apart. O(places).

    ``best[i] = max(best[i + 1], rewards[i] + best[i + min_sep])``, for ``min_sep`` places at a time: what comes after
    these is known.
    """
    rows, n = rewards.shape
    best = np.zeros((rows, n + min_sep))
    for end in range(n, 0, -min_sep):
        first = max(end - min_sep, 0)
        taken = rewards[:, first:end] + best[:, first + min_sep : end + min_sep]
        largest = np.maximum.accumulate(taken[:, ::-1], axis=1)[:, ::-1]
        best[:, first:end] = np.maximum(largest, best[:, end : end + 1])
    return best[:, 0]
