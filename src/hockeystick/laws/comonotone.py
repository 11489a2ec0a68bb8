"""The largest sum of parts whose dependence is not known: all parts are large together.

``sum_i w_i X_i <=cx sum_i w_i X_i^c`` for every dependence of the X_i, where the X_i^c have their laws and are
increasing functions of one uniform variable (Dhaene et al. 2002, Theorem 7). A hidden choice I between dependent ratios
has ``X = sum_i Pr[I = i] X_i``, so this is an upper law, and never above the law that reveals I, which is ``mix``.
"""

from collections.abc import Sequence

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import FAR, ORDINARY, UNIT_ROUNDOFF, Law, in_units, merge_equal, point_mass_at_one
from hockeystick.laws.operations import Tick, compose
from hockeystick.types import Side

SCALE = 1074
"""Doubles are whole multiples of 2^-1074, so masses are added and compared exactly as whole numbers of these."""


def comonotone(laws: Sequence[Law], weights: Sequence[float], resolution: Resolution, *, tick: Tick) -> Law:
    """An upper law of ``sum_i weights[i] X_i``, however the X_i depend on each other.

    Args:
        laws: upper laws.
        weights: positive, of the same number, each within a few roundings; divided by their sum.

    Raises: InvalidInputError for lower laws: no sum is below all others.

    Proof: docs/theory/units.md, "A hidden choice". Masses are coupled exactly, so that only the few roundings of
    weights and sums enter. O(nodes) for each law, and a projection where there are many nodes.
    """
    if any(law.side is not Side.UPPER for law in laws):
        raise InvalidInputError("The 'laws' parameter of comonotone must be upper laws. Got a lower one instead.")
    units = FAR if any(law.units == FAR for law in laws) else ORDINARY
    laws = [in_units(law, units) for law in laws]
    result, total = laws[0], weights[0]
    for law, weight in zip(laws[1:], weights[1:], strict=True):
        tick()
        result, total = _sum_of_two(result, total, law, weight), total + weight
        if result.size > 2 * max(summand.size for summand in laws):
            result = compose(result, point_mass_at_one(Side.UPPER), resolution, tick=tick)
    return result


def _sum_of_two(a: Law, wa: float, b: Law, wb: float) -> Law:
    """The law of ``(wa A + wb B) / (wa + wb)`` for A and B that are large together; what one law has more is added."""
    of_a, of_b = wa / (wa + wb), wb / (wa + wb)
    left, right = _whole(a), _whole(b)
    i, j = a.size - 1, b.size - 1
    places, masses = [], []
    x, y = left[i], right[j]
    while i >= 0 or j >= 0:
        # a law that has run out goes on at its lowest place, which adds mass only
        taken = y if i < 0 else x if j < 0 else min(x, y)
        if taken:
            places.append(of_a * a.support[max(i, 0)] + of_b * b.support[max(j, 0)])
            masses.append(taken)
        if i >= 0:
            x -= taken
            if x == 0:
                i -= 1
                x = left[i] if i >= 0 else 0
        if j >= 0:
            y -= taken
            if y == 0:
                j -= 1
                y = right[j] if j >= 0 else 0
    support, mass = merge_equal(np.array(places[::-1]), np.array([taken / 2**SCALE for taken in masses[::-1]]))
    return Law(
        support=support,
        mass=mass,
        p_inf=(of_a * a.p_inf + of_b * b.p_inf) * (1.0 + 8 * UNIT_ROUNDOFF),
        side=Side.UPPER,
        mass_error=max(a.mass_error, b.mass_error) + 4 * UNIT_ROUNDOFF,
        place_error=max(a.place_error, b.place_error) + 16 * UNIT_ROUNDOFF,
        units=a.units,
    )


def _whole(law: Law) -> list[int]:
    """The masses as whole multiples of 2^-SCALE, exactly."""
    parts = [mass.as_integer_ratio() for mass in law.mass.tolist()]
    return [numerator * (2**SCALE // denominator) for numerator, denominator in parts]
