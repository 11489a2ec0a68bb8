"""The list of slow tests names tests that exist."""

from pathlib import Path

LISTED = (Path(__file__).parent / "slow.txt").read_text().splitlines()


def test_the_slow_tests_exist(collected: frozenset[str]) -> None:
    """In every file that was collected as a whole; files that need a missing package are not.

    A test that was renamed would silently join the fast tier.
    """
    known = collected | {name.split("[")[0] for name in collected}
    files = {name.split("::")[0] for name in collected}
    assert [name for name in LISTED if name.split("::")[0] in files and name not in known] == []
