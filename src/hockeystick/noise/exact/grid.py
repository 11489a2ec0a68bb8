"""The grid of exact noise: how fine it is, and how large its whole numbers become."""

from dataclasses import dataclass
from math import ceil, floor, log2, sqrt

from hockeystick.strategies.matrix.base import StrategyMatrix
from hockeystick.strategies.matrix.dyadic import (
    LARGEST_NORMAL,
    MARGIN,
    STEPS_OF_NOISE,
    UNIT,
    feeds_back,
    growth_of,
    largest_row_sum,
)

STEPS_OF_A_COORDINATE = 100.0
"""Grid steps in the root mean square of the coordinates of a gradient of full norm, where there is room for them."""
LARGEST_KEPT = 2**31 - 1
LARGEST_SUM = 2**62


@dataclass(frozen=True)
class Grid:
    """The grid of one stream.

    Attributes:
        exponent: a clipping norm is ``2^exponent`` grid steps.
        scale: the standard deviation of z in grid steps, ``2^exponent`` noise multipliers, without rounding.
        limit: no whole number of the noise is larger, for z of up to ``LARGEST_NORMAL`` standard deviations.
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
        matrix: C of an exact mechanism, which is checked to leave room for ``STEPS_OF_NOISE``.
        sigma: the noise multiplier.
        width: coordinates of a row.
    """
    growth = MARGIN * growth_of(matrix)
    diagonal = float(matrix.diagonal_entries.max()) if matrix.rows == matrix.steps else 1.0
    most = (LARGEST_KEPT / growth - diagonal) / LARGEST_NORMAL
    if feeds_back(matrix):
        units = largest_row_sum(matrix) / UNIT
        most = min(most, (LARGEST_SUM / (growth * units) - diagonal) / LARGEST_NORMAL)
    wanted = max(ceil(log2(STEPS_OF_NOISE * diagonal / sigma)), ceil(log2(STEPS_OF_A_COORDINATE * sqrt(width))))
    exponent = min(wanted, floor(log2(most / sigma)))
    scale = sigma * 2.0**exponent
    return Grid(exponent, scale, ceil(growth * (LARGEST_NORMAL * scale + diagonal)))
