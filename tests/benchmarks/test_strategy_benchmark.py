"""The benchmark of optimisers: its cases, its yardstick and one real process. No times are asserted."""

from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _root_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def test_every_case_is_a_strategy_with_a_matrix() -> None:
    from benchmarks.strategies import CASES
    from hockeystick.strategies import STRATEGIES

    for case in CASES.values():
        STRATEGIES[str(case.strategy["kind"])].parse(dict(case.strategy)).check(case.steps)


@pytest.mark.parametrize("min_sep", [None, 2, 3])
def test_the_value_of_a_column_and_of_its_matrix(min_sep: int | None) -> None:
    from benchmarks.strategies import value

    column = np.array([1.0, 0.6, 0.3, 0.0, 0.0, 0.0])
    matrix = np.array([[column[t - i] if t >= i else 0.0 for i in range(6)] for t in range(6)])
    error = ((np.tri(6) @ np.linalg.inv(matrix)) ** 2).sum() / 6
    total = matrix[:, ::min_sep].sum(axis=1) if min_sep else column
    assert value(column, min_sep) == pytest.approx(error * (total @ total), rel=1e-12)
    if min_sep is None:
        assert value(matrix, None) == pytest.approx(value(column, None), rel=1e-12)


def test_a_case_runs_in_its_own_process(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.strategies import main

    assert main(["--only", "dense n=256", "--contestant", "hockeystick"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[2:4] == ["hockeystick", "6.372668"]


def test_a_missing_peer_a_timeout_and_an_unknown_case_are_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks import strategies

    monkeypatch.setattr(strategies, "find_spec", lambda package: None)
    assert strategies.line("dense n=256", strategies.PEER, 1, 5.0).endswith("not installed")
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(ROOT))
    assert strategies.line("dense n=256", strategies.OURS, 1, 0.01).endswith("timeout after 0.01 s")
    assert strategies.main(["--only", "nothing"]) == 2
    assert "'nothing'" in capsys.readouterr().err
