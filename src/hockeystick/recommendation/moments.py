"""Noise multipliers in some hundredths of a second from moments of the likelihood ratio. Estimates, never claims.

With L the privacy loss of a step under P, ``K(z) = log E_P exp(z L)`` and T independent steps,
``delta = (1 / 2 pi i) int exp(T K(z) - z epsilon) / (z (z + 1)) dz`` over any line ``Re z = c > 0``, because
``1 / (z (z + 1))`` is the transform of ``(1 - exp(-y))_+``. On a line the integrand is largest where the line crosses
the real axis; the line is put where that is smallest, at the saddle point. NumPy is enough, so that a first answer
waits for no kernels.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from math import exp, inf, log, log1p, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from hockeystick.bracketing import smallest_passing
from hockeystick.types import Side

Array = NDArray[np.float64]
Step = Callable[[float, float], tuple[Array, Array]]
"""Privacy losses of a step and the logarithms of their masses without the example, good enough for means up to so many
times that of the example and for frequencies up to so high."""

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
CHORD = 1.0 / 64.0
"""Standard deviations between two nodes of a profile that is joined by chords."""
LARGEST_SCORE = 600.0
"""Logarithm of the largest Gaussian ratio that is a node."""
LEAST_NOISE = 0.08
"""With less, ratios beyond that count."""
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


@lru_cache(maxsize=512)
def fixed_size_noise(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """About the noise multiplier of batches of exactly one size, drawn afresh in every step, to a hundredth.

    Of the bound on every step by itself, for an example that is zeroed out (docs/theory/fixed-size.md); that on the run
    as a whole seldom needs less, as for 30 steps of rate .001 at epsilon .3: 3 percent.

    Raises: as :func:`poisson_noise`.
    """

    def delta_of(noise: float) -> float:
        if noise < LEAST_NOISE:
            return 1.0
        return _delta(partial(_fixed_size_step, noise, rate), steps, epsilon, delta)

    return _noise(delta_of, delta)


def poisson_delta(noise: float, rate: float, steps: int, epsilon: float, near: float) -> float:
    """delta(epsilon) of Poisson-subsampled steps when the example is removed, by the sum over a line.

    Args:
        near: about how large it is; where it is very different, digits are lost.
    """
    return _delta(partial(_poisson_step, noise, rate), steps, epsilon, near)


def _delta(step: Step, steps: int, epsilon: float, near: float) -> float:
    """The same for steps of any kind."""
    digits = -log(near)
    lines = np.geomspace(0.01, max(3.0 * digits / epsilon, 4.0), LINES)
    losses, weights = step(lines[-1] + 1.0, 0.0)
    exponents = np.multiply.outer(lines + 1.0, losses) + weights
    peaks = exponents.max(axis=1)
    masses = np.exp(exponents - peaks[:, None])
    sums = masses.sum(axis=1)
    moments = peaks + np.log(sums)
    heights = steps * moments - lines * epsilon - np.log(lines * (lines + 1.0))
    saddle = int(heights.argmin())
    line = float(lines[saddle])
    means = float(masses[saddle] @ losses / sums[saddle])
    spread = sqrt(steps * float(masses[saddle] @ (losses - means) ** 2 / sums[saddle]))
    # What is a period away is added by the sum, damped by exp(-line * period); the window, a Gaussian, keeps losses
    # apart that differ by more than about 4 / farthest.
    period = max((digits + 8.0) / line, 12.0 * spread)
    farthest = 24.0 * max(line, 1.0 / epsilon)
    spacing = 2.0 * pi / period
    count = min(int(farthest / spacing) + 2, MOST_FREQUENCIES)
    losses, weights = step(line + 1.0, farthest)
    tilted = (line + 1.0) * losses + weights
    weights = np.exp(tilted - tilted.max())
    values = (weights / weights.sum()).astype(complex)
    turn, transforms = np.exp(1j * spacing * losses), np.empty(count, complex)
    for place in range(count):
        transforms[place] = values.sum()
        values *= turn
    places = spacing * np.arange(count)
    z = line + 1j * places
    terms = transforms**steps * np.exp(-1j * places * epsilon) / (z * (z + 1.0))
    terms *= line * (line + 1.0) * np.exp(-8.0 * (places / farthest) ** 2)
    terms[0] *= 0.5
    total = float(terms.real.sum()) * spacing / pi
    return exp(min(float(heights[saddle]), 700.0)) * max(total, 1e-9)


def _poisson_step(noise: float, rate: float, top: float, farthest: float) -> tuple[Array, Array]:
    """A Poisson step: nodes of a sum over its outcomes, of means from 0 to ``top``."""
    low, high = -REACH * noise, top + REACH * noise
    finest = 2.0 * pi / (farthest / noise**2 + 8.0 / noise)
    spacing = min(SPACING * noise, finest)
    nodes = np.linspace(low, high, min(int((high - low) / spacing) + 2, MOST_NODES))
    out = log1p(-rate) if rate < 1.0 else -inf
    losses = np.logaddexp(out, log(rate) + (nodes - 0.5) / noise**2)
    return losses, log((nodes[1] - nodes[0]) / (noise * sqrt(2.0 * pi))) - 0.5 * (nodes / noise) ** 2


def _fixed_size_step(noise: float, rate: float, top: float, farthest: float) -> tuple[Array, Array]:
    """A step of a batch of exactly one size: the law whose profile joins the bounds at nodes by chords.

    Nodes are ``1 + rate (a - 1)`` for likelihood ratios a of two Gaussians at distance 2, up to a mean of ``top`` times
    that distance, and their inverses.
    """
    from hockeystick.laws.gaussian import gaussian_deltas

    far, near = 2.0 / noise, 1.0 / noise
    spacing = min(CHORD, 2.0 * pi / (farthest * far + 8.0))
    last = min(top * far + REACH, LARGEST_SCORE / far + 0.5 * far)
    places = np.linspace(0.5 * far, last, min(int((last - 0.5 * far) / spacing) + 2, MOST_NODES // 2))
    excess = rate * np.expm1(far * places - 0.5 * far**2)
    epsilons, drawn = np.log1p(excess / rate), np.log1p(excess)
    share = (1.0 - rate) * (excess / rate) / (1.0 + excess / rate)

    def profile(own: float, other: float) -> Array:
        """Of the run whose example moves the sum by ``own``, and by ``other`` from that without it."""
        at = {distance: gaussian_deltas(distance, epsilons, Side.UPPER) for distance in {own, other}}
        revealed = gaussian_deltas(own, drawn, Side.UPPER)
        return rate * np.minimum(share * at[other] + (1.0 - share) * at[own], revealed)

    # The profile beyond (1 - a)_+ is that of one direction above 1, and of the other, turned round, below.
    above, below = profile(near, far), profile(near, near)
    ratios = np.concatenate([np.exp(-drawn[:0:-1]), 1.0 + excess])
    return _of_profile(ratios, np.concatenate([np.exp(-drawn[:0:-1]) * below[:0:-1], above]))


def _of_profile(ratios: Array, beyond: Array) -> tuple[Array, Array]:
    """The largest profile below these values, by chords: losses, and logarithms of masses without the example.

    Args:
        ratios: increasing.
        beyond: the values, less ``(1 - a)_+``.
    """
    while True:
        low, high = ratios[:-1], ratios[1:]
        slopes = np.diff(beyond) / (high - low) - np.clip((1.0 - low) / (high - low), 0.0, 1.0)
        masses = np.diff(np.concatenate([[-1.0], slopes, [0.0]]))
        convex = masses >= 0.0
        convex[[0, -1]] = True
        if convex.all():
            return np.log(ratios), np.log(np.maximum(masses, 0.0))
        ratios, beyond = ratios[convex], beyond[convex]  # what is above a chord


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
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        return smallest_passing(lambda noise: delta_at(noise) ** FLATTER, delta**FLATTER, 1.0, WIDTH)[1]
