"""The table of regimes: its file can be resumed, and the page counts what the file has."""

from dataclasses import replace

from benchmarks.answer_files import append, read
from benchmarks.regime_noise import NOISE
from benchmarks.regimes import Row, main, measured, measured_side, page

CELL = next(iter(NOISE))
FOUND = Row(*CELL, 60.0, NOISE[CELL], 0.25, 0.251, "comparison", "moment_majorant", 1.0)


def test_a_cell_has_both_sides_near_its_epsilon():
    row = measured(CELL, NOISE[CELL], 60.0)
    assert 0.0 < row.lower <= row.upper
    assert row.gap < 0.01
    assert abs(row.upper / CELL[4] - 1.0) < 0.1


def test_one_side_by_one_method_counts_beside_what_others_found():
    wide = replace(FOUND, lower=0.1, upper=1.0, method_lower="none", method_upper="gaussian")
    upper, lower = (measured_side(CELL, NOISE[CELL], 60.0, side, "moment_majorant") for side in ("upper", "lower"))
    assert lower.lower <= upper.upper < wide.upper
    written = page([wide, upper, lower])
    assert f"| {CELL[4]:g} | upper | moment_majorant | {upper.upper:.6g} | 60 |" in written
    assert "Of these 1 cells 0 are within 1 percent" in written
    closest = written[written.index("## The closest of each cell") :]
    assert "Of these 1 cells 1 are within 1 percent" in closest
    assert "Of these 2 cells 0 are within 1 percent" in page([wide, replace(upper, noise_multiplier=9.0), lower])


def test_a_method_that_refuses_a_cell_leaves_it_out(tmp_path, capsys):
    file = tmp_path / "regimes.csv"
    name = "BSR p=64 b=300 k=1 epsilon=1"
    assert main(["--only", name, "--answers", str(file), "--upper", "moving_average"]) == 0
    said = capsys.readouterr().err
    assert said.startswith(f"{name}: ")
    assert "at most" in said
    assert not file.exists()


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
    wide = Row(*list(NOISE)[1], 60.0, 1.0, 0.5, 0.53, "bin_filter", "moving_average", 1.0)
    more = Row(*list(NOISE)[1], 300.0, 1.0, 0.5, 0.504, "bin_filter", "moving_average", 1.0)
    written = page([wide, more, FOUND])
    assert "0.40 % moment_majorant / comparison | 6.00 % moving_average / bin_filter |" in written
    assert "Of these 2 cells 1 are within 1 percent, 1 within 2 and 1 within 5. The worst is 6.0 percent." in written
    assert written.index("60 standard seconds of work (the usual)") < written.index("300 standard seconds")
    drawn = replace(more, work=60.0, upper=0.501, kind="sampled")
    assert page([drawn, wide, more, FOUND]).startswith(written[:-1])
    assert "## Monte Carlo, 60 seconds, failure 1e-09" in page([drawn, wide, FOUND])
    assert "Of these 1 cells 1 are within 1 percent" in page([drawn, wide, FOUND])
    closest = written[written.index("## The closest of each cell") :]
    assert "Of these 2 cells 2 are within 1 percent, 2 within 2 and 2 within 5. The worst is 0.8 percent." in closest
    assert "closest" not in page([wide, FOUND])
