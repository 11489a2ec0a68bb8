"""Profiles that are slow to evaluate, read at some epsilons alone: between those, delta is convex in e^epsilon."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from math import exp, expm1

from hockeystick.bounds import Bound, Profile
from hockeystick.deadline import Deadline
from hockeystick.laws.chords import upper_curve
from hockeystick.types import Side

BELOW = 1e-14
"""More than the rounding of a convex combination of two numbers, relative to the larger one."""


def tabulated(bound: Bound, upper: Bound, knots: Sequence[float], deadline: Deadline) -> Bound:
    """A bound on the same side that evaluates each direction's profile at the knots alone, now."""
    profiles = {}
    for direction, slow in bound.profiles.items():
        values = []
        for knot in knots:
            deadline.tick()
            values.append(slow(knot))
        if bound.side is Side.UPPER:
            profiles[direction] = upper_curve(knots, values)
        else:
            profiles[direction] = extended_chords(knots, values, [upper.profiles[direction](knot) for knot in knots])
    return replace(bound, profiles=profiles)


def extended_chords(knots: Sequence[float], lower: Sequence[float], upper: Sequence[float]) -> Profile:
    """A lower bound between the knots: that of the next one, or a chord of the neighbouring cell, extended.

    A convex function is at least the extension of its chords. A chord from the upper bound at its far end to
    the lower bound at its near end, extended beyond the near end, is at most the extension of the true chord.
    """

    def extended(near: int, far: int, epsilon: float) -> float:
        if not 0 <= far < len(knots):
            return 0.0
        times = expm1(epsilon - knots[near]) / expm1(knots[near] - knots[far]) * exp(knots[near] - knots[far])
        value = lower[near] + (lower[near] - upper[far]) * times
        return value - BELOW * (1.0 + times) * (lower[near] + upper[far])

    def profile(epsilon: float) -> float:
        right = bisect_right(knots, epsilon)
        if right == len(knots):
            return lower[-1] if epsilon == knots[-1] else 0.0
        if epsilon == knots[right - 1]:
            return lower[right - 1]
        return max(lower[right], extended(right - 1, right - 2, epsilon), extended(right, right + 1, epsilon))

    return profile
