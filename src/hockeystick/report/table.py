"""Comparisons of accountants as a table and as JSON."""

from collections.abc import Sequence
from typing import Any

from hockeystick.certificate import number
from hockeystick.certification.schedule import Outcome
from hockeystick.report.document import aligned
from hockeystick.types import Side


def comparison_table(outcomes: Sequence[Outcome]) -> str:
    """All outcomes, upper bounds first, the tightest first; those without a value give the reason."""
    rows = [("method", "side", "epsilon", "seconds", "status")]
    rows += [
        (
            outcome.method,
            outcome.side.value,
            "-" if outcome.value is None else number(outcome.value, up=outcome.side is Side.UPPER),
            f"{outcome.seconds:.3f}",
            outcome.status,
        )
        for outcome in in_order(outcomes)
    ]
    return aligned(rows)


def comparison_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The ``bounds`` of ``compare --json``."""
    return [
        {
            "method": outcome.method,
            "side": outcome.side.value,
            "kind": outcome.kind.value,
            "confidence": outcome.confidence,
            "epsilon": outcome.value,
            "seconds": round(outcome.seconds, 4),
            "status": outcome.status,
        }
        for outcome in in_order(outcomes)
    ]


def in_order(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Upper bounds before lower ones, the tightest first, those without a value last."""

    def key(outcome: Outcome) -> tuple[bool, bool, float]:
        value = outcome.value or 0.0
        upper = outcome.side is Side.UPPER
        return (not upper, outcome.value is None, value if upper else -value)

    return sorted(outcomes, key=key)
