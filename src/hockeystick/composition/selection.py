"""The best of a random number of trials, from a law of one trial: privacy profiles of private selection.

One trial runs a mechanism and yields an output with a score. K trials are made, K drawn from a law that has nothing to
do with the data, and the output of the best trial alone is released. With the probability generating function g of K,
an output that one more trial beats with probability p has ``g'(1 - p)`` times the density that it has in one trial. If
p is this chance in one data set and p' in the neighbour, then ``p' <= T(p)`` for the trade-off T of the trial, so, with
X the likelihood ratio of one trial,

    remove:  delta(eps) <= E phi(X),   phi(x) = sup_p ( g'(1 - p) x - e^eps g'(1 - T(p)) )_+

and the same with the roles of both data sets exchanged for add. phi is convex, so an upper law of X bounds it. Every g
will do. Proof: docs/theory/composition.md; what it improves on: Papernot and Steinke 2022, Liu and Talwar 2019, and the
profiles of Koskela, Redberg and Wang 2024, which take the largest quotient of the two densities for all outputs.

Which side it errs on: upward. p runs over cells, with the larger g' of the first term and the smaller of the second; T
is read off finitely many points of the profile; slopes and intercepts are moved outwards by more than they are rounded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import exp

import numpy as np

from hockeystick.bounds import Profile
from hockeystick.laws.law import ORDINARY, UNIT_ROUNDOFF, Array, Law, in_units
from hockeystick.laws.profile import MAX_EPSILON, law_delta
from hockeystick.types import Direction

CELLS = 24_000
SMALLEST_CHANCE = 1e-12
"""Cells of the chance to be beaten: in geometric progression from here to 1, and one below."""
TRADE_OFFS, FARTHEST = 800, 40.0
"""Points of the profile that the trade-off is read from, up to this epsilon."""
UNDERFLOWN = 1e-300
"""More than a slope can lose to underflow."""
OUTWARDS = 1e-12
"""Relative allowance for the rounding of a line's slope and intercept, and of the choice among lines."""
Survival = Callable[[Array], Array]
"""``g'(1 - p) / g'(1)`` for chances p in [0, 1] of being beaten: it falls from 1."""


@dataclass(frozen=True)
class Envelope:
    """The largest of the lines ``slope z - intercept`` for z >= 0: those that matter, and where they take over."""

    slopes: Array
    intercepts: Array
    starts: Array

    def above(self, z: Array) -> Array:
        """``max_j (slope_j z - intercept_j)_+``."""
        line = np.maximum(np.searchsorted(self.starts, z, side="right") - 1, 0)
        value: Array = np.maximum(self.slopes[line] * z - self.intercepts[line], 0.0)
        return value

    def below(self, z: Array) -> Array:
        """``max_j (slope_j - intercept_j z)_+``, for z > 0: z times the value at 1 / z; the largest slope at 0."""
        with np.errstate(divide="ignore", over="ignore"):
            inverse = np.where(z > 0.0, 1.0 / z, np.inf)
        line = np.maximum(np.searchsorted(self.starts, inverse, side="right") - 1, 0)
        value: Array = np.maximum(self.slopes[line] - self.intercepts[line] * z, 0.0)
        return value


@dataclass(frozen=True)
class Selection:
    """Upper bounds on the profile of the best of K trials.

    Attributes:
        law: an upper law of one trial.
        mean: of K.
        lines: for each direction of the profile, the lines of phi, with ``g' / mean`` in place of g'.
    """

    law: Law
    mean: float
    lines: dict[Direction, Envelope]

    def profiles(self) -> dict[Direction, Profile]:
        """delta as a function of epsilon, for each direction."""
        return {direction: partial(self.delta, direction=direction) for direction in Direction}

    def delta(self, epsilon: float, direction: Direction) -> float:
        """An upper bound on delta of the best of K trials."""
        law, lines = self.law, self.lines[direction]
        moved = law.place_error + 8 * UNIT_ROUNDOFF
        slack = law.mass_error + moved + (law.size + 16) * UNIT_ROUNDOFF
        if not slack < 0.5:
            return 1.0
        threshold = exp(min(epsilon, MAX_EPSILON)) * (1.0 - 4 * UNIT_ROUNDOFF)
        if direction is Direction.REMOVE:
            value = threshold * float(law.mass @ lines.above(law.support / (threshold * (1.0 - moved)))) + law.p_inf
        else:
            value = float(law.mass @ lines.below(law.support * (threshold * (1.0 - moved))))
        return min(self.mean * value * (1.0 + OUTWARDS) / (1.0 - slack), 1.0)


def best_of(law: Law, mean: float, survival: Survival) -> Selection:
    """Upper bounds on both directions of the profile of the best of K trials.

    Args:
        law: an upper law of one trial.
        mean: E K.
        survival: ``g'(1 - p) / g'(1)``, which falls from 1 in p, for an array of p in [0, 1]; relative error 5e-13
            where it is above 1e-300.
    """
    law = in_units(law, ORDINARY)
    return Selection(law, mean, {direction: _lines(law, survival, direction) for direction in Direction})


def _lines(law: Law, survival: Survival, direction: Direction) -> Envelope:
    edges = np.concatenate([[0.0], np.geomspace(SMALLEST_CHANCE, 1.0, CELLS)])
    edges[-1] = 1.0
    beaten = _most_beaten(law, edges[1:], direction)
    slopes = survival(edges[:-1]) * (1.0 + OUTWARDS) + UNDERFLOWN
    intercepts = survival(np.minimum(beaten * (1.0 + OUTWARDS), 1.0)) * (1.0 - OUTWARDS)
    return upper_envelope(slopes, intercepts)


def _most_beaten(law: Law, chances: Array, direction: Direction) -> Array:
    """T: the largest chance in the neighbour of a set that has these chances in the data set itself.

    ``T(p) <= c p + H_c`` for all c > 0, with H_c the hockey-stick divergence of the neighbour from the data set.
    """
    other = Direction.ADD if direction is Direction.REMOVE else Direction.REMOVE
    largest: Array = np.ones(chances.size)
    half = TRADE_OFFS // 2
    for epsilon in np.concatenate([np.linspace(0.0, 4.0, half), np.geomspace(4.1, FARTHEST, half)]):
        ratio = float(np.exp(epsilon)) * (1.0 + 4 * UNIT_ROUNDOFF)
        np.minimum(largest, ratio * chances + law_delta(law, float(epsilon), other), out=largest)
        # H_c for c = 1/ratio: 1 - c + c times the profile of this direction
        shift = -np.expm1(-epsilon) + law_delta(law, float(epsilon), direction) / ratio * (1.0 + 8 * UNIT_ROUNDOFF)
        np.minimum(largest, chances * np.exp(-epsilon) + shift, out=largest)
    return np.minimum(np.maximum.accumulate(largest) * (1.0 + OUTWARDS), 1.0)


def upper_envelope(slopes: Array, intercepts: Array) -> Envelope:
    """The lines ``slope z - intercept`` that are the largest somewhere on z >= 0.

    Args:
        slopes, intercepts: shape (n,), positive, both non-increasing.
    """
    kept: list[int] = []
    starts: list[float] = []
    for j in range(slopes.size - 1, -1, -1):  # from the flattest line on
        start = 0.0
        while kept:
            rise = slopes[j] - slopes[kept[-1]]
            fall = intercepts[j] - intercepts[kept[-1]]
            start = 0.0 if fall <= 0.0 else float("inf") if rise <= 0.0 else fall / rise
            if start > starts[-1]:
                break
            kept.pop()
            starts.pop()
            start = 0.0
        if start < float("inf"):
            kept.append(j)
            starts.append(start)
    return Envelope(slopes[kept], intercepts[kept], np.array(starts))
