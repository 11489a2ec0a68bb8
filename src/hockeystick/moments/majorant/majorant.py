"""Bounds on a delta from moments: a polynomial that is proved to lie on one side of the hockey stick.

Where Y has the moments, ``F <= p`` on [0, oo) gives ``delta = E F(Y) <= E p(Y)``, and ``F >= q`` gives
``delta >= E q(Y)``: a candidate of the programme is repaired until the proof accepts it, and only then its expectation
is taken, from rational moments and towards the safe side. Nothing that the programme computes is taken on trust.

Theory: ``docs/theory/moment-majorants/programme.md`` and ``proof.md``.
"""

from collections.abc import Sequence
from functools import cache
from math import inf, isfinite, isnan, nextafter

from hockeystick.bounds import SMALLEST_UPPER, Profile
from hockeystick.deadline import Deadline
from hockeystick.moments.exact import ExactMoments
from hockeystick.moments.majorant.base import HockeyStick
from hockeystick.moments.majorant.floor import price_below
from hockeystick.moments.majorant.hockey_stick import LARGEST_EPSILON, SplitHockeyStick
from hockeystick.moments.majorant.programme import Candidate, propose
from hockeystick.moments.majorant.proof import expectation, proves, repair_needed, repaired
from hockeystick.types import Direction, Side

CLOSE = 1e-4
"""So near, relatively, to the optimum of its own programme a bound is not improved by lower degrees."""


def majorant_delta(
    moments: ExactMoments,
    hockey_stick: HockeyStick,
    side: Side,
    degrees: Sequence[int],
    floor: float = 0.0,
    deadline: Deadline | None = None,
) -> float:
    """The best bound on ``E F(Y)`` among the degrees, on its side.

    Optima improve with the degree, but what moments of high order are known to, and what a proof can resolve, may not
    suffice: degrees are tried from the highest down, until the best bound so far is close to the optimum of the last
    programme, and so no lower degree can give a better one.

    Formal guarantee: for every law on [0, oo) with these moments within their errors, at least E F (UPPER), provided
    that E F is at most 1, or at most E F (LOWER), provided that F >= 0; 1 or 0 where no degree gives more. Never above
    1, nor below ``SMALLEST_UPPER`` (UPPER), nor below 0 (LOWER).

    Args:
        moments: of Y, orders 0 to the largest degree at least.
        hockey_stick: F.
        degrees: to choose from, each >= 2.
        floor: polynomials need not be on their side below it; Y is there with probability ``floor.BEYOND`` at most.
        deadline: told of every programme.

    Cost: some milliseconds for each degree that is tried, which is one in most cases.
    """
    deadline = deadline or Deadline()
    best = 1.0 if side is Side.UPPER else 0.0
    better = min if side is Side.UPPER else max
    for degree in sorted(degrees, reverse=True):
        deadline.tick()
        candidate = propose(moments, hockey_stick, side, degree=degree, start=floor)
        if candidate is None and floor > 0.0:  # a floor that is too close to all of the law
            candidate = propose(moments, hockey_stick, side, degree=degree)
        if candidate is None:
            continue
        best = better(best, proved_expectation(candidate, moments, hockey_stick, side, floor))
        slack = CLOSE * abs(candidate.value)
        if (best <= candidate.value + slack) if side is Side.UPPER else (best >= candidate.value - slack):
            break
    return max(best, SMALLEST_UPPER) if side is Side.UPPER else min(best, 1.0)


def proved_expectation(
    candidate: Candidate, moments: ExactMoments, hockey_stick: HockeyStick, side: Side, floor: float = 0.0
) -> float:
    """The expectation of the repaired candidate; infinite, to the useless side, where its proof does not close.

    What may hide below the floor, if there is one, is charged.
    """
    useless = inf if side is Side.UPPER else -inf
    if candidate.points[0] > floor:
        return useless
    eta = repair_needed(candidate.polynomial, candidate.repair, hockey_stick, side, candidate.points)
    if not isfinite(eta):
        return useless
    polynomial = repaired(candidate.polynomial, candidate.repair, eta, side)
    if not proves(polynomial, hockey_stick, side, candidate.points):
        return useless
    value = expectation(polynomial, moments, side)
    if floor > 0.0:
        hidden = price_below(polynomial, floor)
        value = nextafter(value + hidden, inf) if side is Side.UPPER else nextafter(value - hidden, -inf)
    return useless if isnan(value) else value


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
        direction: of the profile.
        degrees: to choose from, each from 2 to ``moments.degree``.
        floor: see :func:`majorant_delta`.
        deadline: told of every programme.

    Cost: that of :func:`majorant_delta` for each new epsilon.
    """

    @cache
    def profile(epsilon: float) -> float:
        if epsilon > LARGEST_EPSILON and side is Side.LOWER:
            return 0.0
        # delta falls with epsilon, so beyond the largest one its upper bound there is one still
        hockey_stick = SplitHockeyStick(direction, min(epsilon, LARGEST_EPSILON), variance)
        return majorant_delta(moments, hockey_stick, side, degrees, floor, deadline)

    return profile
