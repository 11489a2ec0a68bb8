"""Sketches of strategy matrices, against the matrices."""

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.recommendation.candidates import BANDED, BANDED_INVERSES, Candidate
from hockeystick.recommendation.sketches import Sketch, gram_rows, sketch
from hockeystick.recommendation.workload import Workload

STRATEGIES = [
    hs.Identity(),
    hs.BandedSquareRoot(bands=1),
    hs.BandedSquareRoot(bands=5),
    hs.BandedInverseFractionalRoot(bands=1, exponent=0.5),
    hs.BandedInverseFractionalRoot(bands=6, exponent=0.3),
    hs.BandedInverseFractionalRoot(bands=40, exponent=0.9),
]
WORKLOADS = [Workload(), Workload(momentum=0.9, weight_decay=0.01), Workload(momentum=0.5, schedule="cosine")]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_a_sketch_is_the_matrix(strategy) -> None:
    mechanism = hs.Mechanism(strategy=strategy, sampler=hs.BallsInBins(bins=15, epochs=3))
    matrix, drawn = mechanism.matrix, sketch(mechanism)
    assert isinstance(drawn, Sketch)
    np.testing.assert_allclose(drawn.materialize(), matrix.materialize(), atol=1e-9)
    np.testing.assert_allclose(drawn.bin_gram(15), matrix.bin_gram(15), rtol=1e-9)
    assert drawn.max_column_norm == pytest.approx(matrix.max_column_norm, rel=1e-9)
    for workload in WORKLOADS:
        np.testing.assert_allclose(workload.unit_errors(drawn), workload.unit_errors(matrix), rtol=1e-8)


@pytest.mark.parametrize("strategy", [hs.BandedSquareRoot(bands=5), hs.ColumnNormalizedBanded(bands=3)], ids=str)
def test_rows_of_a_gram_matrix_are_its_rows(strategy) -> None:
    mechanism = hs.Mechanism(strategy=strategy, sampler=hs.BallsInBins(bins=32, epochs=3))
    rows, whole = gram_rows(sketch(mechanism), 32), mechanism.matrix.bin_gram(32)
    np.testing.assert_allclose(rows, whole[:: 32 // len(rows)], atol=1e-9)
    assert rows.max() == pytest.approx(whole.max(), rel=1e-9)


def test_a_strategy_without_a_closed_form_is_not_sketched() -> None:
    mechanism = hs.Mechanism(strategy=hs.BandedToeplitz(bands=3), sampler=hs.BallsInBins(bins=15, epochs=3))
    assert sketch(mechanism) is mechanism.matrix


@pytest.mark.parametrize("kind", [strategy.model_fields["kind"].default for strategy in BANDED + BANDED_INVERSES])
@pytest.mark.parametrize("bands", [1, 2, 9, 80])
def test_rows_of_noise_are_those_that_the_solver_keeps(kind: str, bands: int) -> None:
    exponent = {"exponent": 0.4} if kind == "banded_inverse_fractional_root" else {}
    plan = hs.Plan.parse(
        {
            "data": {"num_examples": 2000, "batch_size": 100, "epochs": 4},
            "strategy": {"kind": kind, "bands": bands, **exponent},
            "sampler": {"kind": "balls_in_bins"},
        }
    )
    solver = hs.noise.streaming_solver(plan.mechanism().matrix, size=1, dtype=np.float64)
    assert Candidate(plan).rows() == sum(rows for rows, _ in solver.layout.values())
