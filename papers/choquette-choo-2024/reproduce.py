"""Choquette-Choo, Ganesh, Steinke, Thakurta (2024): Privacy amplification for matrix mechanisms.

Figures 2, 3, 4 and 8, the limit of large noise and the constants of Theorem 5.2 (not in the paper), and the printed
numbers and statements judged by our numbers. The accounting of Figure 3 only: the runs themselves are not repeated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import hockeystick as hs
from hockeystick.reproduction.curves import Axes, Curve, Series, publish_panels
from hockeystick.reproduction.papers import Output

from .independent import RATE, STEPS, limit
from .runs import (
    CIFAR_DELTA,
    CYCLE,
    DELTA,
    FAMILIES,
    LOWER,
    TREES,
    UPPER,
    Family,
    amplified,
    cyclic,
    fitted,
    poisson,
    restart,
    training,
)
from .statements import EPSILONS, LIMIT_SIGMAS, numbers, quick_numbers
from .tree import tree_figure

EPSILON, SIGMA, PLACE = r"$\varepsilon$", r"noise multiplier $\sigma$", r"$\sqrt{\log_2 n + 1}$"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
BELOW = {"linestyle": ":"}
PRINTED: dict[str, Any] = {"linestyle": (0, (1, 1)), "linewidth": 0.8}
SPLIT: dict[str, Any] = {"linestyle": "-.", "marker": "x", "markersize": 3}


def curve(column: str, label: str, method: str, side: hs.Side = UPPER, **style: Any) -> Curve:
    """An entry of a legend for values that are there already."""

    def run(sigma: float) -> hs.Mechanism:
        return poisson(hs.SquareRoot(), RATE, STEPS, sigma)

    return Curve(column=column, label=label, mechanism=run, method=method, side=side, style=style)


def series(places: Sequence[float], rows: Sequence[object], columns: Mapping[Curve, str]) -> Series:
    """One attribute of the rows for every curve."""
    return Series(places, {label: [getattr(row, name) for row in rows] for label, name in columns.items()})


def as_printed(column: str, label: str, **style: Any) -> Curve:
    """An entry for an algorithm as printed, which no certificate rests on."""
    return curve(column, f"{label} (not certified)", "as printed", **PRINTED, **style)


# --- Figures 2 and 8 --------------------------------------------------------------------------------------------------


def improvement_figure(output: Output, family: Family | None = None, *, name: str) -> None:
    """epsilon with and without amplification, and the ratio with its least-squares line."""
    family = family or FAMILIES[name]
    places: list[float] = []
    epsilons: dict[Curve, list[float]] = {}
    ratios: dict[Curve, list[float]] = {}
    for colour, c in zip(COLOURS, family.multipliers, strict=False):
        points = amplified(family, c, output)
        places, key, line = [point.place for point in points], f"c{c:g}", {"color": colour}
        fit = fitted(points)
        epsilons |= series(
            places,
            points,
            {
                curve(
                    f"{key}_alone_upper", f"no amplification, c = {c:g}", "gaussian", **line, linewidth=0.8
                ): "alone_upper",
                curve(f"{key}_mmcc_upper", f"MMCC, c = {c:g}", "mmcc", **line, marker="."): "upper",
                curve(f"{key}_split_upper", f"split noise, c = {c:g}", "split_noise", **line, **SPLIT): "split",
                curve(f"{key}_lower", f"lower bound, c = {c:g}", "linear_statistic", LOWER, **line, **BELOW): "lower",
                as_printed(f"{key}_not_certified_algorithm_2", f"Algorithm 2 as printed, c = {c:g}", **line): "printed",
            },
        ).values
        ratios |= series(
            places,
            points,
            {
                curve(f"{key}_improvement_lower", f"MMCC, c = {c:g}", "mmcc", LOWER, **line, marker="."): "at_least",
                curve(
                    f"{key}_split_improvement_lower", f"split noise, c = {c:g}", "split_noise", LOWER, **line, **SPLIT
                ): "split_at_least",
                curve(
                    f"{key}_improvement_upper", f"lower bound, c = {c:g}", "linear_statistic", **line, **BELOW
                ): "at_most",
                as_printed(f"{key}_not_certified_algorithm_2", f"Algorithm 2 as printed, c = {c:g}", **line): (
                    "printed_improvement"
                ),
            },
        ).values
        style = {**line, "linestyle": "--", "linewidth": 0.8}
        ratios[curve(f"{key}_fit", f"least squares, c = {c:g}", "mmcc", **style)] = [
            fit.slope * place + fit.intercept for place in places
        ]
        output.lines.append(
            f"c = {c:g}: slope {fit.slope:.4g}, intercept {fit.intercept:.4g}, R^2 {fit.explained:.4f}, "
            f"exponent {fit.exponent:.3g}; n = {2 ** points[-1].exponent}: epsilon from {points[-1].lower:.5g} to "
            f"{points[-1].upper:.5g}, by split noise {points[-1].split:.5g}, without amplification "
            f"{points[-1].alone_upper:.5g}"
        )
    title = f"{family.strategy.kind.replace('_', ' ')}, p = 1/n, delta = {DELTA:g}"
    panels = {
        "a": (Series(places, epsilons), over_height(EPSILON, title, "y")),
        "b": (Series(places, ratios), over_height("improvement of epsilon", title, "")),
    }
    publish_panels(output, name, panels, columns=2)


def over_height(label: str, title: str, log: str) -> Axes:
    """Over the square root of the height of the tree."""
    return Axes(places="sqrt_log2_n_plus_1", x=PLACE, y=label, title=title, log=log)


# --- Figure 3 ---------------------------------------------------------------------------------------------------------


def training_figure(output: Output, epsilons: Sequence[float] = EPSILONS, bins: int = 100, epochs: int = 20) -> None:
    """epsilon of the same training run with amplification over that without, for both kinds of tree."""
    panels = {}
    for letter, name in zip("ab", TREES, strict=True):
        points = [training(name, epsilon, output, bins, epochs) for epsilon in epsilons]
        shown = series(
            [point.before for point in points],
            points,
            {
                curve("noise_multiplier", "noise multiplier", "gaussian", color="#999999", linewidth=0.8): "sigma",
                curve("without_upper", "without amplification", "gaussian", color="black"): "before",
                curve("mmcc_upper", "MMCC", "mmcc", color=COLOURS[0], marker="."): "upper",
                curve("split_upper", "split noise", "split_noise", color=COLOURS[2], **SPLIT): "split",
                curve("lower", "lower bound", "linear_statistic", LOWER, color=COLOURS[0], **BELOW): "lower",
                as_printed("not_certified_algorithm_2", "Algorithm 2 as printed", color=COLOURS[0]): "printed",
            },
        )
        axes = Axes(
            places="before",
            x=f"{EPSILON} without amplification",
            y=f"{EPSILON}, noise multiplier",
            title=f"{name}, {bins * epochs} steps, p = 1/{bins}, delta = {CIFAR_DELTA:g}",
            log="xy",
            ticks=epsilons,
        )
        panels[letter] = (shown, axes)
        output.lines += [
            f"{name}, sigma = {point.sigma:.4g}: epsilon {point.before:.4g} without amplification, with it from "
            f"{point.lower:.4g} to {point.upper:.4g}, by split noise {point.split:.4g}"
            for point in points
        ]
    publish_panels(output, "figure-3", panels, columns=2)


# --- Figure 4 ---------------------------------------------------------------------------------------------------------


FIGURE_SIGMAS = tuple(np.geomspace(4.0, 256.0, 25).tolist())


def restart_figure(output: Output, sigmas: Sequence[float] = FIGURE_SIGMAS, steps: int = 512) -> None:
    """epsilon over sigma: MMCC with Poisson sampling against cyclic Poisson sampling, which is exact."""
    points = [restart(sigma, output, steps) for sigma in sigmas]
    shown = series(
        list(sigmas),
        points,
        {
            curve("poisson_mmcc_upper", "Poisson, MMCC", "mmcc", color=COLOURS[0], marker="."): "mmcc",
            curve("poisson_split_upper", "Poisson, split noise", "split_noise", color=COLOURS[2], **SPLIT): "split",
            curve("poisson_lower", "Poisson, lower bound", "linear_statistic", LOWER, color=COLOURS[0], **BELOW): (
                "poisson_lower"
            ),
            curve("cyclic_upper", "cyclic Poisson", "direct", color=COLOURS[1]): "cyclic_upper",
            curve(
                "cyclic_lower", "cyclic Poisson, lower bound", "direct", LOWER, color=COLOURS[1], **BELOW
            ): "cyclic_lower",
            as_printed("not_certified_algorithm_2", "Poisson, Algorithm 2 as printed", color=COLOURS[0]): "printed",
        },
    )
    title = f"tree restart, h = 4, n = {steps}, p = 1/16, delta = {DELTA:g}"
    publish_panels(output, "figure-4", {"": (shown, over_sigma(EPSILON, title))}, columns=1)


def over_sigma(label: str, title: str, log: str = "xy") -> Axes:
    """Over the noise multiplier."""
    return Axes(places="sigma", x=SIGMA, y=label, title=title, log=log)


# --- Algorithm 4 ------------------------------------------------------------------------------------------------------


def cyclic_figure(output: Output, sigmas: Sequence[float] = FIGURE_SIGMAS, steps: int = CYCLE["steps"]) -> None:
    """Not in the paper: Generalized-MMCC as printed, which is refuted, beside the one that is certified."""
    points = [cyclic(sigma, output, steps) for sigma in sigmas]
    shown = series(
        list(sigmas),
        points,
        {
            curve("mmcc_upper", "Generalized-MMCC, certified", "generalized_mmcc", color=COLOURS[0]): "upper",
            curve("lower", "lower bound", "linear_statistic", LOWER, color=COLOURS[0], **BELOW): "lower",
            as_printed("refuted_algorithm_4", "Algorithm 4 as printed, refuted", color=COLOURS[1]): "printed",
        },
    )
    groups, rate = CYCLE["groups"], CYCLE["inverse_rate"]
    title = f"square root, n = {steps}, b = {groups}, p = 1/{rate}, delta = {DELTA:g}"
    publish_panels(output, "algorithm-4", {"": (shown, over_sigma(EPSILON, title))}, columns=1)
    output.lines += [
        f"sigma = {point.sigma:.4g}: epsilon at least {point.lower:.5g}, certified {point.upper:.5g}, Algorithm 4 as "
        f"printed {point.printed:.5g} (refuted)"
        for point in points
    ]


# --- the limit --------------------------------------------------------------------------------------------------------


def limit_figure(
    output: Output, sigmas: Sequence[float] = LIMIT_SIGMAS, steps: int = STEPS, rate: float = RATE
) -> None:
    """Not in the paper: MMCC over independent rows, which are no bound but what both sides tend to."""
    points = [limit(sigma, output, steps, rate) for sigma in sigmas]
    epsilons = series(
        list(sigmas),
        points,
        {
            curve("mmcc_upper", "MMCC", "mmcc", color=COLOURS[0], marker="."): "mmcc",
            curve("lower", "lower bound", "linear_statistic", LOWER, color=COLOURS[0], **BELOW): "lower",
            curve("independent_rows", "independent rows (not a bound)", "direct", color="#999999", linestyle="--"): (
                "independent"
            ),
        },
    )
    ratios = {
        label: [getattr(point, name) / point.independent for point in points]
        for label, name in (
            (curve("mmcc_upper", "MMCC", "mmcc", color=COLOURS[0], marker="."), "mmcc"),
            (curve("lower", "lower bound", "linear_statistic", LOWER, color=COLOURS[0], **BELOW), "lower"),
        )
    }
    title = f"square root, n = {steps}, p = {rate:g}, delta = {DELTA:g}"
    panels = {
        "a": (epsilons, over_sigma(EPSILON, title)),
        "b": (Series(list(sigmas), ratios), over_sigma("over independent rows", title)),
    }
    publish_panels(output, "limit", panels, columns=2)
    output.lines += [
        f"sigma = {point.sigma:g}: epsilon from {point.lower:.5g} to {point.mmcc:.5g}; independent rows (not a bound) "
        f"{point.independent:.5g}, MMCC {point.mmcc / point.independent:.5g} times that"
        for point in points
    ]


FIGURES = {
    "figure-2": partial(improvement_figure, name="figure-2"),
    "figure-3": training_figure,
    "figure-4": restart_figure,
    "figure-8": partial(improvement_figure, name="figure-8"),
    "algorithm-4": cyclic_figure,
    "limit": limit_figure,
    "theorem-5-2": tree_figure,
    "numbers": numbers,
}
QUICK = {
    **{
        name: partial(improvement_figure, name=name, family=replace(family, exponents=family.exponents[:5]))
        for name, family in FAMILIES.items()
    },
    "figure-3": partial(training_figure, epsilons=(0.5, 2.0), bins=32, epochs=4),
    "figure-4": partial(restart_figure, sigmas=(8.0, 32.0, 128.0), steps=128),
    "algorithm-4": partial(cyclic_figure, sigmas=(8.0, 64.0), steps=32),
    "limit": partial(limit_figure, sigmas=(8.0, 128.0), steps=16),
    "numbers": quick_numbers,
}
