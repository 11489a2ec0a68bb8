"""BandedMatrix against a plain array, and its covariance recursion against the inverse of that array."""

import numpy as np
import pytest
from scipy.linalg import toeplitz

from hockeystick.strategies.matrix.banded import BandedMatrix, autoregression, covariances
from hockeystick.strategies.matrix.base import StrategyMatrix

SIZES = [(1, 1), (2, 2), (7, 1), (12, 3), (12, 12), (60, 4), (60, 11)]


def random_band(steps: int, bands: int) -> np.ndarray:
    """Entries that fall away from the diagonal, so that the inverse stays moderate."""
    rng = np.random.default_rng(1000 * steps + bands)
    band = rng.uniform(0.2, 1.0, (steps, bands)) * 0.7 ** np.arange(bands)
    band[:, 0] += 1.0
    band[np.arange(steps)[:, None] + np.arange(bands)[None, :] >= steps] = 0.0
    return band


def dense(band: np.ndarray) -> np.ndarray:
    steps, bands = band.shape
    full = np.zeros((steps, steps))
    for i in range(steps):
        for d in range(min(bands, steps - i)):
            full[i + d, i] = band[i, d]
    return full


@pytest.mark.parametrize(("steps", "bands"), SIZES)
def test_entries(steps: int, bands: int) -> None:
    band = random_band(steps, bands)
    matrix, full = BandedMatrix(band), dense(band)
    assert (matrix.steps, matrix.rows, matrix.bands) == (steps, steps, bands)
    assert np.array_equal(matrix.materialize(), full)
    which = np.array([steps - 1, 0, steps // 2])
    assert np.array_equal(matrix.columns(which), full[:, which])
    assert np.allclose(matrix.column_norms, np.linalg.norm(full, axis=0), rtol=1e-14)


@pytest.mark.parametrize(("steps", "bands"), SIZES)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (1100,)])
def test_dot_and_solve(steps: int, bands: int, shape: tuple[int, ...]) -> None:
    band = random_band(steps, bands)
    matrix, full = BandedMatrix(band), dense(band)
    x = np.random.default_rng(7).standard_normal((steps, *shape))
    kept = x.copy()
    assert np.allclose(matrix.dot(x), full @ x, rtol=1e-13, atol=1e-13)
    assert np.allclose(matrix.solve(x), np.linalg.solve(full, x), rtol=1e-11, atol=1e-11)
    assert matrix.dot(x).shape == matrix.solve(x).shape == x.shape
    assert np.array_equal(x, kept)


def test_solve_takes_a_transposed_array() -> None:
    band = random_band(12, 3)
    z = np.random.default_rng(8).standard_normal((4, 12)).T
    assert np.allclose(BandedMatrix(band).solve(z), np.linalg.solve(dense(band), z), rtol=1e-12)


@pytest.mark.parametrize(("steps", "bands"), SIZES)
def test_bins(steps: int, bands: int) -> None:
    """The general methods sum columns of C one after the other; means agree exactly, products to their rounding."""
    matrix = BandedMatrix(random_band(steps, bands))
    for bins in (b for b in range(1, steps + 1) if steps % b == 0):
        means = StrategyMatrix.bin_means(matrix, bins)
        assert np.allclose(matrix.bin_means(bins), means, rtol=matrix.rounding, atol=0.0)
        gram = matrix.bin_gram(bins)
        assert np.array_equal(gram, gram.T)
        assert np.allclose(gram, means.T @ means, rtol=2.0 * matrix.rounding, atol=0.0)


def test_rounding_of_the_gram_matrix_of_one_bin() -> None:
    """A single bin collects all n (2p - 1) products: the declared rounding still holds, against integers."""
    steps, bands = 300, 40
    whole = np.random.default_rng(3).integers(1, 2**26, (steps, bands))
    whole[np.arange(steps)[:, None] + np.arange(bands)[None, :] >= steps] = 0
    rows = [sum(int(whole[t - d, d]) for d in range(min(bands, t + 1))) for t in range(steps)]
    exact = sum(row * row for row in rows)
    matrix = BandedMatrix(whole.astype(float))
    assert abs(int(matrix.bin_gram(1)[0, 0]) - exact) <= matrix.rounding * exact


@pytest.mark.parametrize(("steps", "bands"), SIZES)
@pytest.mark.parametrize("taps", [(1.0,), (1.0, -1.0), (0.5, -0.95, 0.45)])
def test_covariances(steps: int, bands: int, taps: tuple[float, ...]) -> None:
    """S = A C^{-1} z has the covariance B B^T with B = A C^{-1}."""
    band = random_band(steps, bands)
    inverse_workload = toeplitz(np.concatenate([taps, np.zeros(steps)])[:steps], np.zeros(steps))
    queries = np.linalg.inv(dense(band) @ np.tril(inverse_workload))
    expected = queries @ queries.T
    computed = covariances(*autoregression(band, np.array(taps)))
    for t in range(steps):
        for j in range(min(t, bands + len(taps) - 2) + 1):
            assert computed[t, j] == pytest.approx(expected[t, t - j], rel=1e-10, abs=1e-11)


@pytest.mark.parametrize("bands", [1, 4, 40])
@pytest.mark.parametrize("decay", [(0.0, 1.0), (0.9, 1.0), (0.9, 0.999), (0.5, 0.0)])
def test_query_errors(bands: int, decay: tuple[float, float]) -> None:
    """Prefix sums, momentum, weight decay, no accumulation: against A C^{-1}. 40 bands take the slow way."""
    steps = 60
    band = random_band(steps, bands)
    workload = np.convolve(decay[0] ** np.arange(steps), decay[1] ** np.arange(steps))[:steps]
    queries = np.tril(toeplitz(workload)) @ np.linalg.inv(dense(band))
    assert np.allclose(BandedMatrix(band).query_errors(workload), (queries**2).sum(axis=1), rtol=1e-9)


def test_query_errors_of_a_workload_without_a_short_inverse() -> None:
    band = random_band(60, 4)
    workload = 1.0 / np.arange(1.0, 61.0)
    queries = np.tril(toeplitz(workload)) @ np.linalg.inv(dense(band))
    assert np.allclose(BandedMatrix(band).query_errors(workload), (queries**2).sum(axis=1), rtol=1e-11)
