"""The entries of a banded strategy matrix, column by column."""

from functools import lru_cache

import numpy as np

from hockeystick.strategies.matrix.base import Array, StrategyMatrix


@lru_cache(maxsize=4)
def band_of(matrix: StrategyMatrix) -> Array:
    """The diagonals of a square C as ``band[i, d] = C[i + d, i]``, zero where ``i + d >= steps``; not to be written.

    C times the indicator of every p-th step holds p-banded columns side by side, so p products give all columns.
    O(steps p^2), and O(steps p) for Toeplitz matrices.
    """
    steps, width = matrix.steps, matrix.bands
    rows = np.arange(steps)[:, None] + np.arange(width)[None, :]
    inside = rows < steps
    if matrix.toeplitz_column is not None:
        band = np.where(inside, matrix.toeplitz_column[None, :width], 0.0)
    else:
        residue = np.arange(steps) % width
        combs = matrix.dot((residue[:, None] == np.arange(width)[None, :]).astype(np.float64))
        band = np.where(inside, combs[np.where(inside, rows, 0), residue[:, None]], 0.0)
    band.flags.writeable = False
    return band
