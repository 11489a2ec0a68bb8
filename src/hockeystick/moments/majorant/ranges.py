"""Moment majorants on ranges of a Gaussian: a polynomial for each cell or strip.

**Strips** (:mod:`..strips`), both directions: ``delta = E F(Y) = sum over strips I of E[F(Y); zeta in I]``, zeta a
weighted mean of the bins' Gaussians. On a narrow strip Y has little left to vary, and it has a floor there.

**Cells** (:mod:`..cells`), the remove direction: with ``h(x) = F(x) / x <= 1``

    delta = E F(Y) = (1/b) sum_i E_i h(Y) = sum over cells A of (1/b) sum_i E_i[h(Y); u_i in A],

where E_i is the law in which bin i was drawn. On a cell ``u_i >= w`` and so ``Y >= x0 = e^(w - T_ii / 2) / b``: a
polynomial p has to satisfy ``x p(x) >= F(x)`` (UPPER) or ``<= F(x)`` (LOWER) only from x0 on.

Proofs: ``docs/theory/moment-majorants/strips.md`` and ``cells.md``.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import exp, fsum, inf, nextafter

import numpy as np

from hockeystick.bounds import SMALLEST_UPPER, Profile
from hockeystick.deadline import Deadline
from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.moments.cells import CellMoments
from hockeystick.moments.exact import ExactMoments
from hockeystick.moments.majorant.base import HockeyStick
from hockeystick.moments.majorant.hockey_stick import SplitHockeyStick
from hockeystick.moments.majorant.majorant import best_of_degrees, profile_from, proved_expectation
from hockeystick.moments.majorant.programme import Candidate, propose
from hockeystick.moments.strips import StripMoments
from hockeystick.types import Direction, Side

CLOSE_ON_STRIPS, CLOSE_ON_CELLS = 1e-4, 1e-3
"""A bound this close, relatively, to the optimum of its own programme is not improved by lower degrees."""
NEGLIGIBLE_ON_STRIPS, NEGLIGIBLE_ON_CELLS = 1e-5, 3e-5
"""Part of delta that is not resolved on a range."""
FIRST_DEGREE = 4
"""Degree of the programme that finds out whether a cell matters."""


def strip_profile(
    moments: StripMoments,
    direction: Direction,
    side: Side,
    *,
    degrees: Sequence[int],
    delta: float,
    deadline: Deadline | None = None,
) -> Profile:
    """delta as a function of epsilon, on its side, for the mixture that the strips belong to.

    Args:
        degrees: to choose from for each strip, each from 2 to the highest order.
        delta: of the size that is asked for; what is small beside it is not resolved.
    """
    deadline = deadline or Deadline()

    def bound(epsilon: float) -> float:
        hockey_stick = SplitHockeyStick(direction, epsilon, moments.variance)
        return strips_delta(moments, hockey_stick, side, degrees, NEGLIGIBLE_ON_STRIPS * delta, deadline)

    return profile_from(bound, side)


def strips_delta(
    strips: StripMoments,
    hockey_stick: SplitHockeyStick,
    side: Side,
    degrees: Sequence[int],
    smallest: float,
    deadline: Deadline,
) -> float:
    """At least (UPPER) or at most (LOWER) ``E F(Y)`` for every Y >= 0 with these moments and floors on strips.

    Args:
        hockey_stick: F, with the variance of the strips.
        smallest: an expectation on a strip that is negligible.

    Cost: some milliseconds for each strip.
    """
    values = []
    for moments, floor in zip(strips.moments, strips.floors, strict=True):
        deadline.tick()
        trivial = (_trivial_above if side is Side.UPPER else _trivial_below)(moments, hockey_stick)
        if side is Side.UPPER and trivial <= smallest:
            values.append(trivial)
        else:
            values.append(_range_bound(moments, hockey_stick, side, degrees, floor, smallest, trivial, divided=False))
    if side is Side.UPPER:
        return min(max(fsum(values) * (1.0 + 4 * UNIT_ROUNDOFF), SMALLEST_UPPER), 1.0)
    return min(max(fsum(values) * (1.0 - 4 * UNIT_ROUNDOFF), 0.0), 1.0)


def _trivial_above(moments: ExactMoments, hockey_stick: SplitHockeyStick) -> float:
    """At least ``E F`` on a strip: as ``F(x) <= x`` (remove) or ``F <= 1`` (add), at most the mean or the mass."""
    order = 1 if hockey_stick.direction is Direction.REMOVE else 0
    return nextafter(float(moments.values[order] * (1 + moments.error)), inf)


def _trivial_below(moments: ExactMoments, hockey_stick: HockeyStick) -> float:
    """At most ``E F`` on a strip: that of a tangent of F at the mean (Jensen's inequality), or 0."""
    intercepts, slopes = hockey_stick.line_below(np.array([float(moments.values[1] / moments.values[0])]))
    terms = [float(moments.values[0]) * float(intercepts[0]), float(moments.values[1]) * float(slopes[0])]
    margin = (8.0 * UNIT_ROUNDOFF + 2.0 * float(moments.error)) * fsum(map(abs, terms))
    return max(fsum(terms) - margin, 0.0)


def cells_delta(
    cells: CellMoments,
    bins: int,
    hockey_stick: HockeyStick,
    side: Side,
    degrees: Sequence[int],
    smallest: float,
    deadline: Deadline,
) -> float:
    """At least (UPPER) or at most (LOWER) ``E F(Y)`` for the remove direction's hockey stick, from moments on cells.

    The outermost cells count with their mass (UPPER) or not at all (LOWER).

    Args:
        cells: of a mixture of ``bins`` bins.
        hockey_stick: F, with ``F(x) <= x``.
        smallest: a delta that is negligible.
    """
    values = []
    for place, moments in enumerate(cells.moments):
        trivial = mass_above(moments) if side is Side.UPPER else 0.0
        if 0 < place < len(cells.moments) - 1:
            deadline.tick()
            start = least_ratio(float(cells.edges[place - 1]), cells.variance, bins)
            values.append(_range_bound(moments, hockey_stick, side, degrees, start, smallest, trivial, divided=True))
        else:
            values.append(trivial)
    return fsum(values) * (1.0 + 4 * UNIT_ROUNDOFF if side is Side.UPPER else 1.0 - 4 * UNIT_ROUNDOFF)


def mass_above(moments: ExactMoments) -> float:
    """At least the mass of the cell."""
    return nextafter(float(moments.values[0] * (1 + moments.error)), inf)


def least_ratio(edge: float, variance: Fraction, bins: int) -> float:
    """x0: at most ``e^(edge - variance / 2) / bins``."""
    exponent = nextafter(float(Fraction(edge) - variance / 2), -inf)
    return exp(exponent) * (1.0 - 16 * UNIT_ROUNDOFF) / bins


def _range_bound(
    moments: ExactMoments,
    hockey_stick: HockeyStick,
    side: Side,
    degrees: Sequence[int],
    start: float,
    smallest: float,
    trivial: float,
    *,
    divided: bool,
) -> float:
    """The best proved bound on ``E F(Y)`` on a strip, or (``divided``) on the mean of ``E_i[h(Y); A]``.

    A cell whose upper bound of low degree is negligible gets that one (UPPER) or the trivial one (LOWER).
    """

    def proposed(degree: int, side: Side = side) -> Candidate | None:
        return propose(moments, hockey_stick, side, degree=degree, start=start, divided=divided, target=smallest)

    def proved(candidate: Candidate) -> float:
        return proved_expectation(candidate, moments, hockey_stick, side, start, divided=divided)

    close = CLOSE_ON_CELLS if divided else CLOSE_ON_STRIPS
    first = proposed(min(degrees, key=lambda degree: abs(degree - FIRST_DEGREE)), Side.UPPER) if divided else None
    if first is not None and first.value <= smallest:
        if side is Side.LOWER:
            return trivial
        bound = proved(first)
        if bound <= 2.0 * smallest:
            return bound
    return best_of_degrees(trivial, degrees, side, proposed, proved, close=close, smallest=smallest)
