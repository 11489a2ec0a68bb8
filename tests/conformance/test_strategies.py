"""Every registered strategy keeps the promises of a strategy matrix."""

import numpy as np
import pytest
from strategy_examples import EXAMPLES, STEPS

from hockeystick import BallsInBins, Mechanism, noise
from hockeystick.pairs.registry import dominating_pair
from hockeystick.strategies import STRATEGIES, StrategyMatrix

KINDS = list(EXAMPLES)


def matrix_of(kind: str) -> StrategyMatrix:
    return EXAMPLES[kind].matrix(STEPS)


def test_the_examples_cover_every_strategy() -> None:
    assert set(EXAMPLES) == set(STRATEGIES)


@pytest.mark.parametrize("kind", KINDS)
def test_c_is_causal_and_non_negative_with_a_left_inverse(kind: str) -> None:
    matrix = matrix_of(kind)
    dense = matrix.materialize()
    assert dense.shape == (matrix.rows, matrix.steps) == (matrix.rows, STEPS)
    assert (dense >= 0.0).all()
    assert np.allclose(matrix.solve(dense), np.eye(STEPS), atol=1e-12)
    if matrix.rows == STEPS:
        assert np.array_equal(dense, np.tril(dense))
        assert np.array_equal(np.tril(dense, -matrix.bands), np.zeros_like(dense))


@pytest.mark.parametrize("kind", KINDS)
def test_lazy_operators_agree_with_the_dense_matrix(kind: str) -> None:
    matrix = matrix_of(kind)
    dense = matrix.materialize()
    rng = np.random.default_rng(3)
    x, z = rng.standard_normal((STEPS, 3)), rng.standard_normal((matrix.rows, 3))
    inverse = matrix.solve(np.eye(matrix.rows))
    assert np.allclose(matrix.dot(x), dense @ x, atol=1e-12)
    assert np.allclose(matrix.dot(x[:, 0]), dense @ x[:, 0], atol=1e-12)
    assert np.allclose(matrix.solve(z), inverse @ z, atol=1e-11)
    assert np.allclose(matrix.column_norms, np.linalg.norm(dense, axis=0), rtol=1e-13)
    assert matrix.max_column_norm == pytest.approx(np.linalg.norm(dense, axis=0).max(), rel=1e-13)
    which = np.array([5, 0, 7])
    assert np.array_equal(matrix.columns(which), dense[:, which])
    workload = np.ones(STEPS)
    queries = np.tril(np.ones((STEPS, STEPS))) @ inverse
    assert np.allclose(matrix.query_errors(workload), (queries**2).sum(axis=1), rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bins", [1, 2, 4, 8])
def test_means_and_inner_products_of_bins(kind: str, bins: int) -> None:
    matrix = matrix_of(kind)
    means = sum(matrix.materialize()[:, first : first + bins] for first in range(0, STEPS, bins))
    assert np.allclose(matrix.bin_means(bins), means, rtol=4 * matrix.rounding, atol=0.0)
    assert np.allclose(matrix.bin_norms(bins), np.linalg.norm(means, axis=0), rtol=1e-13, atol=0.0)
    gram = matrix.bin_gram(bins)
    assert np.array_equal(gram, gram.T)
    assert np.allclose(gram, means.T @ means, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_is_the_one_that_the_certificate_is_about(kind: str) -> None:
    """Streamed noise is C^{-1} z for the z that the same generator gives."""
    mechanism = Mechanism(strategy=EXAMPLES[kind], sampler=BallsInBins(bins=4, epochs=2), noise_multiplier=1.7)
    pair = dominating_pair(mechanism)
    assert pair.noise_multiplier > 0.0
    runs = 4000
    stream = noise.stream(mechanism, (runs,), rng=np.random.default_rng(11), dtype=np.float64)
    rows = np.stack([stream.next() for _ in range(STEPS)])
    inverse = matrix_of(kind).solve(np.eye(matrix_of(kind).rows))
    covariance = 1.7**2 * inverse @ inverse.T
    # Each entry of the sample covariance is within 6 standard errors: false failure below 64 * 2e-9.
    scale = np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()) + covariance**2)
    assert (np.abs(rows @ rows.T / runs - covariance) <= 6.0 * scale / np.sqrt(runs)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_strategy_is_built_once(kind: str) -> None:
    assert matrix_of(kind) is matrix_of(kind)
    again = type(EXAMPLES[kind]).parse(EXAMPLES[kind].model_dump())
    assert again == EXAMPLES[kind]
