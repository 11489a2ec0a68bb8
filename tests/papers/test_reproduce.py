"""Reproductions of papers: the verdicts, the tables of printed numbers and the files of a figure."""

import csv
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError
from hockeystick.reproduction.curves import judge
from hockeystick.reproduction.papers import Check, Output, available, figures_of, folder_of, reproduce

CHUA, FELDMAN = "chua-2024", "feldman-shenfeld-2025"
FIGURES = {CHUA: [f"figure-{i}" for i in range(1, 8)], FELDMAN: [f"figure-{i}" for i in range(1, 5)]}


def figures(paper: str) -> dict[str, Any]:
    """The paper's figures, whose functions also take a number of points."""
    return dict(figures_of(folder_of(paper)))


class Recorder(Output):
    """An output that keeps its checks."""

    kept: list[Check]

    def checks(self, name: str, checks: Any) -> None:
        self.kept = list(checks)
        super().checks(name, checks)


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_papers_and_their_figures_are_listed() -> None:
    figures = available()
    for paper, names in FIGURES.items():
        assert [name for name in figures[paper] if name.startswith("figure")] == names
        assert figures[paper][-1] == "numbers"


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("relation", "printed", "sides", "holds"),
    [
        ("<", "1.96", {"upper": 1.954}, True),
        ("<", "1.95", {"upper": 1.954}, False),
        ("<", "2", {"upper": 2.0}, False),
        ("<=", "2", {"upper": 2.0}, True),
        (">", "10.994", {"lower": 10.9948}, True),
        (">", "10.995", {"lower": 10.9948}, False),
        (">=", "0.5", {"lower": 0.5}, True),
        (">", "0.5", {"lower": 0.5}, False),
        ("~", "0.244", {"lower": 0.2438, "upper": 0.2442}, True),
        ("~", "0.244", {"lower": 0.2438, "upper": 0.2446}, False),
        ("~", "0.2440", {"lower": 0.2438, "upper": 0.2442}, False),
        ("~", "7.5e-5", {"lower": 7.46e-5, "upper": 7.54e-5}, True),
    ],
)
def test_verdict_follows_from_the_numbers(relation: str, printed: str, sides: dict[str, float], holds: bool) -> None:
    check = judge("x", relation, printed, **sides, why="a known reason")
    assert check.holds is holds
    assert check.verdict.startswith("confirmed" if holds else "not confirmed")
    assert ("a known reason" in check.verdict) is not holds


def test_failed_claim_says_whether_it_was_rounded_or_is_false() -> None:
    assert "rounded the wrong way" in judge("x", ">=", "0.018", lower=0.01795).verdict
    assert "refuted" not in judge("x", ">=", "0.018", lower=0.01795, upper=0.2).verdict
    assert "refuted" in judge("x", ">=", "0.018", lower=0.01795, upper=0.01796).verdict
    assert "refuted" in judge("x", "<", "1.9", upper=1.96, lower=1.95).verdict
    assert "refuted" in judge("x", "~", "1.9", upper=1.97, lower=1.96).verdict


@pytest.mark.parametrize(
    ("relation", "sides"),
    [
        ("<", {"lower": 1.0}),
        (">", {"upper": 1.0}),
        ("~", {"upper": 1.0}),
        ("~", {"lower": 1.0}),
        ("==", {"upper": 1.0}),
    ],
)
def test_claim_without_a_bound_on_its_side_is_refused(relation: str, sides: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError):
        judge("x", relation, "1", **sides)


# --- printed numbers --------------------------------------------------------------------------------------------------


def test_every_printed_number_of_chua_is_confirmed_but_the_documented_ones(tmp_path: Path) -> None:
    output = Recorder(tmp_path, Deadline())
    figures(CHUA)["numbers"](output)
    assert len(output.kept) == len(table(tmp_path / "numbers.csv")) == 38
    assert {(check.what, check.printed) for check in output.kept if not check.holds} == {
        ("eps_P(1e-05), sigma=0.7, T=1000, RDP", 1.64),
        ("delta_S(12), sigma=0.4, T=10000", 7.5e-5),
        ("delta_S(1), sigma=0.8, T=1000", 0.018),
        ("delta_S(4), sigma=0.8, T=1000", 1.6e-4),
        ("delta_S(1), sigma=1, T=1000", 0.004),
    }


def test_statements_about_k_participations_come_out(tmp_path: Path) -> None:
    module = figures(FELDMAN)["numbers"].__globals__
    few, many, many_at_order_two = module["participations_checks"](Output(tmp_path, Deadline()))
    assert few.holds
    assert not many.holds
    assert many_at_order_two.holds
    below_poisson = module["steps_checks"](Output(tmp_path, Deadline()))
    of_all, of_integers = below_poisson[:7], below_poisson[7:]
    assert [check.holds for check in of_all] == [True] * 6 + [False]  # at 13,000 steps
    assert [check.holds for check in of_integers] == [False] + [True] * 3 + [False] * 3  # from 13 to 4,900 steps


def test_printed_decomposition_is_about_the_worse_direction(tmp_path: Path) -> None:
    module = figures(FELDMAN)["numbers"].__globals__
    worse, add_alone, corrected = module["one_step_checks"](Output(tmp_path, Deadline()))
    truth = 0.126936737506  # Phi(-1/2) - e Phi(-3/2)
    assert worse.holds
    assert truth <= worse.ours == pytest.approx(truth, rel=1e-4)
    assert add_alone.printed == pytest.approx(0.000719, rel=1e-2)  # docs/theory: the formula at t=1, rate 1/2, eps=1
    assert add_alone.ours == pytest.approx(truth, rel=1e-9)
    assert "refuted" in add_alone.verdict
    assert corrected.holds


def test_printed_decomposition_is_false_for_randomised_response(tmp_path: Path) -> None:
    """By hand: all four outputs, X = 10 with probability 1/11; the add direction is the worse one."""
    module = figures(FELDMAN)["numbers"].__globals__
    (remove, add), (printed_remove, printed_add) = module["randomised_response"](10, 2, Fraction(1, 2), 6)
    assert remove == Fraction(1, 121) * (10 - 6)
    assert add == Fraction(100, 121) * (1 - Fraction(6, 10))
    assert printed_remove == Fraction(1, 121) * (Fraction(11, 2) ** 2 - Fraction(19, 4)) / Fraction(3, 4)
    assert printed_add == 0  # 4.75 (1/2 + 1/20)^2 > 1
    assert add > printed_remove
    at_small_rate = module["randomised_response"](10, 2, Fraction(1, 1000), 6)[1]
    assert remove < max(at_small_rate) < Fraction(34, 1000)
    refuted, gaussian = module["worse_direction_checks"](Output(tmp_path, Deadline()))
    assert "refuted" in refuted.verdict
    assert gaussian.holds
    assert gaussian.ours < 0.999


# --- figures ----------------------------------------------------------------------------------------------------------


def check_sides(rows: list[dict[str, str]], whose: str) -> None:
    """On every row, every lower bound of a column starting with ``whose`` is at most every such upper bound."""
    assert rows
    for row in rows:
        values = {name: float(text) for name, text in row.items() if name.startswith(whose) and text}
        lower = [value for name, value in values.items() if name.endswith("_lower")]
        upper = [value for name, value in values.items() if name.endswith("_upper")]
        assert lower
        assert upper
        assert max(lower) <= min(upper)


def test_reproduce_writes_a_figure_and_its_table(tmp_path: Path) -> None:
    (part,) = reproduce(CHUA, "figure-2", tmp_path, Deadline())
    assert (part.paper, part.part, set(part.files)) == (CHUA, "figure-2", {"figure-2.png", "figure-2.csv"})
    assert (tmp_path / CHUA / "figure-2.png").read_bytes().startswith(b"\x89PNG")
    rows = table(tmp_path / CHUA / "figure-2.csv")
    check_sides(rows, "poisson")
    above = [float(row["deterministic_upper"]) > float(row["poisson_direct_upper"]) for row in rows]
    assert above[0]
    assert above == sorted(above, reverse=True)  # the curves cross once
    assert not above[-1]


@pytest.mark.parametrize(("paper", "name"), [(paper, name) for paper, names in FIGURES.items() for name in names])
def test_every_figure_keeps_its_sides(paper: str, name: str, tmp_path: Path) -> None:
    output = Output(tmp_path, Deadline())
    figures(paper)[name](output, points=2)
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    rows = table(tmp_path / f"{name}.csv")
    if paper == CHUA:
        check_sides(rows, "poisson")
        for row in rows:
            assert float(row.get("shuffle_thresholds_lower", 0.0)) <= float(row["deterministic_upper"])
    else:
        shown = [
            {f"allocation_{key}": text for key, text in row.items() if not key.startswith(("poisson", "shuffle"))}
            for row in rows
        ]
        check_sides(shown, "allocation")
