"""The report of a comparison: every method with its bounds on epsilon, side by side."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from hockeystick.certificate import number
from hockeystick.report.html.common import between, known, methods_plot
from hockeystick.report.html.page import Notice, Page, Plot, Plots, Table
from hockeystick.spec import Spec
from hockeystick.types import Kind, Side

EXPLANATION = "A mark that points left is an upper bound; a mark that points right is a lower bound."


class BoundOfMethod(Spec):
    """One line of a comparison, as ``hockeystick compare --json`` writes it."""

    method: str
    side: Side
    kind: Kind
    confidence: Annotated[float, Field(gt=0.0, le=1.0)]
    epsilon: Annotated[float, Field(ge=0.0)] | None
    seconds: Annotated[float, Field(ge=0.0)]
    status: str


class Comparison(Spec):
    """What ``hockeystick compare --json`` prints."""

    delta: Annotated[float, Field(ge=0.0, le=1.0)]
    noise_multiplier: Annotated[float, Field(gt=0.0)]
    bounds: Annotated[tuple[BoundOfMethod, ...], Field(min_length=1, max_length=1000)]


def methods_rows(bounds: Sequence[BoundOfMethod]) -> list[dict[str, Any]]:
    """A row of an interval plot for each method, the smallest upper bound first."""
    rows: dict[str, dict[str, Any]] = {}
    for bound in bounds:
        row = rows.setdefault(bound.method, {"name": bound.method, "lower": None, "upper": None, "note": _note(bound)})
        row[bound.side.value] = known(bound.epsilon)
        if bound.status != "ok" and bound.status not in row["note"]:
            row["note"] = "; ".join(filter(None, (row["note"], f"{bound.side.value} bound: {bound.status}")))
    return sorted(rows.values(), key=_place)


def _note(bound: BoundOfMethod) -> str:
    """The probability that a bound fails, rounded up; nothing for a bound that cannot fail."""
    if bound.kind is Kind.DETERMINISTIC:
        return ""
    return f"Monte Carlo, fails with probability at most {number(1.0 - bound.confidence)}"


def _place(row: dict[str, Any]) -> tuple[float, float]:
    upper, lower = row["upper"], row["lower"]
    return (float("inf") if upper is None else upper, -(lower or 0.0))


def comparison_page(comparison: Comparison, name: str) -> Page:
    """The page of a comparison.

    Args:
        name: of the file, for the colophon.
    """
    rows = methods_rows(comparison.bounds)
    title = f"Methods side by side at noise multiplier {comparison.noise_multiplier!r}, delta {comparison.delta!r}"
    note = "The numbers are those of the file; nothing was computed again."
    table = [
        (
            bound.method,
            bound.side.value,
            _end(bound),
            _note(bound) or bound.kind.value,
            f"{bound.seconds:.3g}",
            bound.status,
        )
        for bound in comparison.bounds
    ]
    return Page(
        kind="Comparison",
        title=title,
        notices=(Notice("plain", note),),
        blocks=(
            Plots("Bounds on epsilon", EXPLANATION, [Plot("intervals", methods_plot("epsilon by method", "", rows))]),
            Table("All methods", "", ("method", "side", "epsilon", "kind", "seconds", "status"), table),
        ),
        colophon=(f"Source: {name}.",),
    )


def _end(bound: BoundOfMethod) -> str:
    ends = between(bound.epsilon, None)[0], between(None, bound.epsilon)[1]
    return "-" if bound.epsilon is None else ends[bound.side is Side.UPPER]
