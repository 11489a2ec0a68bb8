"""BIFR: the inverse has the first bands of a fractional power of the inverse of the prefix-sum matrix."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from hockeystick.strategies.base import BandedSpec
from hockeystick.strategies.matrix.base import Array, StrategyMatrix


class BandedInverseFractionalRoot(BandedSpec):
    """BIFR: the inverse of the prefix-sum matrix to a power, cut to ``bands`` diagonals. No optimisation; raw scale.

    The coefficients of ``C^{-1}`` are those of ``(1 - x)^exponent``. All after the first are negative, so that C has no
    negative entries. With exponent 1/2 this is BISR. With two bands it is DP-lambda-CGD, lambda the exponent: each
    step takes back that part of the previous step's noise.

    >>> BandedInverseFractionalRoot(bands=2, exponent=0.25).matrix(3).materialize().tolist()
    [[1.0, 0.0, 0.0], [0.25, 1.0, 0.0], [0.0625, 0.25, 1.0]]

    Fields:
        bands: p, at least 1 and at most the number of steps.
        exponent: gamma, above 0 and below 1. The larger it is, the more of the earlier noise is cancelled, and the more
            one example's gradients show in later steps.

    Reference: Kalinin, Rehn, Andersson, Honkela, Lampert (2026), "Beyond square roots: explicit memory-efficient
    factorization for multi-epoch private learning" (arXiv 2605.18379, gamma-BIFR). Its abstract names BISR and
    DP-lambda-CGD as cases; the definition here is the power that has both, and was not compared with the paper's text.
    Kalinin, McKenna, Pagh, Lampert (2026), "DP-lambda-CGD: efficient noise correlation for differentially private model
    training" (arXiv 2601.22334).
    """

    kind: Literal["banded_inverse_fractional_root"] = "banded_inverse_fractional_root"
    exponent: Annotated[float, Field(gt=0.0, lt=1.0)]

    def build(self, steps: int) -> StrategyMatrix:
        """A full Toeplitz matrix with ``bands`` coefficients in its inverse."""
        from hockeystick.strategies.matrix.inverse_toeplitz import InverseToeplitzMatrix

        return InverseToeplitzMatrix(fractional_root_coefficients(self.bands, self.exponent), steps)


def fractional_root_coefficients(count: int, exponent: float) -> Array:
    """The first ``count`` coefficients of ``(1 - x)^exponent``."""
    k = np.arange(1.0, count)
    return np.concatenate([[1.0], np.cumprod(1.0 - (exponent + 1.0) / k)])
