"""Strategy matrices of closed form, ready at once: for estimates, as their entries have the errors of an FFT."""

from functools import lru_cache

import numpy as np

from hockeystick.mechanism import Mechanism
from hockeystick.strategies import BandedInverseFractionalRoot, BandedSquareRoot, Identity
from hockeystick.strategies.banded_inverse_fractional_root import fractional_root_coefficients
from hockeystick.strategies.banded_square_root import square_root_coefficients
from hockeystick.strategies.base import StrategySpec
from hockeystick.strategies.matrix.base import Array, StrategyMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix

GRAM_ROWS = 16
"""Rows of a Gram matrix of bins that are computed, for few steps."""
GRAM_WORK = 250_000
"""Rows times steps, beyond which there are fewer rows, as ends of the run matter less; at least two."""


class Sketch(ToeplitzMatrix):
    """A Toeplitz matrix whose inverse is known too.

    Args:
        column: of C, shape (p,).
        inverse: first column of ``C^{-1}``, shape (q,) with q <= steps; zeros follow.
        steps: n.
    """

    def __init__(self, column: Array, inverse: Array, steps: int) -> None:
        super().__init__(column, steps)
        self.inverse = inverse

    def solve(self, z: Array) -> Array:
        """``C^{-1} z`` by one product of power series. O(steps log steps * d)."""
        inverse = self.inverse.reshape((-1,) + (1,) * (z.ndim - 1))
        return _product(z, inverse, self.steps)


def sketch(mechanism: Mechanism) -> StrategyMatrix:
    """C for the steps of a mechanism: a sketch where there is a closed form, and the matrix itself elsewhere.

    Raises: InvalidInputError when there is no such matrix; OptimisationError where an optimiser fails.
    """
    strategy, steps = mechanism.strategy, mechanism.sampler.steps
    if isinstance(strategy, Identity | BandedSquareRoot | BandedInverseFractionalRoot):
        strategy.check_all(steps)
        return _sketched(strategy, steps)
    return mechanism.matrix


def gram_rows(matrix: StrategyMatrix, bins: int) -> Array:
    """Evenly spread rows of the inner products of the means of bins, the first among them, shape (rows, bins)."""
    if not isinstance(matrix, ToeplitzMatrix):
        return matrix.bin_gram(bins)
    count = min(max(min(GRAM_ROWS, GRAM_WORK // matrix.steps), 2), bins)
    profile = matrix.bin_profile(bins)
    means = np.zeros((count, matrix.steps))
    for row, first in enumerate(bins * np.arange(count) // count):
        means[row, first:] = profile[: matrix.steps - first]
    size = 1 << (2 * matrix.steps - 1).bit_length()
    products = np.fft.rfft(means, size) * np.fft.rfft(profile, size).conj()
    gram: Array = np.fft.irfft(products, size)[:, :bins]
    return gram


def spread_queries(matrix: ToeplitzMatrix, rows: Array) -> Array:
    """Squared l2 norms of ``a C^{-1}`` for rows a, shape (m, steps); returns shape (m,). O(m steps log steps)."""
    first = np.zeros(matrix.steps)
    first[0] = 1.0
    size = 1 << (2 * matrix.steps - 1).bit_length()
    products = np.fft.rfft(rows, size) * np.fft.rfft(matrix.solve(first), size).conj()
    queries = np.fft.irfft(products, size)[:, : matrix.steps]
    errors: Array = np.einsum("ti,ti->t", queries, queries)
    return errors


@lru_cache(maxsize=16)
def _sketched(strategy: StrategySpec, steps: int) -> Sketch:
    if isinstance(strategy, Identity):
        return Sketch(np.ones(1), np.ones(1), steps)
    if isinstance(strategy, BandedSquareRoot):
        column = square_root_coefficients(strategy.bands)
        return Sketch(column, _reciprocal(column, steps), steps)
    assert isinstance(strategy, BandedInverseFractionalRoot)
    inverse = fractional_root_coefficients(strategy.bands, strategy.exponent)
    return Sketch(np.maximum(_reciprocal(inverse, steps), 0.0), inverse, steps)


def _reciprocal(series: Array, count: int) -> Array:
    """The first ``count`` coefficients of one over a power series, by Newton steps that double their number."""
    reciprocal = np.array([1.0 / series[0]])
    while reciprocal.size < count:
        size = min(2 * reciprocal.size, count)
        rest = -_product(series[:size], reciprocal, size)
        rest[0] += 2.0
        reciprocal = _product(reciprocal, rest, size)
    return reciprocal


def _product(left: Array, right: Array, count: int) -> Array:
    """The first ``count`` coefficients of a product of power series along the first axis."""
    size = 1 << (left.shape[0] + right.shape[0] - 2).bit_length()
    transformed = np.fft.rfft(left, size, axis=0) * np.fft.rfft(right, size, axis=0)
    product: Array = np.fft.irfft(transformed, size, axis=0)[:count]
    missing = count - product.shape[0]
    return np.concatenate([product, np.zeros((missing, *product.shape[1:]))]) if missing > 0 else product
