"""Mixtures on a lattice: against exact arithmetic, and against the slow law that evaluates every component."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import comb, prod

import mpmath as mp
import numpy as np
import pytest
from law_oracles import assert_bracketed, mixture_delta

from hockeystick.errors import InvalidInputError
from hockeystick.laws import lattice
from hockeystick.laws.discretise import mixture_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.lattice import lattice_law
from hockeystick.laws.law import Law
from hockeystick.laws.mixture_kernels import polynomial, two_point_sum
from hockeystick.laws.mixtures import any_mixture_law, coarsen, product_mixture_law, sum_masses
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.types import Direction, Side

COARSE = Resolution(nodes_per_unit=8, smallest_delta=1e-12)


def epsilon_of(law: Law, delta: float, direction: Direction) -> float:
    return smallest_epsilon(lambda epsilon: law_delta(law, epsilon, direction), delta, law.side)


def subsets(p: Sequence[Fraction], c: Sequence[int]) -> dict[int, Fraction]:
    """The law of sum_j c[j] Bernoulli(p[j]) by enumeration, exactly."""
    law: dict[int, Fraction] = {}
    for taken in product((False, True), repeat=len(p)):
        place = sum(size for size, yes in zip(c, taken, strict=True) if yes)
        chance = prod((a if yes else 1 - a for a, yes in zip(p, taken, strict=True)), start=Fraction(1))
        law[place] = law.get(place, Fraction(0)) + chance
    return law


# --- kernels -------------------------------------------------------------------------------------------------------


def test_polynomial_is_the_sum_of_its_terms() -> None:
    rng = np.random.default_rng(1)
    coefficients, places = rng.random(40), rng.random(130) * 1.5
    exact = [float(sum(Fraction(c) * Fraction(z) ** k for k, c in enumerate(coefficients))) for z in places]
    np.testing.assert_allclose(polynomial(coefficients, places), exact, rtol=2 * 40 * 2.0**-53)


@pytest.mark.parametrize("c", [[1, 1, 1, 1], [3, 0, 7, 2, 2], [5, 40, 5, 1, 300, 2]])
def test_two_point_sum_is_the_enumerated_law(c: list[int]) -> None:
    p = [Fraction(j + 1, len(c) + 1) for j in range(len(c))]
    masses, off = two_point_sum(np.array([float(a) for a in p]), np.array(c), 0.0)
    exact = subsets([Fraction(float(a)) for a in p], c)
    expected = [float(exact.get(k, Fraction(0))) for k in range(masses.size)]
    assert max(exact) == masses.size - 1
    np.testing.assert_allclose(masses, expected, rtol=4 * len(c) * 2.0**-53)
    assert off == 0.0


def test_long_sums_grow_their_tables_and_lose_no_mass() -> None:
    n = 3000
    masses, off = two_point_sum(np.full(n, 0.3), np.ones(n, np.int64), 1e-40)
    exact = [float(Fraction(3, 10) ** k * Fraction(7, 10) ** (n - k) * comb(n, k)) for k in (850, 900, 960)]
    np.testing.assert_allclose(masses[[850, 900, 960]], exact, rtol=1e-11)
    assert abs(masses.sum() - 1.0) < 1e-12
    assert 0.0 < off < 1e-35
    assert np.count_nonzero(masses) < 1500


# --- sums of sensitivities -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prune", [1e-40, 1e-3])
def test_sums_are_rounded_to_their_side(prune: float) -> None:
    """Pr[S >= t] of the lattice is at least the truth at every t (UPPER), or at most (LOWER)."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        p, c = rng.random(6) ** 3, rng.random(6)
        truth = [
            (float(np.dot(c, bits)), float(np.prod(np.where(bits, p, 1 - p)))) for bits in product((0, 1), repeat=6)
        ]
        for side in Side:
            fine = sum_masses(p, c, 0.01, side, prune=prune)
            for law in (fine, coarsen(fine, 7, side)):
                assert law.masses.sum() + law.lost == pytest.approx(1.0, abs=1e-14)
                places = law.spacing * np.arange(law.masses.size)
                for t in np.linspace(0.0, 4.0, 33)[1:]:
                    above = float(law.masses[places >= t - 1e-12].sum()) + law.lost
                    exact = sum(mass for place, mass in truth if place >= t)
                    if side is Side.UPPER:
                        assert above >= exact - 1e-14
                    else:
                        assert float(law.masses[places >= t + 1e-12].sum()) <= exact + 1e-14


def test_exact_multiples_are_not_rounded_at_all() -> None:
    c = np.array([1, 2, 3, 7]) * 0.1
    for side in Side:
        law = sum_masses(np.full(4, 0.5), c, 0.1, side)
        assert np.count_nonzero(law.masses) == len(subsets([Fraction(1, 2)] * 4, [1, 2, 3, 7]))
        assert law.masses[13] == pytest.approx(1 / 16)


def test_products_are_bracketed() -> None:
    rng = np.random.default_rng(3)
    for _ in range(6):
        p, c = rng.random(4) ** 2, rng.random(4) * 1.5
        bits = list(product((0, 1), repeat=4))
        weights = [float(np.prod(np.where(taken, p, 1 - p))) for taken in bits]
        shifts = [float(np.dot(c, taken)) for taken in bits]
        laws = [product_mixture_law(p, c, 1.0, side, COARSE) for side in Side]
        assert_bracketed(*laws, lambda e, d, w=weights, s=shifts: mixture_delta(w, s, e, d), (0.0, 0.7, 2.0), gap=0.3)


def test_rounding_to_the_wrong_side_is_noticed() -> None:
    """The check above has teeth: an upper law of sums that were rounded down falls below the truth."""
    p, c = np.array([0.4, 0.3]), np.array([0.93, 0.77])
    weights, shifts = [0.42, 0.28, 0.18, 0.12], [0.0, 0.93, 0.77, 1.7]
    wrong = sum_masses(p, c, 0.05, Side.LOWER)
    law = lattice_law(wrong.masses, wrong.spacing, 1.0, Side.UPPER, Resolution(), weight_error=wrong.error)
    assert law_delta(law, 0.7, Direction.REMOVE) < mixture_delta(weights, shifts, 0.7, Direction.REMOVE)


def test_two_sides_of_a_long_product_meet() -> None:
    p, c = np.full(200, 1 / 16), 0.6 / np.sqrt(np.arange(1, 201))
    upper, lower = (product_mixture_law(p, c, 2.0, side, Resolution(smallest_delta=1e-6)) for side in Side)
    for direction in Direction:
        above, below = (epsilon_of(law, 1e-6, direction) for law in (upper, lower))
        assert below <= above <= below * 1.0015


# --- laws on a lattice ---------------------------------------------------------------------------------------------

CASES = [
    ([0.5, 0.5], 1.0),
    ([0.0, 0.0, 1.0], 0.05),
    ([0.9, 0.0, 0.05, 0.0, 0.05], 0.7),
    ([0.0, 0.3, 0.0, 0.0, 0.0, 0.0, 0.7], 1.3),
    ([0.999, 0.0009, 0.0001], 4.0),
    ([0.2, 0.3, 0.5], 1e-5),
    ([0.99, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.01], 2.5),
]


@pytest.mark.parametrize(("masses", "spacing"), CASES)
def test_lattice_laws_are_bracketed(masses: list[float], spacing: float) -> None:
    shifts = [spacing * k for k in range(len(masses))]
    upper, lower = (lattice_law(np.array(masses), spacing, 1.0, side, Resolution()) for side in Side)
    epsilons = [0.0, 0.1 * shifts[-1], shifts[-1], 2.0 * shifts[-1] + 0.5 * shifts[-1] ** 2]
    assert_bracketed(
        upper, lower, lambda e, d: mixture_delta(masses, shifts, e, d), epsilons, gap=5e-3, from_delta=1e-20
    )


def test_random_lattice_laws_are_bracketed_on_coarse_grids() -> None:
    rng = np.random.default_rng(4)
    for _ in range(25):
        size = int(rng.integers(1, 7))
        masses = rng.exponential(size=size + 1) * np.exp(-4.0 * rng.random() * np.arange(size + 1))
        masses /= masses.sum()
        spacing = float(np.exp(rng.uniform(np.log(1e-5), np.log(5.0))))
        shifts = [spacing * k for k in range(size + 1)]
        upper, lower = (lattice_law(masses, spacing, 1.0, side, COARSE) for side in Side)
        epsilons = (0.0, float(rng.random()) * shifts[-1])
        assert_bracketed(upper, lower, lambda e, d, w=masses, s=shifts: mixture_delta(w, s, e, d), epsilons, gap=1e9)


def test_shifts_beyond_the_reach_loosen_the_bounds_and_no_more() -> None:
    """Components at 33, 66 and 99 deviations: nearly certain to be told, yet the rest of the bound keeps its digits."""
    masses, shifts = [0.9, 0.06, 0.03, 0.01], [0.0, 33.0, 66.0, 99.0]
    upper, lower = (lattice_law(np.array(masses), 33.0, 1.0, side, Resolution()) for side in Side)
    assert_bracketed(upper, lower, lambda e, d: mixture_delta(masses, shifts, e, d), (0.0, 1.0, 50.0), gap=5e-3)
    assert_bracketed(upper, lower, lambda e, d: mixture_delta(masses, shifts, e, d), (300.0,), gap=9.0, from_delta=1.0)


def test_the_largest_shifts_do_not_overflow() -> None:
    """One component at 29.9 deviations, rare or certain: exponents up to 900 cancel."""
    for rate in (1.0, 1e-30):
        masses, shifts = [1.0 - rate, rate], [0.0, 29.9]
        with np.errstate(all="raise", under="ignore"):
            upper, lower = (lattice_law(np.array(masses), 29.9, 1.0, side, Resolution()) for side in Side)
        truth = [1 - mp.mpf(rate), mp.mpf(rate)]
        assert_bracketed(
            upper, lower, lambda e, d, w=truth, s=shifts: mixture_delta(w, s, e, d), (0.0, 9.0), gap=9.0, from_delta=2.0
        )


def test_a_thousand_components() -> None:
    """Binomial(1000, 0.02) against the law that evaluates every component, and the two sides against each other."""
    exact = sum_masses(np.full(1000, 0.02), np.ones(1000), 1.0, Side.UPPER, prune=0.0)
    slow = {side: mixture_law(exact.masses, np.arange(1001.0), 8.0, side, COARSE) for side in Side}
    fast = {side: lattice_law(exact.masses, 1.0, 8.0, side, Resolution(), weight_error=exact.error) for side in Side}
    for direction in Direction:
        above, below = (epsilon_of(fast[side], 1e-6, direction) for side in (Side.UPPER, Side.LOWER))
        assert below <= above <= below * 1.001
        for epsilon in (0.0, 1.0, 5.0, 20.0):
            assert law_delta(slow[Side.LOWER], epsilon, direction) <= law_delta(fast[Side.UPPER], epsilon, direction)
            assert law_delta(fast[Side.LOWER], epsilon, direction) <= law_delta(slow[Side.UPPER], epsilon, direction)


@pytest.mark.parametrize("tiny", [1e-5, 1e-20, 1e-300])
def test_unlike_sensitivities_share_a_lattice_of_bounded_size(tiny: float) -> None:
    """A lattice as fine as the likely summand asks for would have 2048 / ``tiny`` points."""
    chances, shifts = np.array([0.5, 1e-6]), np.array([tiny, 1.0])
    upper, lower = (product_mixture_law(chances, shifts, 0.5, side, COARSE) for side in Side)
    weights, places = [0.5, 0.5, 5e-7, 5e-7], [0.0, 2.0 * tiny, 2.0, 2.0 + 2.0 * tiny]
    for direction in Direction:
        for epsilon in (0.1, 1.0, 3.0):
            truth = mixture_delta(weights, places, epsilon, direction)
            assert law_delta(lower, epsilon, direction) <= truth
            assert law_delta(upper, epsilon, direction) >= truth


def test_lost_mass_is_at_infinity() -> None:
    masses = np.array([0.5, 0.3, 0.1])
    law = lattice_law(masses, 1.0, 1.0, Side.UPPER, Resolution(), lost=0.1)
    assert 0.1 <= law.p_inf < 0.1 * (1 + 1e-9)
    assert law.mean() == pytest.approx(1.0, abs=1e-9)
    far = mixture_delta([0.5, 0.3, 0.1, 0.1], [0.0, 1.0, 2.0, 30.0], 5.0, Direction.REMOVE)
    assert law_delta(law, 5.0, Direction.REMOVE) == pytest.approx(float(far), rel=1e-3)
    nothing_else = lattice_law(np.array([0.25]), 1.0, 1.0, Side.UPPER, Resolution(), lost=0.75)
    assert law_delta(nothing_else, 1.0, Direction.REMOVE) == pytest.approx(0.75)


def test_no_participation_is_no_information() -> None:
    for side in Side:
        law = lattice_law(np.array([1.0, 0.0]), 1.0, 1.0, side, Resolution())
        assert all(law_delta(law, 0.0, direction) < 1e-12 for direction in Direction)


def test_errors_of_weights_are_charged() -> None:
    masses = np.array([0.5, 0.5])
    for side, sign in ((Side.UPPER, 1.0), (Side.LOWER, -1.0)):
        sure = lattice_law(masses, 1.0, 1.0, side, Resolution())
        unsure = lattice_law(masses, 1.0, 1.0, side, Resolution(), weight_error=1e-4)
        for direction in Direction:
            change = law_delta(unsure, 0.5, direction) - law_delta(sure, 0.5, direction)
            assert sign * change > 1e-6


def test_what_is_no_law_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="sum to 1"):
        lattice_law(np.array([0.5, 0.4]), 1.0, 1.0, Side.UPPER, COARSE)
    with pytest.raises(InvalidInputError, match="non-negative"):
        lattice_law(np.array([1.5, -0.5]), 1.0, 1.0, Side.UPPER, COARSE)
    with pytest.raises(InvalidInputError, match="lower law"):
        lattice_law(np.array([0.5, 0.4]), 1.0, 1.0, Side.LOWER, COARSE, lost=0.1)
    with pytest.raises(InvalidInputError, match=r"\[0, 1\]"):
        sum_masses(np.array([1.2]), np.ones(1), 1.0, Side.UPPER)


# --- any shifts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shifts", [[0.0, 0.31, 1.1, 0.31], [2.0, 4.0, 0.0, 6.0], [0.0, 0.0, 0.5, 0.7]])
def test_any_mixture_is_bracketed_in_any_order(shifts: list[float]) -> None:
    weights = [0.4, 0.3, 0.2, 0.1]
    upper, lower = (any_mixture_law(np.array(weights), np.array(shifts), 1.0, side, Resolution()) for side in Side)
    assert_bracketed(upper, lower, lambda e, d: mixture_delta(weights, shifts, e, d), (0.0, 0.5, 3.0), gap=5e-3)


# --- the quadrature ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("points", "length", "rate"), [(4, 0.5, 6.0), (4, 0.1, 15.0), (6, 1.0, 4.0), (8, 0.5, 8.0)])
def test_the_bound_of_the_quadrature_holds(points: int, length: float, rate: float) -> None:
    """The rule of so many points on a cell where |y - s| is at most ``rate``, in 60 digits."""
    nodes, weights = ([mp.mpf(x) for x in column] for column in _legendre(points))
    start, end = mp.mpf(rate) - length, mp.mpf(rate)
    half = (end - start) / 2
    values = [mp.exp(-((start + half * (1 + x)) ** 2) / 2) for x in nodes]
    estimate = half * mp.fsum(w * v for w, v in zip(weights, values, strict=True))
    exact = mp.sqrt(mp.pi / 2) * (mp.erf(end / mp.sqrt(2)) - mp.erf(start / mp.sqrt(2)))
    assert 0 < abs(estimate / exact - 1) < lattice._gauss_error(points, length, rate)


def _legendre(points: int) -> tuple[list[mp.mpf], list[mp.mpf]]:
    nodes = [
        mp.findroot(lambda x: mp.legendre(points, x), guess) for guess in np.polynomial.legendre.leggauss(points)[0]
    ]
    slopes = [mp.diff(lambda x: mp.legendre(points, x), x) for x in nodes]
    return nodes, [2 / ((1 - x * x) * slope**2) for x, slope in zip(nodes, slopes, strict=True)]
