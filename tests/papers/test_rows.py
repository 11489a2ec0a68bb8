"""Each paper's page has one row for each numbered element of its paper, in its order, and names what shows it."""

import re
from pathlib import Path

import pytest

from hockeystick.reproduction.papers import available

ROOT = Path(__file__).resolve().parents[2]
PAPERS = ROOT / "papers"
VERDICTS = {"reproduced", "proved", "corrected", "quoted", "refuted", "open"}


def labels(kind: str, *numbers: str) -> list[str]:
    """The kind, then each of the numbers; ``1-4`` stands for 1, 2, 3 and 4."""
    named = []
    for number in numbers:
        first, _, last = number.partition("-")
        named += [f"{kind} {each}" for each in (range(int(first), int(last) + 1) if last else (number,))]
    return named


ELEMENTS = {
    "choquette-choo-2024": [
        "Theorem 3.1",
        "Observation 3.2",
        "Theorem 4.3",
        "Lemma 5.1",
        "Theorem 5.2",
        *labels("Lemma", "B.1", "B.2"),
        "Corollary B.3",
        *labels("Lemma", "B.4", "B.5"),
        "Corollary B.6",
        "Lemma C.1",
        "Theorem C.2",
        *labels("Lemma", "C.3", "C.4", "C.5"),
        "Theorem D.1",
        *labels("Algorithm", "1-4"),
        *labels("Figure", "1-8"),
    ],
    "chua-2024": [
        "Proposition 3.1",
        "Conjecture 3.2",
        *labels("Theorem", "4.1", "4.2"),
        "Conjecture 4.3",
        *labels("Lemma", "B.1", "B.2"),
        *labels("Proposition", "C.1", "C.2", "C.3"),
        *labels("Algorithm", "1-4"),
        *labels("Figure", "1-7"),
    ],
    "dong-ganesh-2026": [
        *labels("Theorem", "5.1", "6.1"),
        "Conjecture 6.2",
        "Theorem A.1",
        *labels("Lemma", "B.1", "D.1"),
        "Corollary D.2",
        *labels("Algorithm", "1-5"),
        *labels("Figure", "1-5"),
    ],
    "feldman-shenfeld-2025": [
        *labels("Lemma", "2.4", "2.8", "2.14", "3.1"),
        "Theorem 3.2",
        *labels("Lemma", "3.4", "3.6", "3.7", "3.8", "3.9"),
        "Remark 3.10",
        "Lemma 3.11",
        "Corollary 3.12",
        "Lemma 3.13",
        "Corollary 3.14",
        "Theorem 4.1",
        *labels("Lemma", "4.2", "4.3", "4.4"),
        "Corollary 4.5",
        "Theorem 4.6",
        "Corollary 4.7",
        *labels("Claim", "A.1", "A.2", "A.3"),
        "Remark A.4",
        "Lemma B.1",
        *labels("Claim", "B.2", "C.1"),
        "Lemma D.1",
        *labels("Figure", "1-4"),
    ],
    "schuchardt-kalinin-2026": [
        *labels("Lemma", "2.2", "2.8"),
        "Theorem 3.1",
        *labels("Lemma", "3.2", "3.3", "3.4", "4.1", "4.2", "4.3"),
        "Corollary 4.4",
        "Lemma 4.5",
        "Theorem 4.6",
        "Lemma 4.7",
        *labels("Theorem", "4.8", "D.1"),
        "Lemma D.2",
        "Theorem D.3",
        "Corollary D.4",
        "Remark D.5",
        *labels("Algorithm", "1-4"),
        *labels("Figure", "1-6"),
    ],
}
"""What each paper numbers, but for definitions that claim nothing. None of the papers has a table."""
KINDS = "Theorem|Lemma|Corollary|Proposition|Conjecture|Observation|Claim|Remark|Algorithm|Figure"
NUMBERED = re.compile(rf"(?:{KINDS}) \S+")


def rows(paper: str) -> list[list[str]]:
    """The cells of the rows whose first cell is a numbered element, and nothing else."""
    text = (PAPERS / paper / "README.md").read_text()
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| ")]
    stripped = [[cell.strip() for cell in row] for row in cells]
    return [row for row in stripped if NUMBERED.fullmatch(row[0])]


def test_the_list_has_every_paper() -> None:
    assert set(ELEMENTS) == set(available())


@pytest.mark.parametrize("paper", ELEMENTS)
def test_every_numbered_element_has_one_row(paper: str) -> None:
    assert [row[0] for row in rows(paper)] == ELEMENTS[paper]


@pytest.mark.parametrize("paper", ELEMENTS)
def test_every_row_has_a_verdict_and_names_what_shows_it(paper: str) -> None:
    """A part of the command, a test or a page; all of them exist."""
    for element, verdict, how, shown in rows(paper):
        assert verdict in VERDICTS, element
        assert how, element
        parts, links = re.findall(r"`([^`]+)`", shown), re.findall(r"\]\(([^)]+)\)", shown)
        assert parts or links, element
        for part in parts:
            assert part in available()[paper] or (part.startswith("tests/") and (ROOT / part).is_file()), part
        for link in links:
            assert (PAPERS / paper / link).resolve().is_file(), link


@pytest.mark.parametrize("paper", ELEMENTS)
def test_what_is_proved_links_its_proof_and_what_is_computed_its_part(paper: str) -> None:
    """A proof is on a page of the theory; a number comes from a part or a test."""
    for element, verdict, _, shown in rows(paper):
        if verdict == "proved":
            assert "docs/theory" in shown, element
        if verdict == "reproduced":
            assert "`" in shown, element


def test_the_page_of_all_papers_counts_the_rows() -> None:
    text = (PAPERS / "README.md").read_text()
    counted = dict(re.findall(r"^\| \[([^\]]+)\]\([^)]+\)[^|]*\| (\d+) \|", text, flags=re.MULTILINE))
    assert counted == {paper: str(len(elements)) for paper, elements in ELEMENTS.items()}
