"""Strategy matrices: how the noise of different steps is correlated, one family a file.

A family is registered by one line in the union below; everything else is derived from it.
"""

from typing import Annotated, get_args

from pydantic import Field

from hockeystick.strategies.banded_square_root import BandedSquareRoot
from hockeystick.strategies.base import StrategySpec
from hockeystick.strategies.identity import Identity
from hockeystick.strategies.matrix.base import StrategyMatrix

Strategy = Annotated[
    Identity | BandedSquareRoot,
    Field(discriminator="kind"),
]
"""Any strategy, told apart by ``kind``."""

STRATEGIES: dict[str, type[StrategySpec]] = {c.model_fields["kind"].default: c for c in get_args(get_args(Strategy)[0])}
"""The class of each registered kind of strategy."""

__all__ = [
    "STRATEGIES",
    "BandedSquareRoot",
    "Identity",
    "Strategy",
    "StrategyMatrix",
    "StrategySpec",
]
