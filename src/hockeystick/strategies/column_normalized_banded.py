"""BandMF: banded with columns of norm 1, optimised for prefix sums."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.strategies.base import BandedSpec
from hockeystick.strategies.matrix.base import Array, StrategyMatrix
from hockeystick.strategies.optimised import OptimisedSpec, non_negative, of_shape


class ColumnNormalizedBanded(OptimisedSpec, BandedSpec):
    """BandMF: the least mean squared error among matrices with ``bands`` diagonals and columns of norm 1.

    The error is that of the prefix sums of ``C^{-1} z``. Every column has norm 1, so the sensitivity is 1 for one
    participation and the square root of their number for several that are at least ``bands`` steps apart.

    >>> round(ColumnNormalizedBanded(bands=2).matrix(8).max_column_norm, 3)
    1.0

    Fields:
        bands: p, at least 1 and at most the number of steps.

    Reference: McKenna (2025), "Scaling up the banded matrix factorization mechanism for large scale differentially
    private machine learning".
    """

    table: ClassVar[str | None] = "band"
    kind: Literal["column_normalized_banded"] = "column_normalized_banded"

    def rebuilt(self, numbers: Mapping[str, Array], steps: int) -> StrategyMatrix:
        """The matrix with these diagonals, at its own scale."""
        from hockeystick.strategies.matrix.banded import BandedMatrix

        band = of_shape(numbers["band"], (steps, self.bands), "diagonals")
        non_negative(band, band[:, 0], "diagonals")
        if band[np.arange(steps)[:, None] + np.arange(self.bands)[None, :] >= steps].any():
            raise InvalidInputError("The 'strategy.held' field must have diagonals that are zero past the last row.")
        return BandedMatrix(band)

    def optimum(self, steps: int) -> StrategyMatrix:
        """By L-BFGS: hundreds of O(steps * bands^2) time, O(steps * bands) memory."""
        from hockeystick.strategies.matrix.banded import BandedMatrix
        from hockeystick.strategies.optimise.column_normalized import optimal_columns

        return BandedMatrix(optimal_columns(steps, self.bands))
