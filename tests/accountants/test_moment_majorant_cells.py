"""Majorants on cells: between the exact profile's two sides, where that can be integrated, and refusals."""

from dataclasses import replace
from fractions import Fraction
from math import inf

import mpmath
import numpy as np
import pytest

from hockeystick.accountants.comparison import ACCOUNTANT as COMPARISON
from hockeystick.accountants.moment_majorant_cells import ACCOUNTANT, Mixture, cell_edges, mixture_profile, mixtures
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Array
from hockeystick.mechanism import Mechanism
from hockeystick.moments.cells import cell_moments
from hockeystick.moments.exact import ExactGram, ExactMoments
from hockeystick.moments.exact_gram import circulant, proved_gram
from hockeystick.moments.majorant.base import Polynomial
from hockeystick.moments.majorant.hockey_stick import SplitHockeyStick
from hockeystick.moments.majorant.majorant import divided_expectation, proved_expectation
from hockeystick.moments.majorant.programme import propose
from hockeystick.moments.majorant.ranges import least_ratio, mass_above
from hockeystick.pairs.bin_mixture import BinMixture, from_balls_in_bins
from hockeystick.samplers import BallsInBins
from hockeystick.settings import Settings
from hockeystick.strategies import BandedSquareRoot
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.types import Direction, Side


def settings(delta: float, effort: float = 1.0) -> Settings:
    return Settings(Resolution(24, delta), effort=effort)


def exact_delta(scaled: Array, epsilon: float) -> float:
    """``E (X - e^eps)_+`` for b = 3: the hockey stick without the common factor, integrated over two directions."""
    common = 1.0 / np.linalg.inv(scaled).sum() * (1.0 - 1e-9)
    rest = scaled - common
    values, vectors = np.linalg.eigh(rest)
    assert values[0] < 1e-8 * values[1]
    root = vectors[:, 1:] * np.sqrt(values[1:])
    nodes, weights = np.polynomial.hermite_e.hermegauss(150)
    weights = weights / weights.sum()
    u = np.einsum("ij,jxy->ixy", root, np.stack(np.meshgrid(nodes, nodes, indexing="ij")))
    ratio = np.exp(u - 0.5 * rest.diagonal()[:, None, None]).mean(axis=0)
    hockey_stick = SplitHockeyStick(Direction.REMOVE, epsilon, common).value(ratio)
    return float(weights @ hockey_stick @ weights)


@pytest.mark.parametrize("sigma", [1.5, 4.0])
def test_both_sides_hold_the_exact_profile_between_them(sigma: float) -> None:
    """The Gram matrix of these three bins is too small a ring for itself; its envelope costs little."""
    pair = BinMixture(noise_multiplier=sigma, matrix=BandedMatrix(np.tile([1.0, 0.4], (60, 1))), bins=3)
    bounds = {}
    for side in Side:
        gram = proved_gram(pair.gram, pair.rounding, pair.noise_multiplier, side)
        ring = circulant(gram, side)
        assert ring is not None
        bounds[side] = mixture_profile(Mixture([(1.0, ring)], 6), side, 1e-3, Deadline())
    for epsilon in (0.5, 2.0):
        true = exact_delta(pair.gram / sigma**2, epsilon)
        upper, lower = bounds[Side.UPPER](epsilon), bounds[Side.LOWER](epsilon)
        assert lower <= true * (1.0 + 1e-9)
        assert upper >= true * (1.0 - 1e-9)
        assert upper <= 1.1 * true + 1e-4
        assert lower >= 0.9 * true - 1e-4


def test_narrow_bands_of_a_hundred_bins() -> None:
    """The two sides of the matrix itself, not of an envelope, are close, and above the comparison's lower bound."""
    mechanism = Mechanism(
        strategy=BandedSquareRoot(bands=4), sampler=BallsInBins(bins=100, epochs=10), noise_multiplier=2.0
    )
    pair = from_balls_in_bins(mechanism)
    delta = {}
    for side in Side:
        gram = proved_gram(pair.gram, pair.rounding, pair.noise_multiplier, side)
        first = next(mixtures(gram, side, 1e-5, 2.0))
        assert first.parts[0][1] is gram
        delta[side] = mixture_profile(first, side, 1e-5, Deadline())(5.0)
    below = COMPARISON.bound(pair, Side.LOWER, Settings(Resolution(12, 1e-5))).profiles[Direction.REMOVE](5.0)
    assert max(below, delta[Side.LOWER]) < delta[Side.UPPER] < 1.3 * delta[Side.LOWER]


def test_the_classes_of_a_wide_band_bound_from_above_only() -> None:
    mechanism = Mechanism(
        strategy=BandedSquareRoot(bands=16), sampler=BallsInBins(bins=24, epochs=4), noise_multiplier=2.0
    )
    pair = from_balls_in_bins(mechanism)
    upper = ACCOUNTANT.bound(pair, Side.UPPER, settings(1e-4, effort=0.2))
    assert set(upper.profiles) == set(Direction)
    below = COMPARISON.bound(pair, Side.LOWER, settings(1e-4))
    assert below.delta(2.0) < upper.delta(2.0) < 1.0
    with pytest.raises(UnsupportedError):
        ACCOUNTANT.bound(pair, Side.LOWER, settings(1e-4, effort=0.2))


def test_a_single_bin_is_refused() -> None:
    pair = BinMixture(noise_multiplier=1.0, matrix=BandedMatrix(np.ones((4, 1))), bins=1)
    for side in Side:
        assert ACCOUNTANT.why_not(pair, side) is not None


def ring_gram() -> ExactGram:
    place = np.arange(9)
    distance = np.abs(place[:, None] - place[None, :])
    entries = np.array([1.5, 0.6, 0.0, 0.0, 0.0])[np.minimum(distance, 9 - distance)]
    return ExactGram(entries=entries, scale=1.0, common=0.25)


def test_a_larger_effort_reaches_higher_orders_and_weights_add_up() -> None:
    gram = ring_gram()
    little = list(mixtures(gram, Side.UPPER, 1e-3, 0.2))
    much = list(mixtures(gram, Side.UPPER, 1e-3, 10.0))
    assert little[0].degree < much[-1].degree
    for mixture in (*little, *much):
        assert sum(weight for weight, _ in mixture.parts) == pytest.approx(1.0, abs=1e-12)
    assert len(list(mixtures(gram, Side.LOWER, 1e-3, 10.0))) == 1


def test_outermost_cells_are_negligible_and_starts_are_below_the_ratio() -> None:
    gram = ring_gram()
    edges = cell_edges(gram, 1e-3)
    cells = cell_moments(gram, 2, edges, deadline=Deadline())
    assert mass_above(cells.moments[0]) + mass_above(cells.moments[-1]) < 1e-5
    with mpmath.workdps(40):
        for edge in edges.tolist():
            variance = mpmath.mpf(cells.variance.numerator) / cells.variance.denominator
            ratio = mpmath.exp(mpmath.mpf(edge) - variance / 2) / gram.bins
            assert 1 - 1e-14 <= mpmath.mpf(least_ratio(edge, cells.variance, gram.bins)) / ratio <= 1


def test_the_expectation_of_a_quotient_allows_for_its_value_at_zero() -> None:
    """``P = 1e-3 + 2 x - x^2`` about 0.5: ``P / x`` is ``2 - x`` and 1e-3 / x, which is from 0 to 1e-3 / start."""
    polynomial = Polynomial(centre=0.5, coefficients=np.array([0.751, 1.0, -1.0 + 0j]))
    at_zero = Fraction(0.751) - Fraction(1, 2) - Fraction(1, 4)
    moments = ExactMoments(values=(Fraction(1, 2), Fraction(2, 5)), error=Fraction(0))
    most = at_zero * Fraction(1, 2) / Fraction(0.25)
    main = Fraction(1) - Fraction(2, 5)
    assert divided_expectation(polynomial, moments, 0.25, Side.UPPER) >= main + most
    assert divided_expectation(polynomial, moments, 0.25, Side.LOWER) <= main
    assert divided_expectation(polynomial, moments, 0.25, Side.UPPER) <= main + 3 * most


@pytest.mark.parametrize("side", list(Side))
def test_a_candidate_that_is_not_proved_from_the_start_of_the_cell_on_is_worth_nothing(side: Side) -> None:
    gram = ring_gram()
    edges = cell_edges(gram, 1e-3)
    cells = cell_moments(gram, 4, edges, deadline=Deadline())
    place = edges.size // 2
    start = least_ratio(float(edges[place - 1]), cells.variance, gram.bins)
    hockey_stick = SplitHockeyStick(Direction.REMOVE, 1.0, gram.scale * gram.common)
    moments = cells.moments[place]
    candidate = propose(moments, hockey_stick, side, degree=4, start=start, divided=True)
    assert candidate is not None
    good = proved_expectation(candidate, moments, hockey_stick, side, start, divided=True)
    assert good == pytest.approx(candidate.value, rel=1e-2)
    late = replace(candidate, points=candidate.points[1:])
    useless = inf if side is Side.UPPER else -inf
    assert proved_expectation(late, moments, hockey_stick, side, start, divided=True) == useless
    # twice or half the polynomial is on the wrong side somewhere and must be repaired at a price
    factor = 0.5 if side is Side.UPPER else 2.0
    wrong = replace(
        candidate,
        polynomial=replace(candidate.polynomial, coefficients=factor * candidate.polynomial.coefficients),
    )
    value = proved_expectation(wrong, moments, hockey_stick, side, start, divided=True)
    assert value >= good * (1 - 1e-6) if side is Side.UPPER else value <= good * (1 + 1e-6)


def test_far_epsilons_are_on_the_safe_side() -> None:
    mixture = Mixture([(1.0, ring_gram())], 4)
    upper, lower = (mixture_profile(mixture, side, 1e-2, Deadline()) for side in Side)
    assert lower(650.0) == 0.0
    assert 0.0 < upper(650.0) == upper(600.0) < 1e-3
