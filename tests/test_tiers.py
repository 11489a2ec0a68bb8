"""The lists of slow and weekly tests name tests that exist, and a run of either tier says which extras it had."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from covering import killers
from tiers import slow, unmeasured, weekly

HERE = Path(__file__).parent
SECONDS = {
    "tests/laws/test_a.py::test_quick": 0.01,
    "tests/laws/test_a.py::test_some[1]": 0.2,
    "tests/laws/test_a.py::test_some[2]": 0.3,
    "tests/laws/test_a.py::test_long": 9.0,
    "tests/laws/test_a.py::test_grid[1]": 4.0,
    "tests/laws/test_a.py::test_grid[2]": 5.0,
    "tests/laws/test_a.py::test_grid[3]": 6.0,
    "tests/laws/test_b.py::test_alone": 3.0,
    "tests/properties/test_c.py::test_quick": 0.01,
    "tests/properties/test_c.py::test_sandwich": 30.0,
}


def test_slow_tests_are_those_above_the_limits() -> None:
    assert slow(SECONDS) == [
        "tests/laws/test_a.py::test_grid",
        "tests/laws/test_a.py::test_long",
        "tests/laws/test_a.py::test_some",
        "tests/laws/test_b.py::test_alone",
        "tests/properties/test_c.py::test_sandwich",
    ]


def test_weekly_tests_leave_every_file_every_grid_every_killer_and_every_sandwich() -> None:
    known = frozenset({"tests/laws/test_a.py::test_grid[3]"})
    assert weekly(SECONDS, known) == ["tests/laws/test_a.py::test_grid[2]", "tests/laws/test_a.py::test_long"]
    assert weekly(SECONDS, known | {"tests/laws/test_a.py::test_long"}) == ["tests/laws/test_a.py::test_grid[2]"]


def test_what_was_not_measured_stays_listed() -> None:
    gone = ["tests/laws/test_a.py::test_grid[4]", "tests/laws/test_d.py::test_other"]
    assert unmeasured([*SECONDS, "tests/laws/test_a.py::test_grid", *gone], SECONDS) == set(gone)


def test_no_weekly_test_kills_a_planted_fault() -> None:
    """Such a test would run all the same; the list says what waits."""
    assert killers(HERE / "mutations").isdisjoint((HERE / "weekly.txt").read_text().splitlines())


@pytest.mark.parametrize("name", ["cold.txt", "slow.txt", "weekly.txt"])
def test_the_tests_of_a_list_exist(name: str, collected: frozenset[str]) -> None:
    """In every file that was collected as a whole; files that need a missing package are not.

    A test that was renamed would silently join the fast tier.
    """
    known = collected | {name.split("[")[0] for name in collected}
    files = {name.split("::")[0] for name in collected}
    listed = (HERE / name).read_text().splitlines()
    assert [test for test in listed if test.split("::")[0] in files and test not in known] == []


def test_the_default_tier_says_which_extras_it_ran_with() -> None:
    """Whatever is missing: the tests of the rest are skipped, and nobody should take that for a pass."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "--collect-only", Path(__file__).name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=Path(__file__).parent)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("optional packages: "))
    said = dict(part.split(" ", 1) for part in line.removeprefix("optional packages: ").split(", "))
    for name in ("torch", "opacus", "jax", "transformers", "peft", "trl", "lightning"):
        assert (said[name] == "missing") == (find_spec(name) is None)
