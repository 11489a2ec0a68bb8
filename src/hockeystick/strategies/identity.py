"""Independent noise in every step: C is the identity, as in plain DP-SGD."""

from typing import ClassVar, Literal

import numpy as np

from hockeystick.strategies.base import StrategySpec
from hockeystick.strategies.matrix.base import StrategyMatrix


class Identity(StrategySpec):
    """Fresh independent noise in every step: C has one band, and columns of norm 1.

    >>> Identity().matrix(2).materialize().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    kind: Literal["identity"] = "identity"
    most_steps: ClassVar[int] = 10**9

    def noise_requirement(self, noise_multiplier: float, *, exact: bool = False) -> str:
        if exact:
            return super().noise_requirement(noise_multiplier, exact=True)
        return (
            f"Clip the gradient of every example to a fixed norm, sum over the batch, and add fresh Gaussian noise of "
            f"standard deviation {noise_multiplier!r} times that norm to every step's sum, also for empty batches."
        )

    def build(self, steps: int) -> StrategyMatrix:
        from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix

        return ToeplitzMatrix(np.ones(1), steps)
