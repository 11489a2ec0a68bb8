"""The paper's statements that our numbers can bear out or not. No number is read off a plot."""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from math import log
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binomtest

from hockeystick.moments.bands import banded_moments, scaled_gram
from hockeystick.pairs.registry import dominating_pair
from hockeystick.reproduction.curves import Series, judge
from hockeystick.reproduction.papers import Check, Output

from .posterior import exceeded, prefixes, top_posterior
from .runs import (
    BINS,
    DELTA,
    EPOCHS,
    FAILURE_6,
    GRAMS,
    NOT_CERTIFIED,
    PANELS,
    POINTS,
    POSTERIORS,
    PRINTED,
    SAMPLES,
    SEED,
    STRATEGIES,
    allocation_bounds,
    by_distance,
    certified_posterior,
    epsilon_of,
    family_bounds,
    gram_of,
    mechanism,
    panel_series,
    paper_epsilon,
    printed_renyi,
    simulated,
    steps_shown,
    titled,
)

RENYI, CONDITIONAL = "bin_renyi_upper", "conditional_composition_upper"
SMALL, LARGE = (0.25, 0.5, 1.0), (4.0, 8.0)
LARGEST_ORDER = 120


def numbers(output: Output) -> None:
    """Every statement, judged."""
    groups = (
        gram_checks,
        regime_checks,
        order_choice_checks,
        order_checks,
        allocation_checks,
        widening_checks,
        family_checks,
    )
    output.checks("numbers", [check for group in groups for check in group(output)])


def quick_numbers(output: Output) -> None:
    """The statements that need no figure."""
    output.checks("numbers", [*gram_checks(output, 128), *order_checks(output), remark_check(output)])


COMPARED: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def known(what: str, relation: str, number: float, value: float, why: str = "") -> Check:
    """A statement about a number that is computed, not bounded; it holds or not, without rounding.

    Args:
        why: shown if it does not hold.
    """
    holds = bool(COMPARED[relation](value, number))
    return Check(what, relation, number, float(value), holds, "" if holds else why)


# --- Figure 1 ---------------------------------------------------------------------------------------------------------


def gram_checks(output: Output, bins: int = 300) -> list[Check]:
    """Cyclic bands with positive corners; entries of the banded inverses fall outside the band."""
    checks = []
    for name, bands in GRAMS.items():
        output.deadline.tick()
        smallest, largest = by_distance(gram_of(name, bins))
        if name in ("BSR, p=64", "BandMF, p=64"):
            checks.append(
                known(f"G is cyclically banded, {name}: largest entry outside", "<=", 0.0, largest[bands:].max())
            )
            checks.append(
                known(f"G, {name}: smallest entry inside, corners included", ">", 0.0, smallest[:bands].min())
            )
        else:
            ratio = largest[bins // 2] / largest[bands]
            checks.append(known(f"G decays outside the band, {name}: farthest/edge of the band", "<", 1.0, ratio))
    return checks


# --- Section 5 --------------------------------------------------------------------------------------------------------


def noise_ratio(series: Series, over: str, under: str, epsilons: Sequence[float]) -> Any:
    """The ratio of two methods' noise multipliers where both curves reach, interpolated between certified points."""
    logs = {}
    for column in (over, under):
        values = next(values for curve, values in series.values.items() if curve.column == column)
        epsilon = np.array(values)
        finite = np.isfinite(epsilon) & (epsilon > 0.0)
        order = np.argsort(epsilon[finite])
        logs[column] = np.interp(
            np.log(epsilons),
            np.log(epsilon[finite][order]),
            np.log(np.array(series.places)[finite][order]),
            left=np.nan,
            right=np.nan,
        )
    ratios = np.exp(logs[over] - logs[under])
    return ratios[np.isfinite(ratios)]


def regime_checks(output: Output, points: int = POINTS) -> list[Check]:
    """Section 5: Renyi in the low-privacy regime, conditional composition in the high-privacy regime.

    The second is judged twice: by the paper's two accountants as printed, and by ours.
    """
    checks = []
    for figure, letters in PANELS.items():
        for letter, (strategy, bins, epochs, _) in letters.items():
            series = panel_series(output, points, figure, letter)
            where = f"{strategy}, N={bins * epochs}, k={epochs}"
            large = noise_ratio(series, RENYI, CONDITIONAL, LARGE)
            if large.size:
                what = f"noise of Renyi/cond. comp., largest for eps >= 4, {where}"
                checks.append(known(what, "<", 1.0, large.max()))
            for whose, over, under in (("printed", NOT_CERTIFIED, PRINTED), ("here", CONDITIONAL, RENYI)):
                small = noise_ratio(series, over, under, SMALL)
                if not small.size:
                    continue
                what = f"noise of cond. comp./Renyi, both as {whose}"
                if strategy == "DP-SGD" and epochs > 1:
                    what = f"{what}, smallest for eps <= 1 (little benefit), {where}"
                    checks.append(known(what, ">=", 1.0, small.min()))
                else:
                    why = f"smallest ratio {small.min():.3g}"
                    what = f"{what}, largest for eps <= 1, {where}"
                    checks.append(known(what, "<", 1.0, small.max(), why))
    return checks


def order_choice_checks(output: Output) -> list[Check]:
    """Which Renyi accountant conditional composition beats: DP-SGD, N = 100, k = 1.

    With one epoch the paper's allocation is a plain union bound, so all numbers here are upper bounds.
    """
    checks = []
    for sigma in (1.246, 2.2):
        run = partial(mechanism, STRATEGIES["DP-SGD"], 100, 1)
        as_printed, apart = printed_renyi(run(sigma), output)
        theirs = paper_epsilon(run(sigma), output)
        renyi, ours = (
            epsilon_of(titled(run, column, method=method), sigma, output)
            for column, method in ((RENYI, "bin_renyi"), (CONDITIONAL, "conditional_composition"))
        )
        what = f"eps of cond. comp./Renyi, DP-SGD, N=100, k=1, sigma={sigma:g}"
        for how, conditional, other in (
            ("both as printed", theirs, as_printed),
            ("the same with an order for each direction", theirs, apart),
            ("both as here", ours, renyi),
        ):
            why = f"{conditional:.4g} against {other:.4g}"
            checks.append(Check(f"{what}, {how}", "<", 1.0, conditional / other, conditional < other, why))
    return checks


# --- Renyi orders -----------------------------------------------------------------------------------------------------


def best_order(sigma: float) -> tuple[float, float]:
    """epsilon at delta = 1e-5 by Theorem 3.1 and the integer order that gives it: DP-SGD, N = 100, k = 1, remove."""
    pair = dominating_pair(mechanism(STRATEGIES["DP-SGD"], 100, 1, sigma))
    moments = banded_moments(scaled_gram(pair.gram, pair.rounding, pair.noise_multiplier), 1, LARGEST_ORDER)
    orders = moments.orders
    epsilons = (moments.values - log(DELTA) - np.log(orders - 1.0)) / (orders - 1.0)
    epsilons += orders * np.log1p(-1.0 / orders) / (orders - 1.0)
    best = int(np.argmin(epsilons))
    return float(epsilons[best]), float(orders[best])


def order_checks(output: Output) -> list[Check]:
    """Section 3 and Appendix B.1: which orders matter."""
    output.deadline.tick()
    best = {}
    for epsilon in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0):
        sigma = brentq(lambda sigma, epsilon=epsilon: best_order(sigma)[0] - epsilon, 0.1, 10.0, xtol=1e-3)
        best[epsilon] = best_order(sigma)[1]
    where = "best order of Theorem 3.1, DP-SGD, N=100, k=1"
    why = f"at eps = {', '.join(f'{epsilon:g}' for epsilon in best)} it is {', '.join(f'{a:g}' for a in best.values())}"
    return [
        known(f"{where}: smallest for eps from 1/4 to 32 (typically 2 to 40)", ">=", 2.0, min(best.values()), why),
        known(f"{where}: largest for eps from 1/4 to 32 (typically 2 to 40)", "<=", 40.0, max(best.values()), why),
        known(f"{where}: at eps = 1/4 (small eps: typically 30 to 50)", ">=", 30.0, best[0.25], why),
        known(f"{where}: at eps = 32 (eventually 2)", "<=", 2.0, best[32.0], why),
    ]


# --- Appendix E -------------------------------------------------------------------------------------------------------


def allocation_checks(output: Output, points: int = 100) -> list[Check]:
    """Figure 4: which allocation has the smallest bounds (whether they are bounds is another matter)."""
    checks, steps = [], steps_shown(points)
    last_epoch = np.array(steps) > BINS * (EPOCHS - 1)
    for strategy, sigma in POSTERIORS["figure-4"].values():
        bounds = allocation_bounds(strategy, sigma, steps, output)
        where = f"{strategy}, sigma={sigma:g}"
        hybrid = bounds["epoch_max_from_2"]
        others = np.min([bounds[name] for name in ("union_upper", "epoch_max_from_1", "max")], axis=0)
        what = f"per-epoch max (e >= 2) is the smallest of the paper's four, share of the steps, {where}"
        checks.append(known(what, ">", 0.5, np.mean(hybrid <= others)))
        what = f"max is below it before the last epoch, share of the steps, {where}"
        checks.append(known(what, "<=", 0.0, np.mean((bounds["max"] < hybrid)[~last_epoch])))
    return [*checks, *union_checks(output), remark_check(output)]


def union_checks(output: Output, samples: int = 20_000) -> list[Check]:
    """What a max bound claims: with the largest of an epoch's bounds, their union is as likely as each alone.

    The printed number is the budget. Judged by a two-sided 99.9 percent confidence interval from a seeded simulation of
    DP-SGD with 50 bins, 2 epochs and sigma = 1.5, in which all steps of the second epoch are watched.
    """
    output.deadline.tick()
    bins, budget, rng = 50, 0.002, np.random.default_rng(SEED)
    pair = dominating_pair(mechanism(STRATEGIES["DP-SGD"], bins, 2, 1.5))
    steps = range(bins + 1, 2 * bins + 1)
    largest = top_posterior(pair, steps, "13", [budget]).max()
    ours = certified_posterior(pair, list(steps), budget, output)
    where = f"DP-SGD, N={2 * bins}, k=2, sigma=1.5"
    checks = []
    for name, bounds in (("max bound of the paper", np.full(bins, largest)), ("our union bound", ours)):
        failures = exceeded(pair, np.concatenate([np.ones(bins), bounds]), samples, rng)
        interval = binomtest(failures, samples).proportion_ci(0.999)
        what = f"probability that the posterior exceeds its bound somewhere in epoch 2, {name}, {where}"
        why = f"the events of different steps concern different bins; seen in {failures / samples:.3g} of the runs"
        checks.append(judge(what, "<=", f"{budget}", upper=interval.high, lower=interval.low, why=why))
    return checks


def remark_check(output: Output) -> Check:
    """Remark D.5: better to give components with the same prefix no weight."""
    output.deadline.tick()
    pair = dominating_pair(mechanism(STRATEGIES["DP-SGD"], BINS, EPOCHS, 5.0))
    share = [FAILURE_6 / (BINS * EPOCHS * (BINS - 1))]
    left_out, kept = (top_posterior(pair, [2], "13", share, keep_same=keep)[0, 0] for keep in (False, True))
    why = "98 of 99 components are the same; leaving them out costs log 99 in the KL term. Ours counts them exactly"
    what = "Remark D.5, DP-SGD, sigma=5, step 2: posterior bound without/with the identical components"
    return known(what, "<=", 1.0, left_out / kept, why)


def widening_checks(output: Output, samples: int = SAMPLES) -> list[Check]:
    """Figure 5 and Remark E.1: why the bounds jump between epochs."""
    output.deadline.tick()
    losses = simulated(samples)
    pair = dominating_pair(mechanism(STRATEGIES["DP-SGD"], BINS, EPOCHS, 5.0))
    off = 0.0
    for prefix in prefixes(pair, range(2, BINS * EPOCHS + 1)):
        epoch = (prefix.step - 1) // BINS + 1
        squares = np.delete(prefix.squared_distances[prefix.top], prefix.top)
        off = max(off, np.minimum(abs(squares - (2 * epoch - 1)), abs(squares - (2 * epoch - 2))).max())
    widths = [
        known(
            f"the privacy loss widens, standard deviation at step {step + 1}/step {step}, {samples:g} samples",
            ">",
            1.0,
            losses[step + 1].std() / losses[step].std(),
        )
        for step in (100, 200, 300)
    ]
    return [
        *widths,
        known("squared distances of the prefixes are 2e-1 or 2e-2 in epoch e: largest miss", "<=", 0.0, off),
    ]


# --- Appendix F -------------------------------------------------------------------------------------------------------


def family_checks(output: Output, points: int = 40) -> list[Check]:
    """Figure 6: what the variational families are good for."""
    steps = steps_shown(points)
    later = np.array(steps) > BINS
    checks, gains = [], {}
    for strategy, sigma in POSTERIORS["figure-6"].values():
        bounds = family_bounds(strategy, sigma, steps, output)
        gain = (bounds["13"] / bounds["1"])[later]
        gains[strategy, sigma] = gain.min()
        where = f"{strategy}, sigma={sigma:g}"
        what = f"posterior bound, Options 1+3/Option 1, largest in later epochs, {where}"
        checks.append(known(what, "<", 1.0, gain.max()))
        further = (bounds["123"] / bounds["13"])[later].min()
        what = f"posterior bound, Options 1+2+3/Options 1+3, smallest in later epochs, {where}"
        checks.append(judge(what, "~", "1.00", upper=further, lower=further))
    what = "the gain is more pronounced in BISR, sigma=2 than in BSR, sigma=5: quotient of the smallest ratios"
    return [*checks, known(what, "<", 1.0, gains["BISR, p=4", 2.0] / gains["BSR, p=4", 5.0])]
