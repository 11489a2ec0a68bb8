"""A likelihood-ratio law that dominates a run of which only upper profiles are known: dots at chosen epsilons, which
:mod:`hockeystick.laws.dots` connects. Proof: docs/theory/composition.md.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import log

import numpy as np

from hockeystick.bounds import Profile
from hockeystick.laws.dots import law_from_dots
from hockeystick.laws.law import UNIT_ROUNDOFF, Array, Law
from hockeystick.laws.operations import Tick
from hockeystick.types import Direction

LARGEST_EPSILON = 250.0
"""Dots reach to here at most: laws keep ratios up to 1e120."""
SMALLEST_EPSILON = 1e-4
EVEN, NEAR, LADDER = 160, 64, 64
"""Dots of each direction: evenly spaced, evenly spaced in the first eighth, and in geometric progression."""
NEGLIGIBLE = 1e-6
"""Relative to the smallest delta; beyond the epsilon where a profile falls below it there are no dots."""
NEXT_TO = 1e-12
"""Relative distance of a dot from the place where a profile drops: more than epsilons are rounded."""
FLAT = 1.001
"""A profile within this factor of its last value has nothing more to say."""


def law_from_profiles(
    profiles: Mapping[Direction, Profile], smallest_delta: float, *, tick: Tick, drop: float | None = None
) -> Law:
    """The upper law of upper bounds on both directions of a profile.

    Args:
        profiles: delta as a function of epsilon >= 0 for each direction, each at least the truth.
        smallest_delta: deltas well below this are bounded loosely.
        tick: called between evaluations; may raise to stop.
        drop: an epsilon at which the profiles fall at once; there is a dot next to it.

    Cost: ``EVEN + NEAR + 2 LADDER`` evaluations of each direction.
    """
    dots: dict[float, Fraction] = {}
    for direction, profile in profiles.items():
        places = _places(profile, NEGLIGIBLE * smallest_delta, tick)
        for epsilon in places if drop is None else np.append(places, drop * (1.0 + NEXT_TO)):
            tick()
            ratio = float(np.exp(epsilon if direction is Direction.REMOVE else -epsilon))
            dots[ratio] = min(dots.get(ratio, Fraction(1)), _value(profile, ratio, direction))
    return law_from_dots(dots)


def _value(profile: Profile, ratio: float, direction: Direction) -> Fraction:
    """An upper bound on ``h(ratio)``, read at an epsilon that is rounded down."""
    epsilon = max(abs(log(ratio)) * (1.0 - 8 * UNIT_ROUNDOFF), 0.0)
    delta = Fraction(min(max(profile(epsilon), 0.0), 1.0))
    if direction is Direction.REMOVE:
        return delta
    return 1 - Fraction(ratio) + Fraction(ratio) * delta


def _places(profile: Profile, negligible: float, tick: Tick) -> Array:
    """Epsilons for the dots of one direction, from 0 to where the profile is negligible or flat."""
    ladder = np.geomspace(SMALLEST_EPSILON, LARGEST_EPSILON, LADDER)
    values = []
    for epsilon in ladder:
        tick()
        values.append(profile(float(epsilon)))
        if values[-1] <= negligible:
            break
    enough = max(FLAT * values[-1], negligible)
    end = float(ladder[next(place for place, value in enumerate(values) if value <= enough)])
    even = np.linspace(0.0, end, EVEN)
    near = np.linspace(0.0, end / 8.0, NEAR)
    places: Array = np.unique(np.concatenate([even, near, np.geomspace(SMALLEST_EPSILON * end, end, LADDER)]))
    return places
