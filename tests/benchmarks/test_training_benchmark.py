"""The benchmark of training runs, on a few parameters. No times are asserted."""

import json
from pathlib import Path

import pytest

pytest.importorskip("opacus", reason="needs torch and opacus")

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--size", "50", "--bands", "3", "--steps", "4", "--repeats", "1"]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def _root_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


NAMES = ["hockeystick, loop", "hockeystick, optimizer", "hockeystick, Noise", "Opacus, white, loop"]


@pytest.mark.parametrize("name", NAMES)
def test_a_contestant_is_measured(name):
    from benchmarks.training import measure_noise

    cost = measure_noise(name, bands=3, size=50, steps=4, repeats=1)
    assert cost["memory"] >= (0.0 if name.startswith("Opacus") else 2 * 50 * 4 / 1e6)
    assert cost["wall"] > 0.0
    assert cost["cpu"] > 0.0


def test_training_steps_take_turns(capsys, monkeypatch):
    from benchmarks import training

    monkeypatch.setattr(training.os, "sched_setaffinity", lambda *_: None, raising=False)
    monkeypatch.setattr(training, "BATCH", 2)
    assert training.main(["--one", "steps", *SMALL]) == 0
    table = json.loads(capsys.readouterr().out)
    assert set(table) == set(training.STEPS)
    assert table["Opacus"]["ratio"] == table["Opacus, ghost"]["ratio"] == 1.0
    assert table["hockeystick, bands"]["memory"] >= 2 * 26_010 * 4 / 1e6


def test_all_are_in_the_table(capsys, monkeypatch):
    """The last contestant is not installed, and nothing runs in this process."""
    from benchmarks import training

    monkeypatch.setattr(training, "NOISES", {"missing": ("no_such.package", training.our_noise)})
    cost = {"wall": 2.0, "cpu": 1.0, "ratio": 1.5, "memory": 0.5}
    monkeypatch.setattr(training, "_elsewhere", lambda name, options: {"ours": cost})
    assert training.main(SMALL) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].split() == ["ours", "2.00", "1.00", "1.500", "0.5"]
    assert lines[-1].split() == ["missing", "not", "installed"]
