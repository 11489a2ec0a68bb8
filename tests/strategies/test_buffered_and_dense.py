"""Buffered and dense strategies: hand-written gradients, optima, and lazy operators against the dense matrix."""

from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.signal import lfilter

from hockeystick.errors import InvalidInputError, OptimisationError
from hockeystick.strategies.buffered_toeplitz import BufferedToeplitz
from hockeystick.strategies.dense import Dense
from hockeystick.strategies.matrix.buffered import BufferedToeplitzMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.optimise import buffered, dense
from hockeystick.strategies.optimise import minimise as newton
from hockeystick.strategies.square_root import SquareRoot

Array = NDArray[Any]


def inverse_buffers(matrix: BufferedToeplitzMatrix) -> tuple[np.ndarray, np.ndarray]:
    """Scales and decays of ``diagonal * C^{-1}``, a matrix of the same form, the decays in decreasing order.

    With ``w_j = sqrt(scales_j)``, ``c_k = w' D^(k-1) w`` for the diagonal matrix D of decays, and the inverse has
    ``-w' (D - w w')^(k-1) w``: a symmetric eigenvalue problem.
    """
    weights = np.sqrt(matrix.scales)
    decays, vectors = np.linalg.eigh(np.diag(matrix.decays) - np.outer(weights, weights))
    scales = -((vectors.T @ weights) ** 2)
    return scales[::-1].copy(), decays[::-1].copy()


def slow_log_loss(parameters: Array, weights: Array, separation: int) -> Array:
    """The oracle of buffers: polynomials and filters, real or complex."""
    ratios = 1.0 / (1.0 + np.exp(-parameters))
    decays = 1.0 - np.cumprod(ratios[::-1])[::-1]
    top, bottom = np.poly(decays[1::2]), np.poly(decays[::2])
    impulse = np.eye(1, weights.size)[0].astype(parameters.dtype)
    column = lfilter(top, bottom, impulse)
    queries = np.cumsum(lfilter(bottom, top, impulse))
    total = sum(np.append(np.zeros(s), column[: weights.size - s]) for s in range(0, weights.size, separation))
    return np.log((weights * queries**2).sum() * (total**2).sum())


def slow_log_error(matrix: Array, epochs: int) -> Array:
    """The oracle of dense matrices: explicit inverses, real or complex."""
    steps = matrix.shape[0]
    bins = steps // epochs
    norms = [np.sqrt(sum(matrix[:, i + j * bins] for j in range(epochs)) ** 2 @ np.ones(steps)) for i in range(bins)]
    scaled = matrix / np.array([norms[i % bins] for i in range(steps)])
    queries = np.tri(steps) @ np.linalg.inv(scaled)
    return np.log((queries**2).sum() / steps)


def complex_step(function: Callable[[Array], Array], point: Array) -> Array:
    """Derivatives without cancellation: ``Im f(x + i h) / h``."""
    flat = point.ravel().astype(complex)
    slopes = [function((flat + 1e-30j * unit).reshape(point.shape)).imag / 1e-30 for unit in np.eye(flat.size)]
    return np.array(slopes).reshape(point.shape)


@pytest.mark.parametrize(("steps", "separation", "buffers"), [(40, 40, 1), (40, 40, 3), (30, 7, 2), (25, 5, 4)])
@pytest.mark.parametrize("mean", [False, True])
def test_the_gradient_of_buffers(steps: int, separation: int, buffers: int, mean: bool) -> None:
    weights = np.arange(steps, 0.0, -1.0) / steps if mean else np.ones(steps)
    point = np.random.default_rng(steps + buffers).standard_normal(2 * buffers)
    value, gradient = buffered.log_loss(point, weights, separation)
    assert value == pytest.approx(float(slow_log_loss(point, weights, separation)), rel=1e-11)
    expected = complex_step(lambda x: slow_log_loss(x, weights, separation), point)
    assert np.allclose(gradient, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("steps", "epochs"), [(5, 1), (6, 2), (6, 3), (4, 4)])
def test_the_gradient_of_a_dense_matrix(steps: int, epochs: int) -> None:
    matrix = np.tril(np.random.default_rng(steps).random((steps, steps))) + np.eye(steps)
    value, gradient = dense.log_error(matrix, epochs)
    assert value == pytest.approx(float(slow_log_error(matrix, epochs)), rel=1e-12)
    expected = complex_step(lambda x: slow_log_error(x, epochs), matrix)
    assert np.allclose(np.tril(gradient), np.tril(expected), rtol=1e-9, atol=1e-12)

    lower = np.tril_indices(steps)

    def pinned(entries: Array) -> Array:
        filled = np.zeros((steps, steps), dtype=entries.dtype)
        filled[lower] = entries
        squares = (filled.reshape(steps, epochs, -1).sum(axis=1) ** 2).sum(axis=0)
        return slow_log_error(filled, epochs) + 0.5 * (np.log(squares) ** 2).mean()

    value, gradient = dense.pinned_log_error(matrix[lower], steps, epochs)
    assert value == pytest.approx(float(pinned(matrix[lower])), rel=1e-12)
    assert np.allclose(gradient, complex_step(pinned, matrix[lower]), rtol=1e-9, atol=1e-12)


def errors(strategy: BufferedToeplitz | Dense, steps: int) -> Array:
    """Squared errors of prefix sums times the squared sensitivity of one participation."""
    matrix = strategy.matrix(steps)
    scaled: Array = matrix.query_errors(np.ones(steps)) * matrix.max_column_norm**2
    return scaled


@pytest.mark.parametrize(
    ("steps", "buffers", "objective", "mean"),
    [(1000, 3, "max", 9.6446), (10_000, 4, "max", 14.7418), (1000, 3, "mean", 9.3091)],
)
def test_buffers_reach_the_published_error(steps: int, buffers: int, objective: str, mean: float) -> None:
    """Mean squared error times squared sensitivity of jax_privacy 2.0's buffered_toeplitz.optimize(n, error)."""
    strategy = BufferedToeplitz.parse({"kind": "buffered_toeplitz", "buffers": buffers, "objective": objective})
    assert errors(strategy, steps).mean() == pytest.approx(mean, abs=5e-5)


def test_more_buffers_approach_the_best_toeplitz_matrix_and_stay_above_it() -> None:
    """Of Toeplitz matrices the square root has the least largest error (Dvijotham et al., 2024, Section 3)."""
    best = float(SquareRoot().matrix(200).max_column_norm ** 4)
    least_errors = [errors(BufferedToeplitz(buffers=buffers), 200).max() for buffers in (1, 2, 4, 8)]
    assert (np.diff(least_errors) < 0.0).all()
    assert best * (1.0 - 1e-12) < least_errors[-1] < best * (1.0 + 1e-6)


@pytest.mark.parametrize("objective", ["max", "mean"])
def test_neighbours_of_the_best_buffers_are_worse(objective: str) -> None:
    weights = np.ones(300) if objective == "max" else np.arange(300, 0.0, -1.0) / 300
    scales, decays = buffered.optimal_buffers(weights, 300, 2)

    def loss(scales: Array, decays: Array) -> float:
        column = BufferedToeplitzMatrix(scales, decays, 300).coefficients
        queries = ToeplitzMatrix(column, 300).solve(np.ones(300))
        return float((weights @ queries**2) * (column @ column))

    best, rng = loss(scales, decays), np.random.default_rng(2)
    for size in (1e-2, 1e-3):
        for _ in range(20):
            moves = np.exp(size * rng.standard_normal((2, 2)))
            assert loss(scales * moves[0], 1.0 - (1.0 - decays) * moves[1]) > best


def test_several_participations() -> None:
    """Worst are the participations at 0, b, 2 b, ...; optimising for them pays."""

    def worst(matrix: BufferedToeplitzMatrix, separation: int) -> float:
        dense_matrix = matrix.materialize()
        patterns = [
            chosen
            for count in range(1, 5)
            for chosen in combinations(range(matrix.steps), count)
            if all(b - a >= separation for a, b in pairwise(chosen))
        ]
        return max(float(np.linalg.norm(dense_matrix[:, chosen].sum(axis=1))) for chosen in patterns)

    for_three = BufferedToeplitz(buffers=2, min_sep=4, objective="mean").build(12)
    for_one = BufferedToeplitz(buffers=2, objective="mean").build(12)
    first = for_three.materialize()[:, ::4].sum(axis=1)
    assert worst(for_three, 4) == pytest.approx(float(np.linalg.norm(first)), rel=1e-12)
    ones = np.ones(12)
    losses = [m.query_errors(ones).mean() * worst(m, 4) ** 2 for m in (for_three, for_one)]
    assert losses[0] < 0.99 * losses[1]


@pytest.mark.parametrize(
    ("scales", "decays"),
    [([0.3], [0.5]), ([0.2, 0.1, 0.4], [0.99, 0.9, 0.2]), ([0.3, 0.0], [1.0, 0.0]), ([0.1, 0.2], [0.7, 0.7])],
)
def test_buffered_operators_agree_with_the_dense_matrix(scales: list[float], decays: list[float]) -> None:
    steps = 30
    matrix = BufferedToeplitzMatrix(np.array(scales), np.array(decays), steps, diagonal=0.6)
    column = [0.6] + [0.6 * sum(w * d ** (k - 1) for w, d in zip(scales, decays, strict=True)) for k in range(1, steps)]
    expected = np.array([[column[t - i] if t >= i else 0.0 for i in range(steps)] for t in range(steps)])
    assert np.allclose(matrix.materialize(), expected, rtol=1e-13, atol=0.0)
    x = np.random.default_rng(1).standard_normal((steps, 2))
    inverse = np.linalg.inv(expected)
    for vectors in (x, x[:, 0]):
        assert np.allclose(matrix.dot(vectors), expected @ vectors, atol=1e-12)
        assert np.allclose(matrix.solve(vectors), inverse @ vectors, atol=1e-11)
    assert np.allclose(matrix.query_errors(np.ones(steps)), ((np.tri(steps) @ inverse) ** 2).sum(axis=1), rtol=1e-11)
    assert np.allclose(matrix.column_norms, np.linalg.norm(expected, axis=0), rtol=1e-13)
    inverse_scales, inverse_decays = inverse_buffers(matrix)
    assert (inverse_scales <= 0.0).all()
    again = BufferedToeplitzMatrix(inverse_scales, inverse_decays, steps, diagonal=1.0 / 0.6).coefficients
    assert np.allclose(again, inverse[:, 0], atol=1e-12)


def test_optimised_buffers_interlace_and_the_column_decreases() -> None:
    matrix: Any = BufferedToeplitz(buffers=4).build(500)
    decays = np.stack([matrix.decays, inverse_buffers(matrix)[1]], axis=1).ravel()
    assert decays[0] < 1.0
    assert decays[-1] > 0.0
    assert (np.diff(decays) < 0.0).all()
    assert (matrix.scales > 0.0).all()
    assert (np.diff(matrix.coefficients) <= 0.0).all()
    assert matrix.coefficients[-1] > 0.0


@pytest.mark.parametrize(
    "strategy",
    [
        BufferedToeplitz(buffers=1),
        BufferedToeplitz(buffers=3, objective="mean", min_sep=5),
        Dense(),
        Dense(epochs=2),
        Dense(epochs=8),
    ],
)
@pytest.mark.parametrize("steps", [8, 24])
def test_optimised_matrices_are_valid_and_scaled(strategy: BufferedToeplitz | Dense, steps: int) -> None:
    matrix = strategy.build(steps)
    entries = matrix.materialize()
    assert (entries >= 0.0).all()
    assert np.array_equal(entries, np.tril(entries))
    assert (entries.diagonal() > 0.0).all()
    assert matrix.max_column_norm == pytest.approx(1.0, rel=1e-14)
    assert np.array_equal(strategy.build(steps).materialize(), entries)


def test_two_steps_by_hand() -> None:
    """``min (3 - 2 x) / (1 - x^2)`` has ``x^2 - 3 x + 1 = 0``."""
    x = (3.0 - np.sqrt(5.0)) / 2.0
    assert np.allclose(Dense().build(2).materialize(), [[np.sqrt(1.0 - x * x), 0.0], [x, 1.0]], atol=1e-9)
    assert np.array_equal(Dense().build(1).materialize(), [[1.0]])


def test_the_dense_matrix_is_optimal() -> None:
    """Where ``X^{-1} S X^{-1}`` is diagonal and positive no X with this diagonal is better, as the problem is convex.

    jax_privacy 2.0 stops at 6.3735 for 256 steps.
    """
    steps = 256
    matrix = Dense().matrix(steps)
    assert isinstance(matrix.bands, int)
    inverse = np.linalg.inv(matrix.materialize())
    slope = inverse @ inverse.T @ np.tri(steps).T @ np.tri(steps) @ inverse @ inverse.T
    assert (slope.diagonal() > 0.0).all()
    assert np.abs(slope - np.diag(slope.diagonal())).max() < 1e-6 * slope.diagonal().min()
    assert np.allclose(matrix.column_norms, 1.0, rtol=1e-14)
    assert 6.3726 < errors(Dense(), steps).mean() < 6.3727


def test_one_epoch_as_several() -> None:
    """Two optimisers that share no step: over Gram matrices, and over entries."""
    assert np.allclose(dense.optimal_matrix_for_epochs(24, 1), dense.optimal_matrix(24), atol=1e-8)


@pytest.mark.parametrize(("steps", "epochs"), [(4, 2), (6, 3), (3, 3)])
def test_several_epochs_against_a_slow_search(steps: int, epochs: int) -> None:
    """Squares of free numbers as entries, from random starts, with slopes by differences."""
    rows, columns = np.tril_indices(steps)

    def loss(roots: Array) -> float:
        matrix = np.zeros((steps, steps))
        matrix[rows, columns] = roots**2
        return float(slow_log_error(matrix, epochs))

    rng = np.random.default_rng(steps)
    values = [
        minimize(loss, np.where(rows == columns, 1.0, 0.3) + 0.3 * rng.random(rows.size), method="BFGS").fun
        for _ in range(3)
    ]
    value, _ = dense.log_error(dense.optimal_matrix_for_epochs(steps, epochs), epochs)
    assert value == pytest.approx(min(values), abs=1e-6)
    assert value < min(values) + 1e-10


def test_several_epochs_are_stationary_and_beat_what_is_known() -> None:
    steps, epochs = 32, 4
    matrix = dense.optimal_matrix_for_epochs(steps, epochs)
    sums = matrix.reshape(steps, epochs, -1).sum(axis=1)
    assert np.allclose(np.linalg.norm(sums, axis=0), 1.0, rtol=1e-14)
    value, slopes = dense.log_error(matrix, epochs)
    lower = np.tril(np.ones((steps, steps), dtype=bool))
    assert np.abs(slopes[lower & (matrix > 0.0)]).max() < 1e-10
    assert slopes[lower & (matrix == 0.0)].min() > 0.0
    banded = ToeplitzMatrix(SquareRoot().matrix(steps).materialize()[: steps // epochs, 0], steps).materialize()
    for other in (banded, dense.optimal_matrix(steps), np.eye(steps)):
        assert value < float(slow_log_error(other, epochs)) - 0.01
    # A non-negative C has tr(C^T C) <= b, as |m_i|^2 is at least the sum of the squared columns of the bin, and then
    # |A C^{-1}|_F |C|_F is at least the nuclear norm of A.
    nuclear = np.linalg.svd(np.tri(steps), compute_uv=False).sum()
    assert np.exp(value) * steps > nuclear**2 / (steps // epochs)


@pytest.mark.parametrize(
    ("build", "steps", "message"),
    [
        (lambda: BufferedToeplitz(buffers=5), 4, "'strategy.buffers' field must be at most the 4 steps. Got 5"),
        (lambda: Dense(epochs=3), 8, "'strategy.epochs' field must divide the 8 steps. Got 3"),
        (lambda: Dense(), 2049, "at most 2048 steps"),
        (lambda: Dense(epochs=2), 258, "at most 256 steps"),
    ],
)
def test_sizes_that_are_refused(build: Callable[[], BufferedToeplitz | Dense], steps: int, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        build().matrix(steps)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"buffers": 0}, "'buffers' field must be at least 1"),
        ({"buffers": 11}, "'buffers' field must be at most 10"),
        ({}, "'buffers' field is missing"),
        ({"buffers": 2, "objective": "rms"}, "'objective' field must be 'max' or 'mean'"),
        ({"buffers": 2, "min_sep": 0}, "'min_sep' field must be at least 1"),
    ],
)
def test_fields_that_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        BufferedToeplitz(**values)


def test_an_optimiser_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffered, "NEWTON_STEPS", 0)
    with pytest.raises(OptimisationError, match="2 buffers for 50 steps did not converge"):
        BufferedToeplitz(buffers=2).build(50)
    monkeypatch.setattr(newton, "NEWTON_STEPS", 0)
    with pytest.raises(OptimisationError, match="2 epochs in 8 steps did not converge"):
        Dense(epochs=2).build(8)
    monkeypatch.setattr(dense, "ITERATIONS", 3)
    with pytest.raises(OptimisationError, match="30 steps did not converge"):
        Dense().build(30)


def test_a_gap_and_a_negative_entry_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = dense.lower_factor
    monkeypatch.setattr(dense, "lower_factor", lambda gram: factor(gram) + 0.01 * np.eye(len(gram)))
    with pytest.raises(OptimisationError, match="is above the bound"):
        Dense().build(10)
    monkeypatch.setattr(dense, "GAP", np.inf)
    monkeypatch.setattr(dense, "lower_factor", lambda gram: factor(gram) - 0.9 * np.tri(len(gram), k=-1))
    with pytest.raises(OptimisationError, match="negative entry"):
        Dense().build(10)
