"""Dong, Ganesh (2026): Privacy amplification for BandMF via b-min-sep subsampling.

Figures 2 and 3 on a coarse grid (``full_grid.py`` for all of it), the production run of section 7.4, section 4's
limits against exact accounting, and two datasets that refute Theorem 6.1. All Monte Carlo bounds have fixed seeds and
say their failure probability.
"""

from collections.abc import Sequence
from functools import partial
from math import isfinite, nan, sqrt

import numpy as np

from hockeystick.report.plot import new_figure
from hockeystick.reproduction.papers import Check, Output

from .attribution import attribution_checks
from .cells import COARSE, COARSE_CELLS, FULL, FULL_CELLS, Cell, Scheme, Search, solved
from .limits import LIMITS, first_order_checks, limit_checks, variance_checks
from .production import cyclic_checks, production, production_checks
from .runs import FAILURE, STEPS

CELLS_FILE = "cells.jsonl"
NAMES = {"figure-2": "cyclic_poisson", "figure-3": "balls_in_bins"}
"""With which scheme a figure compares b-min-sep."""
COLUMNS = ("bands", "min_sep", "sigma_lower", "sigma_upper")
SHORT, LONG = 128, 1024
"""The lengths that the text calls low, and that is one epoch."""


def cells_of(output: Output, places: Sequence[tuple[int, float]], search: Search, steps: int) -> list[Cell]:
    """The cells of these places, from the output directory where they are there already."""
    return solved(output.directory / CELLS_FILE, places, search, output.deadline, steps)


def mse_figure(
    output: Output,
    places: Sequence[tuple[int, float]] = tuple(COARSE_CELLS),
    search: Search = COARSE,
    steps: int = STEPS,
    *,
    name: str,
) -> None:
    """The error of b-min-sep over that of another scheme: between which numbers it certainly is, cell by cell."""
    cells = cells_of(output, places, search, steps)
    other = NAMES[name]
    rows = [
        [
            cell.length,
            f"{cell.epsilon:g}",
            *(f"{end:.6g}" for end in cell.ratio(other)),
            *(f"{value:.6g}" for which in (cell.b_min_sep, getattr(cell, other)) for value in described(which)),
        ]
        for cell in cells
    ]
    columns = [f"{scheme}_{column}" for scheme in ("b_min_sep", other) for column in COLUMNS]
    output.table(name, ["epoch_length", "epsilon", "ratio_lower", "ratio_upper", *columns], rows)
    draw(output, cells, name)
    for cell in cells:
        low, high = cell.ratio(other)
        output.lines.append(
            f"|D|/B = {cell.length}, epsilon = {cell.epsilon:g}: error of b-min-sep (p = {cell.b_min_sep.bands}, "
            f"b = {cell.b_min_sep.min_sep}) over {other.replace('_', ' ')} from {low:.4g} to {high:.4g}"
        )
    output.lines.append(
        f"each end of a sampled noise multiplier fails with probability {FAILURE:g}; bands {search.bands}, "
        f"b = bands times {search.factors} or |D|/B"
    )


def described(scheme: Scheme) -> tuple[float, ...]:
    """The values of COLUMNS."""
    return tuple(getattr(scheme, column) for column in COLUMNS)


def draw(output: Output, cells: Sequence[Cell], name: str) -> None:
    """The cells as squares, with the least and the largest possible ratio."""
    lengths, epsilons = (sorted({getattr(cell, axis) for cell in cells}) for axis in ("length", "epsilon"))
    grid = np.full((len(lengths), len(epsilons)), nan)
    figure = new_figure(figsize=(1.6 + 1.3 * len(epsilons), 1.6 + 0.9 * len(lengths)))
    plot = figure.subplots()
    for cell in cells:
        row, column = lengths.index(cell.length), epsilons.index(cell.epsilon)
        low, high = cell.ratio(NAMES[name])
        if low > 0.0 and isfinite(high):
            grid[row, column] = sqrt(low * high)
        plot.text(column, row, f"{low:.2f} to {high:.2f}", ha="center", va="center", fontsize=8)
    shown = plot.imshow(grid, cmap="RdBu_r", vmin=0.5, vmax=1.5, aspect="auto")
    figure.colorbar(shown, ax=plot, label="ratio of mean squared errors")
    plot.set_xticks(range(len(epsilons)), [f"{one:g}" for one in epsilons])
    plot.set_yticks(range(len(lengths)), [str(one) for one in lengths])
    plot.set_xlabel(r"$\varepsilon$")
    plot.set_ylabel("|D|/B")
    plot.set_title(f"b-min-sep over {NAMES[name].replace('_', ' ')}", fontsize=10)
    output.figure(name, figure)


def limits(output: Output, seconds: float = 30.0, count: int | None = None) -> None:
    """Section 4: sampled intervals against exact accounting, and the limits of small and large noise."""
    sampled = limit_checks(LIMITS[:count], output.deadline, seconds)
    output.checks("limits", [*sampled, *variance_checks(), *first_order_checks()])


# --- the statements about Figures 2 and 3 -----------------------------------------------------------------------------


def numbers(
    output: Output,
    places: Sequence[tuple[int, float]] = tuple(COARSE_CELLS),
    search: Search = COARSE,
    steps: int = STEPS,
) -> None:
    """The printed numbers of section 7.4, section 7.1's statements on these cells, and Theorem 6.1."""
    cells = cells_of(output, places, search, steps)
    of_cells = [check for cell in cells for check in cell_checks(cell)]
    output.checks("numbers", [*of_cells, *production_checks(), *cyclic_checks(), *attribution_checks()])


def cell_checks(cell: Cell) -> list[Check]:
    """What section 7.1 says of a cell; an open interval proves nothing either way."""
    where = f"|D|/B = {cell.length}, epsilon = {cell.epsilon:g}"
    poisson, bins = cell.ratio("cyclic_poisson"), cell.ratio("balls_in_bins")
    checks = []
    if cell.length > SHORT or cell.epsilon > 1.0:
        checks.append(below_one(f"b-min-sep improves on cyclic Poisson, {where}", "<", poisson))
    else:
        checks.append(below_one(f"b-min-sep does not improve on cyclic Poisson, {where}", ">=", poisson))
    if cell.length < LONG:
        checks.append(below_one(f"b-min-sep improves on balls-in-bins, {where}", "<", bins))
    else:
        checks.append(below_one(f"b-min-sep is no worse than balls-in-bins, {where}", "<=", bins))
    return checks


def below_one(what: str, relation: str, ratio: tuple[float, float]) -> Check:
    """Judge a statement about a ratio by the interval that it lies in."""
    low, high = ratio
    proved, refuted = {
        "<": (high < 1.0, low >= 1.0),
        "<=": (high <= 1.0, low > 1.0),
        ">=": (low >= 1.0, high < 1.0),
    }[relation]
    note = f"from {low:.4g} to {high:.4g}"
    if not proved:
        note += "; refuted by the other end" if refuted else "; open"
    return Check(what, relation, 1.0, low if relation == ">=" else high, proved, note)


FIGURES = {
    "figure-2": partial(mse_figure, name="figure-2"),
    "figure-3": partial(mse_figure, name="figure-3"),
    "production": production,
    "limits": limits,
    "numbers": numbers,
}
FULL_FIGURES = {
    name: partial(mse_figure, places=tuple(FULL_CELLS), search=FULL, name=name) for name in ("figure-2", "figure-3")
}
"""The same with the paper's grid: hours. See full_grid.py."""
