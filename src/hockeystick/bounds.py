"""A bound on a privacy profile that knows its side, its kind and where it comes from."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from typing import Any

from hockeystick.errors import InvalidInputError
from hockeystick.laws.profile import MAX_EPSILON, smallest_epsilon
from hockeystick.types import Direction, Kind, Side

Profile = Callable[[float], float]
"""delta as a function of epsilon >= 0, for one direction, on the side of its bound."""

SMALLEST_UPPER = 1e-300
"""No upper bound on delta is below this: what is smaller may have lost its digits, or all of itself, to underflow."""

ALIKE = 1e-7
"""Relative difference below which two answers count as one when a claim is confirmed."""


def falling(profile: Profile, epsilon: float, side: Side) -> Profile:
    """The same bound, which no longer forgets that delta falls with epsilon.

    Its value at ``epsilon`` bounds delta from above at every larger epsilon (UPPER), or from below at every smaller one
    (LOWER), and stands in where the profile says less there.
    """
    known = profile(epsilon)
    if side is Side.UPPER:
        return lambda at: min(profile(at), known) if at >= epsilon else profile(at)
    return lambda at: max(profile(at), known) if at <= epsilon else profile(at)


@dataclass(frozen=True)
class Question:
    """epsilon at a delta, or delta at an epsilon: exactly one is given."""

    delta: float | None = None
    epsilon: float | None = None

    def __post_init__(self) -> None:
        if (self.delta is None) == (self.epsilon is None):
            raise InvalidInputError("Exactly one of 'delta' and 'epsilon' must be given.")
        if self.delta is not None and not 1e-30 <= self.delta < 1.0:
            raise InvalidInputError(f"The 'delta' field must be from 1e-30 to below 1. Got {self.delta!r} instead.")
        if self.epsilon is not None and not 0.0 <= self.epsilon <= 500.0:
            raise InvalidInputError(f"The 'epsilon' field must be from 0 to 500. Got {self.epsilon!r} instead.")

    def answer(self, bound: "Bound", near: float | None = None) -> float:
        """The bound's answer, on its side; ``near`` is where an epsilon is expected, which saves time alone."""
        if self.delta is not None:
            return bound.epsilon(self.delta, near)
        return bound.delta(self.epsilon or 0.0)

    def confirmed(self, bound: "Bound", claimed: float | None) -> float:
        """The bound's answer, which is the claimed epsilon itself where that cannot be told from it."""
        if self.delta is None or claimed is None or not 0.0 < claimed <= 0.5 * MAX_EPSILON:
            return self.answer(bound)
        below, above = claimed * (1.0 - ALIKE), claimed * (1.0 + ALIKE)
        low, high = (below, claimed) if bound.side is Side.UPPER else (claimed, above)
        exact = bound.delta(low) > self.delta >= bound.delta(high)
        return claimed if exact else self.answer(bound, claimed)


@dataclass(frozen=True)
class Bound:
    """One side of a privacy profile delta(epsilon), for both directions together.

    An UPPER bound is at least the true profile everywhere, a LOWER one at most. ``slack`` is the total-variation
    distance between the run and the pair that was analysed; it costs ``(1 + e^epsilon) slack`` on either side.

    Attributes:
        method: name of the accountant.
        side, kind, confidence: what is claimed; the confidence of a deterministic bound is 1.
        reference: where the proof stands.
        profiles: one profile for each direction. The profile of a mechanism is the larger of its two directions, so
            an upper bound needs both; a lower bound may leave one out.
        claim: for a Monte Carlo bound, the samples that it rests on, as certificates state them.
    """

    method: str
    side: Side
    kind: Kind
    confidence: float
    reference: str
    profiles: dict[Direction, Profile]
    slack: float = 0.0
    claim: Any = None

    def __post_init__(self) -> None:
        if self.side is Side.UPPER and set(self.profiles) != set(Direction):
            raise InvalidInputError("An upper bound must cover both directions, remove and add.")

    def delta(self, epsilon: float) -> float:
        """delta at ``epsilon`` >= 0, in [0, 1], on the side of the bound."""
        if not 0.0 <= epsilon <= MAX_EPSILON:
            raise InvalidInputError(f"The 'epsilon' field must be from 0 to {MAX_EPSILON:g}. Got {epsilon!r} instead.")
        value = max(profile(epsilon) for profile in self.profiles.values())
        if self.slack:
            change = (1.0 + exp(epsilon)) * self.slack
            value += change if self.side is Side.UPPER else -change
        return min(max(value, SMALLEST_UPPER if self.side is Side.UPPER else 0.0), 1.0)

    def epsilon(self, delta: float, near: float | None = None) -> float:
        """The epsilon at which the profile reaches ``delta`` in (0, 1), on the side of the bound.

        Upper: an epsilon with ``self.delta(epsilon) <= delta``, or infinity. Lower: one with
        ``self.delta(epsilon) > delta``, or 0. ``near`` is where it is expected: the search begins there.
        """
        if not 0.0 < delta < 1.0:
            raise InvalidInputError(f"The 'delta' field must be between 0 and 1, both excluded. Got {delta!r} instead.")
        return smallest_epsilon(self.delta, delta, self.side, near=near)
