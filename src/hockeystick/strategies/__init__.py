"""Registry of strategy matrices: one family a file, one line here."""

from hockeystick.strategies.base import StrategySpec
from hockeystick.strategies.identity import Identity

Strategy = Identity
"""Any registered strategy (a union over ``kind`` once there are several)."""

STRATEGIES: tuple[type[StrategySpec], ...] = (Identity,)

__all__ = ["STRATEGIES", "Identity", "Strategy", "StrategySpec"]
