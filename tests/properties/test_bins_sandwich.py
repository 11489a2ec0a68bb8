"""Every accountant of balls-in-bins with correlated noise against the true profile of small random mechanisms."""

import zlib
from collections import Counter

import bins_oracle
import numpy as np
import pytest
from bins_oracle import truth
from crossings import all_violations, violations
from scipy.integrate import dblquad

from hockeystick.accountants import direct
from hockeystick.accountants.registry import ACCOUNTANTS, every_accountant
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.grid import Resolution
from hockeystick.moments.geometric_mean import geometric_mean_profile
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings
from hockeystick.strategies.banded_square_root import BandedSquareRoot
from hockeystick.strategies.matrix.base import Array, Indices, StrategyMatrix
from hockeystick.types import Direction, Kind, Side

CHUNKS, MECHANISMS, EPSILONS = 4, 26, 20
"""2080 cases, half of them weekly: one mechanism and one epsilon each, for all accountants, sides and directions."""
SHARES = {"bin_renyi": 2, "conditional_composition": 5, "moment_majorant": 13, "moment_majorant_cells": 26}
"""Slow accountants get every n-th mechanism; moment majorants have test_moment_majorant_sandwich.py as well."""
REFUSING = {"moment_majorant_cells", "moving_average", "bin_filter"}
"""They refuse some of these small dense rings; test_moment_majorant_sandwich.py has mechanisms for them, and
sequences/test_moving_averages.py and filters/test_bin_filters.py."""
MOST_STEPS, MOST_BINS, MOST_EPOCHS = 12, 6, 3
BINS_WEIGHTS = (0.05, 0.25, 0.25, 0.25, 0.1, 0.1)
QUICK = Settings(resolution=Resolution(nodes_per_unit=20, smallest_delta=1e-8))
COVERING = [
    accountant
    for accountant in every_accountant().values()
    if accountant.covers(BinMixture) and accountant.kind is Kind.DETERMINISTIC
]
GRID = np.array([0.0, 0.05, 0.2, 0.5, 1.0, 2.0])


class DenseMatrix(StrategyMatrix):
    """Any lower-triangular matrix, as it is."""

    def __init__(self, entries: Array) -> None:
        self.entries = entries
        self.steps = len(entries)

    @property
    def bands(self) -> int:
        """The lowest diagonal that is not zero."""
        rows, columns = np.nonzero(self.entries)
        return int((rows - columns).max()) + 1

    def columns(self, which: Indices) -> Array:
        return self.entries[:, which]

    def dot(self, x: Array) -> Array:
        return self.entries @ x

    def solve(self, z: Array) -> Array:
        return np.linalg.solve(self.entries, z)


def random_mechanism(rng: np.random.Generator) -> BinMixture:
    """Bands of the square root, or any non-negative entries, some of them zero; 1 to 3 epochs."""
    bins = 1 + int(rng.choice(MOST_BINS, p=BINS_WEIGHTS))
    epochs = int(rng.integers(1, min(MOST_EPOCHS, MOST_STEPS // bins) + 1))
    steps = bins * epochs
    sigma = float(np.exp(rng.uniform(np.log(0.4), np.log(8.0))))
    if rng.random() < 0.4:
        matrix: StrategyMatrix = BandedSquareRoot(bands=int(rng.integers(1, steps + 1))).matrix(steps)
    else:
        entries = np.tril(rng.random((steps, steps)) * (rng.random((steps, steps)) < rng.uniform(0.1, 1.0)), -1)
        matrix = DenseMatrix(entries * rng.uniform(0.1, 1.0) + np.diag(rng.uniform(0.5, 1.0, steps)))
    return BinMixture(noise_multiplier=sigma, matrix=matrix, bins=bins)


def own_gram(pair: BinMixture) -> Array:
    """From the whole matrix, by definition."""
    entries = pair.matrix.materialize()
    means = np.array([entries[:, i :: pair.bins].sum(axis=1) for i in range(pair.bins)])
    return means @ means.T


def random_epsilons(pair: BinMixture, rng: np.random.Generator) -> Array:
    """0, and more up to where even the Gaussian without amplification is at 1e-6."""
    largest = min(ACCOUNTANTS["gaussian"].bound(pair, Side.UPPER).epsilon(1e-6), 40.0)
    return np.concatenate([[0.0], np.sort(largest * rng.random(EPSILONS - 1) ** 1.5)])


@pytest.mark.parametrize("chunk", [1, *(pytest.param(chunk, marks=pytest.mark.weekly) for chunk in (0, 2, 3))])
def test_no_accountant_crosses_the_truth(chunk: int) -> None:
    """False-failure probability below 1e-5 over all chunks: see the oracle's deviations; seeds are fixed."""
    rng = np.random.default_rng(20_240_600 + chunk)
    seen: Counter[str] = Counter()
    crossed, sharp = [], 0
    for number in range(MECHANISMS):
        pair = random_mechanism(rng)
        at = random_epsilons(pair, rng)
        gram = own_gram(pair)
        np.testing.assert_allclose(pair.gram, gram, rtol=1e-13)
        exact = truth(gram, pair.noise_multiplier, at)
        sharp += int(np.count_nonzero(exact.remove_error <= 0.01 * exact.remove))
        label = f"chunk {chunk} number {number} b={pair.bins} k={pair.epochs} sigma={pair.noise_multiplier:.4g}: "
        for accountant in COVERING:
            if (number + zlib.crc32(accountant.name.encode())) % SHARES.get(accountant.name, 1) == 0:
                texts, profiles = all_violations(accountant, pair, exact, at, QUICK)
                seen[accountant.name] += profiles
                crossed += [label + text for text in texts]
        step = geometric_mean_profile(pair.gram, pair.rounding, pair.noise_multiplier)
        crossed += [label + text for text in violations(step, Side.UPPER, Direction.ADD, exact, at)]
    assert not crossed, "\n".join(crossed)
    assert sharp >= 0.6 * MECHANISMS * EPSILONS  # the truth is known to a percent in most cases
    assert set(seen) == {accountant.name for accountant in COVERING}
    assert all(seen[name] >= 2 * (MECHANISMS // SHARES.get(name, 1)) for name in set(seen) - REFUSING)


def test_there_are_two_thousand_cases() -> None:
    assert CHUNKS * MECHANISMS * EPSILONS >= 2000
    assert {accountant.name for accountant in COVERING} >= {"gaussian", "comparison"}


# The oracle itself.


@pytest.mark.parametrize("sigma", [0.4, 1.0, 8.0])
@pytest.mark.parametrize("bins", [1, 3])
def test_oracle_equal_means_are_one_gaussian(bins: int, sigma: float) -> None:
    exact = truth(np.full((bins, bins), 1.7), sigma, GRID)
    for i, epsilon in enumerate(GRID):
        expected = gaussian_delta(sigma, np.sqrt(1.7), float(epsilon), Side.UPPER)
        for value, error in ((exact.remove, exact.remove_error), (exact.add, exact.add_error)):
            assert abs(value[i] - expected) <= error[i]
            assert error[i] < 1e-9


@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("bins", [2, 3, 4, 5, 6])
def test_oracle_identity_lies_between_the_laws(bins: int, sigma: float) -> None:
    """C = I is random allocation, bracketed by the law engine; by grids up to four bins, by simulation above."""
    exact = truth(np.eye(bins), sigma, GRID)
    allocation = AveragedSteps(noise_multiplier=sigma, bins=bins)
    for side in Side:
        bound = direct.ACCOUNTANT.bound(allocation, side)
        for direction, profile in bound.profiles.items():
            assert not violations(profile, side, direction, exact, GRID)
    if bins <= 3:
        assert np.all(exact.remove_error <= 1e-4 * exact.remove + 2e-11)


def brute_force(gram: Array, sigma: float, epsilon: float, direction: Direction) -> float:
    """Two bins: the double integral over the two means' plane, kink and all."""
    root = np.linalg.cholesky(gram / sigma**2)
    drift = 0.5 * gram.diagonal() / sigma**2
    c = np.exp(epsilon)

    def integrand(y: float, x: float) -> float:
        ratio = np.exp(root @ np.array([x, y]) - drift).mean()
        gain = max(ratio - c, 0.0) if direction is Direction.REMOVE else max(1.0 - c * ratio, 0.0)
        return gain * np.exp(-0.5 * (x * x + y * y)) / (2.0 * np.pi)

    return float(dblquad(integrand, -9.0, 9.0, -9.0, 9.0, epsabs=1e-6, epsrel=1e-6)[0])


@pytest.mark.parametrize("direction", list(Direction))
def test_oracle_two_bins_against_a_double_integral(direction: Direction) -> None:
    gram = np.array([[1.6, 0.7], [0.7, 0.9]])
    exact = truth(gram, 1.3, np.array([0.4]))
    value = (exact.remove if direction is Direction.REMOVE else exact.add)[0]
    assert value == pytest.approx(brute_force(gram, 1.3, 0.4, direction), abs=5e-6)


@pytest.mark.parametrize("seed", range(4))
def test_oracle_grids_and_simulation_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    means = rng.random((4, 4))
    gram, sigma = means @ means.T, float(rng.uniform(0.8, 2.0))
    by_grid = truth(gram, sigma, GRID)
    monkeypatch.setattr(bins_oracle, "MOST_POINTS", 0)
    simulated = truth(gram, sigma, GRID)
    assert np.all(np.abs(by_grid.remove - simulated.remove) <= simulated.remove_error + by_grid.remove_error)
    assert np.all(np.abs(by_grid.add - simulated.add) <= simulated.add_error + by_grid.add_error)
    assert np.all(by_grid.remove_error < 0.1 * simulated.remove_error)
    # two answers at epsilon 0: the total variation distance has no direction
    assert abs(by_grid.remove[0] - by_grid.add[0]) <= by_grid.remove_error[0] + by_grid.add_error[0]


def test_a_bound_that_is_wrong_by_a_percent_is_found() -> None:
    pair = BinMixture(noise_multiplier=1.5, matrix=DenseMatrix(np.eye(3)), bins=3)
    at = GRID[:4]
    exact = truth(own_gram(pair), 1.5, at)
    allocation = AveragedSteps(noise_multiplier=1.5, bins=3)
    for side, factor in ((Side.UPPER, 0.99), (Side.LOWER, 1.01)):
        for direction, profile in direct.ACCOUNTANT.bound(allocation, side).profiles.items():
            assert len(violations(lambda x, f=factor, p=profile: f * p(x), side, direction, exact, at)) == at.size
