"""Feldman, Shenfeld (2025): Privacy amplification by random allocation.

Figures 1 to 4 and the quantitative statements, with the paper's three bounds as this package proves them (analytic,
decomposition, Renyi), Dong, Chen and Ozgur's, and the direct two-sided one; the same for other randomisers than the
Gaussian one, and the orders behind the flat part of Figure 1.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import exp, expm1, log, log1p, prod
from statistics import median
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import hypergeom

import hockeystick as hs
from hockeystick.bounds import Question
from hockeystick.reproduction.curves import Axes, Curve, judge, precise, publish, sweep
from hockeystick.reproduction.papers import Check, Output

from .asymptotics import asymptotics
from .figures import integer_deltas, orders_figure, randomisers_figure
from .statements import corollary_checks, lemma_checks

UPPER, LOWER = hs.Side.UPPER, hs.Side.LOWER
REMOVE, ADD = hs.Direction.REMOVE, hs.Direction.ADD
EPSILON, DELTA, SIGMA = r"$\varepsilon$", r"$\delta$", r"$\sigma$"

Run = Callable[[float], hs.Mechanism]
Profile = Callable[[float], float]
Ratios = dict[hs.Side, list[float]]


# --- what is compared -------------------------------------------------------------------------------------------------


def allocation(sigma: float, bins: int, participations: int = 1, epochs: int = 1) -> hs.Mechanism:
    """Random allocation: k of t steps in every epoch."""
    sampler = hs.RandomAllocation(bins=bins, participations=participations, epochs=epochs)
    return hs.Mechanism(sampler=sampler, noise_multiplier=sigma)


def poisson(sigma: float, bins: int, participations: int = 1, epochs: int = 1) -> hs.Mechanism:
    """Poisson sampling with as many participations on average."""
    sampler = hs.Poisson(sampling_prob=participations / bins, steps=bins * epochs)
    return hs.Mechanism(sampler=sampler, noise_multiplier=sigma)


def shuffled_singles(sigma: float, bins: int) -> hs.Mechanism:
    """Shuffling with batches of one example."""
    return hs.Mechanism(sampler=hs.Shuffle(batch_size=1, bins=bins), noise_multiplier=sigma)


STYLES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "local_upper": ("local: no amplification", "gaussian", {"color": "black", "linestyle": "--"}),
    "poisson_direct_upper": ("Poisson: direct", "direct", {"color": "#999999", "linewidth": 3.5}),
    "poisson_renyi_upper": ("Poisson: Rényi", "renyi", {"color": "#999999", "linewidth": 3.5, "linestyle": ":"}),
    "analytic_upper": ("allocation: analytic", "analytic", {"color": "#e69f00", "linestyle": "--", "linewidth": 2.0}),
    "decomposition_upper": ("allocation: decomposition", "decomposition", {"color": "#cc79a7", "linewidth": 2.5}),
    "renyi_upper": ("allocation: Rényi", "renyi", {"color": "#009e73"}),
    "renyi_2_to_60_upper": ("allocation: Rényi, orders 2 to 60", "renyi", {"color": "#009e73", "linestyle": "--"}),
    "dong_chen_ozgur_upper": ("allocation: Dong, Chen, Ozgur", "dong_chen_ozgur", {"color": "#d55e00"}),
    "shuffle_clones_upper": ("shuffle, batches of one: clones", "shuffle_clones", {"color": "#d55e00"}),
    "direct_upper": ("allocation: direct, upper", "direct", {"color": "#0072b2", "linewidth": 1.2}),
    "direct_lower": ("allocation: direct, lower", "direct", {"color": "#003a63", "linestyle": (0, (2, 2))}),
    "projection_lower": ("allocation: projection, lower", "projection", {"color": "#003a63", "linestyle": (0, (2, 2))}),
}
"""Label, method and line of every curve, in the same colours in every figure."""


def curves(runs: dict[str, Run], columns: list[str]) -> list[Curve]:
    """The named curves; ``runs`` has the runs for columns by their first word, and for all others under ``""``."""
    return [
        Curve(
            column=column,
            label=STYLES[column][0],
            mechanism=runs.get(column.split("_")[0], runs[""]),
            method=STYLES[column][1],
            side=LOWER if column.endswith("_lower") else UPPER,
            style=STYLES[column][2],
        )
        for column in columns
    ]


# --- figures ----------------------------------------------------------------------------------------------------------


def noise_figure(output: Output, points: int = 13) -> None:
    """Figure 1: epsilon against the noise multiplier."""
    steps, delta = 10**6, 1e-10
    runs: dict[str, Run] = {
        "": lambda sigma: allocation(sigma, steps),
        "poisson": lambda sigma: poisson(sigma, steps),
        "shuffle": lambda sigma: shuffled_singles(sigma, steps),
    }
    columns = ["local_upper", "shuffle_clones_upper", "poisson_direct_upper", "decomposition_upper", "analytic_upper"]
    columns += ["renyi_upper", "direct_upper", "direct_lower"]
    series = sweep(curves(runs, columns), np.geomspace(0.25, 5.0, points).tolist(), Question(delta=delta), output)
    publish(
        output,
        "figure-1",
        series,
        Axes(
            places="sigma",
            x=f"noise multiplier {SIGMA}",
            y=EPSILON,
            title=f"{DELTA} = {delta:g}, t = {steps:,} steps, one allocation",
            log="xy",
            ticks=(0.25, 0.5, 1.0, 2.0, 4.0),
        ),
    )


def epochs_figure(output: Output, points: int = 16) -> None:
    """Figure 2: epsilon against the number of epochs."""
    steps, sigma, delta = 10**4, 1.0, 1e-8
    runs: dict[str, Run] = {
        "": lambda epochs: allocation(sigma, steps, epochs=int(epochs)),
        "poisson": lambda epochs: poisson(sigma, steps, epochs=int(epochs)),
    }
    columns = ["local_upper", "poisson_direct_upper", "poisson_renyi_upper", "decomposition_upper"]
    columns += ["renyi_upper", "direct_upper", "direct_lower"]
    series = sweep(curves(runs, columns), whole_numbers(1, 1000, points), Question(delta=delta), output)
    publish(
        output,
        "figure-2",
        series,
        Axes(
            places="epochs",
            x="epochs E",
            y=EPSILON,
            title=f"{SIGMA} = {sigma:g}, {DELTA} = {delta:g}, t = {steps:,} steps in an epoch",
            log="xy",
        ),
    )


def steps_figure(output: Output, points: int = 16) -> None:
    """Figure 3: delta against the number of steps."""
    sigma, epsilon = 0.3, 10.0
    runs: dict[str, Run] = {
        "": lambda steps: allocation(sigma, int(steps)),
        "poisson": lambda steps: poisson(sigma, int(steps)),
    }
    columns = ["local_upper", "poisson_direct_upper", "poisson_renyi_upper", "decomposition_upper"]
    columns += ["renyi_upper", "direct_upper", "direct_lower"]
    places = whole_numbers(2, 10**6, points)
    series = sweep(curves(runs, columns), places, Question(epsilon=epsilon), output, smallest_delta=1e-9)
    (integers,) = curves(runs, ["renyi_2_to_60_upper"])
    of_integers = [integer_deltas(sigma, int(steps), epsilon) for steps in places]
    publish(
        output,
        "figure-3",
        replace(series, values={**series.values, integers: of_integers}),
        Axes(
            places="steps",
            x="steps t",
            y=DELTA,
            title=f"{SIGMA} = {sigma:g}, {EPSILON} = {epsilon:g}, one allocation",
            log="xy",
        ),
    )


def participations_figure(output: Output, points: int = 16) -> None:
    """Figure 4: epsilon against the number of participations; a bound ends where epsilon leaves its range."""
    steps, sigma, delta = 1024, 1.0, 1e-6
    runs: dict[str, Run] = {
        "": lambda k: allocation(sigma, steps, participations=int(k)),
        "poisson": lambda k: poisson(sigma, steps, participations=int(k)),
    }
    columns = ["local_upper", "poisson_direct_upper", "poisson_renyi_upper", "dong_chen_ozgur_upper", "renyi_upper"]
    columns += ["direct_upper", "projection_lower"]
    series = sweep(curves(runs, columns), whole_numbers(1, steps, points), Question(delta=delta), output)
    publish(
        output,
        "figure-4",
        series,
        Axes(
            places="participations",
            x="participations k",
            y=EPSILON,
            title=f"{SIGMA} = {sigma:g}, {DELTA} = {delta:g}, t = {steps:,} steps",
            log="xy",
        ),
    )


def whole_numbers(first: int, last: int, points: int) -> list[float]:
    """About ``points`` whole numbers, evenly on a logarithmic scale."""
    return sorted({float(round(place)) for place in np.geomspace(first, last, points)})


# --- statements -------------------------------------------------------------------------------------------------------


def numbers(output: Output) -> None:
    """The paper's quantitative statements, each judged by certified bounds."""
    groups = (
        decomposition_checks,
        one_step_checks,
        worse_direction_checks,
        epochs_checks,
        steps_checks,
        participations_checks,
        corollary_checks,
        lemma_checks,
    )
    output.checks("numbers", [check for group in groups for check in group(output)])


def judge_largest(what: str, printed: str, ratios: Ratios, why: str = "") -> Check:
    """Whether the largest of several ratios, known from both sides, is at most a printed number."""
    return judge(what, "<=", printed, upper=max(ratios[UPPER]), lower=max(ratios[LOWER]), why=why)


def decomposition_at(of_poisson: hs.Bound, steps: int, sampling_prob: float) -> dict[hs.Direction, Profile]:
    """Theorem 4.1 at one rate, from a bound on Poisson's profiles, on its side.

    Remove as printed. Add does not follow from the add profile in that way, and needs ``d = rate + e^eps (1 - rate)``.
    """
    rate = -expm1(steps * log1p(-sampling_prob))

    def remove(epsilon: float) -> float:
        return of_poisson.profiles[REMOVE](log1p(rate * expm1(epsilon))) / rate

    def add(epsilon: float) -> float:
        d = rate + exp(epsilon) * (1.0 - rate)
        return d / rate * of_poisson.profiles[ADD](max(epsilon - log(d), 0.0))

    return {REMOVE: remove, ADD: add}


def decomposition_checks(output: Output) -> list[Check]:
    """Theorem 4.1: the factor of about 1.6 at rate 1/t for epsilon below 1."""
    steps, delta = 10**6, 1e-10
    remove: Ratios = {side: [] for side in hs.Side}
    both: Ratios = {side: [] for side in hs.Side}
    itself: Ratios = {side: [] for side in hs.Side}
    for sigma in (0.51, 0.6, 0.7, 1.0, 2.0, 5.0):
        of_poisson = {side: precise(poisson(sigma, steps), "direct", output, side, delta) for side in hs.Side}
        of_allocation = {side: precise(allocation(sigma, steps), "direct", output, side, delta) for side in hs.Side}
        for side, other in ((UPPER, LOWER), (LOWER, UPPER)):
            against = of_poisson[other].epsilon(delta)
            formulas = decomposition_at(of_poisson[side], steps, 1.0 / steps)
            remove_only = dict.fromkeys(hs.Direction, formulas[REMOVE])
            remove[side].append(replace(of_poisson[side], profiles=remove_only).epsilon(delta) / against)
            both[side].append(replace(of_poisson[side], profiles=formulas).epsilon(delta) / against)
            itself[side].append(of_allocation[side].epsilon(delta) / against)
    ratio = f"largest eps_allocation/eps_Poisson, eps<1, t={steps:g}, delta={delta:g}"
    why = "the theorem compares with Poisson's eps at lambda' delta, and the factor 1/lambda' leaves that out"

    return [
        judge_largest(f"{ratio}: decomposition at rate 1/t, remove", "1.6", remove, why=why),
        judge_largest(f"{ratio}: decomposition at rate 1/t, both directions", "1.6", both, why=why),
        judge_largest(f"{ratio}: the allocation itself", "1.6", itself),
    ]


def one_step_checks(output: Output) -> list[Check]:
    """Theorem 4.1 for a single step: of the worse direction (Definition 2.2) it is true, of the add profile false."""
    coin = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.5, steps=1), noise_multiplier=1.0)
    of_coin = {side: precise(coin, "direct", output, side) for side in hs.Side}
    inner = log1p(0.5 * expm1(1.0))
    formula = {
        direction: {side: bound.profiles[direction](inner) / 0.5 for side, bound in of_coin.items()}
        for direction in hs.Direction
    }
    worse = {side: max(formula[direction][side] for direction in hs.Direction) for side in hs.Side}
    one_step = {side: precise(allocation(1.0, 1), "gaussian", output, side).profiles[ADD](1.0) for side in hs.Side}
    what = "delta(1) of one step, sigma=1, against Theorem 4.1 at rate 1/2"
    upper, lower = one_step[UPPER], one_step[LOWER]
    own = decomposition_at(of_coin[UPPER], 1, 0.5)[ADD](1.0)
    return [
        judge(f"{what}: the formula, worse direction", "~", "0.1269", upper=worse[UPPER], lower=worse[LOWER]),
        judge(
            f"{what}: add by the add profile alone",
            "<=",
            repr(formula[ADD][UPPER]),
            upper=upper,
            lower=lower,
            why="the formula is proved for remove only; the theorem is about the worse direction",
        ),
        judge(f"{what}: add with its own formula", "<=", repr(own), upper=upper, lower=lower),
    ]


def worse_direction_checks(output: Output) -> list[Check]:
    """Theorem 4.1 beyond one step: which direction is the worse one decides whether it holds."""
    odds, steps, rate, level = 10, 2, Fraction(1, 2), 6
    truth, formula = (max(both) for both in randomised_response(odds, steps, rate, level))
    ratios: Ratios = {side: [] for side in hs.Side}
    for bins in (2, 4, 10):
        for sigma in (0.3, 0.5, 1.0, 2.0):
            of_both = {side: precise(allocation(sigma, bins), "direct", output, side, 1e-6) for side in hs.Side}
            for epsilon in (0.25, 1.0, 2.0):
                for side, other in ((UPPER, LOWER), (LOWER, UPPER)):
                    add, remove = of_both[side].profiles[ADD](epsilon), of_both[other].profiles[REMOVE](epsilon)
                    if min(add, remove) > 1e-6:
                        ratios[side].append(add / remove)
    return [
        judge(
            f"delta(ln {level}) of randomised response with odds {odds}, t={steps}, against Theorem 4.1 at rate {rate}",
            "<=",
            repr(float(formula)),
            upper=float(truth),
            lower=float(truth),
            why=f"{truth} against {formula}: add is the worse direction here, and the proof is about remove",
        ),
        judge_largest("largest delta of add/remove, Gaussian allocation, t=2 to 10, sigma=0.3 to 2", "1", ratios),
    ]


def randomised_response(
    odds: int, steps: int, rate: Fraction, level: int
) -> tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]:
    """(remove, add) of 1-of-``steps`` allocation at e^epsilon = ``level``, and of Theorem 4.1's formula, exactly.

    The randomiser tells truly with odds : 1 whether the element is there. Its likelihood ratio is ``odds`` with
    Q-probability 1/(1 + odds), else 1/odds; the pair is the same in both directions, so it is the tight one.
    """
    visited = 1 - (1 - rate) ** steps
    inner = 1 + visited * (level - 1)
    true, formula = [Fraction(0)] * 2, [Fraction(0)] * 2
    for signs in product((True, False), repeat=steps):
        ratios = [Fraction(odds) if sign else Fraction(1, odds) for sign in signs]
        chance = Fraction(prod(1 if sign else odds for sign in signs), (1 + odds) ** steps)
        mean, all_coins = sum(ratios) / steps, prod(1 - rate + rate * ratio for ratio in ratios)
        true[0] += chance * max(mean - level, Fraction(0))
        true[1] += chance * max(1 - level * mean, Fraction(0))
        formula[0] += chance * max(all_coins - inner, Fraction(0)) / visited
        formula[1] += chance * max(1 - inner * all_coins, Fraction(0)) / visited
    return (true[0], true[1]), (formula[0], formula[1])


def epochs_checks(output: Output) -> list[Check]:
    """Figure 2: what Renyi accounting loses over many epochs, and how the bounds compare."""
    steps, delta = 10**4, 1e-8
    why = "the range is said to be typical; the loss falls as the epochs become more"
    losses, renyi_ratios, analytic_ratios = [], [], []
    for epochs in (1, 10, 100, 300, 1000):
        run = allocation(1.0, steps, epochs=epochs)
        renyi = precise(run, "renyi", output, UPPER, delta).epsilon(delta)
        other = precise(poisson(1.0, steps, epochs=epochs), "renyi", output, UPPER, delta).epsilon(delta)
        analytic = precise(run, "analytic", output, UPPER, delta).epsilon(delta)
        decomposition = precise(run, "decomposition", output, UPPER, delta).epsilon(delta)
        renyi_ratios.append(other / renyi)
        analytic_ratios.append(analytic / decomposition)
        exact = {side: precise(run, "direct", output, side, delta).epsilon(delta) for side in hs.Side}
        upper, lower = renyi / exact[LOWER] - 1.0, renyi / exact[UPPER] - 1.0
        what = f"relative loss of Renyi accounting, sigma=1, t={steps}, E={epochs}"
        losses.append(judge(what, "<=", "0.2", upper=upper, lower=lower, why=why))
    alike = "eps of Renyi, Poisson/allocation, Figure 2"
    return [
        *losses,
        judge(f"{alike}: nearly 1 at all E", "~", "1.0", upper=max(renyi_ratios), lower=min(renyi_ratios)),
        judge("eps of analytic/decomposition, Figure 2: smallest", ">=", "1", lower=min(analytic_ratios)),
    ]


COMPARED = (10, 100, 1000, 4_500, 5_500, 11_000, 13_000)
"""Steps at which Figure 3's curves are compared: before and after they cross, by the paper's orders and by all."""


def steps_checks(output: Output) -> list[Check]:
    """Figure 3: up to which t Renyi for allocation is below the truth for Poisson, by all orders and by the paper's."""
    of_poisson = {steps: precise(poisson(0.3, steps), "direct", output, LOWER).delta(10.0) for steps in COMPARED}

    def check(steps: int, orders: str, delta: float) -> Check:
        what = f"delta(10), sigma=0.3, t={steps}: allocation by Renyi, {orders}, below Poisson"
        why = "the curves cross between about 13 and 4,900 steps, with all orders between 3 and 12,500"
        return judge(what, "<", repr(of_poisson[steps]), upper=delta, why=why)

    of_all = {steps: precise(allocation(0.3, steps), "renyi", output).delta(10.0) for steps in of_poisson}
    return [
        *(check(steps, "all orders", delta) for steps, delta in of_all.items()),
        *(check(steps, "orders 2 to 60", integer_deltas(0.3, steps, 10.0)) for steps in of_poisson),
    ]


def participations_checks(output: Output) -> list[Check]:
    """Figure 4: Renyi bounds of k-of-t by blocks (theirs) and as one step (Dong, Chen and Ozgur)."""
    steps, sigma, delta = 1024, 1.0, 1e-6

    def epsilon(k: int, method: str) -> float:
        return precise(allocation(sigma, steps, participations=k), method, output, UPPER, delta).epsilon(delta)

    small = median(epsilon(k, "renyi") / epsilon(k, "dong_chen_ozgur") for k in (1, 2, 4, 8, 16))
    large = median(epsilon(k, "dong_chen_ozgur") / epsilon(k, "renyi") for k in (128, 256, 512))
    at_two = median(order_two(k, steps, sigma, delta) for k in (128, 256, 512))
    why = "Renyi orders below 2, which the paper leaves out, are better for large k; see the next row for order 2"
    where = f"t={steps}, sigma=1, delta={delta:g}"
    return [
        judge(f"eps of Renyi/Dong et al., {where}, median of k=1..16", "~", "0.6", upper=small, lower=small),
        judge(
            f"eps of Dong et al./Renyi, {where}, median of k=128..512", "~", "0.9", upper=large, lower=large, why=why
        ),
        judge("the same at order 2 alone", "~", "0.9", upper=at_two, lower=at_two),
    ]


def order_two(k: int, steps: int, sigma: float, delta: float) -> float:
    """epsilon of Dong, Chen and Ozgur over that of k blocks, both from the Renyi divergence of order 2.

    The first is exact at this order: ``log E e^(H / sigma^2)`` for the overlap H of two random k-subsets.
    """
    convert = log(1.0 / delta) - 2.0 * log(2.0)
    size, longer = divmod(steps, k)
    step = expm1(sigma**-2)
    blocks = (k - longer) * log1p(step / size) + longer * log1p(step / (size + 1))
    overlap = np.arange(k + 1)
    balanced = float(logsumexp(hypergeom.logpmf(overlap, steps, k, k) + overlap / sigma**2))
    return (balanced + convert) / (blocks + convert)


FIGURES = {
    "figure-1": noise_figure,
    "figure-2": epochs_figure,
    "figure-3": steps_figure,
    "figure-4": participations_figure,
    "randomisers": randomisers_figure,
    "orders": orders_figure,
    "asymptotics": asymptotics,
    "numbers": numbers,
}
