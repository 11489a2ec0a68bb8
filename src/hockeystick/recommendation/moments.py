"""Noise multipliers in some hundredths of a second from moments of the likelihood ratio. Estimates, never claims.

With L the privacy loss of a step under P, ``K(z) = log E_P exp(z L)`` and T independent steps,
``delta = (1 / 2 pi i) int exp(T K(z) - z epsilon) / (z (z + 1)) dz`` over any line ``Re z = c > 0``, because
``1 / (z (z + 1))`` is the transform of ``(1 - exp(-y))_+``. On a line the integrand is largest where the line crosses
the real axis; the line is put where that is smallest, at the saddle point. NumPy is enough, so that a first answer
waits for no kernels.
"""

from collections.abc import Callable
from functools import lru_cache
from math import exp, inf, log, log1p, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from hockeystick.bracketing import smallest_passing

Array = NDArray[np.float64]

WIDTH = 5e-3
"""Relative width of the bracket of a noise multiplier."""
FLATTER = 0.15
"""Power of delta whose root is looked for: delta itself falls too steeply for the steps of the search."""
LINES = 48
"""Abscissae among which the saddle point is looked for."""
SPACING = 0.3
"""Standard deviations between two nodes of a sum over a Gaussian."""
REACH = 9.0
"""Standard deviations that nodes reach beyond the outermost mean."""
MOST_NODES = 6000
MOST_FREQUENCIES = 4096
FEW_BINS = 16
"""The most bins for which the saddle point alone is near enough."""
ORDERS = 24
"""Moments of an allocation that are computed at first; twice as many where the saddle point is beyond."""
MOST_ORDERS = 400
FINE = 16
"""Points for each order between two moments."""


@lru_cache(maxsize=512)
def poisson_noise(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """About the noise multiplier of Poisson-subsampled steps, usually to half a percent; with rate 1, of a Gaussian.

    Raises: CannotCertifyError where none up to the largest is enough.
    """
    return _noise(lambda noise: poisson_delta(noise, rate, steps, epsilon, delta), delta)


@lru_cache(maxsize=512)
def allocation_noise(bins: int, epochs: int, epsilon: float, delta: float) -> float:
    """About the noise multiplier of ``epochs`` random allocations to so many bins, to a tenth or less.

    The smaller one of the saddle point's, which is near for few bins, and that of Poisson steps of the same rate, which
    is near for many and otherwise too large.

    Raises: as :func:`poisson_noise`.
    """
    noise = _noise(lambda noise: _allocation_delta(noise, bins, epochs, epsilon), delta)
    return noise if bins <= FEW_BINS else min(noise, poisson_noise(1.0 / bins, bins * epochs, epsilon, delta))


def poisson_delta(noise: float, rate: float, steps: int, epsilon: float, near: float) -> float:
    """delta(epsilon) of Poisson-subsampled steps when the example is removed, by the sum over a line.

    Args:
        near: about how large it is; where it is very different, digits are lost.
    """
    digits = -log(near)
    lines = np.geomspace(0.01, max(3.0 * digits / epsilon, 4.0), LINES)
    nodes, losses = _losses(noise, rate, lines[-1] + 1.0, SPACING * noise)
    exponents = np.multiply.outer(lines + 1.0, losses) - 0.5 * (nodes / noise) ** 2
    peaks = exponents.max(axis=1)
    masses = np.exp(exponents - peaks[:, None])
    sums = masses.sum(axis=1)
    moments = peaks + np.log(sums * (nodes[1] - nodes[0]) / (noise * sqrt(2.0 * pi)))
    heights = steps * moments - lines * epsilon - np.log(lines * (lines + 1.0))
    saddle = int(heights.argmin())
    line = float(lines[saddle])
    means = float(masses[saddle] @ losses / sums[saddle])
    spread = sqrt(steps * float(masses[saddle] @ (losses - means) ** 2 / sums[saddle]))
    # What is a period away is added by the sum, damped by exp(-line * period); the window, a Gaussian, keeps losses
    # apart that differ by more than about 4 / farthest.
    period = max((digits + 8.0) / line, 12.0 * spread)
    farthest = 24.0 * max(line, 1.0 / epsilon)
    step = 2.0 * pi / period
    count = min(int(farthest / step) + 2, MOST_FREQUENCIES)
    finest = 2.0 * pi / (farthest / noise**2 + 8.0 / noise)
    nodes, losses = _losses(noise, rate, line + 1.0, min(SPACING * noise, finest))
    tilted = (line + 1.0) * losses - 0.5 * (nodes / noise) ** 2
    weights = np.exp(tilted - tilted.max())
    values = (weights / weights.sum()).astype(complex)
    turn, transforms = np.exp(1j * step * losses), np.empty(count, complex)
    for place in range(count):
        transforms[place] = values.sum()
        values *= turn
    places = step * np.arange(count)
    z = line + 1j * places
    terms = transforms**steps * np.exp(-1j * places * epsilon) / (z * (z + 1.0))
    terms *= line * (line + 1.0) * np.exp(-8.0 * (places / farthest) ** 2)
    terms[0] *= 0.5
    total = float(terms.real.sum()) * step / pi
    return exp(min(float(heights[saddle]), 700.0)) * max(total, 1e-9)


def _losses(noise: float, rate: float, top: float, spacing: float) -> tuple[Array, Array]:
    """Nodes of a sum over outcomes of a step, whose mean is from 0 to ``top``, and the privacy losses there."""
    low, high = -REACH * noise, top + REACH * noise
    nodes = np.linspace(low, high, min(int((high - low) / spacing) + 2, MOST_NODES))
    out = log1p(-rate) if rate < 1.0 else -inf
    return nodes, np.logaddexp(out, log(rate) + (nodes - 0.5) / noise**2)


def _allocation_delta(noise: float, bins: int, epochs: int, epsilon: float) -> float:
    """The same for random allocation, by the height and the curvature at the saddle point alone."""
    orders = ORDERS
    while True:
        fine = 1.0 + np.arange(1, (orders - 1) * FINE + 1) / FINE
        lines = fine - 1.0
        heights = epochs * _between(_allocation_moments(noise, bins, orders), fine)
        heights += -lines * epsilon - np.log(lines * (lines + 1.0))
        saddle = min(max(int(heights.argmin()), 1), lines.size - 2)
        if saddle < 0.8 * lines.size or orders >= MOST_ORDERS:
            break
        orders *= 2
    curvature = float(heights[saddle - 1] - 2.0 * heights[saddle] + heights[saddle + 1]) * FINE**2
    return exp(min(float(heights[saddle]), 700.0)) / sqrt(2.0 * pi * max(curvature, 1e-9))


def _allocation_moments(noise: float, bins: int, orders: int) -> Array:
    """``log E_Q R^k`` for k = 0, ..., orders; R is the mean over the bins of ratios of Gaussians.

    ``E R^k = k! bins^-k [y^k] (sum_j y^j exp(j (j - 1) / (2 sigma^2)) / j!)^bins``, in logarithms.
    """
    count = np.arange(orders + 1.0)
    factorials = np.cumsum(np.log(np.maximum(count, 1.0)))
    power, product = count * (count - 1.0) / (2.0 * noise**2) - factorials, None
    left = bins
    while left:
        if left % 2:
            product = power if product is None else _multiplied(product, power)
        left //= 2
        if left:
            power = _multiplied(power, power)
    assert product is not None  # there is a bin
    logarithms: Array = product + factorials - count * log(bins)
    return logarithms


def _multiplied(left: Array, right: Array) -> Array:
    """The coefficients of a product of power series, cut to their length, all as logarithms."""
    size = left.size
    terms = np.full((size, size), -np.inf)
    for place in range(size):
        terms[place, place:] = left[place] + right[: size - place]
    peaks: Array = terms.max(axis=0)
    peaks += np.log(np.exp(terms - peaks).sum(axis=0))
    return peaks


def _between(values: Array, places: Array) -> Array:
    """The cubic spline through values at 0, 1, 2, ... whose second derivative is constant beyond the inner points."""
    inner = values.size - 2
    matrix = 4.0 * np.eye(inner) + np.eye(inner, k=1) + np.eye(inner, k=-1)
    matrix[0, 0] = matrix[-1, -1] = 5.0
    bends = np.linalg.solve(matrix, 6.0 * (values[:-2] - 2.0 * values[1:-1] + values[2:]))
    bends = np.concatenate([bends[:1], bends, bends[-1:]])
    below = np.minimum(places.astype(int), values.size - 2)
    share = places - below
    rest = 1.0 - share
    spline: Array = rest * values[below] + share * values[below + 1]
    spline += ((rest**3 - rest) * bends[below] + (share**3 - share) * bends[below + 1]) / 6.0
    return spline


def _noise(delta_at: Callable[[float], float], delta: float) -> float:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return smallest_passing(lambda noise: delta_at(noise) ** FLATTER, delta**FLATTER, 1.0, WIDTH)[1]
