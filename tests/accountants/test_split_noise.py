"""Upper bounds by split noise: shares by their definition, known limits, and what goes wrong without shares."""

from fractions import Fraction

import numpy as np
import pytest

from hockeystick import Direction, Resolution, Side
from hockeystick.accountants import direct, gaussian, linear_statistic
from hockeystick.accountants.split_noise import ACCOUNTANT, groups_in_play, split_shifts, worst_windows
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.profile import law_delta
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.strategies.matrix.base import Array, StrategyMatrix
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix
from hockeystick.windows import column_entries
from hockeystick.windows.column_entries import entries_of
from hockeystick.windows.windows import similar_windows, window_law

WORK = Settings(resolution=Resolution(40, 1e-10))
EPSILONS = (0.0, 0.3, 1.0, 2.0)
RNG = np.random.default_rng(8)
MATRICES: dict[str, StrategyMatrix] = {
    "toeplitz": ToeplitzMatrix(np.array([1.0, 0.6, 0.3]), 12),
    "full toeplitz": ToeplitzMatrix(1.0 / np.sqrt(np.arange(1.0, 13.0)), 12),
    "dense": DenseMatrix(np.tril(RNG.random((12, 12)) * (RNG.random((12, 12)) < 0.6)) + np.eye(12)),
    "tree": TreeMatrix(16, 12),
}


def shares_by_definition(columns: Array, size: int) -> Array:
    """``w[t, k]``, proportional to the norm of row t's entries in window k."""
    starts = range(0, columns.shape[1], size)
    norms = np.stack([np.linalg.norm(columns[:, start : start + size], axis=1) for start in starts], axis=1)
    return norms / norms.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("groups", [1, 2, 5])
@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_shifts_are_lengths_of_columns_under_their_share_of_the_noise(matrix: StrategyMatrix, groups: int) -> None:
    pair = SubsetMixture(noise_multiplier=1.0, matrix=matrix, groups=groups, sampling_prob=0.5)
    for steps in groups_in_play(pair):
        columns = matrix.materialize()[:, steps]
        columns = columns[columns.any(axis=1)]
        entries = entries_of(matrix, steps, Deadline())
        for size in (1, 2, 3, columns.shape[1]):
            shares = shares_by_definition(columns, size)
            exact = np.zeros((shares.shape[1], size))
            for step in range(steps.size):
                seen = columns[:, step] > 0.0
                scaled = columns[seen, step] / np.sqrt(shares[seen, step // size])
                exact[step // size, step % size] = np.linalg.norm(scaled)
            ours = split_shifts(entries, size)
            np.testing.assert_allclose(ours, -np.sort(-exact, axis=1), rtol=1e-11)
            assert np.all(ours >= -np.sort(-exact, axis=1) * (1.0 - 1e-15))


@pytest.mark.parametrize("size", [1, 12])
def test_lengths_are_rounded_up_from_their_exact_squares(size: int) -> None:
    """For windows of one step, and for one window, the squared lengths are rational: no rounding may end below them."""
    rng = np.random.default_rng(21)
    for _ in range(20):
        entries = np.tril(rng.random((12, 12)))
        ours = split_shifts(entries_of(DenseMatrix(entries), np.arange(12), Deadline()), size)
        exact = [[Fraction(value) for value in row] for row in entries.tolist()]
        weights = [sum(row) if size == 1 else Fraction(1) for row in exact]
        lengths = [
            sum((row[j] if size == 1 else row[j] ** 2) * weight for row, weight in zip(exact, weights, strict=True))
            for j in range(12)
        ]
        first = ours[:, 0] if size == 1 else ours[0]
        for length, square in zip(first.tolist(), lengths if size == 1 else sorted(lengths, reverse=True), strict=True):
            assert square <= Fraction(length) ** 2 <= square * (1 + Fraction(1, 10**12))


def test_the_whole_is_not_split() -> None:
    """One window: the lengths are those of the columns; and a Toeplitz matrix split step by step is as a filter."""
    column = np.array([1.0, 0.6, 0.3])
    entries = entries_of(ToeplitzMatrix(column, 30), np.arange(30), Deadline())
    assert split_shifts(entries, 30)[0, 0] == pytest.approx(np.linalg.norm(column), rel=1e-12)
    assert split_shifts(entries, 1).max() == pytest.approx(column.sum(), rel=1e-12)


def test_without_correlation_a_window_of_one_step_loses_nothing() -> None:
    exact = direct.ACCOUNTANT.bound(
        IndependentSteps(noise_multiplier=1.0, sampling_prob=0.1, steps=20), Side.LOWER, WORK
    )
    shifts = split_shifts(entries_of(ToeplitzMatrix(np.ones(1), 20), np.arange(20), Deadline()), 1)
    law = window_law(shifts, 0.1, 1.0, Side.UPPER, WORK.resolution, WORK.deadline)
    assert law is not None
    for direction in Direction:
        for epsilon in EPSILONS:
            lower = exact.profiles[direction](epsilon)
            assert lower <= law_delta(law, epsilon, direction) <= 1.01 * lower + 1e-9


def test_without_sampling_windows_are_never_below_the_gaussian() -> None:
    """With p = 1 the output is one Gaussian of sensitivity |C 1|, which every split bounds from above."""
    pair = SubsetMixture(noise_multiplier=8.0, matrix=MATRICES["dense"], sampling_prob=1.0)
    known = gaussian.ACCOUNTANT.bound(pair, Side.LOWER, WORK)
    ours = ACCOUNTANT.bound(pair, Side.UPPER, WORK)
    for epsilon in EPSILONS:
        assert ours.delta(epsilon) >= known.delta(epsilon)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_above_the_lower_bound_and_not_far(matrix: StrategyMatrix, groups: int) -> None:
    pair = SubsetMixture(noise_multiplier=6.0, matrix=matrix, groups=groups, sampling_prob=0.1)
    upper = ACCOUNTANT.bound(pair, Side.UPPER, WORK)
    lower = linear_statistic.ACCOUNTANT.bound(pair, Side.LOWER, WORK)
    for direction in Direction:
        for epsilon in EPSILONS:
            assert upper.profiles[direction](epsilon) >= lower.profiles[direction](epsilon)
    assert upper.epsilon(1e-4) <= 2.0 * lower.epsilon(1e-4)


def test_rows_that_are_not_split_would_not_be_covered() -> None:
    """Every step with the whole noise of its rows, as if it had rows of its own, is below the truth."""
    matrix = ToeplitzMatrix(np.ones(4), 40)
    whole = np.full((40, 1), 2.0)  # columns of four ones
    law = window_law(whole, 0.5, 8.0, Side.LOWER, WORK.resolution, WORK.deadline)
    assert law is not None
    pair = SubsetMixture(noise_multiplier=8.0, matrix=matrix, sampling_prob=0.5)
    proved = linear_statistic.ACCOUNTANT.bound(pair, Side.LOWER, WORK)
    assert law_delta(law, 0.5, Direction.REMOVE) < proved.profiles[Direction.REMOVE](0.5)
    assert ACCOUNTANT.bound(pair, Side.UPPER, WORK).delta(0.5) >= proved.delta(0.5)


def test_windows_of_all_groups_are_below_the_worst() -> None:
    groups = [RNG.random((4, 3)), RNG.random((4, 3)), RNG.random((3, 3))]
    worst = worst_windows(groups)
    assert worst.shape == (4, 3)
    for shifts in groups:
        assert np.all(worst[: len(shifts)] >= shifts)
    assert np.all((worst == groups[0]) | (worst == groups[1]) | (worst == np.vstack([groups[2], np.zeros((1, 3))])))


def test_sets_of_windows_are_above_their_members() -> None:
    shifts = -np.sort(-RNG.random((40, 5)), axis=1)
    sets = similar_windows(shifts, Side.UPPER)
    assert sum(count for _, count in sets) == 40
    totals = sorted((float(row.sum()) for row in shifts), reverse=True)
    at = 0
    for largest, count in sets:
        for row in (row for row in shifts if totals[at + count - 1] <= float(row.sum()) <= totals[at]):
            assert np.all(largest >= row)
        at += count


def test_only_the_first_group_of_a_toeplitz_matrix_counts() -> None:
    banded = BandedMatrix(np.ones((12, 2)) * np.array([1.0, 0.5]) * (np.arange(12)[:, None] + np.arange(2) < 12))
    for matrix, count in ((MATRICES["toeplitz"], 1), (banded, 5)):
        pair = SubsetMixture(noise_multiplier=1.0, matrix=matrix, groups=5, sampling_prob=0.1)
        assert len(groups_in_play(pair)) == count
    alone = SubsetMixture(noise_multiplier=1.0, matrix=banded, sampling_prob=0.1)
    assert [steps.tolist() for steps in groups_in_play(alone)] == [list(range(12))]


def test_entries_whose_squares_overflow_are_refused() -> None:
    pair = SubsetMixture(noise_multiplier=1.0, matrix=DenseMatrix(np.diag([1e160, 1.0])), sampling_prob=0.3)
    with pytest.raises(UnsupportedError, match="range of doubles"):
        ACCOUNTANT.bound(pair, Side.UPPER, WORK)


def test_too_many_entries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = DenseMatrix(np.tril(np.ones((12, 12))))  # what is known of a matrix is kept
    pair = SubsetMixture(noise_multiplier=1.0, matrix=fresh, groups=3, sampling_prob=0.1)
    monkeypatch.setattr(column_entries, "MOST_ENTRIES", 40)  # a group has at most 30, the three have 78
    with pytest.raises(UnsupportedError, match="non-zero entries of C"):
        ACCOUNTANT.bound(pair, Side.UPPER, WORK)
    monkeypatch.setattr(column_entries, "MOST_SCANNED", 100)
    monkeypatch.setattr(column_entries, "FEW_BANDS", 1)
    assert "more than 100 entries" in str(ACCOUNTANT.why_not(pair, Side.UPPER))
