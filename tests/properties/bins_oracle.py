"""The true profile of a small mixture of bins, from its Gram matrix, by numerical integration.

Shares nothing with the package: not its laws, not its moments, not its Gram matrices.

``X = sum_i exp(a_i t + w_i)``: t is the coordinate of the noise along the sum of the means, and every ``a_i`` is
positive because the Gram matrix is non-negative. So X increases in t, ``X = c`` has one root, and given the other
coordinates the expectations of ``(X - c)_+`` and ``(1 - c X)_+`` are sums of normal distribution functions. What is
left is a smooth integral over the b - 1 other coordinates (principal axes of the conditional covariance):

* over a grid by the trapezoidal rule, which converges exponentially for such integrands; the error is estimated from
  two grids that are shifted against each other by different fractions of the step in every axis;
* where the grid would be too large, by randomised quasi-Monte Carlo: ``REPLICATES`` independently scrambled Sobol
  nets, the remove direction sampled under P, where its integrand is between 0 and 1. The error is ``DEVIATIONS``
  standard errors of the replicates' mean, exceeded with probability 5e-9 if the replicates are normal (Student's law
  with 15 degrees of freedom); what an event so rare that no point has seen it could add is charged too. Seeds are
  fixed.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import erfc, exp, log, sqrt

import numpy as np
from numba import njit
from scipy.special import ndtri
from scipy.stats import qmc

MOST_POINTS = 25_000
"""Larger grids are left to quasi-Monte Carlo."""
TAIL = 7.0
"""Standard deviations at which grids end, around the means under P and under Q."""
SHIFTS = (0.0, 0.37, 0.71, 0.19, 0.53)
REPLICATES, LOG2_POINTS, DEVIATIONS = 16, 11, 12.0
ROUNDING = 1e-10
"""Relative; the inner differences lose a few digits."""
TRUNCATION = 1e-11
"""More than the mass beyond ``TAIL`` in every axis."""
UNSEEN = 25.0
"""An event of probability ``UNSEEN / N`` is seen by none of N points with probability e^-25, so it may be missing."""


@dataclass(frozen=True)
class Truth:
    """delta at each epsilon, and how far it may be off. All of shape (number of epsilons,)."""

    remove: np.ndarray
    remove_error: np.ndarray
    add: np.ndarray
    add_error: np.ndarray


@njit(cache=True)
def root(a: np.ndarray, w: np.ndarray, level: float) -> float:
    """The t with ``log sum_i exp(a_i t + w_i) = level``: Newton from the right, where it converges monotonically."""
    t = np.inf
    for i in range(a.size):
        t = min(t, (level - w[i]) / a[i])
    for _ in range(100):
        top = -np.inf
        for i in range(a.size):
            top = max(top, a[i] * t + w[i])
        total = slope = 0.0
        for i in range(a.size):
            term = exp(a[i] * t + w[i] - top)
            total += term
            slope += a[i] * term
        change = (top + log(total) - level) * total / slope
        t -= change
        if change < 1e-13 * (1.0 + abs(t)):
            break
    return t


@njit(cache=True)
def inner(points: np.ndarray, a: np.ndarray, epsilons: np.ndarray, adding: bool) -> np.ndarray:
    """Expectations over t at each point w (shape (points, b)): of ``(X - c)_+``, or of ``(1 - c X)_+`` if adding."""
    result = np.empty((points.shape[0], epsilons.size))
    for p in range(points.shape[0]):
        w = points[p]
        for e in range(epsilons.size):
            c = exp(epsilons[e])
            sign = -1.0 if adding else 1.0
            t = root(a, w, sign * epsilons[e])
            # P(t' > t), or P(t' < t) if adding; then the same under each component's tilted law
            total = 0.5 * erfc(sign * t / sqrt(2.0)) * (1.0 if adding else -c)
            for i in range(a.size):
                share = exp(w[i] + 0.5 * a[i] ** 2) * 0.5 * erfc(sign * (t - a[i]) / sqrt(2.0))
                total += -c * share if adding else share
            result[p, e] = max(total, 0.0)
    return result


def truth(gram: np.ndarray, sigma: float, epsilons: np.ndarray) -> Truth:
    """The profiles of both directions at every epsilon, with their errors."""
    bins = len(gram)
    cov = gram / sigma**2
    a = cov.sum(axis=0) / sqrt(cov.sum())
    values, vectors = np.linalg.eigh(cov - np.outer(a, a))
    used = np.argsort(values)[::-1][: bins - 1]
    used = used[values[used] > 1e-13 * cov.max()]
    axes = vectors[:, used] * np.sqrt(values[used])  # v = axes z
    offset = -0.5 * cov.diagonal() - log(bins)
    steps = np.minimum(0.8, 1.1 / np.sqrt(values[used]))
    ends = TAIL + np.abs(axes).max(axis=0, initial=0.0)
    if np.prod(2.0 * ends / steps + 1.0) <= MOST_POINTS:
        return _by_grids(a, axes, offset, epsilons, steps, ends)
    return _by_simulation(a, axes, offset, epsilons)


def _by_grids(
    a: np.ndarray, axes: np.ndarray, offset: np.ndarray, epsilons: np.ndarray, steps: np.ndarray, ends: np.ndarray
) -> Truth:
    results = []
    for adding in (False, True):
        sums = []
        for shifted in (0.0, 1.0):
            lines = [
                np.arange(-end, end + step, step) + shifted * step * shift
                for end, step, shift in zip(ends, steps, SHIFTS[1:], strict=False)
            ]
            nodes = list(product(*lines))
            z = np.array(nodes).reshape(len(nodes), len(steps))
            weights = np.exp(-0.5 * (z**2).sum(axis=1)) * np.prod(steps / sqrt(2.0 * np.pi))
            sums.append(weights @ inner(z @ axes.T + offset, a, epsilons, adding))
        value = 0.5 * (sums[0] + sums[1])
        results += [value, 4.0 * np.abs(sums[0] - sums[1]) + ROUNDING * value + TRUNCATION]
    return Truth(*results)


@lru_cache(maxsize=8)
def _nets(dimension: int) -> np.ndarray:
    """Shape (replicates, points, dimension), strictly inside the unit cube."""
    nets = [
        qmc.Sobol(dimension, rng=np.random.default_rng(seed)).random_base2(LOG2_POINTS) for seed in range(REPLICATES)
    ]
    return np.clip(np.array(nets), 1e-12, 1.0 - 1e-12)


def _by_simulation(a: np.ndarray, axes: np.ndarray, offset: np.ndarray, epsilons: np.ndarray) -> Truth:
    dimension = axes.shape[1]
    nets = _nets(dimension + 1)
    z = ndtri(nets[:, :, :dimension])
    variances = (axes**2).sum(axis=1)
    # Q: v = axes z. P: a bin at random shifts z by its row of axes; h / (dP/dQ of v) is then the integrand.
    bins = len(a)
    chosen = np.minimum((nets[:, :, dimension] * bins).astype(np.int64), bins - 1)
    results = []
    for adding in (False, True):
        v = (z if adding else z + axes[chosen]) @ axes.T
        flat = v.reshape(-1, bins)
        values = inner(flat + offset, a, epsilons, adding)
        if not adding:
            values /= np.exp(flat - 0.5 * variances).mean(axis=1)[:, None]
        means = values.reshape(REPLICATES, -1, epsilons.size).mean(axis=1)
        mean, error = means.mean(axis=0), means.std(axis=0, ddof=1) / sqrt(REPLICATES)
        results += [mean, DEVIATIONS * error + ROUNDING * mean + UNSEEN / flat.shape[0]]
    return Truth(*results)
