"""Normal tails in pairs against mpmath, and the parts of a whole that ranges hold."""

import mpmath
import numpy as np
import pytest

from hockeystick.moments.normal_tail import (
    EXPANDED_ERROR,
    FARTHEST,
    PLACES,
    TAIL_ERROR,
    TERMS,
    in_range,
    normal_tail,
    tail_coefficients,
)


def exact(pair: complex) -> mpmath.mpf:
    return mpmath.mpf(pair.real) + mpmath.mpf(pair.imag)


@pytest.mark.parametrize("z", [0.0, 1e-12, 0.3, 1.0, 5.5, 12.5, 12.566370614359172, 12.57, 13.7, 24.1, FARTHEST])
def test_tail_is_as_close_as_it_says(z: float) -> None:
    with mpmath.workdps(60):
        expected = mpmath.erfc(mpmath.mpf(z) / mpmath.sqrt(2)) / 2
        assert abs(exact(normal_tail(z + 0j)) / expected - 1) <= TAIL_ERROR
        moved = mpmath.erfc((mpmath.mpf(z) + mpmath.mpf(z) * 2.0**-54) / mpmath.sqrt(2)) / 2
        assert abs(exact(normal_tail(complex(z, z * 2.0**-54))) / moved - 1) <= TAIL_ERROR


@pytest.mark.parametrize("z", [0.0, 1e-3, 0.3, 2.5, 12.56, 20.0, FARTHEST])
def test_expanded_tails_are_as_close_as_they_say(z: float) -> None:
    coefficients = np.zeros(TERMS, dtype=np.complex128)
    tail_coefficients(z + 0j, coefficients)
    with mpmath.workdps(60):
        size = mpmath.erfc(mpmath.mpf(z) / mpmath.sqrt(2)) / 2
        for t in (-0.5 / PLACES, 0.5 / PLACES, 0.003):
            expected = mpmath.erfc((mpmath.mpf(z) + mpmath.mpf(t)) / mpmath.sqrt(2)) / 2
            value = sum(exact(pair) * mpmath.mpf(t) ** n for n, pair in enumerate(coefficients.tolist()))
            assert abs(value - expected) <= EXPANDED_ERROR * size


@pytest.mark.parametrize(("left", "right"), [(-2.0, -1.0), (-1.0, 0.0), (-0.5, 0.7), (0.0, 2.0), (3.0, 9.0)])
def test_a_range_holds_what_its_two_tails_leave(left: float, right: float) -> None:
    tails = [normal_tail(abs(end) + 0j) for end in (left, right)]
    part = in_range(1.0 + 0j, tails[0], left >= 0.0, tails[1], right >= 0.0)
    with mpmath.workdps(60):
        expected = mpmath.ncdf(right) - mpmath.ncdf(left)
        assert abs(exact(part) - expected) <= 2.0 * TAIL_ERROR
