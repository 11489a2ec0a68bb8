"""Plots. Matplotlib is loaded here and nowhere else; it comes with the ``plot`` extra."""

import os
from collections.abc import Sequence
from io import BytesIO
from math import inf
from pathlib import Path
from typing import Any

from hockeystick.certificate import number
from hockeystick.certification.schedule import Outcome
from hockeystick.errors import InvalidInputError, UnsupportedError, install, shortened
from hockeystick.files import check_writable, write_atomically
from hockeystick.report.table import in_order
from hockeystick.types import Side

FORMATS = (".png", ".pdf", ".svg")
COLOURS = ("tab:orange", "tab:blue")
"""The colours of upper and of lower bounds."""
LOG_FROM = 10.0
"""Bounds that differ by this factor, or more, are drawn on a logarithmic axis."""


def new_figure(**options: Any) -> Any:
    """A matplotlib figure that needs no screen.

    Raises: UnsupportedError when matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UnsupportedError(f"Plots need matplotlib, which is not installed; {install('plot')}.") from None
    return Figure(layout="constrained", **options)


def check_plot_path(path: str | Path) -> Path:
    """Check a path for a plot before the work is done.

    Raises: InvalidInputError when its suffix is not a known format or it cannot be written.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise InvalidInputError(
            f"The plot path must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}. "
            f"Got {shortened(os.fspath(path))} instead."
        )
    return check_writable(path)


def save_figure(figure: Any, path: str | Path) -> None:
    """Write a figure whole or not at all; the suffix names the format."""
    check_plot_path(path)
    buffer = BytesIO()
    figure.savefig(buffer, format=Path(path).suffix[1:].lower(), dpi=200)
    write_atomically(path, buffer.getvalue())


def plot_comparison(outcomes: Sequence[Outcome], path: str | Path, *, title: str) -> None:
    """One horizontal bar for every bound that has a value; lower bounds are hatched.

    Where one is off by a factor of 10 the axis is logarithmic, and a bound of 0 has no bar, only its number.
    """
    shown = [outcome for outcome in in_order(outcomes) if outcome.value is not None][::-1]
    figure = new_figure(figsize=(7, 0.8 + 0.4 * len(shown)))
    axes = figure.subplots()
    values = [outcome.value for outcome in shown if outcome.value is not None and 0.0 < outcome.value < inf]
    left = 0.0
    if values and max(values) >= LOG_FROM * min(values):
        left = 0.5 * min(values)
        axes.set_xscale("log")
    for row, outcome in enumerate(shown):
        lower, value = outcome.side is Side.LOWER, max(outcome.value or 0.0, left)
        axes.barh(row, value - left, left=left, color=COLOURS[lower], hatch="//" if lower else None)
        axes.annotate(f" {number(outcome.value or 0.0, up=not lower)}", (value, row), va="center")
    axes.set_yticks(range(len(shown)), [f"{outcome.method} ({outcome.side.value})" for outcome in shown])
    axes.margins(x=0.15)
    axes.set_xlim(left=left)
    axes.set_xlabel("epsilon")
    axes.set_title(title, fontsize=9)
    save_figure(figure, path)
