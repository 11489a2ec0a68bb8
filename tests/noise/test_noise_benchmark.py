"""The noise benchmark runs, on a few parameters. No times are asserted."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--size", "50", "--bands", "3", "--steps", "4", "--repeats", "1"]


@pytest.fixture(autouse=True)
def _root_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.parametrize(
    ("name", "rows"),
    [("hockeystick", 3), ("hockeystick, exact", 3), ("hockeystick, filter only", 3), ("numpy, white noise", 0)],
)
def test_a_contestant_is_measured(name, rows):
    from benchmarks.noise import measure

    cost = measure(name, bands=3, size=50, steps=4, repeats=1)
    assert cost["memory"] == pytest.approx(rows * 50 * 4 / 1e6)
    assert cost["rate"] >= cost["slowest"] > 0.0


def test_one_contestant_says_what_it_found_as_json(capsys, monkeypatch):
    from benchmarks import noise

    monkeypatch.setattr(noise.os, "sched_setaffinity", lambda *_: None, raising=False)
    assert noise.main(["--one", "hockeystick", *SMALL]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"rate", "slowest", "memory", "peak"}


def test_all_are_in_the_table(capsys, monkeypatch):
    """The last contestant is not installed; the others run in processes of their own."""
    from benchmarks import noise

    kept = {name: noise.CONTESTANTS[name] for name in ("hockeystick",)}
    monkeypatch.setattr(noise, "CONTESTANTS", kept | {"missing": ("no_such_package", noise.ours)})
    assert noise.main(SMALL) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "failed" not in "".join(lines)
    assert lines[-2].startswith("hockeystick ")
    assert lines[-1].split() == ["missing", "not", "installed"]
