"""Several hidden visits to many steps, by one sum: each answer has a whole number, its score, and only the sum is kept.

Let the example be in k of t steps, chosen at random. Scores of the answers are independent, and where the visits are
does not matter for their sum S. So S has the Q-masses of t scores without the example, and the P-masses of k scores
with it and t - k without. All terms of these convolutions are positive: nothing cancels, no transform is needed.

Which side it errs on: whatever the scores are, to forget all but S is a contraction, so the law is a lower one. Where
the ratio of an answer has two values, S tells as much as the answers, and the law is right from above too.

Proof: docs/theory/allocation.md, "Several visits, by a sum of scores".
"""

from dataclasses import replace
from math import expm1, log1p, log2, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.law import (
    MAX_RATIO,
    ORDINARY,
    UNDERFLOW,
    UNIT_ROUNDOFF,
    Array,
    Law,
    in_units,
    lower_law,
    merge_equal,
)
from hockeystick.types import Side

PER_DEVIATION = 8.0
"""Scores to a standard deviation of what is scored: rounding them adds a part in 800 to its variance."""
PLACES = 40_000.0
"""Places of the sum beyond which scores are made coarser, as a convolution costs the square of them."""
WITHIN = 80.0
"""Standard deviations within which the masses of a sum are that are above ``TINY``."""
MOST_SCORES = 1024
TAIL = 1e-12
"""Mass of the ratios at either end, of P and Q together, that share one score."""
TINY = 1e-300
"""Masses below are left out of sums, at either end."""
KEPT = 1e-270
"""Masses of sums above are right up to ``LOST``, whatever was left out for up to 1e12 steps."""
LOST = 1e-12


class Masses(NamedTuple):
    """Masses, shape (n,), of the whole numbers ``first``, ``first + 1``, ..."""

    first: int
    masses: Array


def two_valued(step: Law) -> bool:
    """Whether the sum tells all that the answers tell: an upper law then gives an upper law."""
    return step.size == 2 and step.p_inf == 0.0 and step.units == ORDINARY


def scored(step: Law, steps: int, participations: int) -> Law:
    """The law of ``participations`` visits to ``steps`` steps at random, as far as the sum of scores shows it.

    The score of a ratio x is ``log(1 + (k / t)(x - 1))``, the loss of Poisson sampling, on a grid.

    Args:
        step: of one answer; an upper law must be :func:`two_valued`.
        steps, participations: t and k, with 1 <= k < t.

    Cost: O(log(steps)) convolutions of some ``PLACES`` each.
    """
    step = in_units(step, ORDINARY)
    if not step.mass.any():  # a lower law that tells nothing
        return replace(step, p_inf=0.0)
    scores = _scores(step, steps, participations)
    q, p = _binned(scores, step.mass), _binned(scores, step.mass * step.support)
    of_q, of_p = (_trimmed(Masses(0, masses)) for masses in (q, p))
    others = _power(of_q, steps - participations)
    without = _joined(others, _power(of_q, participations))
    places = without.first + np.arange(without.masses.size)
    of_sum = _joined(others, _power(of_p, participations))
    with_example = _at(of_sum, places)
    # A convolution with n places errs by n roundings of each term, and a power by what its factors err.
    rounding = steps * (step.size + (q.size + 1.0) * (log2(steps) + 2.0) + 4.0) * UNIT_ROUNDOFF + LOST
    mass_error = _compounded(step.mass_error, steps) + 2.0 * rounding
    place_error = _compounded(step.place_error, participations) + 4.0 * rounding
    # Where P has nothing at all, its mass is 0; where it has less than is known well, the place is not.
    absent = np.ones(places.size, dtype=np.bool_)
    if np.any(step.support > 0.0):
        (of_p_least, of_p_most), (of_q_least, of_q_most) = _ends(_binned(scores, step.support > 0.0)), _ends(q)
        least = participations * of_p_least + (steps - participations) * of_q_least
        most = participations * of_p_most + (steps - participations) * of_q_most
        absent = (places < least) | (places > most)
    known = (without.masses > KEPT) & (absent | (with_example > KEPT)) & (with_example / MAX_RATIO < without.masses)
    order = np.flatnonzero(known)[np.argsort(with_example[known] / without.masses[known], kind="stable")]
    law = lower_law(without.masses[order], with_example[order], mass_error, place_error)
    if step.side is Side.LOWER:
        return law
    # The others are spread to infinity and to a place that no ratio is below; so is P where Q is below ``TINY``.
    floor = min(step.floor**participations, law.floor) * (1.0 - 1e-12)
    support, mass = merge_equal(
        np.append(floor, law.support), np.append(UNDERFLOW + without.masses[~known].sum(), law.mass)
    )
    vanished = of_sum.masses[~np.isin(of_sum.first + np.arange(of_sum.masses.size), places)]
    beyond = float(with_example[~known].sum() + vanished.sum()) * (1.0 + mass_error + place_error) + UNDERFLOW
    return replace(law, support=support, mass=mass, p_inf=beyond, side=Side.UPPER, horizon=np.inf)


def _scores(step: Law, steps: int, participations: int) -> NDArray[np.intp]:
    """Whole numbers from 0, in ascending order of the ratios, shape (n,)."""
    if step.size == 2:
        return np.arange(2)
    values = np.log1p(participations / steps * (step.support - 1.0))
    weights = step.mass * (1.0 + step.support)
    below = np.cumsum(weights) / weights.sum()
    low, high = (values[min(int(np.searchsorted(below, at)), step.size - 1)] for at in (TAIL, 1.0 - TAIL))
    values = np.clip(values, low, high)
    mean = np.average(values, weights=step.mass)
    deviation = sqrt(float(np.average((values - mean) ** 2, weights=step.mass)))
    pitch = max(deviation / PER_DEVIATION, deviation * WITHIN * sqrt(steps) / PLACES, (high - low) / MOST_SCORES)
    scores: NDArray[np.intp] = np.rint((values - low) / max(pitch, TINY)).astype(np.intp)
    return scores


def _compounded(error: float, count: int) -> float:
    """``(1 + error)^count - 1``, or a large number."""
    return expm1(min(count * log1p(error), 700.0))


def _power(of_one: Masses, count: int) -> Masses:
    """Of the sum of ``count`` >= 1 independent numbers, by repeated doubling."""
    result = None
    while True:
        if count & 1:
            result = of_one if result is None else _joined(result, of_one)
        count >>= 1
        if not count:
            break
        of_one = _joined(of_one, of_one)
    assert result is not None  # count >= 1 has a highest bit
    return result


def _joined(a: Masses, b: Masses) -> Masses:
    """Of the sum of two independent numbers."""
    return _trimmed(Masses(a.first + b.first, np.convolve(a.masses, b.masses)))


def _binned(scores: NDArray[np.intp], masses: NDArray[np.float64 | np.bool_]) -> Array:
    """The mass of each score, shape (largest score + 1,)."""
    return np.bincount(scores, masses).astype(np.float64)


def _ends(masses: Array) -> tuple[int, int]:
    """The least and the largest number that has any mass."""
    used = np.flatnonzero(masses)
    return int(used[0]), int(used[-1])


def _trimmed(law: Masses) -> Masses:
    """Without what is below ``TINY`` at either end; with a single 0 where that is all."""
    used = np.flatnonzero(law.masses > TINY)
    if used.size == 0:
        return Masses(law.first, np.zeros(1))
    return Masses(law.first + int(used[0]), law.masses[used[0] : used[-1] + 1])


def _at(law: Masses, places: NDArray[np.intp]) -> Array:
    """Masses of these consecutive numbers, 0 where there is none."""
    masses = np.zeros(places.size)
    shift = law.first - int(places[0])
    low, high = max(shift, 0), min(shift + law.masses.size, places.size)
    if low < high:
        masses[low:high] = law.masses[low - shift : high - shift]
    return masses
