"""Curves as text, CSV, JSON and plots, by the suffix of the file."""

import csv
import json
import os
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from hockeystick.certificate import number
from hockeystick.curve import Curve
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.files import check_writable, write_atomically
from hockeystick.report.document import aligned
from hockeystick.report.plot import FORMATS, new_figure, save_figure

DATA_FORMATS = (".csv", ".json")


def check_curve_path(path: str | Path) -> Path:
    """Check a path for curves before the work is done.

    Raises: InvalidInputError when its suffix is not a known format or it cannot be written; UnsupportedError for a plot
    when matplotlib is not installed.
    """
    known = (*DATA_FORMATS, *FORMATS)
    suffix = Path(path).suffix.lower()
    if suffix not in known:
        raise InvalidInputError(
            f"The output path must end in {', '.join(known[:-1])} or {known[-1]}. "
            f"Got {shortened(os.fspath(path))} instead."
        )
    if suffix in FORMATS:
        new_figure()
    return check_writable(path)


def save_curves(curves: Sequence[Curve], path: str | Path, *, delta: float) -> None:
    """Write curves whole or not at all; the suffix names the format."""
    check_curve_path(path)
    suffix = Path(path).suffix.lower()
    if suffix == ".csv":
        write_atomically(path, curves_csv(curves))
    elif suffix == ".json":
        content = {"delta": delta, "curves": [curve.as_json() for curve in curves]}
        write_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
    else:
        plot_curves(curves, path)


def curves_csv(curves: Sequence[Curve]) -> str:
    """One line a point: noise multiplier, which curve, place, lower and upper bound; numbers come without a place."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("noise_multiplier", "curve", "x", "lower", "upper"))
    for curve in curves:
        sigma = repr(curve.mechanism.sigma)
        for name, sandwich in (("delta_by_epsilon", curve.profile), ("type_two_by_type_one_error", curve.trade_off)):
            columns = (sandwich.x.tolist(), sandwich.lower.tolist(), sandwich.upper.tolist())
            writer.writerows((sigma, name, *map(repr, row)) for row in zip(*columns, strict=True))
        writer.writerows((sigma, name, "", repr(lower), repr(upper)) for name, (lower, upper) in curve.numbers.items())
    return out.getvalue()


def curves_table(curves: Sequence[Curve], *, delta: float) -> str:
    """The numbers of every curve, a column each: at least .. at most, rounded outwards."""
    rows = [("noise multiplier", *(f"{curve.mechanism.sigma:.6g}" for curve in curves))]
    for name in curves[0].numbers:
        title = f"epsilon at delta = {delta:g}" if name == "epsilon" else TITLES.get(name, name)
        rows.append((title, *(_between(*curve.numbers[name]) for curve in curves)))
    return aligned(rows)


TITLES = {
    "mu": "mu of GDP, up to 1e-10",
    "regret": "regret of that mu",
    "tpr_at_fpr_0.1": "true positives at fpr 0.1",
    "tpr_at_fpr_0.01": "true positives at fpr 0.01",
    "tpr_at_fpr_0.001": "true positives at fpr 0.001",
    "bayes_error": "error of a guess at even odds",
}


def _between(lower: float, upper: float) -> str:
    return f"{number(lower, up=False)} .. {number(upper) if upper < float('inf') else 'unknown'}"


def plot_curves(curves: Sequence[Curve], path: str | Path) -> None:
    """delta by epsilon beside the trade-off curve; the band of each curve lies between its two bounds."""
    figure = new_figure(figsize=(9, 4.2))
    left, right = figure.subplots(1, 2)
    smallest = min(float(curve.profile.upper.min()) for curve in curves)
    for k, curve in enumerate(curves):
        color, label = f"C{k % 10}", f"sigma = {curve.mechanism.sigma:.5g}"
        for axes, sandwich in ((left, curve.profile), (right, curve.trade_off)):
            axes.fill_between(sandwich.x, sandwich.lower, sandwich.upper, color=color, alpha=0.3, linewidth=0)
            axes.plot(sandwich.x, sandwich.upper, color=color, label=label)
            axes.plot(sandwich.x, sandwich.lower, color=color, linestyle="--", linewidth=0.8)
    left.set_yscale("log")
    left.set_ylim(bottom=0.5 * smallest, top=1.0)
    left.set_xlabel("epsilon")
    left.set_ylabel("delta")
    right.plot([0.0, 1.0], [1.0, 0.0], color="gray", linestyle=":", linewidth=0.8)
    right.set_xlabel("type I error (false positive rate)")
    right.set_ylabel("type II error (1 - true positive rate)")
    left.legend(fontsize=8)
    save_figure(figure, path)
