"""The error of a workload, against matrices that are written out."""

from math import cos, pi

import numpy as np
import pytest

from hockeystick.errors import InvalidInputError
from hockeystick.recommendation import workload as module
from hockeystick.recommendation.workload import Workload
from hockeystick.strategies import BandedInverseSquareRoot, BandedSquareRoot, BinaryTree, ColumnNormalizedBanded

STEPS = 12


def optimiser_matrix(momentum: float, rates: np.ndarray, decay: float) -> np.ndarray:
    """A, column by column: minus the weights of an optimiser, step by step, for one unit gradient."""
    a = np.zeros((rates.size, rates.size))
    for first in range(rates.size):
        velocity = weight = 0.0
        for step in range(rates.size):
            velocity = momentum * velocity + (step == first)
            weight = weight * (1.0 - decay * rates[step]) - rates[step] * velocity
            a[step, first] = -weight
    return a


RATES = {
    "constant": [1.0] * STEPS,
    "cosine": [(1.0 + cos(pi * step / STEPS)) / 2.0 for step in range(STEPS)],
    "linear": [(STEPS - step) / STEPS for step in range(STEPS)],
    "step": [1.0] * 6 + [0.1] * 3 + [0.01] * 3,
}


@pytest.mark.parametrize("schedule", RATES)
@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.05), (0.7, 0.1)])
@pytest.mark.parametrize(
    "strategy", [BandedSquareRoot(bands=3), BandedInverseSquareRoot(bands=2), ColumnNormalizedBanded(bands=2)]
)
def test_errors_are_the_norms_of_the_rows(schedule, momentum, decay, strategy) -> None:
    matrix = strategy.matrix(STEPS)
    rows = optimiser_matrix(momentum, np.array(RATES[schedule]), decay) @ np.linalg.inv(matrix.materialize())
    errors = Workload(momentum=momentum, schedule=schedule, weight_decay=decay).unit_errors(matrix)
    np.testing.assert_allclose(errors, (rows**2).sum(axis=1), rtol=1e-10)


def test_a_tree_has_more_rows_than_steps() -> None:
    matrix = BinaryTree().matrix(STEPS)
    left_inverse = matrix.solve(np.eye(matrix.rows))
    rows = optimiser_matrix(0.5, np.array(RATES["linear"]), 0.0) @ left_inverse
    errors = Workload(momentum=0.5, schedule="linear").unit_errors(matrix)
    np.testing.assert_allclose(errors, (rows**2).sum(axis=1), rtol=1e-10)


@pytest.mark.parametrize("measure", ["mean", "max"])
@pytest.mark.parametrize("schedule", ["cosine", "linear", "step"])
@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.01)])
def test_errors_of_spread_steps_stand_for_all(schedule, measure, momentum, decay) -> None:
    """Few of many steps, against the exact errors of all; the matrix has noise that is taken back within few steps."""
    workload = Workload(momentum=momentum, schedule=schedule, weight_decay=decay, measure=measure)
    matrix = BandedSquareRoot(bands=20).matrix(400)
    errors = workload.unit_errors(matrix)
    exact = (errors.max() if measure == "max" else errors.mean()) ** 0.5
    assert workload.unit_error(matrix) == pytest.approx(exact, rel=5e-3)


def test_blocks_of_columns_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, workload = BandedSquareRoot(bands=3).matrix(STEPS), Workload(momentum=0.3, schedule="cosine")
    whole = workload.unit_errors(matrix)
    monkeypatch.setattr(module, "BLOCK", 5)
    np.testing.assert_allclose(workload.unit_errors(matrix), whole, rtol=1e-12)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"momentum": 1.0}, r"'momentum' parameter must be at least 0 and below 1. Got 1.0"),
        ({"schedule": "warm"}, r"'schedule' field must be one of constant, cosine, linear, step. Got 'warm'"),
        ({"measure": "median"}, r"'measure' field must be one of mean, max. Got 'median'"),
    ],
)
def test_wrong_fields_are_named(fields, message) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Workload(**fields)


def test_a_schedule_of_too_many_steps_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="must be 'constant' for more than 20000 steps"):
        Workload(schedule="cosine").unit_errors(BandedSquareRoot(bands=2).matrix(20_001))
