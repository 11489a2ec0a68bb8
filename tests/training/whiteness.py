"""Is what reached ``p.grad`` the mechanism's noise? By dense linear algebra, for strategies of every kind."""

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.stats import chi2

import hockeystick as hs

STEPS = 45


def strategies(folder):
    """A strategy of every kind, for 45 steps."""
    lags = np.subtract.outer(np.arange(STEPS), np.arange(STEPS))
    entries = np.where((lags >= 0) & (lags < 6), 1.0 / (1.0 + np.abs(lags)) ** (1.0 + 0.01 * np.arange(STEPS)), 0.0)
    np.save(folder / "matrix.npy", entries)
    made = [
        hs.Identity(),
        hs.BandedSquareRoot(bands=4),
        hs.BandedInverseSquareRoot(bands=4),
        hs.SquareRoot(),
        hs.BandedToeplitz(bands=4),
        hs.ColumnNormalizedBanded(bands=4),
        hs.BandedInverse(bands=4),
        hs.BandedInverseFractionalRoot(bands=4, exponent=0.3),
        hs.BufferedToeplitz(buffers=2),
        hs.BinaryTree(),
        hs.TreeRestart(height=3),
        hs.Dense(epochs=3),
        hs.Custom(path=str(folder / "matrix.npy")),
    ]
    return {one.kind: one for one in made}


def decoder(matrix):
    """B with rows ``x = B z``: the inverse of C, or for a tree the differences of its prefix sums.

    The sum of the first m steps of a tree is that of the nodes of the binary digits 1 of m, from the left.
    """
    c = matrix.materialize()
    if c.shape[0] == c.shape[1]:
        return np.linalg.inv(c)
    node = {tuple(np.flatnonzero(row)): index for index, row in enumerate(c)}
    prefix = np.zeros((STEPS + 1, len(c)))
    for m in range(1, STEPS + 1):
        end, left = m - (m - 1) % matrix.leaves - 1, (m - 1) % matrix.leaves + 1
        prefix[m] = prefix[end]
        for digit in reversed(range(left.bit_length())):
            if left >> digit & 1:
                prefix[m, node[tuple(range(end, end + 2**digit))]] += 1.0
                end += 2**digit
    b = np.diff(prefix, axis=0)
    assert np.allclose(b @ c, np.eye(STEPS))
    return b


def is_white(matrix, rows, sigma):
    """Whether rows are noise of covariance ``sigma^2 B B^T``, independent from column to column.

    Of 45 rows of 403 columns, it refuses true ones with a probability below 3e-6, and accepts 0.95 of them with 1e-6.

    With the Cholesky factor L of ``B B^T``, ``L^{-1} x / sigma`` is white; for a square C it is C times the noise. Its
    sum of squares is chi-square with n d degrees of freedom, and that of each column with n: the tails that are
    refused have 1e-6 together, and 403 * 2e-9. Entry (s, t) of the Gram matrix of d standard normal columns has mean
    d [s = t] and variance d (1 + [s = t]). One of its n (n + 1) / 2 entries is 8 standard deviations off with less
    than 1e-6: a sum S of d products of independent normals has P(|S| > u) <= 2 exp(-u^2 / (2 (d + u))), as
    log E exp(l X Y) = -log(1 - l^2) / 2, and the chi-square laws of the diagonal add less.
    """
    b = decoder(matrix)
    white = solve_triangular(cholesky(b @ b.T, lower=True), rows, lower=True) / sigma
    steps, size = white.shape
    same = np.eye(steps)
    largest = np.abs((white @ white.T - size * same) / np.sqrt(size * (1.0 + same))).max()
    all_of_them = chi2.cdf((white**2).sum(), steps * size)
    columns = chi2.cdf((white**2).sum(axis=0), steps)
    likely = 5e-7 < all_of_them < 1.0 - 5e-7 and columns.min() > 1e-9 and columns.max() < 1.0 - 1e-9
    return bool(likely and largest < 8.0)
