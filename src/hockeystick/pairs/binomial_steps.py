"""Steps whose sensitivity is a random count: how many examples of a group are in a batch."""

from collections.abc import Callable
from math import sqrt

import numpy as np

from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.pairs.mixture_steps import MixtureStep


def binomial_step(size: int, probability: float, unit: float, count: int) -> MixtureStep:
    """``unit`` times a Binomial(size, probability)."""
    if probability == 1.0:
        return MixtureStep((1.0,), (size * unit,), count)
    odds = probability / (1.0 - probability)
    counts, weights, error = unimodal(size * probability, size, lambda j: (size - j) / (j + 1.0) * odds)
    return step_of(counts, weights, error, unit, count)


def step_of(counts: Array, weights: Array, error: float, unit: float, count: int) -> MixtureStep:
    """``unit`` times a count with these probabilities, each of which has at most this relative error."""
    return MixtureStep(tuple(weights.tolist()), tuple((counts * unit).tolist()), count, error)


def unimodal(mean: float, largest: int, ratio: Callable[[Array], Array]) -> tuple[Array, Array, float]:
    """Probabilities on 0..largest, given ``ratio(j) = Pr[j + 1] / Pr[j]``, which falls in j.

    For binomial and hypergeometric laws: their variance is at most the mean, and by Bernstein's inequality less than
    1e-249 lies outside of the range returned, which is conditioned on. Returns (values, probabilities, relative error).
    """
    width = 34.0 * sqrt(mean) + 402.0
    values = np.arange(max(0.0, np.floor(mean - width)), min(float(largest), np.ceil(mean + width)) + 1.0)
    steps = ratio(values[:-1])
    mode = int(np.count_nonzero(steps >= 1.0))
    up = np.cumprod(steps[mode:])
    down = np.cumprod(1.0 / steps[:mode][::-1])[::-1]
    weights = np.concatenate([down, [1.0], up])
    kept = weights > 1e-280
    values, weights = values[kept], weights[kept]
    error = (10.0 * weights.size + 16.0) * UNIT_ROUNDOFF
    return values, weights / weights.sum(), error
