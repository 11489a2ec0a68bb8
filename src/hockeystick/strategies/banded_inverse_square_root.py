"""BISR: the inverse has the first bands of the inverse square root of the prefix-sum matrix."""

from typing import Literal

import numpy as np

from hockeystick.strategies.base import BandedSpec
from hockeystick.strategies.matrix.base import Array, StrategyMatrix


class BandedInverseSquareRoot(BandedSpec):
    """BISR: the inverse square root of the prefix-sum matrix, cut to ``bands`` diagonals. No optimisation; raw scale.

    The coefficients of ``C^{-1}`` are those of ``(1 - x)^(1/2)``: ``g(0) = 1``, ``g(k) = g(k-1) (1 - 3/(2k))``. All
    after the first are negative, so that C has no negative entries.

    >>> BandedInverseSquareRoot(bands=2).matrix(3).materialize().tolist()
    [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.25, 0.5, 1.0]]

    Fields:
        bands: p, at least 1 and at most the number of steps.

    Reference: Kalinin, McKenna, Upadhyay, Lampert (2025), "Back to square roots".
    """

    kind: Literal["banded_inverse_square_root"] = "banded_inverse_square_root"

    def build(self, steps: int) -> StrategyMatrix:
        from hockeystick.strategies.matrix.inverse_toeplitz import InverseToeplitzMatrix

        return InverseToeplitzMatrix(inverse_square_root_coefficients(self.bands), steps)


def inverse_square_root_coefficients(count: int) -> Array:
    """The first ``count`` coefficients of ``(1 - x)^(1/2)``."""
    k = np.arange(1.0, count)
    return np.concatenate([[1.0], np.cumprod(1.0 - 1.5 / k)])
