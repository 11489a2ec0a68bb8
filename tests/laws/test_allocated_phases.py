"""Different epochs of random allocation together: exact convolutions, quadrature of two bins, and the laws."""

from math import exp, inf, log

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from hockeystick.laws import allocated_epochs
from hockeystick.laws.allocated_epochs import AllocatedEpochs, laws_of_one_epoch
from hockeystick.laws.allocated_phases import AllocatedPhases, Allocation
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.lattice_laws import LatticeLaw
from hockeystick.laws.law import Array
from hockeystick.laws.mean_moments import MeanMoments
from hockeystick.laws.mean_of_ratios import MeanOfRatios
from hockeystick.laws.operations import average, compose, power
from hockeystick.laws.profile import law_delta
from hockeystick.laws.tilted_powers import Copies, Powers
from hockeystick.types import Direction, Side

KINDS = [(Allocation(0.8, 20), 1), (Allocation(1.5, 50), 3), (Allocation(1.0, 7), 2)]


def small_law(side: Side, seed: int, places: int, at_zero: float = 0.0, p_inf: float = 0.0) -> LatticeLaw:
    """A random law around 1, of mass and mean 1 together with what is at 0 and at infinity."""
    first = -(places // 2)
    support = np.exp(0.05 * np.arange(first, first + places))
    shares = np.random.default_rng(seed).random(places) + 0.1

    def tilted(slope: float) -> Array:
        masses: Array = shares * support**slope
        return masses * ((1.0 - at_zero) / float(masses.sum()))

    slope = brentq(lambda slope: float(tilted(slope) @ support) - (1.0 - p_inf), -50.0, 50.0, xtol=1e-15)
    masses = tilted(float(slope))
    return LatticeLaw(side, 0.05, first, masses, at_zero, p_inf)


def exact_delta(laws: list[tuple[LatticeLaw, int]], epsilon: float, direction: Direction) -> float:
    """delta of the product of all finite ratios, convolved in forty digits."""
    with mp.workdps(40):
        first, whole = 0, [mp.mpf(1)]
        for law, count in laws:
            for _ in range(count):
                longer = [mp.mpf(0)] * (len(whole) + len(law.masses) - 1)
                for i, mass in enumerate(whole):
                    for j, other in enumerate(law.masses):
                        longer[i + j] += mass * mp.mpf(float(other))
                first, whole = first + law.first, longer
        ratios = [mp.e ** (mp.mpf(0.05) * (first + i)) for i in range(len(whole))]
        bound = mp.e ** mp.mpf(epsilon)
        if direction is Direction.REMOVE:
            return float(sum(mass * max(ratio - bound, 0) for mass, ratio in zip(whole, ratios, strict=True)))
        return float(sum(mass * max(1 - bound * ratio, 0) for mass, ratio in zip(whole, ratios, strict=True)))


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("direction", list(Direction))
def test_products_of_small_laws_are_their_convolutions(side: Side, direction: Direction) -> None:
    laws = [(small_law(side, seed, places), count) for seed, places, count in ((1, 9, 2), (2, 5, 1), (3, 14, 4))]
    powers = Powers(*(Copies(*law) for law in laws))
    for epsilon in (0.0, 0.12, 0.5, 1.1):
        exact, value = exact_delta(laws, epsilon, direction), powers.delta(epsilon, direction)
        assert value is not None
        if side is Side.UPPER:
            assert exact * (1 - 1e-12) <= value <= exact * (1 + 1e-6)
        else:
            assert exact * (1 - 1e-6) <= value <= exact * (1 + 1e-12)


@pytest.mark.parametrize("direction", list(Direction))
def test_the_rounding_of_many_factors_is_charged(direction: Direction) -> None:
    """Forty different ones, whose sides lie around the exact value and close to it."""
    below, above = ([(small_law(side, seed, 3), 1) for seed in range(40)] for side in (Side.LOWER, Side.UPPER))
    for epsilon in (0.05, 0.6, 1.3):
        exact = exact_delta(above, epsilon, direction)
        lower, upper = (Powers(*(Copies(*law) for law in laws)).delta(epsilon, direction) for laws in (below, above))
        assert lower is not None
        assert upper is not None
        assert exact * (1 - 1e-5) <= lower < exact < upper <= exact * (1 + 1e-5)


@pytest.mark.parametrize("direction", list(Direction))
def test_what_has_no_ratio_is_charged_for_every_factor(direction: Direction) -> None:
    """By what is there in any of the copies: one less the chance of none, and the moment bound has it too."""
    chances = [(1e-4, 3e-4), (2e-4, 1e-5)]
    laws = [(small_law(Side.UPPER, seed, 9, *chances[seed]), 3 - seed) for seed in range(2)]
    finite = [(small_law(Side.UPPER, seed, 9), 3 - seed) for seed in range(2)]
    powers = Powers(*(Copies(*law) for law in laws))
    none = 1.0
    for (at_zero, p_inf), (_, count) in zip(chances, laws, strict=True):
        none *= (1.0 - (p_inf if direction is Direction.REMOVE else at_zero)) ** count
    value = powers.delta(0.3, direction)
    assert value is not None
    assert exact_delta(laws, 0.3, direction) + 1.0 - none <= value
    assert value <= (exact_delta(laws, 0.3, direction) + 1.0 - none) * 1.01
    assert Powers(*(Copies(*law) for law in finite)).delta(0.3, direction) != value
    assert 1.0 - none <= powers.most(30.0, direction) <= 1.01 * (1.0 - none)


@pytest.mark.parametrize("direction", list(Direction))
def test_the_moment_bound_of_a_product_is_above_it(direction: Direction) -> None:
    laws = [(small_law(Side.UPPER, seed, places), count) for seed, places, count in ((1, 9, 2), (3, 14, 4))]
    powers = Powers(*(Copies(*law) for law in laws))
    for epsilon in (0.0, 0.3, 0.9, 1.5):
        exact = exact_delta(laws, epsilon, direction)
        assert exact <= powers.most(epsilon, direction) <= max(30.0 * exact, 1e-6)


@pytest.mark.parametrize("direction", list(Direction))
def test_kinds_that_are_alike_are_copies(direction: Direction) -> None:
    kind = Allocation(1.0, 30)
    apart, together = AllocatedPhases([(kind, 1), (kind, 1), (kind, 2)], 1e-6), AllocatedPhases([(kind, 4)], 1e-6)
    for epsilon in (0.3, 1.0, 2.0):
        several, one = apart.sides(epsilon, direction), together.sides(epsilon, direction)
        assert several is not None
        assert one is not None
        assert several.upper == pytest.approx(one.upper, rel=1e-6)
        assert several.lower == pytest.approx(one.lower, rel=1e-6)


@pytest.mark.parametrize("direction", list(Direction))
def test_different_epochs_are_around_the_laws(direction: Direction) -> None:
    """Grids that are ten times as coarse as those of certificates; the sides are far closer."""
    resolution, phases = Resolution(24, 1e-12), AllocatedPhases(KINDS, 1e-6)
    laws = {}
    for side in Side:
        whole = None
        for kind, count in KINDS:
            step = gaussian_law(kind.noise_multiplier, 1.0, side, resolution)
            part = power(average(step, kind.bins, resolution), count, resolution)
            whole = part if whole is None else compose(whole, part, resolution)
        laws[side] = whole
    for epsilon in (0.5, 1.5, 2.5, 4.0):
        sides = phases.sides(epsilon, direction)
        assert sides is not None
        low, high = (law_delta(laws[side], epsilon, direction) for side in (Side.LOWER, Side.UPPER))
        assert low <= sides.upper * (1 + 1e-12)
        assert sides.lower <= high * (1 + 1e-12)
        assert sides.upper - sides.lower <= 0.3 * (high - low)


def test_far_sides_are_enough_for_what_is_compared() -> None:
    phases = AllocatedPhases(KINDS, 1e-6)
    close = phases.sides(2.0, Direction.REMOVE)
    assert close is not None
    assert phases.sides(2.0, Direction.REMOVE, compared=close.upper) == close
    far = phases.sides(60.0, Direction.REMOVE, compared=1e-6)
    assert far is not None
    assert far.upper < 1e-6


def call_of_two_bins(sigma: float, x: float) -> float:
    """``E ((Y_1 + Y_2) / 2 - x)_+``, one of them in closed form, by the trapezoidal rule."""
    mu = 1.0 / sigma
    z = np.linspace(-12.0, 12.0 + 2.0 * mu, 400_001)
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * (z[1] - z[0])
    strike = 2.0 * x - np.exp(mu * z - 0.5 * mu * mu)
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(strike)
    calls = np.where(strike > 0.0, ndtr(mu / 2 - logs / mu) - strike * ndtr(-mu / 2 - logs / mu), 1.0 - strike)
    return float(density @ (0.5 * calls))


@pytest.mark.parametrize("sigma", [0.8, 1.0, 3.0])
def test_a_law_goes_on_beyond_what_lines_know(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls are above those of a lower law on a grid there too, and what it has at infinity is negligible."""
    bins, spacing, negligible = 20, 0.004, 1e-16
    single = MeanOfRatios(sigma, bins, several=True)
    far = laws_of_one_epoch(single, spacing, negligible)
    monkeypatch.setattr(allocated_epochs, "STILL_MUCH", inf)
    near = laws_of_one_epoch(single, spacing, negligible)
    assert near is not None
    assert far is not None
    assert far[1].p_inf < 1.01 * negligible < near[1].p_inf
    assert len(far[1].masses) > len(near[1].masses)
    places = np.exp(spacing * (far[1].first + np.arange(len(far[1].masses))))
    resolution = Resolution(40, 1e-30)
    grid = average(gaussian_law(sigma, 1.0, Side.LOWER, resolution), bins, resolution)
    for at in np.geomspace(1.0, places[-1], 60):
        call = float(far[1].masses @ np.maximum(places - at, 0.0)) + far[1].p_inf
        exact = law_delta(grid, log(at), Direction.REMOVE)
        assert exact <= call <= max(100.0 * exact, 1e-11)  # lines err by as much
    # Nothing is claimed there from below.
    known = near[0].first + len(near[0].masses)
    assert not far[0].masses[known - far[0].first :].any()


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_the_tail_of_one_order_is_above_the_calls_and_convex(sigma: float) -> None:
    epsilons = np.linspace(0.2, 8.0, 400)
    bounds = MeanMoments(1.0 / sigma, 2, 1).tail(epsilons, 1e-12)
    assert bounds[-1] <= 1e-12 < bounds[-2] or len(bounds) == len(epsilons)
    for at, bound in zip(epsilons[: len(bounds) : 20], bounds[::20], strict=True):
        assert bound >= call_of_two_bins(sigma, exp(at))
    places = np.exp(epsilons[: len(bounds)])
    slopes = np.diff(bounds[bounds < 1.0]) / np.diff(places[bounds < 1.0])
    assert (np.diff(slopes) >= 0.0).all()
    assert log(bounds[0]) <= 0.0


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_the_tail_of_puts_is_above_them_and_convex(sigma: float) -> None:
    """Puts of two bins, one of them in closed form, by the trapezoidal rule."""
    logs, mu = np.linspace(0.2, 30.0, 1000), 1.0 / sigma
    bounds = MeanMoments(mu, 2, 1).tail(logs, 1e-12, Direction.ADD)
    assert bounds[-1] <= 1e-12 < bounds[-2]
    z = np.linspace(-30.0, 12.0, 400_001)
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * (z[1] - z[0])
    for at, bound in zip(logs[: len(bounds) : 20], bounds[::20], strict=True):
        strike = np.maximum(2.0 * exp(-at) - np.exp(mu * z - 0.5 * mu * mu), 1e-300)
        puts = strike * ndtr(np.log(strike) / mu + mu / 2) - ndtr(np.log(strike) / mu - mu / 2)
        assert bound >= density @ (0.5 * np.maximum(puts, 0.0))
    places = np.exp(-logs[: len(bounds)])
    slopes = np.diff(bounds[bounds < 1.0]) / np.diff(places[bounds < 1.0])
    assert (np.diff(slopes) <= 0.0).all()


def test_neither_end_is_left_to_infinity_where_epochs_are_many() -> None:
    """Lines know o to about 1e-11; beyond, ratios of 7,338 epochs counted as infinite, or 0: .6 percent of delta."""
    many = AllocatedEpochs(79.9135, 13, 7338, 1e-6)
    for direction in Direction:
        sides = many.sides(1.121, direction)
        assert sides is not None
        assert sides.upper <= 1.002 * sides.lower
