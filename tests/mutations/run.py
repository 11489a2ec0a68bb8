"""Plant faults in a copy of the source, one at a time, and see whether the tests notice.

    python tests/mutations/run.py                     every fault
    python tests/mutations/run.py door laws           those of door_faults.py and laws_faults.py
    python tests/mutations/run.py --missing           those that have no row in a table yet, or were changed since
    python tests/mutations/run.py --only sweep.py     those whose path or reason contains a text

A file ``*_faults.py`` beside this script has a list ``FAULTS`` of tuples: path of the file (from ``src/hockeystick``,
or from the root of the checkout where it begins with src/ or papers/), the text to replace, what replaces it, why this
matters, and optionally the tests to run (one path, or several). Without it the tests that mirror the file's folder
run. The default tier runs first, the slow tests only if it finds nothing.

Beside it stands its table, ``*_faults.md``: the test that killed each fault. Every run writes it, a row at a time, and
tries the test of the row first. At the end of a room the tests that noticed run once without any fault.

Exit code 1: a fault survived. 2: a fault cannot be planted, or its tests fail without it.
"""

import argparse
import hashlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from places import places  # noqa: E402 - beside this script, wherever it is run from

ROOT = HERE.parents[1]
SOURCE = Path("src") / "hockeystick"
TREES = (SOURCE, Path("papers") / "hockeystick_papers")
TIERS = ("not slow", "slow")
ALL = "slow or not slow"
LIMIT = 900
"""Seconds for the tests of one fault; a fault that makes them hang is killed."""
HANGS = "the time limit"


class UnplantableError(Exception):
    """A fault that cannot be planted, or whose tests prove nothing."""


@dataclass(frozen=True)
class Fault:
    """One change of the source that the tests must notice.

    Attributes:
        room: the name of its file, without ``_faults.py``.
        path: the file that it changes, from the root of the checkout.
        old, new: what is replaced, and by what.
        reason: what goes wrong for a user.
        tests: files, folders or tests that should notice, in the order in which they run.
    """

    room: str
    path: Path
    old: str
    new: str
    reason: str
    tests: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from the other faults of its room, in one line."""
        inside = self.path.relative_to(SOURCE) if self.path.is_relative_to(SOURCE) else self.path
        return str(inside), self.reason.replace("\n", " ")

    @property
    def digest(self) -> str:
        """Whether the replaced texts are still the same."""
        return hashlib.sha256(f"{self.old}\0{self.new}".encode()).hexdigest()[:8]

    def planted(self, root: Path) -> str:
        """The source with the fault.

        Raises: UnplantableError unless the old text has exactly one place and the result is Python where it was.
        """
        where = f"{self.room}_faults.py: {self.path}: {self.reason!r}"
        if not (root / self.path).is_file():
            raise UnplantableError(f"{where}: there is no such file")
        text = (root / self.path).read_text()
        candidates = places(text, self.old)
        if len(candidates) != 1:
            raise UnplantableError(f"{where}: the old text occurs {len(candidates)} times, not once: {self.old!r}")
        planted = candidates[0].replaced(text, self.new)
        if planted == text:
            raise UnplantableError(f"{where}: the new text is the old one")
        try:
            if self.path.suffix == ".py":
                compile(planted, str(self.path), "exec")
        except SyntaxError as error:
            raise UnplantableError(f"{where}: not Python any more: {error}") from None
        return planted


def names() -> list[str]:
    """The rooms: the names of all files of faults, without ``_faults.py``."""
    return sorted(path.name.removesuffix("_faults.py") for path in HERE.glob("*_faults.py"))


def faults(room: str) -> list[Fault]:
    """The faults of one file."""
    return [_fault(room, *entry) for entry in runpy.run_path(str(HERE / f"{room}_faults.py"))["FAULTS"]]


def _fault(room: str, path: str, old: str, new: str, reason: str, tests: str | Sequence[str] | None = None) -> Fault:
    place = Path(path) if path.startswith(("src/", "papers/")) else SOURCE / path
    chosen = default_tests(place) if tests is None else [tests] if isinstance(tests, str) else tests
    return Fault(room, place, old, new, reason, tuple(chosen))


def default_tests(path: Path) -> list[str]:
    """The tests that mirror a file of the source: those of its name, then those of its folder."""
    inside = path.relative_to(SOURCE)
    folder = Path("tests") / inside.parent
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    named = [str(test.relative_to(ROOT)) for test in sorted((ROOT / folder).glob(f"test_*{inside.stem}*.py"))]
    return named if folder == Path("tests") else [*named, str(folder)]


@dataclass(frozen=True)
class Row:
    """What is known of a fault.

    Attributes:
        path, reason: which fault; no two faults of a room share both.
        digest: of the texts that were replaced when it was last planted.
        killer: the test that noticed, `HANGS`, or nothing for a fault that survived.
    """

    path: str
    reason: str
    digest: str
    killer: str


def table_of(room: str) -> Path:
    """The page with the rows of one room."""
    return HERE / f"{room}_faults.md"


def rows(room: str) -> dict[tuple[str, str], Row]:
    """The table of one room by path and reason; empty if there is none."""
    page = table_of(room)
    if not page.exists():
        return {}
    lines = re.finditer(
        r"^\| `(.+?)` \| (.+) \| (?:\*\*survived\*\*|`(.+)`(?: \(slow\))?) \| (\w+) \|$", page.read_text(), re.M
    )
    each = (
        Row(path, reason, digest, killer or "") for path, reason, killer, digest in (line.groups() for line in lines)
    )
    return {(row.path, row.reason): row for row in each}


def write(room: str, known: dict[tuple[str, str], Row]) -> None:
    """Write the table of one room, in the order of its faults; rows of faults that are gone are dropped."""
    slow = {test for name in ("slow", "cold") for test in (ROOT / "tests" / f"{name}.txt").read_text().splitlines()}
    lines = [
        f"# Planted faults: {room}",
        "",
        f"Written by `python tests/mutations/run.py {room}`. The last column is a digest of the replaced texts.",
        "",
        "| file | fault | killed by | texts |",
        "|---|---|---|---|",
    ]
    for fault in faults(room):
        if (row := known.get(fault.key)) is not None:
            mark = " (slow)" if not slow.isdisjoint((row.killer, row.killer.split("[")[0])) else ""
            verdict = f"`{row.killer}`{mark}" if row.killer else "**survived**"
            lines.append(f"| `{row.path}` | {row.reason} | {verdict} | {row.digest} |")
    page = table_of(room)
    draft = page.with_suffix(".new")
    draft.write_text("\n".join(lines) + "\n")
    draft.replace(page)


def pytest(
    root: Path, tests: Sequence[str], *options: str, limit: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run tests of a checkout in one process; raises subprocess.TimeoutExpired after ``limit`` seconds."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root / "papers")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    fixed = ["-n", "0", "--tb=no", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *fixed, *options, *tests],
        cwd=root, env=environment, capture_output=True, text=True, timeout=limit, check=False,
    )  # fmt: skip


def failed(output: str) -> list[str]:
    """The tests that a report of pytest lists as failed."""
    return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)


def killer(root: Path, fault: Fault, known: str) -> str | None:
    """The first test that fails, `HANGS` if they do not end, or "" if all of them pass; None if all were skipped.

    Args:
        known: the test that killed the fault before, which runs first.

    Raises: UnplantableError when pytest cannot run them.
    """
    attempts = [([known], ALL)] if "::" in known else []
    ran = False
    for tests, tier in [*attempts, *((fault.tests, tier) for tier in TIERS)]:
        try:
            done = pytest(root, tests, "-x", "-rfE", "-m", tier, limit=LIMIT)
        except subprocess.TimeoutExpired:
            return HANGS
        if done.returncode in (1, 2) and (failures := failed(done.stdout)):
            return failures[0]
        if done.returncode == 4 and "found no collectors" in done.stderr:  # a file that a missing package leaves out
            continue
        if done.returncode not in (0, 5) and tests != [known]:
            raise UnplantableError(f"{fault.path}: pytest failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        ran |= re.search(r"\b\d+ passed\b", done.stdout) is not None
    return "" if ran else None


@contextmanager
def planted(root: Path, fault: Fault) -> Iterator[None]:
    """Plant a fault for a while.

    Numba compiles again what is in a changed file, but not the kernels elsewhere that call it: what is compiled of the
    files that import it is put away.
    """
    text, place = fault.planted(root), root / fault.path
    with tempfile.TemporaryDirectory(dir=root) as away:
        changed = _importers(root, fault.path) if "@kernel" in text else [fault.path]
        kept = {file: Path(away) / str(number) for number, file in enumerate(_compiled(root, changed))}
        for file, copy in [*kept.items(), (place, Path(away) / "source")]:
            shutil.move(file, copy)
        place.write_text(text)
        try:
            yield
        finally:
            for file in _compiled(root, changed):
                file.unlink()
            for file, copy in [*kept.items(), (place, Path(away) / "source")]:
                shutil.move(copy, file)  # with its old time stamp, which caches compare


def _importers(root: Path, path: Path) -> list[Path]:
    """A file of the source and those that import it, directly or not."""
    texts = {file.relative_to(root): file.read_text() for tree in TREES for file in (root / tree).rglob("*.py")}
    reached = [path]
    for importer in reached:
        _, *packages, stem = importer.with_suffix("").parts
        module = rf"{'.'.join(packages)}(?:\.| import .*\b){stem}\b"
        reached += [other for other, text in texts.items() if other not in reached and re.search(module, text)]
    return reached


def _compiled(root: Path, paths: Sequence[Path]) -> list[Path]:
    """What numba stored of some files."""
    return [file for path in paths for file in (root / path.parent / "__pycache__").glob(f"{path.stem}.*.nb?")]


def try_faults(root: Path, room: str, chosen: Sequence[Fault]) -> Iterator[tuple[Fault, str | None]]:
    """Plant faults of one room, one after the other, and write what is found into its table."""
    for fault in chosen:
        known = rows(room).get(fault.key)
        with planted(root, fault):
            killed_by = killer(root, fault, "" if known is None else known.killer)
        if killed_by is not None:
            write(room, rows(room) | {fault.key: Row(*fault.key, fault.digest, killed_by)})
        yield fault, killed_by


def take_out(root: Path, room: str, tests: Sequence[str]) -> list[str]:
    """Those of the tests that fail or are missing without any fault; their rows are taken out of the table."""
    done = pytest(root, tests, "-rfE", "-m", ALL)
    gone = [str(Path(path).relative_to(root)) for path in re.findall(r"^ERROR: not found: (.+)$", done.stderr, re.M)]
    broken = sorted({*failed(done.stdout), *gone})
    write(room, {key: row for key, row in rows(room).items() if row.killer not in broken})
    return broken


def main() -> int:
    """Run the script; see the top of the file."""
    parser = argparse.ArgumentParser(description="Plant faults and see whether the tests notice.")
    parser.add_argument("rooms", nargs="*", help=f"any of {', '.join(names())}; all by default")
    parser.add_argument("--only", default="", metavar="TEXT", help="faults with this text in their path or reason")
    parser.add_argument("--missing", action="store_true", help="faults that are new or changed since their last run")
    options = parser.parse_args()
    if unknown := set(options.rooms) - set(names()):
        parser.error(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(names())}")
    survived = skipped = broken = 0
    started = monotonic()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "checkout"
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(".git", ".venv", ".hypothesis", ".*_cache"))
        for room in options.rooms or names():
            write(room, known := rows(room))
            done = {key: row.digest for key, row in known.items() if row.killer and options.missing}
            chosen = [
                fault
                for fault in faults(room)
                if options.only in f"{fault.path} {fault.reason}" and done.get(fault.key) != fault.digest
            ]
            killers = set()
            for fault, by in try_faults(root, room, chosen):
                survived += by == ""
                skipped += by is None
                killers.add(by)
                verdict = "SURVIVED" if by == "" else f"killed by {by}" if by else "all its tests were skipped"
                print(f"{monotonic() - started:6.0f} s  {fault.key[0]}: {fault.reason}: {verdict}", flush=True)
            if tests := sorted(test for test in killers if test and test != HANGS):
                for test in take_out(root, room, tests):
                    broken += 1
                    print(f"{monotonic() - started:6.0f} s  {room}: {test} fails without any fault", flush=True)
    print(f"{survived} survived" + (f", {skipped} could not be tested: packages are missing" if skipped else ""))
    return 2 if broken else 1 if survived else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except UnplantableError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
