"""The quick version of every paper runs from end to end, and again without computing anything."""

import csv
import time
from pathlib import Path

import pytest

from hockeystick.deadline import Deadline
from hockeystick.reproduction.papers import available, paper_folders, reproduce

SECONDS = 1200.0
"""Processor time of all papers together, after compilation."""
SPENT: dict[str, float] = {}
"""By the papers so far."""


@pytest.mark.weekly
@pytest.mark.parametrize("paper", [folder.name for folder in paper_folders()])
def test_quick_version(paper: str, tmp_path: Path) -> None:
    from hockeystick.accountants.registry import warm_up

    warm_up(None)
    started = time.process_time()
    parts = list(reproduce(paper, None, tmp_path, Deadline(), quick=True))
    SPENT[paper] = time.process_time() - started
    assert sum(SPENT.values()) < SECONDS, SPENT
    folder = tmp_path / paper / "quick"
    assert [part.part for part in parts] == available()[paper]
    with (folder / "numbers.csv").open() as file:
        assert len(list(csv.DictReader(file))) > 5
    assert all(path.stat().st_size > 10_000 for path in folder.glob("*.png"))
    again = list(reproduce(paper, None, tmp_path, Deadline(), quick=True))
    assert all(part.kept for part in again)
