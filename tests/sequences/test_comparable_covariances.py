"""The order of covariances against eigenvalues and rotations, and the estimate of which of them matter."""

import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.sequences.comparable_covariances import closed_ring, semidefinite, sensitivity, shortfall, toeplitz
from hockeystick.types import Side
from tests.sequences.sequences_oracle import covariance_of, epsilon_at


@pytest.mark.parametrize("ring", [False, True])
def test_a_shared_part_is_semidefinite(ring: bool) -> None:
    """Random entries, most of them with a negative symbol before; no more is added to the first than is needed."""
    rng = np.random.default_rng(4)
    for _ in range(30):
        shared = rng.standard_normal(int(rng.integers(1, 12)))
        raised = semidefinite(shared)
        assert (raised[1:] == shared[1:]).all()
        assert np.linalg.eigvalsh(toeplitz(raised, 60, ring)).min() >= -1e-13
        symbol = (
            raised[0] + 2.0 * np.cos(np.outer(np.linspace(0.0, np.pi, 5000), np.arange(1, raised.size))) @ raised[1:]
        )
        assert symbol.min() >= 0.0
        assert raised[0] == shared[0] or symbol.min() <= 0.01


def test_a_toeplitz_matrix_has_its_entries_by_distance() -> None:
    """On a line and along a ring, entries beyond those that are given are 0."""
    for ring, lags in ((False, [0, 1, 2, 3, 4]), (True, [0, 1, 2, 2, 1])):
        matrix = toeplitz(np.array([3.0, 2.0]), 5, ring)
        assert matrix[0].tolist() == [(3.0, 2.0, 0.0, 0.0, 0.0)[lag] for lag in lags]
        assert (matrix == matrix.T).all()
        assert (matrix[1:, 1:] == matrix[:-1, :-1]).all()


def test_a_closed_ring_is_above_every_rotation() -> None:
    """However the bins are numbered along the ring, none of their covariances is larger, and each is reached."""
    rng = np.random.default_rng(3)
    for bins, bands in ((24, 3), (37, 4), (16, 2)):
        column = np.concatenate([[1.0], 0.5 * rng.random(bands - 1)])
        circulant = sum(weight * np.roll(np.eye(bins), lag, axis=0) for lag, weight in enumerate(column))
        covariance = (circulant * (1.0 + 0.1 * rng.random(bins))).T @ (circulant * (1.0 + 0.1 * rng.random(bins)))
        covariance = 0.5 * (covariance + covariance.T)
        closed = closed_ring(covariance)
        assert closed is not None
        assert (closed == np.max([np.roll(covariance, (s, s), (0, 1)) for s in range(bins)], axis=0)).all()
        assert closed[0, -1] > 0.0
    assert closed_ring(np.eye(12)) is None


def test_what_is_not_comparable_has_a_shortfall() -> None:
    covariance = covariance_of(np.array([1.0, 0.5]), 6)
    for side, factor in ((Side.UPPER, 0.999), (Side.LOWER, 1.001)):
        assert shortfall(covariance * factor, covariance, 0.0, side).max() > 0.0
        assert shortfall(covariance * (2.0 - factor), covariance, 1e-9, side).max() <= 0.0
        assert shortfall(covariance * (1.0 + (1.0 - factor) / 2.0), covariance, 1e-3, side).max() > 0.0
    raised = 0.9999 * covariance
    raised[0, 5] = raised[5, 0] = 1e-3  # where the columns do not overlap
    assert shortfall(raised, covariance, 0.0, Side.LOWER).max() > 0.0


def test_what_epsilon_changes_with_is_its_derivative() -> None:
    """All covariances at a lag moved by a hundredth: epsilon of three bins, by quadrature, moves as it is said to.

    The simulation has 12,000 samples, so a tenth of the largest weight is what it may be off by.
    """
    covariance = covariance_of(np.array([1.0, 0.5]), 3) / 1.2
    computed = sensitivity(covariance, 1e-2, Deadline())
    near = epsilon_at(covariance, 1e-2)
    assert computed.epsilon == pytest.approx(near, rel=0.03)
    for lag in range(2):
        place = np.arange(3)
        moved = covariance + 0.01 * (np.abs(np.subtract.outer(place, place)) == lag)
        change = (epsilon_at(moved, 1e-2) / near - 1.0) / 0.01
        assert computed.weights[lag] == pytest.approx(change, abs=0.1 * float(computed.weights.max()))
