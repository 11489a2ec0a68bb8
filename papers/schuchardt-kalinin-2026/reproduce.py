"""Schuchardt, Kalinin (2026): Sampling-free privacy accounting for matrix mechanisms under random allocation.

Figures 1 to 6, which method needs the least noise at which epsilon, how far apart their bounds are, and the paper's
statements judged by our numbers.
Every accountant that is registered for balls-in-bins with correlated noise takes part in the tables, and most of them,
beside sampling, in Figures 2 and 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hockeystick.report.plot import new_figure
from hockeystick.reproduction.curves import Axes, Curve, Series, publish_panels
from hockeystick.reproduction.papers import Output

from .bandwidth import bandwidth_figure, library_figure
from .cost import cost
from .gaps import CONTESTS, gaps, methods
from .runs import (
    BAND,
    BINS,
    EPOCHS,
    GRAMS,
    PANELS,
    POINTS,
    POSTERIORS,
    SAMPLES,
    STRATEGIES,
    allocation_bounds,
    by_distance,
    family_bounds,
    gram_of,
    mechanism,
    panel_series,
    simulated,
    steps_shown,
)
from .statements import numbers, quick_numbers

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


def noise_figure(output: Output, points: int = POINTS, *, name: str, letters: str = "") -> None:
    """Noise multiplier against epsilon: every point is a certified pair, nothing is interpolated."""
    panels = {}
    for letter in letters or PANELS[name]:
        strategy, bins, epochs, _ = PANELS[name][letter]
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
    bands = [band_of(series) for series, _ in panels.values()]
    publish_panels(Shaded(**vars(output), bands=bands), name, panels)


@dataclass
class Shaded(Output):
    """An output that fills a band on every panel: places, and the ends of the band there."""

    bands: Sequence[tuple[Sequence[float], Sequence[float], Sequence[float]]] = ()

    def figure(self, name: str, figure: Any) -> None:
        """Write a PNG file."""
        for plot, (places, lower, upper) in zip(figure.axes, self.bands, strict=True):
            plot.fill_betweenx(places, lower, upper, color=BAND, alpha=0.6, linewidth=0.0, zorder=0.5)
        super().figure(name, figure)


def band_of(series: Series) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    """Where a panel is to be shaded: from the best deterministic lower bound to the best upper one."""
    best = {curve.column: values for curve, values in series.values.items() if curve.method == "best"}
    return series.places, best["best_lower"], best["best_upper"]


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


FIGURES = {
    "figure-1": gram_figure,
    "figure-2": partial(noise_figure, name="figure-2"),
    "figure-3": partial(noise_figure, name="figure-3"),
    "figure-4": partial(posterior_figure, name="figure-4"),
    "figure-5": histogram_figure,
    "figure-6": partial(posterior_figure, name="figure-6"),
    "bandwidth": bandwidth_figure,
    "library": library_figure,
    "cost": cost,
    "methods": methods,
    "gaps": gaps,
    "numbers": numbers,
}
QUICK = {
    "figure-1": partial(gram_figure, points=128),
    "figure-2": partial(noise_figure, name="figure-2", points=2, letters="ad"),
    "figure-3": partial(noise_figure, name="figure-3", points=1, letters="d"),
    "figure-4": partial(posterior_figure, name="figure-4", points=8),
    "figure-5": partial(histogram_figure, points=4_000),
    "figure-6": partial(posterior_figure, name="figure-6", points=4),
    "bandwidth": partial(bandwidth_figure, widths=(1, 2, 5, 25), seconds=0.2),
    "library": partial(library_figure, sigmas=(1.246,)),
    "cost": partial(cost, small=True),
    "methods": partial(methods, points=1, contests=list(CONTESTS)[1:2]),
    "gaps": partial(gaps, points=1, cases=["DP-SGD, N=100, k=1"]),
    "numbers": quick_numbers,
}
