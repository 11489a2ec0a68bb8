"""Appendix B: the trade-off of effective bandwidth and order (B.1), and the settings of the numerical library (B.2)."""

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from hockeystick.laws.profile import smallest_epsilon
from hockeystick.moments.bands import banded_cost, banded_moments, scaled_gram
from hockeystick.pairs.registry import dominating_pair
from hockeystick.posteriors.bins.hazards import tail_bounds
from hockeystick.posteriors.bins.levels import levelled_means
from hockeystick.reproduction.curves import Axes, Curve, Series, publish, publish_panels
from hockeystick.reproduction.papers import Check, Output
from hockeystick.types import Direction

from .allocation import largest_of_each_epoch, paper_shares
from .printed_renyi import add_divergence, printed_epsilons
from .runs import DELTA, STRATEGIES, UPPER, mechanism, paper_epsilon

# --- B.1 --------------------------------------------------------------------------------------------------------------

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 21, 25, 32)
SECONDS = 2.0
"""That one set of moments may take; with more, larger orders go with larger bandwidths."""
CASES = {"a": ("BISR, p=4", 6.0), "b": ("BISR, p=4", 0.6), "c": ("BLT", 6.0), "d": ("BLT", 0.5)}
"""Strategies that are not banded, at an epsilon below 1 and at a large one; N = 100, k = 1."""
LARGEST = 64


def bandwidth_figure(output: Output, widths: Sequence[int] = WIDTHS, seconds: float = SECONDS) -> None:
    """epsilon by Algorithm 3 over the effective bandwidth: by order 2 alone, and by all orders that the time allows."""
    panels = {}
    checks: list[Check] = []
    for letter, (strategy, sigma) in CASES.items():
        by_width = [
            output.kept.value(
                f"bandwidth {strategy} {sigma:g} {width} {seconds:g}",
                lambda at=(strategy, sigma, width): of_width(*at, seconds, output),
            )
            for width in widths
        ]
        run = partial(mechanism, STRATEGIES[strategy], 100, 1)
        columns = {
            "order_2": "order 2 alone",
            "best": "best order of those affordable",
            "largest_order": "largest order",
        }
        styles: dict[str, dict[str, Any]] = {"largest_order": {"color": "#999999", "linestyle": "--"}}
        curves = {
            Curve(
                column=key, label=label, mechanism=run, method="as printed", style=styles.get(key, {"marker": "."})
            ): [row[key] for row in by_width]
            for key, label in columns.items()
        }
        axes = Axes(
            places="effective_bandwidth",
            x="effective bandwidth p",
            y=r"$\varepsilon$; largest order",
            title=rf"{strategy}, N = 100, k = 1, $\sigma$ = {sigma:g}, {seconds:g} s",
            log="xy",
            ticks=(1, 2, 5, 10, 25),
        )
        panels[letter] = (Series(list(widths), curves), axes)
        best = min(range(len(widths)), key=lambda place: by_width[place]["best"])
        least, largest = by_width[best], [row["largest_order"] for row in by_width]
        output.lines += [
            f"{strategy}, sigma = {sigma:g}: least epsilon {least['best']:.4g} at p = {widths[best]} by order "
            f"{least['order']:g}; by order 2 alone from {by_width[0]['order_2']:.4g} to {by_width[-1]['order_2']:.4g}",
            "  largest order: " + ", ".join(f"{a:g} at p = {p}" for a, p in zip(largest, widths, strict=True)),
        ]
        where = f"{strategy}, sigma={sigma:g} (eps {by_width[best]['best']:.3g})"
        if by_width[best]["best"] < 1.0:
            what = f"B.1: the best effective bandwidth at small eps, {where}"
            checks.append(Check(what, "<=", 5, widths[best], widths[best] <= 5, f"order {least['order']:g}"))
        widest = max(width for width, row in zip(widths, by_width, strict=True) if row["largest_order"] >= 2)
        checks.append(Check(f"B.1: order 2 is affordable up to p, {where}", ">=", 25, widest, widest >= 25))
    publish_panels(output, "bandwidth", panels, columns=2)
    output.checks("bandwidth-verdicts", checks)


def of_width(strategy: str, sigma: float, width: int, seconds: float, output: Output) -> dict[str, float]:
    """epsilon by Theorem 3.1 and Algorithm 3 with an effective bandwidth."""
    output.deadline.tick()
    pair = dominating_pair(mechanism(STRATEGIES[strategy], 100, 1, sigma))
    scaled = scaled_gram(pair.gram, pair.rounding, pair.noise_multiplier)
    affordable = [a for a in range(2, LARGEST + 1) if banded_cost(pair.bins, width - 1, a, False) <= seconds]
    share = not affordable
    if share:
        affordable = [a for a in range(2, LARGEST + 1) if banded_cost(pair.bins, width - 1, a, True) <= seconds]
    largest = max(affordable, default=2)
    moments = banded_moments(scaled, width, largest, share=share)
    orders = moments.orders
    add = add_divergence(np.asarray(pair.gram) / sigma**2, orders)
    each = [printed_epsilons(moments.values[[i]], orders[[i]], add[[i]], DELTA)[0] for i in range(orders.size)]
    best = int(np.argmin(each))
    return {
        "order_2": each[0],
        "best": each[best],
        "order": float(orders[best]),
        "largest_order": float(largest),
    }


# --- B.2 --------------------------------------------------------------------------------------------------------------

SUPPORT, LOG_MASS, TAIL = 1000, -50.0, 1e-15
"""Points of the widest step's law; log mass truncation of the steps; tail mass truncation of the composition."""


def library_figure(output: Output, sigmas: Sequence[float] = (0.7, 1.246, 2.2)) -> None:
    """Conditional composition with the settings of B.2 beside our laws at the same allocation: DP-SGD, N = 100, k = 1.

    Left out, with a line that says so, where dp_accounting is not installed.
    """
    if find_spec("dp_accounting") is None:
        output.lines.append("left out: the settings of B.2 need dp_accounting, of the extra 'interop'")
        return
    run = partial(mechanism, STRATEGIES["DP-SGD"], 100, 1)
    theirs, ours, paper = [], [], []
    for sigma in sigmas:
        theirs.append(output.kept.value(f"library {sigma:g}", lambda at=sigma: library_epsilon(run(at), output)))
        paper.append(output.kept.value(f"library laws {sigma:g}", lambda at=sigma: paper_epsilon(run(at), output)))
        ours.append(theirs[-1] / paper[-1])
    entry = partial(Curve, mechanism=run, method="B.2")
    curves = {
        entry(column="dp_accounting_not_certified", label="settings of B.2 (not certified)"): theirs,
        entry(column="our_laws_not_certified", label="our laws, the same allocation"): paper,
    }
    axes = Axes(places="sigma", x=r"$\sigma$", y=r"$\varepsilon$", title="DP-SGD, N = 100, k = 1", log="xy")
    publish(output, "library", Series(list(sigmas), curves), axes)
    note = ", ".join(f"{ratio:.4g} at sigma={sigma:g}" for ratio, sigma in zip(ours, sigmas, strict=True))
    what = "B.2: eps with the paper's grid / with ours, largest"
    output.checks("library-verdicts", [Check(what, "<=", 1.05, max(ours), max(ours) <= 1.05, note)])


def library_epsilon(run: Any, output: Output) -> float:
    """epsilon by dp_accounting: half of delta for the bad event, at most 1000 points a step, connect the dots."""
    from dp_accounting.pld.privacy_loss_distribution import from_mixture_gaussian_mechanism as mixture

    pair = dominating_pair(run)
    means = pair.means()
    levelled = levelled_means(means, pair.rounding)
    rows = np.arange(pair.matrix.rows)
    shares = paper_shares(pair.matrix.rows, pair.bins, pair.epochs)
    tries = dict.fromkeys(Direction, np.array([0.5 * DELTA]))
    tick, noise = output.deadline.tick, pair.noise_multiplier
    bounds = tail_bounds(means, noise, pair.rounding, levelled, rows, tries, shares, tick)
    epsilons = []
    for direction, tails in bounds.items():
        largest = largest_of_each_epoch(pair.bins, tails[0])
        weights = largest - np.append(largest[:, 1:], np.zeros((rows.size, 1)), axis=1)
        distinct, copies = np.unique(weights, axis=0, return_counts=True)

        def law(row: Any, interval: float) -> Any:
            used = row > 0.0
            return mixture(
                pair.noise_multiplier,
                levelled.values[used].tolist(),
                (row[used] / row[used].sum()).tolist(),
                log_mass_truncation_bound=LOG_MASS,
                value_discretization_interval=interval,
                use_connect_dots=True,
            )

        interval = 1e-2
        widest = max(distinct, key=lambda row: float(row @ levelled.values))
        for _ in range(4):
            interval *= support(law(widest, interval)) / SUPPORT
        composed = None
        for row, count in zip(distinct, copies, strict=True):
            output.deadline.tick()
            step = law(row, interval).self_compose(int(count), tail_mass_truncation=TAIL)
            composed = step if composed is None else composed.compose(step, tail_mass_truncation=TAIL)
        removal = direction is Direction.REMOVE
        half = composed._pmf_remove if removal else composed._pmf_add

        def delta_at(epsilon: float, half: Any = half) -> float:
            return float(half.get_delta_for_epsilon(epsilon)) + 0.5 * DELTA

        epsilons.append(smallest_epsilon(delta_at, DELTA, UPPER))
    return max(epsilons)


def support(law: Any) -> int:
    """The number of points of the larger of the two directions' laws."""
    return max(half.size for half in (law._pmf_remove, law._pmf_add))
