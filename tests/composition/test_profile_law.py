"""A law that dominates upper profiles: never below the run, and close where the profile is exact."""

from fractions import Fraction

import numpy as np
import pytest
from composition_oracles import exact_law, hockey_stick, product_pair, random_pair
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.composition.profile_law import law_from_profiles
from hockeystick.laws.dots import law_from_dots
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.grid import Resolution
from hockeystick.laws.operations import compose, power
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.types import Direction, Side

EPSILONS = (0.0, 1e-3, 0.1, 0.5, 1.0, 2.0, 5.0)


def no_tick():
    return None


def exactly(epsilon, direction):
    return 1.0


def law_of(p, q, looseness=exactly):
    """The law of the profiles of a discrete pair, which may be made looser."""

    def profile(direction):
        return lambda at: min(hockey_stick(p, q, at, direction) * looseness(at, direction) * (1 + 1e-12) + 1e-14, 1.0)

    return law_from_profiles({direction: profile(direction) for direction in Direction}, 1e-6, tick=no_tick)


@given(st.integers(0, 10**6), st.integers(2, 6))
@settings(max_examples=60)
def test_the_law_dominates_a_discrete_pair_and_its_compositions(seed, outcomes):
    rng = np.random.default_rng(seed)
    pairs = [random_pair(rng, outcomes), random_pair(rng, 3)]
    laws = [law_of(*pair) for pair in pairs]
    together = compose(laws[0], laws[1], Resolution(40, 1e-6))
    for direction in Direction:
        for epsilon in EPSILONS:
            for law, pair in ((laws[0], pairs[0]), (together, product_pair(pairs))):
                truth = hockey_stick(*pair, epsilon, direction)
                assert law_delta(law, epsilon, direction) >= truth - 1e-15


@given(st.integers(0, 10**6))
@settings(max_examples=40)
def test_loose_profiles_that_are_not_convex_still_give_a_law_that_dominates(seed):
    """Each direction is off by a factor of its own that jumps about."""
    rng = np.random.default_rng(seed)
    pairs = [random_pair(rng, 4), random_pair(rng, 4)]
    wobble = rng.uniform(0.0, 0.5, size=2)

    def looseness(epsilon, direction):
        return 1.0 + wobble[0 if direction is Direction.ADD else 1] * (1.0 + np.sin(37.0 * epsilon))

    laws = [law_of(p, q, looseness) for p, q in pairs]
    together = compose(laws[0], laws[1], Resolution(40, 1e-6))
    for direction in Direction:
        for epsilon in EPSILONS:
            truth = hockey_stick(*product_pair(pairs), epsilon, direction)
            assert law_delta(together, epsilon, direction) >= truth - 1e-15


def test_masses_are_those_of_a_distribution():
    p, q = random_pair(np.random.default_rng(1), 5)
    law = law_of(p, q)
    assert law.mass.sum() == pytest.approx(1.0, abs=1e-12)
    assert law.mean() == pytest.approx(1.0, abs=1e-12)
    assert (law.mass >= 0.0).all()
    assert (np.diff(law.support) > 0.0).all()


@pytest.mark.parametrize("sensitivity", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("runs", [1, 2, 10])
def test_gaussian_profiles_compose_within_a_tenth_of_a_percent(sensitivity, runs):
    """Closed form: runs of sensitivity s are one Gaussian of sensitivity s sqrt(runs)."""
    profiles = dict.fromkeys(Direction, lambda at: gaussian_delta(1.0, sensitivity, at, Side.UPPER))
    law = power(law_from_profiles(profiles, 1e-5, tick=no_tick), runs, Resolution(68, 1e-5))
    exact = smallest_epsilon(lambda at: gaussian_delta(1.0, sensitivity * runs**0.5, at, Side.LOWER), 1e-5, Side.LOWER)
    for direction in Direction:
        epsilon = smallest_epsilon(lambda at, d=direction: law_delta(law, at, d), 1e-5, Side.UPPER)
        assert exact <= epsilon <= exact * 1.001


def test_one_point_gives_the_pair_of_randomised_response():
    """Kairouz, Oh and Viswanath (2015): (eps, delta)-DP composes as this pair does; here delta = 0 and two runs."""
    epsilon = 1.0
    profiles = dict.fromkeys(Direction, lambda at: 0.0 if at >= epsilon else 1.0)
    law = law_from_profiles(profiles, 1e-6, tick=no_tick, drop=epsilon)
    a = np.exp(epsilon) / (1.0 + np.exp(epsilon))
    pair = (np.array([a, 1.0 - a]), np.array([1.0 - a, a]))
    twice = power(law, 2, Resolution(68, 1e-6))
    for at in (0.0, 0.5, 1.5):
        for direction in Direction:
            exact = hockey_stick(*product_pair([pair, pair]), at, direction)
            assert exact <= law_delta(twice, at, direction) <= exact * (1.0 + 1e-9)


def test_two_dots_give_randomised_response_to_the_last_digit():
    ratio = 2.0
    law = law_from_dots({ratio: Fraction(0), 1.0 / ratio: Fraction(1, 2)})
    exact = exact_law(np.array([2.0, 1.0]) / 3.0, np.array([1.0, 2.0]) / 3.0)
    kept = law.mass > 1e-50
    assert np.allclose(law.support[kept], exact.support, rtol=1e-15)
    assert np.allclose(law.mass[kept], exact.mass, rtol=1e-15)
