"""Complex exponentials by tangents, against more digits."""

import mpmath as mp
import numpy as np
import pytest

from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.laws.rotations import ERROR, exponentials_less_one, rotations

ANGLES = np.concatenate(
    [
        np.random.default_rng(1).uniform(-4.0, 4.0, 150),
        np.random.default_rng(2).uniform(-1e6, 1e6, 150),
        0.5 * np.pi * np.arange(-8, 9),
        np.nextafter(np.pi, [0.0, 4.0]),
        [0.0, 1e-300, -1e-9],
    ]
)


def test_rotations_err_by_less_than_they_say() -> None:
    with mp.workdps(50):
        for angle, value in zip(ANGLES.tolist(), rotations(ANGLES).tolist(), strict=True):
            assert abs(mp.mpc(value) - mp.expj(mp.mpf(angle))) <= ERROR * UNIT_ROUNDOFF


@pytest.mark.parametrize("real", [0.0, -1e-12, -0.3, -5.0, -800.0])
def test_exponentials_less_one_err_by_less_than_they_say(real: float) -> None:
    """By a share of their argument where that is small, and of 1 where it is not."""
    values = real + 1j * ANGLES
    with mp.workdps(50):
        for value, less in zip(values.tolist(), exponentials_less_one(values).tolist(), strict=True):
            exact = mp.exp(mp.mpc(value)) - 1
            assert abs(mp.mpc(less) - exact) <= 26.0 * UNIT_ROUNDOFF * min(abs(value), 1.0)


def test_shapes_are_those_of_the_angles() -> None:
    angles = ANGLES[:6].reshape(2, 3)
    assert rotations(angles).shape == exponentials_less_one(1j * angles).shape == (2, 3)
    assert rotations(np.empty(0)).shape == (0,)
