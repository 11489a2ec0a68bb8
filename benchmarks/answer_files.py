"""Files of answers, one line of CSV for each: what a benchmark that may be stopped has computed so far.

An answer is a dataclass of texts and numbers whose property ``cell`` identifies the line.
"""

import csv
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, TypeVar, cast

A = TypeVar("A")


def read(file: Path, kind: type[A]) -> dict[Any, A]:
    """The answers that a file has, by cell; of two about one cell the later counts."""
    if not file.exists():
        return {}
    columns = fields(cast(Any, kind))
    with file.open(newline="", encoding="utf-8") as lines:
        known = [
            kind(**{column.name: column.type(row[column.name]) for column in columns}) for row in csv.DictReader(lines)
        ]
    return {cast(Any, answer).cell: answer for answer in known}


def append(file: Path, answer: Any) -> None:
    """Add a line, whole or not at all as far as the system allows."""
    fresh = not file.exists()
    with file.open("a", newline="", encoding="utf-8") as lines:
        out = csv.writer(lines, lineterminator="\n")
        if fresh:
            out.writerow([field.name for field in fields(answer)])
        out.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in astuple(answer)])
