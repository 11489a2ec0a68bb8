"""Laws that must hold for every parameter, drawn by Hypothesis.

A comparison of two settings puts the lower bound of the one that is truly more private below the upper bound of
the other: a true order can never break it, a bound on the wrong side or a wrong formula does.
"""

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Law
from hockeystick.laws.operations import average, compose, mix, power, thin
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.types import Direction, Side

COARSE = Resolution(nodes_per_unit=16, smallest_delta=1e-14)
SLACK = 1.03
"""The coarse brackets are this tight (ratio) where delta is at least FROM."""
FROM = 1e-10

few = settings(max_examples=25, derandomize=True, database=None)
sigmas = st.floats(0.4, 8.0)
rates = st.floats(1e-4, 0.9)
counts = st.integers(1, 40)
epsilons = st.floats(0.0, 4.0)
directions = st.sampled_from(Direction)
scale = st.floats(1.0, 3.0)


def gaussian(sigma: float, side: Side) -> Law:
    return gaussian_law(sigma, 1.0, side, COARSE)


def dp_sgd(sigma: float, rate: float, count: int, side: Side) -> Law:
    return power(thin(gaussian(sigma, side), rate), count, COARSE)


def allocation(sigma: float, count: int, side: Side) -> Law:
    return average(gaussian(sigma, side), count, COARSE)


def assert_order(more_private, less_private, epsilon: float, direction: Direction) -> None:
    """lower(more private) <= upper(less private), and the uppers themselves in order up to the width of a bracket."""
    better = {side: law_delta(more_private(side), epsilon, direction) for side in Side}
    worse = {side: law_delta(less_private(side), epsilon, direction) for side in Side}
    assert better[Side.LOWER] <= better[Side.UPPER]
    assert worse[Side.LOWER] <= worse[Side.UPPER]
    assert better[Side.LOWER] <= worse[Side.UPPER]
    if better[Side.UPPER] >= FROM:
        assert better[Side.UPPER] <= SLACK * worse[Side.UPPER]
        assert better[Side.LOWER] <= SLACK * worse[Side.LOWER]


@few
@given(sigmas, rates, counts, epsilons, directions)
def test_two_sided(sigma: float, rate: float, count: int, epsilon: float, direction: Direction) -> None:
    for make in (partial(dp_sgd, sigma, rate, count), partial(allocation, sigma, count)):
        upper, lower = (law_delta(make(side), epsilon, direction) for side in (Side.UPPER, Side.LOWER))
        assert lower <= upper


@few
@given(sigmas, scale, rates, counts, epsilons, directions)
def test_more_noise_is_more_private(
    sigma: float, factor: float, rate: float, count: int, epsilon: float, direction: Direction
) -> None:
    assert_order(
        partial(dp_sgd, sigma * factor, rate, count), partial(dp_sgd, sigma, rate, count), epsilon * rate, direction
    )
    assert_order(partial(allocation, sigma * factor, count), partial(allocation, sigma, count), epsilon / 4, direction)


@few
@given(sigmas, rates, scale, counts, epsilons, directions)
def test_smaller_rates_are_more_private(
    sigma: float, rate: float, factor: float, count: int, epsilon: float, direction: Direction
) -> None:
    assert_order(
        partial(dp_sgd, sigma, rate / factor, count), partial(dp_sgd, sigma, rate, count), epsilon * rate, direction
    )


@few
@given(sigmas, rates, counts, counts, epsilons, directions)
def test_fewer_steps_are_more_private(
    sigma: float, rate: float, count: int, more: int, epsilon: float, direction: Direction
) -> None:
    assert_order(
        partial(dp_sgd, sigma, rate, count), partial(dp_sgd, sigma, rate, count + more), epsilon * rate, direction
    )


@few
@given(sigmas, counts, counts, epsilons, directions)
def test_more_steps_to_hide_in_are_more_private(
    sigma: float, count: int, more: int, epsilon: float, direction: Direction
) -> None:
    """(X_1 + ... + X_t)/t decreases in convex order: it is the mean of its own leave-one-outs."""
    assert_order(partial(allocation, sigma, count + more), partial(allocation, sigma, count), epsilon / 4, direction)


@few
@given(sigmas, rates, st.floats(1e-12, 0.5), directions)
def test_epsilon_and_delta_go_round(sigma: float, rate: float, delta: float, direction: Direction) -> None:
    upper, lower = (
        partial(law_delta, dp_sgd(sigma, rate, 10, s), direction=direction) for s in (Side.UPPER, Side.LOWER)
    )
    above, below = smallest_epsilon(upper, delta, Side.UPPER), smallest_epsilon(lower, delta, Side.LOWER)
    assert upper(above) <= delta
    assert below == 0.0 or lower(below) > delta
    assert below <= above


@few
@given(sigmas, epsilons, scale, directions)
def test_the_profile_falls_with_epsilon(sigma: float, epsilon: float, factor: float, direction: Direction) -> None:
    for side in Side:
        law = allocation(sigma, 7, side)
        assert law_delta(law, epsilon * factor, direction) <= law_delta(law, epsilon, direction)


@few
@given(sigmas, sigmas, sigmas, rates, epsilons, directions)
def test_the_order_of_composition_does_not_matter(
    a: float, b: float, c: float, rate: float, epsilon: float, direction: Direction
) -> None:
    def left(side: Side) -> Law:
        return compose(compose(gaussian(a, side), thin(gaussian(b, side), rate), COARSE), gaussian(c, side), COARSE)

    def right(side: Side) -> Law:
        return compose(gaussian(c, side), compose(thin(gaussian(b, side), rate), gaussian(a, side), COARSE), COARSE)

    assert_order(left, right, epsilon, direction)
    assert_order(right, left, epsilon, direction)


@few
@given(sigmas, rates, epsilons, directions)
def test_revealing_what_was_hidden_is_less_private(
    sigma: float, rate: float, epsilon: float, direction: Direction
) -> None:
    """Poisson sampling with the coin shown: mix the pair with nothing. Hiding the coin (thin) is more private."""

    def revealed(side: Side) -> Law:
        return mix([gaussian(sigma, side), thin(gaussian(sigma, side), 0.0)], [rate, 1.0 - rate], COARSE)

    assert_order(lambda side: thin(gaussian(sigma, side), rate), revealed, epsilon, direction)
    upper = law_delta(revealed(Side.UPPER), epsilon, direction)
    lower = law_delta(gaussian(sigma, Side.LOWER), epsilon, direction)
    assert upper >= rate * lower
