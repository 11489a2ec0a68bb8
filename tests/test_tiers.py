"""The list of slow tests names tests that exist, and leaves every file something to run."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ENTRIES = (HERE / "slow.txt").read_text().splitlines()


def defined(path: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", sorted({entry.split("::")[0] for entry in ENTRIES}))
def test_slow_tests_exist(path):
    named = {re.split(r"::|\[", entry)[1] for entry in ENTRIES if entry.startswith(f"{path}::")}
    assert named <= defined(HERE.parent / path), "rename or delete the line in tests/slow.txt"


def test_every_file_has_a_fast_test():
    whole = defaultdict(set)
    for entry in ENTRIES:
        if "[" not in entry:
            path, name = entry.split("::")
            whole[path].add(name)
    for path, names in whole.items():
        text = (HERE.parent / path).read_text()
        assert defined(HERE.parent / path) - names, f"{path} has no test in the default tier"
        assert "pytestmark = pytest.mark.slow" not in text
