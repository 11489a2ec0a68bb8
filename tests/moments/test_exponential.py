"""The exponential of pairs of doubles against mpmath."""

import mpmath
import numpy as np
import pytest

from hockeystick.moments.double_double import ROUNDING, multiply
from hockeystick.moments.exponential import EXPONENTIAL_ERROR, LARGEST_EXPONENT, exp_pair, exponential


def _relative_error(high, low, result, result_low):
    with mpmath.workdps(60):
        truth = mpmath.exp(mpmath.mpf(high) + mpmath.mpf(low))
        return abs((mpmath.mpf(result) + mpmath.mpf(result_low)) / truth - 1)


def _pairs(size, largest, rng):
    high = rng.uniform(-largest, largest, size)
    return high, np.spacing(high) * rng.uniform(-0.5, 0.5, size)


@pytest.mark.parametrize("largest", [1e-300, 1e-20, 1e-3, 0.35, 1.0, 20.0, LARGEST_EXPONENT - 1e-9])
def test_random_pairs(largest):
    high, low = _pairs(800, largest, np.random.default_rng(1))
    result, result_low = exponential(high, low)
    worst = max(map(_relative_error, high, low, result, result_low))
    assert worst <= EXPONENTIAL_ERROR
    assert (np.abs(result_low) <= np.spacing(result) / 2).all()


def test_around_the_multiples_of_half_ln_2():
    # where the reduction changes its multiple of ln 2, and where what is left of x nearly vanishes
    halves = np.arange(-1875, 1876) * 0.5
    high = halves * np.log(2.0)
    high = np.concatenate([high, np.nextafter(high, np.inf), np.nextafter(high, -np.inf)])
    high = high[np.abs(high) <= LARGEST_EXPONENT]
    low = np.zeros_like(high)
    result, result_low = exponential(high, low)
    assert max(map(_relative_error, high, low, result, result_low)) <= EXPONENTIAL_ERROR


def test_the_low_part_counts():
    # a rest that cancels to the last bits: x is the pair nearest to 100 ln 2
    with mpmath.workdps(60):
        log_two = mpmath.log(2)
        high = float(100 * log_two)
        low = float(100 * log_two - high)
    assert _relative_error(high, low, *exp_pair(high, low)) <= EXPONENTIAL_ERROR
    assert _relative_error(high, low, *exp_pair(high, 0.0)) > EXPONENTIAL_ERROR


def test_exact_at_zero():
    assert exp_pair(0.0, 0.0) == (1.0, 0.0)


def test_arrays_keep_their_shape():
    high = np.arange(6.0).reshape(2, 3)
    result, result_low = exponential(high, np.zeros((2, 3)))
    assert result.shape == result_low.shape == (2, 3)
    assert (result[1, 0], result_low[1, 0]) == exp_pair(3.0, 0.0)
    turned, _ = exponential(high.T, np.zeros((3, 2)))
    assert (turned == result.T).all()


def test_product_of_opposite_exponents():
    high, low = _pairs(500, LARGEST_EXPONENT - 1e-9, np.random.default_rng(2))
    result, result_low = exponential(high, low)
    inverse, inverse_low = exponential(-high, -low)
    for i in range(high.size):
        one, one_low = multiply(result[i], result_low[i], inverse[i], inverse_low[i])
        assert abs((one - 1.0) + one_low) <= 2 * EXPONENTIAL_ERROR + 2 * ROUNDING
