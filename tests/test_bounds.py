"""Bounds on profiles: a value that is known at one epsilon stands in where a profile says less."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, inf, log, nan

import numpy as np
import pytest

from hockeystick.bounds import Bound, best_of, falling
from hockeystick.errors import InvalidInputError
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.types import Direction, Kind, Side

TRUTH = 3.0 * log(10.0)
"""Where exp(-epsilon) passes 1e-3."""


def exponential(side: Side) -> Bound:
    profiles = {direction: lambda epsilon: exp(-epsilon) for direction in Direction}
    return Bound("exponential", side, Kind.DETERMINISTIC, 1.0, "by definition", profiles)


def test_many_epsilons_at_once_get_what_each_gets_alone() -> None:
    """With slack, with numbers that are none, and through the smaller of two profiles."""

    class Together:
        asked = 0

        def __call__(self, epsilon: float) -> float:
            return nan if epsilon == 2.0 else exp(-epsilon)

        def each(self, epsilons: Sequence[float]) -> list[float]:
            self.asked += 1
            return [self(epsilon) for epsilon in epsilons]

    profile = Together()
    least = best_of(min, profile, lambda epsilon: 0.5 / (1.0 + epsilon))
    bound = Bound("both", Side.UPPER, Kind.DETERMINISTIC, 1.0, "", dict.fromkeys(Direction, least), slack=1e-3)
    epsilons = [0.0, 0.5, 2.0, 3.0]
    assert bound.delta(epsilons).tolist() == [bound.delta(epsilon) for epsilon in epsilons]
    assert profile.asked == 1 + len(epsilons)
    assert bound.delta([]).tolist() == []
    with pytest.raises(InvalidInputError, match=r"701\.0"):
        bound.delta([1.0, 701.0])


def test_deltas_are_numbers_of_python_whatever_a_profile_says() -> None:
    """NumPy's are printed with their type, which no table can read."""
    profiles = {direction: lambda epsilon: np.exp(np.float64(-epsilon)) for direction in Direction}
    bound = Bound("numpy", Side.UPPER, Kind.DETERMINISTIC, 1.0, "by definition", profiles)
    assert repr(bound.delta(0.0)) == "1.0"


def test_a_falling_profile_never_says_less_than_it_knows() -> None:
    def broken_far_away(epsilon: float) -> float:
        return exp(-epsilon) if epsilon < 3.0 else 1.0

    upper = falling(broken_far_away, 2.0, Side.UPPER)
    assert [upper(at) for at in (0.5, 2.0, 2.5)] == [exp(-0.5), exp(-2.0), exp(-2.5)]
    assert upper(5.0) == exp(-2.0)
    assert upper(1.0) == exp(-1.0)


def test_a_lower_bound_stands_in_at_smaller_epsilons() -> None:
    def broken_nearby(epsilon: float) -> float:
        return exp(-epsilon) if epsilon > 1.0 else 0.0

    lower = falling(broken_nearby, 2.0, Side.LOWER)
    assert lower(0.5) == exp(-2.0)
    assert [lower(at) for at in (1.5, 4.0)] == [exp(-1.5), exp(-4.0)]


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("near", [TRUTH, 1.01 * TRUTH, TRUTH / 30.0, 30.0 * TRUTH, 1e-200, 600.0, inf, nan, -1.0, 0.0])
def test_where_a_search_begins_saves_time_alone(side: Side, near: float) -> None:
    epsilon = smallest_epsilon(lambda epsilon: exp(-epsilon), 1e-3, side, near=near)
    assert epsilon == pytest.approx(TRUTH, rel=1e-8)
    assert (exp(-epsilon) <= 1e-3) is (side is Side.UPPER)
    assert smallest_epsilon(lambda epsilon: 1e-4, 1e-3, side, near=near) == 0.0


def test_a_good_guess_takes_fewer_looks() -> None:
    looks: list[float] = []

    def watched(epsilon: float) -> float:
        looks.append(epsilon)
        return exp(-epsilon)

    smallest_epsilon(watched, 1e-3, Side.UPPER)
    without = len(looks)
    smallest_epsilon(watched, 1e-3, Side.UPPER, near=1.02 * TRUTH)
    assert len(looks) - without < without


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("off", [1.0 - 1e-6, 1.0, 1.0 + 1e-6])
def test_next_to_a_very_good_guess_nothing_else_is_looked_at(side: Side, off: float) -> None:
    """Places farther away than the guess is off by cost lines and laws of their own."""
    looks: list[float] = []

    def watched(epsilon: float) -> float:
        looks.append(epsilon)
        return exp(-epsilon)

    smallest_epsilon(watched, 1e-3, side, near=off * TRUTH)
    assert len(looks) <= 5
    assert max(abs(look / TRUTH - 1.0) for look in looks) <= 1e-5


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("off", [0.9, 0.95, 1.05, 1.1])
def test_beyond_a_poor_guess_a_search_goes_as_far_as_its_secant_says(side: Side, off: float) -> None:
    """And half as far again: looks far from the answer cost lines and laws that nothing else needs."""
    looks: list[float] = []

    def watched(epsilon: float) -> float:
        looks.append(epsilon)
        return exp(-epsilon)

    found = smallest_epsilon(watched, 1e-3, side, near=off * TRUTH)
    assert found == pytest.approx(TRUTH, rel=1e-8)
    assert all(1.0 - 0.6 * abs(off - 1.0) < look / TRUTH < 1.0 + 0.6 * abs(off - 1.0) for look in looks[2:])
    assert len(looks) <= 7


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_slack_costs_its_factor_on_the_side_of_the_bound(epsilon: float) -> None:
    """delta moves by (1 + e^epsilon) times the slack: up for upper bounds, down for lower ones, far above rounding."""
    slack = 1e-3
    cost = (1.0 + exp(epsilon)) * slack
    for side, sign in ((Side.UPPER, 1.0), (Side.LOWER, -1.0)):
        bound = replace(exponential(side), slack=slack)
        assert bound.delta(epsilon) == pytest.approx(min(exp(-epsilon) + sign * cost, 1.0), rel=1e-12)
        assert sign * (bound.epsilon(0.1) - exponential(side).epsilon(0.1)) > 0.0
    assert replace(exponential(Side.LOWER), slack=0.9).delta(1.0) == 0.0
    assert replace(exponential(Side.UPPER), slack=0.9).delta(1.0) == 1.0


def test_notebooks_show_bounds_with_every_string_escaped() -> None:
    profiles = dict.fromkeys(Direction, lambda epsilon: 0.25)
    bound = Bound("<b>a</b>", Side.LOWER, Kind.DETERMINISTIC, 1.0, "<script>x</script> & y", profiles)
    shown = bound._repr_html_()
    assert shown.startswith("<table>")
    assert "<b>" not in shown
    assert "<script>" not in shown
    assert "&lt;script&gt;x&lt;/script&gt; &amp; y" in shown
    assert shown.count("<td>0.25</td>") == 6


@pytest.mark.parametrize("broken", Direction)
def test_what_is_not_a_number_bounds_nothing(broken: Direction) -> None:
    """An overflow in one direction's profile must not make an epsilon of 0, nor leave the other direction alone."""
    for side, trivial, epsilon in ((Side.UPPER, 1.0, inf), (Side.LOWER, 0.0, 0.0)):
        good = exponential(side)
        profiles = good.profiles | {broken: lambda at: nan}
        bound = replace(good, profiles=profiles)
        assert bound.profiles[broken](1.0) == trivial
        assert bound.delta(1.0) == (1.0 if side is Side.UPPER else exp(-1.0))
        alone = replace(good, profiles=dict.fromkeys(Direction, lambda at: nan))
        assert alone.delta(1.0) == trivial
        assert alone.epsilon(1e-5) == epsilon
        assert smallest_epsilon(lambda at: nan, 1e-5, side) == epsilon
