"""Additive statistics of k-of-t allocation: exact masses, sandwich with every upper bound, Monte Carlo in between."""

from dataclasses import replace
from itertools import combinations, pairwise
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.accountants import direct, gaussian, projection
from hockeystick.errors import UnsupportedError
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.grid import Resolution
from hockeystick.laws.profile import law_delta
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side
from hockeystick_papers import analytic, decomposition

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0)


def quick(delta: float = 1e-9, nodes: int = 24) -> Settings:
    return Settings(resolution=Resolution(nodes_per_unit=nodes, smallest_delta=delta))


def pair(sigma: float, bins: int, visits: int = 1, epochs: int = 1) -> AveragedSteps:
    return AveragedSteps(noise_multiplier=sigma, bins=bins, participations=visits, epochs=epochs)


@given(
    sigma=st.floats(0.3, 8.0),
    bins=st.integers(1, 1500),
    visits=st.integers(1, 40),
    epochs=st.integers(1, 4),
    exponent=st.floats(3.0, 14.0),
)
@settings(max_examples=30, derandomize=True)
def test_never_above_the_upper_bounds(sigma: float, bins: int, visits: int, epochs: int, exponent: float) -> None:
    allocation = pair(sigma, bins, min(visits, bins), epochs)
    work = quick(10.0**-exponent)
    lower = projection.ACCOUNTANT.bound(allocation, Side.LOWER, work)
    upper = direct.ACCOUNTANT.bound(allocation, Side.UPPER, work)
    known = gaussian.ACCOUNTANT.bound(allocation, Side.UPPER, work)
    for direction in Direction:
        for epsilon in EPSILONS:
            assert lower.profiles[direction](epsilon) <= upper.profiles[direction](epsilon)
            assert lower.profiles[direction](epsilon) <= known.profiles[direction](epsilon)


@pytest.mark.parametrize(("sigma", "bins", "visits"), [(1.0, 8, 3), (2.0, 9, 4), (0.7, 6, 2)])
def test_monte_carlo_of_the_pair_lies_between_all_bounds(sigma: float, bins: int, visits: int) -> None:
    """The ratio of k-of-t simulated under Q: 400,000 draws, 5 standard errors (false failure below 1e-5 in all)."""
    rng = np.random.default_rng(7)
    ratios = np.exp((rng.normal(0.0, sigma, (bins, 400_000)) - 0.5) / sigma**2)
    whole = np.zeros(400_000)
    for places in combinations(range(bins), visits):
        whole += np.prod(ratios[list(places)], axis=0) / comb(bins, visits)
    allocation = pair(sigma, bins, visits)
    lowers = [a.ACCOUNTANT.bound(allocation, Side.LOWER, quick()) for a in (projection, direct)]
    uppers = [a.ACCOUNTANT.bound(allocation, Side.UPPER, quick()) for a in (direct, decomposition, analytic, gaussian)]
    for epsilon in (0.1, 0.5, 1.0, 1.5):
        # E(X - c)_+ = 1 - c + E(c - X)_+: the bounded side has the smaller variance
        samples = {
            Direction.REMOVE: 1.0 - np.exp(epsilon) + np.maximum(np.exp(epsilon) - whole, 0.0),
            Direction.ADD: np.maximum(1.0 - np.exp(epsilon) * whole, 0.0),
        }
        for direction, values in samples.items():
            error = 5.0 * float(values.std()) / sqrt(values.size)
            assert all(b.profiles[direction](epsilon) <= values.mean() + error for b in lowers)
            assert all(b.profiles[direction](epsilon) >= values.mean() - error for b in uppers)


def test_closes_the_gap_for_many_participations() -> None:
    """1-of-t says 0.107 here; the sum of outputs 1.170; the truth is at most 1.256."""
    allocation = pair(2.0, 1000, 10, 3)
    work = quick(1e-6, nodes=72)
    lower = projection.ACCOUNTANT.bound(allocation, Side.LOWER, work).epsilon(1e-6)
    upper = direct.ACCOUNTANT.bound(allocation, Side.UPPER, work).epsilon(1e-6)
    assert upper / lower < 1.003
    assert direct.ACCOUNTANT.bound(allocation, Side.LOWER, work).epsilon(1e-6) < 0.12


@pytest.mark.parametrize(("sigma", "bins"), [(1.0, 30), (5.0, 100), (0.4, 7)])
def test_level_masses_are_exact(sigma: float, bins: int) -> None:
    mpmath = pytest.importorskip("mpmath")
    thresholds = np.array([-5.0, -1.0, -0.999, 0.3, 0.301, 2.0, 6.0, 6.01])
    with mpmath.workdps(40):
        cdf = [mpmath.mpf(0), *(mpmath.ncdf(mpmath.mpf(float(z)) - 1) for z in thresholds), mpmath.mpf(1)]
        exact = [float(b - a) for a, b in pairwise(cdf)]
    assert projection._interval_masses(thresholds, 1.0) == pytest.approx(exact, rel=projection.LEVEL_ERROR)
    masses = projection.score_masses(pair(sigma, bins, 2))
    assert masses.sum(axis=1) == pytest.approx([1.0, 1.0], abs=1e-12)
    assert np.all(np.diff(masses[1] / masses[0]) > 0)


def test_sums_are_the_convolutions() -> None:
    masses = np.array([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]])
    sums = projection.Sums(masses, 0.0, np.zeros(2)).times(5, 1e-120, lambda: None)
    for row, expected in zip(sums.masses, masses, strict=True):
        whole = np.array([1.0])
        for _ in range(5):
            whole = np.convolve(whole, expected)
        assert row == pytest.approx(whole, rel=1e-13)


def test_what_is_left_out_is_counted() -> None:
    masses = np.array([[0.9, 0.09, 0.01]])
    sums = projection.Sums(masses, 0.0, np.zeros(1)).times(64, 1e-9, lambda: None)
    whole = np.array([1.0])
    for _ in range(64):
        whole = np.convolve(whole, masses[0])
    assert sums.missing[0] > 0.0
    assert 1.0 - sums.masses.sum() <= sums.missing[0] * (1 + 1e-6)
    assert sums.masses.shape[1] < whole.size


def test_planted_fault_to_ignore_what_is_left_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """With wide windows and no count of what they leave out, the lower bound rises above the upper one."""
    allocation = pair(1.0, 1000)
    upper = direct.ACCOUNTANT.bound(allocation, Side.UPPER, quick(1e-6)).profiles[Direction.REMOVE]
    honest = law_delta(projection.additive_law(allocation, quick(1e-6)), 1.0, Direction.REMOVE)
    assert honest <= upper(1.0)
    monkeypatch.setattr(projection, "NEGLIGIBLE", 1e-8)
    assert law_delta(projection.additive_law(allocation, quick(1e-6)), 1.0, Direction.REMOVE) <= upper(1.0)
    honest_plus = projection.Sums.plus

    def forgetful(self: projection.Sums, other: projection.Sums, negligible: float) -> projection.Sums:
        return replace(honest_plus(self, other, negligible), missing=np.zeros(len(self.missing)))

    monkeypatch.setattr(projection.Sums, "plus", forgetful)
    assert law_delta(projection.additive_law(allocation, quick(1e-6)), 1.0, Direction.REMOVE) > upper(1.0)


def test_public_batches_and_many_steps_use_the_sum_of_outputs() -> None:
    for allocation in (pair(1.5, 6, 6, 2), pair(1.0, projection.MOST_STEPS + 1, 50_000)):
        bound = projection.ACCOUNTANT.bound(allocation, Side.LOWER, quick())
        sensitivity = allocation.participations * sqrt(allocation.epochs / allocation.bins)
        exact = gaussian_delta(allocation.noise_multiplier, sensitivity, 1.0, Side.LOWER)
        assert bound.delta(1.0) == pytest.approx(exact, rel=1e-9)
        assert bound.delta(1.0) <= exact


def test_refuses_other_pairs_and_upper_bounds() -> None:
    with pytest.raises(UnsupportedError, match="no analysis of this combination"):
        projection.ACCOUNTANT.bound(IndependentSteps(noise_multiplier=1.0, sampling_prob=0.1, steps=5), Side.LOWER)
    with pytest.raises(UnsupportedError, match="no upper bounds"):
        projection.ACCOUNTANT.bound(pair(1.0, 5), Side.UPPER)
