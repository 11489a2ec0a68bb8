"""The bounds by hidden chains against those of exact moments, which share nothing with them."""

import numpy as np
import pytest

from hockeystick.accountants import hidden_chain
from hockeystick.accountants.hidden_chain import ACCOUNTANT
from hockeystick.accountants.low_noise_bins import FEWEST_BINS
from hockeystick.accountants.moment_majorant import ACCOUNTANT as MOMENTS
from hockeystick.bounds import Question
from hockeystick.errors import UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.types import Direction, Side

SETTINGS = Settings(Resolution(68, 1e-4), effort=1.0)


def pair(epochs: int, noise_multiplier: float) -> BinMixture:
    """40 bins and three bands; with several epochs the last bin overlaps the first."""
    steps = 40 * epochs
    band = np.tile([1.0, 0.5, 0.375], (steps, 1))
    band[-2:, 2], band[-1:, 1] = 0.0, 0.0
    return BinMixture(noise_multiplier=noise_multiplier, matrix=BandedMatrix(band), bins=40)


@pytest.mark.parametrize(
    ("epochs", "noise_multiplier", "loss"), [(1, 2.5, 0.3), pytest.param(3, 4.0, 0.35, marks=pytest.mark.weekly)]
)
def test_exact_moments_lie_between(
    epochs: int, noise_multiplier: float, loss: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At this noise the moments are exact to a percent, and chains lose a stated share of epsilon."""
    monkeypatch.setattr(hidden_chain, "MOST_LOSS", dict.fromkeys(Side, np.inf))
    ours = {side: ACCOUNTANT.bound(pair(epochs, noise_multiplier), side, SETTINGS) for side in Side}
    near = {side: MOMENTS.bound(pair(epochs, noise_multiplier), side, SETTINGS) for side in Side}
    for direction in Direction:
        for epsilon in (0.05, 0.2, 0.5):
            assert ours[Side.UPPER].profiles[direction](epsilon) >= near[Side.LOWER].profiles[direction](epsilon)
            assert ours[Side.LOWER].profiles[direction](epsilon) <= near[Side.UPPER].profiles[direction](epsilon)
    assert ours[Side.UPPER].epsilon(1e-4) <= near[Side.UPPER].epsilon(1e-4) * (1.0 + loss)
    assert ours[Side.LOWER].epsilon(1e-4) >= near[Side.LOWER].epsilon(1e-4) * (1.0 - 2.0 * loss)


@pytest.mark.parametrize("epochs", [1])
def test_samples_lie_between(epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random columns that differ from bin to bin, against 200,000 samples under P, at 5 standard errors: fails falsely
    with a chance below 1e-5."""
    monkeypatch.setattr(hidden_chain, "MOST_LOSS", dict.fromkeys(Side, np.inf))
    rng = np.random.default_rng(epochs)
    steps = 14 * epochs
    band = np.column_stack([np.ones(steps), rng.uniform(0.2, 0.7, steps)])
    band[-1, 1] = 0.0
    run = BinMixture(noise_multiplier=1.1 * np.sqrt(epochs), matrix=BandedMatrix(band), bins=14)
    covariance = run.gram / run.noise_multiplier**2
    factor = np.linalg.cholesky(covariance)
    z = rng.standard_normal((200_000, 14)) @ factor.T + covariance[rng.integers(0, 14, 200_000)]
    ratios = np.exp(z - 0.5 * covariance.diagonal()).mean(axis=1)
    found = {side: ACCOUNTANT.bound(run, side, SETTINGS).profiles[Direction.REMOVE] for side in Side}
    for epsilon in (0.1, 0.5, 1.0):
        values = np.maximum(1.0 - np.exp(epsilon) / ratios, 0.0)
        sampled, error = float(values.mean()), 5.0 * float(values.std()) / np.sqrt(values.size)
        assert found[Side.UPPER](epsilon) >= sampled - error
        assert found[Side.LOWER](epsilon) <= sampled + error


def test_what_the_effort_does_not_allow_is_refused_before_it_begins() -> None:
    """Few states, but 7,000 frequencies: each has its price, without which this takes twice the effort."""
    band = np.tile([1.0, 0.488, 0.397, 0.376, 0.293, 0.0958], (88, 1))
    for column in range(1, 6):
        band[-column:, column] = 0.0
    small = BinMixture(noise_multiplier=1.1495, matrix=BandedMatrix(band), bins=44)
    settings = Settings(Resolution(68, 4.68e-7), effort=2.0, question=Question(delta=4.68e-7))
    with pytest.raises(UnsupportedError, match="white noise"):
        ACCOUNTANT.bound(small, Side.UPPER, settings)


def test_chains_that_raise_a_few_bins_much_are_refused() -> None:
    """To first order the chain is close, but its own epsilon is twice that of the bins."""
    band = np.tile([1.0, 0.5, 0.4], (40, 1))
    band[:3] *= 2.0
    band[-2:, 2], band[-1:, 1] = 0.0, 0.0
    heavy = BinMixture(noise_multiplier=1.5, matrix=BandedMatrix(band), bins=40)
    settings = Settings(Resolution(68, 1e-4), effort=2.0, question=Question(delta=1e-4))
    with pytest.raises(UnsupportedError, match="close to the covariance"):
        ACCOUNTANT.bound(heavy, Side.UPPER, settings)


def test_it_refuses_what_it_is_not_for() -> None:
    few = BinMixture(noise_multiplier=1.0, matrix=BandedMatrix(np.ones((FEWEST_BINS - 1, 1))), bins=FEWEST_BINS - 1)
    assert all(ACCOUNTANT.why_not(few, side) for side in Side)
