"""The benchmarks of mixtures and of subset sampling, on their smallest cases."""

import pytest

from benchmarks import mixtures, subsets


def test_the_table_has_a_line_for_each_method(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subsets, "UPPER", ("split_noise", "generalized_mmcc"))
    monkeypatch.setattr(subsets, "asked", subsets.answer)  # here, without processes of their own
    assert subsets.main(["--only", "trees of 8"]) == 0
    head, rule, below, above = capsys.readouterr().out.splitlines()  # generalized_mmcc does not apply
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in (head, rule, below, above)]
    assert {len(row) for row in cells} == {7}
    assert cells[2][1] == "linear_statistic"
    assert cells[3][1] == "split_noise"
    assert 0.0 < float(cells[2][2]) < float(cells[3][3]) < 1.2 * float(cells[2][2])


def test_no_case_no_table() -> None:
    assert subsets.main(["--only", "no such case"]) == 2


def test_mixtures_are_bounded_from_both_sides() -> None:
    epsilons = mixtures.ours(10, 3, 1e-6)
    for lower, upper in (epsilons["one"], epsilons["all"]):
        assert 0.0 < lower <= upper < 1.01 * lower
    assert epsilons["one"][1] < epsilons["all"][0]
