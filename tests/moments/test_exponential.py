"""The exponential of pairs of doubles against mpmath."""

import mpmath
import numpy as np
import pytest

from hockeystick.moments.double_double import ROUNDING, multiply
from hockeystick.moments.exponential import EXPONENTIAL_ERROR, LARGEST_EXPONENT, exp_pair, exponential


def _number(pair):
    return mpmath.mpf(pair.real) + mpmath.mpf(pair.imag)


def _relative_error(exponent, result):
    with mpmath.workdps(60):
        return abs(_number(result) / mpmath.exp(_number(exponent)) - 1)


def _pairs(size, largest, rng):
    high = rng.uniform(-largest, largest, size)
    return high + 1j * (np.spacing(high) * rng.uniform(-0.5, 0.5, size))


@pytest.mark.parametrize("largest", [1e-300, 1e-20, 1e-3, 0.35, 1.0, 20.0, LARGEST_EXPONENT - 1e-9])
def test_random_pairs(largest):
    exponents = _pairs(800, largest, np.random.default_rng(1))
    results = exponential(exponents)
    assert max(map(_relative_error, exponents, results)) <= EXPONENTIAL_ERROR
    assert (np.abs(results.imag) <= np.spacing(results.real) / 2).all()


def test_around_the_multiples_of_half_ln_2():
    # where the reduction changes its multiple of ln 2, and where what is left of x nearly vanishes
    high = np.arange(-1875, 1876) * 0.5 * np.log(2.0)
    high = np.concatenate([high, np.nextafter(high, np.inf), np.nextafter(high, -np.inf)])
    exponents = high[np.abs(high) <= LARGEST_EXPONENT] + 0j
    assert max(map(_relative_error, exponents, exponential(exponents))) <= EXPONENTIAL_ERROR


def test_the_low_part_counts():
    # a rest that cancels to the last bits: x is the pair nearest to 100 ln 2
    with mpmath.workdps(60):
        log_two = mpmath.log(2)
        high = float(100 * log_two)
        exponent = complex(high, float(100 * log_two - high))
    assert _relative_error(exponent, exp_pair(exponent)) <= EXPONENTIAL_ERROR
    assert _relative_error(exponent, exp_pair(complex(high, 0.0))) > EXPONENTIAL_ERROR


def test_exact_at_zero():
    assert exp_pair(0j) == 1.0


def test_arrays_keep_their_shape():
    exponents = np.arange(6.0).reshape(2, 3) + 0j
    result = exponential(exponents)
    assert result.shape == (2, 3)
    assert result[1, 0] == exp_pair(complex(3.0, 0.0))
    assert (exponential(exponents.T) == result.T).all()


def test_product_of_opposite_exponents():
    exponents = _pairs(500, LARGEST_EXPONENT - 1e-9, np.random.default_rng(2))
    for exponent, other in zip(exponential(exponents), exponential(-exponents), strict=True):
        product = multiply(exponent, other)
        assert abs((product.real - 1.0) + product.imag) <= 2 * EXPONENTIAL_ERROR + 2 * ROUNDING
