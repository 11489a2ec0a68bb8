"""Forward substitution and convolution against scipy's filter, and against the equations themselves."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.signal import lfilter

from hockeystick.strategies.matrix.substitution import toeplitz_solve
from hockeystick.strategies.matrix.toeplitz import convolved

UNIT_ROUNDOFF = 2.0**-53


@pytest.mark.parametrize("shape", [(1,), (50,), (50, 1), (40, 3), (12, 2, 3)])
@pytest.mark.parametrize("bands", [1, 2, 3, 9])
def test_the_result_is_that_of_scipys_filter(shape: tuple[int, ...], bands: int) -> None:
    """The order of the operations is the same; where a compiler fuses some of them, each term is rounded once less."""
    rng = np.random.default_rng(bands * 100 + len(shape))
    taps = rng.normal(size=bands) / bands
    taps[0] = 1.7
    z = rng.normal(size=shape)
    np.testing.assert_allclose(toeplitz_solve(taps, z), lfilter([1.0], taps, z, axis=0), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(convolved(taps, z), lfilter(taps, [1.0], z, axis=0), rtol=1e-13, atol=1e-13)


def test_roundings_are_counted_against_exact_fractions() -> None:
    """With taps below 0 after the first all terms add up: p + 2 roundings in each step are the relative error."""
    rng = np.random.default_rng(3)
    taps = -rng.random(5) / 8.0
    taps[0] = 0.9
    column = toeplitz_solve(taps, np.eye(1, 60)[0])
    exact: list[Fraction] = []
    for t in range(60):
        known = sum(-Fraction(taps[j]) * exact[t - j] for j in range(1, min(t, 4) + 1))
        exact.append((Fraction(int(t == 0)) + known) / Fraction(taps[0]))
    for t, (value, truth) in enumerate(zip(column, exact, strict=True)):
        assert abs(Fraction(value) - truth) <= truth * Fraction((taps.size + 2.0) * (t + 1.0) * UNIT_ROUNDOFF)


def test_what_leaves_the_range_of_doubles_is_not_hidden() -> None:
    assert not np.isfinite(toeplitz_solve([1e-200, -1.0], np.ones(5))).all()
