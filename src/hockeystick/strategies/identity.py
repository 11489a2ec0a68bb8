"""Independent noise in every step: C is the identity, as in plain DP-SGD."""

from typing import Literal

from hockeystick.strategies.base import StrategySpec


class Identity(StrategySpec):
    """Fresh independent noise in every step. Bands 1, every column has norm 1."""

    kind: Literal["identity"] = "identity"

    @property
    def max_column_norm(self) -> float:
        """Largest l2 norm of a column of C: the sensitivity of one participation."""
        return 1.0
