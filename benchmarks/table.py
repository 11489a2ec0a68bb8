"""Results as text."""

from collections.abc import Sequence
from textwrap import fill

from benchmarks.contestants import CONTESTANTS, OURS
from benchmarks.runner import Result

HEADER = (
    "contestant",
    "lower",
    "upper",
    "gap",
    "value/ours",
    "seconds",
    "first",
    "time/ours",
    "peak MB",
    "import MB",
    "status",
)


def table(results: Sequence[Result]) -> str:
    """The rows of one workload. ``value/ours`` compares upper bounds."""
    ours = next((result for result in results if result.contestant == OURS), None)
    rows = [HEADER, *(_row(result, ours) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    first = results[0]
    return "\n".join([f"## {first.workload} ({first.asks})", *lines])


def contradictions(results: Sequence[Result]) -> list[str]:
    """Peers whose claims cannot hold together with ours."""
    ours = next((result for result in results if result.contestant == OURS), None)
    if ours is None:
        return []
    lines = []
    for other in results:
        if other.lower is not None and ours.upper is not None and other.lower > ours.upper:
            lines.append(f"{other.contestant}'s lower bound {other.lower:.9g} is above our upper {ours.upper:.9g}")
        if other.upper is not None and ours.lower is not None and other.upper < ours.lower:
            lines.append(f"{other.contestant}'s upper bound {other.upper:.9g} is below our lower {ours.lower:.9g}")
    return lines


def settings(results: Sequence[Result]) -> str:
    """How every contestant was asked."""
    names = dict.fromkeys(result.contestant for result in results)
    return "\n".join(f"{name}: {CONTESTANTS[name].note}" for name in names)


def _row(result: Result, ours: Result | None) -> tuple[str, ...]:
    seconds = result.seconds if result.seconds is not None else result.first_seconds
    status = result.status if not result.note else f"{result.status}; {result.note}"
    if result.status == "ok" and result.estimate is not None and result.asks != "batches":
        status = f"{status}; estimate {result.estimate:.6g}"
    if result.asks == "batches" and result.estimate and seconds:
        status = f"{status}; {result.estimate / seconds:,.0f} batches/s"
    ours_seconds = None if ours is None else ours.seconds
    return (
        result.contestant,
        _number(result.lower),
        _number(result.upper),
        "" if result.gap is None else f"{100.0 * result.gap:.3g}%",
        _ratio(result.upper, None if ours is None else ours.upper),
        "" if seconds is None else f"{seconds:.3g}",
        "" if result.first_seconds is None else f"{result.first_seconds:.3g}",
        _ratio(seconds, ours_seconds),
        "" if result.peak_mb is None else f"{result.peak_mb:.0f}",
        "" if result.baseline_mb is None else f"{result.baseline_mb:.0f}",
        status,
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.7g}"


def _ratio(value: float | None, reference: float | None) -> str:
    return "" if value is None or not reference else f"{value / reference:.4g}"


def wrapped(line: str) -> str:
    """A paragraph in lines of at most 120 characters; headings and rows of tables stay as they are."""
    return line if line[:1] in ("", "|", "#") else fill(line, 120, break_on_hyphens=False)
