"""Lower bounds by sums over rows: against sums over all outputs, enumeration of all sums, and the other bounds."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import unit_oracle as oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from unit_oracle import EPSILONS, GRID_ERROR

import hockeystick as hs
from hockeystick import Direction, Side
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.filters.row_filters import Filter, count_histories, filter_for, histories_of, sum_laws, tracked
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.pairs.users import Users
from hockeystick.pairs.waiting_copies import WaitingCopies
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix

METHOD = ACCOUNTANTS["row_filter"]
SETTINGS = hs.Settings(hs.Resolution(20, 1e-3))


def lower(pair: Any, name: str = "row_filter") -> np.ndarray:
    """(remove, add) at EPSILONS, shape (2, epsilons)."""
    profiles = ACCOUNTANTS[name].profiles(pair, Side.LOWER, SETTINGS)
    return np.array([[profiles[direction](epsilon) for epsilon in EPSILONS] for direction in Direction])


@pytest.mark.parametrize("block", range(32))
def test_never_above_the_truth_and_not_far(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten runs each, both directions at once; with all participations tracked, and with one at a time."""
    for seed in range(10 * block, 10 * block + 10):
        rng = np.random.default_rng([71, seed])
        steps = 4 if seed % 10 == 0 else int(rng.integers(1, 4))
        bands = int(rng.integers(1, steps + 1))
        prob, sigma = rng.uniform(0.03, 0.9), rng.uniform(0.4, 2.5)
        matrix = ToeplitzMatrix(np.concatenate([[1.0], rng.uniform(0.0, 0.9, bands - 1)]), steps)
        outcomes = oracle.independently(oracle.coins(range(steps), prob), 1)
        dense = matrix.materialize()
        truth = oracle.deltas(oracle.mixture(outcomes, dense, np.ones((1, steps))), oracle.nobody(dense), sigma)
        pair = SubsetMixture(noise_multiplier=sigma, matrix=matrix, sampling_prob=prob)
        monkeypatch.setattr("hockeystick.filters.row_filters.MOST_HISTORIES", 32)
        below = lower(pair)
        assert (below <= truth + GRID_ERROR[steps]).all(), seed
        monkeypatch.setattr("hockeystick.filters.row_filters.MOST_HISTORIES", 4)
        assert (lower(pair) <= truth + GRID_ERROR[steps]).all(), seed
        assert (below[:, 0] >= 0.6 * truth[:, 0] - GRID_ERROR[steps]).all(), seed


@pytest.mark.parametrize("examples", [1, 2])
@pytest.mark.parametrize("block", range(2))
def test_never_above_the_truth_for_b_min_sep(block: int, examples: int) -> None:
    """Ten runs each, warm and cold, both directions, columns up to the distance; one example of a user, or two."""
    for seed in range(10 * block, 10 * block + 10):
        rng = np.random.default_rng([72, seed])
        steps = 4 if seed % 10 == 0 else int(rng.integers(1, 4))
        gap, bands, warm = int(rng.integers(1, steps + 2)), int(rng.integers(1, steps + 1)), bool(seed % 2)
        prob, sigma = rng.uniform(0.03, 0.9), rng.uniform(0.4, 2.5)
        matrix = ToeplitzMatrix(np.concatenate([[1.0], rng.uniform(0.0, 0.9, min(bands, gap) - 1)]), steps)
        outcomes = oracle.independently(oracle.renewals(steps, gap, prob, warm), examples)
        dense = matrix.materialize()
        everyone = oracle.mixture(outcomes, dense, np.ones((examples, steps)))
        truth = oracle.deltas(everyone, oracle.nobody(dense), sigma)
        single = RenewalMixture(
            noise_multiplier=sigma, matrix=matrix, min_sep=gap, participation_prob=prob, warm_start=warm
        )
        two = WaitingCopies(noise_multiplier=sigma, one=single, examples=2)
        below = lower(single if examples == 1 else two)
        assert (below <= truth + GRID_ERROR[steps]).all(), seed
        assert (below[:, 0] >= 0.6 * truth[:, 0] - GRID_ERROR[steps]).all(), seed


def test_nearly_all_of_b_min_sep_is_told() -> None:
    """Sampling says that epsilon is from 1.788 to 1.797 here; a sum of functions of blocks has 1.755."""
    prob = 0.01 / (1.0 - 15 * 0.01)
    pair = RenewalMixture(
        noise_multiplier=1.0,
        matrix=ToeplitzMatrix(np.ones(1), 1000),
        min_sep=16,
        participation_prob=prob,
        warm_start=True,
    )
    profiles = METHOD.profiles(pair, Side.LOWER, SETTINGS)
    assert max(profiles[direction](1.77) for direction in Direction) > 1e-5
    assert max(profiles[direction](1.797) for direction in Direction) < 1e-5


def test_nearly_all_of_two_that_wait_is_told() -> None:
    """A user with two examples and independent noise: where a linear statistic is 25 percent below the upper bound."""
    sampler = hs.MultiAttribution(min_sep=16, sampling_prob=0.01, steps=300, examples_per_user=2, exclusion="example")
    certificate = hs.certify(hs.Mechanism(sampler=sampler, noise_multiplier=1.2), delta=1e-5)
    assert certificate.method.lower == "row_filter"
    assert certificate.bounds.lower is not None
    assert 0.97 * certificate.bounds.upper < certificate.bounds.lower <= certificate.bounds.upper


def test_more_than_two_that_wait_are_left_to_linear_statistics() -> None:
    sampler = hs.MultiAttribution(min_sep=16, sampling_prob=0.01, steps=100, examples_per_user=3, exclusion="example")
    pair = dominating_pair(hs.Mechanism(sampler=sampler, noise_multiplier=1.5))
    assert isinstance(pair, Users)
    assert pair.below is not None
    assert "two that wait" in (METHOD.why_not(pair.below, Side.LOWER) or "")


def enumerated(column: np.ndarray, sigma: float, prob: float, steps: int, limit: int, table: Filter) -> np.ndarray:
    """Masses of T without and with the example: all cells and all participations that a description allows."""
    ends = np.concatenate([[-np.inf], table.edges, [np.inf]])
    without, present = np.zeros(table.size), np.zeros(table.size)
    for cells in product(range(ends.size - 1), repeat=steps):
        place, summary = table.start, table.first
        for cell in cells:
            place = int(np.clip(place + table.added[summary, cell], 0, table.size - 1))
            summary = table.following[summary, cell]
        for coins in product((0, 1), repeat=steps):
            taken: list[int] = []
            for step, coin in enumerate(coins):
                recent = [t for t in taken if t > step - column.size + 1]
                if coin and (len(recent) < limit or column.size == 1):
                    taken.append(step)
            chance = np.prod([prob if coin else 1.0 - prob for coin in coins])
            for masses, visits in ((without, []), (present, taken)):
                factor = float(chance)
                for row, cell in enumerate(cells):
                    mean = sum(column[row - t] for t in visits if 0 <= row - t < column.size) / sigma
                    factor *= norm.cdf(ends[cell + 1] - mean) - norm.cdf(ends[cell] - mean)
                masses[place] += factor
    return np.array([without, present])


@pytest.mark.parametrize(("bands", "limit"), [(1, 1), (2, 1), (3, 1), (3, 2)])
def test_sums_have_the_laws_of_an_enumeration(bands: int, limit: int) -> None:
    """Three rows, four cells, three summaries, sums that reach both ends; beyond a limit no one takes part."""
    rng = np.random.default_rng([73, bands, limit])
    column = np.array([1.0, 0.7, 0.4])[:bands]
    table = Filter(
        edges=np.array([-0.5, 0.4, 1.3]),
        following=rng.integers(0, 3, (3, 4)),
        added=rng.integers(-4, 5, (3, 4)),
        first=1,
        start=5,
        size=9,
    )
    histories = histories_of(column, 0.8, limit)
    without, present, error = sum_laws(histories, table, 0.35, 3, 0.0)
    expected = enumerated(column, 0.8, 0.35, 3, limit, table)
    np.testing.assert_allclose(without, expected[0], rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(present, expected[1], rtol=1e-10, atol=1e-15)
    assert 0.0 < error < 1e-8


@settings(max_examples=10)
@given(st.floats(0.01, 0.5), st.floats(0.5, 4.0), st.integers(1, 9), st.integers(1, 40))
def test_both_laws_are_whole(prob: float, sigma: float, bands: int, steps: int) -> None:
    column = 1.0 / np.sqrt(np.arange(1.0, bands + 1.0))
    histories = histories_of(column, sigma, tracked(bands, prob))
    table = filter_for(histories, prob, steps, 20.0)
    without, present, error = sum_laws(histories, table, prob, steps, 0.0)
    assert without.sum() == pytest.approx(1.0, abs=error)
    assert present.sum() == pytest.approx(1.0, abs=error)


@pytest.mark.parametrize("sigma", [30.0, 1e3, 1e6])
def test_sums_are_as_few_with_much_noise(sigma: float) -> None:
    """What is kept is in proportion to what rows tell, so that neither memory nor time grow with the noise."""
    column = np.array([1.0, 0.5, 0.375, 0.3125])
    histories = histories_of(column, sigma, tracked(4, 0.02))
    table = filter_for(histories, 0.02, 100, 50.0)
    assert table.added.max() > 1
    assert 12 * 50.0 < table.size < 40 * 50.0


def test_histories_are_few_and_follow_each_other() -> None:
    for bands in range(1, 33):
        limit = tracked(bands, 0.1)
        histories = histories_of(np.ones(bands), 1.0, limit)
        assert count_histories(bands, limit) == histories.free.size <= 32
        assert histories.shifts[0] == 0.0
        assert histories.following[0, 0] == 0
        assert histories.free[0]
        # With a column of ones a history's shift counts its participations.
        for k, shift in enumerate(histories.shifts):
            assert shift <= limit
            before, after = histories.shifts[histories.following[k]]
            assert shift - 1.0 <= before <= shift
            assert after - before == (1.0 if histories.free[k] and bands > 1 else 0.0)
    assert tracked(34, 0.1) == 0


def test_it_is_below_the_upper_bounds_and_close() -> None:
    """Where no statistic but the whole output is better: at many steps, with few bands."""
    run = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=3), sampler=hs.Poisson(sampling_prob=0.02, steps=200), noise_multiplier=1.5
    )
    pair = dominating_pair(run)
    above = ACCOUNTANTS["participation_windows"].bound(pair, Side.UPPER)
    below, linear = METHOD.bound(pair, Side.LOWER), ACCOUNTANTS["linear_statistic"].bound(pair, Side.LOWER)
    for direction in Direction:
        most = above.profiles[direction](1.0)
        assert 1.1 * linear.profiles[direction](1.0) < below.profiles[direction](1.0) <= most
        assert below.profiles[direction](1.0) > 0.35 * most


def test_what_it_is_not_for() -> None:
    def reason(matrix: Any, prob: float = 0.1, groups: int = 1, public: bool = True) -> str:
        pair = SubsetMixture(
            noise_multiplier=1.0, matrix=matrix, sampling_prob=prob, groups=groups, groups_are_public=public
        )
        return METHOD.why_not(pair, Side.LOWER) or ""

    few = ToeplitzMatrix(np.array([1.0, 0.5]), 10)
    assert reason(few) == ""
    assert "groups" in reason(few, groups=2)
    assert "secret" in reason(few, groups=2, public=False)
    assert "sampling probability" in reason(few, prob=1.0)
    assert "Toeplitz" in reason(DenseMatrix(np.eye(4)))
    assert "bands" in reason(ToeplitzMatrix(np.ones(40), 100))
    assert "steps" in reason(ToeplitzMatrix(np.ones(8), 100_000))


@pytest.mark.parametrize(
    ("bands", "steps", "sigma", "least", "ratio"),
    [
        (4, 200, 2.0, 0.75, 1.10),
        pytest.param(4, 1000, 2.0, 1.70, 1.10, marks=pytest.mark.weekly),
        pytest.param(6, 1000, 3.0, 1.32, 1.08, marks=pytest.mark.weekly),
        pytest.param(8, 1000, 4.0, 1.10, 1.06, marks=pytest.mark.weekly),
    ],
)
def test_usual_runs_have_both_sides_without_sampling(
    bands: int, steps: int, sigma: float, least: float, ratio: float
) -> None:
    """Epsilon at rate 0.01 and delta = 1e-6."""
    run = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=bands),
        sampler=hs.Poisson(sampling_prob=0.01, steps=steps),
        noise_multiplier=sigma,
    )
    certificate = hs.certify(run, delta=1e-6)
    assert certificate.method.upper == "participation_windows"
    assert certificate.method.lower in ("row_filter", "linear_statistic")  # with 8 bands they are equally good
    assert certificate.bounds.lower is not None
    assert least < certificate.bounds.lower < certificate.bounds.upper < ratio * certificate.bounds.lower
    if bands == 4:
        hs.verify(certificate)
