"""The floor of a mixture without its common factor, against samples of the mixture itself."""

from fractions import Fraction

import numpy as np
import pytest

from hockeystick.moments.exact import ExactGram
from hockeystick.moments.exact_gram import proved_gram
from hockeystick.moments.floor import BEYOND, floor_of
from hockeystick.moments.majorant.base import Polynomial
from hockeystick.moments.majorant.majorant import price_below
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.types import Side

SAMPLES = 200_000


def gram_of(columns: list[list[float]], bins: int, sigma: float) -> ExactGram:
    pair = BinMixture(noise_multiplier=sigma, matrix=BandedMatrix(np.array(columns)), bins=bins)
    return proved_gram(pair.gram, pair.rounding, sigma, Side.UPPER)


GRAMS = [
    gram_of([[1.0, 0.5]] * 6, 3, 1.0),
    gram_of([[1.0, 0.9, 0.8]] * 8, 8, 0.8),
    gram_of([[3.0, 0.1], [0.2, 0.2], [1.0, 1.0], [0.5, 2.0]], 4, 1.5),
    gram_of([[1.0]] * 20, 20, 2.0),
]


def smallest_sample(gram: ExactGram) -> float:
    rest = gram.scale * gram.entries - gram.variance
    values, vectors = np.linalg.eigh(rest)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    # twice as spread out as the law: every place can occur, and the tails are seen
    points = 2.0 * np.random.default_rng(5).standard_normal((SAMPLES, gram.bins)) @ root.T
    return float(np.exp(points - 0.5 * rest.diagonal()).mean(axis=1).min())


@pytest.mark.parametrize("gram", GRAMS)
def test_no_value_of_the_mixture_is_below_its_floor(gram: ExactGram) -> None:
    assert 0.0 < floor_of(gram) <= smallest_sample(gram)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
def test_the_floor_of_two_alike_bins_is_nearly_attained(sigma: float) -> None:
    """``u_1 = -u_2`` without the common factor: ``Y = e^(-A/2) cosh(u_1)``, smallest at 0."""
    gram = gram_of([[1.0]] * 4, 2, sigma)
    rest = gram.scale * gram.entries[0, 0] - gram.variance
    assert 0.99 * np.exp(-rest / 2) <= floor_of(gram) <= np.exp(-rest / 2)
    assert floor_of(gram) * 1.02 > smallest_sample(gram)  # a floor 2 percent higher would be false


def test_bins_with_a_negative_weight_are_left_out() -> None:
    """``S^-1 1`` has a negative entry where one bin moves more than the others and with them."""
    gram = gram_of([[3.0, 0.1], [0.2, 0.2], [1.0, 1.0], [0.5, 2.0]], 4, 1.5)
    assert np.linalg.solve(gram.entries, np.ones(4)).min() < 0.0
    assert 0.0 < floor_of(gram) <= smallest_sample(gram)


def test_the_price_covers_a_polynomial_below_the_floor() -> None:
    polynomial = Polynomial(centre=1.0, coefficients=np.array([1.0, -3.0, 0.5 + 0j]))
    floor = 0.7
    inside = [Fraction(i, 100) * Fraction(floor) for i in range(101)]
    values = [abs(1 - 3 * (x - 1) + Fraction(1, 2) * (x - 1) ** 2) for x in inside]
    assert price_below(polynomial, floor) >= BEYOND * float(max(values) + 1)


def test_the_price_of_a_polynomial_beyond_doubles_is_infinite() -> None:
    polynomial = Polynomial(centre=1e200, coefficients=np.ones(4, dtype=np.complex128))
    assert price_below(polynomial, 1.0) == float("inf")
