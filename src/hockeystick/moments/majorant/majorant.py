"""Bounds on a delta from moments: a polynomial that is proved to lie on one side of the hockey stick.

A candidate of the programme is repaired until the proof accepts it, and only then its expectation is taken, from
rational moments and towards the safe side. Nothing that the programme computes is taken on trust.

Theory: ``docs/theory/moment-majorants/programme.md`` and ``proof.md``.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from math import inf, isfinite, isnan, nextafter

import numpy as np

from hockeystick.bounds import SMALLEST_UPPER, Profile
from hockeystick.deadline import Deadline
from hockeystick.moments.exact import ExactMoments
from hockeystick.moments.floor import BEYOND
from hockeystick.moments.majorant.base import HockeyStick, Polynomial
from hockeystick.moments.majorant.hockey_stick import LARGEST_EPSILON, SplitHockeyStick
from hockeystick.moments.majorant.programme import Candidate, propose
from hockeystick.moments.majorant.proof import expectation, proves, repair_needed, repaired
from hockeystick.types import Direction, Side

CLOSE = 1e-4
"""A bound this close, relatively, to the optimum of its own programme is not improved by lower degrees."""


def majorant_delta(
    moments: ExactMoments,
    hockey_stick: HockeyStick,
    side: Side,
    degrees: Sequence[int],
    floor: float = 0.0,
    deadline: Deadline | None = None,
) -> float:
    """The best bound on ``E F(Y)`` among the degrees, on its side.

    Formal guarantee: for every law on [0, oo) with these moments within their errors, at least E F (UPPER), provided
    that E F is at most 1, or at most E F (LOWER), provided that F >= 0; 1 or 0 where no degree gives more.

    Args:
        moments: of Y, orders 0 to the largest degree at least.
        hockey_stick: F.
        degrees: to choose from, each >= 2.
        floor: polynomials need not be on their side below it; Y is there with probability ``floor.BEYOND`` at most.

    Cost: some milliseconds for each degree that is tried.
    """
    deadline = deadline or Deadline()

    def proposed(degree: int) -> Candidate | None:
        deadline.tick()
        candidate = propose(moments, hockey_stick, side, degree=degree, start=floor)
        if candidate is None and floor > 0.0:  # a floor that is too close to all of the law
            candidate = propose(moments, hockey_stick, side, degree=degree)
        return candidate

    def proved(candidate: Candidate) -> float:
        return proved_expectation(candidate, moments, hockey_stick, side, floor)

    best = best_of_degrees(1.0 if side is Side.UPPER else 0.0, degrees, side, proposed, proved, close=CLOSE)
    return max(best, SMALLEST_UPPER) if side is Side.UPPER else min(best, 1.0)


def best_of_degrees(
    best: float,
    degrees: Sequence[int],
    side: Side,
    proposed: Callable[[int], Candidate | None],
    proved: Callable[[Candidate], float],
    *,
    close: float,
    smallest: float = 0.0,
) -> float:
    """The best of ``best`` and the proved bounds of the candidates of some degrees.

    Degrees are tried from the highest down, until the best bound so far is close to the optimum of the last programme:
    no lower degree can then give a better one.

    Args:
        close, smallest: relative and absolute distance from that optimum that is close enough.
    """
    better = min if side is Side.UPPER else max
    for degree in sorted(degrees, reverse=True):
        candidate = proposed(degree)
        if candidate is None:
            continue
        best = better(best, proved(candidate))
        slack = close * abs(candidate.value) + smallest
        if (best <= candidate.value + slack) if side is Side.UPPER else (best >= candidate.value - slack):
            break
    return best


def proved_expectation(
    candidate: Candidate,
    moments: ExactMoments,
    hockey_stick: HockeyStick,
    side: Side,
    floor: float = 0.0,
    *,
    divided: bool = False,
) -> float:
    """``E P(Y)`` of the repaired candidate P; infinite, to the useless side, where its proof does not close.

    Args:
        moments: of Y.
        floor: P need not be on its side below it; Y may be there with probability ``floor.BEYOND``, which is charged.
        divided: whether ``E P(Y) / Y`` is meant instead, for a law on ``[floor, oo)``, floor > 0.
    """
    useless = inf if side is Side.UPPER else -inf
    if candidate.points[0] > floor or (divided and candidate.points[0] <= 0.0):
        return useless
    eta = repair_needed(candidate.polynomial, candidate.repair, hockey_stick, side, candidate.points)
    if not isfinite(eta):
        return useless
    polynomial = repaired(candidate.polynomial, candidate.repair, eta, side)
    if not proves(polynomial, hockey_stick, side, candidate.points):
        return useless
    if divided:
        value = divided_expectation(polynomial, moments, floor, side)
    else:
        value = expectation(polynomial, moments, side)
        if floor > 0.0:
            value = _away(value, price_below(polynomial, floor), side)
    return useless if isnan(value) else value


def divided_expectation(polynomial: Polynomial, moments: ExactMoments, start: float, side: Side) -> float:
    """``E P(Y) / Y`` for a law, or a part of one, on ``[start, oo)``, start > 0, rounded to the side.

    It is ``sum_(k>0) a_k M_(k-1) + a_0 E[1 / Y]``; ``a_0 = P(0)`` is a rounding error, ``E[1 / Y]`` in
    [0, ``M_0 / start``].
    """
    most = moments.values[0] / Fraction(start)
    value = expectation(polynomial, ExactMoments(values=(most, *moments.values), error=moments.error), side)
    at_zero, minus = Fraction(0), -Fraction(polynomial.centre)
    for coefficient in reversed(polynomial.exact):
        at_zero = at_zero * minus + coefficient
    return _away(value, nextafter(float(abs(at_zero) * most * (1 + moments.error)), inf), side)


def price_below(polynomial: Polynomial, floor: float) -> float:
    """More than a polynomial, or the hockey stick beside it, can hide on ``[0, floor)``: BEYOND times their size there.

    Hockey sticks are at most 1 (add) or x (remove).
    """
    farthest = max(abs(polynomial.centre), abs(floor - polynomial.centre))
    with np.errstate(over="ignore", invalid="ignore"):
        powers = farthest ** np.arange(polynomial.degree + 1.0)
        size = float((np.abs(polynomial.coefficients.real) * powers).sum()) * (1.0 + 1e-10) + 1.0 + floor
    return BEYOND * size if isfinite(size) else inf


def _away(value: float, distance: float, side: Side) -> float:
    """The value moved by a distance towards its side, and by the rounding of the sum."""
    return nextafter(value + distance, inf) if side is Side.UPPER else nextafter(value - distance, -inf)


def majorant_profile(
    moments: ExactMoments,
    variance: float,
    direction: Direction,
    side: Side,
    *,
    degrees: Sequence[int],
    floor: float = 0.0,
    deadline: Deadline | None = None,
) -> Profile:
    """delta as a function of epsilon, on its side, where the likelihood ratio is ``L Y``.

    Args:
        moments: of Y >= 0, whose mean is 1, without the common factor.
        variance: v >= 0, of ``ln L``: L is log-normal with mean 1 and independent of Y.
        degrees, floor: as for :func:`majorant_delta`.

    Cost: that of :func:`majorant_delta` for each new epsilon.
    """

    def bound(epsilon: float) -> float:
        return majorant_delta(moments, SplitHockeyStick(direction, epsilon, variance), side, degrees, floor, deadline)

    return profile_from(bound, side)


def profile_from(bound: Callable[[float], float], side: Side) -> Profile:
    """A profile from bounds on delta that are only known up to ``LARGEST_EPSILON``; each epsilon is computed once.

    delta falls with epsilon, so beyond the largest one its upper bound there still holds; the lower bound is 0.
    """

    @cache
    def profile(epsilon: float) -> float:
        if epsilon > LARGEST_EPSILON and side is Side.LOWER:
            return 0.0
        return bound(min(epsilon, LARGEST_EPSILON))

    return profile
