"""The report of a sweep: the bounds of every cell by the fields of the grid."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from hockeystick.certificate import CutOff, Interval, Methods, exact, number
from hockeystick.report.html.common import SERIES, band, between
from hockeystick.report.html.page import Notice, Page, Plot, Plots, Table
from hockeystick.spec import Spec
from hockeystick.types import Kind

MOST_PLOTS = 8
Bounded = Annotated[float, Field(ge=0.0)]


class CellOfSweep(Spec):
    """One cell, as ``hockeystick sweep --json`` writes it; without bounds where it has no certificate."""

    fields: dict[str, Any]
    status: str
    seconds: Bounded
    delta: Bounded | Interval | None = None
    epsilon: Bounded | Interval | None = None
    noise_multiplier: Bounded | None = None
    method: Methods | None = None
    kind: Kind | None = None
    confidence: Bounded | None = None
    failure_probability: Bounded | None = None
    statement: str | None = None
    cut_off: tuple[CutOff, ...] = ()

    def ends(self, name: str) -> tuple[float | None, float | None]:
        """The lower and the upper end of what was bounded."""
        end = getattr(self, name)
        return (end.lower, end.upper) if isinstance(end, Interval) else (None, None)


class SweepResults(Spec):
    """What ``hockeystick sweep --json`` prints."""

    out: str
    cells: int
    results: Annotated[tuple[CellOfSweep, ...], Field(min_length=1, max_length=10_000)]


def sweep_page(results: Sequence[CellOfSweep], name: str) -> Page:
    """The page of a sweep.

    Args:
        name: of the file, for the colophon.
    """
    bounded = "delta" if any(isinstance(cell.delta, Interval) for cell in results) else "epsilon"
    certified = [cell for cell in results if isinstance(getattr(cell, bounded), Interval)]
    missing = len(results) - len(certified)
    said = f"{len(certified)} of {len(results)} cells are certified" + (
        "; the table says why the others are not." if missing else "."
    )
    axis = _axis(results)
    plots, left = ([], "") if axis is None else _plots(certified, axis, bounded)
    note = f"At every cell the truth is between the two ends of a band; lines only join the cells. {left}".strip()
    return Page(
        kind="Sweep",
        title=f"{bounded} by {axis or 'cell'}: {len(results)} cells",
        notices=(Notice("plain", f"{said} The numbers are those of the file; nothing was computed again."),),
        blocks=(Plots(f"Bounds on {bounded}", note, plots), _table(results, bounded)),
        colophon=(f"Source: {name}.",),
    )


def _axis(cells: Sequence[CellOfSweep]) -> str | None:
    """The numeric field with the most values; None where there is none with two."""
    counts: dict[str, set[float]] = {}
    for name in cells[0].fields:
        values = [cell.fields.get(name) for cell in cells]
        numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if len(numbers) == len(values):
            counts[name] = set(numbers)
    best = max(counts, key=lambda name: len(counts[name]), default=None)
    return best if best is not None and len(counts[best]) > 1 else None


def _plots(cells: Sequence[CellOfSweep], axis: str, bounded: str) -> tuple[list[Plot], str]:
    """A curve for every combination of the other fields, and a sentence about those that are not drawn."""
    curves: dict[str, list[CellOfSweep]] = {}
    for cell in cells:
        others = {name: value for name, value in cell.fields.items() if name != axis}
        curves.setdefault(fields_text(others) or bounded, []).append(cell)
    names = list(curves)
    plots = []
    for start in range(0, min(len(names), SERIES * MOST_PLOTS), SERIES):
        shown = names[start : start + SERIES]
        series = [_curve(name, curves[name], axis, bounded) for name in shown]
        values = [x for each in series for x in each["x"] if x > 0]
        log = len(values) == sum(len(each["x"]) for each in series) and max(values) >= 20.0 * min(values)
        spec = {
            "title": f"{bounded} by {axis}" + (f", part {start // SERIES + 1}" if len(names) > SERIES else ""),
            "description": "",
            "x": {"label": axis, "scale": "log" if log else "linear"},
            "y": {"label": bounded, "scale": "log" if bounded == "delta" else "linear"},
            "series": series,
        }
        plots.append(Plot("plot", spec))
    more = len(names) - SERIES * MOST_PLOTS
    return plots, f"{more} more curves are in the table only." if more > 0 else ""


def _curve(name: str, cells: Sequence[CellOfSweep], axis: str, bounded: str) -> dict[str, Any]:
    ordered = sorted(cells, key=lambda cell: float(cell.fields[axis]))
    ends = [cell.ends(bounded) for cell in ordered]
    x = [float(cell.fields[axis]) for cell in ordered]
    series = band(name, x, [lower for lower, _ in ends], [upper for _, upper in ends])
    return series | ({"points": True} if len(x) == 1 else {})


def _table(cells: Sequence[CellOfSweep], bounded: str) -> Table:
    given = "delta" if bounded == "epsilon" else "epsilon"
    columns = ("cell", *cells[0].fields, given, f"{bounded}, at least", f"{bounded}, at most", "status")
    rows = []
    for k, cell in enumerate(cells, start=1):
        value = getattr(cell, given)
        ends = between(*cell.ends(bounded)) if isinstance(getattr(cell, bounded), Interval) else ("-", "-")
        text = "-" if value is None or isinstance(value, Interval) else exact(value)
        rows.append((str(k), *(_value(cell.fields.get(name)) for name in cells[0].fields), text, *ends, _status(cell)))
    return Table("All cells", "", columns, rows)


def _status(cell: CellOfSweep) -> str:
    if cell.failure_probability is None:
        return cell.status
    return f"{cell.status}; Monte Carlo, fails with probability at most {number(cell.failure_probability)}"


def fields_text(fields: Mapping[str, Any]) -> str:
    """The values of some fields of a grid in one line."""
    return ", ".join(f"{name} {_value(value)}" for name, value in fields.items())


def _value(value: object) -> str:
    return exact(value) if isinstance(value, bool | int | float | str) else json.dumps(value, ensure_ascii=False)
