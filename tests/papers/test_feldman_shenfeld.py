"""Other randomisers than the Gaussian one: their laws, the paper's bounds, capped participations, simulations."""

import sys
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, product
from math import comb, exp, factorial, isfinite, log, prod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

import hockeystick as hs
from hockeystick.accountants import direct
from hockeystick.deadline import Deadline
from hockeystick.laws.profile import law_delta, law_profiles
from hockeystick.pairs.registry import dominating_pair
from hockeystick.reproduction.papers import Output, figures_of, folder_of

PAPER, PACKAGE = "feldman-shenfeld-2025", "hockeystick_papers_feldman_shenfeld_2025"
RESOLUTION = hs.Resolution(48, 1e-6)
REMOVE, ADD = hs.Direction.REMOVE, hs.Direction.ADD
UPPER, LOWER = hs.Side.UPPER, hs.Side.LOWER


@pytest.fixture(scope="module")
def paper() -> dict[str, Any]:
    return dict(figures_of(folder_of(PAPER)))


@pytest.fixture
def randomisers(paper: Any) -> ModuleType:
    return sys.modules[f"{PACKAGE}.randomisers"]


@pytest.fixture
def statements(paper: Any) -> ModuleType:
    return sys.modules[f"{PACKAGE}.statements"]


def laplace_delta(scale: float, epsilon: float, direction: hs.Direction) -> float:
    """By quadrature of the densities themselves, between the kinks."""

    def gain(y: float) -> float:
        p, q = (exp(-abs(y - shift) / scale) / (2.0 * scale) for shift in (1.0, 0.0))
        return max(p - exp(epsilon) * q, 0.0) if direction is REMOVE else max(q - exp(epsilon) * p, 0.0)

    kink = 0.5 * (1.0 + (epsilon if direction is REMOVE else -epsilon) * scale)
    ends = [-40.0 * scale, 0.0, kink, 1.0, 1.0 + 40.0 * scale]
    return sum(quad(gain, low, high)[0] for low, high in pairwise(ends))


@pytest.mark.parametrize("scale", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("direction", list(hs.Direction))
def test_laplace_law_encloses_the_profile(randomisers: Any, scale: float, direction: hs.Direction) -> None:
    randomiser = randomisers.Laplace(scale)
    for epsilon in (0.0, 0.1 / scale, 0.7 / scale):
        truth = laplace_delta(scale, epsilon, direction)
        lower, upper = (law_delta(randomiser.law(side, RESOLUTION), epsilon, direction) for side in (LOWER, UPPER))
        assert lower <= truth * (1.0 + 1e-8)  # of the quadrature
        assert truth * (1.0 - 1e-8) <= upper <= lower * 1.001


@pytest.mark.parametrize("order", [0.0, 0.3, 1.0, 2.0, 7.0])
def test_moments_of_a_step_are_those_of_its_law(randomisers: Any, order: float) -> None:
    """x^r is convex for r <= 0 or r >= 1, and its negative is between."""
    for randomiser in (randomisers.Laplace(0.7), randomisers.RandomisedResponse(4.0)):
        moment = exp(randomiser.log_moment(np.array([order]))[0])
        for side in hs.Side:
            law = randomiser.law(side, RESOLUTION)
            assert moment == pytest.approx(float(law.mass @ law.support**order), rel=1e-5)


def response_profile(odds: int, steps: int, level: Fraction) -> tuple[Fraction, Fraction]:
    """(remove, add) of 1-of-t allocation of randomised response: how many steps say yes is binomial."""
    remove = add = Fraction(0)
    for yes in range(steps + 1):
        chance = Fraction(comb(steps, yes) * odds ** (steps - yes), (1 + odds) ** steps)
        ratio = (yes * Fraction(odds) + (steps - yes) * Fraction(1, odds)) / steps
        remove += chance * max(ratio - level, Fraction(0))
        add += chance * max(1 - level * ratio, Fraction(0))
    return remove, add


@pytest.mark.parametrize("steps", [2, 7, 40])
def test_direct_law_of_randomised_response_encloses_exact_rationals(randomisers: Any, steps: int) -> None:
    randomiser = randomisers.RandomisedResponse(5.0)
    for level in (Fraction(11, 10), Fraction(3, 2), Fraction(3)):
        exact = response_profile(5, steps, level)
        for truth, direction in zip(exact, (REMOVE, ADD), strict=True):
            lower, upper = (
                law_delta(randomisers.direct(randomiser, steps, side, RESOLUTION), log(level), direction)
                for side in (LOWER, UPPER)
            )
            assert lower <= float(truth) * (1 + 1e-12)
            assert float(truth) * (1 - 1e-12) <= upper <= max(1.01 * lower, 1e-12)


def partitions(whole: int, largest: int) -> Iterator[list[int]]:
    if whole == 0:
        yield []
    for part in range(min(whole, largest), 0, -1):
        for rest in partitions(whole - part, part):
            yield [part, *rest]


@pytest.mark.parametrize(("steps", "order"), [(3, 5), (6, 4), (50, 8)])
def test_moments_are_the_sum_over_partitions(randomisers: Any, steps: int, order: int) -> None:
    """Theorem 4.6 as printed, with the number of ways to give the parts to steps: t! / (t - parts)! / repetitions."""
    for randomiser in (randomisers.Laplace(0.5), randomisers.RandomisedResponse(3.0), randomisers.Gaussian(0.8)):
        total = 0.0
        for parts in partitions(order, order):
            if len(parts) > steps:
                continue
            ways = factorial(steps) // factorial(steps - len(parts))
            ways //= prod(factorial(parts.count(part)) for part in set(parts))
            ways *= factorial(order) // prod(factorial(part) for part in parts)
            total += ways * exp(float(randomiser.log_moment(np.array(parts, dtype=float)).sum()))
        expected = log(total) - order * log(steps)
        assert randomisers.log_average_moments(randomiser, steps, order)[order] == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("steps", [4, 300])
def test_every_bound_is_above_the_direct_lower_one(randomisers: Any, steps: int) -> None:
    for randomiser in (randomisers.RandomisedResponse(3.0), randomisers.Laplace(1.0)):
        epsilons = {name: method(randomiser, steps, 1e-6, RESOLUTION) for name, method in randomisers.METHODS.items()}
        del epsilons["poisson"]  # of another scheme
        lower = epsilons.pop("direct_lower")
        assert 0.0 < lower <= min(epsilons.values())
        assert epsilons["direct_upper"] <= min(epsilons.values()) * (1.0 + 1e-3)
        assert all(isfinite(value) for value in epsilons.values())


def test_gaussian_law_is_what_the_accountants_compute(randomisers: Any) -> None:
    run = hs.Mechanism(sampler=hs.RandomAllocation(bins=100), noise_multiplier=1.0)
    for side in hs.Side:
        (law,) = direct.ACCOUNTANT.laws_of(dominating_pair(run), side, hs.Settings(RESOLUTION))
        theirs = hs.Bound("direct", side, hs.Kind.DETERMINISTIC, 1.0, "", law_profiles(law)).epsilon(1e-6)
        ours = randomisers.epsilon_of(randomisers.direct(randomisers.Gaussian(1.0), 100, side, RESOLUTION), 1e-6)
        assert ours == pytest.approx(theirs, rel=1e-6)
    randomiser, steps = randomisers.Gaussian(4.0), 3000
    lower = randomisers.epsilon_of(randomisers.direct(randomiser, steps, LOWER, RESOLUTION), 1e-6)
    assert (
        lower < randomisers.theorem_epsilon(randomiser, steps, 1e-6, RESOLUTION) < 1.5 * lower
    )  # Theorem 3.2, delta0 > 0


def test_capping_participations_never_hurts(statements: Any, tmp_path: Path) -> None:
    """Corollary 4.5 in exact rationals, whichever of the sampled steps count, and by hand for one of two steps."""
    rate, level = Fraction(1, 2), Fraction(2)
    for most, first in product((1, 2), (True, False)):
        which = statements.capped(3, rate, most, first)
        assert sum(which.values()) == 1
        assert max(map(len, which)) == most
        capped = statements.response_deltas(which, 10, 3, level)
        whole = statements.response_deltas(statements.capped(3, rate, 3, first), 10, 3, level)
        assert all(ours < theirs for ours, theirs in zip(capped, whole, strict=True))
    # X is 1/4 + 3/4 (X_1 + X_2) / 2 where one of two counts; 10 and 10 gives 31/4, else at most 649/160.
    which = statements.capped(2, rate, 1, first=False)
    expected = Fraction(1, 121) * (Fraction(31, 4) - 5)
    assert statements.response_deltas(which, 10, 2, Fraction(5))[0] == expected


def test_simulations_meet_the_direct_bounds(statements: Any, tmp_path: Path) -> None:
    """Each of the four fails with probability at most 1e-9 where the lemma and the laws are right."""
    checks = statements.lemma_checks(Output(tmp_path, Deadline()), samples=20_000)
    assert len(checks) == 4
    assert all(check.holds for check in checks)


def test_log_normal_approximation_is_no_bound(statements: Any, randomisers: Any) -> None:
    lower = law_delta(randomisers.direct(randomisers.Gaussian(1.0), 10, LOWER, RESOLUTION), 0.5, REMOVE)
    assert statements.log_normal_delta(1.0, 10, 0.5) < 0.95 * lower


def test_plateau_of_the_largest_order(paper: Any, tmp_path: Path) -> None:
    """With much noise the moments are next to 1, so that epsilon is what Lemma 2.4 gives for a moment of 1."""
    figures = sys.modules[f"{PACKAGE}.figures"]
    each = figures.order_epsilons(4.0, 10**6, 1e-10)
    flat = (log(1e10) - log(59.0) + 60.0 * np.log1p(-1.0 / 60.0)) / 59.0
    assert each[-1] == min(each) == pytest.approx(flat, rel=1e-3)
    assert "0.304" in figures.plateau([4.0], [each[-1]], [60.0])
    assert "no plateau" in figures.plateau([0.5], [3.0], [7.0])
