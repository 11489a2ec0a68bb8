"""Other randomisers, and the orders behind the flat part of Figure 1 and behind Figure 3."""

from collections.abc import Sequence
from math import isfinite

import numpy as np

import hockeystick as hs
from hockeystick.accountants.dong_chen_ozgur import block_add_moments
from hockeystick.moments.log_moments import LogMoments
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.report.plot import new_figure
from hockeystick.reproduction.papers import Output
from hockeystick_papers.renyi import averaged_moments

from .randomisers import METHODS, Laplace, RandomisedResponse, epsilons_of_orders

LABELS = {
    "local": ("local: no amplification", {"color": "black", "linestyle": "--"}),
    "theorem_3_2": ("Theorem 3.2", {"color": "#e69f00", "linestyle": "--"}),
    "decomposition": ("Theorem 4.1 at rate 1/t, both directions", {"color": "#cc79a7"}),
    "renyi_2_to_60": ("Theorem 4.6, orders 2 to 60", {"color": "#009e73"}),
    "poisson": ("Poisson at rate 1/t", {"color": "#999999", "linewidth": 3.5}),
    "direct_upper": ("direct, upper", {"color": "#0072b2"}),
    "direct_lower": ("direct, lower", {"color": "#003a63", "linestyle": (0, (2, 2))}),
}
LARGEST_ORDER = 60


def randomisers_figure(output: Output, points: int = 17) -> None:
    """epsilon against t for randomised response and Laplace noise, by every bound of the paper and the direct one."""
    delta, resolution = 1e-6, hs.Resolution(48, 1e-6)
    places = sorted({round(place) for place in np.geomspace(10, 10**5, points)})
    randomisers = (RandomisedResponse(3.0), Laplace(1.0))
    figure = new_figure(figsize=(10.0, 4.8))
    for place, (randomiser, key) in enumerate(zip(randomisers, ("response", "laplace"), strict=True), start=1):
        values: dict[str, list[float]] = {name: [] for name in METHODS}
        for steps in places:
            for name, method in METHODS.items():
                output.deadline.tick()
                values[name].append(method(randomiser, steps, delta, resolution))
        rows = [[steps, *(repr(values[name][i]) for name in METHODS)] for i, steps in enumerate(places)]
        output.table(f"randomisers-{key}", ["steps", *METHODS], rows)
        plot = figure.add_subplot(1, 2, place)
        for name, (label, style) in LABELS.items():
            plot.plot(places, values[name], label=label if place == 1 else None, **style)
        plot.set(xscale="log", yscale="log", xlabel="steps t", ylabel=r"$\varepsilon$")
        plot.set_title(f"{randomiser.name}, $\\delta$ = {delta:g}", fontsize=10)
        plot.grid(True, alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    output.figure("randomisers", figure)


def orders_figure(output: Output, points: int = 33) -> None:
    """The flat part of Figure 1: the bound from orders 2 to 60 alone, and what each order gives by itself."""
    steps, delta = 10**6, 1e-10
    sigmas = np.geomspace(0.25, 5.0, points).tolist()
    orders = np.arange(2.0, LARGEST_ORDER + 1.0)
    limited, free, best = [], [], []
    for sigma in sigmas:
        output.deadline.tick()
        each = order_epsilons(sigma, steps, delta)
        limited.append(float(each.min()))
        best.append(float(orders[int(np.argmin(each))]))
        run = hs.Mechanism(sampler=hs.RandomAllocation(bins=steps), noise_multiplier=sigma)
        settings = hs.Settings(hs.Resolution(48, delta), output.deadline)
        free.append(hs.bound(run, "renyi", settings=settings).epsilon(delta))
    rows = zip((f"{sigma:.6g}" for sigma in sigmas), limited, best, free, strict=True)
    output.table("orders", ["sigma", "renyi_2_to_60_upper", "best_order", "renyi_all_orders_upper"], rows)
    figure = new_figure(figsize=(10.0, 4.8))
    left, right = figure.subplots(1, 2)
    left.plot(sigmas, limited, color="#d55e00", label="orders 2 to 60, as in the paper")
    left.plot(sigmas, free, color="#009e73", label="all orders, real ones too")
    left.set(xscale="log", yscale="log", xlabel=r"noise multiplier $\sigma$", ylabel=r"$\varepsilon$")
    left.set_xticks([], minor=True)
    left.set_xticks((0.25, 0.5, 1.0, 2.0, 4.0), ("0.25", "0.5", "1", "2", "4"))
    for sigma in (0.5, 0.7, 1.0, 2.0, 4.0):
        right.plot(orders, order_epsilons(sigma, steps, delta), label=rf"$\sigma$ = {sigma:g}")
    right.set(yscale="log", xlabel=r"order $\alpha$", ylabel=r"$\varepsilon$ from this order alone")
    for plot in (left, right):
        plot.grid(True, alpha=0.3)
        plot.legend(fontsize=8)
    figure.suptitle(f"$\\delta$ = {delta:g}, t = {steps:,} steps, one allocation", fontsize=10)
    output.figure("orders", figure)
    output.lines.append(plateau(sigmas, limited, best))


def order_epsilons(sigma: float, steps: int, delta: float) -> np.ndarray:
    """The worse direction's epsilon from each of the orders 2 to 60 by itself."""
    orders = np.arange(2.0, LARGEST_ORDER + 1.0)
    remove = averaged_moments(sigma, steps, LARGEST_ORDER)
    pair = AveragedSteps(noise_multiplier=sigma, bins=steps)
    add = block_add_moments(pair, hs.Settings(hs.Resolution(48, delta)))
    return np.maximum(*(epsilons_of_orders(orders, _at(moments, orders), delta) for moments in (remove, add)))


def integer_deltas(sigma: float, steps: int, epsilon: float) -> float:
    """delta from the best of the orders 2 to 60: Theorem 4.6 and Lemma 2.4, for remove alone, as in the paper."""
    orders = np.arange(2.0, LARGEST_ORDER + 1.0)
    moments = _at(averaged_moments(sigma, steps, LARGEST_ORDER), orders)
    logs = moments - (orders - 1.0) * epsilon - np.log(orders - 1.0) + orders * np.log1p(-1.0 / orders)
    return float(np.exp(min(logs.min(), 0.0)))


def _at(moments: LogMoments, orders: np.ndarray) -> np.ndarray:
    """Upper bounds of ``log M_a`` at these orders: the chord between known ones, as log M is convex."""
    known = np.isfinite(moments.values)
    inside = orders <= moments.orders[known].max(initial=1.0)
    chords = np.interp(orders, [1.0, *moments.orders[known]], [0.0, *moments.values[known]])
    return np.where(inside, chords, np.inf)


def plateau(sigmas: Sequence[float], limited: Sequence[float], best: Sequence[float]) -> str:
    """Where the largest order is the best one, and how little epsilon changes there."""
    flat = [i for i, order in enumerate(best) if order == LARGEST_ORDER and isfinite(limited[i])]
    if not flat:
        return "no plateau: the largest order is nowhere the best"
    first = flat[0]
    return (
        f"flat from sigma = {sigmas[first]:.3g} on, where order {LARGEST_ORDER} is the best of 2 to {LARGEST_ORDER}: "
        f"epsilon falls from {limited[first]:.4g} to {limited[-1]:.4g} only"
    )
