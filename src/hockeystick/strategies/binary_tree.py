"""One binary tree over all steps."""

from typing import Literal

from hockeystick.strategies.base import StrategySpec
from hockeystick.strategies.matrix.tree import TreeMatrix


class BinaryTree(StrategySpec):
    """The noisy partial sums of one binary tree over all steps. No optimisation; entries are 0 or 1.

    The number of steps need not be a power of two: nodes that are never completed are left out.

    >>> BinaryTree().matrix(2).materialize().tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]

    Reference: Dwork, Naor, Pitassi, Rothblum (2010), "Differential privacy under continual observation"; Chan, Shi,
    Song (2011), "Private and continual release of statistics".
    """

    kind: Literal["binary_tree"] = "binary_tree"

    def build(self, steps: int) -> TreeMatrix:
        return TreeMatrix(1 << (steps - 1).bit_length(), steps)
