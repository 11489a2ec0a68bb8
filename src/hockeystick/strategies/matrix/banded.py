"""Lower-triangular matrices with few diagonals, every column its own."""

from functools import cached_property

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.strategies.matrix.base import Array, Indices, StrategyMatrix

REASSOCIATE = {"reassoc", "contract", "nsz"}
"""Sums may be reordered for vector units; NaN and infinity keep their meaning."""
WIDTH = 512
"""Columns of a right-hand side that are solved for at a time: the last p rows of them stay in the cache."""
NEGLIGIBLE = 1e-12


class BandedMatrix(StrategyMatrix):
    """``C[i + d, i] = band[i, d]`` for ``0 <= d < p``, and zero elsewhere.

    Args:
        band: shape (n, p), non-negative, ``band[:, 0]`` positive, zero where ``i + d >= n``, p <= n. Kept, not copied.
    """

    defined_by = ("band",)

    def __init__(self, band: Array) -> None:
        self.band: Array = np.ascontiguousarray(band, dtype=np.float64)
        self.steps = int(band.shape[0])

    @property
    def bands(self) -> int:
        return int(self.band.shape[1])

    @property
    def diagonal_entries(self) -> Array:
        return self.band[:, 0]

    def columns(self, which: Indices) -> Array:
        columns = np.zeros((self.steps, which.size))
        rows = which[:, None] + np.arange(self.bands)[None, :]
        inside = rows < self.steps
        columns[rows[inside], np.nonzero(inside)[0]] = self.band[which][inside]
        return columns

    def dot(self, x: Array) -> Array:
        """``C x``. O(steps * p * d)."""
        return _dot(self.band, _as_table(x)).reshape(x.shape)

    def solve(self, z: Array) -> Array:
        """``C^{-1} z`` by forward substitution. O(steps * p * d)."""
        return _solve(self.band, _as_table(z)).reshape(z.shape)

    @cached_property
    def column_norms(self) -> Array:
        """O(steps * p)."""
        norms: Array = np.sqrt(np.einsum("id,id->i", self.band, self.band))
        return norms

    def bin_means(self, bins: int) -> Array:
        """Shape (steps, bins). O(steps * p) beside the zeros."""
        return _bin_means(self.band, bins)

    def bin_gram(self, bins: int) -> Array:
        """Columns p steps apart are orthogonal, the products of the others fold into bins. O(steps * p^2 + bins^2)."""
        return _bin_gram(self.band, bins)

    def query_errors(self, workload: Array) -> Array:
        """Shape (steps,). O(steps * (p + q)^2) where A^{-1} has q diagonals, as for prefix sums and momentum.

        Entries of A^{-1} below 1e-12 of the largest are taken for zero. With more than steps / 4 diagonals the general
        method runs.
        """
        from hockeystick.strategies.matrix.substitution import toeplitz_solve

        taps = toeplitz_solve(workload, np.eye(1, self.steps)[0])
        used = int(np.flatnonzero(np.abs(taps) > NEGLIGIBLE * np.abs(taps).max())[-1]) + 1
        if used + self.bands > self.steps // 4:
            return super().query_errors(workload)
        return covariances(*autoregression(self.band, taps[:used]))[:, 0]


def _as_table(x: Array) -> Array:
    return np.ascontiguousarray(x, dtype=np.float64).reshape(x.shape[0], -1)


@kernel
def _dot(band: Array, x: Array) -> Array:
    n, p = band.shape
    product = np.zeros(x.shape)
    for i in range(n):
        for d in range(min(p, n - i)):
            entry = band[i, d]
            for column in range(x.shape[1]):
                product[i + d, column] += entry * x[i, column]
    return product


@kernel
def _solve(band: Array, z: Array) -> Array:
    n, p = band.shape
    solved = z.copy()
    for first in range(0, z.shape[1], WIDTH):
        last = min(first + WIDTH, z.shape[1])
        for t in range(n):
            for d in range(1, min(p, t + 1)):
                entry = band[t - d, d]
                for column in range(first, last):
                    solved[t, column] -= entry * solved[t - d, column]
            for column in range(first, last):
                solved[t, column] /= band[t, 0]
    return solved


@kernel
def _bin_means(band: Array, bins: int) -> Array:
    n, p = band.shape
    means = np.zeros((n, bins))
    for i in range(n):
        for d in range(min(p, n - i)):
            means[i + d, i % bins] += band[i, d]
    return means


def _bin_gram(band: Array, bins: int) -> Array:
    """Sums over at most p, then n / bins, then 2 p / bins + 2 terms: fewer than 4 n roundings in all."""
    n, p = band.shape
    above, first = np.zeros((bins, bins)), np.arange(bins)
    diagonal: Array = np.zeros(bins)
    for distance in range(p):
        products = np.einsum("id,id->i", band[: n - distance, distance:], band[distance:, : p - distance])
        folded: Array = np.bincount(np.arange(n - distance) % bins, weights=products, minlength=bins).astype(np.float64)
        if distance == 0:
            diagonal = folded
        else:
            above[first, (first + distance) % bins] += folded
    gram: Array = above + above.T
    gram[first, first] += diagonal
    return gram


def autoregression(band: Array, taps: Array) -> tuple[Array, Array]:
    """The queries ``S = A C^{-1} z`` as ``S_t = s_t z_t + sum_{d=1}^{w} a_{t,d} S_{t-d}``: C A^{-1} is banded too.

    Args:
        band: shape (n, p), as of :class:`BandedMatrix`.
        taps: shape (q,), first column of A^{-1} without the zeros that follow: (1, -1) for prefix sums.

    Returns: s of shape (n,) and a of shape (n, w + 1), w = p + q - 2, where a[t, d] is zero for d = 0 and d > t.
    """
    n, p = band.shape
    scale, rows = 1.0 / (band[:, 0] * taps[0]), rows_of(band)
    memory = np.zeros((n, p + taps.size - 1))
    for k, tap in enumerate(taps):
        memory[:, k : k + p] -= tap * rows
    memory *= scale[:, None]
    memory[:, 0] = 0.0
    reach = min(n, memory.shape[1])
    memory[:reach][np.triu_indices(reach, 1, memory.shape[1])] = 0.0  # from before the first step
    return scale, memory


def rows_of(band: Array) -> Array:
    """``C[t, t - d]`` at [t, d], 0 before the first column: a view of a copy, shape (n, p), not to be written."""
    n, p = band.shape
    padded = np.zeros((n + p, p))
    padded[p:] = band
    row, column = padded.strides
    return np.lib.stride_tricks.as_strided(padded[p:], (n, p), (row, column - row), writeable=False)


def covariances(scale: Array, memory: Array) -> Array:
    """``K[t, j] = Cov(S_t, S_{t-j})``, shape (n, w + 1), for white z: exact, by a recursion. O(n w^2).

    ``K[t, j] = sum_d a_{t,d} Cov(S_{t-d}, S_{t-j})`` for j >= 1, and ``K[t, 0] = s_t^2 + sum_d a_{t,d} K[t, d]``.
    """
    covariance, w = np.zeros(memory.shape), max(memory.shape[1] - 1, 1)
    add_covariances(scale, memory, np.zeros((w, w)), np.zeros(w), covariance)
    return covariance


@kernel(fastmath=REASSOCIATE)
def add_covariances(scale: Array, memory: Array, square: Array, weights: Array, covariance: Array) -> None:
    """:func:`covariances`, into ``covariance``, which is zero past the first step; no array is made in here.

    The covariances of the last w queries are kept in ``square``, shape (w, w), where query t has the place t mod w:
    both halves of it, as rows that are read from end to end are twice as fast. ``weights``, shape (w,), is to work in.
    """
    n, width = memory.shape
    w = weights.size
    for t in range(n):
        place, last = t % w, min(t, width - 1)
        a, new = memory[t], covariance[t]
        for d in range(1, last + 1):
            weights[(t - d) % w] = a[d]
        variance = scale[t] * scale[t]
        for d in range(1, last + 1):
            row = square[(t - d) % w]
            total = 0.0
            for other in range(last):
                total += row[other] * weights[other]
            new[d] = total
            variance += a[d] * total
        new[0] = variance
        for d in range(min(last + 1, w)):  # in the place of query t - w
            square[place, (t - d) % w] = new[d]
            square[(t - d) % w, place] = new[d]
