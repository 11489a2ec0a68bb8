"""Deadlines and progress for long computations."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from hockeystick.calls import made_by
from hockeystick.errors import BudgetExceededError, InvalidInputError, shortened


def say(line: str) -> None:
    """Print one line for people on stderr, in one piece: timers print too, while another line may be on its way."""
    sys.stderr.write(f"hockeystick: {line}\n")
    sys.stderr.flush()


@made_by("hs.Deadline(seconds=60)")
@dataclass
class Deadline:
    """A limit on wall-clock time, and the place to report progress.

    Long computations call :meth:`tick` between pieces of work of at most some tenths of a second. Whatever ``on_tick``
    raises (Ctrl-C) stops the computation. What is planned never depends on a deadline, only where it is cut off.

    Attributes:
        seconds: time allowed from now on; infinity for no limit, and below 0 when it was over before.
        on_tick: called with the number of ticks so far.
        on_report: called with one line about what is certified so far.

    Raises: InvalidInputError when ``seconds`` is not a number.
    """

    seconds: float = float("inf")
    on_tick: Callable[[int], None] | None = None
    started: float = field(default_factory=time.monotonic)
    ticks: int = 0
    on_report: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        given: Any = self.seconds
        try:
            self.seconds = math.nan if isinstance(given, bool) or not isinstance(given, Real) else float(given)
        except OverflowError:  # a whole number that no double reaches
            self.seconds = math.inf if given > 0 else -math.inf
        if math.isnan(self.seconds):
            raise InvalidInputError(f"The 'seconds' field must be a number. Got {shortened(given)} instead.")

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(self.seconds - self.elapsed(), 0.0)

    def part(self, fraction: float) -> "Deadline":
        """A deadline after this fraction of the time that is left."""
        return Deadline(fraction * self.remaining(), self.on_tick, on_report=self.on_report)

    def report(self, line: str) -> None:
        """Hand on what is certified before the end of the computation."""
        if self.on_report is not None:
            self.on_report(line)

    def tick(self) -> None:
        """Report one piece of work; raises BudgetExceededError when the time is over."""
        self.ticks += 1
        if self.on_tick is not None:
            self.on_tick(self.ticks)
        if self.elapsed() > self.seconds:
            raise BudgetExceededError(
                f"The budget of {self.seconds:g} s is over; allow more time or choose a cheaper method."
            )

    @contextmanager
    def covering(self) -> Iterator[None]:
        """Make :func:`tick` report here, for code that is called too far down to be handed the deadline."""
        token = _covering.set(self)
        try:
            yield
        finally:
            _covering.reset(token)


_covering: ContextVar[Deadline | None] = ContextVar("covering", default=None)


def tick() -> None:
    """Report one piece of work to the deadline that covers this call, if one does; raises as :meth:`Deadline.tick`."""
    deadline = _covering.get()
    if deadline is not None:
        deadline.tick()
