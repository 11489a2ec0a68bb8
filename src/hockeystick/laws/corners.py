"""How much more than at its corners a triple inside a cell can add.

A cell is a rectangle of angles of triples on the circle (:mod:`.triples`). ``D_f`` is jointly convex in the two laws of
a step, so as a function of the angles its second derivatives are at least those that come from the curved paths of the
points alone. With a quadratic added that makes up for these it is convex, and largest at a corner.

Proof: docs/theory/fixed-size.md, "Corners". Errs upward.
"""

from math import cos, exp, inf, pi, sin, sqrt
from typing import NamedTuple

import numpy as np

Interval = tuple[float, float]


class Cell(NamedTuple):
    """Triples on the unit circle whose angles at e and at e' are in two intervals, in radians, of ``[0, pi / 2]``."""

    at_e: Interval
    at_other: Interval

    def halves(self, along: int) -> "list[Cell]":
        """The two halves, along the first or the second angle, as far as they have triples that matter."""
        low, high = self[along]
        middle = 0.5 * (low + high)
        parts = (self._replace(**{self._fields[along]: part}) for part in ((low, middle), (middle, high)))
        return [part for part in parts if part.matters]

    @property
    def matters(self) -> bool:
        """Whether it has triples with v nearer to e', not obtuse at v."""
        return self.at_e[1] + self.at_other[1] > 0.5 * pi and self.at_e[0] <= self.at_other[1]


EVERYTHING = Cell((0.0, 0.5 * pi), (0.0, 0.5 * pi))


def _most(power: float, of_root: float) -> float:
    """The largest ``x^power (1 + x)^-of_root`` for x >= 0, where ``0 <= power <= of_root``."""
    if power in (0.0, of_root):
        return 1.0
    x = power / (of_root - power)
    return float(x**power * (1.0 + x) ** -of_root)


_POWERS: list[tuple[float, float]] = [(order, _most(2.0 - order, 1.5)) for order in np.linspace(0.5, 2.0, 16).tolist()]
"""``x^2 (1 + x)^(-3/2)`` is at most so many times ``x^order``."""
_ROOTS: list[tuple[float, float]] = [(order, _most(1.0 - order, 0.5)) for order in np.linspace(0.5, 1.0, 6).tolist()]
"""``x (1 + x)^(-1/2)`` is at most so many times ``x^order``."""


def _exponential(x: float) -> float:
    """``e^x``, or infinity where that would overflow: such a bound is never the least."""
    return exp(x) if x < 700.0 else inf


def _second_moment(rate: float, squared: float, inner: float) -> float:
    """At least the integral of ``M^2 P^(-3/2) Q^(1/2)``: at most these are ``|e - v|^2`` and ``<e - v, e' - v>``."""
    odds = rate / (1.0 - rate)

    def bound(order: float, share: float) -> float:
        alone: float = share * (1.0 - rate) * odds**order * _exponential(0.5 * max(order - 1.0, 0.0) * order * squared)
        other = 0.5 * odds * _exponential(order * inner), sqrt(odds) * _exponential(0.5 * order * inner)
        return alone * (1.0 + min(other))

    return min(sqrt(rate), *(bound(*power) for power in _POWERS))


def _mixed_moment(rate: float, inner: float) -> float:
    """At least the integral of ``M M' (P Q)^(-1/2)``."""
    odds = rate / (1.0 - rate)
    bounds: list[float] = [
        share**2 * (1.0 - rate) * odds ** (2.0 * order) * _exponential(order**2 * inner) for order, share in _ROOTS
    ]
    return min(rate, *bounds)


def allowances(rate: float, squared: float, cell: Cell) -> tuple[float, float]:
    """What a triple in a cell may add beyond the largest of its corners, because of either angle.

    For the f with ``f'' = x^(-3/2)`` on any interval, 0 elsewhere. Each is proportional to the square of its side.

    Args:
        rate: q in (0, 1).
        squared: the squared distance of opposite gradients, in standard deviations of the noise.
    """
    (e_low, e_high), (o_low, o_high) = cell
    near_e, near_o = sin(e_high), sin(o_high)
    inner = squared * near_e * near_o * max(-cos(min(e_high + o_high, pi)), 0.0)
    own = _second_moment(rate, squared * near_o**2, inner)
    other = _second_moment(rate, squared * near_e**2, inner)
    mixed = _mixed_moment(rate, inner)
    shift = squared * sqrt(squared) * sqrt(1.0 + 2.25 * squared)

    def curvature(low: float, high: float, aside: Interval, factor: float, moment: float) -> float:
        """Of the path of the point whose move changes this angle; ``factor`` is the sine of the other one."""
        ends = aside[0] + 2.0 * low, aside[1] + 2.0 * high
        bent = sin(high) ** 2 * moment + factor * _most_sine(ends[0]) * mixed
        moved = 0.5 * _most_cosine(2.0 * low - 0.5 * pi, 2.0 * high - 0.5 * pi) * moment
        return 2.0 * squared * bent + shift * (moved + factor * _most_cosine(*ends) * mixed)

    return (
        curvature(e_low, e_high, cell.at_other, near_o, other) * (e_high - e_low) ** 2 / 8.0,
        curvature(o_low, o_high, cell.at_e, near_e, own) * (o_high - o_low) ** 2 / 8.0,
    )


def _most_sine(low: float) -> float:
    """The largest positive part of a sine from ``low`` to ``3 pi / 2``."""
    return 1.0 if low < 0.5 * pi else max(sin(min(low, pi)), 0.0)


def _most_cosine(low: float, high: float) -> float:
    """The largest absolute cosine in an interval from ``-pi / 2`` to ``3 pi / 2``."""
    if low <= 0.0 <= high or low <= pi <= high:
        return 1.0
    return max(abs(cos(low)), abs(cos(high)))
