"""The table of regimes: its file can be resumed, and the page counts what the file has."""

from dataclasses import replace

from benchmarks.answer_files import append, read
from benchmarks.regime_noise import NOISE
from benchmarks.regimes import Row, main, measured, page

CELL = next(iter(NOISE))
FOUND = Row(*CELL, 60.0, NOISE[CELL], 0.25, 0.251, "comparison", "moment_majorant", 1.0)


def test_a_cell_has_both_sides_near_its_epsilon():
    found = measured(CELL, NOISE[CELL], 60.0)
    assert 0.0 < found.lower <= found.upper
    assert found.gap < 0.01
    assert abs(found.upper / CELL[4] - 1.0) < 0.1


def test_what_the_file_has_is_not_computed_again(tmp_path, capsys):
    file = tmp_path / "regimes.csv"
    append(file, FOUND)
    before = file.read_text()
    strategy, bands, bins, epochs, near = CELL
    name = f"{strategy} p={bands} b={bins} k={epochs} epsilon={near:g}"
    assert main(["--only", name, "--answers", str(file)]) == 0
    assert main(["--only", name, "--answers", str(file), "--work", "300", "--above", "0.05"]) == 0
    assert file.read_text() == before
    assert capsys.readouterr().out == ""
    assert read(file, Row) == {FOUND.cell: FOUND}


def test_no_cell_of_that_name_is_an_error(tmp_path, capsys):
    assert main(["--only", "no such cell", "--answers", str(tmp_path / "regimes.csv")]) == 2
    assert "no such cell" in capsys.readouterr().err


def test_the_page_shows_gaps_and_counts_them():
    wide = Row(*list(NOISE)[1], 60.0, 1.0, 0.5, 0.53, "bin_filter", "hidden_chain", 1.0)
    more = Row(*list(NOISE)[1], 300.0, 1.0, 0.5, 0.504, "bin_filter", "hidden_chain", 1.0)
    written = page([wide, more, FOUND])
    assert "0.40 % moment_majorant / comparison | 6.00 % hidden_chain / bin_filter |" in written
    assert "Of these 2 cells 1 are within 1 percent, 1 within 2 and 1 within 5. The worst is 6.0 percent." in written
    assert written.index("60 standard seconds of work (the usual)") < written.index("300 standard seconds")
    drawn = replace(more, work=60.0, upper=0.501, kind="sampled")
    assert page([drawn, wide, more, FOUND]).startswith(written[:-1])
    assert "## Monte Carlo, 60 seconds, failure 1e-09" in page([drawn, wide, FOUND])
    assert "Of these 1 cells 1 are within 1 percent" in page([drawn, wide, FOUND])
    closest = written[written.index("## The closest of each cell") :]
    assert "Of these 2 cells 2 are within 1 percent, 2 within 2 and 2 within 5. The worst is 0.8 percent." in closest
    assert "closest" not in page([wide, FOUND])
