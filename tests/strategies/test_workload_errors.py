"""Errors of workloads against dense matrices, simulated training and printed numbers."""

import numpy as np
import pytest

from hockeystick.errors import InvalidInputError
from hockeystick.strategies import error, sensitivity
from hockeystick.strategies.banded_inverse_square_root import BandedInverseSquareRoot
from hockeystick.strategies.banded_square_root import BandedSquareRoot
from hockeystick.strategies.base import StrategySpec
from hockeystick.strategies.binary_tree import BinaryTree
from hockeystick.strategies.identity import Identity
from hockeystick.strategies.square_root import SquareRoot
from hockeystick.strategies.tree_restart import TreeRestart

STEPS = 22


def training(gradients: np.ndarray, momentum: float, weight_decay: float) -> np.ndarray:
    """The iterates that a training loop goes through."""
    weights, velocity, iterates = np.zeros(gradients.shape[1]), np.zeros(gradients.shape[1]), []
    for gradient in gradients:
        velocity = momentum * velocity + gradient
        weights = (1.0 - weight_decay) * weights - velocity
        iterates.append(weights)
    return np.array(iterates)


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.1), (0.9, 0.1), (0.5, 0.5)])
def test_workloads_are_what_training_does(momentum: float, weight_decay: float) -> None:
    workload = error.momentum(STEPS, momentum, weight_decay)
    np.testing.assert_allclose(-training(np.eye(STEPS), momentum, weight_decay)[:, 0], workload, rtol=1e-14)
    powers = [sum(momentum**j * (1.0 - weight_decay) ** (k - j) for j in range(k + 1)) for k in range(STEPS)]
    np.testing.assert_allclose(workload, powers, rtol=1e-13)


def test_without_momentum_the_iterates_are_prefix_sums() -> None:
    assert np.array_equal(error.momentum(STEPS, 0.0), error.prefix_sums(STEPS))
    assert np.array_equal(error.prefix_sums(3), [1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    "strategy",
    [
        Identity(),
        BandedSquareRoot(bands=4),
        BandedInverseSquareRoot(bands=4),
        SquareRoot(),
        BinaryTree(),
        TreeRestart(height=3),
    ],
    ids=lambda strategy: strategy.kind,
)
def test_errors_are_those_of_training_on_noise(strategy: StrategySpec) -> None:
    matrix = strategy.matrix(STEPS)
    noise = matrix.solve(np.eye(matrix.rows))
    squares = (training(noise, 0.9, 0.05) ** 2).sum(axis=1)
    workload = error.momentum(STEPS, 0.9, 0.05)
    assert error.mean_error(matrix, workload) == pytest.approx(squares.mean(), rel=1e-10)
    assert matrix.query_errors(workload).max() == pytest.approx(squares.max(), rel=1e-10)


def test_independent_noise_adds_up() -> None:
    matrix = Identity().matrix(STEPS)
    assert error.mean_error(matrix, error.prefix_sums(STEPS)) == pytest.approx((STEPS + 1) / 2, rel=1e-14)
    assert matrix.query_errors(error.prefix_sums(STEPS)).max() == pytest.approx(STEPS, rel=1e-14)


@pytest.mark.parametrize(("bands", "printed"), [(4, "82.98"), (32, "16.512")])
def test_banded_inverse_square_root_at_1024_steps(bands: int, printed: str) -> None:
    """Mean squared error of prefix sums times squared sensitivity of one participation, as jax-privacy 2.0 gives it."""
    matrix = BandedInverseSquareRoot(bands=bands).matrix(1024)
    computed = error.mean_error(matrix, error.prefix_sums(1024)) * sensitivity.single(matrix).value ** 2
    assert f"{computed:.{len(printed) - 3}f}" == printed


@pytest.mark.parametrize("values", [(1.0, 0.0), (-0.1, 0.0), (0.5, 1.0), (0.5, float("nan"))])
def test_impossible_optimisers_are_refused(values: tuple[float, float]) -> None:
    with pytest.raises(InvalidInputError, match=r"must be at least 0 and below 1. Got "):
        error.momentum(STEPS, *values)


def test_a_workload_of_another_length_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"'workload' parameter must have shape \(22,\).*Got shape \(23,\)"):
        error.mean_error(Identity().matrix(STEPS), error.prefix_sums(STEPS + 1))
