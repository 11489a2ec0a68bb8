"""Lower bounds by linear statistics of windows of steps, against enumeration and integrals."""

from fractions import Fraction
from itertools import product
from math import exp

import numpy as np
import pytest
from scipy.special import ndtr

from hockeystick import Direction, Question, Resolution, Side
from hockeystick.accountants import direct
from hockeystick.accountants.linear_statistic import ACCOUNTANT, statistic_shifts, steps_in_play
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.discretise import mixture_law
from hockeystick.laws.operations import compose
from hockeystick.laws.profile import law_delta
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.strategies.matrix.base import Array, StrategyMatrix
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix
from hockeystick.windows import column_entries, windows
from hockeystick.windows.column_entries import Entries, entries_of
from hockeystick.windows.windows import similar_windows, window_law, window_sizes, with_equal_shifts

WORK = Settings(resolution=Resolution(48, 1e-12))
EPSILONS = (0.0, 0.3, 1.0, 2.0, 4.0)
RNG = np.random.default_rng(7)
DENSE = np.tril(RNG.random((12, 12))) + np.eye(12)
BAND = RNG.random((12, 3)) + 0.1
BAND[-1, 1:] = BAND[-2, 2] = 0.0
MATRICES: dict[str, StrategyMatrix] = {
    "toeplitz": ToeplitzMatrix(np.array([1.0, 0.6, 0.3]), 12),
    "full toeplitz": ToeplitzMatrix(1.0 / np.sqrt(np.arange(1.0, 13.0)), 12),
    "banded": BandedMatrix(BAND),
    "dense": DenseMatrix(DENSE),
    "tree": TreeMatrix(16, 12),
    "restarted trees": TreeMatrix(4, 12),
}


def poisson(matrix: StrategyMatrix, q: float, sigma: float) -> SubsetMixture:
    return SubsetMixture(noise_multiplier=sigma, matrix=matrix, sampling_prob=q)


def read(pair: SubsetMixture) -> Entries:
    return entries_of(pair.matrix, steps_in_play(pair), Deadline())


# Shifts by their definition -------------------------------------------------------------------------------------------


def shifts_by_definition(columns: Array, size: int) -> list[list[float]]:
    """Window by window: the rows whose entries are all in it, the mean direction on them, its inner products."""
    windows = []
    for start in range(0, columns.shape[1], size):
        window = np.arange(start, min(start + size, columns.shape[1]))
        others = np.delete(columns, window, axis=1)
        rows = np.flatnonzero((others == 0.0).all(axis=1))
        kept = columns[np.ix_(rows, window)]
        mean = kept.sum(axis=1)
        length = float(np.linalg.norm(mean))
        shifts = kept.T @ (mean / length) if length > 0.0 else np.zeros(window.size)
        windows.append(sorted(shifts.tolist(), reverse=True) + [0.0] * (size - window.size))
    return windows


@pytest.mark.parametrize("groups", [1, 2, 5])
@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_shifts_are_inner_products_with_the_mean_of_the_window(matrix: StrategyMatrix, groups: int) -> None:
    pair = SubsetMixture(noise_multiplier=1.0, matrix=matrix, groups=groups, sampling_prob=0.5)
    columns = matrix.materialize()[:, steps_in_play(pair)]
    entries = read(pair)
    for size in (1, 2, 3, 5, columns.shape[1]):
        ours, exact = statistic_shifts(entries, size), np.array(shifts_by_definition(columns, size))
        np.testing.assert_allclose(ours, exact, rtol=1e-11, atol=1e-13)
        assert np.all(ours <= exact * (1.0 + 1e-15) + 1e-17)
    assert window_sizes(columns.shape[1], entries.overlap)[-1] == columns.shape[1]


def test_the_strongest_group_is_taken() -> None:
    band = np.array([1.0, 3.0, 1.0, 1.0, 3.0, 1.0])[:, None]
    pair = SubsetMixture(noise_multiplier=1.0, matrix=BandedMatrix(band), groups=3, sampling_prob=0.5)
    assert steps_in_play(pair).tolist() == [1, 4]


# Laws against enumeration ---------------------------------------------------------------------------------------------


def exact_profile(means: Array, weights: Array, sigma: float, epsilon: float, direction: Direction) -> float:
    """``sum_k weights[k] N(means[k], sigma^2 I)`` against ``N(0, sigma^2 I)`` in one or two dimensions.

    The ratio increases in the last coordinate, so given the first the expectation is a sum of normal probabilities.
    """
    means = means / sigma
    if means.shape[1] == 1:
        nodes, mass = np.zeros(1), np.ones(1)
        first = np.ones((1, weights.size))
    else:
        nodes = np.linspace(-11.0, 11.0 + float(means[:, 0].max()), 6001)
        mass = np.exp(-0.5 * nodes * nodes) / np.sqrt(2.0 * np.pi) * (nodes[1] - nodes[0])
        first = np.exp(nodes[:, None] * means[:, 0] - 0.5 * means[:, 0] ** 2)
    last, factor, c = means[:, -1], first * weights, exp(epsilon)
    goal = c if direction is Direction.REMOVE else 1.0 / c
    low, high = np.full(nodes.size, -60.0), np.full(nodes.size, 60.0)
    for _ in range(90):
        middle = 0.5 * (low + high)
        above = (factor * np.exp(np.multiply.outer(middle, last) - 0.5 * last**2)).sum(axis=1) > goal
        high, low = np.where(above, middle, high), np.where(above, low, middle)
    root = 0.5 * (low + high)
    if direction is Direction.REMOVE:
        inside = (factor * ndtr(last - root[:, None])).sum(axis=1) - c * ndtr(-root)
    else:
        inside = ndtr(root) - c * (factor * ndtr(root[:, None] - last)).sum(axis=1)
    return float(mass @ inside)


def subsets(q: float, steps: int) -> tuple[Array, Array]:
    chosen = np.array(list(product((0.0, 1.0), repeat=steps)))
    return chosen, np.prod(np.where(chosen == 1.0, q, 1.0 - q), axis=1)


def test_shifts_are_rounded_down_from_their_exact_squares() -> None:
    """One window of all steps: ``a_j^2 = <C 1, C_j>^2 / |C 1|^2`` is rational, and no rounding may end above it."""
    rng = np.random.default_rng(22)
    for _ in range(20):
        matrix = DenseMatrix(np.tril(rng.random((9, 9))))
        ours = statistic_shifts(read(poisson(matrix, 0.5, 1.0)), 9)[0]
        exact = [[Fraction(value) for value in row] for row in matrix.entries.tolist()]
        sums = [sum(row) for row in exact]
        norm = sum(entry * entry for entry in sums)
        products = [sum(row[j] * entry for row, entry in zip(exact, sums, strict=True)) for j in range(9)]
        for shift, square in zip(ours.tolist(), sorted((p * p / norm for p in products), reverse=True), strict=True):
            assert square * (1 - Fraction(1, 10**12)) <= Fraction(shift) ** 2 <= square


@pytest.mark.parametrize("name", ["full toeplitz", "dense", "tree"])
def test_the_sum_of_all_rows_has_the_law_of_its_mixture(name: str) -> None:
    pair = poisson(MATRICES[name], 0.1, 4.0)
    shifts = statistic_shifts(read(pair), 12)
    law = window_law(shifts, pair.sampling_prob, pair.noise_multiplier, Side.LOWER, WORK.resolution, WORK.deadline)
    assert law is not None
    chosen, weights = subsets(0.1, 12)
    for direction in Direction:
        for epsilon in EPSILONS:
            truth = exact_profile(chosen @ shifts.T, weights, 4.0, epsilon, direction)
            ours = law_delta(law, epsilon, direction)
            assert ours <= truth * (1.0 + 1e-9) + 1e-13
            assert ours >= 0.97 * truth - 1e-9


@pytest.mark.parametrize("q", [0.1, 0.5])
@pytest.mark.parametrize("entries", [(1.0, 1.0, 1.0), (1.0, 0.3, 2.0), (1.0, 0.0, 1.0)])
def test_below_the_truth_of_two_steps(entries: tuple[float, float, float], q: float) -> None:
    matrix = DenseMatrix(np.array([[entries[0], 0.0], [entries[1], entries[2]]]))
    pair = poisson(matrix, q, 1.0)
    chosen, weights = subsets(q, 2)
    bound = ACCOUNTANT.bound(pair, Side.LOWER, WORK)
    for direction in Direction:
        for epsilon in EPSILONS:
            truth = exact_profile(chosen @ matrix.entries.T, weights, 1.0, epsilon, direction)
            ours = bound.profiles[direction](epsilon)
            assert ours <= truth * (1.0 + 1e-9) + 1e-13
            if epsilon <= 1.0 and direction is Direction.REMOVE:
                assert ours >= 0.6 * truth


def test_rows_that_share_steps_do_not_compose() -> None:
    """The fault that the windows prevent: both rows of a matrix as if they were independent."""
    matrix = DenseMatrix(np.array([[1.0, 0.0], [1.0, 1.0]]))
    chosen, weights = subsets(0.5, 2)
    truth = exact_profile(chosen @ matrix.entries.T, weights, 1.0, 1.0, Direction.ADD)
    rows = [mixture_law(weights, chosen @ row, 1.0, Side.LOWER, WORK.resolution) for row in matrix.entries]
    wrong = law_delta(compose(rows[0], rows[1], WORK.resolution), 1.0, Direction.ADD)
    assert truth == pytest.approx(0.027, abs=5e-4)
    assert wrong > 2.5 * truth
    right = ACCOUNTANT.bound(poisson(matrix, 0.5, 1.0), Side.LOWER, WORK).profiles[Direction.ADD](1.0)
    assert 0.0 < right <= truth


@pytest.mark.parametrize("groups", [1, 4])
def test_columns_that_share_no_row_lose_nothing(groups: int) -> None:
    matrix = ToeplitzMatrix(np.array([1.0, 0.5, 0.2])[: min(groups, 3)], 40)
    pair = SubsetMixture(noise_multiplier=1.2, matrix=matrix, groups=groups, sampling_prob=0.1)
    ours, exact = ACCOUNTANT.bound(pair, Side.LOWER, WORK), direct.ACCOUNTANT.bound(pair, Side.UPPER, WORK)
    for epsilon in EPSILONS:
        assert ours.delta(epsilon) <= exact.delta(epsilon)
        assert ours.delta(epsilon) >= 0.99 * exact.delta(epsilon) - 1e-12


def test_windows_of_a_banded_matrix_are_below_the_whole_truth_and_above_one_row() -> None:
    """Two windows of two steps with one row each but for the first: compared with the law of the four columns."""
    band = np.array([[1.0, 0.6], [0.9, 0.5], [1.1, 0.4], [1.0, 0.0]])
    pair = poisson(BandedMatrix(band), 0.3, 1.0)
    shifts = statistic_shifts(read(pair), 2)
    law = window_law(shifts, pair.sampling_prob, pair.noise_multiplier, Side.LOWER, WORK.resolution, WORK.deadline)
    assert law is not None
    chosen, weights = subsets(0.3, 2)
    laws = [mixture_law(weights, chosen @ row, 1.0, Side.UPPER, WORK.resolution) for row in shifts]
    both = compose(laws[0], laws[1], WORK.resolution)
    for direction in Direction:
        for epsilon in EPSILONS:
            value = law_delta(law, epsilon, direction)
            assert value <= law_delta(both, epsilon, direction)
            assert value >= 0.97 * law_delta(laws[0], epsilon, direction) - 1e-12


# Windows that count as equal -----------------------------------------------------------------------------------------


def test_sets_of_windows_are_below_their_members() -> None:
    shifts = -np.sort(-np.random.default_rng(3).random((40, 5)), axis=1)
    shifts[7], shifts[9, 3:] = 0.0, 0.0
    sets = similar_windows(shifts, Side.LOWER)
    assert sum(count for _, count in sets) == 39
    assert len(sets) <= windows.MOST_LAWS
    totals = sorted((float(row.sum()) for row in shifts), reverse=True)
    at = 0
    for smallest, count in sets:  # from the strongest on
        members = [row for row in shifts if totals[at + count - 1] <= float(row.sum()) <= totals[at]]
        assert len(members) == count
        for row in members:
            assert np.all(smallest <= row[: smallest.size])
        at += count


def test_equal_windows_make_one_set() -> None:
    shifts = statistic_shifts(read(poisson(ToeplitzMatrix(np.array([1.0, 0.5]), 200), 0.1, 1.0)), 4)
    assert [(smallest.size, count) for smallest, count in similar_windows(shifts, Side.LOWER)] == [(4, 1), (4, 49)]
    assert similar_windows(np.zeros((3, 2)), Side.LOWER) == []


def test_the_quick_look_keeps_the_mean_and_about_the_variance() -> None:
    shifts = -np.sort(-np.random.default_rng(4).uniform(0.5, 1.0, (3, 60)), axis=1)
    looked = with_equal_shifts(shifts)
    np.testing.assert_allclose(looked.sum(axis=1), shifts.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose((looked**2).sum(axis=1), (shifts**2).sum(axis=1), rtol=0.02)


# The accountant -------------------------------------------------------------------------------------------------------


def test_a_question_chooses_the_windows() -> None:
    pair = poisson(MATRICES["toeplitz"], 0.3, 1.0)
    general = ACCOUNTANT.bound(pair, Side.LOWER, WORK)
    asked = ACCOUNTANT.bound(pair, Side.LOWER, Settings(WORK.resolution, question=Question(epsilon=0.5)))
    assert asked.delta(0.5) >= 0.98 * general.delta(0.5) > 0.0


def test_large_matrices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_entries, "MOST_SCANNED", 100)
    pair = poisson(MATRICES["tree"], 0.3, 1.0)
    with pytest.raises(UnsupportedError, match="more than 100 entries"):
        ACCOUNTANT.bound(pair, Side.LOWER, WORK)
    assert ACCOUNTANT.why_not(poisson(MATRICES["toeplitz"], 0.3, 1.0), Side.LOWER) is None
    full = ToeplitzMatrix(np.ones(100_000), 100_000)
    assert ACCOUNTANT.why_not(poisson(full, 0.3, 1.0), Side.LOWER) is not None
    monkeypatch.setattr(column_entries, "MOST_ENTRIES", 20)
    with pytest.raises(UnsupportedError, match="At most 20 non-zero entries"):
        read(poisson(MATRICES["toeplitz"], 0.3, 1.0))


def test_long_runs_are_cut_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MOST_STEPS", 5)
    pair = poisson(MATRICES["toeplitz"], 0.3, 1.0)
    assert window_sizes(12, read(pair).overlap) == [1, 2, 3, 4, 5]
    assert 0.0 < ACCOUNTANT.bound(pair, Side.LOWER, WORK).delta(0.5) < 1.0


def test_columns_that_are_next_to_nothing_reveal_nothing() -> None:
    bound = ACCOUNTANT.bound(poisson(ToeplitzMatrix(np.array([1e-120]), 3), 0.3, 1.0), Side.LOWER, WORK)
    assert [bound.delta(epsilon) for epsilon in EPSILONS] == [0.0] * len(EPSILONS)
