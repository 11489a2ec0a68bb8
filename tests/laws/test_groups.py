"""Chains of neighbours against chains of real distributions, and against the closed form of the Gaussian."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.laws import groups
from hockeystick.laws.gaussian import SMALLEST, gaussian_delta
from hockeystick.laws.groups import KNOT_SCALE, KNOT_WIDTH, MOST_PARTS, chained, chords
from hockeystick.laws.law import Array
from hockeystick.laws.profile import Profile, each
from hockeystick.types import Direction, Side

REMOVE, ADD = Direction.REMOVE, Direction.ADD


def gaussian(sigma: float, sensitivity: float = 1.0) -> dict[Direction, Callable[[float], float]]:
    return dict.fromkeys(Direction, lambda epsilon: gaussian_delta(sigma, sensitivity, epsilon, Side.UPPER))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 5.0])
@pytest.mark.parametrize("links", [[REMOVE] * 2, [REMOVE] * 3, [ADD] * 10, [REMOVE, ADD]])
def test_gaussians_add_up(sigma: float, links: list[Direction]) -> None:
    """A chain of shifts in one direction is attained, and removing and adding is the shift by 2 of opposite ones."""
    bound = chained(gaussian(sigma), links)
    for epsilon in (0.0, 0.1, 1.0, 5.0, 20.0):
        truth = gaussian_delta(sigma, float(len(links)), epsilon, Side.LOWER)
        assert truth <= bound(epsilon)
        assert bound(epsilon) <= truth * (1.0 + 1e-8) or truth < 1e-100  # where the search for a split has no digits


@pytest.mark.parametrize(("count", "sigma"), [(64, 1.0 / 0.4375), (20, 1.0 / 1.3)])
def test_links_whose_delta_is_below_all_doubles_count(count: int, sigma: float) -> None:
    """Up to e^684 stands before them, as epsilon is 700."""
    truth = gaussian_delta(sigma, float(count), 700.0, Side.LOWER)
    assert chained(gaussian(sigma), [REMOVE] * count)(700.0) >= truth > 1e-45


@pytest.mark.parametrize(("count", "mu"), [(64, 0.4375), (20, 1.3), (70, 0.4)])
def test_links_of_profiles_that_round_to_0_count(count: int, mu: float) -> None:
    """As most profiles do; the Gaussian's own says the smallest double there. 70 links are split evenly."""

    def rounded(epsilon: float) -> float:
        delta = gaussian_delta(1.0 / mu, 1.0, epsilon, Side.UPPER)
        return 0.0 if delta <= SMALLEST else delta

    truth = gaussian_delta(1.0 / mu, float(count), 700.0, Side.LOWER)
    assert chained(dict.fromkeys(Direction, rounded), [REMOVE] * count)(700.0) >= truth > 1e-45


@settings(derandomize=True, max_examples=60)
@given(st.integers(2, 5), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_no_chain_of_distributions_exceeds_it(count: int, outcomes: int, seed: int) -> None:
    """Random distributions in a row: the profiles of a link are the largest of any link of this chain."""
    rng = np.random.default_rng(seed)
    chain = rng.dirichlet(np.full(outcomes, 2.0), size=count + 1)

    def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
        return float(np.maximum(p - exp(epsilon) * q, 0.0).sum())

    profiles = {
        REMOVE: lambda epsilon: max(hockey_stick(p, q, epsilon) for p, q in pairwise(chain)),
        ADD: lambda epsilon: max(hockey_stick(q, p, epsilon) for p, q in pairwise(chain)),
    }
    for epsilon in (0.0, 0.2, 1.0, 2.5):
        for slow in (False, True):
            removed, added = (chained(profiles, [direction] * count, slow=slow)(epsilon) for direction in (REMOVE, ADD))
            assert removed >= hockey_stick(chain[0], chain[-1], epsilon) - 1e-15
            assert added >= hockey_stick(chain[-1], chain[0], epsilon) - 1e-15


@settings(derandomize=True, max_examples=60)
@given(st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_mixed_links_cover_both_ways(outcomes: int, seed: int) -> None:
    """From D_0 down to D_1 and up to D_2, as when one example is replaced by another."""
    first, middle, last = np.random.default_rng(seed).dirichlet(np.full(outcomes, 2.0), size=3)

    def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
        return float(np.maximum(p - exp(epsilon) * q, 0.0).sum())

    profiles = {
        REMOVE: lambda epsilon: max(hockey_stick(p, middle, epsilon) for p in (first, last)),
        ADD: lambda epsilon: max(hockey_stick(middle, p, epsilon) for p in (first, last)),
    }
    for epsilon in (0.0, 0.5, 2.0):
        assert chained(profiles, [REMOVE, ADD])(epsilon) >= hockey_stick(first, last, epsilon) - 1e-15


@pytest.mark.parametrize("sigma", [0.7, 2.0])
@pytest.mark.parametrize("links", [[REMOVE] * 2, [REMOVE] * 3, [ADD] * 5, [REMOVE, ADD]])
def test_slow_profiles_are_read_where_a_split_may_be_the_best(
    sigma: float, links: list[Direction], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bound, to the last bit, as when all splits are computed, from fewer values."""

    def bounds() -> tuple[list[float], int]:
        read: set[tuple[Direction, float]] = set()

        def profile(direction: Direction, epsilon: float) -> float:
            read.add((direction, epsilon))
            return gaussian_delta(sigma, 1.0, epsilon, Side.UPPER)

        bound = chained({direction: partial(profile, direction) for direction in Direction}, links, slow=True)
        return [bound(epsilon) for epsilon in (0.0, 0.05, 0.5, 2.0, 8.0)], len(read)

    def every(
        read: Mapping[Direction, Profile], links: list[Direction], epsilon: float, steps: Array, even: float
    ) -> Array:
        splits = [groups._split(read, links, np.array([epsilon]), np.array([step]))[0] for step in steps[1:]]
        return np.array([even, *splits])

    promising, few = bounds()
    monkeypatch.setattr(groups, "_promising", every)
    all_splits, many = bounds()
    assert promising == all_splits
    assert few < 0.8 * many


@pytest.mark.parametrize("count", [2, 7, MOST_PARTS, MOST_PARTS + 1, 10**9])
def test_never_above_the_even_split(count: int) -> None:
    profiles = gaussian(40.0)
    for epsilon in (0.0, 0.5, 3.0):
        part = epsilon / count
        shares = np.expm1(epsilon) / np.expm1(part) if part else float(count)
        bound = chained(profiles, [REMOVE], count)(epsilon)
        assert bound <= min(profiles[REMOVE](part) * shares, 1.0) * (1.0 + 1e-9) + 1e-300
        assert bound >= gaussian_delta(40.0, float(count), epsilon, Side.LOWER)


@pytest.mark.parametrize("slow", [False, True])
def test_a_chain_is_read_at_many_epsilons_as_at_each_alone(slow: bool) -> None:
    profiles = gaussian(2.0)
    bound = chained(profiles, [REMOVE, ADD], 2, slow=slow)
    epsilons = [0.0, 0.3, 2.0, 690.0, 700.0]
    assert each(bound, epsilons) == [bound(epsilon) for epsilon in epsilons]
    assert each(bound, []) == []
    nothing = each(chained({REMOVE: lambda epsilon: 0.0, ADD: lambda epsilon: 0.0}, [REMOVE, ADD]), [0.0, 1.0])
    assert max(nothing) < 1e-300


def test_chords_stay_above_a_profile_and_near_it() -> None:
    profile = gaussian(1.0)[REMOVE]
    read: list[float] = []

    def counted(epsilon: float) -> float:
        read.append(epsilon)
        return profile(epsilon)

    bound = chords(counted)
    for epsilon in [*np.linspace(0.0, 6.0, 301), 699.9, 700.0]:
        bend = 0.5 * (KNOT_WIDTH * (epsilon + KNOT_SCALE) * (epsilon + 2.0)) ** 2  # of the logarithm between two knots
        assert profile(epsilon) <= bound(epsilon) <= profile(epsilon) * exp(min(bend, 100.0)) + 1e-12
    assert len(read) == len(set(read)) < 100
