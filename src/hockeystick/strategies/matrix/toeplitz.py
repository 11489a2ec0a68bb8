"""Lower-triangular Toeplitz matrices: one column says it all."""

from functools import cached_property
from typing import ClassVar

import numpy as np

from hockeystick.strategies.matrix.base import Array, Indices, StrategyMatrix

DIRECT = 64
"""Filters up to this long are applied term by term, longer ones by fast convolution."""


def convolved(coefficients: Array, x: Array) -> Array:
    """``sum_j coefficients[j] x[t - j]`` for each column of x, of shape (n, ...), term by term."""
    whole: Array = np.apply_along_axis(lambda column: np.convolve(coefficients, column), 0, x)
    return whole[: len(x)]


class ToeplitzMatrix(StrategyMatrix):
    """``C[t, i] = coefficients[t - i]`` for ``0 <= t - i < p``, and zero elsewhere.

    Args:
        coefficients: shape (p,), non-negative, the first positive, p <= steps.
        steps: n.
    """

    defined_by: ClassVar[tuple[str, ...]] = ("coefficients",)

    def __init__(self, coefficients: Array, steps: int) -> None:
        self.coefficients: Array = np.ascontiguousarray(coefficients, dtype=np.float64)
        self.steps = steps

    @property
    def bands(self) -> int:
        return int(self.coefficients.size)

    @property
    def diagonal_entries(self) -> Array:
        return np.broadcast_to(self.toeplitz_column[:1], self.steps)

    @cached_property
    def toeplitz_column(self) -> Array:
        return np.concatenate([self.coefficients, np.zeros(self.steps - self.bands)])

    def columns(self, which: Indices) -> Array:
        offsets = np.arange(self.steps)[:, None] - which[None, :]
        inside = (offsets >= 0) & (offsets < self.bands)
        return np.where(inside, self.coefficients[np.where(inside, offsets, 0)], 0.0)

    def dot(self, x: Array) -> Array:
        """``C x``. O(steps * p * d), or O(steps log steps * d) for long filters (then rounded like an FFT)."""
        if self.bands <= DIRECT:
            return convolved(self.coefficients, x)
        from scipy.signal import oaconvolve

        shape = (self.bands,) + (1,) * (x.ndim - 1)
        return oaconvolve(x, self.coefficients.reshape(shape), axes=0)[: self.steps]

    def solve(self, z: Array) -> Array:
        """``C^{-1} z`` by forward substitution. O(steps * p * d)."""
        from hockeystick.strategies.matrix.substitution import toeplitz_solve

        return toeplitz_solve(self.coefficients, z)

    @cached_property
    def column_norms(self) -> Array:
        """The last columns are cut short. O(steps)."""
        sums = np.cumsum(self.toeplitz_column**2)
        return np.sqrt(sums[::-1])

    @property
    def max_column_norm(self) -> float:
        """The first column is whole. O(p), for any number of steps."""
        return float(np.sqrt(self.coefficients @ self.coefficients))

    def bin_profile(self, bins: int) -> Array:
        """f of shape (steps,) with ``m_i[t] = f[t - i]`` for t >= i: one epoch's columns on top of each other.

        O(steps * epochs).
        """
        profile = np.zeros(self.steps)
        for first in range(0, self.steps, bins):
            profile[first:] += self.toeplitz_column[: self.steps - first]
        return profile

    def bin_means(self, bins: int) -> Array:
        """Shifts of one profile, shape (steps, bins). O(steps * bins)."""
        return ToeplitzMatrix(self.bin_profile(bins), self.steps).columns(np.arange(bins))

    def bin_norms(self, bins: int) -> Array:
        """Running sums of the squared profile. O(steps * epochs)."""
        sums = np.cumsum(self.bin_profile(bins) ** 2)
        return np.sqrt(sums[::-1][:bins])

    def bin_gram(self, bins: int) -> Array:
        """``G[i, i + d] = sum_{s < n - i - d} f[s] f[s + d]``, by running sums. O(steps * bins) time."""
        profile, n = self.bin_profile(bins), self.steps
        gram = np.empty((bins, bins))
        for distance in range(bins):
            sums = np.cumsum(profile[: n - distance] * profile[distance:])
            first = np.arange(bins - distance)
            gram[first, first + distance] = gram[first + distance, first] = sums[n - 1 - distance - first]
        return gram

    def query_errors(self, workload: Array) -> Array:
        """A C^{-1} is Toeplitz too: running sums of one column's squares. O(steps * p)."""
        return np.cumsum(self.solve(workload) ** 2)
