"""Lower-triangular matrices without further structure."""

from functools import cached_property

import numpy as np

from hockeystick.strategies.matrix.base import Array, Indices, StrategyMatrix


class DenseMatrix(StrategyMatrix):
    """C as an array.

    Args:
        entries: shape (n, n), lower triangular, non-negative, with a positive diagonal. Kept, not copied.
    """

    defined_by = ("entries",)

    def __init__(self, entries: Array) -> None:
        self.entries: Array = np.ascontiguousarray(entries, dtype=np.float64)
        self.steps = int(entries.shape[0])

    @cached_property
    def bands(self) -> int:
        """One more than the largest distance from the diagonal at which an entry is not zero."""
        first = np.argmax(self.entries != 0.0, axis=1)
        return int((np.arange(self.steps) - first).max()) + 1

    def columns(self, which: Indices) -> Array:
        return self.entries[:, which]

    def dot(self, x: Array) -> Array:
        """One product. O(steps^2 * d)."""
        return self.entries @ x

    def solve(self, z: Array) -> Array:
        """Forward substitution. O(steps^2 * d)."""
        from scipy.linalg import solve_triangular

        return solve_triangular(self.entries, z, lower=True, check_finite=False)
