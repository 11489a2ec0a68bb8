"""Finding and running the reproductions of papers.

Each paper is one folder ``papers/<key>/`` with a ``reproduce.py`` that defines ``FIGURES``: a mapping from a part's
name to a function ``(Output) -> None``; ``QUICK`` has smaller versions of the parts that take long. They use the public
interface only. See docs/how-to/reproduce-a-paper.md.
"""

import csv
import importlib.util
import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError
from hockeystick.files import write_atomically
from hockeystick.report.document import aligned
from hockeystick.reproduction.kept import Kept, code_of

NUMBERS = "numbers"
"""The part that draws nothing."""


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

    def as_json(self) -> dict[str, Any]:
        """Plain data; what is infinite is None."""
        numbers = {"printed": float(self.printed), "ours": float(self.ours)}
        finite = {name: value if isfinite(value) else None for name, value in numbers.items()}
        return asdict(self) | finite | {"holds": bool(self.holds)}


@dataclass(frozen=True)
class Reproduced:
    """What came of one part of a paper.

    Attributes:
        paper, part: what was recomputed.
        directory: of the files.
        files: their names.
        kept: whether an earlier run wrote them.
        lines: the report.
        checks: the printed numbers, each with ours, as plain data.
        seconds, processor_seconds: time taken, in that run.
    """

    paper: str
    part: str
    directory: Path
    files: tuple[str, ...]
    kept: bool
    lines: tuple[str, ...]
    checks: tuple[dict[str, Any], ...]
    seconds: float
    processor_seconds: float

    def __str__(self) -> str:
        done = "kept" if self.kept else "wrote"
        earlier = ", in an earlier run" if self.kept else ""
        return "\n".join(
            [
                f"{self.paper} {self.part}",
                *(f"{done} {self.directory / file}" for file in self.files),
                *self.lines,
                f"{self.part}: {self.seconds:.1f} s, {self.processor_seconds:.1f} s of processor time{earlier}",
            ]
        )

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"directory": str(self.directory)}


@dataclass
class Output:
    """Where a part puts its results: ``<directory>/<part>.png`` and ``.csv``.

    Attributes:
        lines: the report.
        compared: the printed numbers beside ours, as plain data.
        files: names of the files that were written.
        kept: results that survive an interruption and are shared by all parts of a paper, see :class:`Kept`.
    """

    directory: Path
    deadline: Deadline
    lines: list[str] = field(default_factory=list)
    compared: list[dict[str, Any]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    kept: Kept = field(default_factory=Kept)

    def table(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write a CSV file."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
        write_atomically(self.directory / f"{name}.csv", text.getvalue())
        self.files.append(f"{name}.csv")

    def figure(self, name: str, figure: Any) -> None:
        """Write a PNG file."""
        from hockeystick.report.plot import save_figure

        save_figure(figure, self.directory / f"{name}.png")
        self.files.append(f"{name}.png")

    def checks(self, name: str, checks: Sequence[Check]) -> None:
        """Write the table of printed numbers and repeat it in the report."""
        header = ("what", "relation", "printed", "ours", "verdict")
        rows = [(c.what, c.relation, f"{c.printed:g}", f"{c.ours:.6g}", c.verdict) for c in checks]
        self.table(name, header, rows)
        self.compared += [check.as_json() for check in checks]
        self.lines += aligned([header, *rows]).splitlines()


def available() -> dict[str, list[str]]:
    """The papers that can be reproduced and their figures."""
    return {folder.name: list(figures_of(folder)) for folder in paper_folders()}


def check(paper: str, figure: str | None) -> None:
    """Refuse, before anything is computed, what cannot be reproduced.

    Raises: InvalidInputError for an unknown paper or figure; UnsupportedError where matplotlib is missing and there is
    something to draw.
    """
    papers = available()
    if paper not in papers:
        known = ", ".join(papers) or "none (the papers folder is missing)"
        raise InvalidInputError(f"The paper must be one of {known}, or 'all'. Got {paper!r} instead.")
    if figure is not None and figure not in papers[paper]:
        raise InvalidInputError(f"The figure must be one of {', '.join(papers[paper])}. Got {figure!r} instead.")
    if figure != NUMBERS:
        from hockeystick.report.plot import new_figure

        new_figure()


def reproduce(
    paper: str, figure: str | None, out: str | Path, deadline: Deadline, *, quick: bool = False
) -> Iterator[Reproduced]:
    """Recompute one part of a paper, or all, one after the other; each is reported to the deadline when it begins.

    What the same code has computed before, for the same directory, is not computed again.

    Args:
        quick: the smaller versions, in a directory of their own.

    Raises: as :func:`check`; InvalidInputError for a directory that cannot be written.
    """
    check(paper, figure)
    if not os.fspath(out):
        raise InvalidInputError("The output path '' cannot be written: it is empty.")
    folder = folder_of(paper)
    figures = figures_of(folder, quick=quick)
    directory = Path(out) / paper / "quick" if quick else Path(out) / paper
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"The output path {str(directory)!r} cannot be written: {error.strerror}.") from None
    kept = Kept(directory / "kept.csv", code_of([Path(__file__).resolve().parents[1], *_methods(), folder]))
    for name in figures if figure is None else [figure]:
        deadline.report(f"{paper} {name}")
        yield _part(paper, name, figures[name], Output(directory, deadline, kept=kept))


def _part(paper: str, name: str, figure: Callable[[Output], None], output: Output) -> Reproduced:
    """Run one part, unless its files are there as the same code has written them."""
    key, directory = f"part {name}", output.directory

    def run() -> dict[str, Any]:
        started, processor = time.perf_counter(), time.process_time()
        figure(output)
        seconds = [time.perf_counter() - started, time.process_time() - processor]
        files = _digests(directory, output.files)
        return {"seconds": seconds, "files": files, "lines": output.lines, "checks": output.compared}

    before = output.kept.stored(key)
    unchanged = before is not None and _digests(directory, before["files"]) == before["files"]
    if not unchanged:
        output.kept.forget(key)
    done = output.kept.value(key, run)
    return Reproduced(
        paper,
        name,
        directory,
        files=tuple(done["files"]),
        kept=unchanged,
        lines=tuple(done["lines"]),
        checks=tuple(done["checks"]),
        seconds=done["seconds"][0],
        processor_seconds=done["seconds"][1],
    )


def _digests(directory: Path, files: Iterable[str]) -> dict[str, str]:
    """The contents of those files that exist."""
    paths = {name: directory / name for name in files}
    return {name: sha256(path.read_bytes()).hexdigest() for name, path in paths.items() if path.is_file()}


def paper_folders() -> list[Path]:
    """Folders with a reproduction: inside an installed package, or beside the sources of a checkout."""
    package = Path(__file__).resolve().parents[1]
    for root in (package / "papers", package.parents[1] / "papers"):
        if root.is_dir():
            return sorted(path.parent for path in root.glob("*/reproduce.py"))
    return []


def _methods() -> list[Path]:
    """The package with the methods of the papers, where it is installed."""
    spec = importlib.util.find_spec("hockeystick_papers")
    return [] if spec is None or spec.origin is None else [Path(spec.origin).parent]


def folder_of(paper: str) -> Path:
    """The folder of a paper that is there."""
    return next(folder for folder in paper_folders() if folder.name == paper)


def figures_of(folder: Path, *, quick: bool = False) -> dict[str, Callable[[Output], None]]:
    """What ``reproduce.py`` defines. It is loaded as a package, so that it can import the modules beside it."""
    name = "hockeystick_papers_" + folder.name.replace("-", "_")
    spec = importlib.util.spec_from_file_location(
        name, folder / "reproduce.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise InvalidInputError(f"The reproduction in {str(folder)!r} cannot be loaded.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.FIGURES) | (dict(getattr(module, "QUICK", {})) if quick else {})
