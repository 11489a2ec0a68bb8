"""Means of o over bins of ratios, by which the points of a lattice become an interval.

A curvature of 1 at the place ``x_l`` is spread over the bin of all x with ``|log x - log x_l| <= h / 2``, with the
density ``x^(-3/2)``. The mean of a bin is its place, and ``E (X - x)_+`` is convex in x, so this raises what every
triple (:mod:`.triples`) adds. Errs upward.

Proof: docs/theory/fixed-size.md, "Spread over bins".
"""

from math import exp, sinh, tanh

import numpy as np

from hockeystick.laws.law import Array
from hockeystick.laws.triples import log_places

PARTS = 4
"""Parts of a bin between whose ends o is below its chords."""
SUMS = 1e-11
"""Far above the relative rounding of means of a few values."""


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


def ends_of_parts(spacing: float, first: int, last: int) -> Array:
    """Logarithms of the ends of all parts of the bins around ``e^(i spacing)``, i = first, ..., last.

    Shape (PARTS (last - first + 1) + 1,).
    """
    return log_places(spacing / PARTS, PARTS * first - PARTS // 2, PARTS * last + PARTS // 2)


def means(values: Array, spacing: float, first: int, last: int) -> Array:
    """At least the means of o over the bins, from upper bounds at the ends of parts; shape (last - first + 1,).

    Chords of o, which is convex but at 1, are above it; to the place at 1 is added what the calls have more below 1
    than the puts.
    """
    ends, weights = chord_weights(spacing)
    count = PARTS * (last - first + 1)
    found = sum(weight * values[part : part + count : PARTS] for part, weight in enumerate(weights))
    if first <= 0 <= last:
        below = ends < 0.0
        found[-first] += float(weights[below] @ -np.expm1(ends[below]))
    raised: Array = found * (1.0 + SUMS)
    return raised
