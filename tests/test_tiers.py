"""The list of slow tests names tests that exist, and a run of either tier says which extras it had."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

LISTED = (Path(__file__).parent / "slow.txt").read_text().splitlines()


def test_the_slow_tests_exist(collected: frozenset[str]) -> None:
    """In every file that was collected as a whole; files that need a missing package are not.

    A test that was renamed would silently join the fast tier.
    """
    known = collected | {name.split("[")[0] for name in collected}
    files = {name.split("::")[0] for name in collected}
    assert [name for name in LISTED if name.split("::")[0] in files and name not in known] == []


def test_the_default_tier_says_which_extras_it_ran_with() -> None:
    """Whatever is missing: the tests of the rest are skipped, and nobody should take that for a pass."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "--collect-only", Path(__file__).name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=Path(__file__).parent)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("optional packages: "))
    said = dict(part.split(" ", 1) for part in line.removeprefix("optional packages: ").split(", "))
    for name in ("torch", "opacus", "jax", "transformers", "peft", "lightning"):
        assert (said[name] == "missing") == (find_spec(name) is None)
