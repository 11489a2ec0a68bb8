"""Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha, Zhang (2024): How private are DP-SGD implementations?

Figures 1 to 7 and every printed number about them, as certified bounds: deterministic batches (closed form), Poisson
batches (direct laws from both sides, and Renyi accounting), shuffled batches (a lower bound). Theorem 4.2 and
Conjectures 3.2 and 4.3 on grids, substitution by group privacy, Algorithm 1 as a loop.
"""

from collections.abc import Sequence
from functools import partial
from math import exp, nan

import numpy as np

import hockeystick as hs
from hockeystick.bounds import Bound, Question
from hockeystick.reproduction.curves import Axes, Curve, Series, judge, precise, profiles, publish, sweep
from hockeystick.reproduction.papers import Check, Output

from .ablq import loop_checks
from .conjecture import CASES, conjecture
from .crossing import FEW, GRID, crossings, far_delta, theorem_checks
from .runs import LOWER, UPPER, deterministic, poisson, shuffle

POINTS = 45


# --- what is compared -------------------------------------------------------------------------------------------------


def curves(steps: int) -> list[Curve]:
    """The five curves of every figure, along the noise multiplier."""
    return [
        Curve(
            column="deterministic_upper",
            label="deterministic: exact",
            mechanism=partial(deterministic, steps),
            method="gaussian",
            style={"color": "black", "linestyle": "--"},
        ),
        Curve(
            column="shuffle_thresholds_lower",
            label="shuffle: lower bound",
            mechanism=partial(shuffle, steps),
            method="shuffle_thresholds",
            side=LOWER,
            style={"color": "#d55e00"},
        ),
        Curve(
            column="poisson_renyi_upper",
            label="Poisson: Rényi upper bound",
            mechanism=partial(poisson, steps),
            method="renyi",
            style={"color": "#009e73"},
        ),
        Curve(
            column="poisson_direct_upper",
            label="Poisson: direct upper bound",
            mechanism=partial(poisson, steps),
            method="direct",
            style={"color": "#56b4e9", "linewidth": 3.5},
        ),
        Curve(
            column="poisson_direct_lower",
            label="Poisson: direct lower bound",
            mechanism=partial(poisson, steps),
            method="direct",
            side=LOWER,
            style={"color": "#003a63", "linestyle": "--", "linewidth": 1.0},
        ),
    ]


# --- figures ----------------------------------------------------------------------------------------------------------


def epsilon_figure(
    output: Output, points: int = POINTS, *, name: str, steps: int, delta: float, sigmas: tuple[float, float]
) -> None:
    """epsilon against the noise multiplier at a fixed delta (Figures 1, 4 and 5)."""
    places = np.linspace(*sigmas, points).tolist()
    publish(
        output,
        name,
        sweep(curves(steps), places, Question(delta=delta), output),
        Axes(
            places="sigma",
            x=r"noise multiplier $\sigma$",
            y=r"$\varepsilon$",
            title=rf"$\delta$ = {delta:g}, T = {steps:,} steps, one epoch",
            log="y",
        ),
    )


def delta_figure(
    output: Output,
    points: int = POINTS,
    *,
    name: str,
    steps: int,
    sigma: float,
    largest: float,
    only: Sequence[str] = (),
    bottom: float,
) -> None:
    """delta against epsilon at a fixed noise multiplier (Figures 2, 3, 6 and 7)."""
    shown = [curve for curve in curves(steps) if not only or curve.column.startswith(tuple(only))]
    epsilons = np.linspace(0.0, largest, 2 * points - 1).tolist()
    publish(
        output,
        name,
        profiles(shown, sigma, epsilons, output),
        Axes(
            places="epsilon",
            x=r"$\varepsilon$",
            y=r"$\delta$",
            title=rf"$\sigma$ = {sigma:g}, T = {steps:,} steps, one epoch",
            log="y",
            bottom=bottom,
            top=2.0,
        ),
    )


# --- printed numbers --------------------------------------------------------------------------------------------------

RENYI_NOTE = "true of eps_P by the direct bound, but this is what Renyi accounting with all orders gives"
EPSILON_HALF_NOTE = "what the text gives for eps = 1 are the values at eps = 0.5, see the last rows"


def numbers(output: Output) -> None:
    """Every printed number about the figures, beside our certified bound on the side that makes the claim."""
    output.checks("numbers", [*epsilon_checks(output), *delta_checks(output), *crossing_checks(output)])


def epsilon_checks(output: Output) -> list[Check]:
    """Sections 1.1 and A.1: Figures 1, 4 and 5."""

    def about(steps: int, sigma: float, delta: float, batches: str, relation: str, printed: str) -> Check:
        """One printed number; ``batches`` is D, P or S (eps_D of the paper, ...), and what the row says beside it.

        What ends in RDP is about the bound by Renyi divergences.
        """
        what = f"eps_{batches[0]}({delta:g}), sigma={sigma:g}, T={steps}{batches[1:]}"
        if batches[0] == "D":
            fixed = deterministic(steps, sigma)
            upper = precise(fixed, "gaussian", output, UPPER, delta).epsilon(delta)
            return judge(
                what, relation, printed, upper=upper, lower=precise(fixed, "gaussian", output, LOWER).epsilon(delta)
            )
        if batches[0] == "S":
            lower = precise(shuffle(steps, sigma), "shuffle_thresholds", output, LOWER, delta).epsilon(delta)
            upper = precise(shuffle(steps, sigma), "gaussian", output, UPPER, delta).epsilon(delta)
            return judge(what, relation, printed, upper=upper, lower=lower)
        run = poisson(steps, sigma)
        direct = precise(run, "direct", output, UPPER, delta).epsilon(delta)
        if batches.endswith("RDP"):
            why = RENYI_NOTE if direct <= float(printed) else ""
            return judge(what, relation, printed, upper=precise(run, "renyi", output).epsilon(delta), why=why)
        lower = precise(run, "direct", output, LOWER, delta).epsilon(delta)
        return judge(what, relation, printed, upper=direct, lower=lower)

    return [
        about(10_000, 0.5, 1e-6, "P", "<", "1.96"),
        about(10_000, 0.5, 1e-6, "P, RDP", "<", "3.43"),
        about(10_000, 0.5, 1e-6, "S", ">", "10.994"),
        about(10_000, 0.5, 1e-6, "D", "~", "10.997"),
        about(10_000, 1.3, 1e-6, "P", "<", "0.031"),
        about(10_000, 1.3, 1e-6, "S", ">", "0.26"),
        about(100_000, 0.4, 1e-6, "P", "<=", "3"),
        about(100_000, 0.4, 1e-6, "P, RDP", "<=", "4.71"),
        about(100_000, 0.4, 1e-6, "S", ">=", "14.45"),
        about(100_000, 1.3, 1e-6, "P", "<", "0.01"),
        about(100_000, 1.3, 1e-6, "S", ">", "0.029"),
        about(10_000, 0.4, 1e-6, "P (Figure 4's caption has this T, the text 100,000)", ">", "3"),
        about(1000, 0.7, 1e-5, "P", "<=", "0.61"),
        about(1000, 0.7, 1e-5, "P, RDP", "<=", "1.64"),
        about(1000, 0.7, 1e-5, "S", ">=", "6.528"),
        about(1000, 0.7, 1e-5, "D", "~", "6.652"),
        about(1000, 1.3, 1e-5, "P", "<", "0.092"),
        about(1000, 1.3, 1e-5, "S", ">", "0.83"),
    ]


def delta_checks(output: Output) -> list[Check]:
    """Sections 4.3 and A.2: Figures 3, 6 and 7."""

    class Case:
        """All bounds of one figure's runs, each built once."""

        def __init__(self, steps: int, sigma: float) -> None:
            run = poisson(steps, sigma)
            self.where = f"sigma={sigma:g}, T={steps}"
            self.poisson_upper = precise(run, "direct", output, UPPER)
            self.poisson_lower = precise(run, "direct", output, LOWER)
            self.renyi = precise(run, "renyi", output)
            self.shuffle = precise(shuffle(steps, sigma), "shuffle_thresholds", output, LOWER)
            self.fixed_upper = precise(deterministic(steps, sigma), "gaussian", output, UPPER)
            self.fixed_lower = precise(deterministic(steps, sigma), "gaussian", output, LOWER)

        def about(self, batches: str, epsilon: float, relation: str, printed: str, why: str = "") -> Check:
            """One printed number; ``batches`` as in :func:`epsilon_checks`."""
            what = f"delta_{batches[0]}({epsilon:g}), {self.where}{batches[1:]}"
            if batches.endswith("RDP"):
                return judge(what, relation, printed, upper=self.renyi.delta(epsilon), why=why)
            lower, upper = {
                "P": (self.poisson_lower, self.poisson_upper),
                "S": (self.shuffle, self.fixed_upper),
                "D": (self.fixed_lower, self.fixed_upper),
            }[batches[0]]
            return judge(what, relation, printed, upper=upper.delta(epsilon), lower=lower.delta(epsilon), why=why)

    third, sixth, seventh = Case(10_000, 0.4), Case(1000, 0.8), Case(1000, 1.0)
    return [
        third.about("P", 4.0, "<", "1.18e-5"),
        third.about("P, as a guarantee", 4.0, "<=", "1.2e-5"),
        third.about("S", 4.0, ">=", "0.226"),
        third.about("D", 4.0, "~", "0.244"),
        third.about("S", 12.0, ">=", "7.5e-5"),
        sixth.about("P", 1.0, "<=", "9.873e-9"),
        sixth.about("P, RDP", 1.0, "<=", "3.346e-5"),
        sixth.about("S", 1.0, ">=", "0.018"),
        sixth.about("S", 4.0, ">=", "1.6e-4"),
        seventh.about("P", 1.0, "<=", "2.06e-10"),
        seventh.about("P, RDP", 1.0, "<=", "8.45e-5"),
        seventh.about("S", 1.0, ">=", "0.004", EPSILON_HALF_NOTE),
        seventh.about("S", 4.0, ">=", "4.38e-7"),
        seventh.about("P (the text has eps = 1)", 0.5, "~", "2.06e-10"),
        seventh.about("P (the text has eps = 1), RDP", 0.5, "<=", "8.45e-5"),
        seventh.about("S (the text has eps = 1)", 0.5, ">=", "0.004"),
    ]


def crossing_checks(output: Output) -> list[Check]:
    """Theorem 4.2 in the setting of Figure 2: deterministic batches are worse at small epsilon, Poisson at large."""
    fixed, random = deterministic(10, 0.3), poisson(10, 0.3)

    def margin(better: hs.Mechanism, worse: hs.Mechanism, methods: tuple[str, str], epsilon: float) -> float:
        """A certified lower bound on how much larger the delta of the worse one is."""
        upper = precise(better, methods[0], output, UPPER).delta(epsilon)
        return precise(worse, methods[1], output, LOWER).delta(epsilon) - upper

    return [
        judge(
            f"delta_{worse} - delta_{better} at eps={epsilon:g}, sigma=0.3, T=10",
            ">",
            "0",
            lower=margin(*pair, epsilon),
        )
        for epsilon, worse, better, pair in (
            (0.0, "D", "P", (random, fixed, ("direct", "gaussian"))),
            (8.0, "D", "P", (random, fixed, ("direct", "gaussian"))),
            (12.0, "P", "D", (fixed, random, ("gaussian", "direct"))),
            (40.0, "P", "D", (fixed, random, ("gaussian", "direct"))),
        )
    ]


# --- beyond the figures -----------------------------------------------------------------------------------------------


def theorem(output: Output, grid: Sequence[tuple[int, float]] = GRID) -> None:
    """Theorem 4.2 and Conjecture 4.3 on a grid of T and sigma: the table of the crossings, and the verdicts."""
    crossings(output, grid)
    output.checks("crossings-verdicts", theorem_checks(output, grid))


def loop(output: Output, runs: int = 5_000) -> None:
    """Algorithm 1 run, and section 4.3.1: what far-away examples give away of a shuffled one."""
    output.checks("ablq", [*loop_checks(output, runs), *far_checks(output)])


def far_checks(output: Output) -> list[Check]:
    """Section 4.3.1: the delta of the thresholds tends to that of deterministic batches as L grows."""
    checks = []
    for steps, sigma, epsilon in ((10_000, 0.4, 4.0), (1000, 1.0, 1.0)):
        most = precise(deterministic(steps, sigma), "gaussian", output).delta(epsilon)
        shares = {length: far_delta(steps, sigma, epsilon, length) / most for length in (1.0, 2.0, 5.0, 10.0)}
        what = f"section 4.3.1: delta_S({epsilon:g}) with L=10 / delta_D, sigma={sigma:g}, T={steps}"
        note = ", ".join(f"{share:.4g} at L={length:g}" for length, share in shares.items())
        checks.append(Check(what, ">", 0.999, shares[10.0], 0.999 < shares[10.0] <= 1.0 + 1e-9, note))
    return checks


SEPARATIONS = {
    (10_000, 1e-6): (0.5, 1.3),
    (100_000, 1e-6): (0.4, 1.3),
    (1000, 1e-5): (0.7, 1.3),
}
"""T and delta of Figures 1, 4 and 5, and the noise multipliers of which the text gives numbers."""


LARGEST_EPSILON = 300.0
"""Beyond it no epsilon for substitution is looked for."""


def substitution(output: Output, points: int = POINTS) -> None:
    """Section 2.2: by group privacy the separation of Figure 1 also holds for substitution.

    A record whose query is 0 takes the place of the missing one, so the lower bound for shuffled batches is one for
    substitution as well.
    """
    places = np.linspace(0.3, 1.4, points).tolist()
    steps, delta = 10_000, 1e-6
    shown = sweep([curve for curve in curves(steps) if "lower" in curve.column], places, Question(delta=delta), output)
    line = Curve(
        column="poisson_substitution_upper",
        label="Poisson: substitution, by group privacy",
        mechanism=partial(poisson, steps),
        method="direct",
        style={"color": "#009e73"},
    )
    values = []
    for place in places:
        output.deadline.tick()
        values.append(substituted(precise(line.mechanism(place), "direct", output), delta))
    title = rf"$\delta$ = {delta:g}, T = {steps:,} steps, one epoch"
    axes = Axes(places="sigma", x=r"noise multiplier $\sigma$", y=r"$\varepsilon$", title=title, log="y")
    publish(output, "substitution", Series(places, {**shown.values, line: values}), axes)
    output.checks("substitution-verdicts", substitution_checks(output))


def substitution_checks(output: Output) -> list[Check]:
    """The separations of which the text gives numbers, for substitution."""
    checks = []
    for (steps, delta), sigmas in SEPARATIONS.items():
        for sigma in sigmas:
            low = precise(shuffle(steps, sigma), "shuffle_thresholds", output, LOWER, delta).epsilon(delta)
            high = substituted(precise(poisson(steps, sigma), "direct", output), delta)
            what = f"eps_P({delta:g}) for substitution, by group privacy, sigma={sigma:g}, T={steps}: below eps_S"
            checks.append(Check(what, "<", low, high, high < low, f"{high / low:.3g} of it"))
    return checks


def substituted(bound: Bound, delta: float) -> float:
    """The least 2 epsilon with ``delta(epsilon) (1 + e^epsilon) <= delta``, up to bisection; never too small.

    nan where the bound on delta is not small enough at any epsilon that it covers.
    """
    low, high = 0.0, 1.0
    while bound.delta(high) * (1.0 + exp(high)) > delta:
        low, high = high, 2.0 * high
        if high > LARGEST_EPSILON:
            return nan
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if bound.delta(middle) * (1.0 + exp(middle)) > delta else (low, middle)
    return 2.0 * high


FIGURES = {
    "figure-1": partial(epsilon_figure, name="figure-1", steps=10_000, delta=1e-6, sigmas=(0.3, 1.4)),
    "figure-2": partial(
        delta_figure, name="figure-2", steps=10, sigma=0.3, largest=40.0, only=("det", "poisson_direct"), bottom=1e-20
    ),
    "figure-3": partial(delta_figure, name="figure-3", steps=10_000, sigma=0.4, largest=16.0, bottom=1e-16),
    "figure-4": partial(epsilon_figure, name="figure-4", steps=100_000, delta=1e-6, sigmas=(0.3, 1.4)),
    "figure-5": partial(epsilon_figure, name="figure-5", steps=1000, delta=1e-5, sigmas=(0.3, 1.4)),
    "figure-6": partial(delta_figure, name="figure-6", steps=1000, sigma=0.8, largest=6.0, bottom=1e-20),
    "figure-7": partial(delta_figure, name="figure-7", steps=1000, sigma=1.0, largest=4.0, bottom=1e-20),
    "crossings": theorem,
    "substitution": substitution,
    "ablq": loop,
    "conjecture": conjecture,
    "numbers": numbers,
}
QUICK = {
    **{name: partial(FIGURES[name], points=8) for name in (*(f"figure-{i}" for i in range(1, 8)), "substitution")},
    "crossings": partial(theorem, grid=FEW),
    "ablq": partial(loop, runs=1_000),
    "conjecture": partial(conjecture, cases=CASES[2:3]),
}
