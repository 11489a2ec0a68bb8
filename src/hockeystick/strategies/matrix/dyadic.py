"""The matrix of exact noise: entries, or those of the inverse, that are multiples of ``2^-24``."""

from functools import lru_cache

import numpy as np

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.strategies.matrix.base import BLOCK, Array, StrategyMatrix
from hockeystick.strategies.matrix.buffered import BufferedToeplitzMatrix
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.inverse_toeplitz import InverseToeplitzMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix

UNIT = 2.0**-24
"""Every entry is a whole number of these, so that a product with a whole number of grid steps is exact."""
LARGEST_ENTRY = 64.0
LARGEST_NORMAL = 37.0
"""No normal number beyond so many standard deviations is ever met: the chance is below 2^-993."""
STEPS_OF_NOISE = 2.0**20
"""Grid steps in one standard deviation of z over the largest entry of the diagonal, at least."""
MARGIN = 1.01
"""Factor over what floating point computes of a growth."""
LARGEST_GROWTH = (2**31 - 1) / (MARGIN * LARGEST_NORMAL * STEPS_OF_NOISE)
"""The largest sum of absolute values in a row of the inverse, for a diagonal of 1, whose noise 32 bits hold."""
LARGEST_PRODUCT = 2.0**62 * UNIT / (MARGIN * LARGEST_NORMAL * STEPS_OF_NOISE)
"""The largest product of such a sum and that of a row of C for which 64 bits hold the sums of a feedback."""


@lru_cache(maxsize=16)
def dyadic(matrix: StrategyMatrix) -> StrategyMatrix:
    """The matrix of the same structure with the nearest multiples of ``UNIT`` as entries.

    A matrix whose inverse has the bands has it rounded in its inverse, and is what that is the inverse of. Rounding
    keeps the structure, signs and the order of entries; norms of columns change by up to 1e-7 of themselves, and are
    computed from what it returns, as everything else is.

    >>> from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
    >>> float(dyadic(ToeplitzMatrix(np.array([1.0, 0.1]), 5)).coefficients[1] * 2**24)
    1677722.0

    Raises: UnsupportedError for a structure that rounding destroys; InvalidInputError where an entry of the diagonal
    would be zero, an entry is above ``LARGEST_ENTRY``, or the inverse is so large that 32 bits do not hold the noise.
    """
    if isinstance(matrix, TreeMatrix):
        return matrix
    if isinstance(matrix, BufferedToeplitzMatrix):
        raise UnsupportedError(
            "Exact noise needs the entries of C, or of its inverse, in whole numbers, which a sum of decaying powers "
            "does not have; use a strategy with bands, or with a banded inverse, such as 'banded_inverse_square_root'."
        )
    if isinstance(matrix, InverseToeplitzMatrix):
        return _checked(InverseToeplitzMatrix(_rounded(matrix.inverse_coefficients), matrix.steps))
    if isinstance(matrix, ToeplitzMatrix):
        return _checked(ToeplitzMatrix(np.trim_zeros(_rounded(matrix.coefficients), "b"), matrix.steps))
    if isinstance(matrix, BandedMatrix):
        return _checked(BandedMatrix(_rounded(matrix.band)))
    if isinstance(matrix, DenseMatrix):
        return _checked(DenseMatrix(_rounded(matrix.entries)))
    raise UnsupportedError(f"There is no exact noise for a matrix of type {type(matrix).__name__}.")


def check_dyadic(matrix: StrategyMatrix) -> None:
    """Raise InvalidInputError unless all that determines the matrix are multiples of ``UNIT``."""
    for name in matrix.defined_by:
        units = np.asarray(getattr(matrix, name), dtype=np.float64) / UNIT
        if not np.array_equal(units, np.round(units)):
            raise InvalidInputError(
                f"The entries of a matrix of exact noise must be multiples of 2^-24; those of this "
                f"{type(matrix).__name__} are not, so the noise would be that of another matrix than the accounted one."
            )


def _rounded(entries: Array) -> Array:
    if np.abs(entries).max() > LARGEST_ENTRY:
        raise InvalidInputError(
            f"The entries of a matrix of exact noise must be at most {LARGEST_ENTRY:g}. "
            f"Got {np.abs(entries).max():.6g} instead."
        )
    rounded: Array = np.round(entries / UNIT) * UNIT
    return rounded + 0.0  # zeros have one sign, as a digest tells two apart


def _checked(matrix: StrategyMatrix) -> StrategyMatrix:
    diagonal = matrix.diagonal_entries
    if not diagonal.min() > 0.0:
        raise InvalidInputError(
            f"The diagonal of a matrix of exact noise must be at least {UNIT / 2.0:.3g}, as it is rounded to multiples "
            f"of {UNIT:.3g}; the smallest entry is less."
        )
    growth = growth_of(matrix) * float(diagonal.max())
    if not growth <= LARGEST_GROWTH:
        raise InvalidInputError(
            f"The matrix of exact noise must have an inverse whose rows sum to at most {LARGEST_GROWTH:.3g} in "
            f"absolute value, over the largest entry of its diagonal, as 32 bits hold the noise. Got {growth:.3g} "
            f"instead."
        )
    if feeds_back(matrix) and not growth * largest_row_sum(matrix) <= LARGEST_PRODUCT:
        raise InvalidInputError(
            f"The rows of a matrix of exact noise must sum to at most {LARGEST_PRODUCT / growth:.3g}, as 64 bits hold "
            f"the sums over its past rows. Got {largest_row_sum(matrix):.3g} instead."
        )
    return matrix


def feeds_back(matrix: StrategyMatrix) -> bool:
    """Whether exact noise of this matrix is made from its own past rows, and not from rows of z."""
    return not isinstance(matrix, InverseToeplitzMatrix | TreeMatrix)


def largest_row_sum(matrix: StrategyMatrix) -> float:
    """The largest sum of a row of C."""
    return float(matrix.dot(np.ones(matrix.steps)).max())


@lru_cache(maxsize=16)
def growth_of(matrix: StrategyMatrix) -> float:
    """The largest sum of absolute values in a row of the left inverse, in floating point.

    O(steps * bands) for a Toeplitz matrix, steps times that for another one.
    """
    if isinstance(matrix, TreeMatrix):
        return float(matrix.levels)
    if isinstance(matrix, ToeplitzMatrix):
        return float(np.abs(matrix.solve(np.eye(1, matrix.steps)[0])).sum())
    sums = np.zeros(matrix.steps)
    for first in range(0, matrix.steps, BLOCK):
        unit = np.zeros((matrix.steps, min(BLOCK, matrix.steps - first)))
        unit[first + np.arange(unit.shape[1]), np.arange(unit.shape[1])] = 1.0
        sums += np.abs(matrix.solve(unit)).sum(axis=1)
    return float(sums.max())
