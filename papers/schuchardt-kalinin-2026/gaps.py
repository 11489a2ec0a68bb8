"""How close the accountants are: the noise that each needs for an epsilon, and the gaps that their bounds leave."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp, inf, isnan, log, nan, sqrt
from operator import itemgetter
from string import ascii_lowercase
from typing import Any

import numpy as np

import hockeystick as hs
from hockeystick.errors import VerificationError
from hockeystick.reproduction.curves import Axes, Curve, Series, publish_panels
from hockeystick.reproduction.papers import Output

from .runs import (
    ACCOUNTANTS,
    IN_GAPS,
    LOWER,
    STRATEGIES,
    UPPER,
    deterministic_at,
    epsilon_of,
    mechanism,
    monte_carlo_band,
    registered_curves,
    titled,
)

# --- where each method wins -------------------------------------------------------------------------------------------

EPSILONS = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25)
LOOSENESS = 0.99
"""The epsilon that a noise multiplier of the table is certified for, over the one asked for, at least."""
TRIES = 30
NEWER = ("moment_majorant", *IN_GAPS)
"""Left out of the table of noise multipliers, where they take minutes each."""
CONTESTS: dict[str, tuple[str, int, int]] = {
    "BSR, p=4, N=1000, k=10": ("BSR, p=4", 100, 10),
    "BSR, p=64, N=100, k=1": ("BSR, p=64", 100, 1),
    "BandMF, p=64, N=100, k=1": ("BandMF, p=64", 100, 1),
}


def methods(output: Output, points: int = len(EPSILONS), contests: Sequence[str] = ()) -> None:
    """The noise multiplier that each of the older methods certifies for epsilon, and the one that needs the least."""
    rows: list[tuple[str, str, str, dict[str, float]]] = []
    for name in contests or CONTESTS:
        strategy, bins, epochs = CONTESTS[name]
        run = partial(mechanism, STRATEGIES[strategy], bins, epochs)
        needed: dict[str, list[float]] = {}
        for curve in registered_curves(run, 1.0):
            if curve.method in NEWER:
                continue
            best = np.fmin.reduce([values for column, values in needed.items() if column.endswith("_upper")] or [[1.0]])
            starts = np.broadcast_to(np.nan_to_num(best, nan=1.0), points).tolist()
            needed[curve.column] = noise_needed(curve, EPSILONS[:points], starts, output)
        for i, epsilon in enumerate(EPSILONS[:points]):
            at = {column: values[i] for column, values in needed.items() if not isnan(values[i])}
            uppers = [column for column in at if column.endswith("_upper")]
            winner = min(uppers, key=lambda column: at[column]).removesuffix("_upper")
            rows.append((name, f"{epsilon:g}", winner, at))
    columns = list(dict.fromkeys(column for *_, at in rows for column in at))
    header = ["mechanism", "epsilon", "least_noise", *columns]
    output.table("methods", header, [[*row, *(at.get(column, "") for column in columns)] for *row, at in rows])
    shown = [[*row, *(f"{at[column]:.4g}" if column in at else "" for column in columns)] for *row, at in rows]
    widths = [max(len(row[i]) for row in [header, *shown]) for i in range(len(header))]
    for row in [header, *shown]:
        output.lines.append("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def noise_needed(
    curve: Curve,
    epsilons: Sequence[float],
    starts: Sequence[float],
    output: Output,
) -> list[float]:
    """For each epsilon the noise multiplier of a method, on the side of its bound. nan where none is found.

    Upper: one at which the method certifies at most epsilon, and at least 0.99 epsilon. Lower: one at which it shows
    that at least epsilon is spent, and at most 1.01 epsilon.

    Args:
        starts: for each epsilon where to begin the search, until there are values to go by.
    """
    seen: dict[float, float] = {}

    def search(epsilon: float, sigma: float) -> float:
        least, most = (LOOSENESS * epsilon, epsilon) if curve.side is UPPER else (epsilon, epsilon / LOOSENESS)
        for _ in range(TRIES):
            sigma = near(seen, sqrt(least * most), sigma)
            value = epsilon_of(curve, sigma, output)
            if least <= value <= most:
                return sigma
            if isnan(value):
                break
            if 0.0 < value < inf:
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


# --- gaps -------------------------------------------------------------------------------------------------------------

LEAST, MOST = 0.3, 3.0
GAP_POINTS = 2
"""Epsilons, in geometric progression between them."""
CASES: dict[str, tuple[str, int, int]] = {
    **{f"{strategy}, N=100, k=1": (strategy, 100, 1) for strategy in STRATEGIES},
    "BSR, p=4, N=1000, k=10": ("BSR, p=4", 100, 10),
}
REFERENCE = "comparison"
"""Chooses the noise multipliers: its upper bound, which is quick and never refuses, is the nominal epsilon."""


@dataclass(frozen=True)
class Place:
    """One mechanism and the bounds on its epsilon by accountant, as far as there are any.

    Attributes:
        case, epsilon: what is plotted where; ``REFERENCE`` certifies this epsilon, and so the true one is smaller.
        sigma: the noise multiplier.
    """

    case: str
    epsilon: float
    sigma: float
    lower: Mapping[str, float]
    upper: Mapping[str, float]

    def least(self, methods: Collection[str] = ACCOUNTANTS) -> float:
        """The best lower bound of the methods; nan if they have none above 0."""
        return max((value for name, value in self.lower.items() if name in methods), default=nan)

    def most(self, methods: Collection[str] = ACCOUNTANTS) -> float:
        """The best upper bound of the methods; nan if they have none."""
        return min((value for name, value in self.upper.items() if name in methods), default=nan)

    def ends(self) -> tuple[tuple[str, float], tuple[str, float]]:
        """The best lower and the best upper bound, each with the method that gave it."""
        return max(self.lower.items(), key=itemgetter(1)), min(self.upper.items(), key=itemgetter(1))

    def excess(self, method: str) -> float:
        """By which share of the truth an upper bound is too large, at most."""
        return self.most([method]) / self.least() - 1.0

    def gap(self, methods: Collection[str]) -> float:
        """How far the two sides of the methods are apart, as a share of the lower one."""
        return self.most(methods) / self.least(methods) - 1.0


def gaps(output: Output, points: int = GAP_POINTS, cases: Sequence[str] = ()) -> None:
    """What the bounds of every accountant leave open, for every case and epsilon.

    Upper bounds are compared with the best lower bound of all accountants, Monte Carlo among them: the truth is between
    the two. Where an accountant has both sides, also with its own lower bound.
    """
    epsilons = np.geomspace(LEAST, MOST, points).tolist()
    places_by_case = {case: places_of(case, epsilons, output) for case in cases or CASES}
    places = [place for places in places_by_case.values() for place in places]
    header = ["case", "comparison_epsilon", "sigma", "method", "lower", "upper", "gap", "excess"]
    output.table("gaps", header, [row for place in places for row in rows_of(place)])
    axes = {
        "places": "comparison_epsilon",
        "x": r"$\varepsilon$ that comparison certifies",
        "y": "upper bound / lower bound - 1",
        "log": "xy",
        "top": 30.0,
    }
    panels = {
        ascii_lowercase[i]: (gap_series(case, places), Axes(title=case, ticks=epsilons, bottom=1e-6, **axes))
        for i, (case, places) in enumerate(places_by_case.items())
    }
    publish_panels(output, "gaps", panels)
    output.lines += markdown(places)
    output.lines.append(f"no lower bound is above an upper one: the largest share is {check_sides(places):.6f}")


def check_sides(places: Sequence[Place]) -> float:
    """The largest ratio of a lower bound to an upper bound of the same mechanism.

    Raises: VerificationError where it is above 1, as one of the two is then wrong.
    """
    closest = max(places, key=lambda place: place.least() / place.most())
    (lower, least), (upper, most) = closest.ends()
    if least > most:
        raise VerificationError(
            f"At sigma = {closest.sigma!r} of {closest.case} the lower bound {least!r} of {lower} is above the upper "
            f"bound {most!r} of {upper}."
        )
    return least / most


def places_of(case: str, epsilons: Sequence[float], output: Output) -> list[Place]:
    """Every bound of a case at the noise multipliers at which ``REFERENCE`` certifies epsilon."""
    strategy, bins, epochs = CASES[case]
    run = partial(mechanism, STRATEGIES[strategy], bins, epochs)
    line = titled(run, f"{REFERENCE}_upper", method=REFERENCE)
    starts = [2.0 * sqrt(epochs / epsilon) for epsilon in epsilons]
    sigmas = noise_needed(line, epsilons, starts, output)
    bounds = {**deterministic_at(run, sigmas, output), **monte_carlo_band(run, sigmas, output)}

    def of_side(side: hs.Side, i: int) -> dict[str, float]:
        return {curve.method: values[i] for curve, values in bounds.items() if curve.side is side and values[i] > 0.0}

    return [
        Place(case, epsilon, sigma, of_side(LOWER, i), of_side(UPPER, i))
        for i, (epsilon, sigma) in enumerate(zip(epsilons, sigmas, strict=True))
    ]


def rows_of(place: Place) -> list[list[Any]]:
    """One row of the table for every accountant that says something."""
    rows = []
    for method in dict.fromkeys([*place.upper, *place.lower]):
        values = (place.least([method]), place.most([method]), place.gap([method]), place.excess(method))
        texts = ["" if isnan(value) else f"{value:.8g}" for value in values]
        rows.append([place.case, f"{place.epsilon:.4g}", repr(place.sigma), method, *texts])
    return rows


def gap_series(case: str, places: Sequence[Place]) -> Series:
    """For every accountant the excess of its upper bounds, and the gap between its own sides where it has two."""
    strategy, bins, epochs = CASES[case]
    run = partial(mechanism, STRATEGIES[strategy], bins, epochs)
    curves: dict[Curve, list[float]] = {}
    for method in dict.fromkeys(method for place in places for method in place.upper):
        known = titled(run, f"{method}_upper", method=method)
        style = {**known.style, "marker": "o", "markersize": 3.0}
        label = known.label.removesuffix(", upper")
        curves[replace(known, column=f"{method}_excess", label=label, style=style)] = [
            place.excess(method) for place in places
        ]
        gaps_of_its_own = [place.gap([method]) for place in places]
        if not all(isnan(gap) for gap in gaps_of_its_own):
            dotted = {**style, "linestyle": ":", "marker": "x"}
            label = f"{label}, its own two sides"
            curves[replace(known, column=f"{method}_gap", label=label, style=dotted)] = gaps_of_its_own
    return Series([place.epsilon for place in places], curves)


def markdown(places: Sequence[Place]) -> list[str]:
    """The table of the README: the best deterministic bounds, their gap and the excess of upper bounds, in percent."""
    deterministic = [name for name, method in ACCOUNTANTS.items() if method.kind is hs.Kind.DETERMINISTIC]
    methods = [name for name in ACCOUNTANTS if name != "gaussian" and any(name in place.upper for place in places)]
    lines = [
        f"| case | sigma | lower | upper | gap | {' | '.join(methods)} |",
        "|---|---|---|---|---|" + "---|" * len(methods),
    ]
    for place in places:
        excess = (f"{100.0 * place.excess(name):.3g}" if name in place.upper else "" for name in methods)
        ends = f"{place.least(deterministic):.4f} | {place.most(deterministic):.4f}"
        gap = f"{100.0 * place.gap(deterministic):.2g}"
        lines.append(f"| {place.case} | {place.sigma:.4g} | {ends} | {gap} | {' | '.join(excess)} |")
    return lines
