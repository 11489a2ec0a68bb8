"""The table of gaps: its file can be resumed, and the page says what the file has."""

from math import inf

import pytest

from benchmarks import gaps
from benchmarks.answer_files import append, read
from benchmarks.gaps import Answer, cells, main, measured, measured_near, page, start_of

CELL = ("allocation 100 x 10", "I", 8.0)
FOUND = Answer(*CELL, "deterministic", 0.5, 7.5, 8.0, "direct", "direct", 1.0)


def test_a_cell_has_both_sides_and_meets_its_epsilon():
    answer = measured(CELL)
    assert 0.0 < answer.lower <= answer.upper <= 8.0
    assert answer.upper > 7.9
    assert answer.upper_method == "direct"


def test_a_noise_multiplier_near_enough_takes_a_few_certificates():
    cell = ("shuffle 100 x 10", "I", 2.0)
    answer = measured_near(cell, 20.0)
    assert 1.96 <= answer.upper <= 2.04
    assert answer.lower > 0.0
    known = {answer.cell: answer}
    assert start_of(known, ("shuffle 100 x 10", "tree", 2.0)) is None
    start = start_of(known, ("shuffle 100 x 10", "I", 1.0))
    assert start is not None
    assert start > answer.noise_multiplier


def test_a_row_moves_as_independent_noise_does_where_that_is_known():
    row = ("cyclic Poisson, 16 groups", "tree")
    noises = {("I", 2.0): 3.0, ("I", 1.0): 6.0, ("tree", 2.0): 10.0}
    answers = [Answer(row[0], *at, "deterministic", noise, 0.0, 1.0, "", "", 0.0) for at, noise in noises.items()]
    known = {answer.cell: answer for answer in answers}
    assert start_of(known, (*row, 1.0)) == 20.0
    assert start_of(known, (*row, 2.0)) == 10.0
    without = {cell: answer for cell, answer in known.items() if cell[1] == "tree"}
    assert start_of(without, (*row, 1.0)) == pytest.approx(10.0 * 2.0 ** (1 / 1.2), rel=1e-3)


def test_a_combination_without_analysis_is_said_to_have_none():
    answer = measured(("shuffle 100 x 10", "BSR 4", 2.0))
    assert (answer.noise_multiplier, answer.upper, answer.shown) == (0.0, inf, "none")


def test_the_file_gives_back_what_was_appended_and_the_later_answer_counts(tmp_path):
    file = tmp_path / "gaps.csv"
    append(file, FOUND)
    append(file, Answer(*CELL, "deterministic", 0.5, 7.9, 8.0, "a, b", "direct", 2.0))
    append(file, Answer(*CELL, "sampled", 0.5, 7.95, 8.0, "monte_carlo", "direct", 3.0))
    known = read(file, Answer)
    assert {answer.kind: (answer.lower, answer.lower_method) for answer in known.values()} == {
        "deterministic": (7.9, "a, b"),
        "sampled": (7.95, "monte_carlo"),
    }


def test_what_the_file_has_is_not_computed_again(tmp_path, capsys):
    file = tmp_path / "gaps.csv"
    append(file, FOUND)
    before = file.read_text()
    assert main(["--only", "allocation 100 x 10, I, epsilon=8", "--answers", str(file)]) == 0
    assert file.read_text() == before
    assert capsys.readouterr().out == ""


def test_no_cell_of_that_name_is_an_error(tmp_path, capsys):
    assert main(["--only", "no such sampler", "--answers", str(tmp_path / "gaps.csv")]) == 2
    assert "no such sampler" in capsys.readouterr().err


@pytest.mark.parametrize(("lower", "shown"), [(7.5, "6.67"), (0.0, "one side")])
def test_the_page_shows_the_gap(lower, shown):
    answer = Answer(*CELL, "deterministic", 0.5, lower, 8.0, "direct", "direct", 1.0)
    assert f"| I |  |  |  |  |  | {shown} |" in page([answer])


def test_a_sampled_gap_stands_after_the_deterministic_one():
    sampled = Answer(*CELL, "sampled", 0.5, 7.92, 8.0, "monte_carlo", "direct", 1.0)
    assert "| 6.67 / 1.01 |" in page([FOUND, sampled])
    assert "within 0.1 percent without sampling" in page([FOUND])


def test_every_combination_is_a_cell():
    assert len(cells("")) == len(gaps.SAMPLERS) * len(gaps.STRATEGIES) * len(gaps.EPSILONS)
