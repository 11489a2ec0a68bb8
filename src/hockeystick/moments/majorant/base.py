"""Polynomials and hockey sticks: what the solver and the proof exchange."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from hockeystick.laws.law import Array
from hockeystick.moments.double_double import Pairs, pair_of, rational


@dataclass(frozen=True, kw_only=True, eq=False)
class Polynomial:
    """``p(x) = sum_k coefficients[k] (x - centre)^k``, exactly with these doubles.

    Attributes:
        centre: a double.
        coefficients: pairs, shape (degree + 1,).
    """

    centre: float
    coefficients: Pairs

    @staticmethod
    def rounded(centre: float, coefficients: Iterable[Fraction]) -> "Polynomial":
        """The polynomial about ``centre`` whose coefficients are the nearest pairs of doubles."""
        return Polynomial(centre=centre, coefficients=np.array([pair_of(coefficient) for coefficient in coefficients]))

    @property
    def degree(self) -> int:
        return int(self.coefficients.size) - 1

    @property
    def exact(self) -> list[Fraction]:
        """The coefficients as rational numbers."""
        return [rational(pair) for pair in self.coefficients]


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
