"""Operations on laws: discrete pairs by enumeration, averages by independent quadrature, identities, conservation."""

from fractions import Fraction
from itertools import pairwise
from math import prod

import mpmath as mp
import numpy as np
import pytest
from law_oracles import (
    assert_bracketed,
    average_of_two_delta,
    enumerated_delta,
    gaussian_delta,
    hand_built,
    lognormal_call,
    lognormal_put,
    mixture_delta,
)
from scipy.special import ndtr

from hockeystick.errors import InvalidInputError
from hockeystick.laws.discretise import gaussian_law, mixture_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Law, point_mass_at_one
from hockeystick.laws.operations import average, compose, mix, power, thin, unthin
from hockeystick.laws.profile import law_delta
from hockeystick.types import Direction, Side

FINE = Resolution()
MEDIUM = Resolution(nodes_per_unit=32)


def both(make) -> tuple[Law, Law]:
    return make(Side.UPPER), make(Side.LOWER)


def mean_of(ratios) -> Fraction:
    return sum(ratios, Fraction(0)) / len(ratios)


# --- Discrete pairs ------------------------------------------------------------------------------------------------

RESPONSE = ((Fraction(1, 3), Fraction(3, 4)), (Fraction(3), Fraction(1, 4)))
"""Randomized response that tells the truth with probability 3/4."""
THREE = ((Fraction(0), Fraction(1, 8)), (Fraction(1, 2), Fraction(1, 2)), (Fraction(2), Fraction(3, 8)))
LEAKY = ((Fraction(0), Fraction(1, 16)), (Fraction(3, 4), Fraction(3, 4)), (Fraction(3, 2), Fraction(3, 16)))
"""P-mass 1 - 9/16 - 9/32 = 5/32 has no counterpart under Q."""


def discrete(atoms, side: Side) -> Law:
    return hand_built([float(x) for x, _ in atoms], [float(q) for _, q in atoms], 0.0, side)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("atoms", [RESPONSE, THREE], ids=["response", "three"])
def test_power_of_a_discrete_pair(atoms, count: int) -> None:
    """Few pairs of atoms: the nodes are the pairs, and nothing but rounding is lost."""
    upper, lower = both(lambda side: power(discrete(atoms, side), count, FINE))
    epsilons = (0.0, 0.3, 1.0, 2.0, 4.0, 8.0)
    exactly = upper.size * 2 < 300
    assert_bracketed(
        upper,
        lower,
        lambda e, d: enumerated_delta(atoms, count, prod, e, d),
        epsilons,
        gap=1e-9 if exactly else 1.0,
        from_delta=1e-12 if exactly else 2.0,
    )


@pytest.mark.parametrize("count", [30, 64, 200])
def test_power_of_randomized_response_is_binomial(count: int) -> None:
    """Too many atoms for a node each: first order, but on the right side."""
    upper, lower = both(lambda side: power(discrete(RESPONSE, side), count, FINE))

    def exact(epsilon: float, _: Direction) -> mp.mpf:
        c = mp.exp(mp.mpf(epsilon))
        terms = ((mp.binomial(count, k), mp.mpf(3) ** k, mp.mpf(3) ** (count - k)) for k in range(count + 1))
        return mp.fsum(max(b * (p - c * q), mp.mpf(0)) for b, p, q in terms) / mp.mpf(4) ** count

    assert_bracketed(upper, lower, exact, (0.0, 0.5, 2.0, 5.0, 10.0, 25.0), gap=1.0, from_delta=2.0)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 10])
@pytest.mark.parametrize("atoms", [RESPONSE, THREE], ids=["response", "three"])
def test_average_of_a_discrete_pair(atoms, count: int) -> None:
    upper, lower = both(lambda side: average(discrete(atoms, side), count, FINE))
    assert_bracketed(
        upper,
        lower,
        lambda e, d: enumerated_delta(atoms, count, mean_of, e, d),
        (0.0, 0.05, 0.2, 0.5, 0.9),
        gap=1e-9,
        from_delta=1e-12,
    )


@pytest.mark.parametrize("operation", [power, average], ids=["power", "average"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_mass_at_infinity_is_kept_on_the_safe_side(operation, count: int) -> None:
    escaped = 1 - sum(x * q for x, q in LEAKY)
    support, mass = [float(x) for x, _ in LEAKY], [float(q) for _, q in LEAKY]
    law = operation(hand_built(support, mass, float(escaped), Side.UPPER), count, FINE)
    combine = prod if operation is power else mean_of
    for direction in Direction:
        for epsilon in (0.0, 0.2, 0.7, 1.5, 5.0):
            truth = enumerated_delta(LEAKY, count, combine, epsilon, direction)
            bound = law_delta(law, epsilon, direction)
            assert bound >= truth
            if operation is average or direction is Direction.ADD:
                assert bound <= truth * (1 + mp.mpf(10) ** -12) + mp.mpf(10) ** -50
    assert law.p_inf <= float(escaped) * (count if operation is power else 1) * (1 + 1e-12)


def test_repeated_composition_of_ratios_that_leave_the_range_of_doubles() -> None:
    """Ratios 1e-6 and 1e6: after 300 runs every finite ratio is below 1e-280 or above 1e120."""
    p = Fraction(1, 10**6)
    x, q = float(p / (1 - p)), float(p)
    for count in (64, 300):
        for side in Side:
            law = power(hand_built([x, 1.0 / x], [1.0 - q, q], 0.0, side), count, FINE)
            for direction in Direction:
                delta = law_delta(law, 5.0, direction)
                assert delta >= 1.0 - 1e-9 if side is Side.UPPER else delta <= 1.0


# --- Averages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", Side)
def test_averages_that_share_their_doublings_are_those_made_alone(side: Side) -> None:
    law = gaussian_law(1.0, 1.0, side, MEDIUM)
    known: dict[int, Law] = {}
    for count in (12, 7, 1, 25, 16):
        shared, alone = average(law, count, MEDIUM, known=known), average(law, count, MEDIUM)
        assert np.array_equal(shared.support, alone.support)
        assert np.array_equal(shared.mass, alone.mass)
        assert shared.p_inf == alone.p_inf
        assert (shared.mass_error, shared.place_error) == (alone.mass_error, alone.place_error)
    assert sorted(known) == [2, 4, 8, 16]


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_average_of_two_gaussian_steps(sigma: float) -> None:
    """Against mpmath: one copy in closed form, the other integrated to 20 digits (far below the law's own gap)."""
    mu = 1.0 / sigma
    upper, lower = both(lambda side: average(gaussian_law(sigma, 1.0, side, FINE), 2, FINE))
    add_ends = (0.0, 0.1 * mu, 0.5 * mu, mu, 2.0 * mu)
    assert_bracketed(upper, lower, lambda e, d: average_of_two_delta(mu, e, d), add_ends, gap=3e-3, from_delta=1e-14)


@pytest.mark.parametrize("sigma", [1.0, 2.0])
def test_average_of_three_gaussian_steps(sigma: float) -> None:
    """Two copies summed by the trapezium rule, spectrally accurate for a smooth integrand that dies out on both sides.

    The rule is checked against itself at half the points: it is good to 1e-7, the law's gap is above 1e-6.
    """
    mu = 1.0 / sigma
    upper, lower = both(lambda side: average(gaussian_law(sigma, 1.0, side, FINE), 3, FINE))

    def quadrature(epsilon: float, direction: Direction, points: int) -> float:
        y = np.linspace(-9.0, 9.0 + mu, points)
        weight = np.exp(-0.5 * y * y) / np.sqrt(2 * np.pi) * (y[1] - y[0])
        x = np.exp(mu * y - 0.5 * mu * mu)
        two = x[:, None] + x[None, :]
        c = float(np.exp(epsilon))
        strike = 3.0 * c - two if direction is Direction.REMOVE else 3.0 / c - two
        positive = np.maximum(strike, 1e-300)
        level = np.log(positive) / mu
        if direction is Direction.REMOVE:
            option = np.where(strike > 0, ndtr(mu / 2 - level) - positive * ndtr(-mu / 2 - level), 1.0 - strike) / 3.0
        else:
            option = np.where(strike > 0, positive * ndtr(level + mu / 2) - ndtr(level - mu / 2), 0.0) * c / 3.0
        return float(weight @ option @ weight)

    for direction in Direction:
        for epsilon in (0.0, 0.1 * mu, 0.5 * mu, mu):
            exact = quadrature(epsilon, direction, 1801)
            assert exact == pytest.approx(quadrature(epsilon, direction, 901), rel=1e-7)
            above, below = (law_delta(law, epsilon, direction) for law in (upper, lower))
            assert exact * (1 - 3e-3) <= below <= exact * (1 + 1e-7)
            assert exact * (1 - 1e-7) <= above <= exact * (1 + 3e-3)
            assert above - below >= 1e-6 * exact  # so the tolerance of the quadrature hides nothing


def test_closed_forms_of_one_copy_agree_with_each_other() -> None:
    """The oracle's own pieces: put-call parity, and the call at e^eps is Balle and Wang's delta."""
    for mu in (0.3, 1.0, 4.0):
        for strike in (mp.mpf("0.01"), mp.mpf(1), mp.exp(2)):
            call, put = lognormal_call(mu, strike), lognormal_put(mu, strike)
            assert abs(call - put - (1 - strike)) < mp.mpf(10) ** -50
        assert abs(lognormal_call(mu, mp.exp(2)) - gaussian_delta(mu, 2.0)) < mp.mpf(10) ** -50


# --- Identities and conservation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("side", list(Side))
def test_identities(side: Side) -> None:
    law = gaussian_law(0.8, 1.0, side, MEDIUM)
    neutral = point_mass_at_one(side)
    for same in (average(law, 1, MEDIUM), power(law, 1, MEDIUM), thin(law, 1.0)):
        assert np.array_equal(same.support, law.support)
        assert np.array_equal(same.mass, law.mass)
        assert same.p_inf == law.p_inf
    for nothing in (thin(law, 0.0), power(law, 0, MEDIUM), gaussian_law(1.0, 0.0, side, MEDIUM)):
        assert np.array_equal(nothing.support, neutral.support)
        assert np.array_equal(nothing.mass, neutral.mass)
        assert nothing.p_inf == 0.0
    with pytest.raises(InvalidInputError):
        average(law, 0, MEDIUM)


def test_composition_with_nothing_changes_nothing_beyond_the_bracket() -> None:
    upper, lower = both(lambda side: compose(gaussian_law(1.0, 1.0, side, FINE), point_mass_at_one(side), FINE))
    assert_bracketed(upper, lower, lambda e, _: gaussian_delta(1.0, e), (0.0, 1.0, 3.0, 6.0), gap=6e-3)


@pytest.mark.parametrize("count", [2, 3, 7, 12])
def test_power_is_repeated_composition_within_the_gap(count: int) -> None:
    def chain(side: Side) -> Law:
        law = thin(gaussian_law(0.7, 1.0, side, MEDIUM), 0.1)
        result = law
        for _ in range(count - 1):
            result = compose(result, law, MEDIUM)
        return result

    chained = both(chain)
    powered = both(lambda side: power(thin(gaussian_law(0.7, 1.0, side, MEDIUM), 0.1), count, MEDIUM))
    for direction in Direction:
        for epsilon in (0.0, 0.2, 1.0, 2.0):
            values = [[law_delta(law, epsilon, direction) for law in pair] for pair in (chained, powered)]
            assert max(v[1] for v in values) <= min(v[0] for v in values)
            assert max(v[0] for v in values) <= 1.02 * min(v[1] for v in values) + 1e-30


OPERATIONS = {
    "gaussian": lambda law, _: law,
    "thin": lambda law, _: thin(law, 0.01),
    "power": lambda law, r: power(law, 37, r),
    "average": lambda law, r: average(law, 37, r),
    "thin-power": lambda law, r: power(thin(law, 1e-3), 1000, r),
    "average-power": lambda law, r: power(average(law, 20, r), 5, r),
    "mix": lambda law, r: mix([law, thin(law, 0.5), power(law, 2, r)], [0.2, 0.3, 0.5], r),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("sigma", [0.5, 5.0])
def test_mass_and_mean_are_conserved_to_the_stated_errors(name: str, side: Side, sigma: float) -> None:
    law = OPERATIONS[name](gaussian_law(sigma, 1.0, side, MEDIUM), MEDIUM)
    rounding = law.mass_error + law.place_error
    assert np.all(np.diff(law.support) > 0.0)
    assert np.all(law.mass >= 0.0)
    assert law.support[0] >= 0.0
    assert rounding < 1e-8
    assert law.mass.sum() == pytest.approx(1.0, abs=rounding + 1e-40)
    assert law.mean() == pytest.approx(1.0, abs=rounding + 1e-25)
    if side is Side.LOWER:
        assert law.p_inf == 0.0
    else:
        assert 0.0 < law.p_inf < 1e-30


# --- Unthinning and mixing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sigma", "rate"), [(0.2, 1e-6), (0.2, 1e-4), (0.3, 1e-13), (1.0, 1e-9), (1.0, 0.3)])
def test_unthin_undoes_thin_on_the_safe_side(sigma: float, rate: float) -> None:
    """Also at the epsilons (20 to 30) where ratios are smaller than the rounding that the subtraction brings in."""
    law = unthin(thin(gaussian_law(sigma, 1.0, Side.UPPER, FINE), rate), rate)
    mu = 1.0 / sigma
    for direction in Direction:
        for epsilon in (0.0, 1.0, 3.0, 10.0, 15.0, 20.0, 23.0, 24.0, 25.0, 26.0, 28.0, 30.0):
            assert law_delta(law, epsilon, direction) >= gaussian_delta(mu, epsilon)
    if rate == 0.3:
        assert law_delta(law, 1.0, Direction.REMOVE) <= gaussian_delta(mu, 1.0) * (1 + 1e-3)
        assert law_delta(law, 1.0, Direction.ADD) <= gaussian_delta(mu, 1.0) * (1 + 1e-3)


def test_unthin_refuses_what_it_cannot_prove() -> None:
    with pytest.raises(InvalidInputError, match="floor"):
        unthin(gaussian_law(1.0, 1.0, Side.UPPER, MEDIUM), 0.5)
    with pytest.raises(InvalidInputError, match="upper"):
        unthin(thin(gaussian_law(1.0, 1.0, Side.LOWER, MEDIUM), 0.5), 0.5)


def test_mix_reveals_and_a_hidden_mixture_is_below_it() -> None:
    weights, shifts = [0.25, 0.75], [0.5, 2.0]
    upper, lower = both(lambda side: mix([gaussian_law(1.0, s, side, FINE) for s in shifts], weights, FINE))

    def revealed(epsilon: float, _: Direction) -> mp.mpf:
        return mp.fsum(mp.mpf(w) * gaussian_delta(s, epsilon) for w, s in zip(weights, shifts, strict=True))

    hidden = mixture_law(np.array(weights), np.array(shifts), 1.0, Side.UPPER, FINE)
    epsilons = (0.0, 0.4, 1.0, 2.0, 4.0)  # (at 0.5 the best tests of both components coincide)
    assert_bracketed(upper, lower, revealed, epsilons, gap=5e-3)
    for direction in Direction:
        for before, after in pairwise(epsilons):
            assert mixture_delta(weights, shifts, after, direction) < revealed(after, direction)
            assert law_delta(hidden, after, direction) < law_delta(upper, after, direction)
            assert law_delta(upper, after, direction) < law_delta(upper, before, direction)


def test_laws_of_two_sides_do_not_combine() -> None:
    upper, lower = both(lambda side: gaussian_law(1.0, 1.0, side, MEDIUM))
    with pytest.raises(InvalidInputError):
        compose(upper, lower, MEDIUM)
    with pytest.raises(InvalidInputError):
        mix([upper, lower], [0.5, 0.5], MEDIUM)
