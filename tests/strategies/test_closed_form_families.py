"""Families without optimisation: the laws of a strategy matrix over random sizes, and what the papers say of each."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.errors import InvalidInputError
from hockeystick.strategies.banded_inverse_fractional_root import BandedInverseFractionalRoot
from hockeystick.strategies.banded_inverse_square_root import BandedInverseSquareRoot, inverse_square_root_coefficients
from hockeystick.strategies.banded_square_root import BandedSquareRoot
from hockeystick.strategies.base import StrategySpec
from hockeystick.strategies.binary_tree import BinaryTree
from hockeystick.strategies.matrix.base import StrategyMatrix
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.inverse_toeplitz import InverseToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix
from hockeystick.strategies.square_root import SquareRoot
from hockeystick.strategies.tree_restart import TreeRestart

EPS = np.finfo(np.float64).eps


def dense_matrix(steps: int, bands: int) -> DenseMatrix:
    entries = np.random.default_rng(steps).random((steps, steps)) + steps * np.eye(steps)
    return DenseMatrix(np.tril(entries) - np.tril(entries, -bands))


@st.composite
def matrices(draw: st.DrawFn) -> StrategyMatrix:
    steps = draw(st.integers(1, 90))
    bands = draw(st.integers(1, steps))
    makers = {
        "banded_square_root": lambda: BandedSquareRoot(bands=bands).matrix(steps),
        "banded_inverse_square_root": lambda: BandedInverseSquareRoot(bands=bands).matrix(steps),
        "square_root": lambda: SquareRoot().matrix(steps),
        "binary_tree": lambda: BinaryTree().matrix(steps),
        "tree_restart": lambda: TreeRestart(height=bands.bit_length()).matrix(steps),
        "dense": lambda: dense_matrix(steps, bands),
    }
    return makers[draw(st.sampled_from(sorted(makers)))]()


def bins_of(matrix: StrategyMatrix) -> list[int]:
    return [bins for bins in range(1, matrix.steps + 1) if matrix.steps % bins == 0]


@given(matrices())
@settings(max_examples=80)
def test_shape_signs_and_bands(matrix: StrategyMatrix) -> None:
    dense = matrix.materialize()
    assert dense.shape == (matrix.rows, matrix.steps)
    assert (dense >= 0.0).all()
    gram = dense.T @ dense
    assert not np.triu(gram, matrix.bands).any()
    assert matrix.bands == 1 or np.triu(gram, matrix.bands - 1).any()
    if matrix.rows == matrix.steps:
        assert not np.triu(dense, 1).any()


@given(matrices(), st.integers(0, 2**32 - 1))
@settings(max_examples=80)
def test_operators_agree_with_the_dense_matrix(matrix: StrategyMatrix, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense, n = matrix.materialize(), matrix.steps
    x, z = rng.standard_normal((n, 3)), rng.standard_normal((matrix.rows, 3))
    inverse = matrix.solve(np.eye(matrix.rows))
    unit = int(rng.integers(n))
    np.testing.assert_allclose(matrix.dot(x), dense @ x, rtol=0.0, atol=1e-12 * dense.sum())
    np.testing.assert_allclose(matrix.dot(x[:, 1]), dense @ x[:, 1], rtol=0.0, atol=1e-12 * dense.sum())
    np.testing.assert_allclose(matrix.dot(np.eye(n)[unit]), dense[:, unit], rtol=0.0, atol=1e-13 * dense.max())
    np.testing.assert_allclose(matrix.solve(matrix.dot(x)), x, rtol=0.0, atol=1e-11)
    np.testing.assert_allclose(matrix.solve(z), inverse @ z, rtol=0.0, atol=1e-11)
    np.testing.assert_allclose(inverse @ dense, np.eye(n), rtol=0.0, atol=1e-12)
    which = rng.integers(n, size=4)
    assert np.array_equal(matrix.columns(which), dense[:, which])
    np.testing.assert_allclose(matrix.column_norms, np.linalg.norm(dense, axis=0), rtol=1e-13)


@given(matrices(), st.data())
@settings(max_examples=80)
def test_sums_of_bins(matrix: StrategyMatrix, data: st.DataObject) -> None:
    bins = data.draw(st.sampled_from(bins_of(matrix)))
    means = sum(matrix.materialize()[:, first : first + bins] for first in range(0, matrix.steps, bins))
    np.testing.assert_allclose(matrix.bin_means(bins), means, rtol=4.0 * matrix.rounding, atol=0.0)
    gram = matrix.bin_gram(bins)
    assert np.array_equal(gram, gram.T)
    np.testing.assert_allclose(gram, means.T @ means, rtol=4.0 * matrix.rounding, atol=0.0)


@given(matrices(), st.floats(0.0, 1.0))
@settings(max_examples=60)
def test_errors_of_queries(matrix: StrategyMatrix, decay: float) -> None:
    workload = decay ** np.arange(matrix.steps)
    a = np.array([[workload[t - i] if t >= i else 0.0 for i in range(matrix.steps)] for t in range(matrix.steps)])
    queries = a @ matrix.solve(np.eye(matrix.rows))
    np.testing.assert_allclose(matrix.query_errors(workload), (queries**2).sum(axis=1), rtol=1e-10)


@pytest.mark.parametrize("bands", [1, 2, 5, 30])
def test_banded_inverse_square_root_has_the_coefficients_of_the_root(bands: int) -> None:
    """(1 - x)^(1/2) = sum_k binom(2k, k) / (1 - 2k) (x/4)^k; C times the cut series is 1."""
    exact = [Fraction(comb(2 * k, k), (1 - 2 * k) * 4**k) for k in range(bands)]
    np.testing.assert_allclose(inverse_square_root_coefficients(bands), np.array(exact, float), rtol=bands * 4 * EPS)
    matrix = BandedInverseSquareRoot(bands=bands).matrix(30)
    assert isinstance(matrix, InverseToeplitzMatrix)
    lower = [
        inverse_square_root_coefficients(bands)[t - i] if 0 <= t - i < bands else 0.0
        for t in range(30)
        for i in range(30)
    ]
    np.testing.assert_allclose(matrix.materialize(), np.linalg.inv(np.reshape(lower, (30, 30))), atol=1e-14)


def test_a_root_to_the_power_of_its_denominator_is_the_difference() -> None:
    """((1 - x)^(1/4))^4 = 1 - x, whose inverse makes prefix sums."""
    inverse = np.linalg.inv(BandedInverseFractionalRoot(bands=30, exponent=0.25).matrix(30).materialize())
    differences = np.eye(30) - np.eye(30, k=-1)
    np.testing.assert_allclose(np.linalg.matrix_power(inverse, 4), differences, atol=1e-13)


def test_fractional_roots_include_bisr_and_lambda_cgd() -> None:
    half = BandedInverseFractionalRoot(bands=5, exponent=0.5).matrix(20).materialize()
    np.testing.assert_allclose(half, BandedInverseSquareRoot(bands=5).matrix(20).materialize(), rtol=1e-14)
    cancelling = BandedInverseFractionalRoot(bands=2, exponent=0.9).matrix(20)
    z = np.random.default_rng(0).standard_normal((20, 3))
    expected = z.copy()
    expected[1:] -= 0.9 * z[:-1]
    np.testing.assert_allclose(cancelling.solve(z), expected, rtol=1e-12)


def test_square_root_squared_is_the_prefix_sum() -> None:
    c = SquareRoot().matrix(40).materialize()
    np.testing.assert_allclose(c @ c, np.tril(np.ones((40, 40))), rtol=0.0, atol=1e-14)


def test_bands_above_steps_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"'strategy.bands' field must be at most the 3 steps. Got 4 instead"):
        BandedInverseSquareRoot(bands=4).matrix(3)


def power_series_inverse(coefficients: np.ndarray, steps: int) -> list[Fraction]:
    """In exact arithmetic, of the doubles that were given."""
    g = [Fraction(float(value)) for value in coefficients]
    column: list[Fraction] = []
    for t in range(steps):
        rest = sum((g[j] * column[t - j] for j in range(1, min(len(g), t + 1))), Fraction(0))
        column.append((int(t == 0) - rest) / g[0])
    return column


@pytest.mark.parametrize("coefficients", [[1.0], [0.7, -0.3], [1.0, 0.0, -0.5], [0.9, -0.8, 0.1], [1.0, -0.5, -0.125]])
def test_the_column_is_within_its_rounding_of_the_inverse_series(coefficients: list[float]) -> None:
    matrix = InverseToeplitzMatrix(np.array(coefficients), 25)
    for entry, exact in zip(matrix.toeplitz_column, power_series_inverse(np.array(coefficients), 25), strict=True):
        assert abs(Fraction(float(entry)) - exact) <= Fraction(matrix.rounding) * exact
    assert matrix.rounding < 1e-9


@pytest.mark.parametrize(
    ("coefficients", "message"),
    [
        ([1.0, 0.5], "entry 1 of its column is -0.5"),
        ([1.0, -1.0, 1.0], "entry 3 of its column is -1 "),
        ([1.0, -0.5, 0.25, 0.01], "without negative entries"),
        ([1.0, -3.0], "finite numbers; entry 647 of its column is too large"),
    ],
)
def test_matrices_with_negative_or_infinite_entries_are_refused(coefficients: list[float], message: str) -> None:
    steps = 700 if "finite" in message else 5
    with pytest.raises(InvalidInputError, match=message):
        InverseToeplitzMatrix(np.array(coefficients), steps)


def nodes(leaves: int, steps: int) -> list[tuple[int, int]]:
    """The leaves [first, end) of every complete node, by recursion from the roots, in the order of completion."""

    def below(first: int, end: int) -> list[tuple[int, int]]:
        if end - first == 1:
            return [(first, end)] if end <= steps else []
        middle = (first + end) // 2
        return below(first, middle) + below(middle, end) + ([(first, end)] if end <= steps else [])

    return [node for first in range(0, steps, leaves) for node in below(first, first + leaves)]


@pytest.mark.parametrize("leaves", [1, 2, 4, 16])
@pytest.mark.parametrize("steps", [1, 2, 7, 8, 13, 16])
def test_rows_of_trees_are_their_complete_nodes(leaves: int, steps: int) -> None:
    expected = np.array([[float(first <= i < end) for i in range(steps)] for first, end in nodes(leaves, steps)])
    matrix = TreeMatrix(leaves, steps)
    assert np.array_equal(matrix.materialize(), expected)
    assert matrix.levels == expected.sum(axis=1).max().astype(int).item().bit_length()
    # A row is released with its last leaf, and the leaf of a step is the first of its rows.
    released = [np.flatnonzero(row)[-1] for row in expected]
    assert released == sorted(released)
    assert np.array_equal(matrix.first_row[:-1], np.searchsorted(released, np.arange(steps)))


@pytest.mark.parametrize("height", [1, 3, 6])
def test_a_full_tree_has_columns_of_one_norm(height: int) -> None:
    steps = 2 ** (height - 1)
    tree: StrategySpec
    for tree in (BinaryTree(), TreeRestart(height=height)):
        matrix = tree.matrix(steps)
        assert matrix.rows == 2 * steps - 1
        np.testing.assert_allclose(matrix.column_norms, np.sqrt(height), rtol=4 * EPS)
    restarted = TreeRestart(height=height).matrix(3 * steps).materialize()
    np.testing.assert_array_equal(restarted, np.kron(np.eye(3), BinaryTree().matrix(steps).materialize()))


@pytest.mark.parametrize("steps", [1, 6, 8, 21])
def test_the_decoder_adds_a_node_for_every_binary_digit(steps: int) -> None:
    """So the squared error of prefix sum t of a single tree is the number of ones in t + 1."""
    matrix = BinaryTree().matrix(steps)
    prefixes = np.cumsum(matrix.solve(np.eye(matrix.rows)), axis=0)
    assert set(np.unique(prefixes)) <= {0.0, 1.0}
    np.testing.assert_allclose(
        matrix.query_errors(np.ones(steps)), [(t + 1).bit_count() for t in range(steps)], rtol=1e-12
    )


def test_trees_that_do_not_fit_are_refused() -> None:
    assert TreeRestart(height=4).matrix(8).bands == 8
    with pytest.raises(InvalidInputError, match=r"'strategy.height' field .* among the 7. Got 4 instead"):
        TreeRestart(height=4).matrix(7)
