"""Binary trees of a fixed height, one after the other."""

from typing import Annotated, Literal

from pydantic import Field

from hockeystick.errors import InvalidInputError
from hockeystick.strategies.base import StrategySpec
from hockeystick.strategies.matrix.tree import TreeMatrix


class TreeRestart(StrategySpec):
    """Consecutive binary trees of height ``height``, each over ``2^(height-1)`` steps (DP-FTRL-TreeRestart).

    >>> TreeRestart(height=2).matrix(3).materialize().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]

    Fields:
        height: levels of nodes in one tree; height 1 is independent noise. The first tree has to fit in the steps.

    Reference: Kairouz, McMahan, Song, Thakkar, Thakurta, Xu (2021), "Practical and private (deep) learning without
    sampling or shuffling"; choquette-choo-2024, section 6.3.
    """

    kind: Literal["tree_restart"] = "tree_restart"
    height: Annotated[int, Field(ge=1, le=31)]

    def check(self, steps: int) -> None:
        if 2 ** (self.height - 1) > steps:
            raise InvalidInputError(
                f"The 'strategy.height' field must leave room for a tree of 2^(height - 1) steps among the {steps}. "
                f"Got {self.height} instead."
            )

    def build(self, steps: int) -> TreeMatrix:
        """Trees of equal size; the last one may be cut short."""
        return TreeMatrix(2 ** (self.height - 1), steps)
