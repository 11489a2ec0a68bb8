"""Laws in far units, which reach epsilons up to 700, against contour integrals, closed forms and exact fractions."""

from fractions import Fraction
from math import exp, log

import mpmath as mp
import numpy as np
import pytest
from law_oracles import contour_delta, gaussian_delta, mixture_delta

from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.kernels import Ends, contract_pairs, spread_pairs
from hockeystick.laws.law import FAR, MAX_RATIO, ORDINARY, Law, in_units, point_mass_at_one
from hockeystick.laws.operations import average, compose, mix, power, thin
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.types import Direction, Side

RESOLUTION = Resolution(72, 1e-14)
EPSILONS = (300.0, 400.0, 550.0, 690.0)


def assert_within_a_percent(laws: dict[Side, Law], exact: float, epsilon: float, direction: Direction) -> None:
    """The sides are around the truth in delta, and within 1 percent of ``epsilon`` where delta is that."""
    assert law_delta(laws[Side.LOWER], epsilon, direction) <= exact <= law_delta(laws[Side.UPPER], epsilon, direction)
    low, high = (
        smallest_epsilon(lambda at, law=laws[side]: law_delta(law, at, direction), exact, side)
        for side in (Side.LOWER, Side.UPPER)
    )
    assert 0.99 * epsilon <= low <= epsilon * (1 + 1e-9)
    assert epsilon * (1 - 1e-9) <= high <= 1.01 * epsilon


@pytest.mark.parametrize("sigma", [0.12, 0.1, 0.09])
def test_poisson_sampling_against_a_contour_integral(sigma: float) -> None:
    laws = {side: power(thin(gaussian_law(sigma, 1.0, side, RESOLUTION, FAR), 0.1), 30, RESOLUTION) for side in Side}
    for epsilon in EPSILONS:
        assert_within_a_percent(laws, contour_delta(0.1, 30, sigma, epsilon), epsilon, Direction.REMOVE)


@pytest.mark.parametrize("steps", [1, 16])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_gaussian_against_its_closed_form_in_both_directions(steps: int, epsilon: float) -> None:
    """With ``mu^2 / 2`` near epsilon, both the ratios of the remove and of the add direction are at their ends."""
    mu = (2.0 * epsilon) ** 0.5 - 4.0
    exact = float(gaussian_delta(mu, epsilon))
    laws = {side: power(gaussian_law(steps**0.5 / mu, 1.0, side, RESOLUTION, FAR), steps, RESOLUTION) for side in Side}
    for direction in Direction:
        assert_within_a_percent(laws, exact, epsilon, direction)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_one_thinned_step_against_its_closed_form(epsilon: float) -> None:
    mu = (2.0 * epsilon) ** 0.5 - 3.0
    laws = {side: thin(gaussian_law(1.0 / mu, 1.0, side, RESOLUTION, FAR), 0.05) for side in Side}
    exact = float(mixture_delta([0.95, 0.05], [0.0, mu], epsilon, Direction.REMOVE))
    assert_within_a_percent(laws, exact, epsilon, Direction.REMOVE)


@pytest.mark.parametrize("count", [2, 100])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_an_average_against_its_largest_ratio(count: int, epsilon: float) -> None:
    """The other ratios have mean 1 under Q: beside e^300 they change delta by less than e^-100 of it, or by e^-90."""
    mu = (2.0 * epsilon) ** 0.5 - 3.0
    laws = {side: average(gaussian_law(1.0 / mu, 1.0, side, RESOLUTION, FAR), count, RESOLUTION) for side in Side}
    assert_within_a_percent(laws, float(gaussian_delta(mu, epsilon + log(count))), epsilon, Direction.REMOVE)


def atom(ratio: float, p_mass: float, side: Side) -> Law:
    """P-mass at one ratio, the rest of P where P and Q agree, in far units."""
    masses = np.array([1.0, p_mass * FAR.scale / ratio])
    masses[0] = FAR.scale
    return Law(np.array([1.0 - p_mass, ratio]), masses, 0.0, side, 2.0**-50, 2.0**-50, FAR, FAR.max_ratio)


@pytest.mark.parametrize("side", Side)
def test_products_that_overflow_keep_their_p_mass(side: Side) -> None:
    """Two of e^400 make e^800, which is no double: the P-mass of that pair is known all the same."""
    squared = power(atom(exp(400.0), 0.1, side), 2, RESOLUTION)
    assert law_delta(squared, 500.0, Direction.REMOVE) == pytest.approx(0.01, rel=1e-12)
    assert law_delta(squared, 300.0, Direction.REMOVE) == pytest.approx(0.19, rel=1e-12)


def test_what_is_beyond_the_horizon_counts_through_every_operation() -> None:
    """P-mass 0.01 above 2^1022, taken through a composition, a thinning and an average; a lower law may keep it all."""
    beyond = power(atom(exp(400.0), 0.1, Side.LOWER), 2, RESOLUTION)
    assert beyond.p_inf == pytest.approx(0.01)
    step = gaussian_law(1.0, 1.0, Side.LOWER, RESOLUTION, FAR)
    composed = compose(beyond, step, RESOLUTION)
    assert composed.p_inf == pytest.approx(0.01, rel=1e-9)
    assert composed.p_inf < 0.01
    assert thin(beyond, 0.25).p_inf == pytest.approx(0.0025)
    assert thin(beyond, 0.25).horizon == pytest.approx(0.25 * beyond.horizon)
    mean = average(beyond, 2, RESOLUTION)
    assert mean.p_inf == pytest.approx(0.01, rel=1e-9)
    assert mean.horizon == pytest.approx(0.5 * FAR.max_ratio)
    assert law_delta(mean, 650.0, Direction.REMOVE) <= 0.01
    # Just below the horizon no more is claimed than ratios at the horizon have: 1 - e^700 / 2^1021.
    exact = 0.01 * (1.0 - float(mp.exp(700) / mp.mpf(2) ** 1021))
    assert law_delta(replaced(mean), 700.0, Direction.REMOVE) == pytest.approx(exact, rel=1e-9)
    assert law_delta(replaced(mean), 700.0, Direction.ADD) == 0.0


def replaced(law: Law) -> Law:
    """The law without its nodes."""
    return Law(np.array([1.0]), np.array([0.0]), law.p_inf, law.side, 0.0, 0.0, FAR, law.horizon)


def test_a_horizon_moves_with_the_mass_of_its_partners() -> None:
    """Partners with the P-mass 0.6 are a ratio of 0.6 at least; partners with less than half are left out."""
    whole = replaced(power(atom(exp(400.0), 0.1, Side.LOWER), 2, RESOLUTION))
    for share, kept in ((0.6, True), (0.3, False)):
        partner = Law(np.array([share]), np.array([FAR.scale]), 0.0, Side.LOWER, 0.0, 0.0, FAR)
        law = compose(whole, partner, RESOLUTION)
        assert law.p_inf == pytest.approx(whole.p_inf * share if kept else 0.0)
        assert law.horizon == pytest.approx(FAR.max_ratio * (share if kept else 1.0))


@pytest.mark.parametrize("square", [True, False])
def test_pairs_above_the_limit_are_returned_as_p_mass(square: bool) -> None:
    """Against loops in exact fractions."""
    rng = np.random.default_rng(7)
    g, mass = np.sort(rng.uniform(0.1, 9.0, 12)), rng.uniform(0.1, 1.0, 12)
    h, other = (g, mass) if square else (np.sort(rng.uniform(0.1, 9.0, 9)), rng.uniform(0.1, 1.0, 9))
    grid, limit = np.linspace(0.0, 30.0, 11), 20.0
    p = q = Fraction(0)
    for x, m in zip(g, mass, strict=True):
        for y, n in zip(h, other, strict=True):
            if x * y > limit:
                q += Fraction(m) * Fraction(n)
                p += Fraction(x) * Fraction(m) * Fraction(y) * Fraction(n)
    ends = Ends(0.0, limit)
    out, excess, skipped_q, skipped_p = spread_pairs(g, mass, h, other, grid, True, square, ends)
    assert (skipped_q, skipped_p) == (pytest.approx(float(q)), pytest.approx(float(p)))
    assert out.sum() + skipped_q == pytest.approx(mass.sum() * other.sum())
    assert out @ grid + excess + skipped_p == pytest.approx((mass @ g) * (other @ h))
    out_q, out_p, beyond = contract_pairs(g, mass, h, other, grid, True, square, ends)
    assert beyond == pytest.approx(float(p))
    assert out_q.sum() == pytest.approx(mass.sum() * other.sum() - float(q))
    assert out_p.sum() + beyond == pytest.approx((mass @ g) * (other @ h))


@pytest.mark.parametrize("side", Side)
def test_units_change_what_is_held_and_not_the_side(side: Side) -> None:
    mu = 20.0
    far = gaussian_law(1.0 / mu, 1.0, side, RESOLUTION, FAR)
    ordinary = in_units(far, ORDINARY)
    assert in_units(far, FAR) is far
    assert float(ordinary.support.max()) <= MAX_RATIO
    for epsilon in (0.0, 100.0, 200.0, 250.0, 300.0):
        exact = float(gaussian_delta(mu, epsilon))
        for direction in Direction:
            delta = law_delta(ordinary, epsilon, direction)
            assert delta >= exact if side is Side.UPPER else delta <= exact
    assert law_delta(ordinary, 100.0, Direction.ADD) == pytest.approx(float(gaussian_delta(mu, 100.0)), rel=1e-2)
    again = in_units(gaussian_law(1.0, 1.0, side, RESOLUTION), FAR)
    assert again.mean() == pytest.approx(1.0)
    plain = gaussian_law(1.0, 1.0, side, RESOLUTION)
    assert law_delta(again, 2.0, Direction.REMOVE) == law_delta(plain, 2.0, Direction.REMOVE)


@pytest.mark.parametrize("side", Side)
def test_laws_of_different_units_combine(side: Side) -> None:
    near, far = gaussian_law(1.0, 1.0, side, RESOLUTION), gaussian_law(1.0 / 30.0, 1.0, side, RESOLUTION, FAR)
    for law in (compose(near, far, RESOLUTION), compose(far, near, RESOLUTION)):
        assert law.units == FAR
        exact = float(gaussian_delta(901.0**0.5, 550.0))
        assert law_delta(law, 550.0, Direction.REMOVE) == pytest.approx(exact, rel=2e-2)
        above = law_delta(law, 550.0, Direction.REMOVE) >= exact
        assert above is (side is Side.UPPER)
    assert law_delta(compose(far, point_mass_at_one(side), RESOLUTION), 550.0, Direction.REMOVE) > 0.0
    half = law_delta(far, 400.0, Direction.REMOVE) / 2
    assert law_delta(mix([near, far], [0.5, 0.5], RESOLUTION), 400.0, Direction.REMOVE) == pytest.approx(half, rel=1e-2)


def test_p_mass_beyond_the_horizon_is_that_above_the_largest_ratio() -> None:
    """Coarse cells, of which the largest ratio cuts one: only the part above it counts, whatever the grid."""
    mu = 36.0
    top = float(mp.log(FAR.max_ratio)) / mu + 0.5 * mu
    exact = float(mp.ncdf(mu - top))
    for nodes in (4, 5, 7, 11, 72):
        law = gaussian_law(1.0 / mu, 1.0, Side.LOWER, Resolution(nodes, 1e-14), FAR)
        assert 0.0 < law.p_inf <= exact
