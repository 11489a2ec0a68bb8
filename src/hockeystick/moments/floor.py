"""The mixture without a common factor is almost surely bounded below.

Let ``Y = (1/b) sum_i exp(u_i - A_ii / 2)``, ``u ~ N(0, A)``, and let w be non-negative weights that add up to 1. By the
weighted inequality of the means

    Y >= exp(sum_i w_i u_i - sum_i w_i A_ii / 2 - sum_i w_i ln(b w_i)).

Let zeta be standard normal and jointly Gaussian with u, and ``s = Cov(zeta, sum_i w_i u_i) >= 0``. Where ``zeta > t``
the normal variable ``sum_i w_i u_i`` is at least ``s t`` plus an independent one of variance ``w^T A w - s^2``, of
which ``DEVIATIONS`` standard deviations are given away.

Proofs: ``docs/theory/moment-majorants/floor.md`` and ``strips.md``.
"""

from math import exp, fsum, sqrt

import numpy as np

from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.moments.exact import ExactGram

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
    logs = np.log(bins * weights[used])
    # the weights add up to 1, so w^T A w is w^T S w - v
    spread = float(weights @ entries @ weights) - gram.common
    size = float(weights @ np.abs(entries) @ weights) + gram.common
    spread = max(spread, 0.0) + (4.0 * bins + 16.0) * UNIT_ROUNDOFF * size
    half = 0.5 * gram.scale * float(weights @ entries.diagonal())
    entropy = float(weights[used] @ logs)
    place = -DEVIATIONS * sqrt(gram.scale * spread) - half + 0.5 * gram.scale * gram.common - entropy
    error = (8.0 * bins + 64.0) * UNIT_ROUNDOFF * (1.0 + half + float(weights[used] @ np.abs(logs)))
    return exp(place - error) * (1.0 - 4.0 * UNIT_ROUNDOFF)


def floor_above(gram: ExactGram, common: float, weights: Array, slope: float, start: float) -> float:
    """x_0 >= 0 with ``Pr(Y < x_0, zeta > start) < BEYOND``; every rounding lowers it.

    Args:
        gram: S.
        common: v_0: Y is the mixture with the Gram matrix ``gram.scale * (gram.entries - common)``.
        weights: w, shape (b,), >= 0, of sum 1 but for rounding.
        slope: s at scale 1, >= 0: the covariance of zeta and ``w.u`` is ``sqrt(gram.scale)`` times it.
        start: t, in standard deviations of zeta, with a relative error of some units in the last place.
    """
    bins, used, rest, root = gram.bins, weights > 0.0, gram.entries - common, sqrt(gram.scale)
    size = float(weights @ np.abs(rest) @ weights) + slope**2
    spread = float(weights @ rest @ weights) - slope**2
    spread = max(spread, 0.0) + (8.0 * bins + 32.0) * UNIT_ROUNDOFF * size
    half = 0.5 * gram.scale * float(weights @ rest.diagonal())
    logs = weights[used] * np.log(bins * weights[used])
    terms = [root * slope * start, -DEVIATIONS * root * sqrt(spread), -half, -float(logs.sum())]
    error = (8.0 * bins + 64.0) * UNIT_ROUNDOFF * (1.0 + fsum(map(abs, terms)) + float(np.abs(logs).sum()))
    place = fsum(terms) - error
    return exp(place) * (1.0 - 4.0 * UNIT_ROUNDOFF) if place > -600.0 else 0.0


def _weights(gram: ExactGram) -> Array:
    """Non-negative, of sum 1 but for rounding, about ``S^-1 1``: any such weights give a bound."""
    try:
        weights = np.maximum(np.linalg.solve(gram.entries, np.ones(gram.bins)), 0.0)
    except np.linalg.LinAlgError:
        weights = np.ones(gram.bins)
    if not (np.isfinite(weights).all() and weights.sum() > 0.0):
        weights = np.ones(gram.bins)
    weights = weights / weights.sum()
    return np.asarray(weights) if abs(weights.sum() - 1.0) < 1e-9 else np.full(gram.bins, 1.0 / gram.bins)
