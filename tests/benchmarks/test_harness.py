"""The benchmark harness: its registry, and one quick case through the real process. No times are asserted."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _root_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def test_every_workload_has_hockeystick_first_and_a_question() -> None:
    from benchmarks.runner import contestants_for, select
    from benchmarks.workloads import WORKLOADS

    for workload in WORKLOADS.values():
        assert contestants_for(workload)[0].name == "hockeystick"
        if workload.asks == "epsilon":
            assert 0.0 < workload.delta < 1.0
        if workload.asks == "delta":
            assert workload.epsilon > 0.0
    assert len(select("")) == len(WORKLOADS) - 1
    assert [workload.name for workload in select("10 of 1000 ")] == ["allocation sigma=1 10 of 1000 delta=1e-6"]


def test_every_contestant_has_its_module() -> None:
    from benchmarks.contestants import CONTESTANTS

    for contestant in CONTESTANTS.values():
        assert (ROOT / "benchmarks" / "answers" / f"{contestant.module}.py").is_file()


def test_a_quick_case_runs_in_its_own_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.__main__ import main

    file = tmp_path / "results.json"
    arguments = ["--only", "quick", "--contestant", "hockeystick", "--repeats", "1", "--json", str(file)]
    assert main(arguments) == 0
    results = json.loads(file.read_text())["results"]
    assert [result["contestant"] for result in results] == ["hockeystick", "hockeystick bounds"]
    for result in results:
        assert result["status"] == "ok"
        assert 0.0 < result["lower"] <= result["upper"] < 10.0
        assert result["peak_mb"] >= result["baseline_mb"] > 0.0
    assert max(result["lower"] for result in results) <= min(result["upper"] for result in results)
    assert "quick: poisson" in capsys.readouterr().out


def test_missing_peers_and_timeouts_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import runner
    from benchmarks.contestants import Contestant
    from benchmarks.workloads import WORKLOADS

    quick = next(iter(WORKLOADS.values()))
    absent = Contestant(name="absent", package="no_such_package", module="absent", kinds=("poisson",))
    assert runner.run(quick, absent, repeats=1, timeout=5.0).status == "not installed"
    ours = runner.contestants_for(quick)[0]
    assert runner.run(quick, ours, repeats=1, timeout=0.01).status == "timeout after 0.01 s"


def test_contradictions_are_found() -> None:
    from benchmarks.runner import Result
    from benchmarks.table import contradictions, table

    ours = Result(
        workload="w", asks="epsilon", contestant="hockeystick", status="ok", lower=1.0, upper=1.1, seconds=0.1
    )
    low = Result(workload="w", asks="epsilon", contestant="dp-accounting RDP", status="ok", upper=0.9, seconds=0.2)
    high = Result(workload="w", asks="epsilon", contestant="prv-accountant", status="ok", lower=1.2, upper=1.3)
    assert len(contradictions([ours, low, high])) == 2
    assert contradictions([ours]) == []
    assert "0.8182" in table([ours, low, high])
