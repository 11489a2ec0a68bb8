"""A rough upper bound on the profile of epochs of random allocation, by moments, for epsilons far beyond those of use.

``X = (Y_1 + ... + Y_t) / t`` with ``Y = exp(mu z - mu^2 / 2)`` has moments of whole orders by powers of a polynomial,

    sum_k E (Y_1 + ... + Y_t)^k x^k / k! = (sum_j E Y^j x^j / j!)^t,   E Y^j = e^(mu^2 j (j - 1) / 2),

and, as a mean is at least the geometric one, ``E X^-s <= e^(mu^2 (s + s^2 / t) / 2)``. Proofs: docs/theory/contours.md.
Cost: O(ORDERS^2 log(bins)) once, O(ORDERS) for each epsilon.
"""

from functools import cached_property
from math import exp, inf, log, sqrt

import numpy as np

from hockeystick.laws.contours import log_peaks
from hockeystick.laws.law import Array
from hockeystick.types import Direction

ORDERS = 32
"""The largest order above 1, and the number of orders below 0."""
LARGEST_EXPONENT = 300.0
"""The largest logarithm of a moment of a single ratio; larger orders are left out, so that all numbers are doubles."""
NEAREST, FARTHEST = 0.1, 1e4
"""Sizes of the orders below 0."""
MARGIN = 1e-9
"""Far above the relative error of sums and products of some thousand non-negative numbers, and of their logarithms.

What underflows is less than 1e-150 of its coefficient, which is at least 1 / ORDERS!, as moments of order 1 on are at
least 1.
"""


class MeanMoments:
    """Bounds by moments for ``epochs`` independent epochs of one hidden visit among ``bins`` steps each.

    Args:
        mu: one over the noise multiplier of a visit.
    """

    def __init__(self, mu: float, bins: int, epochs: int) -> None:
        self.mu, self.bins, self.epochs = mu, bins, epochs

    def delta(self, epsilon: float, direction: Direction) -> float:
        """An upper bound on delta, at most 1.

        >>> MeanMoments(0.1, 100, 20).delta(2.0, Direction.REMOVE) < 1e-9
        True
        """
        x, extra = (epsilon, epsilon) if direction is Direction.REMOVE else (-epsilon, 0.0)
        orders, logs = self._above if direction is Direction.REMOVE else self._below
        least = float(np.min(logs + log_peaks(orders) - orders * x, initial=inf))
        return exp(min(least + extra + MARGIN, 0.0))

    def tail(self, epsilons: Array, negligible: float, direction: Direction = Direction.REMOVE) -> Array:
        """Upper bounds on ``E (X - e^y)_+`` (remove), or ``E (e^-y - X)_+`` (add), at ascending epsilons y.

        The last one is where it is negligible. They are those of one order, the one that is negligible first, so they
        are convex in ``e^y``, or in ``e^-y``.
        """
        orders, logs = self._above if direction is Direction.REMOVE else self._below
        heights, slopes = logs + log_peaks(orders) + MARGIN, np.abs(orders - 1.0)
        ends = (heights - log(negligible)) / slopes
        best = int(np.argmin(ends))
        kept = epsilons[: int(np.searchsorted(epsilons, ends[best])) + 1]
        bounds: Array = np.exp(np.minimum(heights[best] - slopes[best] * kept, 0.0))
        return bounds

    @cached_property
    def _above(self) -> tuple[Array, Array]:
        """Whole orders from 2 on, and the logarithm of the moment of all epochs at each."""
        last = min(ORDERS, int(0.5 + sqrt(0.25 + 2.0 * LARGEST_EXPONENT / self.mu**2)))
        orders = np.arange(last + 1, dtype=np.float64)
        factorials = np.cumprod(np.maximum(orders, 1.0))
        squared = np.exp(0.5 * self.mu**2 * orders * (orders - 1.0)) / factorials / float(self.bins) ** orders
        product, left = np.append(1.0, np.zeros(last)), self.bins
        while left:
            if left % 2:
                product = np.convolve(product, squared)[: last + 1]
            squared, left = np.convolve(squared, squared)[: last + 1], left // 2
        return orders[2:], self.epochs * (np.log(product * factorials) + MARGIN)[2:]

    @cached_property
    def _below(self) -> tuple[Array, Array]:
        """Orders below 0, and a bound on the logarithm of the moment of all epochs at each."""
        sizes = np.geomspace(NEAREST, FARTHEST, ORDERS)
        return -sizes, self.epochs * (0.5 * self.mu**2 * (sizes + sizes**2 / self.bins) * (1.0 + MARGIN))
