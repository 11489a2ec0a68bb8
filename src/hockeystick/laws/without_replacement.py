"""Laws and profiles of steps whose batches are drawn without replacement.

A step draws the example at stake with probability q. Let ``M`` be the output without it, ``M1`` that with it and
``M2`` that with what stands in its place in the other run; every two of them are Gaussians of one covariance. The step
is ``(1-q) M + q M1`` against ``(1-q) M + q M2``.

* :func:`revealing_step` bounds all such steps at once, from distances alone, by advanced joint convexity.
* :func:`averaged_profile` bounds a run of them through the one step that is the worst for every function whose second
  derivative does not fall.

Proofs: docs/theory/fixed-size.md.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import ceil, comb, exp, expm1, log, log1p
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from hockeystick.laws.dots import dots_of, law_from_dots
from hockeystick.laws.gaussian import gaussian_deltas
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import SMALLEST, Array, Law, lower_law
from hockeystick.types import Direction, Side

SAFE = 1e-12
"""Far above the relative rounding of the few operations behind one value."""
LARGEST_SCORE = 200.0
"""Logarithm of the largest Gaussian ratio that has a dot of its own."""
CELL_ERROR = 1e-11
"""Far above the relative rounding of a difference of two normal tails a node apart."""
ORDERS = range(3, 17)
"""Moments that bound what is beyond the last place."""
PLACE_ROUNDING = 1e-15
"""Above the relative rounding of an exponential, for each unit of its exponent and once more."""
PLACES, LEAST_EPSILON = 1500, -2.0
LARGEST_EPSILON = 600.0
BEYOND = 1e-3
"""Share of the smallest delta that may come from beyond the last place."""


class Distances(NamedTuple):
    """Distances in standard deviations of the noise: of M1 and M2, and of M1 and M; the second is not the smaller."""

    own: float
    other: float


def revealing_step(rate: float, distances: Mapping[Direction, Distances], resolution: Resolution) -> Law:
    """The upper law of one step; ``distances`` are those of the run that comes first in the direction.

    With ``a' = 1 + q (a - 1)`` and ``b = a' / a``, the profile at ``a' >= 1`` is at most
    ``q ((1 - b) G(other, a) + b G(own, a))``, and at most ``q G(own, a')``, G the hockey-stick divergence of two
    Gaussians at a distance.

    Args:
        rate: q in (0, 1].
        distances: positive.

    Cost: O(nodes) profiles of Gaussians, and a convex hull in rational arithmetic.
    """
    known: dict[float, Fraction] = {}
    for direction, distance in distances.items():
        raised = _places(rate, distance.other, resolution)
        for place, dot in dots_of(raised, partial(_step_deltas, rate, distance), direction).items():
            known[place] = min(known.get(place, Fraction(1)), dot)
    return law_from_dots(known)


def _places(rate: float, distance: float, resolution: Resolution) -> Array:
    """Values of ``a'``: nodes of a Gaussian of this distance whose ratio a is at least 1."""
    first, last = 0.5 * distance, distance - float(ndtri(resolution.tail))
    last = min(last, (LARGEST_SCORE + 0.5 * distance**2) / distance)
    count = ceil((last - first) * resolution.for_side(Side.UPPER)) + 1
    scores = distance * np.linspace(first, max(last, first), count + 1) - 0.5 * distance**2
    places: Array = np.unique(1.0 + rate * np.expm1(np.maximum(scores, 0.0)))
    return places


def _step_deltas(rate: float, distance: Distances, excess: Array) -> Array:
    """At least the profile of a step at the ratios ``a' = 1 + excess``."""
    above = excess / rate
    # A Gaussian profile falls, so it is read a little below log a.
    epsilons = np.log1p(above) * (1.0 - SAFE)
    own = gaussian_deltas(distance.own, epsilons, Side.UPPER)
    other = gaussian_deltas(distance.other, epsilons, Side.UPPER)
    share = (1.0 - rate) * above / (1.0 + above)  # 1 - b
    drawn = gaussian_deltas(distance.own, np.log1p(excess) * (1.0 - SAFE), Side.UPPER)  # at a', not at a
    deltas: Array = np.minimum(rate * np.minimum(share * other + (1.0 - share) * own, drawn) * (1.0 + SAFE), 1.0)
    return deltas


def displaced_step(rate: float, noise_multiplier: float, resolution: Resolution) -> Law:
    """A lower law of ``(1-q) N(0, s^2) + q N(2, s^2)`` against ``(1-q) N(0, s^2) + q N(1, s^2)``.

    Whoever sees the cell of an output alone sees less: so the probabilities of cells are a contraction, whatever the
    cells are.
    """
    shift = 1.0 / noise_multiplier
    reach = -float(ndtri(resolution.tail))
    count = ceil((2.0 * reach + 2.0 * shift) * resolution.for_side(Side.LOWER)) + 1
    ends = np.linspace(-reach, reach + 2.0 * shift, count + 1)

    def cells(centre: float) -> Array:
        """Probabilities of the cells, from the tail on their own side; nothing is said beyond the last ones."""
        below, above = ndtr(ends - centre), ndtr(centre - ends)
        masses: Array = np.where(ends[1:] <= centre, np.diff(below), -np.diff(above))
        return masses

    rest = (1.0 - rate) * cells(0.0)
    of_q, of_p = rest + rate * cells(shift), rest + rate * cells(2.0 * shift)
    # The ratio falls below 1 before it rises.
    seen = np.flatnonzero(of_q > SMALLEST)
    order = seen[np.argsort(of_p[seen] / of_q[seen], kind="stable")]
    return lower_law(of_q[order], of_p[order], CELL_ERROR, CELL_ERROR)


def averaged_profile(
    deltas: Callable[[Sequence[float], Direction], Sequence[float]],
    rate: float,
    distance: float,
    steps: int,
    smallest_delta: float,
) -> Callable[[float], float]:
    """An upper bound on both directions of a run in which the worst step for smooth functions is repeated.

    Let ``h`` be the profile of ``steps`` copies of ``(1-q) N(0) + q N(distance)`` against ``N(0)``, as a function of
    ``a = e^epsilon``. The bound at a is the least of ``H(b) / (2 (a - b))`` over b < a, H the integral of h from b on.

    Args:
        deltas: upper bounds on h at epsilons >= 0, for each direction.
        rate: q in (0, 1).
        distance: in standard deviations of the noise.
        steps: number of copies.
        smallest_delta: smaller deltas are bounded loosely.
    """
    logs = [log_moment(rate, distance, order) * steps * (1.0 + SAFE) for order in ORDERS]
    end = _end(logs, BEYOND * smallest_delta)
    if end is None:
        return lambda epsilon: 1.0
    epsilons = np.linspace(LEAST_EPSILON, end, PLACES)
    places = np.exp(epsilons)
    negative, low = epsilons[epsilons < 0.0], places[epsilons < 0.0]
    above = epsilons[negative.size :]
    # A place is e^epsilon but for its rounding. Below 1 that is charged as it is, as h falls by at most 1 per unit;
    # above 1, h is read at an epsilon whose exponential is below the place.
    above = np.maximum(above - PLACE_ROUNDING * (1.0 + above), 0.0)
    known = np.array(
        [
            *(1.0 - low + low * deltas((-negative).tolist(), Direction.ADD) + PLACE_ROUNDING),
            *deltas(above.tolist(), Direction.REMOVE),
        ]
    )
    # h is convex in a: chords through upper bounds lie above it.
    areas = 0.5 * (known[1:] + known[:-1]) * np.diff(places)
    integrals = np.append(np.cumsum(areas[::-1])[::-1], 0.0) + _beyond(logs, end)
    integrals *= 1.0 + SAFE

    def profile(epsilon: float) -> float:
        ratio = exp(min(epsilon, LARGEST_EPSILON)) * (1.0 - SAFE)
        room = ratio - places
        usable = room > 0.0
        return min(float(np.min(0.5 * integrals[usable] / room[usable])) * (1.0 + SAFE), 1.0)

    return profile


def log_moment(rate: float, distance: float, order: int) -> float:
    """The logarithm of ``E X^order`` of one copy, by the binomial formula, within ``SAFE`` of itself.

    It is taken times the number of steps, so that its error is relative where the moment is hardly above 1: what it is
    above 1 by is a sum of positive terms, ``binom(order, k) q^k (1-q)^(order-k) (e^(k (k-1) distance^2 / 2) - 1)``.
    """
    terms = []
    for k in range(2, order + 1):
        exponent = 0.5 * k * (k - 1) * distance**2
        above_one = exponent + log(-expm1(-exponent))  # the logarithm of e^exponent - 1
        terms.append(log(comb(order, k)) + k * log(rate) + (order - k) * log1p(-rate) + above_one)
    return float(np.logaddexp(0.0, np.logaddexp.reduce(terms)))


def _beyond(logs: Sequence[float], end: float) -> float:
    """At least ``E (X - a)_+^2 / 2`` at ``a = e^end``: ``(x - a)_+^2 <= x^k a^(2-k)``."""
    return exp(min(min(value + (2 - order) * end for order, value in zip(ORDERS, logs, strict=True)), 700.0))


def _end(logs: Sequence[float], negligible: float) -> float | None:
    """The epsilon beyond which next to nothing is left, or None where moments do not tell."""
    wanted = [(value - log(negligible)) / (order - 2) for order, value in zip(ORDERS, logs, strict=True)]
    end = max(min(wanted), 1.0)
    return end if end < LARGEST_EPSILON else None
