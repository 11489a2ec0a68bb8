"""Plant faults in a copy of the source, one at a time, and see whether the tests notice.

    python tests/mutations/run.py                     every fault
    python tests/mutations/run.py door laws           those of door_faults.py and laws_faults.py
    python tests/mutations/run.py --only sweep.py     those whose path or reason contains a text
    python tests/mutations/run.py door --update       also writes the table in tests/mutations/README.md

A file ``*_faults.py`` beside this script has a list ``FAULTS`` of tuples: path of the file (from ``src/hockeystick``),
the text to replace, what replaces it, why this matters, and optionally the tests to run (one path, or several). Without
it the tests that mirror the file's folder run. The default tier runs first, the slow tests only if it finds nothing.

Exit code 1: a fault survived. 2: a fault cannot be planted, or its tests fail without it.
"""

import argparse
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCE = Path("src") / "hockeystick"
TIERS = ("not slow", "slow")
LIMIT = 1800
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

    def planted(self, root: Path) -> str:
        """The source with the fault.

        Raises: UnplantableError unless the old text occurs exactly once and the result is Python.
        """
        where = f"{self.room}_faults.py: {self.path}: {self.reason!r}"
        if not (root / self.path).is_file():
            raise UnplantableError(f"{where}: there is no such file")
        text = (root / self.path).read_text()
        if text.count(self.old) != 1:
            raise UnplantableError(f"{where}: the old text occurs {text.count(self.old)} times, not once: {self.old!r}")
        planted = text.replace(self.old, self.new)
        if planted == text:
            raise UnplantableError(f"{where}: the new text is the old one")
        try:
            compile(planted, str(self.path), "exec")
        except SyntaxError as error:
            raise UnplantableError(f"{where}: not Python any more: {error}") from None
        return planted


def rooms() -> list[str]:
    """The names of all files of faults, without ``_faults.py``."""
    return sorted(path.name.removesuffix("_faults.py") for path in HERE.glob("*_faults.py"))


def faults(room: str) -> list[Fault]:
    """The faults of one file."""
    return [_fault(room, *entry) for entry in runpy.run_path(str(HERE / f"{room}_faults.py"))["FAULTS"]]


def _fault(room: str, path: str, old: str, new: str, reason: str, tests: str | Sequence[str] | None = None) -> Fault:
    place = Path(path) if path.startswith("src/") else SOURCE / path
    chosen = default_tests(place) if tests is None else [tests] if isinstance(tests, str) else tests
    return Fault(room, place, old, new, reason, tuple(chosen))


def default_tests(path: Path) -> list[str]:
    """The tests that mirror a file of the source: those of its name, then those of its folder."""
    inside = path.relative_to(SOURCE)
    folder = Path("tests") / inside.parent
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    named = [str(one.relative_to(ROOT)) for one in sorted((ROOT / folder).glob(f"test_*{inside.stem}*.py"))]
    return named if folder == Path("tests") else [*named, str(folder)]


def failing(root: Path, fault: Fault, tests: Sequence[str], cache: Path | None = None) -> tuple[str | None, str]:
    """Run some tests: which one failed first (None if none did), and in which tier.

    Args:
        cache: where numba keeps what it compiles, instead of beside the source.

    Raises: UnplantableError when there is nothing to run.
    """
    environment = os.environ | {
        "PYTHONPATH": str(root / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-x",
        "-rfE",
        "--tb=no",
        "--no-header",
        "-p",
        "no:cacheprovider",
    ]
    ran = False
    for tier in TIERS:
        try:
            done = subprocess.run(
                [*command, "-m", tier, "--hypothesis-seed=0", *tests],
                cwd=root, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return HANGS, tier
        if done.returncode in (1, 2):
            found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
            if found is None:
                raise UnplantableError(f"{fault.path}: pytest failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
            return found[1], tier
        if done.returncode not in (0, 5):
            raise UnplantableError(f"{fault.path}: pytest failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        ran |= done.returncode == 0
    if not ran:
        raise UnplantableError(f"{fault.path}: there are no tests in {', '.join(tests)}")
    return None, ""


def verdicts(chosen: Sequence[Fault]) -> Iterator[tuple[Fault, str | None, str]]:
    """Every fault with the test that killed it, if any, and the tier of that test."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "checkout"
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(".git", ".venv", ".hypothesis", ".*_cache"))
        for number, fault in enumerate(chosen):
            text = fault.planted(root)
            place = root / fault.path
            # Numba does not compile again what calls a changed kernel: those faults start with an empty cache.
            cache = Path(folder) / f"numba{number}" if "njit" in text else None
            shutil.copy2(place, root / "kept")
            place.write_text(text)
            test, tier = failing(root, fault, fault.tests, cache)
            shutil.move(root / "kept", place)  # with its old time stamp, which caches compare
            if test is not None and test != HANGS and failing(root, fault, [test])[0] is not None:
                raise UnplantableError(f"{test} fails without any fault")
            yield fault, test, tier


def table(found: Sequence[tuple[Fault, str | None, str]]) -> str:
    """The rows of one room in Markdown."""
    lines = ["| file | fault | killed by |", "|---|---|---|"]
    for fault, test, tier in found:
        verdict = "**survived**" if test is None else f"`{test}`" + (" (slow)" if tier == "slow" else "")
        lines.append(f"| `{fault.path.relative_to(SOURCE)}` | {fault.reason} | {verdict} |".replace("\n", " "))
    return "\n".join(lines)


def update(room: str, content: str) -> None:
    """Put the table of a room into the README."""
    page = HERE / "README.md"
    start, end = f"<!-- {room}: written by run.py -->", f"<!-- end of {room} -->"
    section = f"{start}\n\n## {room}\n\n{content}\n\n{end}"
    text = page.read_text()
    if start in text:
        before, _, rest = text.partition(start)
        page.write_text(before + section + rest.partition(end)[2])
    else:
        page.write_text(f"{text.rstrip()}\n\n{section}\n")


def main() -> int:
    """Run the script; see the top of the file."""
    parser = argparse.ArgumentParser(description="Plant faults and see whether the tests notice.")
    parser.add_argument("rooms", nargs="*", help=f"any of {', '.join(rooms())}; all by default")
    parser.add_argument("--only", default="", metavar="TEXT", help="faults with this text in their path or reason")
    parser.add_argument("--update", action="store_true", help="write the tables in README.md")
    options = parser.parse_args()
    if options.update and options.only:
        parser.error("--update writes whole tables; leave out --only")
    if unknown := set(options.rooms) - set(rooms()):
        parser.error(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(rooms())}")
    survivors = 0
    for room in options.rooms or rooms():
        chosen = [one for one in faults(room) if options.only in f"{one.path} {one.reason}"]
        found = []
        started = monotonic()
        for fault, test, tier in verdicts(chosen):
            found.append((fault, test, tier))
            survivors += test is None
            verdict = "SURVIVED" if test is None else f"killed by {test} ({tier})"
            print(
                f"{monotonic() - started:6.0f} s  {fault.path.relative_to(SOURCE)}: {fault.reason}: {verdict}",
                flush=True,
            )
        if options.update:
            update(room, table(found))
    print(f"{survivors} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except UnplantableError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
