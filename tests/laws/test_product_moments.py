"""Contour integrals for different Poisson steps, against thirty-digit moments, equal steps and composed laws."""

from math import log, log1p

import mpmath as mp
import numpy as np
import pytest
from law_oracles import exact_moment

from hockeystick.laws.contours import Profiles
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import point_mass_at_one
from hockeystick.laws.operations import compose, power, thin
from hockeystick.laws.poisson_moments import Line, PoissonMoments
from hockeystick.laws.product_moments import Part, ProductMoments, near_by_moments
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.types import Direction, Side

PHASES = ((0.01, 1.0, 300), (0.03, 1.4, 120), (0.002, 0.7, 900))
SCHEDULE = tuple((0.05, 1.0 + 0.03 * place, 4) for place in range(40))
"""Rate, noise multiplier, steps."""


def product(phases: tuple[tuple[float, float, int], ...]) -> ProductMoments:
    return ProductMoments([Part(PoissonMoments(rate, sigma), steps) for rate, sigma, steps in phases])


@pytest.mark.parametrize("order", [4.0, 1.05, -3.0])
def test_the_power_of_the_mean_is_the_product_of_the_moments(order: float) -> None:
    """The N-th powers of the computed ratios are as near to the exact products as the charged errors say."""
    mean = product(PHASES)
    line = mean.line(order, 0.9, 12)
    with mp.workdps(30):
        size = mp.fsum(steps * mp.log(exact_moment(moments, order).real) for moments, steps in mean.parts)
        assert abs(mean.steps * line.log_moment - size) <= mean.steps * line.log_error
        assert abs(mean.steps * mean.log_moments(np.array([order]))[0] - size) <= mean.steps * 1e-11
        for j in (1, 5, 11):
            exact = mp.mpf(1)
            for moments, steps in mean.parts:
                exact *= (exact_moment(moments, order + 0.9j * j) / exact_moment(moments, order).real) ** steps
            computed, error = mp.mpc(line.ratios[j]) ** mean.steps, mp.mpf(line.errors[j])
            largest = (abs(mp.mpc(line.ratios[j])) + error) ** (mean.steps - 1)
            assert abs(computed - exact) <= mean.steps * error * largest
    assert line.errors.max() < 1e-11


class Off(PoissonMoments):
    """Moments whose ratios are off by as much as they say."""

    def line(self, c: float, step: float, count: int) -> Line:
        line = super().line(c, step, count)
        off = 1e-6 * np.arange(count)
        return line._replace(ratios=line.ratios * (1.0 + 1j * off), errors=line.errors + off * np.abs(line.ratios))


def test_errors_of_the_factors_are_charged_to_the_product() -> None:
    parts = [Part(PoissonMoments(0.01, 1.0), 30), Part(PoissonMoments(0.05, 2.0), 10)]
    exact = ProductMoments(parts).line(2.5, 0.9, 12)
    off = ProductMoments([parts[0], Part(Off(0.05, 2.0), 10)]).line(2.5, 0.9, 12)
    distances = np.abs(off.ratios - exact.ratios)
    assert (distances <= off.errors + exact.errors).all()
    assert (off.errors[1:] <= 1.5 * distances[1:]).all()


def test_where_a_factor_may_be_zero_the_mean_may_be_as_large_as_the_others_let_it() -> None:
    """Far out the ratio of the step with the higher rate is below its error; that of the other one is not."""
    mean = product(((0.5, 6.0, 3), (0.01, 1.0, 5)))
    line = mean.line(3.0, 40.0, 4)
    with mp.workdps(30):
        lost = [moments.line(3.0, 40.0, 4) for moments, _ in mean.parts]
        assert (2.0 * lost[0].errors[1:] > np.abs(lost[0].ratios[1:])).any()
        for j in range(1, 4):
            logs = [
                steps * mp.log(abs(exact_moment(moments, 3.0 + 40.0j * j) / exact_moment(moments, 3.0)))
                for moments, steps in mean.parts
            ]
            size = mp.exp(mp.fsum(logs) / mean.steps)
            assert size <= abs(mp.mpc(line.ratios[j])) + mp.mpf(line.errors[j])


@pytest.mark.parametrize("phases", [PHASES, SCHEDULE, ((0.3, 4.0, 60), (1e-4, 0.5, 1)), ((0.3, 4.0, 2), (0.2, 3.0, 1))])
@pytest.mark.parametrize("order", [6.0, 1.2, -2.0])
def test_beyond_the_settled_frequency_the_integrand_is_small(
    phases: tuple[tuple[float, float, int], ...], order: float
) -> None:
    mean = product(phases)
    size = -20.0 if mean.steps > 3 else -5.0
    settled = mean.settled_frequency(order, mean.steps, size)
    logs = np.zeros(20)
    frequencies = settled * np.append(np.geomspace(1.0, 20.0, 19), 1.0 / 8.0)
    for moments, steps in mean.parts:
        z = np.linspace(*moments.ends(order), 20_001)
        losses = moments.log_ratios(z)[0]
        weights = np.exp(order * losses - 0.5 * z * z - (order * losses - 0.5 * z * z).max())
        weights /= weights.sum()
        logs += [steps * log(abs(weights @ np.exp(1j * t * losses))) for t in frequencies]
    assert (logs[:-1] <= size).all()
    assert mean.steps <= 3 or logs[-1] > size, "the bound is needlessly far out"


def test_equal_steps_in_several_parts_are_those_steps() -> None:
    moments = PoissonMoments(0.01, 1.0)
    whole = Profiles(moments, 2000)
    parts = ProductMoments([Part(moments, 700), Part(moments, 1299), Part(moments, 1)])
    split = Profiles(parts, parts.steps, 30)
    for direction in Direction:
        for epsilon in (0.5, 2.0, 3.5):
            sides, other = whole.sides(epsilon, direction), split.sides(epsilon, direction)
            assert sides is not None
            assert other is not None
            assert max(sides.lower, other.lower) <= min(sides.upper, other.upper)
            assert other.upper - other.lower <= 1e-5 * other.upper


@pytest.mark.parametrize("phases", [PHASES, SCHEDULE])
def test_both_sides_lie_between_those_of_composed_laws(phases: tuple[tuple[float, float, int], ...]) -> None:
    """Laws that are looser than contours by far more than roundings."""
    mean = product(phases)
    profiles = Profiles(mean, mean.steps, 30)
    resolution = Resolution(30, 1e-6)
    laws = {}
    for side in Side:
        laws[side] = point_mass_at_one(side)
        for rate, sigma, steps in phases:
            step = thin(gaussian_law(sigma, 1.0, side, resolution), rate)
            laws[side] = compose(laws[side], power(step, steps, resolution), resolution)
    answered = 0
    middle = smallest_epsilon(lambda at: law_delta(laws[Side.UPPER], at, Direction.REMOVE), 1e-6, Side.UPPER)
    for direction in Direction:
        for epsilon in (0.4 * middle, middle):
            sides = profiles.sides(epsilon, direction)
            assert sides is not None
            lower, upper = (law_delta(laws[side], epsilon, direction) for side in (Side.LOWER, Side.UPPER))
            assert lower <= sides.upper
            assert sides.lower <= upper
            if sides.lower > 0.0:  # else this direction is negligible beside the other one, and bounded by its moments
                answered += 1
                assert lower <= sides.lower <= sides.upper <= upper
    assert answered >= 3
    near = near_by_moments(profiles, 1e-6)
    assert near is not None
    assert near == pytest.approx(middle, rel=0.3)


def test_add_is_0_where_no_product_of_different_ratios_is_as_small() -> None:
    """Beyond the sum of all -n log(1 - q)."""
    parts = ((0.01, 1.0, 5), (0.1, 2.0, 3), (0.3, 4.0, 1))
    mean, end = product(parts), -sum(steps * log1p(-rate) for rate, _, steps in parts)
    profiles = Profiles(mean, mean.steps, 30)
    assert profiles.sides(1.001 * end, Direction.ADD) == (0.0, 0.0)
    assert profiles.by_moments(0.9 * end, Direction.ADD) > 0.0
