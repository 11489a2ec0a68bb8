"""Bounds on profiles: a value that is known at one epsilon stands in where a profile says less."""

from math import exp

from hockeystick.bounds import falling
from hockeystick.types import Side


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
