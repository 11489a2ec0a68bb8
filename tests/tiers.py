"""Choose the slow tests from measured times, and write tests/slow.txt.

python -m pytest -m "slow or not slow" --junitxml=times.xml
python tests/tiers.py times.xml

A test that takes longer than ``LIMIT`` seconds is slow, but the fastest of a file is not unless it takes longer than
``LIMIT_OF_FASTEST``. Where all parameters of a test are slow, its name stands for them. Tests that share a fixture that
takes long are marked where they stand, as the time of the fixture is that of the first of them.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

LIMIT = 0.1
LIMIT_OF_FASTEST = 2.0
HERE = Path(__file__).parent


def measured(report: str) -> dict[str, float]:
    """Seconds by the identifier of the test, from a JUnit report."""
    return {
        f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}": float(case.attrib["time"])
        for case in ElementTree.parse(report).iter("testcase")
    }


def slow(seconds: Mapping[str, float]) -> list[str]:
    """The entries of slow.txt."""
    families, files = defaultdict(list), defaultdict(list)
    for test in seconds:
        families[test.split("[")[0]].append(test)
        files[test.split("::")[0]].append(test)
    fastest = {min(tests, key=lambda test: seconds[test]) for tests in files.values()}
    kept = {test for test in fastest if seconds[test] <= LIMIT_OF_FASTEST}
    chosen = []
    for name, tests in families.items():
        over = [test for test in tests if seconds[test] > LIMIT and test not in kept]
        chosen += [name] if len(over) == len(tests) else over
    return sorted(chosen)


if __name__ == "__main__":
    (HERE / "slow.txt").write_text("\n".join(slow(measured(sys.argv[1]))) + "\n")
