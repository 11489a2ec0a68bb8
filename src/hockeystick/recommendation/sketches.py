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
    found = np.array([1.0 / series[0]])
    while found.size < count:
        size = min(2 * found.size, count)
        rest = -_product(series[:size], found, size)
        rest[0] += 2.0
        found = _product(found, rest, size)
    return found


def _product(one: Array, other: Array, count: int) -> Array:
    """The first ``count`` coefficients of a product of power series along the first axis."""
    size = 1 << (one.shape[0] + other.shape[0] - 2).bit_length()
    transformed = np.fft.rfft(one, size, axis=0) * np.fft.rfft(other, size, axis=0)
    product: Array = np.fft.irfft(transformed, size, axis=0)[:count]
    missing = count - product.shape[0]
    return np.concatenate([product, np.zeros((missing, *product.shape[1:]))]) if missing > 0 else product
