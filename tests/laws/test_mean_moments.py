"""Bounds by moments of the mean of ratios: against enumeration, plain integrals and laws; they err upwards."""

from itertools import product
from math import exp, factorial, log, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.mean_moments import MARGIN, MeanMoments
from hockeystick.laws.operations import average, power
from hockeystick.laws.profile import law_delta
from hockeystick.types import Direction, Side


@pytest.mark.parametrize(("mu", "bins"), [(0.4, 1), (0.4, 2), (1.3, 3), (2.5, 4)])
def test_moments_are_those_of_all_ways_to_choose_factors(mu: float, bins: int) -> None:
    orders, logs = MeanMoments(mu, bins, 1)._above
    for order, upper in list(zip(orders, logs, strict=True))[:6]:
        whole = int(order)
        exact = sum(
            factorial(whole) / prod(map(factorial, parts)) * exp(sum(0.5 * mu**2 * k * (k - 1.0) for k in parts))
            for parts in product(range(whole + 1), repeat=bins)
            if sum(parts) == whole
        )
        assert upper - MARGIN == pytest.approx(log(exact) - whole * log(bins), rel=0.0, abs=1e-12)


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
def test_orders_below_zero_are_those_of_one_ratio_and_hold_for_two(mu: float) -> None:
    z = np.linspace(-9.0 - 6.0 * mu, 9.0, 600)
    density = np.exp(-0.5 * z * z)
    ratio = np.exp(mu * z - 0.5 * mu * mu)
    below, _ = MeanMoments(mu, 1, 1)._below
    for place in (4, 8, 11):
        size = -float(below[place])
        single = float(np.sum(density * ratio**-size) / np.sum(density))
        pairs = np.sum(np.multiply.outer(density, density) * (0.5 * np.add.outer(ratio, ratio)) ** -size)
        double = float(pairs / np.sum(density) ** 2)
        for bins, exact in ((1, single), (2, double)):
            orders, logs = MeanMoments(mu, bins, 1)._below
            assert orders[place] == -size
            assert logs[place] >= log(exact)
        assert 0.5 * mu**2 * (size + size**2) == pytest.approx(log(single), rel=1e-6)


@settings(max_examples=15, derandomize=True)
@given(
    sigma=st.floats(0.5, 5.0),
    bins=st.integers(1, 200),
    epochs=st.integers(1, 12),
    epsilon=st.floats(0.0, 6.0),
    direction=st.sampled_from(Direction),
)
def test_no_bound_is_below_a_law(sigma: float, bins: int, epochs: int, epsilon: float, direction: Direction) -> None:
    resolution = Resolution(12, 1e-12)
    law = power(average(gaussian_law(sigma, 1.0, Side.LOWER, resolution), bins, resolution), epochs, resolution)
    assert MeanMoments(1.0 / sigma, bins, epochs).delta(epsilon, direction) >= law_delta(law, epsilon, direction)


@pytest.mark.parametrize(("sigma", "bins", "epochs"), [(10.0, 100, 20), (1.0, 10_000, 1), (3.0, 50, 5)])
def test_far_epsilons_are_known_to_be_far(sigma: float, bins: int, epochs: int) -> None:
    for direction in Direction:
        assert MeanMoments(1.0 / sigma, bins, epochs).delta(4.0, direction) < 1e-7


@pytest.mark.parametrize("sigma", [1e-9, 1e-3, 0.05, 1e9])
@pytest.mark.parametrize("bins", [1, 10**6, 10**9])
@pytest.mark.parametrize("epochs", [1, 10**9])
def test_any_size_has_a_bound(sigma: float, bins: int, epochs: int) -> None:
    for direction in Direction:
        assert 0.0 <= MeanMoments(1.0 / sigma, bins, epochs).delta(1.0, direction) <= 1.0
