"""Independent noise in every step: C is the identity, as in plain DP-SGD."""

from typing import Literal

import numpy as np

from hockeystick.strategies.base import StrategySpec
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix


class Identity(StrategySpec):
    """Fresh independent noise in every step. Bands 1, every column has norm 1."""

    kind: Literal["identity"] = "identity"

    def build(self, steps: int) -> ToeplitzMatrix:
        """The identity."""
        return ToeplitzMatrix(np.ones(1), steps)
