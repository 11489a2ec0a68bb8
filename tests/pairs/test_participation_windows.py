"""Poisson and cyclic Poisson by windows with all participations: against sums over all outputs and the other bounds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import unit_oracle as oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from unit_oracle import EPSILONS, GRID_ERROR

import hockeystick as hs
from hockeystick import Direction, Side
from hockeystick.accountants.participation_windows import windows_above
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.errors import CannotCertifyError, UnsupportedError
from hockeystick.mechanism import Unit
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix

METHOD = ACCOUNTANTS["participation_windows"]
SETTINGS = hs.Settings(hs.Resolution(20, 1e-3))
FINE = hs.Settings(hs.Resolution(72, 1e-4))


def upper(pair: Any, name: str = "participation_windows", work: hs.Settings = SETTINGS) -> np.ndarray:
    """(remove, add) at EPSILONS, shape (2, epsilons)."""
    profiles = ACCOUNTANTS[name].profiles(pair, Side.UPPER, work)
    return np.array([[profiles[direction](epsilon) for epsilon in EPSILONS] for direction in Direction])


def random_matrix(rng: np.random.Generator, steps: int, kind: int) -> np.ndarray:
    """Diagonal, any lower triangle, or Toeplitz."""
    if kind == 0:
        return np.diag(rng.uniform(0.3, 1.0, steps))
    if kind == 1:
        return np.tril(rng.uniform(0.0, 1.0, (steps, steps)) * (rng.random((steps, steps)) < 0.7)) + np.eye(steps) / 2
    column = np.concatenate([[1.0], rng.uniform(0.0, 0.8, steps - 1)])
    return np.array([[column[i - j] if i >= j else 0.0 for j in range(steps)] for i in range(steps)])


@pytest.mark.parametrize("block", range(32))
def test_never_below_the_truth(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten runs each, with one window or several of one or two steps; both directions at once."""
    for seed in range(10 * block, 10 * block + 10):
        rng = np.random.default_rng([59, seed])
        steps = 4 if seed % 10 == 0 else int(rng.integers(1, 4))
        prob, sigma = rng.uniform(0.03, 0.9), rng.uniform(0.5, 2.5)
        monkeypatch.setattr("hockeystick.accountants.participation_windows.SIZES", ((1, 2, 16)[seed % 3],))
        matrix = random_matrix(rng, steps, int(rng.integers(3)))
        outcomes = oracle.independently(oracle.coins(range(steps), prob), 1)
        truth = oracle.deltas(oracle.mixture(outcomes, matrix, np.ones((1, steps))), oracle.nobody(matrix), sigma)
        pair = SubsetMixture(noise_multiplier=sigma, matrix=DenseMatrix(matrix), sampling_prob=prob)
        assert (upper(pair) >= truth - GRID_ERROR[steps]).all(), seed


class Scored:
    """Windows of which only the second moment is asked."""

    def __init__(self, score: float) -> None:
        self.score = score

    def second_moment(self, noise: float, prob: float) -> float:
        return self.score


@pytest.mark.parametrize(
    ("scores", "tried"),
    [
        ({256: 1.0, 64: 1.004, 16: 0.9}, [256, 64, 16]),
        ({256: 1.0, 64: 1.006, 16: 0.9}, [256, 64]),
        ({256: 1.0, 64: 0.8, 16: 0.9}, [256, 64, 16]),
        ({256: 3.0, 64: 2.0, 16: 1.0}, [256, 64, 16]),
    ],
)
def test_shorter_windows_are_tried_until_they_are_worse(
    scores: dict[int, float], tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was tried is kept, the worse one too: certify takes the best of its bounds."""
    asked: list[int] = []

    def fitted(gram: object, size: int, *others: object) -> list[Scored]:
        asked.append(size)
        return [Scored(scores[size])]

    monkeypatch.setattr("hockeystick.windows.dominating_windows.dominating_windows", fitted)
    pair = SubsetMixture(noise_multiplier=2.0, matrix=ToeplitzMatrix(np.array([1.0, 0.5]), 300), sampling_prob=0.01)
    assert [window.score for window in windows_above(pair, SETTINGS)] == [scores[size] for size in tried]  # type: ignore[attr-defined]
    assert asked == tried


@pytest.mark.parametrize(
    ("strategy", "prob", "steps", "sigma", "delta"),
    [(hs.Dense(), 0.00376, 30, 1.956, 8.12e-10), (hs.BandedInverse(bands=3), 0.01788, 38, 2.161, 5.445e-8)],
)
def test_free_scales_are_not_worse_than_a_formula_at_small_deltas(
    strategy: Any, prob: float, steps: int, sigma: float, delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their second moment is smaller, but not their longest column, which decides at small deltas."""

    def epsilon() -> float:
        sampler = hs.Poisson(sampling_prob=prob, steps=steps)
        matrix = hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=sigma).matrix.materialize()
        pair = SubsetMixture(noise_multiplier=sigma, matrix=DenseMatrix(matrix), sampling_prob=prob)
        work = hs.Settings(hs.Resolution(34, delta), question=hs.Question(delta=delta))
        return METHOD.bound(pair, Side.UPPER, work).epsilon(delta)

    free = epsilon()
    monkeypatch.setattr("hockeystick.windows.dominating_windows.MOST_FREED", 0)
    assert free <= epsilon() * (1.0 + 1e-3)


@pytest.mark.parametrize("seed", range(12))
def test_cyclic_groups_are_never_below_the_truth(seed: int) -> None:
    """Of a Toeplitz matrix the first group is the worst; every group is enumerated."""
    rng = np.random.default_rng([61, seed])
    groups, steps = 2, int(rng.integers(2, 5))
    prob, sigma = rng.uniform(0.05, 0.9), rng.uniform(0.5, 2.0)
    matrix = random_matrix(rng, steps, 2)
    toeplitz = ToeplitzMatrix(matrix[:, 0], steps)
    above = upper(SubsetMixture(noise_multiplier=sigma, matrix=toeplitz, sampling_prob=prob, groups=groups))
    for group in range(groups):
        outcomes = oracle.independently(oracle.coins(range(group, steps, groups), prob), 1)
        truth = oracle.deltas(oracle.mixture(outcomes, matrix, np.ones((1, steps))), oracle.nobody(matrix), sigma)
        assert (above >= truth - GRID_ERROR[steps]).all()


@pytest.mark.parametrize("seed", range(6))
def test_several_examples_of_one_user_are_never_below_the_truth(seed: int) -> None:
    """b-min-sep with more than one example, as Poisson sampling with a coin for each."""
    rng = np.random.default_rng([67, seed])
    prob, sigma, steps = rng.uniform(0.05, 0.5), rng.uniform(0.8, 2.0), 3
    matrix = random_matrix(rng, steps, 2)
    outcomes = oracle.attributed(2, steps, 2, prob)
    truth = oracle.deltas(oracle.mixture(outcomes, matrix, np.ones((2, steps))), oracle.nobody(matrix), sigma)
    pair = RenewalMixture(
        noise_multiplier=sigma,
        matrix=ToeplitzMatrix(matrix[:, 0], steps),
        min_sep=2,
        participation_prob=prob,
        warm_start=False,
        examples_per_user=2,
    )
    assert (upper(pair) >= truth - GRID_ERROR[steps]).all()


def test_one_window_of_a_chain_is_close() -> None:
    """Two steps are a chain, so a single window loses only lattice and grids."""
    matrix = np.array([[1.0, 0.0], [0.4, 0.9]])
    outcomes = oracle.independently(oracle.coins(range(2), 0.3), 1)
    truth = oracle.deltas(oracle.mixture(outcomes, matrix, np.ones((1, 2))), oracle.nobody(matrix), 0.8)
    pair = SubsetMixture(noise_multiplier=0.8, matrix=DenseMatrix(matrix), sampling_prob=0.3)
    above = upper(pair, work=hs.Settings(hs.Resolution(72, 1e-4)))
    assert np.abs(above - truth).max() < GRID_ERROR[2] + 0.03 * truth.max()


@settings(max_examples=10)
@given(st.floats(0.005, 0.3), st.floats(0.8, 3.0), st.integers(1, 4))
def test_more_coins_less_noise_and_more_steps_are_worse(prob: float, sigma: float, bands: int) -> None:
    column = np.array([1.0, 0.5, 0.375, 0.3125])[:bands]

    def bound(prob: float, sigma: float, steps: int) -> np.ndarray:
        matrix = ToeplitzMatrix(column, steps)
        return upper(SubsetMixture(noise_multiplier=sigma, matrix=matrix, sampling_prob=prob))

    better = bound(prob, sigma, 24)
    for other in (bound(prob, 0.85 * sigma, 24), bound(1.2 * prob, sigma, 24), bound(prob, sigma, 32)):
        assert (better <= 1.03 * other + 1e-9).all()


def test_it_is_between_the_other_bounds() -> None:
    """Never below what a statistic shows, nor above what splitting gives with 3 percent less noise, at any bands."""
    for strategy in (hs.BandedSquareRoot(bands=4), hs.SquareRoot(), hs.BandedSquareRoot(bands=16)):
        for sampler in (
            hs.Poisson(sampling_prob=0.02, steps=120),
            hs.CyclicPoisson(groups=2, steps=120, sampling_prob=0.1),
        ):
            run = hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=6.0)
            pair, worse = dominating_pair(run), dominating_pair(run.model_copy(update={"noise_multiplier": 5.82}))
            above = upper(pair, work=FINE)
            below = ACCOUNTANTS["linear_statistic"].profiles(pair, Side.LOWER, FINE)
            for i, direction in enumerate(Direction):
                assert (above[i] >= [below[direction](epsilon) for epsilon in EPSILONS]).all()
            assert (above[:, :2] <= upper(worse, "split_noise", FINE)[:, :2] + 1e-6).all()  # grids are for delta > 1e-4


def test_what_it_is_not_for() -> None:
    sampler = hs.Poisson(sampling_prob=0.05, steps=20)
    plain = hs.Mechanism(strategy=hs.BandedSquareRoot(bands=2), sampler=sampler, noise_multiplier=1.0)
    assert METHOD.why_not(dominating_pair(plain), Side.UPPER) is None
    assert METHOD.why_not(dominating_pair(plain), Side.LOWER) is not None
    users = plain.model_copy(update={"unit": Unit(kind="user", examples_per_user=2)})
    assert METHOD.why_not(dominating_pair(users), Side.UPPER) is None
    for prob in (1.0, 0.995, 1e-16):
        pair = SubsetMixture(noise_multiplier=1.0, matrix=DenseMatrix(np.eye(3)), sampling_prob=prob)
        assert "sampling probability" in (METHOD.why_not(pair, Side.UPPER) or "")
    dense = SubsetMixture(noise_multiplier=1.0, matrix=DenseMatrix(np.eye(4)), sampling_prob=0.1, groups=2)
    assert "Toeplitz" in (METHOD.why_not(dense, Side.UPPER) or "")
    full = SubsetMixture(noise_multiplier=1.0, matrix=ToeplitzMatrix(np.ones(9000), 9000), sampling_prob=0.1)
    assert "bands" in (METHOD.why_not(full, Side.UPPER) or "")


@pytest.mark.parametrize("sigma", [0.02, 0.03, 0.1, 0.3])
def test_low_noise_is_refused_or_bounded(sigma: float) -> None:
    """Ratios that no double holds never look like privacy: any bound is above one participation that is known."""
    for strategy in (hs.BandedSquareRoot(bands=4), hs.SquareRoot()):
        sampler = hs.Poisson(sampling_prob=0.05, steps=12)
        run = hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=sigma)
        try:
            certificate = hs.certify(run, delta=1e-5, method="participation_windows")
        except (CannotCertifyError, UnsupportedError):
            assert sigma <= 0.3
            continue
        alone = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.05, steps=1), noise_multiplier=sigma)
        least = hs.certify(alone, delta=1e-5).bounds.lower
        assert least is not None
        assert certificate.bounds.upper >= least > 1.0


def test_bounds_do_not_depend_on_the_noises_that_were_asked_before() -> None:
    """Else a certificate would not verify. 1.4 and 1.43 are in two octaves, and share the level between them."""

    def asked(noises: tuple[float, ...]) -> dict[float, float]:
        run = hs.Mechanism(
            strategy=hs.BandedSquareRoot(bands=3), sampler=hs.Poisson(sampling_prob=0.1, steps=24), noise_multiplier=1.0
        )
        matrix = ToeplitzMatrix(np.array([1.0, 0.5, 0.375]), 24)  # a new one, of which nothing is known
        usual = dominating_pair(run)
        assert isinstance(usual, SubsetMixture)
        pair = replace(usual, matrix=matrix)
        return {
            noise: METHOD.bound(replace(pair, noise_multiplier=noise), Side.UPPER, FINE).epsilon(1e-4)
            for noise in noises
        }

    noises = (1.4, 1.43, 2.8, 2.86)
    assert asked(noises) == asked(noises[::-1])
