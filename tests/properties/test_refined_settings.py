"""Bounds at the settings of certificates against the truth: small rings at low noise, and windows of many steps.

Small mechanisms with few nodes and little effort are in test_three_thousand.py. Here are the two methods that need
twelve bins, ``moving_average`` and ``bin_filter``, with as much effort as certificates spend, and b-min-sep subsampling
over windows of up to twelve steps, which are linked.

A truth is further off than it says with probability at most 5e-9 (bins_oracle.py). There are fewer than 1,000, so one
comparison fails by chance with a probability below 5e-6. Seeds are fixed.
"""

from collections import Counter
from collections.abc import Iterator
from math import expm1, log1p

import bins_oracle
import numpy as np
import pytest
from bins_oracle import Truth
from crossings import all_violations
from monte_carlo_oracle import participations

import hockeystick as hs
from hockeystick.accountants import separated_windows
from hockeystick.accountants.registry import ACCOUNTANTS, every_accountant
from hockeystick.bounds import Question
from hockeystick.laws.grid import Resolution
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.strategies.matrix.base import Array
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.types import Kind, Side

RING_METHODS = [ACCOUNTANTS[name] for name in ("moving_average", "bin_filter")]
RINGS, WAITS = 12, 12
"""Mechanisms of the weekly tests."""
SOME_RINGS, SOME_WAITS = 2, 2
"""Of the usual ones, with less effort."""
EPSILONS = 6
MORE_POINTS = 13
"""Points of the oracle's nets, as a power of two, in the weekly tests: a dozen dimensions need many."""
SLOW = {"conditional_composition", "moment_majorant", "moment_majorant_cells"}


@pytest.fixture
def finer_truths(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    bins_oracle._nets.cache_clear()
    monkeypatch.setattr(bins_oracle, "LOG2_POINTS", MORE_POINTS)
    yield
    bins_oracle._nets.cache_clear()


def random_ring(rng: np.random.Generator) -> BinMixture:
    """12 to 16 bins; columns alike but for the end, or all different; few bands, or up to all bins."""
    bins, epochs = int(rng.integers(12, 17)), int(rng.integers(1, 4))
    bands = int(rng.integers(1, 5 if rng.random() < 0.7 else bins + 1))
    steps = bins * epochs
    column = np.concatenate([[1.0], rng.uniform(0.1, 0.9, bands - 1) * np.linspace(1.0, 0.3, bands - 1)])
    band = np.tile(column, (steps, 1)) * (rng.uniform(0.8, 1.2, (steps, 1)) if rng.random() < 0.4 else 1.0)
    for lag in range(bands):
        band[steps - lag :, lag] = 0.0
    sigma = float(np.linalg.norm(column) * epochs**0.5 * rng.uniform(0.5, 1.3))
    return BinMixture(noise_multiplier=sigma, matrix=BandedMatrix(band), bins=bins)


def random_settings(rng: np.random.Generator, effort: float) -> Settings:
    """Usual and finer grids; a whole profile, or one number alone, is asked for."""
    delta = float(10.0 ** rng.uniform(-6.0, -2.0))
    question = (None, Question(delta=delta), Question(epsilon=float(rng.uniform(0.1, 1.5))))[int(rng.integers(3))]
    return Settings(resolution=Resolution(int(rng.choice([36, 72, 100])), delta), question=question, effort=effort)


def some_epsilons(pair: BinMixture | RenewalMixture, chance: float, rng: np.random.Generator) -> Array:
    """0, and more up to about where delta is a thousandth, if one participation of such a chance decides.

    None is beyond 2: samples say little of rarer events.
    """
    known = ACCOUNTANTS["gaussian"].bound(pair, Side.UPPER).epsilon(1e-3)  # of an example that is known to take part
    largest = min(log1p(chance * expm1(min(known, 30.0))), 2.0)
    return np.concatenate([[0.0], np.sort(largest * rng.random(EPSILONS - 1) ** 1.5)])


def compare_rings(seed: int, count: int, efforts: tuple[float, ...]) -> None:
    rng = np.random.default_rng([45, seed])
    seen: Counter[str] = Counter()
    wrong, sharp = [], 0
    for number in range(count):
        pair = random_ring(rng)
        settings = random_settings(rng, efforts[number % len(efforts)])
        at = some_epsilons(pair, 1.0 / pair.bins, rng)
        entries = pair.matrix.materialize()
        means = np.array([entries[:, i :: pair.bins].sum(axis=1) for i in range(pair.bins)])
        exact = bins_oracle.truth(means @ means.T, pair.noise_multiplier, at)
        sharp += int(np.count_nonzero(exact.remove_error <= 0.05 * exact.remove))
        for accountant in RING_METHODS:
            texts, profiles = all_violations(accountant, pair, exact, at, settings)
            seen[accountant.name] += profiles
            wrong += [f"{number}: {pair} {settings}: {text}" for text in texts]
    assert not wrong, "\n".join(wrong)
    assert all(seen[accountant.name] >= count // 2 for accountant in RING_METHODS), seen
    assert sharp >= 0.5 * count * EPSILONS


def test_low_noise_methods_on_some_small_rings() -> None:
    compare_rings(0, SOME_RINGS, (0.3,))


@pytest.mark.weekly
def test_low_noise_methods_on_small_rings_with_the_effort_of_certificates(finer_truths: None) -> None:
    compare_rings(1, RINGS, (1.0, 10.0, 30.0))


def random_waits(rng: np.random.Generator, longest: int) -> hs.BMinSep:
    """Two windows of ``min_sep`` steps and a part of a third, cold or warm; participations rare or certain."""
    b = int(rng.integers(max(longest // 2, 2), longest + 1))
    available = -expm1(-float(rng.uniform(0.05, 3.0)) / b)  # the chance of an available step
    return hs.BMinSep(
        min_sep=b,
        sampling_prob=available / (1.0 + (b - 1) * available),
        steps=b + int(rng.integers(1, 2 * b)),
        warm_start=bool(rng.random() < 0.5),
    )


def random_pair(sampler: hs.BMinSep, rng: np.random.Generator) -> tuple[RenewalMixture, Array]:
    """Independent or correlated noise, of bands up to twice the wait; and the matrix."""
    steps, bands = sampler.steps, int(rng.integers(1, 2 * sampler.min_sep))
    entries = np.eye(steps)
    if rng.random() < 0.7:
        entries = np.tril(rng.uniform(0.0, 0.8, (steps, steps)) if rng.random() < 0.5 else np.full((steps, steps), 0.5))
        lag = np.arange(steps)[:, None] - np.arange(steps)
        entries *= np.where(lag < bands, 0.9 ** np.maximum(lag, 0.0), 0.0)
        np.fill_diagonal(entries, 1.0)
    sigma = float(np.linalg.norm(entries, axis=0).max() * np.exp(rng.uniform(np.log(0.5), np.log(2.0))))
    pair = RenewalMixture(
        noise_multiplier=sigma,
        matrix=DenseMatrix(entries),
        min_sep=sampler.min_sep,
        participation_prob=sampler.participation_prob,
        warm_start=sampler.warm_start,
    )
    return pair, entries


def waits_truth(sampler: hs.BMinSep, entries: Array, sigma: float, at: Array) -> Truth:
    """All sets of steps in which an example may take part, with their chances."""
    law = participations(sampler)
    means = np.array(list(law)) @ entries.T
    return bins_oracle.truth(means @ means.T, sigma, at, np.array(list(law.values())))


def compare_waits(seed: int, count: int, longest: int) -> None:
    rng = np.random.default_rng([46, seed])
    seen: Counter[str] = Counter()
    wrong, linked = [], 0
    for number in range(count):
        sampler = random_waits(rng, longest)
        pair, entries = random_pair(sampler, rng)
        settings = random_settings(rng, 10.0)
        at = some_epsilons(pair, min(pair.participation_prob, 0.5), rng)
        exact = waits_truth(sampler, entries, pair.noise_multiplier, at)
        linked += separated_windows._detail(pair) is not None
        for accountant in every_accountant().values():
            if accountant.kind is Kind.DETERMINISTIC and accountant.assumes is None and accountant.name not in SLOW:
                texts, profiles = all_violations(accountant, pair, exact, at, settings)
                seen[accountant.name] += profiles
                wrong += [f"{number}: {sampler} {pair} {settings}: {text}" for text in texts]
    assert not wrong, "\n".join(wrong)
    assert linked >= 0.6 * count
    assert seen["separated_windows"] >= count, seen


def test_some_windows_of_several_steps() -> None:
    compare_waits(0, SOME_WAITS, 6)


@pytest.mark.weekly
def test_windows_of_many_steps_with_the_grids_of_certificates(finer_truths: None) -> None:
    compare_waits(1, WAITS, 12)
