"""The bounds by moving averages against exact moments and samples, which share nothing with them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hockeystick.accountants import moving_average
from hockeystick.accountants.low_noise_bins import FEWEST_BINS
from hockeystick.accountants.moment_majorant import ACCOUNTANT as MOMENTS
from hockeystick.accountants.moving_average import ACCOUNTANT, SMALLEST_DELTA
from hockeystick.bounds import Question
from hockeystick.errors import UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.sequences import moving_averages_transform
from hockeystick.sequences.inverse_transform import TransformProfiles
from hockeystick.sequences.moving_averages import MovingAverages
from hockeystick.sequences.moving_averages_transform import averages_profiles
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.types import Direction, Side

SETTINGS = Settings(Resolution(68, 1e-4), question=Question(delta=1e-4))


def pair(epochs: int, noise_multiplier: float) -> BinMixture:
    """40 bins and three bands; with several epochs the last bin overlaps the first."""
    steps = 40 * epochs
    band = np.tile([1.0, 0.5, 0.375], (steps, 1))
    band[-2:, 2], band[-1:, 1] = 0.0, 0.0
    return BinMixture(noise_multiplier=noise_multiplier, matrix=BandedMatrix(band), bins=40)


@pytest.mark.parametrize(
    ("epochs", "noise_multiplier", "loss"), [(1, 2.5, 0.03), pytest.param(3, 4.0, 0.03, marks=pytest.mark.weekly)]
)
def test_exact_moments_lie_between(epochs: int, noise_multiplier: float, loss: float) -> None:
    """At this noise the moments are exact to a percent; several epochs are a ring, from above closed."""
    ours = {side: ACCOUNTANT.bound(pair(epochs, noise_multiplier), side, SETTINGS) for side in Side}
    near = {side: MOMENTS.bound(pair(epochs, noise_multiplier), side, SETTINGS) for side in Side}
    for direction in Direction:
        for epsilon in (0.05, 0.2, 0.5):
            assert ours[Side.UPPER].profiles[direction](epsilon) >= near[Side.LOWER].profiles[direction](epsilon)
            assert ours[Side.LOWER].profiles[direction](epsilon) <= near[Side.UPPER].profiles[direction](epsilon)
    assert ours[Side.UPPER].epsilon(1e-4) <= near[Side.UPPER].epsilon(1e-4) * (1.0 + loss)
    assert ours[Side.LOWER].epsilon(1e-4) >= near[Side.LOWER].epsilon(1e-4) * (1.0 - 2.0 * loss)


@pytest.mark.parametrize("epochs", [1, 3])
def test_samples_lie_between(epochs: int) -> None:
    """12 bins of two bands at low noise against 400,000 samples under P, at 5 standard errors: fails falsely with a
    chance below 1e-5. The two sides are close to each other."""
    band = np.tile([1.0, 0.5], (12 * epochs, 1))
    band[-1, 1] = 0.0
    run = BinMixture(noise_multiplier=1.1 * np.sqrt(epochs), matrix=BandedMatrix(band), bins=12)
    covariance = run.gram / run.noise_multiplier**2
    rng = np.random.default_rng(7)
    z = rng.standard_normal((400_000, 12)) @ np.linalg.cholesky(covariance).T + covariance[rng.integers(0, 12, 400_000)]
    ratios = np.exp(z - 0.5 * covariance.diagonal()).mean(axis=1)
    bounds = {side: ACCOUNTANT.bound(run, side, SETTINGS) for side in Side}
    profiles = {side: bound.profiles for side, bound in bounds.items()}
    for epsilon in (0.1, 0.5, 1.0, 1.8):
        for direction, values in (
            (Direction.REMOVE, np.maximum(1.0 - np.exp(epsilon) / ratios, 0.0)),
            (Direction.ADD, np.maximum(1.0 / ratios - np.exp(epsilon), 0.0)),
        ):
            sampled, error = float(values.mean()), 5.0 * float(values.std()) / np.sqrt(values.size)
            assert profiles[Side.UPPER][direction](epsilon) >= sampled - error
            assert profiles[Side.LOWER][direction](epsilon) <= sampled + error
    upper, lower = (bounds[side].epsilon(1e-4) for side in Side)
    assert lower <= upper <= (1.02 if epochs == 1 else 1.06) * lower


def test_several_bins_share_an_innovation() -> None:
    """30 bins of six bands against exact moments, which are exact to half a percent here; less effort is refused."""
    band = np.tile([1.0, 0.5, 0.3, 0.2, 0.15, 0.1], (30, 1))
    for last in range(1, 6):
        band[-last, last:] = 0.0
    run = BinMixture(noise_multiplier=1.3, matrix=BandedMatrix(band), bins=30)
    settings = replace(SETTINGS, effort=60.0)
    upper, lower = (ACCOUNTANT.bound(run, side, settings).epsilon(1e-4) for side in (Side.UPPER, Side.LOWER))
    assert lower <= MOMENTS.bound(run, Side.UPPER, SETTINGS).epsilon(1e-4)
    assert upper >= MOMENTS.bound(run, Side.LOWER, SETTINGS).epsilon(1e-4)
    assert lower <= upper <= 1.03 * lower
    with pytest.raises(UnsupportedError):
        ACCOUNTANT.bound(run, Side.UPPER, SETTINGS)


def test_it_refuses_what_it_is_not_for() -> None:
    few = BinMixture(noise_multiplier=1.0, matrix=BandedMatrix(np.ones((FEWEST_BINS - 1, 1))), bins=FEWEST_BINS - 1)
    assert all(ACCOUNTANT.why_not(few, side) for side in Side)
    for case, settings in (
        (pair(1, 2.5), Settings(Resolution(68, 0.5 * SMALLEST_DELTA))),
        (pair(1, 0.05), SETTINGS),
        (BinMixture(noise_multiplier=2.0, matrix=BandedMatrix(np.ones((40, 6))), bins=40), SETTINGS),
    ):
        for side in Side:
            with pytest.raises(UnsupportedError):
                ACCOUNTANT.bound(case, side, settings)


def test_a_small_ring() -> None:
    """24 bins of three bands, which have 12 blocks of two steps."""
    band = np.tile([1.0, 0.5, 0.375], (72, 1))
    band[-1, 1:] = band[-2, 2] = 0.0
    run = BinMixture(noise_multiplier=2.8, matrix=BandedMatrix(band), bins=24)
    lower, upper = (ACCOUNTANT.bound(run, side, SETTINGS).epsilon(1e-4) for side in (Side.LOWER, Side.UPPER))
    assert 0.0 < lower <= upper <= 1.05 * lower


def test_where_a_ring_bounds_nothing_the_next_moving_average_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """48 bins of two bands that all differ, on a ring that is given up: from below weights of all bins on a line."""
    monkeypatch.setattr(moving_averages_transform, "VAIN", 0.0)
    band = np.column_stack([np.ones(96), 0.5 + 0.3 * np.sin(np.arange(96.0))])
    band[-1, 1] = 0.0
    run = BinMixture(noise_multiplier=1.6, matrix=BandedMatrix(band), bins=48)
    tried: list[bool] = []

    def recorded(chain: MovingAverages, *rest: Any) -> TransformProfiles:
        tried.append(chain.ring)
        return averages_profiles(chain, *rest)

    monkeypatch.setattr("hockeystick.sequences.moving_averages_transform.averages_profiles", recorded)
    assert ACCOUNTANT.bound(run, Side.LOWER, SETTINGS).epsilon(1e-4) > 0.0
    assert tried == [True, False]


def test_the_whole_profile_shares_the_transform_of_one_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a ring, and says the same as without that; another noise, side or delta shares nothing."""
    real, made = moving_averages_transform.transform_of, list[float]()

    def counted(given: Any, delta: float, smoothing: float, largest: float, deadline: Any) -> Any:
        made.append(largest)
        return real(given, delta, smoothing, largest, deadline)

    monkeypatch.setattr(moving_averages_transform, "transform_of", counted)
    band = np.tile([1.0, 0.5], (36, 1))
    band[-1, 1] = 0.0
    run = BinMixture(noise_multiplier=2.6, matrix=BandedMatrix(band), bins=12)
    whole = replace(SETTINGS, question=None)
    alone = ACCOUNTANT.bound(run, Side.UPPER, whole)
    known = {direction: [alone.profiles[direction](epsilon) for epsilon in (0.1, 0.4)] for direction in Direction}
    moving_average._KNOWN.clear()
    made.clear()
    ACCOUNTANT.bound(run, Side.UPPER, SETTINGS)
    assert len(made) == 1
    again = ACCOUNTANT.bound(run, Side.UPPER, whole)
    assert len(made) == 1
    assert known == {direction: [again.profiles[direction](epsilon) for epsilon in (0.1, 0.4)] for direction in known}
    for other, settings in (
        (replace(run, noise_multiplier=1.01 * run.noise_multiplier), SETTINGS),
        (run, replace(SETTINGS, resolution=Resolution(68, 2e-4))),
    ):
        made.clear()
        ACCOUNTANT.bound(other, Side.UPPER, settings)
        assert made
    below = ACCOUNTANT.bound(run, Side.LOWER, SETTINGS).profiles[Direction.REMOVE](0.1)
    moving_average._KNOWN.clear()
    assert ACCOUNTANT.bound(run, Side.LOWER, SETTINGS).profiles[Direction.REMOVE](0.1) == below


def test_what_serves_a_question_serves_a_whole_profile_if_that_would_choose_it_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 28 bins that all differ, a question has a transform of fewer frequencies, which may be in vain where the
    others are not: a profile may not depend on whether a question was asked before."""
    band = np.column_stack([np.ones(56), 0.5 + 0.3 * np.sin(np.arange(56.0))])
    band[-1, 1] = 0.0
    run = BinMixture(noise_multiplier=1.6, matrix=BandedMatrix(band), bins=28)
    whole = replace(SETTINGS, question=None)
    fresh = ACCOUNTANT.bound(run, Side.LOWER, whole).profiles[Direction.REMOVE](0.5)
    moving_average._KNOWN.clear()
    with monkeypatch.context() as context:
        context.setattr(moving_averages_transform, "VAIN", 0.0)
        question = ACCOUNTANT.bound(run, Side.LOWER, SETTINGS).profiles[Direction.REMOVE](0.5)
    assert question != fresh
    assert ACCOUNTANT.bound(run, Side.LOWER, whole).profiles[Direction.REMOVE](0.5) == fresh
