"""spread >= exact >= contract on pairs with a closed form, in both directions, far into the tails."""

from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from law_oracles import assert_bracketed, gaussian_delta, hand_built, mixture_delta

from hockeystick.laws.discretise import gaussian_law, mixture_law
from hockeystick.laws.gaussian import about_epsilon
from hockeystick.laws.gaussian import gaussian_delta as closed_form
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Law
from hockeystick.laws.operations import average, compose, power, thin
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.types import Direction, Side

FINE = Resolution()
TO_1E_45 = (0.0, 1e-3, 0.1, 0.3, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 11.0, 12.0, 13.0, 14.0)
"""In units of mu, epsilon - mu^2 / 2 up to 14 takes delta from 0.4 to below 1e-45."""


def both(make) -> tuple[Law, Law]:
    return make(Side.UPPER), make(Side.LOWER)


@pytest.mark.parametrize("sigma", [0.1, 0.2, 0.5, 1.0, 2.0, 10.0, 1e3, 1e5])
def test_gaussian(sigma: float) -> None:
    mu = 1.0 / sigma  # rounds as the engine's own division does
    upper, lower = both(lambda side: gaussian_law(sigma, 1.0, side, FINE))
    epsilons = [k * mu + 0.5 * mu * mu for k in TO_1E_45]
    assert gaussian_delta(mu, epsilons[-1]) < 1e-30
    assert_bracketed(upper, lower, lambda e, _: gaussian_delta(mu, e), epsilons, gap=0.02)
    # Where deltas are used, an order of magnitude tighter:
    assert_bracketed(upper, lower, lambda e, _: gaussian_delta(mu, e), epsilons[:9], gap=4e-3, from_delta=1e-16)


@pytest.mark.parametrize("sigma", [0.001, 0.01, 0.02, 0.0255, 0.028, 0.03, 0.036, 0.04, 0.06])
def test_gaussian_with_next_to_no_noise_stays_two_sided(sigma: float) -> None:
    """Ratios leave the range of doubles at both ends: bounds get loose, not wrong."""
    mu = 1.0 / sigma
    upper, lower = both(lambda side: gaussian_law(sigma, 1.0, side, Resolution(nodes_per_unit=16)))
    epsilons = (0.0, 1.0, 30.0, 100.0, 200.0, 270.0, 280.0, 400.0, 600.0, 640.0, 660.0, 699.0, 701.0, 900.0, 2000.0)
    assert_bracketed(upper, lower, lambda e, _: gaussian_delta(mu, e), epsilons, gap=1.0, from_delta=2.0)
    for law in (upper, lower):
        assert np.all(np.diff(law.support) > 0.0)
        assert np.all(law.mass >= 0.0)
        assert law.support[0] >= 0.0


@pytest.mark.parametrize(
    ("sigma", "rate"), [(1.0, 0.5), (1.0, 1e-3), (0.5, 0.1), (0.2, 1e-6), (5.0, 0.9), (30.0, 1e-4)]
)
def test_one_poisson_step(sigma: float, rate: float) -> None:
    """(1 - q) N(0, sigma^2) + q N(1, sigma^2) against N(0, sigma^2), from the cdfs at the crossing point."""
    mu = 1.0 / sigma
    upper, lower = both(lambda side: thin(gaussian_law(sigma, 1.0, side, FINE), rate))

    def exact(epsilon: float, direction: Direction) -> mp.mpf:
        return mixture_delta([1 - mp.mpf(rate), mp.mpf(rate)], [0.0, mu], epsilon, direction)

    inside = [float(np.log1p(rate * np.expm1(k * mu))) for k in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 6.0)]
    beyond = [-float(np.log1p(-rate)) * factor for factor in (0.3, 0.9, 0.999, 1.5)]  # add ends at -log(1 - q)
    assert_bracketed(upper, lower, exact, inside, gap=5e-3, from_delta=1e-16)
    assert_bracketed(upper, lower, exact, beyond, gap=1.0, from_delta=2.0)


@pytest.mark.parametrize(
    ("weights", "shifts"),
    [
        ([0.25, 0.75], [1.0, 3.0]),
        ([0.9, 0.09, 0.01], [0.0, 1.0, 2.0]),
        ([1e-14, 1.0 - 1e-14], [0.0, 4.0]),
        ([0.5, 0.5], [1e-3, 8.0]),
        (list(np.full(60, 1 / 60)), list(np.linspace(0.05, 3.0, 60))),
    ],
    ids=["two", "three", "nearly-always", "far-apart", "sixty"],
)
def test_gaussian_mixture(weights: list[float], shifts: list[float]) -> None:
    upper, lower = both(lambda side: mixture_law(np.array(weights), np.array(shifts), 1.0, side, FINE))
    epsilons = (0.0, 0.1, 1.0, 3.0, 6.0, 10.0, 25.0, 31.0)
    assert_bracketed(
        upper, lower, lambda e, d: mixture_delta(weights, shifts, e, d), epsilons, gap=5e-3, from_delta=1e-16
    )


@pytest.mark.parametrize("count", [2, 3, 10, 100, 1000, 10**6, 10**9])
def test_power_of_a_gaussian_is_a_gaussian(count: int) -> None:
    """T runs with shift m are one with shift m sqrt(T)."""
    sigma = float(np.sqrt(count))
    mu = mp.sqrt(count) * mp.mpf(1.0 / sigma)
    upper, lower = both(lambda side: power(gaussian_law(sigma, 1.0, side, FINE), count, FINE))
    gap = 5e-3 if count <= 1000 else 0.05
    assert_bracketed(upper, lower, lambda e, _: gaussian_delta(mu, e), (0.0, 0.1, 0.5, 1.0, 2.0, 4.0), gap=gap)
    assert_bracketed(upper, lower, lambda e, _: gaussian_delta(mu, e), (6.0, 8.0, 10.0, 11.0), gap=0.2)
    assert_bracketed(upper, lower, lambda e, _: gaussian_delta(mu, e), (14.0, 20.0, 40.0), gap=1.0, from_delta=2.0)


@pytest.mark.parametrize("smallest_delta", [1e9, 1e12])
def test_what_an_upper_law_skips_or_leaves_outside_its_grid_is_repaired(smallest_delta: float) -> None:
    """Tails of 1e-6 and 1e-3 make the repairs visible: neither Q- nor P-mass may go missing, nor may any delta."""
    loose = Resolution(nodes_per_unit=32, smallest_delta=smallest_delta)
    gaussian = gaussian_law(2.0, 1.0, Side.UPPER, loose)
    cases = {0.5: gaussian, 1.0: power(gaussian, 4, loose), 16.0: power(gaussian, 1024, loose)}
    for mu, law in cases.items():
        rounding = law.mass_error + law.place_error
        assert law.mass.sum() >= 1.0 - rounding
        assert law.mean() >= 1.0 - rounding
        for direction in Direction:
            for k in (0.0, 1.0, 3.0, 5.0, 8.0):
                epsilon = k * mu + 0.5 * mu * mu
                assert law_delta(law, epsilon, direction) >= gaussian_delta(mu, epsilon)
    for law in (average(gaussian, 64, loose), average(gaussian, 7, loose)):
        rounding = law.mass_error + law.place_error
        assert law.mass.sum() >= 1.0 - rounding
        assert law.mean() >= 1.0 - rounding


@pytest.mark.parametrize("smallest_delta", [1e9, 1e12, 1e14])
@pytest.mark.parametrize("count", [2, 3, 8])
def test_what_an_average_skips_comes_back_at_both_ends(smallest_delta: float, count: int) -> None:
    """A discrete law whose mass and mean are 1 to the last bit, with both ends far below the skipping threshold."""
    step = np.arange(-20.0, 20.0)
    support = np.concatenate([[0.0], 2.0**step])
    mass = 2.0 ** (-2.0 * np.abs(step) - 3.0)
    mass = np.concatenate([[1.0 - mass.sum()], mass])
    law = hand_built(support, mass, 1.0 - float(mass @ support), Side.UPPER)
    assert law.mass.sum() == law.mean() == 1.0
    result = average(law, count, Resolution(nodes_per_unit=32, smallest_delta=smallest_delta))
    assert result.mass.sum() >= 1.0 - result.mass_error
    assert result.mean() >= 1.0 - result.mass_error - result.place_error


def test_more_runs_than_the_rounding_bound_covers_leaves_the_trivial_bounds() -> None:
    count = 10**13
    coarse = Resolution(nodes_per_unit=12, smallest_delta=1e-6)
    upper, lower = both(lambda side: power(gaussian_law(3e6, 1.0, side, coarse), count, coarse))
    mu = mp.sqrt(count) / mp.mpf(3e6)
    assert_bracketed(upper, lower, lambda e, _: gaussian_delta(mu, e), (0.0, 1.0, 3.0), gap=1.0, from_delta=2.0)


def test_compose_of_different_gaussians_in_any_order() -> None:
    shifts = (0.3, 0.7, 1.1, 0.2)
    mu = mp.sqrt(mp.fsum(mp.mpf(1.0 / (1.0 / s)) ** 2 for s in shifts))
    orders = ((0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1))

    def chain(side: Side, order: tuple[int, ...]) -> Law:
        laws = [gaussian_law(1.0 / shifts[k], 1.0, side, FINE) for k in order]
        result = laws[0]
        for law in laws[1:]:
            result = compose(result, law, FINE)
        return result

    def in_pairs(side: Side) -> Law:
        a, b, c, d = (gaussian_law(1.0 / s, 1.0, side, FINE) for s in shifts)
        return compose(compose(a, c, FINE), compose(d, b, FINE), FINE)

    uppers = [chain(Side.UPPER, order) for order in orders] + [in_pairs(Side.UPPER)]
    lowers = [chain(Side.LOWER, order) for order in orders] + [in_pairs(Side.LOWER)]
    for upper in uppers:
        for lower in lowers:
            assert_bracketed(upper, lower, lambda e, _: gaussian_delta(mu, e), (0.0, 0.5, 2.0, 5.0), gap=3e-3)


def mean_gap(make, nodes_per_unit: int, largest: float) -> float:
    """Two-sided gap averaged over a dense row of thresholds: at a single one it depends on where the nodes fall."""
    upper, lower = both(lambda side: make(side, Resolution(nodes_per_unit=nodes_per_unit)))
    rows = [(e, d) for e in np.linspace(0.05, 1.0, 200) * largest for d in Direction]
    return float(np.mean([law_delta(upper, e, d) - law_delta(lower, e, d) for e, d in rows]))


@pytest.mark.parametrize(
    ("make", "largest"),
    [
        pytest.param(lambda side, r: gaussian_law(1.0, 1.0, side, r), 4.0, id="gaussian"),
        pytest.param(lambda side, r: thin(gaussian_law(1.0, 1.0, side, r), 0.01), 0.2, id="thin"),
        pytest.param(lambda side, r: power(gaussian_law(10.0, 1.0, side, r), 100, r), 4.0, id="power"),
        pytest.param(lambda side, r: average(gaussian_law(1.0, 1.0, side, r), 100, r), 0.4, id="average"),
    ],
)
def test_the_error_is_of_second_order(make, largest: float) -> None:
    """Twice the nodes, a quarter of the gap."""
    gaps = [mean_gap(make, n, largest) for n in (20, 40, 80)]
    for coarse, fine in pairwise(gaps):
        assert 3.4 <= coarse / fine <= 4.7, gaps


def test_an_enormous_shift_is_told_apart_for_certain() -> None:
    """The rounding that is allowed for may not lift delta above 1, nor overflow on the way."""
    assert closed_form(1.0, 1e9, 1.0, Side.UPPER) == 1.0
    assert closed_form(1.0, 1e9, 1.0, Side.LOWER) < 1.0


@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0, 7.0, 1e4])
def test_the_closed_form_is_rounded_to_its_side(sigma: float) -> None:
    """Against 60 digits, with powers of two as sensitivities; much noise costs digits, as delta is a difference."""
    for sensitivity in (0.25, 1.0, 4.0):
        mu = mp.mpf(sensitivity) / mp.mpf(sigma)
        for k in (0.0, 0.1, 1.0, 3.0, 7.0):
            epsilon = float(k * mu + mu * mu / 2)
            truth = gaussian_delta(mu, epsilon)
            below, above = (closed_form(sigma, sensitivity, epsilon, side) for side in (Side.LOWER, Side.UPPER))
            assert below < truth < above
            assert above <= truth * (1 + mp.mpf(10) ** -6)
            assert below >= truth * (1 - mp.mpf(10) ** -6)


@pytest.mark.parametrize("mu", [0.05, 0.5, 3.0, 20.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_guesses_of_an_epsilon_are_within_some_percent(mu: float, delta: float) -> None:
    exact = smallest_epsilon(lambda epsilon: closed_form(1.0, mu, epsilon, Side.UPPER), delta, Side.UPPER)
    assert abs(about_epsilon(mu, delta) / exact - 1.0) < 0.08


def test_guesses_where_there_is_no_epsilon() -> None:
    """None for no sensitivity; half of mu squared, where nearly all of the profile is below delta."""
    assert about_epsilon(0.0, 1e-5) == 0.0
    assert about_epsilon(1e-6, 0.5) == pytest.approx(5e-13)
