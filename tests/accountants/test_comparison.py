"""Covariance comparison: exact cases, the two sides, and what must not pass for an ultrametric matrix."""

from itertools import pairwise
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick import BallsInBins, Direction, Mechanism, Resolution, Side
from hockeystick.accountants.comparison import (
    ACCOUNTANT,
    Level,
    combed_law,
    nested_levels,
    raised_levels,
    ultrametric_law,
)
from hockeystick.accountants.direct import ACCOUNTANT as DIRECT
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.operations import mix
from hockeystick.laws.profile import law_delta
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings
from hockeystick.strategies import BandedSquareRoot
from hockeystick.strategies.matrix.base import Array
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix

FINE = Resolution(60, 1e-12)
EPSILONS = (0.0, 0.1, 0.5, 1.5, 3.0)


def bins_of(coefficients: list[float], bins: int, epochs: int, sigma: float) -> BinMixture:
    matrix = ToeplitzMatrix(np.array(coefficients), bins * epochs)
    return BinMixture(noise_multiplier=sigma, matrix=matrix, bins=bins)


def dense(levels: list[Level], bins: int) -> Array:
    """The ultrametric matrix itself."""
    gram = np.full((bins, bins), levels[-1].inner)
    for level in reversed(levels):
        block = np.arange(bins) // level.size
        gram[block[:, None] == block[None, :]] = level.inner
    return gram


def no_tick() -> None:
    return None


@pytest.mark.parametrize("epochs", [1, 3])
def test_without_correlation_it_is_the_exact_law(epochs: int) -> None:
    """C = I: orthogonal means, random allocation at noise sigma / sqrt(k), on equally fine grids."""
    pair = bins_of([1.0], 20, epochs, 1.1)
    plain = AveragedSteps(noise_multiplier=1.1 / sqrt(epochs), bins=20)
    for side in Side:
        ours, (law,) = ACCOUNTANT.bound(pair, side, Settings(FINE)), DIRECT.laws_of(plain, side, Settings(FINE))
        for epsilon in EPSILONS:
            exact = max(law_delta(law, epsilon, direction) for direction in Direction)
            assert ours.delta(epsilon) == pytest.approx(exact, rel=1e-3)


def test_gap_below_one_percent_without_correlation() -> None:
    pair = bins_of([1.0], 100, 1, 1.0)
    upper, lower = (ACCOUNTANT.bound(pair, side, Settings(Resolution(68, 1e-5))).epsilon(1e-5) for side in Side)
    assert lower <= upper <= 1.01 * lower


@pytest.mark.parametrize(
    ("steps", "epochs", "sigma", "highest"), [(1000, 10, 8.0, 0.290), (1000, 10, 16.0, 0.125), (100, 1, 2.0, 0.400)]
)
def test_no_worse_than_the_prototype(steps: int, epochs: int, sigma: float, highest: float) -> None:
    """BSR with 4 bands at delta = 1e-4; the prototype's values were found on coarse grids."""
    sampler = BallsInBins(bins=steps // epochs, epochs=epochs)
    mechanism = Mechanism(strategy=BandedSquareRoot(bands=4), sampler=sampler, noise_multiplier=sigma)
    pair = BinMixture(noise_multiplier=sigma, matrix=mechanism.matrix, bins=sampler.bins)
    upper, lower = (ACCOUNTANT.bound(pair, side, Settings(Resolution(68, 1e-4))).epsilon(1e-4) for side in Side)
    assert 0.0 < lower <= upper <= highest


def test_identical_bins_are_one_gaussian() -> None:
    """Bins that cannot be told apart: X is a single log-normal, also through blocks of blocks."""
    levels = [Level(1, 2.25), Level(2, 2.25), Level(4, 2.25), Level(7, 2.25)]
    for side in Side:
        law = ultrametric_law(levels, 7, 1.3, side, FINE, no_tick)
        exact = gaussian_law(1.3, 1.5, side, FINE)
        for direction in Direction:
            for epsilon in EPSILONS:
                assert law_delta(law, epsilon, direction) == pytest.approx(
                    law_delta(exact, epsilon, direction), rel=1e-3
                )


def test_two_bins_by_quadrature() -> None:
    """b = 2: E f(X) over a plane, X = (e^{u_1 - g/2s^2} + e^{u_2 - g/2s^2})/2, by a product of 400 midpoints."""
    g, tau, sigma = 1.7, 0.6, 1.2
    levels = [Level(1, g), Level(2, tau)]
    points = (np.arange(800) + 0.5) / 800 * 18.0 - 9.0
    weights = np.exp(-0.5 * points**2)
    weights /= weights.sum()
    shared, own = sqrt(tau) / sigma, sqrt(g - tau) / sigma
    split = np.exp(own * points - own**2 / 2)
    mean = 0.5 * (split[:, None] + split[None, :])
    weight = weights[:, None] * weights[None, :]
    upper, lower = (ultrametric_law(levels, 2, sigma, side, FINE, no_tick) for side in Side)
    for epsilon in (0.2, 1.0, 2.0):
        remove = add = 0.0
        for z, w in zip(points[::4], weights[::4] * 4, strict=True):
            ratio = np.exp(shared * z - shared**2 / 2) * mean
            remove += w * float((weight * np.maximum(ratio - np.exp(epsilon), 0.0)).sum())
            add += w * float((weight * np.maximum(1.0 - np.exp(epsilon) * ratio, 0.0)).sum())
        for direction, value in ((Direction.REMOVE, remove), (Direction.ADD, add)):
            assert law_delta(lower, epsilon, direction) <= value * 1.002
            assert law_delta(upper, epsilon, direction) >= value * 0.998
            assert law_delta(upper, epsilon, direction) == pytest.approx(value, rel=5e-3)


def grams(draw: st.DrawFn) -> Array:
    bins = draw(st.integers(1, 7))
    rows = draw(st.integers(1, 9))
    entries = draw(st.lists(st.floats(0.0, 2.0), min_size=bins * rows, max_size=bins * rows))
    means = np.array(entries).reshape(rows, bins)
    return means.T @ means


@settings(max_examples=200)
@given(gram=st.composite(grams)(), smallest=st.integers(1, 8))
def test_levels_stay_on_their_side(gram: Array, smallest: int) -> None:
    """Entry by entry above or below, and positive semidefinite: all that Kahane's inequality asks for."""
    upper, lower = raised_levels(gram, 1e-12), nested_levels(gram, 1e-12, smallest)
    bins = gram.shape[0]
    assert (dense(upper, bins) >= gram).all()
    assert (dense(lower, bins) <= gram).all()
    for levels in (upper, lower):
        assert np.linalg.eigvalsh(dense(levels, bins)).min() >= -1e-9
        assert all(inner.inner >= outer.inner for inner, outer in pairwise(levels))


def test_levels_are_moved_by_the_error_of_the_matrix() -> None:
    gram = np.array([[2.0, 0.5, 0.125], [0.5, 1.0, 0.75], [0.125, 0.75, 1.5]])
    assert [level.inner for level in raised_levels(gram, 0.25)] == [2.5, 0.9375]
    assert [level.inner for level in nested_levels(gram, 0.25, 2)] == [0.75, 0.375, 0.09375]
    assert [level.inner for level in nested_levels(gram, 0.25, 3)] == [0.75, 0.09375]


def test_a_comb_reads_the_wrap_pairs() -> None:
    """Bands that do not divide the bins: bins 0 and 4 of 5 meet, so residues modulo 2 are not free."""
    pair = bins_of([1.0, 0.9], 5, 2, 1.0)
    assert pair.gram[0, 4] > 0.5
    own = float(pair.gram.max())
    free = [ultrametric_law([Level(1, own), Level(size, 0.0)], size, 1.0, Side.UPPER, FINE, no_tick) for size in (3, 2)]
    forgotten = mix(free, [0.6, 0.4], FINE)
    combed = combed_law(pair, 2, FINE, no_tick)
    assert law_delta(combed, 1.0, Direction.REMOVE) > 1.03 * law_delta(forgotten, 1.0, Direction.REMOVE)


def test_more_teeth_than_one_helps_wide_bands_at_high_noise() -> None:
    pair = bins_of([1.0, 0.5, 0.375, 0.3125], 100, 10, 8.0)
    resolution = Resolution(24, 1e-5)
    whole, combed = (combed_law(pair, teeth, resolution, no_tick) for teeth in (1, 4))
    assert law_delta(combed, 0.3, Direction.REMOVE) < law_delta(whole, 0.3, Direction.REMOVE)
