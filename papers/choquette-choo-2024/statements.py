"""The paper's printed numbers and its statements about the figures, judged. No number is read off a plot."""

import operator
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import nan

import hockeystick as hs
from hockeystick.reproduction.curves import judge, precise
from hockeystick.reproduction.papers import Check, Output

from .independent import Limit, exact_delta, independent_delta, last_iterate_epsilon, limit
from .runs import (
    DELTA,
    FAMILIES,
    LOWER,
    TREES,
    UPPER,
    Amplified,
    Restart,
    Training,
    amplified,
    crossing,
    fitted,
    poisson,
    restart,
    training,
)

STRAIGHT = 0.95
"""Share of the improvements' variance that a line has to explain to be called near-linear; ours."""
PROPORTIONAL = (0.8, 1.25)
"""Exponents of sqrt(log2 n + 1) that are called roughly proportional; ours. 1 is proportional."""
RESTART_SIGMAS = (4.0, 8.0, 16.0, 24.0, 32.0, 64.0, 128.0, 256.0)
"""Judged; Figure 4 has more."""
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Of the training runs, without amplification."""
LIMIT_SIGMAS = (8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)


def numbers(output: Output) -> None:
    """Every statement, judged."""
    checks = [
        *building_block_checks(output),
        *improvement_checks({name: improvements(name, output) for name in FAMILIES}),
        *restart_checks([restart(sigma, output) for sigma in RESTART_SIGMAS], output),
        *training_checks({name: [training(name, epsilon, output) for epsilon in EPSILONS] for name in TREES}),
        *independent_checks(),
        *limit_checks([limit(sigma, output) for sigma in LIMIT_SIGMAS]),
        time_check(output),
    ]
    output.checks("numbers", checks)


def quick_numbers(output: Output) -> None:
    """The statements that need no long run."""
    output.checks("numbers", [*building_block_checks(output), *independent_checks(), time_check(output, 128)])


LONG = 2048
"""Steps at which the running time is measured."""


def time_check(output: Output, steps: int = LONG) -> Check:
    """Appendix A: MMCC at n of about 2000 "took several hours", on many cores; ours in processor seconds of one."""
    sigma = 10.0 * float(hs.BinaryTree().matrix(steps).max_column_norm)

    def measured() -> float:
        started = time.process_time()
        hs.bound(poisson(hs.BinaryTree(), 1.0 / steps, steps, sigma), "mmcc").epsilon(DELTA)
        return time.process_time() - started

    seconds = float(output.kept.value(f"seconds of mmcc {steps}", measured))
    what = f"App. A: processor seconds of mmcc, tree, n={steps}, p=1/n (several hours in the paper, of many cores)"
    return Check(what, "<", 3600.0, seconds, seconds < 3600.0)


def improvements(name: str, output: Output) -> dict[float, list[Amplified]]:
    """All points of Figure 2 or 8, by c."""
    return {c: amplified(FAMILIES[name], c, output) for c in FAMILIES[name].multipliers}


COMPARED: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "~": lambda value, number: PROPORTIONAL[0] <= value / number <= PROPORTIONAL[1],
}


def computed(what: str, relation: str, number: float, value: float, why: str = "") -> Check:
    """Judge a statement about a number that is computed, not bounded, such as that of a fit.

    Args:
        why: shown if it does not hold.
    """
    holds = bool(COMPARED[relation](value, number))
    return Check(what, relation, number, value, holds, "" if holds else why)


# --- Appendix F.5 -----------------------------------------------------------------------------------------------------


def building_block_checks(output: Output) -> list[Check]:
    """DP-SGD's composition and its last iterate on linear losses."""
    case = "n=128, p=1/128, sigma=1"
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=1.0 / 128.0, steps=128), noise_multiplier=1.0)
    below, above = (precise(run, "direct", output, side, DELTA).epsilon(DELTA) for side in (LOWER, UPPER))
    iterate = hs.privacy(hs.last_iterate(sampling_prob=1.0 / 128.0, steps=128, noise_multiplier=1.0), delta=DELTA)
    low, high = last_iterate_epsilon(hs.Direction.ADD)
    why = "the add direction alone"
    return [
        judge(f"F.5: eps of the composition, {case}", "~", "0.806", upper=above, lower=below),
        judge(f"F.5: eps of the last iterate, {case}", "~", "0.291", upper=iterate.upper, lower=iterate.lower, why=why),
        judge(f"F.5: eps of the last iterate, add alone, {case}", "~", "0.291", upper=high, lower=low),
    ]


# --- Figures 2 and 8 --------------------------------------------------------------------------------------------------


def improvement_checks(figures: dict[str, dict[float, list[Amplified]]]) -> list[Check]:
    """How the improvement grows, for every c, and how it depends on c and on the strategy."""
    checks = []
    for name, by_c in figures.items():
        fits = {c: fitted(points) for c, points in by_c.items()}
        for c, points in by_c.items():
            where = f"{name}, c={c:g}"
            least, most = (min(values) for values in zip(*((p.at_least, p.at_most) for p in points), strict=True))
            checks.append(
                judge(f"{where}: smallest improvement", ">", "1.000", lower=least, upper=most, why=shown(points))
            )
            what = f"{where}: near-linear in sqrt(log2 n + 1), R^2 of the line"
            checks.append(computed(what, ">=", STRAIGHT, fits[c].explained, f"slope {fits[c].slope:.3g}"))
            limits = f"exponent within {PROPORTIONAL[0]:g} to {PROPORTIONAL[1]:g}"
            checks.append(computed(f"{where}: proportional, {limits}", "~", 1.0, fits[c].exponent, shown(points)))
            split = fitted(points, split=True)
            what = f"{where}: near-linear by split noise, R^2 of the line"
            checks.append(computed(what, ">=", STRAIGHT, split.explained, f"slope {split.slope:.3g}"))
            what = f"{where}: proportional by split noise, {limits}"
            checks.append(computed(what, "~", 1.0, split.exponent, f"slope {split.slope:.3g}"))
        for smaller, larger in pairwise(by_c):
            what = f"{name}: improvement at c={larger:g} / at c={smaller:g}, smallest"
            pairs = zip(by_c[larger], by_c[smaller], strict=True)
            checks.append(
                computed(what, ">", 1.0, min(larger_c.at_least / other.at_least for larger_c, other in pairs))
            )
            what = f"{name}: fit, R^2 at c={larger:g} / at c={smaller:g}"
            checks.append(computed(what, ">", 1.0, fits[larger].explained / fits[smaller].explained))
    return [*checks, *strategy_checks(figures)]


def shown(points: Sequence[Amplified]) -> str:
    """The improvements of the two ends."""
    ends = (points[0], points[-1])
    return "; ".join(f"n={2**p.exponent}: from {p.at_least:.4g} to {p.at_most:.4g}" for p in ends)


def strategy_checks(figures: dict[str, dict[float, list[Amplified]]]) -> list[Check]:
    """Appendix E: less benefit for the square root than for the tree, at the longest run of Figure 8."""
    tree, root = figures["figure-2"], figures["figure-8"]
    checks = []
    for c in sorted(set(tree) & set(root)):
        by_length = {point.exponent: point for point in tree[c]}
        other = root[c][-1]
        point = by_length[other.exponent]
        checks.append(
            judge(
                f"App. E: improvement of the square root / of the tree, n={2**other.exponent}, c={c:g}",
                "<",
                "1.000",
                upper=other.at_least / point.at_least,
                why=f"mmcc alone; certain is only a ratio from {other.at_least / point.at_most:.3g} "
                f"to {other.at_most / point.at_least:.3g}",
            )
        )
    return checks


# --- Figure 4 ---------------------------------------------------------------------------------------------------------


def restart_checks(points: Sequence[Restart], output: Output) -> list[Check]:
    """MMCC below cyclic Poisson sampling, at every sigma; and from where on it is."""
    checks = []
    for point in points:
        ratio = {"upper": point.mmcc / point.cyclic_lower, "lower": point.mmcc / point.cyclic_upper}
        why = (
            f"true eps with Poisson sampling is at least {point.poisson_lower:.4g}, so the schemes may still compare so"
        )
        what = f"figure-4: eps of MMCC / of cyclic Poisson ({point.cyclic_lower:.4g}), sigma={point.sigma:g}"
        checks.append(judge(what, "<", "1.000", **ratio, why=why))
        split = point.split / point.cyclic_lower
        what = f"figure-4: eps of Poisson by split noise / of cyclic Poisson, sigma={point.sigma:g}"
        checks.append(Check(what, "<", 1.0, split, split < 1.0, "a comparison of the schemes"))
    high = crossing(points, output)[1]
    epsilon = restart(high, output).cyclic_lower if high < float("inf") else nan
    what = "figure-4: sigma from which MMCC is below"
    return [*checks, Check(what, "<=", points[0].sigma, high, high <= points[0].sigma, f"where eps is {epsilon:.3g}")]


# --- Figure 3 ---------------------------------------------------------------------------------------------------------


def training_checks(runs: dict[str, list[Training]]) -> list[Check]:
    """Gains at every epsilon, larger ones at smaller epsilons."""
    checks = []
    for name, points in runs.items():
        for point in points:
            what = f"figure-3, {name}: eps with amplification / without ({point.before:.4g}), sigma={point.sigma:.4g}"
            most = point.upper / point.before
            least = point.lower / point.before
            note = f"at least {least:.4g}"
            checks.append(Check(what, "<", 1.0, most, most < 1.0, note if most == most else f"no finite bound; {note}"))
        ratios = [point.upper / point.before for point in points]
        rising = [after / before for before, after in pairwise(ratios)]
        finite = [ratio for ratio in rising if ratio == ratio]
        what = f"figure-3, {name}: this ratio at the next larger eps / at an eps, smallest"
        checks.append(computed(what, ">", 1.0, min(finite)))
    return checks


# --- independent rows -------------------------------------------------------------------------------------------------


def independent_checks() -> list[Check]:
    """Section 4: p in place of its bounds is expected to give a lower bound. It is a bound on no side."""
    checks = []
    for epsilon, direction in ((0.0, "add"), (1.0, "add"), (1.0, "remove")):
        exact = exact_delta(epsilon, hs.Direction(direction))
        low, high = independent_delta(epsilon, hs.Direction(direction))
        what = (
            f"section 4: delta of independent rows / exact ({exact:.5f}), C=[[1,0],[1,1]], eps={epsilon:g}, {direction}"
        )
        why = f"independent rows have {high:.5f}"
        checks.append(judge(what, "<=", "1.000", upper=high / exact, lower=low / exact, why=why))
    return checks


def limit_checks(points: Sequence[Limit]) -> list[Check]:
    """The ratio falls to 1 as sigma grows; and independent rows are no upper bound either."""
    ratios = [point.mmcc / point.independent for point in points]
    steps = [after / before for before, after in pairwise(ratios)]
    excess = [point.lower / point.independent for point in points]
    note = ", ".join(f"{ratio:.4g} at {point.sigma:g}" for ratio, point in zip(ratios, points, strict=True))
    return [
        Check("limit: eps of MMCC / of independent rows, largest sigma", "~", 1.0, ratios[-1], ratios[-1] < 1.01, note),
        computed("limit: this ratio at the next larger sigma / at a sigma, largest", "<", 1.0, max(steps)),
        computed("limit: lower bound on the true eps / eps of independent rows, largest", "<=", 1.0, max(excess)),
    ]
