"""What a triple may add to the opposite one where there is much noise: the lemma of reflections, for both sides of 1.

Let the curvature of V be 1 at the logarithms of ratios from ``-low`` to ``high``, ``low <= high``. On the way from any
triple to the opposite one (:mod:`.triples`) what a step adds to V falls by no more than what outputs add at which ``q
N(e)`` is a certain multiple of ``(1-q) N(v)``: a normal tail.

Proof: docs/theory/fixed-size.md, "Much noise". Errs upward.
"""

from math import exp, expm1, inf, log, sinh, sqrt, tanh

import numpy as np
from scipy.special import ndtr

from hockeystick.laws.law import Array
from hockeystick.laws.triples import REACH, SAFE, log_places, opposite
from hockeystick.types import Side

LITTLE = 1e-4
"""The lemma is used where triples add less than this share at the longest intervals."""
PARTS = 4
"""Parts of a bin between whose ends o is below its chords."""
SUMS = 1e-11
"""Far above the relative rounding of means of a few values, and of normal tails down to 1e-300."""


def largest_share(squared: float) -> float:
    """The most that ``q N(e)`` may be of an output's P-mass in the lemma: ``(1-f) (2-4f) >= e^(squared / 2)``; or 0.

    Args:
        squared: the squared distance of opposite gradients, in standard deviations of the noise.
    """
    if squared >= 2.0 * log(2.0):
        return 0.0
    least = exp(0.5 * squared) * (1.0 + SAFE)
    return max(0.25 * (3.0 - sqrt(1.0 + 4.0 * least)) * (1.0 - SAFE), 0.0)


def excess(rate: float, squared: float, highs: Array) -> Array:
    """What triples add at most to the opposite one, where curvature is 1 from some ``-low`` to ``high``; shape (n,).

    Over the spacing of a lattice it is that for sums over places, if means over bins (:func:`spread_opposite`) stand
    for the opposite triple; beside its o at the places alone it says nothing.

    Args:
        rate: q in (0, 1).
        squared: as of :func:`largest_share`; infinite values if that is 0.
        highs: logarithms of ratios above 0, at least ``low``; shape (n,).
    """
    share = largest_share(squared)
    if share <= 0.0:
        return np.full(highs.size, inf)
    multiples = np.minimum(np.expm1(highs), share / (1.0 - share)) * (1.0 - SAFE)
    logs = np.log(multiples * (1.0 - rate) / rate)
    scores = np.where(logs > 0.0, (logs - 1.5 * squared) / sqrt(squared), -inf)  # all outputs, where it is not a tail
    tails = rate**2 / (1.0 - rate) * exp(squared) * ndtr(SAFE - scores + SAFE * np.abs(np.maximum(scores, -REACH)))
    bounds: Array = 2.5 * squared * tails * (1.0 + SUMS)
    return bounds


def reaches_far(rate: float, squared: float) -> bool:
    """Whether triples add next to nothing to the opposite one at the longest intervals; arguments as of :func:`excess`.

    As a share of the right half of what the opposite one has at all ratios, about a quarter of its second moment.
    """
    if rate >= 1.0:
        return False
    return bool(excess(rate, squared, np.array([inf]))[0] <= LITTLE * 0.25 * rate**2 * expm1(squared))


def spread_opposite(rate: float, distance: float, spacing: float, first: int, last: int) -> Array:
    """At least the means of o of the opposite triple over bins around ``e^(i spacing)``, i = first, ..., last.

    The mean of a bin keeps its place: its density in the logarithm x is that of ``e^(-x/2)``. Chords of o, which is
    convex but at 1, are above it; to the place at 1 is added what the calls have more below 1 than the puts.
    """
    ends, weights = chord_weights(spacing)
    logs = log_places(spacing, first, last)
    values = sum(
        weight * opposite(rate, distance, logs + end, Side.UPPER) for weight, end in zip(weights, ends, strict=True)
    )
    if first <= 0 <= last:
        below = ends < 0.0
        values[-first] += float(weights[below] @ -np.expm1(ends[below]))
    raised: Array = values * (1.0 + SUMS)
    return raised


def chord_weights(spacing: float) -> tuple[Array, Array]:
    """Where the parts of a bin end, and how much that counts in the mean of what is straight in ``e^x`` on each part.

    With density ``e^(-x/2)`` on a part from x to ``x + 2 h`` the mean of the share that belongs to its beginning is
    ``2 e^(-x/2) tanh(h/2)``, and ``e^-h`` times that to its end.
    """
    ends = (np.arange(PARTS + 1) / PARTS - 0.5) * spacing
    half = 0.5 * spacing / PARTS
    begins = 2.0 * np.exp(-0.5 * ends[:-1]) * tanh(0.5 * half)
    weights = np.append(begins, 0.0) + np.append(0.0, exp(-half) * begins)
    return ends, weights / (4.0 * sinh(0.25 * spacing))
