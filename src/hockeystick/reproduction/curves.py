"""What the reproductions of papers share: curves of bounds, their plots and tables, and claims to be judged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite, isnan, nan
from typing import Any

from hockeystick.bounds import Bound, Question
from hockeystick.certification.issue import bound
from hockeystick.certification.schedule import DELTA_NODES, EPSILON_NODES
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.mechanism import Mechanism
from hockeystick.report.plot import new_figure
from hockeystick.reproduction.papers import Check, Output
from hockeystick.settings import Settings
from hockeystick.types import Side

PLOT_NODES = 48
"""Nodes per unit of score for plots: the two sides of the direct method then lie within a line's width."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """One bound, followed along the horizontal axis.

    Attributes:
        column: name of the CSV column; upper bounds end in ``_upper``, lower ones in ``_lower``.
        label: entry of the legend.
        mechanism: from what varies to what is run.
        method, side: the accountant.
        style: matplotlib options of the line.
    """

    column: str
    label: str
    mechanism: Callable[[float], Mechanism]
    method: str
    side: Side = Side.UPPER
    style: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Series:
    """Curves evaluated at the same places; nan where a bound says nothing."""

    places: Sequence[float]
    values: Mapping[Curve, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Axes:
    """How a series is drawn.

    Attributes:
        places: CSV name of what varies.
        x, y, title: labels.
        log: "x", "y", "xy" or "": the logarithmic axes.
        bottom, top: limits of the vertical axis.
        left, right: limits of the horizontal axis.
        ticks: places to label, where the automatic labels would crowd.
        swapped: draw the places upwards and the values to the right.
    """

    places: str
    x: str
    y: str
    title: str
    log: str
    bottom: float | None = None
    top: float | None = None
    left: float | None = None
    right: float | None = None
    ticks: Sequence[float] = ()
    swapped: bool = False


def sweep(
    curves: Sequence[Curve],
    places: Sequence[float],
    question: Question,
    output: Output,
    smallest_delta: float | None = None,
) -> Series:
    """One bound for every curve and place, all answering the same question.

    Args:
        smallest_delta: when delta at an epsilon is asked for, about the smallest to expect.
    """
    settings = _settings(question.delta or smallest_delta, PLOT_NODES, output)

    def value(curve: Curve, place: float) -> float:
        output.deadline.tick()
        try:
            answer = question.answer(bound(curve.mechanism(place), curve.method, side=curve.side, settings=settings))
        except UnsupportedError:
            return nan
        return answer if isfinite(answer) else nan

    return Series(places, {curve: [value(curve, place) for place in places] for curve in curves})


def profiles(curves: Sequence[Curve], at: float, epsilons: Sequence[float], output: Output) -> Series:
    """delta at every epsilon, from one bound for every curve: ``curve.mechanism(at)``'s."""
    settings = _settings(None, PLOT_NODES, output)

    def of_curve(curve: Curve) -> list[float]:
        output.deadline.tick()
        profile = bound(curve.mechanism(at), curve.method, side=curve.side, settings=settings)
        return [profile.delta(epsilon) for epsilon in epsilons]

    return Series(epsilons, {curve: of_curve(curve) for curve in curves})


def precise(
    mechanism: Mechanism, method: str, output: Output, side: Side = Side.UPPER, delta: float | None = None
) -> Bound:
    """One bound on grids half as fine again as those of certify: printed numbers are compared to three or four digits.

    Args:
        delta: where the profile matters; None for the whole profile.
    """
    nodes = 3 * (DELTA_NODES if delta is None else EPSILON_NODES) // 2
    return bound(mechanism, method, side=side, settings=_settings(delta, nodes, output))


def _settings(delta: float | None, nodes: int, output: Output) -> Settings:
    resolution = Resolution(nodes) if delta is None else Resolution(nodes, delta)
    return Settings(resolution, output.deadline)


def publish(output: Output, name: str, series: Series, axes: Axes) -> None:
    """Write a series as a CSV file, whose first column holds the places, and as a plot."""
    _write(output, name, series, axes)
    figure = new_figure(figsize=(6.4, 4.8))
    _draw(figure.subplots(), series, axes)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    output.figure(name, figure)


def publish_panels(output: Output, name: str, panels: Mapping[str, tuple[Series, Axes]], columns: int = 3) -> None:
    """Several series in one plot with a common legend, and a CSV file ``<name><panel>`` for each of them."""
    rows = -(-len(panels) // columns)
    figure = new_figure(figsize=(0.4 + 4.0 * columns, 1.2 + 3.4 * rows))
    entries: dict[str, Any] = {}
    for place, (letter, (series, axes)) in enumerate(panels.items(), start=1):
        plot = figure.add_subplot(rows, columns, place)
        _write(output, f"{name}{letter}", series, axes)
        _draw(plot, series, axes)
        handles, labels = plot.get_legend_handles_labels()
        entries.update(zip(labels, handles, strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, fontsize=8)
    output.figure(name, figure)


def _write(output: Output, name: str, series: Series, axes: Axes) -> None:
    rows = [
        [f"{place:.12g}", *("" if isnan(values[i]) else repr(values[i]) for values in series.values.values())]
        for i, place in enumerate(series.places)
    ]
    output.table(name, [axes.places, *(curve.column for curve in series.values)], rows)


def _draw(plot: Any, series: Series, axes: Axes) -> None:
    log = "x" if axes.swapped else "y"
    for curve, values in series.values.items():
        shown = [nan if log in axes.log and value <= 0.0 else value for value in values]
        across, upwards = (shown, series.places) if axes.swapped else (series.places, shown)
        plot.plot(across, upwards, label=curve.label, **curve.style)
    plot.set_xscale("log" if "x" in axes.log else "linear")
    plot.set_yscale("log" if "y" in axes.log else "linear")
    plot.set_ylim(bottom=axes.bottom, top=axes.top)
    plot.set_xlim(left=axes.left, right=axes.right)
    if axes.ticks:
        plot.set_xticks([], minor=True)
        plot.set_xticks(axes.ticks, [f"{tick:g}" for tick in axes.ticks])
    plot.set_xlabel(axes.x)
    plot.set_ylabel(axes.y)
    plot.set_title(axes.title, fontsize=10)
    plot.grid(True, alpha=0.3)


def judge(
    what: str, relation: str, printed: str, *, upper: float | None = None, lower: float | None = None, why: str = ""
) -> Check:
    """Judge one printed number by our certified bounds on the same quantity.

    An inequality is read as it stands: ``<`` and ``<=`` need our upper bound, ``>`` and ``>=`` our lower bound, below
    or above the printed number itself. ``~`` needs both bounds to round to the printed digits.

    Args:
        printed: the number as printed; its digits say to what it was rounded.
        upper, lower: ours; a side that is not needed serves to say that the claim is false, not merely unproved.
        why: a known reason, shown only if the claim is not confirmed.
    """
    number = float(printed)
    if relation == "~":
        if upper is None or lower is None:
            raise InvalidInputError("The relation '~' needs an upper and a lower bound.")
        holds = _rounds_to(upper, printed) and _rounds_to(lower, printed)
        ours, contradicted = (
            upper,
            not (lower <= number + _half_unit(printed) and upper >= number - _half_unit(printed)),
        )
    elif relation in ("<", "<=") and upper is not None:
        holds = upper < number or (relation == "<=" and upper == number)
        ours, contradicted = upper, lower is not None and lower > number
    elif relation in (">", ">=") and lower is not None:
        holds = lower > number or (relation == ">=" and lower == number)
        ours, contradicted = lower, upper is not None and upper < number
    else:
        raise InvalidInputError(f"The relation {relation!r} needs a bound on its own side.")
    if holds:
        return Check(what, relation, number, ours, True)
    notes = ["the same to the printed digits, but rounded the wrong way"] if _rounds_to(ours, printed) else []
    notes += ["refuted by our bound on the other side"] if contradicted else []
    return Check(what, relation, number, ours, False, "; ".join([*notes, *([why] if why else [])]))


def _half_unit(printed: str) -> float:
    """Half a unit of the last printed digit, and a little for the number's own rounding."""
    exponent = Decimal(printed).as_tuple().exponent
    if not isinstance(exponent, int):
        raise InvalidInputError(f"The printed number must be finite. Got {printed!r} instead.")
    return 0.5 * 10.0**exponent * (1.0 + 1e-9)


def _rounds_to(value: float, printed: str) -> bool:
    return abs(value - float(printed)) <= _half_unit(printed)
