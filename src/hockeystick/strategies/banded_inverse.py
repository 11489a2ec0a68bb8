"""BandInvMF: Toeplitz with a banded inverse, optimised for prefix sums."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from hockeystick.spec import Count
from hockeystick.strategies.base import BandedSpec
from hockeystick.strategies.matrix.base import Array, StrategyMatrix
from hockeystick.strategies.optimised import OptimisedSpec, non_negative, of_shape


class BandedInverse(OptimisedSpec, BandedSpec):
    """BandInvMF: C is Toeplitz and its inverse, which makes the noise, has ``bands`` diagonals.

    It minimises the mean squared error of prefix sums times the squared sensitivity among the inverses with no
    positive entry off the diagonal; C then has no negative one. Scaled to maximum column norm 1, also where
    ``min_sep`` makes the sensitivity larger than that.

    >>> round(BandedInverse(bands=2).matrix(8).max_column_norm, 3)
    1.0

    Fields:
        bands: p, at least 1 and at most the number of steps.
        min_sep: the sensitivity is that of as many participations as fit, at least this many steps apart; None: of
            a single one.

    Reference: Kalinin et al. (2025), "Back to square roots: an optimal bound on the matrix factorization error for
    multi-epoch differentially private SGD".
    """

    holds: ClassVar[tuple[str, ...]] = ("inverse_coefficients",)
    table: ClassVar[str | None] = "inverse_coefficients"
    kind: Literal["banded_inverse"] = "banded_inverse"
    min_sep: Count | None = None

    def rebuilt(self, numbers: Mapping[str, Array], steps: int) -> StrategyMatrix:
        """The matrix whose inverse has these coefficients, at its own scale. Refused where C may be negative."""
        from hockeystick.strategies.matrix.inverse_toeplitz import InverseToeplitzMatrix

        coefficients = of_shape(numbers["inverse_coefficients"], (self.bands,), "inverse coefficients")
        non_negative(coefficients[:1], coefficients[:1], "inverse coefficients")
        return InverseToeplitzMatrix(coefficients, steps)

    def optimum(self, steps: int) -> StrategyMatrix:
        """A full Toeplitz matrix with ``bands`` coefficients in its inverse, by L-BFGS: some O(100 steps * bands)."""
        from hockeystick.strategies.matrix.inverse_toeplitz import InverseToeplitzMatrix
        from hockeystick.strategies.optimise.banded_inverse import optimal_inverse_coefficients

        return InverseToeplitzMatrix(optimal_inverse_coefficients(steps, self.bands, self.min_sep), steps)
