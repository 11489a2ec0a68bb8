"""Schuchardt, Kalinin (2026): Sampling-free privacy accounting for matrix mechanisms under random allocation.

Figures 1 to 6, which method needs the least noise at which epsilon, and the paper's statements judged by our numbers.
Every accountant that is registered for balls-in-bins with correlated noise takes part, in Figures 2 and 3 by sampling
too.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import exp, isnan, log, nan, sqrt
from typing import Any

import numpy as np

import hockeystick as hs
from hockeystick.report.curves import PLOT_NODES, Axes, Curve, Series, publish_panels
from hockeystick.report.papers import Output
from hockeystick.report.plot import new_figure

from .runs import (
    BINS,
    DELTA,
    EPOCHS,
    GRAMS,
    PANELS,
    POINTS,
    POSTERIORS,
    SAMPLES,
    STRATEGIES,
    UPPER,
    allocation_bounds,
    by_distance,
    family_bounds,
    gram_of,
    mechanism,
    panel_series,
    registered_curves,
    simulated,
    steady,
    steps_shown,
)
from .statements import numbers

EPSILON, SIGMA = r"$\varepsilon$", r"$\sigma$"

# --- Figure 1 ---------------------------------------------------------------------------------------------------------


def gram_figure(output: Output, points: int = 300) -> None:
    """Figure 1: the Gram matrices, and in the table their extreme entries at every cyclic distance."""
    grams = {name: gram_of(name, points) for name in GRAMS}
    figure = new_figure(figsize=(15.0, 4.2))
    for plot, (name, gram) in zip(figure.subplots(1, len(grams)), grams.items(), strict=True):
        figure.colorbar(plot.imshow(gram, cmap="viridis"), ax=plot, shrink=0.7)
        plot.set_title(f"{name}, N = {10 * points}, k = 10", fontsize=10)
    output.figure("figure-1", figure)
    extremes = {name: by_distance(gram) for name, gram in grams.items()}
    header = ["cyclic_distance", *(f"{name}: {which}" for name in grams for which in ("smallest", "largest"))]
    rows = [
        [distance, *(repr(float(values[distance])) for both in extremes.values() for values in both)]
        for distance in range(points // 2 + 1)
    ]
    output.table("figure-1", header, rows)


# --- Figures 2 and 3 --------------------------------------------------------------------------------------------------


def noise_figure(output: Output, points: int = POINTS, *, name: str) -> None:
    """Noise multiplier against epsilon: every point is a certified pair, nothing is interpolated."""
    panels = {}
    for letter, (strategy, bins, epochs, _) in PANELS[name].items():
        axes = Axes(
            places="sigma",
            x=EPSILON,
            y=f"noise multiplier {SIGMA}",
            title=f"{strategy}, N = {bins * epochs}, k = {epochs}",
            log="xy",
            left=0.1,
            right=16.0,
            ticks=(0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
            swapped=True,
        )
        panels[letter] = (panel_series(output, points, name, letter), axes)
    publish_panels(output, name, panels)


# --- Figures 4 and 6 --------------------------------------------------------------------------------------------------

ALLOCATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "ours_upper": ("union over groups (ours, certified)", {"color": "#0072b2"}),
    "union_upper": ("union (paper)", {"color": "black", "linewidth": 1.0}),
    "epoch_max_from_1": ("per-epoch max (e >= 1) (paper, not certified)", {"color": "#e69f00", "linestyle": "--"}),
    "epoch_max_from_2": ("per-epoch max (e >= 2) (paper, not certified)", {"color": "#d55e00", "linestyle": ":"}),
    "max": ("max (paper, not certified)", {"color": "#999999", "linestyle": "-."}),
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "1": ("Option 1: uniform", {"color": "black", "linewidth": 1.0}),
    "12": ("Options 1 + 2", {"color": "#0072b2", "linestyle": ":"}),
    "13": ("Options 1 + 3", {"color": "#d55e00"}),
    "123": ("Options 1 + 2 + 3", {"color": "#009e73", "linestyle": "--"}),
}


def posterior_figure(output: Output, points: int = 100, *, name: str) -> None:
    """The bound on the largest component's posterior probability at about ``points`` steps."""
    panels = {}
    for letter, (strategy, sigma) in POSTERIORS[name].items():
        steps = steps_shown(points)
        values = (allocation_bounds if name == "figure-4" else family_bounds)(strategy, sigma, steps, output)
        styles = ALLOCATIONS if name == "figure-4" else FAMILIES
        run = partial(mechanism, STRATEGIES[strategy], BINS, EPOCHS)
        curves = {
            Curve(
                column=key if name == "figure-4" else f"options_{'_'.join(key)}",
                label=label,
                mechanism=run,
                method="conditional_composition",
                style=style,
            ): values[key].tolist()
            for key, (label, style) in styles.items()
        }
        axes = Axes(
            places="step",
            x="step n",
            y=r"bound on $\lambda_b$",
            title=f"{strategy}, N = {BINS * EPOCHS}, k = {EPOCHS}, {SIGMA} = {sigma:g}",
            log="y",
        )
        panels[letter] = (Series(steps, curves), axes)
    publish_panels(output, name, panels, columns=2)


# --- Figure 5 ---------------------------------------------------------------------------------------------------------


def histogram_figure(output: Output, points: int = SAMPLES) -> None:
    """Figure 5: the privacy loss behind the posterior at the end of an epoch and at the start of the next one."""
    figure = new_figure(figsize=(12.0, 6.4))
    rows = []
    for plot, (step, losses) in zip(figure.subplots(2, 3).flat, simulated(points).items(), strict=True):
        heights, edges = np.histogram(losses, bins=80, density=True)
        plot.stairs(heights, edges, fill=True, color="#0072b2")
        plot.set_xlim(-2.0, 2.0)
        plot.set_title(f"step {step}", fontsize=10)
        rows += [[step, *(f"{x:.6g}" for x in row)] for row in zip(edges, edges[1:], heights, strict=False)]
    output.figure("figure-5", figure)
    output.table("figure-5", ["step", "from", "to", "density"], rows)


# --- where each method wins -------------------------------------------------------------------------------------------

EPSILONS = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25)
LOOSENESS = 0.99
"""The epsilon that a noise multiplier of the table is certified for, over the one asked for, at least."""
TRIES = 30
CONTESTS: dict[str, tuple[str, int, int]] = {
    "BSR, p=4, N=1000, k=10": ("BSR, p=4", 100, 10),
    "BSR, p=64, N=100, k=1": ("BSR, p=64", 100, 1),
    "BandMF, p=64, N=100, k=1": ("BandMF, p=64", 100, 1),
}


def methods(output: Output, points: int = len(EPSILONS)) -> None:
    """The noise multiplier that each method certifies for epsilon, and the method that needs the least."""
    found: list[tuple[str, str, str, dict[str, float]]] = []
    for name, (strategy, bins, epochs) in CONTESTS.items():
        run = partial(mechanism, STRATEGIES[strategy], bins, epochs)
        needed: dict[str, list[float]] = {}
        for curve in registered_curves(run, 1.0):
            best = np.fmin.reduce([values for column, values in needed.items() if column.endswith("_upper")] or [[1.0]])
            starts = np.broadcast_to(np.nan_to_num(best, nan=1.0), points).tolist()
            needed[curve.column] = noise_needed(curve, EPSILONS[:points], starts, output)
        for i, epsilon in enumerate(EPSILONS[:points]):
            at = {column: values[i] for column, values in needed.items() if not isnan(values[i])}
            uppers = [column for column in at if column.endswith("_upper")]
            winner = min(uppers, key=lambda column: at[column]).removesuffix("_upper")
            found.append((name, f"{epsilon:g}", winner, at))
    columns = list(dict.fromkeys(column for *_, at in found for column in at))
    header = ["mechanism", "epsilon", "least_noise", *columns]
    output.table("methods", header, [[*row, *(at.get(column, "") for column in columns)] for *row, at in found])
    shown = [[*row, *(f"{at[column]:.4g}" if column in at else "" for column in columns)] for *row, at in found]
    widths = [max(len(row[i]) for row in [header, *shown]) for i in range(len(header))]
    for row in [header, *shown]:
        output.lines.append("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def noise_needed(curve: Curve, epsilons: Sequence[float], starts: Sequence[float], output: Output) -> list[float]:
    """For each epsilon the noise multiplier of a method, on the side of its bound. nan where none is found.

    Upper: one at which the method certifies at most epsilon, and at least 0.99 epsilon. Lower: one at which it shows
    that at least epsilon is spent, and at most 1.01 epsilon.

    Args:
        starts: for each epsilon where to begin the search, until there are values to go by.
    """
    settings = hs.Settings(hs.Resolution(PLOT_NODES, DELTA), steady(output).watch)
    seen: dict[float, float] = {}

    def search(epsilon: float, sigma: float) -> float:
        least, most = (LOOSENESS * epsilon, epsilon) if curve.side is UPPER else (epsilon, epsilon / LOOSENESS)
        for _ in range(TRIES):
            sigma = near(seen, sqrt(least * most), sigma)
            output.watch.tick()
            value = hs.bound(curve.mechanism(sigma), curve.method, side=curve.side, settings=settings).epsilon(DELTA)
            if least <= value <= most:
                return sigma
            if 0.0 < value < float("inf"):
                seen[sigma] = value
            else:
                sigma *= 2.0 if value > epsilon else 0.5
        return nan

    return [search(epsilon, start) for epsilon, start in zip(epsilons, starts, strict=True)]


def near(seen: Mapping[float, float], epsilon: float, otherwise: float) -> float:
    """The noise multiplier for epsilon by the line through the two nearest values seen, in logarithms."""
    closest = sorted(seen, key=lambda sigma: abs(log(seen[sigma] / epsilon)))[:2]
    if not closest:
        return otherwise
    (x, y), *more = [(log(sigma), log(seen[sigma] / epsilon)) for sigma in closest]
    slope = max(((x - other_x) / (y - other_y) for other_x, other_y in more if other_y != y), default=-1.0)
    return exp(x - y * min(max(slope, -2.0), -0.2))


FIGURES = {
    "figure-1": gram_figure,
    "figure-2": partial(noise_figure, name="figure-2"),
    "figure-3": partial(noise_figure, name="figure-3"),
    "figure-4": partial(posterior_figure, name="figure-4"),
    "figure-5": histogram_figure,
    "figure-6": partial(posterior_figure, name="figure-6"),
    "methods": methods,
    "numbers": numbers,
}
