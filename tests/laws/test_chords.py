"""Curves between nodes, against a profile that is known."""

from itertools import pairwise
from math import erfc, exp, sqrt

import numpy as np
import pytest

from hockeystick.laws.chords import lower_curve, upper_curve


def exact_delta(shift: float, epsilon: float) -> float:
    """Of ``N(shift, 1)`` against ``N(0, 1)``: ``Phi(s/2 - e/s) - e^e Phi(-s/2 - e/s)``."""

    def phi(x: float) -> float:
        return erfc(-x / sqrt(2)) / 2

    return phi(shift / 2 - epsilon / shift) - exp(epsilon) * phi(-shift / 2 - epsilon / shift)


GRID = np.array([0.3, 0.5, 1.0, 2.0, 4.0])


def profile(epsilons: np.ndarray) -> np.ndarray:
    return np.array([exact_delta(1.0, float(epsilon)) for epsilon in epsilons])


def test_exact_nodes_give_a_curve_on_either_side_of_the_profile() -> None:
    upper, lower = upper_curve(GRID, profile(GRID)), lower_curve(GRID, profile(GRID))
    for epsilon in np.linspace(0.0, 5.0, 301):
        assert lower(epsilon) <= exact_delta(1.0, epsilon) * (1 + 1e-9) <= upper(epsilon) * (1 + 2e-9)


def test_curves_go_through_their_nodes_and_do_not_increase() -> None:
    values = profile(GRID)
    upper, lower = upper_curve(GRID, values), lower_curve(GRID, values)
    for epsilon, value in zip(GRID, values, strict=True):
        assert value <= upper(epsilon) <= value * (1 + 1e-12)
        assert lower(epsilon) == value
    places = np.sort(np.concatenate([np.linspace(0.0, 5.0, 501), GRID, np.nextafter(GRID, 9), np.nextafter(GRID, 0)]))
    for curve in (upper, lower):
        heights = [curve(float(place)) for place in places]
        assert all(right <= left * (1 + 1e-12) for left, right in pairwise(heights))


def test_upper_curve_is_linear_in_the_exponential() -> None:
    curve = upper_curve([1.0, 2.0], [0.4, 0.1])
    t = (np.exp(1.0) + np.exp(2.0)) / 2
    assert curve(float(np.log(t))) == pytest.approx(0.25, rel=1e-12)
    assert curve(float(np.log(np.exp(1.0) / 2))) == pytest.approx(0.7, rel=1e-12)  # half-way to delta = 1 at t = 0
    assert curve(2.5) == pytest.approx(0.1, rel=1e-12)


def test_lower_curve_steps() -> None:
    curve = lower_curve([1.0, 2.0, 3.0], [0.3, 0.1, 0.2])
    assert [curve(epsilon) for epsilon in (0.0, 1.0, 1.0001, 2.0, 3.0, 3.0001)] == [0.3, 0.3, 0.2, 0.2, 0.2, 0.0]


def test_a_later_node_that_is_larger_does_not_raise_the_upper_curve() -> None:
    curve = upper_curve([1.0, 2.0, 3.0], [0.3, 0.9, 0.1])
    assert curve(2.0) == pytest.approx(0.3, rel=1e-12)
    assert curve(2.9) <= 0.3 * (1 + 1e-12)
    assert upper_curve([1.0], [3.0])(0.5) == pytest.approx(1.0, rel=1e-12)


def test_steep_chords_do_not_lose_the_smaller_end() -> None:
    curve = upper_curve([1.0, 700.0], [0.5, 1e-290])
    assert 1e-290 <= curve(700.0) <= 1.1e-290
    assert curve(float(np.nextafter(700.0, 0.0))) >= 1e-290 + 0.5 * 1e-14
