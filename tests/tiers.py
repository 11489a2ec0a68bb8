"""Choose the slow tests from measured times, and write tests/slow.txt.

python -m pytest -m "slow or not slow" --junitxml=times.xml
python tests/tiers.py times.xml

A test that takes longer than ``LIMIT`` seconds is slow, but the fastest of a file is not. Where all parameters of a
test are slow, its name stands for them.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

LIMIT = 0.1
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
    kept = {min(tests, key=lambda test: seconds[test]) for tests in files.values()}
    chosen = []
    for name, tests in families.items():
        over = [test for test in tests if seconds[test] > LIMIT and test not in kept]
        chosen += [name] if len(over) == len(tests) else over
    return sorted(chosen)


if __name__ == "__main__":
    (HERE / "slow.txt").write_text("\n".join(slow(measured(sys.argv[1]))) + "\n")
