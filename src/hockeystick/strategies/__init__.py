"""Strategy matrices: how the noise of different steps is correlated, one family a file.

A family is registered by one line in the union below; everything else is derived from it.
"""

from typing import Annotated, get_args

from pydantic import Field

from hockeystick.lazily import loaded
from hockeystick.strategies.banded_inverse import BandedInverse
from hockeystick.strategies.banded_inverse_fractional_root import BandedInverseFractionalRoot
from hockeystick.strategies.banded_inverse_square_root import BandedInverseSquareRoot
from hockeystick.strategies.banded_square_root import BandedSquareRoot
from hockeystick.strategies.banded_toeplitz import BandedToeplitz
from hockeystick.strategies.base import StrategySpec
from hockeystick.strategies.binary_tree import BinaryTree
from hockeystick.strategies.buffered_toeplitz import BufferedToeplitz
from hockeystick.strategies.column_normalized_banded import ColumnNormalizedBanded
from hockeystick.strategies.custom import Custom
from hockeystick.strategies.dense import Dense
from hockeystick.strategies.identity import Identity
from hockeystick.strategies.matrix.base import StrategyMatrix
from hockeystick.strategies.square_root import SquareRoot
from hockeystick.strategies.tree_restart import TreeRestart

Strategy = Annotated[
    Identity
    | BandedSquareRoot
    | BandedInverseSquareRoot
    | BandedInverseFractionalRoot
    | SquareRoot
    | BandedToeplitz
    | ColumnNormalizedBanded
    | BandedInverse
    | BufferedToeplitz
    | BinaryTree
    | TreeRestart
    | Dense
    | Custom,
    Field(discriminator="kind"),
]
"""Any strategy, told apart by ``kind``."""

STRATEGIES: dict[str, type[StrategySpec]] = {c.model_fields["kind"].default: c for c in get_args(get_args(Strategy)[0])}
"""The class of each registered kind of strategy."""

__all__ = [
    "STRATEGIES",
    "BandedInverse",
    "BandedInverseFractionalRoot",
    "BandedInverseSquareRoot",
    "BandedSquareRoot",
    "BandedToeplitz",
    "BinaryTree",
    "BufferedToeplitz",
    "ColumnNormalizedBanded",
    "Custom",
    "Dense",
    "Identity",
    "SquareRoot",
    "Strategy",
    "StrategyMatrix",
    "StrategySpec",
    "TreeRestart",
]


def __getattr__(name: str) -> object:
    return loaded(__name__, {}, name, rooms=__all__)
