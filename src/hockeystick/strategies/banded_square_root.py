"""BSR: the first bands of the square root of the prefix-sum matrix."""

from typing import Literal

import numpy as np

from hockeystick.strategies.base import BandedSpec
from hockeystick.strategies.matrix.base import Array, StrategyMatrix


class BandedSquareRoot(BandedSpec):
    """BSR: the square root of the prefix-sum matrix, cut to ``bands`` diagonals. No optimisation; raw scale.

    Coefficients ``f(0) = 1``, ``f(k) = f(k-1) (1 - 1/(2k))``.

    >>> BandedSquareRoot(bands=2).matrix(3).materialize().tolist()
    [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.5, 1.0]]

    Fields:
        bands: p, at least 1 and at most the number of steps.

    Reference: Kalinin and Lampert (2024), "Banded square root matrix factorization for differentially private model
    training".
    """

    kind: Literal["banded_square_root"] = "banded_square_root"

    def build(self, steps: int) -> StrategyMatrix:
        from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix

        return ToeplitzMatrix(square_root_coefficients(self.bands), steps)


def square_root_coefficients(count: int) -> Array:
    """The first ``count`` coefficients of ``(1 - x)^(-1/2)``."""
    k = np.arange(1.0, count)
    return np.concatenate([[1.0], np.cumprod(1.0 - 0.5 / k)])
