"""Randomisers that are not Gaussian, by the law of their likelihood ratio, and random allocation of any of them.

A randomiser answers about an example, or without it. It is dominated by a pair (P, Q), so that P is its answer with the
example and Q that without it; see :mod:`hockeystick.laws.law` for the law of ``X = dP/dQ``. What can be done with the
law of a Gaussian can be done with any: subsampling (:func:`~hockeystick.laws.operations.thin`), composition, and
:func:`allocated`.

Proof: docs/theory/allocation.md, "Any randomiser".
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil, exp, expm1

import numpy as np

from hockeystick.errors import InvalidInputError, shortened
from hockeystick.laws.dots import law_from_dots
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import MAX_RATIO, UNIT_ROUNDOFF, Law, lower_law
from hockeystick.laws.operations import average, power, project, visits
from hockeystick.laws.scores import scored, two_valued
from hockeystick.spec import checked_count, real_number
from hockeystick.types import Side, as_side

LARGEST_EPSILON = 250.0
"""Of one answer; ratios above e^250 are near what laws hold."""
ROUNDING = 1e-13
"""Far above the relative rounding of a few exponentials of numbers up to 250."""
CELLS = 1e-12
"""Far above the relative rounding of the mass of a cell."""
VISIBLE = 36.0
"""Standard deviations beyond which nothing of a discrete Gaussian is computed with."""
TAIL = 1e-240
"""Above the weight of all numbers beyond, and of those of which one of the two weights is no double."""
EXPONENTS = 2e-12
"""Above the relative rounding of ``e^-x`` for all x that are seen, up to 709, and of a quotient of two such."""


def finite_law(with_example: Sequence[float], without: Sequence[float], side: Side) -> Law:
    """The law of a randomiser with finitely many answers.

    >>> finite_law([3, 1], [1, 3], Side.UPPER).support.round(6)
    array([0.333333, 3.      ])

    Both sides are the law itself, up to rounding that the law charges, and but for answers that only the example gives,
    which a lower law leaves out.

    Args:
        with_example, without: weights of the answers in the same order, non-negative and finite; each row is divided by
            its sum, in rational arithmetic.

    Raises: InvalidInputError for rows of different lengths, and for weights that are none.
    """
    side = as_side(side)
    p, q = _shares("with_example", with_example), _shares("without", without)
    if len(p) != len(q):
        raise InvalidInputError(
            f"The 'with_example' and 'without' arguments must have the same number of weights. Got {len(p)} and "
            f"{len(q)} instead."
        )
    ratios: dict[Fraction, Fraction] = {}
    for of_p, of_q in zip(p, q, strict=True):
        if of_q:
            ratios[of_p / of_q] = ratios.get(of_p / of_q, Fraction(0)) + of_q
    if max(ratios) > MAX_RATIO:
        raise InvalidInputError(f"The ratio of two weights of an answer must be at most {MAX_RATIO}.")
    places = sorted(ratios)
    support = np.array([float(place) for place in places])
    mass = np.array([float(ratios[place]) for place in places])
    only_with = sum((of_p for of_p, of_q in zip(p, q, strict=True) if not of_q), Fraction(0))
    # A lower law may leave out what no other answer's ratio reaches.
    infinite = float(only_with) * (1.0 + 4.0 * UNIT_ROUNDOFF) if side is Side.UPPER else 0.0
    return Law(support, mass, infinite, side, 4.0 * UNIT_ROUNDOFF, 4.0 * UNIT_ROUNDOFF)


def _shares(name: str, weights: Sequence[float]) -> list[Fraction]:
    values = [real_number(name, weight) for weight in weights]
    if not values or not all(0.0 <= value < float("inf") for value in values) or not any(values):
        raise InvalidInputError(
            f"The {name!r} argument must be weights of answers, non-negative and finite, not all 0. "
            f"Got {shortened(weights)} instead."
        )
    total = sum(map(Fraction, values))
    return [Fraction(value) / total for value in values]


def pure_law(epsilon: float, side: Side) -> Law:
    """The law of randomised response, which dominates every randomiser that is epsilon-differentially private.

    Source: Kairouz, Oh and Viswanath 2015, Theorem 3.4.

    Args:
        epsilon: from 0 to 250; the randomised response is taken to have it up to a rounding.

    Raises: InvalidInputError for an epsilon out of range.
    """
    epsilon = _expected("epsilon", epsilon, 0.0)
    law = finite_law([exp(epsilon), 1.0], [1.0, exp(epsilon)], side)
    return replace(law, mass_error=law.mass_error + ROUNDING, place_error=law.place_error + ROUNDING)


def laplace_law(noise_multiplier: float, side: Side, resolution: Resolution) -> Law:
    """The law of Laplace noise of this scale on a number that one example changes by at most 1.

    The profile is ``1 - sqrt(a) e^(-1 / (2 scale))`` at ratios a between ``e^(-1/scale)`` and ``e^(1/scale)``,
    ``1 - a`` below and 0 above: upper laws connect dots on it. Lower laws are of cells of the output.

    Args:
        noise_multiplier: the scale, at least 1 / 250.

    Raises: InvalidInputError for a scale out of range.
    """
    side = as_side(side)
    noise_multiplier = _expected("noise_multiplier", noise_multiplier, 1.0 / LARGEST_EPSILON, float("inf"))
    epsilon = 1.0 / noise_multiplier
    cells = max(ceil(resolution.for_side(side) * max(epsilon, 1.0)), 2)
    if side is Side.UPPER:
        logs = np.linspace(-epsilon, epsilon, 2 * cells + 1)[1:-1]
        values = np.minimum(-np.expm1(0.5 * (logs - epsilon)) + ROUNDING, 1.0)
        places = np.exp(logs)
        dots = {float(a): max(Fraction(float(h)), 1 - Fraction(float(a))) for a, h in zip(places, values, strict=True)}
        low, high = exp(-epsilon) * (1.0 - ROUNDING), exp(epsilon) * (1.0 + ROUNDING)
        return law_from_dots({low: 1 - Fraction(low), **dots, high: Fraction(0)})
    ends = np.linspace(0.0, epsilon, cells + 1)
    inner = 0.5 * np.exp(-ends[:-1]) * -expm1(-epsilon / cells)  # Q-masses; P has the same, from the other end
    of_q = np.array([0.5, *inner, 0.5 * exp(-epsilon)])
    return lower_law(of_q, of_q[::-1], CELLS, 2.0 * CELLS)


def discrete_gaussian_law(noise_multiplier: float, side: Side) -> Law:
    """The law of discrete Gaussian noise on a whole number that one example changes by 1.

    Args:
        noise_multiplier: sigma of ``exp(-k^2 / (2 sigma^2))``, from 0.25 to 1,000.

    Raises: InvalidInputError for a sigma out of range.
    """
    side = as_side(side)
    noise_multiplier = _expected("noise_multiplier", noise_multiplier, 0.25, 1000.0)
    end = ceil(VISIBLE * noise_multiplier) + 2
    k = np.arange(-end, end + 1.0)
    q, p = (np.exp(-0.5 * ((k - moved) / noise_multiplier) ** 2) for moved in (0.0, 1.0))
    kept = (q > 0.0) & (p > 0.0)
    # The rest is as if it told everything, or is left out.
    tail = TAIL if side is Side.UPPER else 0.0
    law = finite_law([*p[kept], 0.0, tail], [*q[kept], tail, 0.0], side)
    return replace(law, mass_error=law.mass_error + EXPONENTS, place_error=law.place_error + EXPONENTS)


def allocated(
    step: Law,
    steps: int,
    resolution: Resolution,
    *,
    participations: int = 1,
    epochs: int = 1,
) -> Law:
    """The law of random allocation: in every epoch the example is in k of t steps, and every step gives an answer.

    Of several visits, the lower law is that of a sum of scores (:mod:`~hockeystick.laws.scores`), and so is the upper
    law where a ratio has two values, as that of randomised response has. Other upper laws are of k blocks of steps,
    split at random, of which each is visited once. Exact for k = 1, for k = t, and for two values. Answers may be
    chosen by earlier ones.

    >>> from hockeystick.laws.profile import law_delta
    >>> from hockeystick.types import Direction
    >>> law = allocated(pure_law(1.0, Side.UPPER), 100, Resolution(), epochs=10)
    >>> [round(law_delta(law, 1.5, direction), 6) for direction in Direction]
    [0.0, 1e-06]

    Args:
        step: of one answer, of the side that is wanted.
        steps: t, at least 1.
        participations: k, from 1 to t.
        epochs: independent copies, at least 1.

    Raises: InvalidInputError for numbers out of range.

    Cost: O(log(steps)) projections of O(nodes^2) each, and convolutions of as many places as :func:`scored` says.
    Source: feldman-shenfeld-2025, Lemmas 3.11 and 4.2.
    """
    steps, epochs = checked_count("steps", steps), checked_count("epochs", epochs)
    participations = checked_count("participations", participations)
    if participations > steps:
        raise InvalidInputError(
            f"The 'participations' argument must be at most 'steps', {steps}. Got {participations} instead."
        )
    if participations == steps:
        return power(step, steps * epochs, resolution)
    if participations == 1:
        return power(average(step, steps, resolution), epochs, resolution)
    if step.side is Side.LOWER or two_valued(step):
        epoch = scored(step, steps, participations)
        return epoch if epochs == 1 else power(project(epoch, resolution), epochs, resolution)
    return visits(partial(average, step, resolution=resolution), steps, participations, epochs, resolution)


def _expected(name: str, value: float, least: float, most: float = LARGEST_EPSILON) -> float:
    """The value as a float of Python's; a float32 would round all that is computed with it."""
    number = real_number(name, value)
    if not least <= number <= most:
        raise InvalidInputError(
            f"The {name!r} argument must be from {least:g} to {most:g}. Got {shortened(value)} instead."
        )
    return number
