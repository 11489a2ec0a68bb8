"""Both bounds on delta at epsilons that were asked for, kept while a run is asked for them again."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from hockeystick.types import Direction

REMEMBERED = 2048
"""About how many answers are kept: both sides ask for the same epsilons, and add asks for remove each time."""
APART = 1.1
"""A factor between a delta and bounds that tell what is compared with it without being close."""


class Sides(NamedTuple):
    """A lower and an upper bound on delta."""

    lower: float
    upper: float

    def miss(self, delta: float) -> bool:
        """Whether both are well above this delta, or well below it."""
        return self.lower > APART * delta or APART * self.upper < delta


Answers = dict[tuple[float, Direction], Sides | None]
"""Both bounds on delta at epsilons that were asked for, in either direction; None where there are none."""


class Foreseen(ABC):
    """A profile from both sides, of which several epsilons may be found at once."""

    def __init__(self) -> None:
        self._answers: Answers = {}

    def sides(self, epsilon: float, direction: Direction) -> Sides | None:
        """Both bounds on delta, or None where none is good enough, or would take too much work."""
        known = self._answers
        if (epsilon, direction) not in known:
            known = self.foresee([epsilon], direction)
        return known[epsilon, direction]

    @abstractmethod
    def foresee(self, epsilons: Sequence[float], direction: Direction) -> Answers:
        """Find what :meth:`sides` will say of these epsilons, many at a time, and return all answers."""

    def _kept(self) -> Answers:
        """The answers so far. If they become too many they are forgotten, but not by threads that still read them."""
        if len(self._answers) > REMEMBERED:
            self._answers = {}
        return self._answers
