"""The optimised strategies: gradients, optimality by independent conditions, peers' values, and refusals."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy.linalg import toeplitz
from scipy.optimize import nnls

from hockeystick.errors import InvalidInputError, OptimisationError
from hockeystick.strategies.banded_inverse import BandedInverse
from hockeystick.strategies.banded_toeplitz import BandedToeplitz
from hockeystick.strategies.base import StrategySpec
from hockeystick.strategies.column_normalized_banded import ColumnNormalizedBanded
from hockeystick.strategies.optimise import banded_inverse, banded_toeplitz, column_normalized
from hockeystick.strategies.optimise.minimise import minimise
from hockeystick.strategies.sensitivity import spaced_steps_are_worst

REFERENCE = 1.0 + 5e-5
"""The references below are printed to the fourth decimal or fewer digits."""


def objective(strategy: StrategySpec, steps: int, min_sep: int | None = None) -> float:
    """``mean_t |row t of A C^{-1}|^2`` times ``|sum_j C[:, j min_sep]|^2``, A the prefix sums."""
    matrix = strategy.matrix(steps)
    spaced = matrix.columns(np.arange(0, steps, min_sep or steps)).sum(axis=1)
    assert matrix.max_column_norm == pytest.approx(1.0, rel=1e-14)
    return float(matrix.query_errors(np.ones(steps)).mean() * (spaced @ spaced))


def dense_objective(matrix: np.ndarray, min_sep: int) -> float:
    """The same from arrays, with the largest column norm for a single participation."""
    steps = matrix.shape[0]
    error = (np.tril(np.ones((steps, steps))) @ np.linalg.inv(matrix)) ** 2
    if min_sep >= steps:
        return float(error.sum() / steps * (matrix**2).sum(axis=0).max())
    return float(error.sum() / steps * (matrix[:, ::min_sep].sum(axis=1) ** 2).sum())


def full(column: np.ndarray, steps: int) -> np.ndarray:
    return np.tril(toeplitz(np.concatenate([column, np.zeros(steps)])[:steps]))


def slope(function, point: np.ndarray, direction: np.ndarray) -> float:
    """Directional derivative by differences of fourth order: error about 1e-12 of the derivatives' scale."""
    h = 1e-3
    values = [function(point + k * h * direction)[0] for k in (-2, -1, 1, 2)]
    return (values[0] - 8.0 * values[1] + 8.0 * values[2] - values[3]) / (12.0 * h)


# The peer is jax_privacy 2.0: optimize_banded_toeplitz (250 L-BFGS steps) and banded.optimize (100 steps). The
# objective is mean(per_query_error) * max squared column norm; with min_sep, the squared norm of the sum of the columns
# 0, 64, 128, ... The inverses' objective was minimised by its optimization.optimize.
@pytest.mark.parametrize(
    ("strategy", "steps", "reference"),
    [
        (BandedToeplitz(bands=32), 1024, 24.5583),
        (BandedToeplitz(bands=64), 4096, 45.6832),
        (BandedToeplitz(bands=64), 1000, 16.2802),
        (ColumnNormalizedBanded(bands=64), 1000, 15.734),
        (BandedInverse(bands=4), 1024, 16.710),
        (BandedInverse(bands=4, min_sep=64), 1024, 329.86),
    ],
)
def test_no_worse_than_a_peer(strategy: StrategySpec, steps: int, reference: float) -> None:
    assert objective(strategy, steps, getattr(strategy, "min_sep", None)) <= reference * REFERENCE


def test_two_steps_in_closed_form() -> None:
    """Toeplitz (1, c): error (2 + (1-c)^2) / 2 times 1 + c^2, whose derivative is a cubic. Columns (cos, sin), (0, 1):
    (1 + (1 + (1-s)^2) / (1 - s^2)) / 2 is least at s = (3 - sqrt 5) / 2, where it is (3 + sqrt 5) / 4."""
    product = np.polymul([1.0, -2.0, 3.0], [0.5, 0.0, 0.5])
    roots = np.roots(np.polyder(product))
    best = min(np.polyval(product, root.real) for root in roots if abs(root.imag) < 1e-9)
    assert objective(BandedToeplitz(bands=2), 2) == pytest.approx(best, rel=1e-13)
    assert objective(BandedInverse(bands=2), 2) == pytest.approx(best, rel=1e-13)
    assert objective(ColumnNormalizedBanded(bands=2), 2) == pytest.approx((3.0 + 5.0**0.5) / 4.0, rel=1e-13)
    sine = ColumnNormalizedBanded(bands=2).matrix(2).materialize()[1, 0]
    assert sine == pytest.approx((3.0 - 5.0**0.5) / 2.0, abs=1e-10)


@pytest.mark.parametrize("kind", [BandedToeplitz, ColumnNormalizedBanded, BandedInverse])
def test_one_band_is_the_identity(kind: type[BandedToeplitz]) -> None:
    for steps in (1, 5):
        assert np.array_equal(kind(bands=1).matrix(steps).materialize(), np.eye(steps))


@pytest.mark.parametrize(("steps", "bands"), [(1, 1), (2, 2), (9, 4), (30, 30), (80, 7)])
def test_toeplitz_value_and_gradient(steps: int, bands: int) -> None:
    rng = np.random.default_rng(steps)
    column = 0.8 ** np.arange(bands) * rng.uniform(0.5, 1.0, bands)
    column[0] = 1.5
    value, gradient = banded_toeplitz.log_error(column, steps)
    assert np.exp(value) == pytest.approx(dense_objective(full(column, steps), steps), rel=1e-11)
    direction = rng.standard_normal(bands)
    expected = slope(lambda c: banded_toeplitz.log_error(c, steps), column, 0.1 * direction)
    assert 0.1 * direction @ gradient == pytest.approx(expected, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize(("steps", "bands"), [(1, 1), (2, 2), (9, 4), (12, 12), (40, 7)])
def test_column_normalized_value_and_gradient(steps: int, bands: int) -> None:
    rng = np.random.default_rng(steps)
    inside = np.arange(steps)[:, None] + np.arange(bands)[None, :] < steps
    band = inside * (0.6 ** np.arange(bands) * rng.uniform(0.5, 1.5, (steps, bands)))
    matrix = np.zeros((steps, steps))
    for i, d in np.argwhere(inside):
        matrix[i + d, i] = band[i, d]
    matrix /= np.linalg.norm(matrix, axis=0)
    value, gradient = column_normalized.log_error(band)
    assert np.exp(value) == pytest.approx(dense_objective(matrix, steps), rel=1e-11)
    direction = inside * rng.standard_normal(band.shape)
    expected = slope(column_normalized.log_error, band, 0.1 * direction)
    assert 0.1 * (direction * gradient).sum() == pytest.approx(expected, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize(("steps", "bands", "min_sep"), [(1, 1, 1), (2, 2, 2), (9, 4, 2), (30, 30, 7), (80, 7, 80)])
def test_inverse_value_and_gradient(steps: int, bands: int, min_sep: int) -> None:
    rng = np.random.default_rng(steps)
    inverse = -(0.5 ** np.arange(bands)) * rng.uniform(0.2, 0.6, bands)
    inverse[0] = 1.1
    value, gradient = banded_inverse.log_error(inverse, steps, min_sep)
    matrix = np.linalg.inv(full(inverse, steps))
    assert np.exp(value) == pytest.approx(dense_objective(matrix, min_sep), rel=1e-10)
    direction = rng.standard_normal(bands)
    expected = slope(lambda m: banded_inverse.log_error(m, steps, min_sep), inverse, 0.05 * direction)
    assert 0.05 * direction @ gradient == pytest.approx(expected, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize(("steps", "bands"), [(8, 3), (30, 30), (60, 8)])
def test_column_normalized_is_the_global_optimum(steps: int, bands: int) -> None:
    """With X = C^T C the problem is to minimise tr(A^T A X^{-1}) over banded X with diagonal 1, which is convex:
    X is optimal exactly when the derivative -X^{-1} A^T A X^{-1} vanishes in the band off the diagonal."""
    matrix = ColumnNormalizedBanded(bands=bands).matrix(steps).materialize()
    assert np.allclose(np.linalg.norm(matrix, axis=0), 1.0, atol=1e-14)
    assert matrix.min() >= 0.0
    noise = np.tril(np.ones((steps, steps))) @ np.linalg.inv(matrix)
    derivative = np.linalg.solve(matrix, np.linalg.solve(matrix, noise.T @ noise).T)
    distance = np.abs(np.subtract.outer(np.arange(steps), np.arange(steps)))
    free = (distance > 0) & (distance < bands)
    assert np.abs(derivative[free]).max() <= 1e-8 * np.abs(derivative).max()
    outside = np.abs(derivative[distance >= bands])
    assert outside.size == 0 or outside.max() > 1e-4 * np.abs(derivative).max()


@pytest.mark.parametrize(("steps", "bands"), [(50, 5), (50, 50), (400, 20)])
def test_every_start_ends_at_the_same_toeplitz_matrix(steps: int, bands: int) -> None:
    """What two machines differ in is smaller than what two starts differ in."""
    optimum = banded_toeplitz.optimal_coefficients(steps, bands)

    def free(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = banded_toeplitz.log_error(np.concatenate([[1.0], point]), steps)
        return value, gradient[1:]

    for seed in range(3):
        start = optimum[1:] / optimum[0] * np.random.default_rng(seed).uniform(0.8, 1.1, bands - 1)
        again = np.concatenate([[1.0], minimise(free, start, "a test")])
        assert np.abs(again / np.linalg.norm(again) - optimum).max() < 1e-9


def test_every_start_ends_at_the_same_banded_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    optimum = column_normalized.optimal_columns(200, 12)
    crude = 0.9 ** np.arange(12)
    monkeypatch.setattr(column_normalized, "square_root_coefficients", lambda bands: crude)
    assert np.abs(column_normalized.optimal_columns(200, 12) - optimum).max() < 1e-9


def test_every_start_ends_at_the_same_inverse(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [(300, 12, None), (300, 12, 50), (300, 30, 50)]
    optima = [banded_inverse.optimal_inverse_coefficients(*case) for case in cases]
    crude = np.concatenate([[1.0], -0.1 * 0.8 ** np.arange(30)])
    monkeypatch.setattr(banded_inverse, "inverse_square_root_coefficients", lambda count: crude[:count])
    for case, coefficients in zip(cases, optima, strict=True):
        again = banded_inverse.optimal_inverse_coefficients(*case)
        assert np.abs(again - coefficients).max() < 1e-9


@pytest.mark.parametrize(("steps", "bands", "min_sep"), [(100, 6, None), (100, 40, None), (100, 8, 20), (100, 30, 10)])
def test_inverse_is_stationary_within_its_signs(steps: int, bands: int, min_sep: int | None) -> None:
    """No coefficient off the diagonal is positive; the derivative is 0 where it is negative, and at most 0 (so that
    only a positive value would improve) where it is 0."""
    optimum = banded_inverse.optimal_inverse_coefficients(steps, bands, min_sep)
    assert optimum[0] > 0.0
    assert optimum[1:].max() <= 0.0
    _, gradient = banded_inverse.log_error(optimum, steps, min_sep or steps)
    at_zero = optimum == 0.0
    assert np.abs(gradient[~at_zero]).max() < 1e-8
    assert np.all(gradient[at_zero] < 0.0)


@pytest.mark.parametrize("kind", [BandedToeplitz, ColumnNormalizedBanded, BandedInverse])
def test_more_bands_are_no_worse(kind: type[BandedToeplitz]) -> None:
    values = [objective(kind(bands=bands), 60) for bands in (1, 2, 3, 5, 8, 20, 60)]
    assert all(later <= earlier * (1.0 + 1e-12) for earlier, later in pairwise(values))
    assert values[-1] < 0.2 * values[0]


@pytest.mark.parametrize(("bands", "min_sep"), [(2, 3), (3, 4), (6, 4), (14, 5), (4, 2)])
def test_inverse_with_participations_minimises_the_true_sensitivity(bands: int, min_sep: int) -> None:
    """The columns 0, b, 2b, ... are the worst of all patterns of steps at least b apart, by enumeration."""
    steps = 14
    matrix = BandedInverse(bands=bands, min_sep=min_sep).matrix(steps).materialize()
    spaced = float((matrix[:, ::min_sep].sum(axis=1) ** 2).sum())
    assert worst_pattern(matrix, min_sep) == pytest.approx(spaced, rel=1e-12)
    for other in (BandedInverse(bands=bands), BandedInverse(bands=bands, min_sep=min_sep + 1)):
        assert dense_objective(matrix, min_sep) <= dense_objective(other.matrix(steps).materialize(), min_sep)


def worst_pattern(matrix: np.ndarray, min_sep: int) -> float:
    steps, worst = matrix.shape[0], 0.0
    for count in range(1, -(-steps // min_sep) + 1):
        for pattern in combinations(range(steps), count):
            if np.all(np.diff(pattern) >= min_sep):
                worst = max(worst, float((matrix[:, list(pattern)].sum(axis=1) ** 2).sum()))
    return worst


def test_check_of_the_worst_pattern() -> None:
    """What it lets pass is right, by enumeration, for columns that grow; and it refuses one where it is not."""
    rng = np.random.default_rng(5)
    passed = 0
    for _ in range(300):
        column = rng.uniform(0.0, 1.0, 10) * rng.uniform(0.4, 1.0) ** np.arange(10)
        min_sep = int(rng.integers(1, 6))
        if spaced_steps_are_worst(column, min_sep):
            passed += 1
            matrix = full(column, 10)
            spaced = float((matrix[:, ::min_sep].sum(axis=1) ** 2).sum())
            assert worst_pattern(matrix, min_sep) <= spaced * (1.0 + 1e-10)
    assert 50 < passed < 300
    late = np.array([1.0, 0.0, 0.0, 0.0, 0.9, 0.0, 0.0, 0.0])
    assert worst_pattern(full(late, 8), 3) > float((full(late, 8)[:, ::3].sum(axis=1) ** 2).sum())
    assert not spaced_steps_are_worst(late, 3)


def test_inverse_is_refused_when_another_pattern_may_be_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(banded_inverse, "spaced_steps_are_worst", lambda column, distance: False)
    with pytest.raises(OptimisationError, match="min_sep 10"):
        banded_inverse.optimal_inverse_coefficients(30, 3, 10)


def test_minimise_reaches_nine_digits() -> None:
    """A quadratic of condition number 1e5 plus a quartic, whose minimiser is known."""
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.standard_normal((30, 30)))[0]
    hessian = basis @ np.diag(np.logspace(0, -5, 30)) @ basis.T
    solution = rng.standard_normal(30)

    def bowl(point: np.ndarray) -> tuple[float, np.ndarray]:
        off = point - solution
        return 3.0 + 0.5 * off @ hessian @ off + (off @ off) ** 2, hessian @ off + 4.0 * (off @ off) * off

    assert np.abs(minimise(bowl, np.zeros(30), "a bowl") - solution).max() < 1e-9


def test_minimise_within_bounds_is_least_squares() -> None:
    rng = np.random.default_rng(4)
    table, wanted = rng.standard_normal((40, 15)), rng.standard_normal(40)
    expected = nnls(table, wanted)[0]
    assert 2 < np.count_nonzero(expected == 0.0) < 13

    def squares(point: np.ndarray) -> tuple[float, np.ndarray]:
        off = table @ point - wanted
        return 0.5 * off @ off, table.T @ off

    solution = minimise(squares, np.ones(15), "least squares", non_negative=True)
    assert np.abs(solution - expected).max() < 1e-10
    assert np.array_equal(solution == 0.0, expected == 0.0)


@pytest.mark.parametrize(
    "hill",
    [
        lambda x: (float(x.sum()), np.ones_like(x)),
        lambda x: (float("nan"), np.full_like(x, np.nan)),
        lambda x: (-float(np.log1p(x @ x)), -2.0 * x / (1.0 + x @ x)),
    ],
    ids=["a slope", "not a number", "an endless hill"],
)
def test_minimise_refuses(hill) -> None:
    with pytest.raises(OptimisationError, match="this hill"):
        minimise(hill, np.array([1.0, 2.0]), "this hill")


@pytest.mark.parametrize("kind", [BandedToeplitz, ColumnNormalizedBanded, BandedInverse])
def test_bad_bands(kind: type[BandedToeplitz]) -> None:
    with pytest.raises(InvalidInputError, match=r"'strategy\.bands' field must be at most the 7 steps\. Got 8"):
        kind(bands=8).matrix(7)
    for bands in (0, -1, 1.5, "4"):
        with pytest.raises(InvalidInputError, match="'bands'"):
            kind(bands=bands)


def test_bad_min_sep() -> None:
    for min_sep in (0, -2, 2.5):
        with pytest.raises(InvalidInputError, match="'min_sep'"):
            BandedInverse(bands=2, min_sep=min_sep)
    assert objective(BandedInverse(bands=2, min_sep=9), 9) == objective(BandedInverse(bands=2), 9)
