"""The square root of the prefix-sum matrix, for continual counting."""

from typing import Literal

from hockeystick.strategies.banded_square_root import square_root_coefficients
from hockeystick.strategies.base import StrategySpec
from hockeystick.strategies.matrix.base import StrategyMatrix


class SquareRoot(StrategySpec):
    """The whole square root of the prefix-sum matrix: near optimal for continual counting. Raw scale.

    >>> SquareRoot().matrix(3).materialize().tolist()
    [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.375, 0.5, 1.0]]

    Reference: Fichtenberger, Henzinger, Upadhyay (2023), "Constant matters"; Henzinger, Upadhyay, Upadhyay (2023).
    """

    kind: Literal["square_root"] = "square_root"

    def build(self, steps: int) -> StrategyMatrix:
        from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix

        return ToeplitzMatrix(square_root_coefficients(steps), steps)
