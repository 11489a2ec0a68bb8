"""The table of a comparison: order, rounding to the safe side, and what has no value."""

import pytest

from hockeystick.certification.schedule import Outcome
from hockeystick.report.table import comparison_json, comparison_table, in_order
from hockeystick.types import Kind, Side


def outcome(method: str, side: Side, value: float | None, status: str = "ok") -> Outcome:
    return Outcome(method, side, Kind.DETERMINISTIC, 1.0, value, 0.25, status)


OUTCOMES = [
    outcome("loose", Side.UPPER, 3.0),
    outcome("low", Side.LOWER, 0.5),
    outcome("tight", Side.UPPER, 2.0000000001),
    outcome("refused", Side.UPPER, None, "it has no analysis"),
    outcome("high", Side.LOWER, 1.9999999999),
]


def test_the_tightest_of_each_side_comes_first_and_the_empty_last() -> None:
    assert [outcome.method for outcome in in_order(OUTCOMES)] == ["tight", "loose", "refused", "high", "low"]
    assert [row["method"] for row in comparison_json(OUTCOMES)] == ["tight", "loose", "refused", "high", "low"]


@pytest.mark.parametrize(("method", "shown"), [("tight", "2.00001"), ("high", "1.99999"), ("refused", "-")])
def test_numbers_are_rounded_to_the_safe_side(method: str, shown: str) -> None:
    row = next(line for line in comparison_table(OUTCOMES).splitlines() if line.startswith(method))
    assert row.split()[2] == shown


def test_what_has_no_value_says_why() -> None:
    assert "it has no analysis" in comparison_table(OUTCOMES)
    assert comparison_json(OUTCOMES)[2]["epsilon"] is None
