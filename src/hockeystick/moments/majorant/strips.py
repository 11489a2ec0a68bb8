"""Moment majorants on strips: a polynomial for each range of a weighted mean of the bins' Gaussians.

With a part of the common factor split off, ``delta = E F(Y) = sum over strips I of E[F(Y); zeta in I]`` in both
directions and for any Gram matrix. On a narrow strip Y has little left to vary, and it has a floor there: polynomials
of low degree, proved to lie on one side of F from that floor on, are nearly F. Where the Gram matrix is far from
circulant little of it is common to all bins, but the bins still move together; strips take hold of that.

Moments on strips are those of :mod:`.strip_moments`. Proofs: ``docs/theory/moment-majorants/strips.md``.
"""

from collections.abc import Sequence
from functools import cache
from math import fsum, inf, nextafter

import numpy as np

from hockeystick.bounds import SMALLEST_UPPER, Profile
from hockeystick.deadline import Deadline
from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.moments.exact import ExactMoments
from hockeystick.moments.majorant.base import HockeyStick
from hockeystick.moments.majorant.hockey_stick import LARGEST_EPSILON, SplitHockeyStick
from hockeystick.moments.majorant.majorant import proved_expectation
from hockeystick.moments.majorant.programme import propose
from hockeystick.moments.strips import StripMoments
from hockeystick.types import Direction, Side

CLOSE = 1e-4
"""So near, relatively, to the optimum of its own programme a bound is not improved by lower degrees."""
NEGLIGIBLE = 1e-5
"""Relative to delta: no more is resolved on a strip."""


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
        moments: of all strips.
        direction: of the profile.
        degrees: to choose from for each strip, each from 2 to the highest order.
        delta: of the size that is asked for; what is small beside it is not resolved.
        deadline: told of every strip.

    Cost: that of :func:`strips_delta` for each new epsilon.
    """
    deadline = deadline or Deadline()

    @cache
    def profile(epsilon: float) -> float:
        if epsilon > LARGEST_EPSILON and side is Side.LOWER:
            return 0.0
        # delta falls with epsilon, so beyond the largest one its upper bound there is one still
        hockey_stick = SplitHockeyStick(direction, min(epsilon, LARGEST_EPSILON), moments.variance)
        return strips_delta(moments, hockey_stick, side, degrees, NEGLIGIBLE * delta, deadline)

    return profile


def strips_delta(
    strips: StripMoments,
    hockey_stick: SplitHockeyStick,
    side: Side,
    degrees: Sequence[int],
    smallest: float,
    deadline: Deadline,
) -> float:
    """A bound on ``E F(Y)`` on its side, from the moments on strips.

    Formal guarantee: for every Y >= 0 with these moments and floors, at least E F (UPPER) or at most E F (LOWER).
    Never above 1, nor below ``SMALLEST_UPPER`` (UPPER) or 0 (LOWER).

    Args:
        hockey_stick: F, with the variance of the strips.
        degrees: to choose from for each strip.
        smallest: an expectation on a strip that is negligible.

    Cost: some milliseconds for each strip.
    """
    values = []
    for moments, floor in zip(strips.moments, strips.floors, strict=True):
        deadline.tick()
        if side is Side.UPPER:
            values.append(_above(moments, floor, hockey_stick, degrees, smallest))
        else:
            values.append(_below(moments, floor, hockey_stick, degrees, smallest))
    if side is Side.UPPER:
        return min(max(fsum(values) * (1.0 + 4 * UNIT_ROUNDOFF), SMALLEST_UPPER), 1.0)
    return min(max(fsum(values) * (1.0 - 4 * UNIT_ROUNDOFF), 0.0), 1.0)


def _above(
    moments: ExactMoments, floor: float, hockey_stick: SplitHockeyStick, degrees: Sequence[int], smallest: float
) -> float:
    """The least proved bound: as ``F(x) <= x`` (remove) or ``F <= 1`` (add), it is at most the mean or the mass."""
    trivial = moments.values[1 if hockey_stick.direction is Direction.REMOVE else 0] * (1 + moments.error)
    best = nextafter(float(trivial), inf)
    return best if best <= smallest else _best(best, moments, floor, hockey_stick, Side.UPPER, degrees, smallest)


def _below(
    moments: ExactMoments, floor: float, hockey_stick: HockeyStick, degrees: Sequence[int], smallest: float
) -> float:
    """The greatest proved bound: at least that of a tangent of F at the mean (Jensen's inequality), and 0."""
    intercepts, slopes = hockey_stick.line_below(np.array([float(moments.values[1] / moments.values[0])]))
    terms = [
        float(moments.values[k]) * coefficient for k, coefficient in enumerate((float(intercepts[0]), float(slopes[0])))
    ]
    margin = (8.0 * UNIT_ROUNDOFF + 2.0 * float(moments.error)) * fsum(map(abs, terms))
    best = max(fsum(terms) - margin, 0.0)
    return _best(best, moments, floor, hockey_stick, Side.LOWER, degrees, smallest)


def _best(
    best: float,
    moments: ExactMoments,
    floor: float,
    hockey_stick: HockeyStick,
    side: Side,
    degrees: Sequence[int],
    smallest: float,
) -> float:
    """The best of ``best`` and what the degrees give, from the highest down."""
    better = min if side is Side.UPPER else max
    for degree in sorted(degrees, reverse=True):
        candidate = propose(moments, hockey_stick, side, degree=degree, start=floor, target=smallest)
        if candidate is None:
            continue
        best = better(best, proved_expectation(candidate, moments, hockey_stick, side, floor))
        slack = CLOSE * abs(candidate.value) + smallest
        if (best <= candidate.value + slack) if side is Side.UPPER else (best >= candidate.value - slack):
            break
    return best
