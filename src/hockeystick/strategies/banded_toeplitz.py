"""Banded Toeplitz, optimised for prefix sums."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from hockeystick.strategies.base import BandedSpec
from hockeystick.strategies.matrix.base import Array, StrategyMatrix
from hockeystick.strategies.optimised import OptimisedSpec, non_negative, of_shape


class BandedToeplitz(OptimisedSpec, BandedSpec):
    """The Toeplitz matrix with ``bands`` diagonals that minimises mean squared error times squared sensitivity.

    The error is that of the prefix sums of ``C^{-1} z``; the sensitivity is that of one participation, or of several
    that are at least ``bands`` steps apart, up to their number. Scaled to maximum column norm 1.

    >>> round(BandedToeplitz(bands=2).matrix(8).max_column_norm, 3)
    1.0

    Fields:
        bands: p, at least 1 and at most the number of steps.

    Reference: Choquette-Choo et al. (2023), "(Amplified) banded matrix factorization: a unified approach to private
    training"; McKenna (2025), "Scaling up the banded matrix factorization mechanism for large scale differentially
    private machine learning".
    """

    holds: ClassVar[tuple[str, ...]] = ("coefficients",)
    table: ClassVar[str | None] = "coefficients"
    kind: Literal["banded_toeplitz"] = "banded_toeplitz"

    def rebuilt(self, numbers: Mapping[str, Array], steps: int) -> StrategyMatrix:
        """Toeplitz with these coefficients, at their own scale."""
        from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix

        coefficients = of_shape(numbers["coefficients"], (self.bands,), "coefficients")
        non_negative(coefficients, coefficients[:1], "coefficients")
        return ToeplitzMatrix(coefficients, steps)

    def optimum(self, steps: int) -> StrategyMatrix:
        """Toeplitz with ``bands`` coefficients, by L-BFGS: tens of O(steps * bands)."""
        from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
        from hockeystick.strategies.optimise.banded_toeplitz import optimal_coefficients

        return ToeplitzMatrix(optimal_coefficients(steps, self.bands), steps)
