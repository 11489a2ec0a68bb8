"""Choose the slow and the weekly tests from measured times, and write tests/slow.txt and tests/weekly.txt.

python -m pytest -m "slow or not slow" --junitxml=times.xml
python tests/tiers.py times.xml

A test that takes longer than ``LIMIT`` seconds is slow, but the fastest of a file is not unless it takes longer than
``LIMIT_OF_FASTEST``. One that takes longer than ``LIMIT_OF_WHOLE`` is weekly, except those that kill a planted fault,
the fastest of its parameters, the fastest of its file, and all that ``KEPT`` names. Where all parameters of a test
are slow, or weekly, its name stands for them. Tests that share a fixture that takes long are marked where they stand,
as the time of the fixture is that of the first of them. Entries about tests that the report does not have stay, so that
a report of whole runs will do, which have no weekly tests.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from xml.etree import ElementTree

from covering import killers

LIMIT = 0.1
LIMIT_OF_FASTEST = 2.0
LIMIT_OF_WHOLE = 2.0
KEPT = (
    "tests/conformance/",
    "tests/properties/",
    "tests/training/",
    "tests/cli/test_processes.py",
    "tests/test_docs.py",
)
"""Sandwiches of all kinds, training with every framework, the main job as a user runs it, and what pages show."""
HERE = Path(__file__).parent


def measured(report: str) -> dict[str, float]:
    """Seconds by the identifier of the test, from a JUnit report; of the tests that were not skipped."""
    return {
        f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}": float(case.attrib["time"])
        for case in ElementTree.parse(report).iter("testcase")
        if case.find("skipped") is None
    }


def slow(seconds: Mapping[str, float]) -> list[str]:
    """The entries of slow.txt."""
    kept = {test for test in fastest(seconds, file_of) if seconds[test] <= LIMIT_OF_FASTEST}
    return entries(seconds, {test for test in seconds if seconds[test] > LIMIT} - kept)


def weekly(seconds: Mapping[str, float], always: AbstractSet[str]) -> list[str]:
    """The entries of weekly.txt; ``always`` are tests of every whole run."""
    cells = defaultdict(list)
    for test in seconds:
        cells[family_of(test)].append(test)
    kept = {test for test in fastest(seconds, family_of) if len(cells[family_of(test)]) > 1}
    kept |= fastest(seconds, file_of) | always | {test for test in seconds if test.startswith(KEPT)}
    return entries(seconds, {test for test in seconds if seconds[test] > LIMIT_OF_WHOLE} - kept)


def fastest(seconds: Mapping[str, float], group: Callable[[str], str]) -> set[str]:
    """The fastest test of each group."""
    groups = defaultdict(list)
    for test in seconds:
        groups[group(test)].append(test)
    return {min(tests, key=lambda test: seconds[test]) for tests in groups.values()}


def entries(seconds: Mapping[str, float], chosen: AbstractSet[str]) -> list[str]:
    """The chosen tests in order; the name of a test where all its parameters are among them."""
    cells = defaultdict(list)
    for test in seconds:
        cells[family_of(test)].append(test)
    listed: list[str] = []
    for name, tests in cells.items():
        listed += [name] if chosen >= set(tests) else chosen & set(tests)
    return sorted(listed)


def unmeasured(listed: Iterable[str], seconds: Mapping[str, float]) -> set[str]:
    """The entries of a list about tests that have no time."""
    known = seconds.keys() | {family_of(test) for test in seconds}
    return {entry for entry in listed if entry not in known}


def file_of(test: str) -> str:
    return test.split("::")[0]


def family_of(test: str) -> str:
    """The test without its parameters."""
    return test.split("[")[0]


if __name__ == "__main__":
    times = measured(sys.argv[1])
    for name, chosen in (("slow.txt", slow(times)), ("weekly.txt", weekly(times, killers(HERE / "mutations")))):
        stay = unmeasured((HERE / name).read_text().splitlines(), times)
        (HERE / name).write_text("".join(f"{entry}\n" for entry in sorted({*chosen, *stay})))
