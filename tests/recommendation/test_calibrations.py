"""Calibrations side by side: the same answer as one after the other, and what a file of results already has."""

from pathlib import Path

import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.execution import executor
from hockeystick.recommendation.calibrations import calibrations
from hockeystick.recommendation.candidates import every
from hockeystick.recommendation.search import of_plan

PLAN = hs.Plan.parse(
    {
        "data": {"num_examples": 2000, "batch_size": 100, "epochs": 10},
        "sampler": {"kind": "deterministic"},
        "target": {"epsilon": 8.0, "delta": 1e-5},
    }
)
LIMITS = hs.Limits(samplers=("deterministic",))


def certified(recommendation: hs.Recommendation) -> list[tuple[str, float]]:
    """The choices with a whole calibration; the quick one that comes first is rough."""
    return [
        (choice.candidate.name, choice.noise_multiplier)
        for choice in recommendation.choices
        if choice.certified and not choice.rough
    ]


def test_the_number_of_workers_has_no_influence_on_the_answer(tmp_path: Path) -> None:
    """Free workers also calibrate what turns out not to be asked for: the file has it, the answer does not."""
    alone = hs.recommend(PLAN, limits=LIMITS, budget=600.0, calibrations=3)
    with executor(workers=2) as spread:
        answers: list[hs.Recommendation] = []
        together = hs.recommend(
            PLAN,
            limits=LIMITS,
            budget=600.0,
            calibrations=3,
            executor=spread,
            results=tmp_path / "results.jsonl",
            on_answer=answers.append,
        )
    assert certified(together) == certified(alone)
    assert len(certified(alone)) == 3
    assert [len(certified(answer)) for answer in answers if answer.reasons] == [0, 0, 1, 2, 3]
    written = (tmp_path / "results.jsonl").read_text().splitlines()[1:]
    assert {name for name, _ in certified(alone)} <= {line.split('"candidate":"')[1].split('"')[0] for line in written}


def test_other_limits_use_what_the_file_has(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    few, more = (of_plan(PLAN, limits=hs.Limits(samplers=some)) for some in (("deterministic",), ("poisson",)))
    candidate = next(every(few.plan, few.limits))
    with calibrations(few, results=path) as calibrating:
        first = calibrating.certificate(candidate)
    before = path.read_bytes()
    with calibrations(more, results=path) as calibrating:
        assert not calibrating.begun(candidate)
        assert calibrating.certificate(candidate) == first
    assert path.read_bytes() == before


def test_no_calibration_begins_after_the_deadline() -> None:
    recommendation = hs.recommend(PLAN, limits=LIMITS, budget=1e-9)
    assert not recommendation.best.certified


def test_an_error_in_a_worker_is_that_of_the_calibration() -> None:
    asked = of_plan(PLAN, limits=LIMITS)
    candidate = next(every(asked.plan, asked.limits))
    with (
        executor(workers=2) as spread,
        calibrations(asked, delta=2.0, spread=spread) as calibrating,
        pytest.raises(InvalidInputError, match="delta"),
    ):
        calibrating.certificate(candidate)
