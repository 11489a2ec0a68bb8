"""One epoch of random allocation, by lines in the complex plane: between oracles, and every error is charged."""

from math import ceil, exp, log

import mpmath as mp
import numpy as np
import pytest

from hockeystick.laws import mean_of_ratios
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.mean_of_ratios import LaplaceLine, MeanOfRatios
from hockeystick.laws.operations import average
from hockeystick.laws.profile import law_delta
from hockeystick.types import Direction, Side


def laplace_transform(sigma: float, v: mp.mpf | mp.mpc, turn: float) -> mp.mpf | mp.mpc:
    """E e^(-vY) by a plain sum over equidistant places on another path than the library's."""
    mu, step = 1 / mp.mpf(sigma), mp.mpf(1) / 12
    places = [k * step - (1j * mp.mpf(turn) / mu if turn else 0) for k in range(-140, 141)]
    return step * mp.fsum(mp.exp(-z * z / 2 - v * mp.exp(mu * z - mu * mu / 2)) for z in places) / mp.sqrt(2 * mp.pi)


def departure(sigma: float, v: mp.mpc) -> mp.mpc:
    """E e^(-vY) - 1 by a plain sum on another path, far enough for what is tiny."""
    mu, step = 1 / mp.mpf(sigma), mp.mpf(1) / 16
    turn = min(mp.mpf("0.8"), mu)
    places = [k * step - 1j * turn / mu for k in range(-240, 290)]
    return (
        step
        * mp.fsum(mp.exp(-z * z / 2) * mp.expm1(-v * mp.exp(mu * z - mu * mu / 2)) for z in places)
        / mp.sqrt(2 * mp.pi)
    )


@pytest.mark.parametrize(
    ("direction", "epsilon"), [(Direction.REMOVE, 0.0), (Direction.REMOVE, 0.7), (Direction.ADD, 0.7)]
)
def test_one_epoch_is_between_the_sides(direction: Direction, epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaver and Stehfest's inversion uses real arguments alone, and is good to about 1e-7 for so few bins."""
    sigma, bins = 1.0, 5
    answers = [MeanOfRatios(sigma, bins).sides(epsilon, direction)]
    if direction is Direction.REMOVE and epsilon > 0.0:  # a place beyond 1, for which a narrow line may answer
        monkeypatch.setattr(mean_of_ratios, "MOST_WORK", 0.0)
        answers.append(MeanOfRatios(sigma, bins).sides(epsilon, direction))
    with mp.workdps(45):
        x = mp.exp(mp.mpf(epsilon) * (1 if direction is Direction.REMOVE else -1))
        put = mp.invertlaplace(
            lambda s: laplace_transform(sigma, s / bins, 0.0) ** bins / s**2, x, method="stehfest", degree=28
        )
        exact = put + 1 - x if direction is Direction.REMOVE else put / x
    for sides in answers:
        assert sides is not None
        assert sides.upper - sides.lower <= 1e-9
        assert abs(sides.upper - exact) <= 1e-5 * exact


@pytest.mark.parametrize(("sigma", "bins", "epsilon"), [(0.39, 1175, 6.6), (0.5, 300, 4.0), (1.0, 10, 1.5)])
def test_narrow_lines_and_long_blocks_say_what_wide_lines_of_short_blocks_say(
    sigma: float, bins: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch, octave, place = MeanOfRatios(sigma, bins), ceil(epsilon / log(2.0)), np.array([exp(epsilon)])
    sides = {}
    for long in (1.0, 1e9):
        monkeypatch.setattr(mean_of_ratios, "LONG", long)
        for window in (8.0, 4.0):
            line = epoch._line(window * 2.0**octave, 1e9)
            assert line is not None
            assert line.terms.shape[1] == (32 if long > 1.0 else 256)
            sides[long, window] = [float(side[0]) for side in line.out_of_the_money(place)]
    best_lower, best_upper = (pick(side[k] for side in sides.values()) for k, pick in enumerate((max, min)))
    assert best_lower <= best_upper
    for lower, upper in sides.values():
        assert upper - lower <= 2e-4 * upper


@pytest.mark.parametrize(("name", "value"), [("DAMPING", 3.0), ("SMALLEST_POWER", -7.0), ("WINDOW", 2.5)])
@pytest.mark.parametrize("bins", [30, 100])
def test_poor_lines_hold_what_good_ones_find(
    name: str, value: float, bins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So what a line leaves out, and what its rule adds, are charged where they can be seen."""
    cases = [(epsilon, direction) for epsilon in np.linspace(0.0, 1.0, 21) for direction in Direction]
    good = MeanOfRatios(1.0, bins)
    known = [good.sides(float(epsilon), direction) for epsilon, direction in cases]
    monkeypatch.setattr(mean_of_ratios, name, value)
    poor, apart = MeanOfRatios(1.0, bins), 0.0
    for (epsilon, direction), best in zip(cases, known, strict=True):
        sides = poor.sides(float(epsilon), direction)
        assert sides is not None
        assert best is not None
        assert sides.lower <= best.upper
        assert sides.upper >= best.lower
        apart = max(apart, sides.upper - sides.lower)
    assert name == "WINDOW" or apart > 1e-4


@pytest.mark.parametrize(("sigma", "bins"), [(0.5, 30), (1.0, 100), (2.0, 1000), (10.0, 10)])
def test_lambda_errs_by_less_than_it_says(sigma: float, bins: int) -> None:
    epoch = MeanOfRatios(sigma, bins)
    coarse, fine = np.array([0.01 + 0.0j, 0.3 + 0.05j]), np.array([0.0, 0.7j])
    starts, steps = np.add.outer(coarse, fine).ravel(), np.array([0.0, 0.4, 1.5])
    values = epoch.laplace(coarse, fine, steps)
    with mp.workdps(30):
        for start, row in zip(starts.tolist(), values, strict=True):
            for step, value in zip(steps.tolist(), row, strict=True):
                exact = laplace_transform(sigma, mp.mpc(start) + 1j * mp.mpf(step), 0.8)
                assert abs(mp.mpc(complex(value)) - exact) <= epoch.error


@pytest.mark.parametrize(
    ("name", "value", "least"), [("REACH", 8.6, 0.0), ("REACH", 2.5, 1e-6), ("QUADRATURE", 3.0, 1e-8)]
)
@pytest.mark.parametrize("sigma", [0.36, 1.0, 10.0])
def test_departures_err_by_a_multiple_of_their_size(
    sigma: float, name: str, value: float, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Down to departures of 1e-7, which Lambda itself has lost half of its digits of; and with a poor rule."""
    monkeypatch.setattr(mean_of_ratios, name, value)
    epoch, worst = MeanOfRatios(sigma, 1000), 0.0
    coarse, fine = np.array([1e-7 + 0.0j, 1e-3 + 2e-4j, 0.1 + 0.5j]), np.array([0.0, 2e-7j, 5e-3j])
    starts, steps = np.add.outer(coarse, fine).ravel(), np.array([0.0, 3e-8, 0.01, 0.3])
    values = epoch.departures(coarse, fine, steps)
    with mp.workdps(40):
        for start, row in zip(starts.tolist(), values, strict=True):
            for step, computed in zip(steps.tolist(), row, strict=True):
                v = mp.mpc(start) + 1j * mp.mpf(step)
                off = abs(mp.mpc(complex(computed)) - departure(sigma, v)) / abs(v)
                assert off <= epoch.error_of_departures
                worst = max(worst, float(off))
    assert worst >= least
    if least == 0.0:
        assert epoch.error_of_departures <= 2e-11


@pytest.mark.parametrize(("sigma", "bins", "epsilon"), [(0.3994, 2110, 5.586), (0.4031, 9643, 3.928)])
def test_far_epsilons_of_one_epoch_are_close_and_between_the_laws(sigma: float, bins: int, epsilon: float) -> None:
    """Errors of Lambda itself, t times as large in its power, would leave a hundredth of delta here."""
    sides = MeanOfRatios(sigma, bins).sides(epsilon, Direction.REMOVE)
    resolution = Resolution(24, 1e-6)
    lower, upper = (
        law_delta(average(gaussian_law(sigma, 1.0, side, resolution), bins, resolution), epsilon, Direction.REMOVE)
        for side in (Side.LOWER, Side.UPPER)
    )
    assert sides is not None
    assert lower <= sides.lower <= sides.upper <= min(upper, 1.0002 * sides.lower)


@pytest.mark.parametrize(("sigma", "bins"), [(0.5, 3), (0.5, 100), (1.0, 20), (1.0, 10_000), (5.0, 50)])
@pytest.mark.parametrize("rate", [0.0, 3.0])
def test_lambda_is_small_from_where_the_line_ends(sigma: float, bins: int, rate: float) -> None:
    epoch = MeanOfRatios(sigma, bins)
    last = epoch._settled(rate)
    frequencies = last * np.concatenate([np.linspace(1.0, 3.0, 500), np.geomspace(3.0, 300.0, 200)])
    sizes = np.abs(epoch.laplace((rate + 1j * frequencies) / bins, np.zeros(1), np.zeros(1))[:, 0])
    most = mean_of_ratios.SMALLEST_POWER + 1e-6 + bins * 2.0 * epoch.error / sizes.clip(1e-300)
    assert np.all(bins * np.log(sizes + epoch.error) <= most)


@pytest.mark.parametrize("short_by", [14.0, -4.0])
@pytest.mark.parametrize(("sigma", "bins"), [(0.45, 500), (0.4, 1000), (0.41, 208)])
def test_short_lines_hold_what_long_lines_find(
    sigma: float, bins: int, short_by: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they are so short that what they leave out is as much as what they find."""
    monkeypatch.setattr(mean_of_ratios, "SHORT_BY", short_by)
    long, short = MeanOfRatios(sigma, bins), MeanOfRatios(sigma, bins, several=True)
    for octave in (4, 5, 6):
        places = 2.0**octave * np.array([0.51, 0.7, 0.9, 1.0])
        good, poor = long.line(places[-1]), short.line(places[-1])
        assert isinstance(good, LaplaceLine)
        assert isinstance(poor, LaplaceLine)
        assert poor.terms.size < good.terms.size
        (low, high), (lower, upper) = good.out_of_the_money(places), poor.out_of_the_money(places)
        assert np.all(lower <= high)
        assert np.all(upper >= low)
        assert np.all(upper <= 1.0003 * lower) == (short_by > 0.0)
