"""Finding and running the reproductions of papers.

Each paper is one folder ``papers/<key>/`` with a ``reproduce.py`` that defines ``FIGURES``: a mapping from a figure's
name to a function ``(Output) -> None``. They use the public interface only. See docs/how-to/reproduce-a-paper.md.
"""

import csv
import importlib.util
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError
from hockeystick.files import write_atomically


@dataclass(frozen=True)
class Check:
    """One printed number beside ours.

    ``relation`` is how the paper states it ("<", "<=", ">", ">=" or "~"); ``holds`` whether our certified value
    bears it out.
    """

    what: str
    relation: str
    printed: float
    ours: float
    holds: bool
    note: str = ""

    @property
    def verdict(self) -> str:
        """``confirmed`` or ``not confirmed``, with the note."""
        return ("confirmed" if self.holds else "not confirmed") + (f": {self.note}" if self.note else "")


@dataclass
class Output:
    """Where a figure puts its results: ``<directory>/<paper>/<figure>.png`` and ``.csv``."""

    directory: Path
    deadline: Deadline
    lines: list[str] = field(default_factory=list)

    def table(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write a CSV file."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
        write_atomically(self.directory / f"{name}.csv", text.getvalue())
        self.lines.append(f"wrote {self.directory / name}.csv")

    def figure(self, name: str, figure: Any) -> None:
        """Write a PNG file."""
        from hockeystick.report.plot import save_figure

        save_figure(figure, self.directory / f"{name}.png")
        self.lines.append(f"wrote {self.directory / name}.png")

    def checks(self, name: str, checks: Sequence[Check]) -> None:
        """Write the table of printed numbers and repeat it in the report."""
        header = ("what", "relation", "printed", "ours", "verdict")
        rows = [(c.what, c.relation, f"{c.printed:g}", f"{c.ours:.6g}", c.verdict) for c in checks]
        self.table(name, header, rows)
        widths = [max(len(row[i]) for row in [header, *rows]) for i in range(4)]
        for row in [header, *rows]:
            self.lines.append("  ".join([*(row[i].ljust(widths[i]) for i in range(4)), row[4]]))


def available() -> dict[str, list[str]]:
    """The papers that can be reproduced and their figures."""
    return {folder.name: list(_figures(folder)) for folder in _folders()}


def reproduce(paper: str, figure: str | None, out: str | Path, deadline: Deadline) -> Iterator[str]:
    """Recompute one figure of a paper, or all, yielding report lines.

    Raises: InvalidInputError for an unknown paper or figure, or a directory that cannot be written.
    """
    folders = {folder.name: folder for folder in _folders()}
    if paper not in folders:
        known = ", ".join(folders) or "none (the papers folder is missing)"
        raise InvalidInputError(f"The paper must be one of {known}. Got {paper!r} instead.")
    figures = _figures(folders[paper])
    if figure is not None and figure not in figures:
        raise InvalidInputError(f"The figure must be one of {', '.join(figures)}. Got {figure!r} instead.")
    directory = Path(out) / paper
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"The output path {str(directory)!r} cannot be written: {error.strerror}.") from None
    for name in figures if figure is None else [figure]:
        output = Output(directory, deadline)
        yield f"{paper} {name}"
        figures[name](output)
        yield from output.lines


def _folders() -> list[Path]:
    """Folders with a reproduction: inside an installed package, or beside the sources of a checkout."""
    package = Path(__file__).resolve().parents[1]
    for root in (package / "papers", package.parents[1] / "papers"):
        if root.is_dir():
            return sorted(path.parent for path in root.glob("*/reproduce.py"))
    return []


def _figures(folder: Path) -> dict[str, Callable[[Output], None]]:
    """What ``reproduce.py`` defines. It is loaded as a package, so that it can import the modules beside it."""
    name = "hockeystick_papers_" + folder.name.replace("-", "_")
    spec = importlib.util.spec_from_file_location(
        name, folder / "reproduce.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise InvalidInputError(f"The reproduction in {str(folder)!r} cannot be loaded.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    figures: dict[str, Callable[[Output], None]] = module.FIGURES
    return figures
