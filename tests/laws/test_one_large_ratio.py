"""One large ratio among many, against quadrature for few of them, against lines, and against the laws."""

from functools import cache
from itertools import pairwise
from math import exp, sqrt

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from hockeystick.laws import one_large_ratio
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Array
from hockeystick.laws.mean_of_ratios import FAR_GAP, FIRST_FAR, MeanOfRatios
from hockeystick.laws.one_large_ratio import LEAST_PLACE, OneLargeRatio
from hockeystick.laws.operations import average, power
from hockeystick.laws.profile import law_delta
from hockeystick.types import Direction, Side

NODES, WEIGHTS = np.polynomial.legendre.leggauss(120)


def of_largest(mu: float, k: float, others: Array, least: Array) -> Array:
    """E (Y + others - k)_+ where Y is above ``least``, as a closed form."""
    from_place = np.log(np.maximum(k - others, least)) / mu
    return np.asarray(ndtr(0.5 * mu - from_place) - (k - others) * ndtr(-0.5 * mu - from_place))


def on_each(start: Array, end: Array) -> tuple[Array, Array]:
    """Places z between two each, and their weights times the density of z, on a last axis."""
    half = 0.5 * (end - start)[..., None]
    z = start[..., None] + half * (1.0 + NODES)
    return z, half * WEIGHTS * np.exp(-0.5 * z * z) / sqrt(2.0 * np.pi)


@cache
def of_few(mu: float, bins: int, place: float) -> float:
    """o of two or three ratios, in descending order, by Gauss and Legendre's rule where the integrand is smooth.

    The largest is a closed form, which has a kink where it need only be the largest for the sum to be above k.
    """
    k, last = np.array(bins * place), np.array(mu + 9.5)

    def quantile(y: Array) -> Array:
        return np.asarray(np.log(y) / mu + 0.5 * mu)

    def with_second(rest: Array, lowest: Array) -> Array:
        """The second ratio from ``lowest`` on, beside the rest."""
        kink = np.maximum(quantile(0.5 * (k - np.minimum(rest, 0.99 * k))), lowest)
        total = np.zeros(np.shape(rest))
        for start, end in ((lowest, kink), (kink, np.maximum(last, kink))):
            cuts = np.linspace(start, end, 4)
            for left, right in pairwise(cuts):
                z, weights = on_each(left, right)
                second = np.exp(mu * z - 0.5 * mu * mu)
                total += np.sum(weights * of_largest(mu, float(k), rest[..., None] + second, second), axis=-1)
        return total

    if bins == 2:
        return float(2.0 * with_second(np.array(0.0), np.array(-9.5))) / bins
    total, cuts = (
        0.0,
        np.append(np.linspace(-9.5, float(quantile(k / 3.0)), 6), np.linspace(float(quantile(k / 3.0)), 13.0, 4)[1:]),
    )
    for left, right in pairwise(cuts):
        z, weights = on_each(np.array(left), np.array(right))
        total += float(weights @ with_second(np.exp(mu * z - 0.5 * mu * mu), z))
    return 6.0 * total / bins


def test_the_rule_for_few_ratios_is_exact() -> None:
    """Against adaptive quadrature over one ratio, and a plain sum over two where nothing is steep."""
    with mp.workdps(30):
        mu, k = mp.mpf("1.5"), mp.mpf(60)

        def weighted(z: mp.mpf) -> mp.mpf:
            rest = k - mp.exp(mu * z - mu * mu / 2)
            if rest <= 0:
                return mp.npdf(z) * (1 - rest)
            return mp.npdf(z) * (mp.ncdf(mu / 2 - mp.log(rest) / mu) - rest * mp.ncdf(-mu / 2 - mp.log(rest) / mu))

        at = (mp.log(k) + mu * mu / 2) / mu
        cuts = [-9, 0, 2, 3, *(at + mp.mpf(step) / 100 for step in (-30, -10, -3, -1, 0, 1, 10)), 5, 8, 11]
        exact = mp.quad(weighted, cuts) / 2
    assert of_few(1.5, 2, 30.0) == pytest.approx(float(exact), rel=1e-9)
    step, mu_of_three = 1.0 / 60.0, 0.8
    z = np.arange(-9.0, 9.8, step)
    ratios, chances = np.exp(mu_of_three * z - 0.5 * mu_of_three**2), step / sqrt(2.0 * np.pi) * np.exp(-0.5 * z * z)
    last = 24.3 - np.add.outer(ratios, ratios)
    logs = np.log(np.where(last > 0.0, last, 1.0)) / mu_of_three
    calls = np.where(last > 0.0, ndtr(0.4 - logs) - last * ndtr(-0.4 - logs), 1.0 - last)
    assert of_few(mu_of_three, 3, 8.1) == pytest.approx(float(chances @ calls @ chances) / 3.0, rel=1e-7)


@pytest.mark.parametrize("bins", [2, 3])
@pytest.mark.parametrize("mu", [0.8, 1.5, 2.5, 3.3])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LARGE", 1.0 / 12.0),
        ("LARGE", 0.2),
        ("LARGE", 0.03),
        ("CELLS", 1),
        ("PACE", 0.3),
        ("SPARE", 0.3),
        ("NEAR", 0.2),
    ],
)
def test_few_ratios_are_between_the_sides(
    bins: int, mu: float, name: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is large, near or spare, so that what each of them leaves out is charged where it can be seen."""
    monkeypatch.setattr(one_large_ratio, name, value)
    places = np.geomspace(LEAST_PLACE * 1.01, 3000.0, 25)
    lower, upper = OneLargeRatio(mu, bins).out_of_the_money(places)
    exact = np.array([of_few(mu, bins, float(place)) for place in places])
    assert np.all(lower <= exact * (1.0 + 1e-9) + 1e-16)
    assert np.all(upper >= exact * (1.0 - 1e-9) - 1e-16)


@pytest.mark.parametrize(("mu", "bins", "most"), [(2.5, 2, 1e-4), (3.3, 3, 3e-4), (1.5, 3, 3e-4)])
def test_both_sides_meet_the_truth_far_out(mu: float, bins: int, most: float) -> None:
    lower, upper = (float(side[0]) for side in OneLargeRatio(mu, bins).out_of_the_money(np.array([1000.0])))
    exact = of_few(mu, bins, 1000.0)
    assert exact * (1.0 - most) <= lower <= exact <= upper <= exact * (1.0 + most)


@settings(max_examples=40)
@given(sigma=st.floats(0.3, 1.0), bins=st.integers(20, 3000), log_place=st.floats(2.1, 4.1))
def test_lines_agree(sigma: float, bins: int, log_place: float) -> None:
    """Lines share nothing with it but the question; their own windows end where they err by more than the value."""
    places, epoch = np.array([exp(log_place)]), MeanOfRatios(sigma, bins)
    line = epoch._line(8.0 * places[0], 1e9)
    assert line is not None
    low, high = (float(side[0]) for side in line.out_of_the_money(places))
    lower, upper = (float(side[0]) for side in epoch.far.out_of_the_money(places))
    assert lower <= upper
    assert lower <= high
    assert low <= upper


@pytest.mark.parametrize("name", ["LARGE", "SPARE", "CELLS", "PACE"])
@pytest.mark.parametrize(("mu", "bins"), [(2.4, 40), (2.8, 400), (1.5, 200)])
def test_poor_choices_hold_what_lines_find(name: str, mu: float, bins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For more ratios than can be enumerated: three and more large ones, and the others beside two."""
    places, epoch = np.geomspace(10.0, 60.0, 12), MeanOfRatios(1.0 / mu, bins)
    line = epoch._line(8.0 * 60.0, 1e9)
    assert line is not None
    low, high = line.out_of_the_money(places)
    for value in {"LARGE": (0.2, 0.05, 0.02), "SPARE": (0.2, 1e-3), "CELLS": (1, 2), "PACE": (0.2, 0.05)}[name]:
        monkeypatch.setattr(one_large_ratio, name, value)
        lower, upper = epoch.far.out_of_the_money(places)
        assert np.all(lower <= high)
        assert np.all(upper >= low)


@pytest.mark.parametrize(("sigma", "bins", "epochs"), [(0.335, 8604, 1), (0.355, 441, 1), (0.5, 300, 1)])
def test_far_epsilons_are_between_the_laws(sigma: float, bins: int, epochs: int) -> None:
    resolution = Resolution(16, 1e-6)
    laws = [
        power(average(gaussian_law(sigma, 1.0, side, resolution), bins, resolution), epochs, resolution)
        for side in (Side.LOWER, Side.UPPER)
    ]
    for epsilon in (4.5, 6.0, 7.5, 9.0, 11.0):
        sides = MeanOfRatios(sigma, bins).sides(epsilon, Direction.REMOVE)
        assert sides is not None
        lower, upper = (law_delta(law, epsilon, Direction.REMOVE) for law in laws)
        assert lower <= sides.lower <= sides.upper <= upper
        assert sides.upper <= (1.0 + FAR_GAP) * sides.lower


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 300.0])
@pytest.mark.parametrize("bins", [2, 1000, 10**6])
def test_any_place_has_sides(sigma: float, bins: int) -> None:
    """Without a warning (the tests turn those into errors), also where nothing is left of the ratio."""
    lower, upper = OneLargeRatio(1.0 / sigma, bins).out_of_the_money(2.0 ** np.arange(4.0, 60.0))
    assert np.all((lower >= 0.0) & (lower <= upper) & (upper <= 1.0))


def test_what_is_said_of_a_place_depends_on_nothing_else() -> None:
    places = np.geomspace(10.0, 1e6, 300)
    together = OneLargeRatio(2.5, 300).out_of_the_money(places)
    for number in (0, 7, 150, 299):
        alone = OneLargeRatio(2.5, 300).out_of_the_money(places[number : number + 1])
        assert [float(side[0]) for side in alone] == [float(side[number]) for side in together]


def test_one_large_ratio_takes_over_only_where_it_is_close() -> None:
    heavy, light = MeanOfRatios(0.4, 1000), MeanOfRatios(2.0, 50)
    assert heavy.reaches(FIRST_FAR + 1)
    assert not heavy.reaches(FIRST_FAR - 1)
    assert not light.reaches(FIRST_FAR + 1)
    assert heavy.line(200.0) is heavy.far
    assert light.line(200.0) is not light.far


@pytest.mark.parametrize("mu", [0.3, 0.7, 1.2])
def test_nothing_is_claimed_from_below_where_numbers_may_underflow(mu: float) -> None:
    """Far out terms leave the range in which rounding is relative; the upper side is what they may have lost."""
    places = np.exp(np.linspace(2.1, 41.0, 4000))
    lower, upper = OneLargeRatio(mu, 1000).out_of_the_money(places)
    underflows = upper <= 2.0 * one_large_ratio.UNDERFLOW
    assert underflows.any()
    assert np.all(upper >= one_large_ratio.UNDERFLOW)
    assert np.all(lower[underflows] == 0.0)
    assert np.all((lower >= 0.0) & (lower <= upper))
