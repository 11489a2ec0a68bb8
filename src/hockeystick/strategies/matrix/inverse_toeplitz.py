"""Lower-triangular Toeplitz matrices whose inverse has few bands."""

from functools import cached_property

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF, Array
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix, convolved

MOST_ROUNDING = 1e-6
"""Largest relative error of an entry; bounds that are raised by it have to stay close to what they bound."""


class InverseToeplitzMatrix(ToeplitzMatrix):
    """C is Toeplitz and ``C^{-1}`` has the first column ``inverse_coefficients`` of length p, and zeros below.

    Its column is the power series ``1 / sum_j inverse_coefficients[j] x^j``, full unless p = 1.

    Args:
        inverse_coefficients: shape (p,), the first positive, p <= steps.
        steps: n.

    Raises: InvalidInputError when an entry of C is negative, too large for a double, or not certainly non-negative.

    Rounding: the same numbers give the same column, bit for bit, on every machine (:func:`power_series`). The
    recurrence takes at most p + 2 roundings in each of up to n steps. With non-positive coefficients after the first
    one all its terms are non-negative and relative errors only add up. Otherwise they are relative to
    the series of the coefficients with these signs, a majorant of C.
    """

    defined_by = ("inverse_coefficients",)

    def __init__(self, inverse_coefficients: Array, steps: int) -> None:
        from hockeystick.strategies.matrix.substitution import toeplitz_solve

        self.inverse_coefficients: Array = np.ascontiguousarray(inverse_coefficients, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            column = toeplitz_solve(self.inverse_coefficients, np.eye(1, steps)[0])
        if not np.isfinite(column).all():
            raise InvalidInputError(
                f"The 'inverse_coefficients' parameter must make a matrix of finite numbers; entry "
                f"{int(np.argmin(np.isfinite(column)))} of its column is too large."
            )
        relative = 2.0 * (self.inverse_coefficients.size + 4.0) * steps * UNIT_ROUNDOFF
        doubt = relative * self._majorant(column) - MOST_ROUNDING * column
        if doubt.max() > 0.0:
            worst = int(column.argmin() if column.min() < 0.0 else doubt.argmax())
            raise InvalidInputError(
                f"The 'inverse_coefficients' parameter must make a matrix without negative entries; "
                f"entry {worst} of its column is {float(column[worst]):.3g} and not certain."
            )
        super().__init__(np.trim_zeros(column, "b"), steps)

    def _majorant(self, column: Array) -> Array:
        from hockeystick.strategies.matrix.substitution import toeplitz_solve

        if (self.inverse_coefficients[1:] <= 0.0).all():
            return column
        signed = np.concatenate([self.inverse_coefficients[:1], -np.abs(self.inverse_coefficients[1:])])
        with np.errstate(over="ignore", invalid="ignore"):
            majorant = toeplitz_solve(signed, np.eye(1, column.size)[0])
        return np.where(np.isfinite(majorant), majorant, np.inf)

    @cached_property
    def rounding(self) -> float:
        """Relative error of the recurrence for an entry, and of the sums and products that follow."""
        majorant = self._majorant(self.coefficients)
        positive = self.coefficients > 0.0  # the others are exactly zero, as was checked
        growth = float((majorant[positive] / self.coefficients[positive]).max())
        return (2.0 * (self.inverse_coefficients.size + 6.0) * self.steps * growth + 64.0) * UNIT_ROUNDOFF

    def solve(self, z: Array) -> Array:
        """``C^{-1} z`` by the short filter. O(steps * p * d)."""
        return convolved(self.inverse_coefficients, z)
