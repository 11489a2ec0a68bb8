"""The mixture without its common factor is almost surely bounded below: polynomials need not hold near 0.

**Statement.** Let ``Y = (1/b) sum_i exp(u_i - A_ii / 2)``, ``u ~ N(0, A)``, and let w be non-negative weights that add
up to 1. By the weighted inequality of the means

    Y >= exp(sum_i w_i u_i - sum_i w_i A_ii / 2 - sum_i w_i ln(b w_i)),

and ``sum_i w_i u_i`` is normal with variance ``w^T A w``. For ``A = S - v 1 1^T`` and ``w`` proportional to
``S^-1 1`` this variance vanishes where v is as large as it can be, ``1 / (1^T S^-1 1)``: the bound is then a constant.
As v is a little smaller here, a multiple of the remaining standard deviation is given away; what lies beyond it has
probability below :data:`BEYOND`.

For alike bins w is uniform and the statement is that Y is at least its geometric mean, ``exp(-A_00 / 2)``.
"""

from math import exp, inf, isfinite, sqrt

import numpy as np

from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.moments.exact import ExactGram
from hockeystick.moments.majorant.base import Polynomial

DEVIATIONS = 38.0
BEYOND = 1e-300
"""More than ``Pr(N(0, 1) < -38)``, which is 2.9e-316."""


def floor_of(gram: ExactGram) -> float:
    """x_0 >= 0 with ``Pr(Y < x_0) < BEYOND`` for the mixture Y of ``gram`` without its common factor.

    Every rounding lowers it. Cost: O(b^3).
    """
    entries, bins = gram.entries, gram.bins
    weights = _weights(gram)
    used = weights > 0.0
    spread = float(weights @ entries @ weights) - gram.common
    size = float(weights @ np.abs(entries) @ weights) + gram.common
    spread = max(spread, 0.0) + (4.0 * bins + 16.0) * UNIT_ROUNDOFF * size
    half = 0.5 * gram.scale * float(weights @ entries.diagonal())
    entropy = float(weights[used] @ np.log(bins * weights[used]))
    place = -DEVIATIONS * sqrt(gram.scale * spread) - half + 0.5 * gram.scale * gram.common - entropy
    rounding = (8.0 * bins + 64.0) * UNIT_ROUNDOFF
    error = rounding * (1.0 + half + float(weights[used] @ np.abs(np.log(bins * weights[used]))))
    return exp(place - error) * (1.0 - 4.0 * UNIT_ROUNDOFF)


def _weights(gram: ExactGram) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Non-negative, of sum 1 but for rounding, about ``S^-1 1``: any such weights give a bound."""
    try:
        weights = np.maximum(np.linalg.solve(gram.entries, np.ones(gram.bins)), 0.0)
    except np.linalg.LinAlgError:
        weights = np.ones(gram.bins)
    if not (np.isfinite(weights).all() and weights.sum() > 0.0):
        weights = np.ones(gram.bins)
    weights = weights / weights.sum()
    return np.asarray(weights) if abs(weights.sum() - 1.0) < 1e-9 else np.full(gram.bins, 1.0 / gram.bins)


def price_below(polynomial: Polynomial, floor: float) -> float:
    """More than a polynomial, or the hockey stick beside it, can hide on ``[0, floor)``: BEYOND times their size there.

    Hockey sticks are at most 1 (add) or x (remove).
    """
    farthest = max(abs(polynomial.centre), abs(floor - polynomial.centre))
    with np.errstate(over="ignore", invalid="ignore"):
        powers = farthest ** np.arange(polynomial.degree + 1.0)
        size = float((np.abs(polynomial.high) * powers).sum()) * (1.0 + 1e-10) + 1.0 + floor
    return BEYOND * size if isfinite(size) else inf
