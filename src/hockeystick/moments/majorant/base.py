"""What a solver, a proof and a price hand to each other."""

from dataclasses import dataclass
from typing import Protocol

from hockeystick.laws.law import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Polynomial:
    """``p(x) = sum_k (high[k] + low[k]) (x - centre)^k``, exactly with these doubles.

    Attributes:
        centre: a double.
        high, low: shape (degree + 1,).
    """

    centre: float
    high: Array
    low: Array

    @property
    def degree(self) -> int:
        """Of p."""
        return int(self.high.size) - 1


class HockeyStick(Protocol):
    """A convex function F on [0, oo) whose expectation is a delta, with lines that are proved above and below it."""

    def value(self, x: Array) -> Array:
        """F(x), as well as doubles can; only to look for polynomials."""
        ...

    def above(self, x: Array) -> Array:
        """Numbers that are proved to be at least F(x) (so chords of them lie above F, which is convex)."""
        ...

    def line_below(self, x: Array) -> tuple[Array, Array]:
        """For each x, intercept and slope of a line proved to be at most F on all of [0, oo), close to F at x."""
        ...

    def line_beyond(self, x: float) -> tuple[float, float]:
        """Intercept and slope of a line proved to be at least F on [x, oo)."""
        ...
