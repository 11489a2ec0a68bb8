"""The grid of exact noise: how fine it is, and how large its whole numbers become."""

from dataclasses import dataclass
from math import ceil, floor, log2, sqrt

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.noise.exact.enclosure import LARGEST
from hockeystick.strategies.matrix.base import BLOCK, StrategyMatrix
from hockeystick.strategies.matrix.dyadic import UNIT
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix

STEPS_OF_NOISE = 2.0**20
"""Grid steps in one noise multiplier, at least, where the matrix leaves room for them."""
STEPS_OF_A_COORDINATE = 100.0
"""Grid steps in the root mean square of the coordinates of a gradient of full norm, likewise."""
LARGEST_KEPT = 2**31 - 1
LARGEST_SUM = 2**62
MARGIN = 1.01
"""Over what floating point computes of a growth."""


@dataclass(frozen=True)
class Grid:
    """The grid of one stream.

    Attributes:
        exponent: a clipping norm is ``2^exponent`` grid steps.
        scale: the standard deviation of z in grid steps, ``2^exponent`` noise multipliers, without rounding.
        limit: no whole number of the noise is larger, for z of up to ``LARGEST`` standard deviations.
    """

    exponent: int
    scale: float
    limit: int

    @property
    def step(self) -> float:
        """One grid step in clipping norms."""
        return 2.0**-self.exponent


def grid_of(matrix: StrategyMatrix, sigma: float, width: int) -> Grid:
    """The finest grid that is worth it and for which the numbers of the noise fit into 32 bits.

    Worth it: to round every coordinate of a gradient towards zero by less than a step costs about ``.4 sqrt(width)``
    steps of its norm, here .4 percent of the clipping norm at most; and a grid far finer than the noise says nothing.

    Args:
        matrix: C, with entries, or those of its inverse, that are multiples of ``2^-24``.
        sigma: the noise multiplier.
        width: coordinates of a row.

    Raises: InvalidInputError where the inverse of C is so large that no grid is fine enough.
    """
    growth = MARGIN * growth_of(matrix)
    diagonal = float(matrix.column_norms.max())  # at least the entries of the diagonal
    most = (LARGEST_KEPT / growth - diagonal) / LARGEST
    units = float(_largest_row_sum(matrix)) / UNIT
    most = min(most, (LARGEST_SUM / (MARGIN * units * growth) - diagonal) / LARGEST)
    if most < STEPS_OF_NOISE:
        raise InvalidInputError(
            f"The strategy's matrix must have an inverse whose rows sum to at most "
            f"{LARGEST_KEPT / (MARGIN * LARGEST * STEPS_OF_NOISE):.3g} in absolute value, for exact noise in 32 bits. "
            f"Got {growth / MARGIN:.3g} instead."
        )
    wanted = max(ceil(log2(STEPS_OF_NOISE / sigma)), ceil(log2(STEPS_OF_A_COORDINATE * sqrt(width))))
    exponent = min(wanted, floor(log2(most / sigma)))
    scale = sigma * 2.0**exponent
    return Grid(exponent, scale, ceil(growth * (LARGEST * scale + diagonal)))


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


def _largest_row_sum(matrix: StrategyMatrix) -> float:
    """Of C."""
    return float(matrix.dot(np.ones(matrix.steps)).max())
