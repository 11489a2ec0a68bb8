"""Planned work against what was measured, and the command that measures it."""

import math

import pytest

from benchmarks.answer_files import read
from benchmarks.work import ANSWERS, METHODS, RUNS, Row, main, planned
from hockeystick.types import Side

MEASURED = read(ANSWERS, Row)
CELLS = "moment_majorant_cells"
ANSWERED = [run for run in RUNS if not any(math.isnan(MEASURED[run, CELLS, str(side)].epsilon) for side in Side)]
USERS = "users in 4 bins"
"""Their chain reads a profile at many epsilons, which the work does not count."""


@pytest.mark.parametrize("run", ANSWERED)
def test_work_on_cells_is_within_a_factor_of_two_of_what_was_measured(run: str) -> None:
    """The mean of both sides. The other method takes from a third of what is planned to five times as much: what is
    quick, light or heavy is decided by its cost, so it is not changed for the sake of plans."""
    seconds = sum(MEASURED[run, CELLS, str(side)].seconds for side in Side) / len(Side)
    assert planned(run, CELLS) <= 2.0 * seconds
    assert (planned(run, CELLS) < 0.5 * seconds) == (run == USERS)


def test_what_is_measured_is_kept(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.work.METHODS", METHODS[:1])
    file = tmp_path / "work.csv"
    assert main(["--only", "6 bins", "--answers", str(file)]) == 0
    found = read(file, Row)
    assert set(found) == {("6 bins, twice", METHODS[0], str(side)) for side in Side}
    lower, upper = (found["6 bins, twice", METHODS[0], side].epsilon for side in ("lower", "upper"))
    assert 0.0 < lower <= upper
    assert capsys.readouterr().out.count("planned") == 2
    assert main(["--only", "6 bins", "--answers", str(file)]) == 0
    assert capsys.readouterr().out == ""
