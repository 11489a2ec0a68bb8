"""What Opacus asks of the accountant of its engine, answered by ours."""

from collections.abc import Callable
from typing import Any

from opacus.accountants.accountant import IAccountant

from hockeystick.training.engine import Engine


class Accounting(IAccountant):
    """What Opacus asks of an accountant, from the engine's run and certificate."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.history: list[Any] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Nothing: the run counts."""

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """A hook that does nothing."""
        del sample_rate
        return lambda _: None

    def get_epsilon(self, delta: float, **options: Any) -> float:
        """What the steps so far have spent, as the engine says it; options of Opacus' accountants change nothing."""
        del options
        return self.engine.get_epsilon(delta)

    def __len__(self) -> int:
        return 0 if self.engine._run is None else self.engine.run.step

    @classmethod
    def mechanism(cls) -> str:
        """The name of the accountant."""
        return "hockeystick"
