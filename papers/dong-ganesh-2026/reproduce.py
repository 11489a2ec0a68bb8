"""Dong, Ganesh (2026): Privacy amplification for BandMF via b-min-sep subsampling.

Figures 2 and 3 from the cells that ``grid.py`` has computed, one cell of them anew, the production run of section 7.4,
section 4's limits against exact accounting, contribution bounding, the noise behind Figures 4 and 5, and two datasets
that refute Theorem 6.1. All Monte Carlo bounds have fixed seeds and say their failure probability.
"""

from collections.abc import Sequence
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from hockeystick.report.plot import new_figure
from hockeystick.reproduction.papers import Check, Output

from .attribution import attribution_checks
from .bounding import bounding, bounding_checks
from .cells import GRID, KEPT, PLACES, Cell, Search, estimate, kept
from .learning import learning_noise, published_checks
from .limits import LIMITS, first_order_checks, limit_checks, variance_checks
from .production import cyclic_checks, production, production_checks
from .runs import FAILURE, STEPS
from .scaling import scaling, truncated_check

NAMES = {"figure-2": "cyclic_poisson", "figure-3": "balls_in_bins"}
"""With which scheme a figure compares b-min-sep."""
SHORT, LONG = 128, 1024
"""The lengths that the text calls low, and that is one epoch."""


def mse_figure(output: Output, path: Path = KEPT, *, name: str) -> None:
    """The error of b-min-sep over that of another scheme, cell by cell, from the file of cells.

    A ratio is an interval where the noise is certified, else an estimate. One panel for at most 32 bands, as in the
    paper, and one for at most 64.
    """
    cells, other = kept(path), NAMES[name]
    rows = []
    for cell in cells:
        low, middle, high = cell.ratio(other)
        chosen = [
            getattr(getattr(cell, scheme), field) for scheme in ("b_min_sep", other) for field in ("bands", "min_sep")
        ]
        ends = [f"{low:.4g}", f"{high:.4g}"] if cell.certified else ["", ""]
        rows.append([cell.length, f"{cell.epsilon:g}", cell.most_bands, f"{middle:.4g}", *ends, *chosen])
    header = ["epoch_length", "epsilon", "most_bands", "ratio", "ratio_lower", "ratio_upper"]
    header += [f"{scheme}_{field}" for scheme in ("b_min_sep", other) for field in ("bands", "min_sep")]
    output.table(name, header, rows)
    figure = new_figure(figsize=(15.0, 5.0))
    for place, limit in enumerate(GRID.limits, start=1):
        draw(figure.add_subplot(1, 2, place), [cell for cell in cells if cell.most_bands == limit], other, limit)
    output.figure(name, figure)
    done = sum(cell.certified for cell in cells)
    output.lines.append(f"{len(cells)} of {2 * len(PLACES)} cells were computed, {done} of them are certified:")
    output.lines += [described(cell, other) for cell in cells]
    output.lines.append(f"each end of a certified noise multiplier fails with probability {FAILURE:g}")


def described(cell: Cell, other: str) -> str:
    """A line about a cell."""
    low, middle, high = cell.ratio(other)
    ends = f", certainly from {low:.4g} to {high:.4g}" if cell.certified else ", an estimate"
    return (
        f"|D|/B = {cell.length}, epsilon = {cell.epsilon:g}, at most {cell.most_bands} bands: error of b-min-sep "
        f"(p = {cell.b_min_sep.bands}, b = {cell.b_min_sep.min_sep}) over {other.replace('_', ' ')} "
        f"(p = {getattr(cell, other).bands}) {middle:.4g}{ends}"
    )


def draw(plot: Any, cells: Sequence[Cell], other: str, limit: int) -> None:
    """The cells as squares; those that were not computed stay white."""
    lengths, epsilons = (sorted({place[axis] for place in PLACES}) for axis in (0, 1))
    grid = np.full((len(lengths), len(epsilons)), nan)
    for cell in cells:
        row, column = lengths.index(cell.length), epsilons.index(cell.epsilon)
        low, middle, high = cell.ratio(other)
        grid[row, column] = middle
        text = f"{middle:.2f}\n{low:.2f} to {high:.2f}" if cell.certified and low < high else f"{middle:.2f}"
        plot.text(column, row, text, ha="center", va="center", fontsize=8)
    shown = plot.imshow(grid, cmap="RdBu_r", vmin=0.5, vmax=1.5, aspect="auto")
    plot.figure.colorbar(shown, ax=plot, label="ratio of mean squared errors")
    plot.set_xticks(range(len(epsilons)), [f"{epsilon:g}" for epsilon in epsilons])
    plot.set_yticks(range(len(lengths)), [str(length) for length in lengths])
    plot.set(xlabel=r"$\varepsilon$", ylabel="|D|/B")
    plot.set_title(f"b-min-sep over {other.replace('_', ' ')}, at most {limit} bands", fontsize=10)


def cell(output: Output, place: tuple[int, float] = (128, 0.5), search: Search = GRID, steps: int = STEPS) -> None:
    """One cell anew: the same estimates as those that are kept."""
    for ours in estimate(*place, search, output.deadline, steps):
        output.lines += [described(ours, other) + f"; {ours.seconds:g} processor seconds" for other in NAMES.values()]


def limits(output: Output, count: int | None = None) -> None:
    """Section 4: sampled intervals against exact accounting, and the limits of small and large noise."""
    sampled = limit_checks(LIMITS[:count], output.deadline)
    output.checks("limits", [*sampled, *variance_checks(), *first_order_checks()])


# --- the statements about Figures 2 and 3 -----------------------------------------------------------------------------


def numbers(output: Output, path: Path = KEPT) -> None:
    """The printed numbers of section 7.4, section 7.1's statements on the kept cells, Theorem 6.1 and Appendix C."""
    of_cells = [check for cell in kept(path) if cell.most_bands == GRID.limits[0] for check in cell_checks(cell)]
    groups = (production_checks(), cyclic_checks(), [truncated_check()], attribution_checks(), bounding_checks())
    output.checks("numbers", [*of_cells, *(check for group in groups for check in group), *published_checks()])


def cell_checks(cell: Cell) -> list[Check]:
    """What section 7.1 says of a cell; an open interval proves nothing either way, and that of an estimate is open."""
    where = f"|D|/B = {cell.length}, epsilon = {cell.epsilon:g}"
    poisson, bins = (cell.ratio(other) for other in NAMES.values())
    if cell.length > SHORT or cell.epsilon > 1.0:
        first = below_one(f"b-min-sep improves on cyclic Poisson, {where}", "<", poisson)
    else:
        first = below_one(f"b-min-sep does not improve on cyclic Poisson, {where}", ">=", poisson)
    if cell.length < LONG:
        return [first, below_one(f"b-min-sep improves on balls-in-bins, {where}", "<", bins)]
    return [first, below_one(f"b-min-sep is no worse than balls-in-bins, {where}", "<=", bins)]


def below_one(what: str, relation: str, ratio: tuple[float, float, float]) -> Check:
    """Judge a statement about a ratio by the interval that it lies in."""
    low, _, high = ratio
    proved, refuted = {
        "<": (high < 1.0, low >= 1.0),
        "<=": (high <= 1.0, low > 1.0),
        ">=": (low >= 1.0, high < 1.0),
    }[relation]
    note = f"from {low:.4g} to {high:.4g}"
    if not proved:
        note += "; contradicted by the other end" if refuted else "; open"
    return Check(what, relation, 1.0, low if relation == ">=" else high, proved, note)


FIGURES = {
    "figure-2": partial(mse_figure, name="figure-2"),
    "figure-3": partial(mse_figure, name="figure-3"),
    "cell": cell,
    "production": production,
    "scaling": scaling,
    "bounding": bounding,
    "learning-noise": learning_noise,
    "limits": limits,
    "numbers": numbers,
}
QUICK = {
    "cell": partial(cell, search=Search(bands=(2, 4), limits=(4,)), steps=256),
    "production": partial(production, work=1.0, calibrated=False),
    "scaling": scaling,
    "bounding": partial(bounding, users=2_000, examples=1_500, steps=20),
    "learning-noise": partial(learning_noise, epsilons=(2.0,), bands=(2, 16), papers=(2.0,), budget=5.0, sampled=False),
    "limits": partial(limits, count=2),
}
