"""Random allocation beside Poisson sampling: the table in the documentation is what the file has."""

import math
from pathlib import Path

import pytest

from benchmarks.allocation import ANSWERS, EPSILONS, SCHEMES, Row, main, measured, table
from benchmarks.answer_files import read

PAGE = Path(__file__).parents[2] / "docs" / "theory" / "allocation.md"


def test_the_page_shows_all_settings() -> None:
    answers = read(ANSWERS, Row)
    assert len(answers) == len(SCHEMES) * len(EPSILONS) == 60
    assert "\n".join(table(answers.values())) in PAGE.read_text(encoding="utf-8")
    verdicts = [row.verdict for row in answers.values()]
    assert "in 56 of the 60" in PAGE.read_text(encoding="utf-8")
    assert (verdicts.count("allocation"), verdicts.count("open")) == (56, 4)


@pytest.mark.parametrize("cell", [(1, 100, 1.0), (10, 100, 8.0)])
def test_a_setting_is_what_the_file_has(cell: tuple[int, int, float]) -> None:
    """Noise from below is the best of a few tries, which a better bound may move by less than a thousandth."""
    known, row = read(ANSWERS, Row)[cell], measured(*cell)
    assert row.noise_lower < row.noise_upper < row.poisson_noise
    assert row.lower <= row.upper < row.poisson_lower <= row.target
    for one, other in zip(known.__dict__.values(), row.__dict__.values(), strict=True):
        assert math.isclose(one, other, rel_tol=1e-3)


def test_verdicts_need_a_proof_of_either_side() -> None:
    row = Row(1, 10, 1.0, 2.0, 0.99, 0.9, 0.98, 1.5, 1.6)
    assert (row.verdict, row.saved) == ("allocation", "20.0 to 25.0")
    assert Row(1, 10, 1.0, 2.0, 0.99, 0.9, 0.995, 1.5, 1.6).verdict == "open"
    assert Row(1, 10, 1.0, 2.0, 0.99, 1.01, 1.02, 2.1, 2.2).verdict == "Poisson"


def test_what_the_file_has_is_not_computed_again(capsys: pytest.CaptureFixture[str]) -> None:
    before = ANSWERS.read_text(encoding="utf-8")
    assert main([]) == main(["--table"]) == 0
    assert ANSWERS.read_text(encoding="utf-8") == before
    assert capsys.readouterr().out.startswith("| k | t |")
