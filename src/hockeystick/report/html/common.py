"""Pieces that several reports have."""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from hockeystick.certificate import number

SERIES = 6
"""Curves of one plot: as many as there are colours, dashes and marks."""


def known(value: float | None) -> float | None:
    """The value where something is known; None for one that is infinite."""
    return None if value is None or not isfinite(value) else float(value)


def between(lower: float | None, upper: float | None) -> tuple[str, str]:
    """The two ends as text, each rounded to its side."""
    return (
        "no lower bound" if known(lower) is None else number(float(lower or 0.0), up=False),
        "no upper bound" if known(upper) is None or upper is None else number(upper),
    )


def band(name: str, x: Iterable[float], lower: Iterable[float | None], upper: Iterable[float | None]) -> dict[str, Any]:
    """A series of ``plots.js`` between its bounds."""
    return {
        "name": name,
        "x": [float(place) for place in x],
        "lower": [known(end) for end in lower],
        "upper": [known(end) for end in upper],
    }


def methods_plot(title: str, description: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The epsilons of several methods, on a logarithmic axis where they are far apart."""
    values = [value for row in rows for value in (row["lower"], row["upper"]) if value]
    far = bool(values) and max(values) > 20.0 * min(values)
    return {
        "title": title,
        "description": description,
        "x": {"label": "epsilon", "scale": "log" if far else "linear"},
        "rows": list(rows),
    }
