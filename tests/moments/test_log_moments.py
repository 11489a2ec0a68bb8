"""The conversion from moments to delta: valid, as good as a search over orders, and rounded up."""

import math
from itertools import pairwise

import numpy as np
import pytest

from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.groups import chained
from hockeystick.moments.log_moments import (
    LogMoments,
    _best_exponent,
    enough_orders,
    moment_delta,
    moment_profile,
    sparse_orders,
)
from hockeystick.types import Direction, Side

EPSILONS = [0.0, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0]


def gaussian_moments(sigma: float, orders: np.ndarray) -> LogMoments:
    return LogMoments(orders, 0.5 * orders * (orders - 1.0) / sigma**2)


@pytest.mark.parametrize("sigma", [0.3, 0.7, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_at_least_the_exact_gaussian_profile(sigma: float, epsilon: float) -> None:
    exact = gaussian_delta(sigma, 1.0, epsilon, Side.LOWER)
    bound = moment_delta(gaussian_moments(sigma, sparse_orders(4096)), epsilon)
    assert bound >= exact
    if 1e-30 < exact < 0.1:
        assert bound <= 40.0 * math.sqrt(-math.log(exact)) * exact  # Markov's loss is polynomial, not exponential


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_orders_between_integers_are_a_chord(epsilon: float) -> None:
    """Coarse orders give at least what dense orders give: the chord lies above a convex function."""
    dense = moment_delta(gaussian_moments(1.0, np.arange(1.01, 60.0, 0.01)), epsilon)
    coarse = moment_delta(gaussian_moments(1.0, np.arange(2.0, 60.0)), epsilon)
    sparse = moment_delta(gaussian_moments(1.0, np.arange(2.0, 60.0, 5.0)), epsilon)
    assert dense <= coarse <= sparse


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_closed_form_optimum_is_the_best_of_a_fine_search(epsilon: float) -> None:
    moments = gaussian_moments(0.8, np.array([2.0, 3.0, 5.0, 9.0, 33.0]))
    orders = np.linspace(1.0 + 1e-6, 33.0, 200_001)
    values = np.interp(orders, np.append(1.0, moments.orders), np.append(0.0, moments.values))
    search = values - (orders - 1.0) * epsilon + orders * np.log1p(-1.0 / orders) - np.log(orders - 1.0)
    least, order = _best_exponent(moments, epsilon)
    assert least <= search.min() + 1e-9
    assert least >= search.min() - 1e-4
    assert 1.0 < order <= 33.0


def test_infinite_moments_are_left_out() -> None:
    finite = LogMoments(np.array([2.0, 3.0]), np.array([0.5, 1.5]))
    some = LogMoments(np.array([2.0, 3.0, 4.0]), np.array([0.5, 1.5, np.inf]))
    none = LogMoments(np.array([2.0, 3.0]), np.array([np.inf, np.inf]))
    assert moment_delta(some, 2.0) == moment_delta(finite, 2.0)
    assert moment_delta(none, 2.0) == 1.0


def test_stays_in_the_unit_interval_and_never_underflows() -> None:
    profile = moment_profile(gaussian_moments(10.0, sparse_orders(512)))
    values = [profile(epsilon) for epsilon in np.linspace(0.0, 700.0, 300)]
    assert all(0.0 < value <= 1.0 for value in values)
    assert all(a >= b for a, b in pairwise(values))


@pytest.mark.parametrize(("count", "mu"), [(64, 0.4375), (20, 1.3), (8, 3.0)])
def test_users_at_the_largest_epsilon_cost_about_what_a_gaussian_of_their_shift_does(count: int, mu: float) -> None:
    """Links below all doubles stand behind factors of up to e^684: what Markov's inequality and such doubles lose."""
    profile = moment_profile(gaussian_moments(1.0 / mu, sparse_orders(4096)))
    bound = chained(dict.fromkeys(Direction, profile), [Direction.REMOVE] * count)(700.0)
    exact = gaussian_delta(1.0 / mu, float(count), 700.0, Side.LOWER)
    assert exact <= bound <= 1e4 * exact


def test_composition_adds_and_rounds_up() -> None:
    moments = gaussian_moments(1.0, np.array([2.0, 3.0]))
    assert np.all(moments.times(7).values >= 7 * moments.values)
    assert np.all(moments.plus(moments).values >= 2 * moments.values)
    np.testing.assert_allclose(moments.times(7).values, 7 * moments.values, rtol=1e-14)
    both = moments.merged(LogMoments(np.array([1.5, 2.5]), np.array([0.3, 1.7])))
    assert both.orders.tolist() == [1.5, 2.0, 2.5, 3.0]
    assert both.values.tolist() == [0.3, 1.0, 1.7, 3.0]


def test_orders_grow_only_until_the_best_is_inside() -> None:
    asked: list[int] = []

    def compute(top: int) -> LogMoments:
        asked.append(top)
        return gaussian_moments(1.0, sparse_orders(top))

    enough_orders(compute, 4, 64, 1024, smallest_delta=1e-10)
    assert asked == [4, 64]


def test_sparse_orders_are_integers_without_repetition() -> None:
    orders = sparse_orders(5000)
    assert orders[0] == 2
    assert orders[-1] == 5000
    assert np.all(np.diff(orders) >= 1.0)
    assert np.all(orders == np.round(orders))
