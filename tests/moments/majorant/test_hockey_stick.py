"""The split hockey stick: against quadrature, and its bounds and lines against 50 digits."""

from collections.abc import Callable
from math import exp, inf, sqrt

import mpmath as mp
import numpy as np
import pytest
from scipy.special import erfcx

from hockeystick.errors import InvalidInputError
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.moments.majorant.hockey_stick import (
    ELEMENTARY_ERROR,
    ERFCX_ERROR,
    LARGEST_EPSILON,
    LARGEST_VARIANCE,
    SplitHockeyStick,
)
from hockeystick.types import Direction

BOTH = (Direction.REMOVE, Direction.ADD)


def exact(direction: Direction, epsilon: float, variance: mp.mpf | float, x: float) -> mp.mpf:
    """F(x) by the textbook formula, in the digits that mpmath is set to."""
    place, strike = mp.mpf(x), mp.exp(mp.mpf(epsilon))
    if x == 0.0:
        return mp.mpf(0 if direction is Direction.REMOVE else 1)
    mu = mp.sqrt(mp.mpf(variance))
    if direction is Direction.REMOVE:
        if mu == 0:
            return max(place - strike, mp.mpf(0))
        first = mp.log(place / strike) / mu + mu / 2
        return max(place * mp.ncdf(first) - strike * mp.ncdf(first - mu), mp.mpf(0))
    if mu == 0:
        return max(1 - strike * place, mp.mpf(0))
    first = mp.log(place * strike) / mu + mu / 2
    return max(mp.ncdf(mu - first) - strike * place * mp.ncdf(-first), mp.mpf(0))


def by_quadrature(direction: Direction, epsilon: float, variance: float, x: float) -> mp.mpf:
    """F(x) as the expectation that defines it."""
    strike, mu = mp.exp(epsilon), mp.sqrt(variance)
    remove = direction is Direction.REMOVE
    kink = (mp.log(strike / x if remove else 1 / (strike * x)) + variance / 2) / mu

    def paid(z: mp.mpf) -> mp.mpf:
        ratio = x * mp.exp(mu * z - variance / 2)
        return (ratio - strike if remove else 1 - strike * ratio) * mp.npdf(z)

    inner = [mp.mpf(z) for z in range(-12, 13, 2)]
    if remove:
        return mp.quad(paid, [kink, *(z for z in inner if z > kink), mp.inf])
    return mp.quad(paid, [-mp.inf, *(z for z in inner if z < kink), kink])


def places(direction: Direction, epsilon: float, variance: float, rng: np.random.Generator) -> Array:
    """Near the kink, within some deviations of it, and anywhere."""
    kink = epsilon if direction is Direction.REMOVE else -epsilon
    near = kink + sqrt(variance) * rng.normal(size=12) * 3.0
    return np.exp(np.concatenate([near, kink + rng.normal(size=3) * 1e-9, rng.uniform(-12.0, 14.0, size=5)]))


@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize(("epsilon", "variance"), [(0.3, 0.01), (1.0, 0.3), (4.0, 2.5)])
def test_the_closed_form_is_the_expectation(direction: Direction, epsilon: float, variance: float) -> None:
    hockey_stick = SplitHockeyStick(direction, epsilon, variance)
    for x in (0.05, 0.4, 1.0, 2.7, 40.0):
        defined = by_quadrature(direction, epsilon, variance, x)
        assert abs(exact(direction, epsilon, variance, x) - defined) < 1e-12
        assert hockey_stick.value(np.array([x]))[0] == pytest.approx(float(defined), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("direction", BOTH)
def test_bounds_and_lines_are_sound_and_close(direction: Direction) -> None:
    """1,200 places: above is above and close, tangents are below everywhere and close where they touch."""
    rng = np.random.default_rng(5)
    with mp.workdps(45):
        for _ in range(60):
            epsilon, variance = rng.uniform(0.05, 6.0), 10.0 ** rng.uniform(-6.0, 0.6)
            hockey_stick = SplitHockeyStick(direction, epsilon, variance)
            x = places(direction, epsilon, variance, rng)
            above, value = hockey_stick.above(x), hockey_stick.value(x)
            intercept, slope = hockey_stick.line_below(x)
            truth = [exact(direction, epsilon, variance, float(place)) for place in x]
            for j, place in enumerate(x):
                line = [mp.mpf(intercept[j]) + mp.mpf(slope[j]) * mp.mpf(other) for other in x]
                assert above[j] >= truth[j]
                assert all(height <= other for height, other in zip(line, truth, strict=True))
                scale = (place if direction is Direction.REMOVE else 1.0) * 1e-30
                loss = 1e-11 / sqrt(variance) * truth[j] + scale
                assert above[j] - truth[j] <= loss
                assert truth[j] - line[j] <= loss
                assert abs(value[j] - truth[j]) <= loss


def test_the_ratio_of_normal_tail_and_density_is_as_accurate_as_assumed() -> None:
    rng = np.random.default_rng(6)
    arguments = np.concatenate([rng.uniform(-12.0, 3.0, 400), rng.uniform(0.0, 50.0, 400)])
    with mp.workdps(60):
        for argument, ratio in zip(arguments, erfcx(arguments), strict=True):
            truth = mp.erfc(mp.mpf(argument)) * mp.exp(mp.mpf(argument) ** 2)
            assert abs(mp.mpf(ratio) / truth - 1) <= ERFCX_ERROR + 2.0 * UNIT_ROUNDOFF * min(argument, 0.0) ** 2
        for argument in 10.0 ** rng.uniform(-12.0, 2.0, 400):
            assert abs(mp.mpf(float(np.exp(-argument))) / mp.exp(-mp.mpf(argument)) - 1) <= ELEMENTARY_ERROR
            assert abs(mp.mpf(exp(argument)) / mp.exp(mp.mpf(argument)) - 1) <= ELEMENTARY_ERROR
            assert abs(mp.mpf(float(np.log(argument))) / mp.log(mp.mpf(argument)) - 1) <= ELEMENTARY_ERROR


@pytest.mark.parametrize("direction", BOTH)
def test_an_uncertain_variance_is_charged(direction: Direction) -> None:
    epsilon, variance, error = 0.7, 0.2, 1e-3
    hockey_stick = SplitHockeyStick(direction, epsilon, variance, error)
    x = np.exp(np.linspace(-3.0, 3.0, 25))
    above, (intercept, slope) = hockey_stick.above(x), hockey_stick.line_below(x)
    with mp.workdps(40):
        largest, smallest = mp.mpf(variance) * (1 + mp.mpf(error)), mp.mpf(variance) * (1 - mp.mpf(error))
        for j, place in enumerate(x):
            assert above[j] >= exact(direction, epsilon, largest, float(place))
            assert above[j] <= exact(direction, epsilon, largest, float(place)) * (1 + mp.mpf(1e-10)) + mp.mpf(1e-15)
            for other in x:
                height = mp.mpf(intercept[j]) + mp.mpf(slope[j]) * mp.mpf(other)
                assert height <= exact(direction, epsilon, smallest, float(other))


@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize("variance", [0.0, 1e-130, 1e-12, 1000.0])
def test_extreme_variances(direction: Direction, variance: float) -> None:
    """No common factor, one below the range, one that makes a kink, and the largest."""
    hockey_stick = SplitHockeyStick(direction, 0.5, variance)
    x = np.array([0.0, 1e-300, 1e-9, 0.5, exp(-0.5), 1.0, exp(0.5), 2.0, 1e9, 1e30])
    above, (intercept, slope) = hockey_stick.above(x), hockey_stick.line_below(x)
    with mp.workdps(150):
        truth = [exact(direction, 0.5, variance, float(place)) for place in x]
        for j, place in enumerate(x):
            assert truth[j] <= above[j] <= truth[j] * (1 + mp.mpf(1e-8)) + mp.mpf(1e-5)
            heights = [mp.mpf(intercept[j]) + mp.mpf(slope[j]) * mp.mpf(other) for other in x]
            assert all(height <= other for height, other in zip(heights, truth, strict=True))
            assert heights[j] >= truth[j] * (1 - mp.mpf(1e-8)) - mp.mpf(1e-5)
            start, rise = hockey_stick.line_beyond(float(place))
            assert all(mp.mpf(start) + mp.mpf(rise) * mp.mpf(x[i]) >= truth[i] for i in range(j, x.size))


def test_at_zero_everything_is_exact() -> None:
    zero = np.zeros(1)
    for direction, height, slope in ((Direction.REMOVE, 0.0, 0.0), (Direction.ADD, 1.0, -exp(1.0))):
        hockey_stick = SplitHockeyStick(direction, 1.0, 0.3)
        assert hockey_stick.above(zero)[0] == height
        assert hockey_stick.value(zero)[0] == height
        intercepts, slopes = hockey_stick.line_below(zero)
        assert intercepts[0] == height
        assert slopes[0] == pytest.approx(slope, rel=1e-14)


@pytest.mark.parametrize("direction", BOTH)
def test_lines_beyond_a_place_are_above_from_there_on(direction: Direction) -> None:
    with mp.workdps(40):
        for variance in (0.0, 0.04, 1.5):
            hockey_stick = SplitHockeyStick(direction, 0.8, variance)
            for start in (0.2, 1.0, 3.0, 500.0):
                intercept, slope = hockey_stick.line_beyond(start)
                for further in (1.0, 1.001, 1.7, 40.0, 1e6):
                    height = mp.mpf(intercept) + mp.mpf(slope) * mp.mpf(start * further)
                    assert height >= exact(direction, 0.8, variance, start * further)


@pytest.mark.parametrize(
    "build",
    [
        lambda: SplitHockeyStick(Direction.ADD, -0.1, 0.1),
        lambda: SplitHockeyStick(Direction.ADD, float("nan"), 0.1),
        lambda: SplitHockeyStick(Direction.ADD, 2.0 * LARGEST_EPSILON, 0.1),
        lambda: SplitHockeyStick(Direction.REMOVE, 1.0, -1e-9),
        lambda: SplitHockeyStick(Direction.REMOVE, 1.0, 2.0 * LARGEST_VARIANCE),
        lambda: SplitHockeyStick(Direction.REMOVE, 1.0, inf),
        lambda: SplitHockeyStick(Direction.REMOVE, 1.0, 0.1, 0.6),
    ],
)
def test_values_out_of_range_are_refused(build: Callable[[], SplitHockeyStick]) -> None:
    with pytest.raises(InvalidInputError):
        build()
