"""Deadlines and progress for long computations, in one object that is passed down."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hockeystick.errors import BudgetExceededError


@dataclass
class Deadline:
    """Counts the work done and stops it when its time is over.

    Accountants call :meth:`tick` between pieces of work of at most some tenths of a second. ``on_tick`` may show
    progress; whatever it raises (Ctrl-C) stops the computation.

    Attributes:
        seconds: time allowed from now on; infinity for no limit.
        on_tick: called with the number of ticks so far.
    """

    seconds: float = float("inf")
    on_tick: Callable[[int], None] | None = None
    started: float = field(default_factory=time.monotonic)
    ticks: int = 0

    def elapsed(self) -> float:
        """Seconds since the deadline was started."""
        return time.monotonic() - self.started

    def remaining(self) -> float:
        """Seconds left of the budget, never negative."""
        return max(self.seconds - self.elapsed(), 0.0)

    def tick(self) -> None:
        """Report one piece of work; raises BudgetExceededError when the time is over."""
        self.ticks += 1
        if self.on_tick is not None:
            self.on_tick(self.ticks)
        if self.elapsed() > self.seconds:
            raise BudgetExceededError(
                f"The budget of {self.seconds:g} s is over; allow more time or choose a cheaper method."
            )
