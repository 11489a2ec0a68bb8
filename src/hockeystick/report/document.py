"""Documents as plain data, and the two ways to write them: text for terminals, Markdown for papers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

WIDTH = 120
COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters other than tabs and ends of lines, and those that end lines or change the direction of text."""


def visible(text: str) -> str:
    r"""The text with the characters that command terminals and change directions written out, as ``\u202e``.

    >>> visible("safe\u202e")
    'safe\\u202e'
    """
    return COMMANDS.sub(lambda command: command[0].encode("unicode_escape").decode(), text)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Lines of cells in columns, each as wide as its widest cell.

    >>> print(aligned([("method", "epsilon"), ("direct", "1.5"), ("shuffle_clones", "2")]))
    method          epsilon
    direct          1.5
    shuffle_clones  2
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


@dataclass(frozen=True)
class Row:
    """One thing that a document says, under a short name."""

    name: str
    text: str


@dataclass(frozen=True)
class Section:
    """Rows under a heading."""

    heading: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Document:
    """A title sentence and sections; sections without rows are left out."""

    title: str
    sections: Sequence[Section]

    def text(self, width: int = WIDTH) -> str:
        """The document in lines of at most ``width`` columns, names in a column of their own.

        >>> print(Document("A run.", [Section("noise", (Row("multiplier", "1.5"),))]).text())
        A run.
        noise
          multiplier  1.5
        """
        shown = [section for section in self.sections if section.rows]
        lines = wrap(self.title, width)
        for section in shown:
            column = max(len(row.name) for row in section.rows) + 4
            lines.append(section.heading)
            for row in section.rows:
                first = f"  {row.name}".ljust(column)
                lines += wrap(
                    row.text,
                    width,
                    initial_indent=first,
                    subsequent_indent=" " * column,
                    break_long_words=False,
                    break_on_hyphens=False,
                ) or [first.rstrip()]
        return "\n".join(lines)

    def markdown(self) -> str:
        """The document as Markdown, one table a section.

        >>> print(Document("A run.", [Section("noise", (Row("multiplier", "1.5"),))]).markdown())
        **A run.**
        <BLANKLINE>
        | noise | |
        |---|---|
        | multiplier | 1.5 |
        """
        parts = [f"**{_escaped(self.title)}**"]
        for section in self.sections:
            if section.rows:
                rows = [f"| {_escaped(row.name)} | {_escaped(row.text)} |" for row in section.rows]
                parts.append("\n".join([f"| {_escaped(section.heading)} | |", "|---|---|", *rows]))
        return "\n\n".join(parts)


def _escaped(text: str) -> str:
    """Text that Markdown shows as it stands: also what a user wrote."""
    for mark in "\\`*_[]<>|#":
        text = text.replace(mark, f"\\{mark}")
    return text
