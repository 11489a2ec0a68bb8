"""The bounds on the chance of a participation: exact tails by enumeration, and the event that they fail."""

from itertools import pairwise
from math import log

import mpmath
import numpy as np
import pytest
from mmcc_oracle import block_cuts, slow_blocks, tail
from numpy.testing import assert_allclose
from scipy.stats import norm

from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.strategies.matrix.base import StrategyMatrix
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix
from hockeystick.types import Direction
from hockeystick_papers.participations import tails
from hockeystick_papers.participations.rows import described
from hockeystick_papers.participations.tail_kernels import curvature, growth
from hockeystick_papers.participations.tails import Blocks, participation_bounds


def nothing() -> None:
    """Time does not matter here."""


def random_matrix(rng: np.random.Generator, steps: int) -> DenseMatrix:
    entries = np.tril(rng.uniform(0.0, 1.0, (steps, steps)) * (rng.random((steps, steps)) < 0.8), -1)
    return DenseMatrix(entries + np.diag(rng.uniform(0.3, 1.0, steps)))


def as_lists(blocks: Blocks) -> list[list[tuple[float, ...]]]:
    parts = np.stack([blocks.norm, blocks.own, blocks.total, blocks.square, blocks.largest], axis=1)
    return [[tuple(pair) for pair in parts[a:b]] for a, b in zip(blocks.starts[:-1], blocks.starts[1:], strict=True)]


def cases() -> list[tuple[StrategyMatrix, int, int | None]]:
    rng = np.random.default_rng(5)
    band = rng.uniform(0.2, 1.0, (9, 3))
    band[8, 1:] = band[7, 2] = 0.0
    return [
        (random_matrix(rng, 7), 1, None),
        (random_matrix(rng, 11), 3, 0),
        (random_matrix(rng, 11), 3, 2),
        (ToeplitzMatrix(np.array([1.0, 0.5, 0.25]), 9), 1, None),
        (BandedMatrix(band), 1, None),
        (TreeMatrix(8, 8), 1, None),
        (TreeMatrix(4, 11), 1, None),
        (TreeMatrix(8, 8), 2, 1),
    ]


@pytest.mark.parametrize("case", range(8))
def test_blocks_are_those_of_the_matrix(case: int) -> None:
    matrix, groups, group = cases()[case]
    entries = matrix.materialize()[:, (group or 0) :: groups]
    expected = slow_blocks(entries, group is None)
    blocks = described(matrix, groups, group, nothing)
    computed = as_lists(blocks)
    assert int(blocks.copies.sum()) == len(expected)
    assert blocks.informed == sum(pair[1] > 0.0 for block in expected for pair in block)
    for block in expected:
        alike = [
            candidate
            for candidate in computed
            if len(candidate) == len(block) and np.allclose(candidate, block, rtol=1e-13, atol=1e-14)
        ]
        assert len(alike) == 1
    for candidate, count in zip(computed, blocks.copies, strict=True):
        same = [
            block
            for block in expected
            if len(candidate) == len(block) and np.allclose(candidate, block, rtol=1e-13, atol=1e-14)
        ]
        assert len(same) == count


def test_equal_rows_are_kept_once() -> None:
    """From row 2p - 2 on, the rows of a banded Toeplitz matrix see the same past; those of a tree's level always do."""
    banded = described(ToeplitzMatrix(np.array([1.0, 0.5, 0.25, 0.125]), 50), 1, None, nothing)
    assert banded.count == 7
    assert banded.copies.max() == 44
    tree = described(TreeMatrix(16, 16), 1, None, nothing)
    assert sorted(tree.copies) == [1, 2, 4, 8, 16]


@pytest.mark.parametrize("direction", list(Direction))
def test_every_tail_keeps_its_budget_and_is_nearly_sharp(direction: Direction) -> None:
    rng = np.random.default_rng(11)
    sharpest = 0.0
    for _ in range(25):
        matrix = random_matrix(rng, 6)
        prob, sigma, spent = rng.choice([0.02, 0.3, 0.5, 0.8]), rng.uniform(0.5, 4.0), 10.0 ** rng.uniform(-9.0, -1.0)
        blocks = described(matrix, 1, None, nothing)
        bounds = participation_bounds(blocks, sigma, prob, spent, direction)
        entries = matrix.materialize()
        assert blocks.count == 6
        for row in range(6):
            gram = entries[:row].T @ entries[:row]
            columns = np.flatnonzero(entries[row])[::-1]
            for j, bound in zip(columns, bounds[blocks.starts[row] : blocks.starts[row + 1]], strict=True):
                if gram[j, j] == 0.0:
                    assert bound == prob
                    continue
                if bound == 1.0:
                    continue
                raised = log(bound / (1.0 - bound)) - log(prob / (1.0 - prob))
                threshold = sigma**2 * raised + 0.5 * gram[j, j]
                chance = tail(gram[j], gram[j, j], sigma, prob, threshold * (1.0 - 1e-9), direction)
                assert chance <= spent / blocks.informed * (1.0 + 1e-6)
                sharpest = max(sharpest, chance * blocks.informed / spent)
    assert sharpest > 0.5


def test_curvature_bounds_the_generating_function() -> None:
    """The quadratic through (0, p) stays above the cumulant generating function up to where it was asked to."""
    for prob in (1e-3, 1 / 64, 0.2, 0.45, 0.4999, 0.5, 0.9):
        most = tails._largest_curvature(prob)
        for end in (1e-6, 1e-3, 0.1, 1.0, 3.0, 10.0, 60.0):
            bend = curvature(end, prob, most)
            for part in np.linspace(0.05, 1.0, 20):
                exponent = end * part
                assert growth(exponent, prob) <= (prob * exponent + bend * exponent**2) * (1.0 + 1e-12)
    assert curvature(1e-6, 0.2, 0.125) == pytest.approx(0.08, rel=1e-4)


def test_growth_is_the_logarithm() -> None:
    for exponent in (0.0, 1e-5, 1.0, 29.9, 30.1, 200.0):
        with mpmath.workdps(40):
            exact = float(mpmath.log(mpmath.mpf(1) - mpmath.mpf(0.3) + mpmath.mpf(0.3) * mpmath.exp(exponent)))
        assert growth(exponent, 0.3) == pytest.approx(exact, rel=2e-15, abs=0.0)


def failure_rate(entries: np.ndarray, prob: float, sigma: float, spent: float, single_rows: bool, draws: int) -> float:
    """How often, in simulated runs, the chance of some informed pair passes its bound."""
    blocks = described(DenseMatrix(entries), 1, None if single_rows else 0, nothing)
    bounds = participation_bounds(blocks, sigma, prob, spent, Direction.REMOVE)
    assert np.all(blocks.copies == 1)
    rng = np.random.default_rng(3)
    taken = rng.random((draws, entries.shape[1])) < prob
    outputs = taken @ entries.T + sigma * rng.standard_normal((draws, entries.shape[0]))
    failed = np.zeros(draws, dtype=bool)
    cuts = block_cuts(entries, single_rows)
    for block, (first, last) in enumerate(pairwise(cuts)):
        columns = np.flatnonzero(np.linalg.norm(entries[first:last], axis=0))[::-1]
        for j, bound in zip(columns, bounds[blocks.starts[block] : blocks.starts[block + 1]], strict=True):
            past = entries[:first, j]
            odds = np.exp((outputs[:, :first] @ past - 0.5 * past @ past) / sigma**2) * prob / (1.0 - prob)
            failed |= odds / (1.0 + odds) > bound * (1.0 + 1e-12)
    return float(failed.mean())


def test_the_budget_holds_where_the_printed_one_does_not() -> None:
    """Two turns, one informed pair: the printed budget allows its noise 4 x 0.01 / 2 and fails with 0.0182."""
    entries = np.eye(8)
    entries[4, 0] = 1.0
    group = entries[:, [0, 4]]
    prob, sigma, spent = 0.9, 1.2, 0.01
    blocks = described(DenseMatrix(entries), 4, 0, nothing)
    assert blocks.informed == 1
    turns = np.vstack([group[0], group[4]])
    rate = failure_rate(turns, prob, sigma, spent, single_rows=False, draws=400_000)
    assert 0.6 * spent < rate < spent * 1.02
    printed_share = 4.0 * spent / (2.0 * (np.count_nonzero(group) - 2))
    printed_threshold = 1.0 + sigma * float(norm.isf(printed_share))  # s = 1, as P(x = 1) is larger than the share
    printed = tail(np.array([1.0]), 1.0, sigma, prob, printed_threshold, Direction.REMOVE)
    assert printed == pytest.approx(0.0182, abs=1e-4)


def test_failures_of_a_dense_matrix_are_rarer_than_their_budget() -> None:
    rng = np.random.default_rng(8)
    rate = failure_rate(random_matrix(rng, 6).materialize(), 0.4, 1.0, 0.05, single_rows=True, draws=100_000)
    assert 0.002 < rate < 0.05


def test_certain_participation_needs_no_bound() -> None:
    blocks = described(ToeplitzMatrix(np.array([1.0, 0.5]), 4), 1, None, nothing)
    assert_allclose(participation_bounds(blocks, 2.0, 1.0, 1e-6, Direction.REMOVE), 1.0)
