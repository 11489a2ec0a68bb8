"""Profiles from bounds at some epsilons, between which delta is convex in e^epsilon.

Proof: docs/theory/monte-carlo/confidence.md, "Curves".
"""

from math import expm1

import numpy as np
from numpy.typing import ArrayLike

from hockeystick.laws.profile import Profile

_ROUNDED = 1.0 + 2.0**-42
"""More than the interpolation loses to rounding."""


def upper_curve(epsilons: ArrayLike, uppers: ArrayLike) -> Profile:
    """The profile that goes through upper bounds which hold at all these epsilons at once.

    delta is convex in ``e^epsilon`` and never increases, and it is 1 where ``e^epsilon`` is 0: so it stays below the
    chords in ``e^epsilon`` between (0, 1) and the nodes, and below the last node from there on.

    Args:
        epsilons: shape (n,), increasing, in [0, 700].
        uppers: shape (n,), at least 0. Where they rest on samples their joint failure probability is the curve's.
    """
    places = np.array(epsilons, dtype=np.float64)
    values = np.minimum.accumulate(np.minimum(np.array(uppers, dtype=np.float64), 1.0))

    def at(epsilon: float) -> float:
        after = int(np.searchsorted(places, epsilon))
        if after == places.size:
            return float(values[-1]) * _ROUNDED
        # How far along the chord, rounded down: further to the left is higher. All chords are in t = e^epsilon.
        if after == 0:
            left, part = 1.0, float(np.exp(epsilon - places[0]))
        else:
            left = float(values[after - 1])
            part = expm1(epsilon - places[after - 1]) / expm1(places[after] - places[after - 1])
        part = min(part, 1.0) if epsilon == places[after] else min(part / _ROUNDED, 1.0)
        return ((1.0 - part) * left + part * float(values[after])) * _ROUNDED

    return at


def lower_curve(epsilons: ArrayLike, lowers: ArrayLike) -> Profile:
    """The profile that steps down behind each of some lower bounds which hold at all these epsilons at once.

    delta never increases: it is at least what it is at any larger epsilon. Beyond the last node the curve is 0.
    """
    places = np.array(epsilons, dtype=np.float64)
    values = np.maximum.accumulate(np.array(lowers, dtype=np.float64)[::-1])[::-1]

    def at(epsilon: float) -> float:
        after = int(np.searchsorted(places, epsilon))
        return float(values[after]) if after < places.size else 0.0

    return at
