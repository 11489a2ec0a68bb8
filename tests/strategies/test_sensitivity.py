"""Sensitivities against the enumeration of every pattern."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.errors import InvalidInputError
from hockeystick.strategies import sensitivity
from hockeystick.strategies.banded_inverse_square_root import BandedInverseSquareRoot
from hockeystick.strategies.banded_square_root import BandedSquareRoot
from hockeystick.strategies.binary_tree import BinaryTree
from hockeystick.strategies.matrix.base import StrategyMatrix
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.square_root import SquareRoot
from hockeystick.strategies.tree_restart import TreeRestart

MOST_STEPS = 10
SLACK = 1e-10
"""Results are rounded up by less than this, relative, at these sizes."""


def largest_norm(matrix: StrategyMatrix, min_sep: int) -> float:
    """Over every set of steps, any two of them min_sep apart."""
    dense = matrix.materialize()
    largest = 0.0
    for size in range(1, matrix.steps + 1):
        for steps in combinations(range(matrix.steps), size):
            if all(later - earlier >= min_sep for earlier, later in pairwise(steps)):
                largest = max(largest, float(np.linalg.norm(dense[:, steps].sum(axis=1))))
    return largest


@st.composite
def matrices(draw: st.DrawFn) -> StrategyMatrix:
    steps = draw(st.integers(1, MOST_STEPS))
    bands = draw(st.integers(1, steps))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    makers = {
        "banded_square_root": lambda: BandedSquareRoot(bands=bands).matrix(steps),
        "banded_inverse_square_root": lambda: BandedInverseSquareRoot(bands=bands).matrix(steps),
        "square_root": lambda: SquareRoot().matrix(steps),
        "any toeplitz": lambda: ToeplitzMatrix(rng.random(bands) + 0.01, steps),
        "binary_tree": lambda: BinaryTree().matrix(steps),
        "tree_restart": lambda: TreeRestart(height=bands.bit_length()).matrix(steps),
        "dense": lambda: DenseMatrix(np.tril(np.triu(rng.random((steps, steps)).T, 1 - bands).T) + np.eye(steps)),
    }
    return makers[draw(st.sampled_from(sorted(makers)))]()


@given(matrices(), st.integers(1, MOST_STEPS + 2))
@settings(max_examples=250)
def test_min_separation_is_the_worst_pattern_or_above(matrix: StrategyMatrix, min_sep: int) -> None:
    truth = largest_norm(matrix, min_sep)
    bound = sensitivity.min_separation(matrix, min_sep)
    assert bound.value >= truth
    if bound.exact:
        assert bound.value <= truth * (1.0 + SLACK)


@given(matrices(), st.integers(1, MOST_STEPS))
@settings(max_examples=60)
def test_single_and_fixed_epochs_are_exact(matrix: StrategyMatrix, bins: int) -> None:
    once = largest_norm(matrix, matrix.steps)
    assert once <= sensitivity.single(matrix).value <= once * (1.0 + SLACK)
    assert sensitivity.single(matrix).exact
    if matrix.steps % bins == 0:
        dense = matrix.materialize()
        truth = max(np.linalg.norm(dense[:, i::bins].sum(axis=1)) for i in range(bins))
        bound = sensitivity.fixed_epochs(matrix, bins)
        assert bound.exact
        assert truth <= bound.value <= truth * (1.0 + SLACK)


@pytest.mark.parametrize(
    ("matrix", "min_sep"),
    [
        (BandedSquareRoot(bands=3).matrix(10), 3),  # orthogonal columns
        (BandedSquareRoot(bands=5).matrix(10), 2),  # comb
        (BandedInverseSquareRoot(bands=3).matrix(10), 2),
        (SquareRoot().matrix(10), 1),
        (TreeRestart(height=3).matrix(10), 4),
        (DenseMatrix(np.diag([1.0, 3.0, 2.0, 5.0, 1.0]) + np.diag([0.5] * 4, -1)), 2),
        (DenseMatrix(np.tril(np.random.default_rng(1).random((9, 9))) + np.eye(9)), 4),
        (BinaryTree().matrix(8), 1),
    ],
)
def test_what_is_said_to_be_exact(matrix: StrategyMatrix, min_sep: int) -> None:
    bound = sensitivity.min_separation(matrix, min_sep)
    truth = largest_norm(matrix, min_sep)
    assert bound.exact
    assert truth <= bound.value <= truth * (1.0 + SLACK)


def test_a_column_that_grows_is_bounded_and_said_so() -> None:
    """Column (1, 0, 0, 1): steps 2 and 5 share a row, the comb 0, 2, 4 of min_sep 2 has no two that do."""
    matrix = ToeplitzMatrix(np.array([1.0, 0.0, 0.0, 1.0]), 6)
    bound = sensitivity.min_separation(matrix, 2)
    assert not bound.exact
    assert largest_norm(matrix, 2) == pytest.approx(np.sqrt(7.0))
    # The columns of the majorant (1, 1, 1, 1) at 0, 2 and 4 sum to (1, 1, 2, 2, 2, 2).
    assert bound.value == pytest.approx(np.sqrt(18.0), rel=SLACK)


def test_orthogonal_columns_are_worth_more_in_the_middle() -> None:
    """Squared norms 1, 9, 4, 25, 1 at distance 2: the best are 9 and 25."""
    matrix = DenseMatrix(np.diag([1.0, 3.0, 2.0, 5.0, 1.0]))
    assert sensitivity.min_separation(matrix, 2).value == pytest.approx(np.sqrt(34.0), rel=SLACK)


def test_more_columns_than_a_block() -> None:
    """A dense copy of a Toeplitz matrix of 600 steps: the bound holds."""
    toeplitz = SquareRoot().matrix(600)
    dense = DenseMatrix(toeplitz.materialize())
    exact, bound = sensitivity.min_separation(toeplitz, 100), sensitivity.min_separation(dense, 100)
    assert exact.exact
    assert exact.value * (1.0 - SLACK) <= bound.value <= 1.2 * exact.value
    assert sensitivity.fixed_epochs(dense, 300).value == pytest.approx(
        sensitivity.fixed_epochs(toeplitz, 300).value, rel=SLACK
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: sensitivity.fixed_epochs(m, 3), "'bins' parameter must divide the 8 steps. Got 3 instead"),
        (lambda m: sensitivity.fixed_epochs(m, 0), "'bins' parameter must divide the 8 steps. Got 0 instead"),
        (lambda m: sensitivity.min_separation(m, 0), "'min_sep' parameter must be at least 1. Got 0 instead"),
    ],
)
def test_impossible_patterns_are_refused(call, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidInputError, match=message):
        call(BandedSquareRoot(bands=2).matrix(8))
