"""b-min-sep bounded by Poisson subsampling, against sums over all participations: both directions, every start."""

from math import exp
from typing import Any

import numpy as np
import pytest
import unit_oracle as oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from unit_oracle import EPSILONS, GRID_ERROR

import hockeystick as hs
from hockeystick import Direction, Side
from hockeystick.accountants import deletion
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.errors import UnsupportedError
from hockeystick.mechanism import Unit
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.truncated_renewal import TruncatedRenewal, cuts
from hockeystick.strategies.matrix.dense import DenseMatrix

SETTINGS = hs.Settings(hs.Resolution(24, 1e-4))


def renewal(matrix: np.ndarray, sigma: float = 1.0, **changes: Any) -> RenewalMixture:
    fields: dict[str, Any] = {"min_sep": 2, "participation_prob": 0.3, "warm_start": True} | changes
    return RenewalMixture(noise_multiplier=sigma, matrix=DenseMatrix(matrix), **fields)


def upper(pair: Any, name: str = "split_noise") -> np.ndarray:
    """(remove, add) at EPSILONS, shape (2, epsilons)."""
    profiles = ACCOUNTANTS[name].profiles(pair, Side.UPPER, SETTINGS)
    return np.array([[profiles[direction](epsilon) for epsilon in EPSILONS] for direction in Direction])


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_never_below_the_truth(seed: int, warm: bool) -> None:
    """Random causal C >= 0, overlapping or not, of two to four steps, noises and coins."""
    rng = np.random.default_rng([17, seed])
    steps = int(rng.integers(2, 5))
    gap, prob, sigma = int(rng.integers(1, steps + 1)), rng.uniform(0.05, 0.9), rng.uniform(0.5, 2.0)
    matrix = np.tril(rng.uniform(0.0, 1.0, (steps, steps)) * (rng.random((steps, steps)) < 0.7)) + np.eye(steps)
    outcomes = oracle.independently(oracle.renewals(steps, gap, prob, warm), 1)
    p = oracle.mixture(outcomes, matrix, np.ones((1, steps)))
    truth = oracle.deltas(p, oracle.nobody(matrix), sigma)
    pair = renewal(matrix, sigma, min_sep=gap, participation_prob=prob, warm_start=warm)
    assert (upper(pair) >= truth - GRID_ERROR[steps]).all()


def test_the_rate_is_no_coin() -> None:
    """C = I, n = b = 2, coin 1/2, rate 1/3: Poisson sampling at the rate has less, so the coin has to be used."""
    matrix = np.eye(2)
    outcomes = oracle.independently(oracle.renewals(2, 2, 0.5, warm=True), 1)
    truth = oracle.deltas(oracle.mixture(outcomes, matrix, np.ones((1, 2))), oracle.nobody(matrix), 0.5)
    at_rate = hs.Mechanism(sampler=hs.Poisson(sampling_prob=1 / 3, steps=2), noise_multiplier=0.5)
    profiles = ACCOUNTANTS["direct"].profiles(dominating_pair(at_rate), Side.UPPER, SETTINGS)
    add = [profiles[Direction.ADD](epsilon) for epsilon in EPSILONS]
    assert min(add[1] - truth[1, 1], add[2] - truth[1, 2]) < -0.01
    run = hs.Mechanism(sampler=hs.BMinSep(min_sep=2, sampling_prob=1 / 3, steps=2), noise_multiplier=0.5)
    assert (upper(dominating_pair(run), "direct") >= truth - GRID_ERROR[2]).all()


@pytest.mark.parametrize("name", ["direct", "split_noise"])
def test_without_a_separation_it_is_poisson(name: str) -> None:
    poisson = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=20), noise_multiplier=1.0)
    run = hs.Mechanism(sampler=hs.BMinSep(min_sep=1, sampling_prob=0.1, steps=20), noise_multiplier=1.0)
    truth = ACCOUNTANTS["direct"].bound(dominating_pair(poisson), Side.LOWER, SETTINGS)
    bound = ACCOUNTANTS[name].bound(dominating_pair(run), Side.UPPER, SETTINGS)
    for epsilon in EPSILONS:
        assert truth.delta(epsilon) <= bound.delta(epsilon) <= 1.03 * truth.delta(epsilon) + 1e-9


@settings(max_examples=10)
@given(st.floats(0.02, 0.5), st.floats(0.5, 3.0), st.booleans(), st.integers(1, 3))
def test_more_coins_less_noise_and_more_examples_are_worse(
    prob: float, sigma: float, warm: bool, examples: int
) -> None:
    matrix = np.eye(6) + 0.5 * np.eye(6, k=-1)
    better = upper(renewal(matrix, sigma, participation_prob=prob, warm_start=warm, examples_per_user=examples))
    room = 1.0 + 1e-3  # of the grids
    for worse in (
        renewal(matrix, sigma, participation_prob=1.1 * prob, warm_start=warm, examples_per_user=examples),
        renewal(matrix, 0.95 * sigma, participation_prob=prob, warm_start=warm, examples_per_user=examples),
        renewal(matrix, sigma, participation_prob=prob, warm_start=warm, examples_per_user=examples + 1),
    ):
        assert (better <= upper(worse) * room + 1e-12).all()


# Batches that are cut


def truncated(cap: int, num_examples: int, warm: bool = True, **changes: Any) -> TruncatedRenewal:
    fields: dict[str, Any] = {"min_sep": 2, "participation_prob": 0.3} | changes
    return TruncatedRenewal(
        noise_multiplier=1.0,
        matrix=DenseMatrix(np.array([[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.5, 1.0]])),
        warm_start=warm,
        truncated_batch_size=cap,
        num_examples=num_examples,
        **fields,
    )


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize(
    ("cap", "num_examples", "prob"), [(1, 3, 0.3), (2, 3, 0.3), (2, 4, 0.3), (3, 4, 0.3), (2, 3, 0.05), (1, 2, 0.1)]
)
def test_a_run_whose_batches_are_cut_is_covered(cap: int, num_examples: int, prob: float, warm: bool) -> None:
    """The pair itself, given how many others are taken, by sums over all runs of all others.

    What cuts cost is held against the run without a cap itself too, not only against its bound, which leaves room.
    """
    pair = truncated(cap, num_examples, warm, participation_prob=prob)
    matrix = pair.matrix.materialize()
    law = oracle.renewals(3, 2, prob, warm)
    crowds: dict[tuple[int, ...], float] = {}
    for chance, visits in oracle.independently(law, num_examples - 1):
        counts = tuple(sum(step in each for each in visits) for step in range(3))
        crowds[counts] = crowds.get(counts, 0.0) + chance
    truth, cut = np.zeros((2, len(EPSILONS))), 0.0
    for crowd, chance in crowds.items():
        first: dict[tuple[float, ...], float] = {}
        second: dict[tuple[float, ...], float] = {}
        for own, steps in law:
            cut += chance * own * any(crowd[step] >= cap for step in steps)
            _survive(own, steps, crowd, cap, matrix, first, second)
        truth += chance * oracle.deltas([(p, x) for x, p in first.items()], [(p, x) for x, p in second.items()], 1.0)
    assert cut * (1.0 - 1e-9) <= cuts(pair)[0] <= 3.0 * cut + 1e-290
    assert (upper(pair) >= truth - GRID_ERROR[3]).all()
    whole = oracle.mixture(oracle.independently(law, 1), matrix, np.ones((1, 3)))
    uncut = oracle.deltas(whole, oracle.nobody(matrix), 1.0)
    exactly = {
        way: (lambda epsilon, row=row: float(row[EPSILONS.index(epsilon)]))
        for way, row in zip(Direction, uncut, strict=True)
    }
    covered = deletion.with_cuts(exactly, pair)
    with_cap = np.array([[covered[way](epsilon) for epsilon in EPSILONS] for way in Direction])
    assert (with_cap >= truth - 2.0 * GRID_ERROR[3]).all()


def _survive(
    own: float,
    steps: tuple[int, ...],
    crowd: tuple[int, ...],
    cap: int,
    matrix: np.ndarray,
    first: dict[tuple[float, ...], float],
    second: dict[tuple[float, ...], float],
) -> None:
    full = [step for step in steps if crowd[step] >= cap]
    for kept in range(1 << len(full)):
        chance, x, y = own, np.zeros(3), np.zeros(3)
        for step in steps:
            x[step] = 1.0
        for place, step in enumerate(full):
            stays = cap / (crowd[step] + 1.0)
            survives = bool(kept >> place & 1)
            chance *= stays if survives else 1.0 - stays
            x[step], y[step] = (2.0, 1.0) if survives else (0.0, 0.0)
        for chances, mean in ((first, matrix @ x), (second, -(matrix @ y))):
            key = tuple(mean.tolist())
            chances[key] = chances.get(key, 0.0) + chance


def test_what_a_cap_costs() -> None:
    """Warm: rate times the upper tail of the others' binomial at every step; the cost goes away with a generous cap."""
    pair = truncated(4, 9)
    rate = 0.3 / 1.3
    full = float(binom.sf(3, 8, rate))
    chance, expected = cuts(pair)
    assert chance == pytest.approx(3.0 * rate * full, rel=1e-5)
    assert expected == pytest.approx(3.0 * full * 0.3 / 0.7**2, rel=1e-5)
    plain = renewal(pair.matrix.materialize())
    assert np.allclose(upper(truncated(100, 100)), upper(plain), rtol=1e-9)
    remove = [2.0 * chance for _ in EPSILONS]
    add = [chance + min(exp(epsilon) * chance, expected) for epsilon in EPSILONS]
    assert add[0] < chance + expected < exp(EPSILONS[-1]) * chance
    assert np.allclose(upper(pair), np.minimum(upper(plain) + np.array([remove, add]), 1.0), rtol=1e-9)


@pytest.mark.parametrize("name", ["split_noise", "separated_windows", "participation_windows"])
def test_a_delta_that_cuts_alone_exceed_is_refused_at_once(name: str) -> None:
    """No epsilon meets it, as removing an example costs twice the chance of a cut; larger deltas have one."""
    sampler = hs.BMinSep(min_sep=4, sampling_prob=0.05, steps=24, truncated_batch_size=45, num_examples=500)
    run = hs.Mechanism(strategy=hs.BandedSquareRoot(bands=2), sampler=sampler, noise_multiplier=4.0)
    pair = dominating_pair(run)
    assert isinstance(pair, TruncatedRenewal)
    least = 2.0 * cuts(pair)[0]
    for factor, refused in ((0.99, True), (3.0, False)):
        question = hs.Question(delta=factor * least)
        settings = hs.Settings(hs.Resolution(16, factor * least), question=question)
        if refused:
            with pytest.raises(UnsupportedError, match="in a batch that is cut"):
                hs.bound(run, name, settings=settings)
            whole = hs.bound(run, name, settings=hs.Settings(hs.Resolution(16, factor * least)))
            assert whole.epsilon(factor * least) == float("inf")
        else:
            assert hs.bound(run, name, settings=settings).epsilon(factor * least) < float("inf")


def test_an_example_that_never_skips_a_step_is_charged_the_union() -> None:
    """For q = 1 the second number is infinite, and far out in epsilon nothing overflows."""
    pair = truncated(2, 4, participation_prob=1.0)
    chance, expected = cuts(pair)
    assert expected == np.inf
    covered = deletion.with_cuts({way: lambda epsilon: 0.0 for way in Direction}, pair)
    assert covered[Direction.ADD](0.5) == min(1.0, (1.0 + exp(0.5)) * chance)
    assert covered[Direction.ADD](1e4) == 1.0
    assert covered[Direction.REMOVE](1e4) == min(1.0, 2.0 * chance)


# Users


def test_several_examples_of_a_user_are_never_more_private() -> None:
    """By the unit of a plan, and by a sampler in which examples keep their own distance, which say the same."""
    uppers = []
    for examples in (1, 2, 4):
        unit = Unit() if examples == 1 else Unit(kind="user", examples_per_user=examples)
        cold = hs.BMinSep(min_sep=4, sampling_prob=0.02, steps=16, warm_start=False)
        run = hs.Mechanism(sampler=cold, noise_multiplier=1.5, unit=unit)
        bound = hs.certify(run, delta=1e-5)
        sampler = hs.MultiAttribution(
            min_sep=4,
            sampling_prob=cold.participation_prob,
            steps=16,
            examples_per_user=examples,
            users_per_example=examples,
            exclusion="example",
        )
        same = hs.certify(hs.Mechanism(sampler=sampler, noise_multiplier=1.5), delta=1e-5)
        assert same.bounds.upper == pytest.approx(bound.bounds.upper, rel=1e-9)
        uppers.append(bound.bounds.upper)
    assert uppers == sorted(uppers)
    assert uppers[0] < 1.0 < uppers[2] < 10.0
