"""The normal distribution function and its quantiles, against more digits."""

from math import inf, nan

import mpmath as mp
import numpy as np
import pytest

from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.laws.normal import FAR, SMALLEST, log_ndtr, ndtri

PLACES = [*np.linspace(-45.0, 12.0, 115), -1e-300, 0.0, 1e-9, -FAR, np.nextafter(-FAR, -inf), -1e3, -1e7, -1e150, 37.6]


@pytest.mark.parametrize("x", PLACES)
def test_logarithms_err_by_less_than_they_say(x: float) -> None:
    x = float(x)
    with mp.workdps(70):
        exact = mp.log(mp.erfc(-mp.mpf(x) / mp.sqrt(2)) / 2) if abs(x) < 1e4 else _asymptotic(mp.mpf(x))
        value = mp.mpf(float(log_ndtr(x)))
        assert abs(value - exact) <= (2 * mp.mpf(x) ** 2 + 2 * abs(exact) + 16) * UNIT_ROUNDOFF
        if 0.0 < x < 12.0:  # tails above 0 keep their digits
            assert abs(value - exact) <= (2 * x**2 + 16) * UNIT_ROUNDOFF * abs(exact)


def _asymptotic(x: mp.mpf) -> mp.mpf:
    return -(x**2) / 2 - mp.log(-x * mp.sqrt(2 * mp.pi)) - 1 / x**2


def test_logarithms_of_arrays_and_of_what_is_no_number() -> None:
    values = log_ndtr(np.array([[-inf, inf, nan], [-50.0, 0.0, 50.0]]))
    assert values.shape == (2, 3)
    assert values[0, 0] == -inf
    assert values[0, 1] == pytest.approx(0.0, abs=1e-190)
    assert np.isnan(values[0, 2])
    assert values[1].tolist() == [float(log_ndtr(x)) for x in (-50.0, 0.0, 50.0)]
    assert log_ndtr(np.empty(0)).shape == (0,)


@pytest.mark.parametrize("p", [1e-306, 1e-200, 1e-30, 1e-9, 0.01, 0.3, 0.5, 0.77, 0.999, 1.0 - 2.0**-53])
def test_quantiles_are_close(p: float) -> None:
    x = mp.mpf(float(ndtri(p)))
    with mp.workdps(40):
        exact = mp.findroot(lambda at: mp.log(mp.erfc(-at / mp.sqrt(2)) / 2) - mp.log(mp.mpf(p)), x)
        assert abs(x - exact) <= 1e-14 * max(abs(exact), mp.mpf(p))


@pytest.mark.parametrize("p", [0.0, 5e-324, 1e-310, 0.99 * SMALLEST])
def test_rare_quantiles_are_farther_than_the_truth_and_fall(p: float) -> None:
    x = float(ndtri(p))
    assert x < float(ndtri(SMALLEST))
    if p > 0.0:
        with mp.workdps(40):
            exact = mp.findroot(lambda at: mp.log(mp.erfc(-at / mp.sqrt(2)) / 2) - mp.log(mp.mpf(p)), x)
            assert 1.01 * exact < x < exact
    assert ndtri(np.array([1.0, 0.0])).tolist() == [inf, -inf]
