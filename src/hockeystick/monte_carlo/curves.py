"""Whole curves from bounds at some epsilons (docs/theory/monte-carlo/confidence.md, "Curves")."""

from functools import partial
from math import expm1

import numpy as np
from numpy.typing import ArrayLike

from hockeystick.bounds import Profile
from hockeystick.errors import InvalidInputError
from hockeystick.laws.profile import MAX_EPSILON
from hockeystick.monte_carlo.proposals import Array

_ROUNDED = 1.0 + 2.0**-42
"""More than the interpolation loses to rounding."""


def upper_curve(epsilons: ArrayLike, uppers: ArrayLike) -> Profile:
    """The profile that goes through upper bounds which hold at all these epsilons at once.

    delta is convex in ``e^epsilon`` and never increases, and it is 1 where ``e^epsilon`` is 0: so it stays below the
    chords in ``e^epsilon`` between (0, 1) and the nodes, and below the last node from there on.

    Args:
        epsilons: shape (n,), increasing, in [0, 700].
        uppers: shape (n,), at least 0. Their joint failure probability is that of the curve.

    Raises: InvalidInputError for nodes that are not so.
    """
    places, values = _nodes(epsilons, uppers)
    return partial(_upper_at, places, np.minimum.accumulate(np.minimum(values, 1.0)))


def lower_curve(epsilons: ArrayLike, lowers: ArrayLike) -> Profile:
    """The profile that steps down behind each of some lower bounds which hold at all these epsilons at once.

    delta never increases: it is at least what it is at any larger epsilon. Beyond the last node the curve is 0.

    Args and raises: as :func:`upper_curve`.
    """
    places, values = _nodes(epsilons, lowers)
    return partial(_lower_at, places, np.maximum.accumulate(values[::-1])[::-1])


def _upper_at(places: Array, values: Array, epsilon: float) -> float:
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


def _lower_at(places: Array, values: Array, epsilon: float) -> float:
    after = int(np.searchsorted(places, epsilon))
    return float(values[after]) if after < places.size else 0.0


def _nodes(epsilons: ArrayLike, bounds: ArrayLike) -> tuple[Array, Array]:
    places, values = np.array(epsilons, dtype=np.float64), np.array(bounds, dtype=np.float64)
    if not (places.ndim == 1 and places.size and places.shape == values.shape):
        raise InvalidInputError(
            f"A curve must have as many bounds as epsilons, at least one. Got {values.size} and {places.size} instead."
        )
    if not (places[0] >= 0.0 and places[-1] <= MAX_EPSILON and (np.diff(places) > 0.0).all()):
        raise InvalidInputError(f"The epsilons of a curve must increase from at least 0 to at most {MAX_EPSILON:g}.")
    if not (values >= 0.0).all():
        raise InvalidInputError("The bounds of a curve must be at least 0.")
    return places, values
