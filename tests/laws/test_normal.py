"""The normal distribution function and its quantiles, against more digits."""

from math import inf, nan

import mpmath as mp
import numpy as np
import pytest

from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.laws.normal import POLYNOMIAL, SCALE, SMALLEST, log_ndtr, ndtri

PLACES = [*np.linspace(-45.0, 12.0, 115), *np.linspace(-0.4, 0.4, 41), -1e-300, 0.0, 1e-9, -1e3, -1e7, -1e150, 37.6]


@pytest.mark.parametrize("x", PLACES)
def test_logarithms_err_by_less_than_they_say(x: float) -> None:
    x = float(x)
    with mp.workdps(70):
        exact = mp.log(mp.erfc(-mp.mpf(x) / mp.sqrt(2)) / 2) if abs(x) < 1e4 else _asymptotic(mp.mpf(x))
        value = mp.mpf(float(log_ndtr(x)))
        assert abs(value - exact) <= (2 * mp.mpf(x) ** 2 + 2 * abs(exact) + 24) * UNIT_ROUNDOFF
        if 0.0 < x < 12.0:  # tails above 0 keep their digits
            assert abs(value - exact) <= (2 * x**2 + 24) * UNIT_ROUNDOFF * abs(exact)


def _asymptotic(x: mp.mpf) -> mp.mpf:
    return -(x**2) / 2 - mp.log(-x * mp.sqrt(2 * mp.pi)) - 1 / x**2


def scaled_tail(place: mp.mpf) -> mp.mpf:
    """``Phi(-x) e^(x^2 / 2)`` over the fraction r at ``2 r - 1``, by mpmath."""
    fraction = (1 + place) / 2
    x = SCALE / fraction - SCALE
    return mp.erfc(x / mp.sqrt(2)) / 2 * mp.exp(x**2 / 2) / fraction


def test_the_polynomial_interpolates_tails_at_chebyshev_nodes() -> None:
    """Coefficients from Lagrange's linear equations, which share nothing with how they were found."""
    with mp.workdps(60):
        count = len(POLYNOMIAL)
        nodes = [mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]
        powers = mp.matrix([[node**power for power in range(count)] for node in nodes])
        solved = mp.lu_solve(powers, mp.matrix([scaled_tail(node) for node in nodes]))
        assert tuple(float(value) for value in solved)[::-1] == POLYNOMIAL


def test_the_polynomial_is_close_everywhere() -> None:
    """At 40 places of each gap between its nodes, and far out; its coefficients are rounded by a unit of their size."""
    sizes = sum(abs(coefficient) for coefficient in POLYNOMIAL)
    with mp.workdps(60):
        places = [mp.cos(mp.pi * k / 960) for k in range(960)] + [mp.mpf(-1) + mp.mpf(10) ** -k for k in (6, 8)]
        for place in places:
            exact = scaled_tail(place)
            value = mp.mpf(0)
            for coefficient in POLYNOMIAL:
                value = value * place + coefficient
            assert abs(value - exact) <= (0.5 * exact + sizes) * UNIT_ROUNDOFF


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
