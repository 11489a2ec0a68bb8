"""The likelihood-ratio law of a profile that is known at some places only: connect the dots.

For a run with the ratio X let ``h(a) = E (X - a)_+ + p_inf``, the hockey-stick divergence at every a >= 0. It is
convex, ``h(0) = 1``, and both directions of the profile say what it is:

    h(a) = remove(log a) for a >= 1,        h(a) = 1 - a + a add(-log a) for a <= 1.

Upper bounds at some places lie above the graph of h, and so does the lower convex hull of them, because the region
above a convex graph is convex. The hull is itself the h of a discrete law, with atoms at its corners, whose masses are
the differences of its slopes. So that law dominates the run in the convex order: an upper law.

Which side it errs on: upward. The hull is found and differentiated in exact rational arithmetic, so no digit is lost
to the differences, and every mass is rounded once. Source: Doroshenko et al. 2022 ("Connect the dots"), for whom the
values at the dots are exact. Proof: docs/theory/composition.md.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise

import numpy as np

from hockeystick.laws.law import UNDERFLOW, UNIT_ROUNDOFF, Array, Law
from hockeystick.types import Direction, Side


def law_from_dots(dots: Mapping[float, Fraction], floor: float = 0.0) -> Law:
    """The upper law whose h is the lower convex hull of the dots and of ``h(0) = 1``, falling to the last dot.

    Args:
        dots: an upper bound on ``h(a)``, at most 1 and at least ``max(0, 1 - a)``, for each a > 0.
        floor: proved not to be above X, below 1; there ``h(floor) = 1 - floor``, and grids of products need no 0.
    """
    hull = [(Fraction(floor), 1 - Fraction(floor))]
    for ratio in sorted(ratio for ratio in dots if ratio > floor):
        place = (Fraction(ratio), dots[ratio])
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], place):
            hull.pop()
        hull.append(place)
    while len(hull) > 1 and hull[-1][1] >= hull[-2][1]:  # h never rises
        hull.pop()
    slopes = [Fraction(-1), *(_slope(a, b) for a, b in pairwise(hull)), Fraction(0)]
    masses = [float(right - left) for left, right in pairwise(slopes)]
    mass: Array = np.array(masses)
    mass[0] += UNDERFLOW
    support: Array = np.array([float(place) for place, _ in hull])
    p_inf = float(hull[-1][1]) * (1.0 + 2 * UNIT_ROUNDOFF) + UNDERFLOW
    return Law(support, mass, p_inf, Side.UPPER, 4 * UNIT_ROUNDOFF, 0.0)


def dots_of(raised: Array, deltas: Callable[[Array], Array], direction: Direction) -> dict[float, Fraction]:
    """Dots of h from one direction of the profile, for :func:`law_from_dots`.

    Args:
        raised: shape (n,), ratios of at least 1.
        deltas: from ``a - 1`` to at least the profile at a, at most 1; shape (n,) each.
        direction: to add, the dots are at one over the ratios, rounded, and the profile is asked at what these are.
    """
    if direction is Direction.REMOVE:
        values = deltas(raised - 1.0)
        return {float(place): Fraction(float(value)) for place, value in zip(raised, values, strict=True)}
    lowered = 1.0 / raised
    values = deltas((1.0 - lowered) / lowered)
    return {
        float(place): 1 - Fraction(float(place)) + Fraction(float(place)) * Fraction(float(value))
        for place, value in zip(lowered, values, strict=True)
    }


def _slope(a: tuple[Fraction, Fraction], b: tuple[Fraction, Fraction]) -> Fraction:
    return (b[1] - a[1]) / (b[0] - a[0])
