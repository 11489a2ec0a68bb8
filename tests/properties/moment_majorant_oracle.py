"""The true profile of a small mixture of Gaussians, from its means, to about nine digits.

The mechanism is the definition itself: ``y ~ P = (1/b) sum_i N(m_i, sigma^2 I)`` against ``N(0, sigma^2 I)``, with
``m_i`` the sum of the columns i, i + b, ... of the strategy matrix. Nothing of the package is used.

In the span of the means (of dimension r) the noise is ``t`` along the sum of the means and ``z`` in the r - 1 other
principal directions, in units of sigma, so that ``X = sum_i exp(a_i t + w_i(z))`` with every ``a_i >= 0``: the strategy
matrix is non-negative. Given z, X crosses a level at one t, which Newton's method finds, and the expectation over t is
a sum of normal distribution functions. At the root the derivative of that sum is 0, so the root's own error hardly
matters. What is left is analytic in z times a Gaussian weight: the trapezoidal rule converges geometrically in 1 / h.

The stated error has three parts:

* the difference of two grids of the same step that are shifted by half of it in every axis (their mean is reported,
  whose error is of higher order: the leading terms of the two have opposite signs);
* the mass beyond :data:`REACH`: points further than that from every component's mean (for add: from 0) are left out,
  and there the integrand is at most the density of P (of Q);
* :data:`ROUNDING`, relative, for the differences of normal distribution functions.
"""

from dataclasses import dataclass
from math import erfc, exp, log, sqrt

import numpy as np
from numba import njit
from scipy.stats import chi2

REACH = (0.0, 9.5, 9.5, 8.5)
"""Radius of the balls of points, by the dimension of z."""
CURVATURE = 1.3
COARSEST = (0.0, 0.4, 0.5, 0.7)
"""The step is ``min(COARSEST, CURVATURE / range)``: a wide range of the exponents w_i along an axis makes the crossing
turn sharply."""
MOST_POINTS = 200_000
ROUNDING = 1e-11
RANK = 1e-14
"""Principal directions with less than this share of the largest variance are left out."""


@dataclass(frozen=True)
class Truth:
    """delta at each epsilon for both directions, and by how much it may be off. Shapes (number of epsilons,)."""

    remove: np.ndarray
    remove_error: np.ndarray
    add: np.ndarray
    add_error: np.ndarray


def means_of(matrix: np.ndarray, bins: int) -> np.ndarray:
    """The means m_i as columns, shape (rows, bins): the sum of the columns i, i + bins, ... of the matrix."""
    return np.array([matrix[:, i::bins].sum(axis=1) for i in range(bins)]).T


@njit(cache=True)
def crossing(a: np.ndarray, w: np.ndarray, level: float, start: float) -> float:
    """The t with ``log sum_i exp(a_i t + w_i) = level``, for all a_i > 0. The left side is convex and increasing."""
    last = np.inf
    for i in range(a.size):
        last = min(last, (level - w[i]) / a[i])
    t = min(start, last)
    for _ in range(200):
        top = -np.inf
        for i in range(a.size):
            top = max(top, a[i] * t + w[i])
        total = slope = 0.0
        for i in range(a.size):
            term = exp(a[i] * t + w[i] - top)
            total += term
            slope += a[i] * term
        change = (top + log(total) - level) * total / slope
        t = min(t - change, last)
        if abs(change) < 1e-8 * (1.0 + abs(t)):
            break
    return t


@njit(cache=True)
def sums(
    points: np.ndarray, axes: np.ndarray, a: np.ndarray, offset: np.ndarray, epsilons: np.ndarray, reach: float
) -> np.ndarray:
    """``sum_z e^(-|z|^2 / 2) E_t[(X - c)_+]`` and ``[(1 - c X)_+]``: shape (2, number of epsilons).

    ``points`` has the shape (count, dimension), ``axes`` (bins, dimension).
    """
    result = np.zeros((2, epsilons.size))
    starts = np.zeros((2, epsilons.size))
    w = np.empty(a.size)
    for p in range(points.shape[0]):
        z = points[p]
        from_zero = 0.0
        for j in range(z.size):
            from_zero += z[j] * z[j]
        nearest = np.inf
        for i in range(a.size):
            distance = 0.0
            w[i] = offset[i]
            for j in range(z.size):
                w[i] += axes[i, j] * z[j]
                distance += (z[j] - axes[i, j]) ** 2
            nearest = min(nearest, distance)
        weight = exp(-0.5 * from_zero)
        for direction in range(2):
            if (nearest if direction == 0 else from_zero) > reach * reach:
                continue
            sign = 1.0 - 2.0 * direction
            for e in range(epsilons.size):
                c = exp(epsilons[e])
                t = crossing(a, w, sign * epsilons[e], starts[direction, e])
                starts[direction, e] = t
                total = 0.5 * erfc(sign * t / sqrt(2.0)) * (1.0 if direction else -c)
                for i in range(a.size):
                    # Q-expectation of exp(a_i t + w_i) beyond the crossing, with the weight of z inside the exponent
                    tail = 0.5 * erfc(sign * (t - a[i]) / sqrt(2.0))
                    share = exp(w[i] + 0.5 * a[i] * a[i]) * tail
                    total += -c * share if direction else share
                result[direction, e] += weight * max(total, 0.0)
    return result


def truth(means: np.ndarray, sigma: float, epsilons: np.ndarray) -> Truth:
    """The profiles of both directions at every epsilon, with their errors, from means as columns."""
    scaled = means / sigma
    total = scaled.sum(axis=1)
    along = total / np.linalg.norm(total)
    a = along @ scaled
    if not (a > 0.0).all():
        raise ValueError("Every mean must have a positive product with their sum.")
    left, values, _ = np.linalg.svd(scaled - np.outer(along, a), full_matrices=False)
    used = values > sqrt(RANK) * max(float(values[0]), float(np.abs(a).max()))
    axes = np.ascontiguousarray((left.T[used] @ scaled).T)
    offset = -0.5 * (scaled**2).sum(axis=0) - log(means.shape[1])
    dimension = axes.shape[1]
    if dimension == 0:
        value = sums(np.zeros((1, 0)), axes, a, offset, epsilons, 1.0)
        return _with_errors(value, np.zeros_like(value), 0.0)
    reach = REACH[dimension]
    steps = np.minimum(COARSEST[dimension], CURVATURE / np.ptp(axes, axis=0).clip(1e-9))
    lows, highs = np.minimum(axes.min(axis=0), 0.0) - reach, np.maximum(axes.max(axis=0), 0.0) + reach
    if np.prod((highs - lows) / steps) > MOST_POINTS:
        raise ValueError("The grid would be too large.")
    both = []
    for shift in (0.0, 0.5):
        lines = [
            np.arange(np.floor(lo / h), np.ceil(hi / h)) * h + shift * h
            for lo, hi, h in zip(lows, highs, steps, strict=True)
        ]
        points = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, dimension)
        cell = np.prod(steps / sqrt(2.0 * np.pi))
        both.append(cell * sums(points, axes, a, offset, epsilons, reach))
    outside = 2.0 * float(chi2.sf(reach**2, dimension))
    return _with_errors(0.5 * (both[0] + both[1]), np.abs(both[0] - both[1]), outside)


def _with_errors(value: np.ndarray, difference: np.ndarray, outside: float) -> Truth:
    error = difference + ROUNDING * value + outside
    return Truth(value[0], error[0], value[1], error[1])
