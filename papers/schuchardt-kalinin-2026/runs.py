"""What the figures are about: the mechanisms, their methods, and the numbers that figures and statements share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from math import nan
from typing import Any

import numpy as np

import hockeystick as hs
from hockeystick.accountants.registry import every_accountant
from hockeystick.bounds import Question
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, UnsupportedError
from hockeystick.execution import executor
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.pairs.registry import dominating_pair
from hockeystick.posteriors.bins import budget
from hockeystick.posteriors.bins.hazards import tail_bounds
from hockeystick.posteriors.bins.levels import levelled_means
from hockeystick.reproduction.curves import PLOT_NODES, Curve, Series
from hockeystick.reproduction.papers import Output
from hockeystick.settings import MonteCarlo
from hockeystick_papers.bin_renyi import remove_moments

from .allocation import profiles_as_published
from .posterior import allocations, simulated_losses, top_posterior
from .printed_renyi import add_divergence, algorithm_1, printed_epsilons

UPPER, LOWER = hs.Side.UPPER, hs.Side.LOWER
DELTA = 1e-5
POINTS = 15
"""Noise multipliers on every curve of Figures 2 and 3."""
NOT_CERTIFIED = "not_certified_conditional_composition"
PRINTED = "renyi_as_printed"
LARGEST_PRINTED_ORDER = 160
FAILURE = 1e-6
"""Of a Monte Carlo curve, all its points and both its sides together."""
SEED = 20260521
RATIO = 0.2
"""Of the two Monte Carlo bounds in delta, which is a few percent in epsilon."""
SAMPLING_SECONDS = 30.0
"""For a point, many times what it takes: the samples, and so the figure, depend on the seed alone."""

EFFORT = 1.0
"""Of the accountants that plan theirs: a tenth of the usual one, so that a table takes minutes."""
ACCOUNTANTS = every_accountant()
IN_GAPS = ("moment_majorant_cells", "bin_filter")
"""Not in the paper, and half the work of a place: Figures 2 and 3, with 180 places, leave these accountants to the
table of ``gaps``."""

Run = Callable[[float], hs.Mechanism]


class Steady(Deadline):
    """A deadline that always says the same about the time left, so that methods which go by it repeat their work."""

    def remaining(self) -> float:
        """Twice what the Renyi accountant may take; more changes nothing that a plot shows."""
        return 4.0


def steady(output: Output) -> Output:
    """The same output, for computations on a :class:`Steady` deadline."""
    return replace(output, deadline=Steady(seconds=output.deadline.seconds, on_tick=output.deadline.on_tick))


# --- what is run ------------------------------------------------------------------------------------------------------


def mechanism(strategy: Callable[[], Any], bins: int, epochs: int, sigma: float) -> hs.Mechanism:
    """Balls-in-bins with a strategy matrix."""
    sampler = hs.BallsInBins(bins=bins, epochs=epochs)
    return hs.Mechanism(strategy=strategy(), sampler=sampler, noise_multiplier=sigma)


STRATEGIES: dict[str, Callable[[], Any]] = {
    "DP-SGD": lambda: hs.BandedSquareRoot(bands=1),
    "BSR, p=4": lambda: hs.BandedSquareRoot(bands=4),
    "BSR, p=64": lambda: hs.BandedSquareRoot(bands=64),
    "BISR, p=4": lambda: hs.BandedInverseSquareRoot(bands=4),
    "BISR, p=64": lambda: hs.BandedInverseSquareRoot(bands=64),
    "BLT": lambda: hs.BufferedToeplitz(buffers=3),
    "BandMF, p=64": lambda: hs.ColumnNormalizedBanded(bands=64),
    "BandInvMF, p=4": lambda: hs.BandedInverse(bands=4),
}
"""BSR with one band is the identity, as a matrix that the accountants of correlated noise take."""

PANELS: dict[str, dict[str, tuple[str, int, int, tuple[float, float]]]] = {
    "figure-2": {
        "a": ("DP-SGD", 100, 1, (0.4, 2.2)),
        "b": ("DP-SGD", 1000, 1, (0.35, 1.5)),
        "c": ("DP-SGD", 100, 10, (1.2, 12.0)),
        "d": ("BSR, p=4", 100, 1, (0.5, 7.0)),
        "e": ("BSR, p=64", 100, 1, (0.6, 20.0)),
        "f": ("BSR, p=4", 100, 10, (1.5, 22.0)),
    },
    "figure-3": {
        "a": ("BISR, p=4", 100, 1, (0.5, 13.0)),
        "b": ("BISR, p=64", 100, 1, (0.6, 20.0)),
        "c": ("BISR, p=4", 100, 10, (1.6, 40.0)),
        "d": ("BLT", 100, 1, (0.4, 12.5)),
        "e": ("BandMF, p=64", 100, 1, (0.4, 13.0)),
        "f": ("BandInvMF, p=4", 100, 1, (0.4, 12.5)),
    },
}
"""Strategy, bins, epochs and the noise multipliers between which the curves run."""

BAND = "#e9d8a6"
STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "gaussian_upper": ("no amplification", {"color": "black", "linestyle": "--", "linewidth": 1.0}),
    "bin_renyi_upper": ("Rényi", {"color": "#009e73"}),
    "conditional_composition_upper": ("conditional composition", {"color": "#d55e00"}),
    "comparison_upper": ("comparison, upper", {"color": "#0072b2"}),
    "comparison_lower": ("comparison, lower", {"color": "#003a63", "linestyle": (0, (2, 2))}),
    "moment_majorant_upper": ("moment majorant, upper", {"color": "#e69f00"}),
    "moment_majorant_lower": ("moment majorant, lower", {"color": "#a06e00", "linestyle": (0, (2, 2))}),
    "moment_majorant_cells_upper": ("moment majorant on cells, upper", {"color": "#56b4e9"}),
    "moment_majorant_cells_lower": (
        "moment majorant on cells, lower",
        {"color": "#2f7fae", "linestyle": (0, (2, 2))},
    ),
    "monte_carlo_upper": (
        f"Monte Carlo (a curve fails with probability at most {FAILURE:g})",
        {"color": "#cc79a7", "linewidth": 1.0},
    ),
    "monte_carlo_lower": (
        f"Monte Carlo (a curve fails with probability at most {FAILURE:g})",
        {"color": "#cc79a7", "linewidth": 1.0},
    ),
    "best_upper": ("between the best deterministic bounds", {"color": BAND, "linewidth": 3.0, "zorder": 1}),
    "best_lower": ("between the best deterministic bounds", {"color": BAND, "linewidth": 3.0, "zorder": 1}),
    PRINTED: ("the paper's Rényi, one order for both directions", {"color": "#009e73", "ls": ":"}),
    NOT_CERTIFIED: ("conditional composition, the paper's allocation (not certified)", {"color": "#d55e00", "ls": ":"}),
}
"""Legend and line of the known columns; others are drawn as they come."""


def panel_run(figure: str, letter: str) -> Run:
    """What a panel is about, as a function of the noise multiplier."""
    strategy, bins, epochs, _ = PANELS[figure][letter]
    return partial(mechanism, STRATEGIES[strategy], bins, epochs)


# --- Gram matrices ----------------------------------------------------------------------------------------------------

GRAMS = {"BandMF, p=64": 64, "BSR, p=64": 64, "BISR, p=64": 64, "BandInvMF, p=4": 4}
"""The strategies of Figure 1 and their bands."""


@cache
def gram_of(strategy: str, bins: int) -> Any:
    """The Gram matrix of ten epochs."""
    return dominating_pair(mechanism(STRATEGIES[strategy], bins, 10, 1.0)).gram


def by_distance(gram: Any) -> tuple[Any, Any]:
    """Smallest and largest entry at every cyclic distance from 0 to half the bins."""
    bins = gram.shape[0]
    index = np.arange(bins)
    rings = [gram[index, (index + distance) % bins] for distance in range(bins // 2 + 1)]
    return np.array([ring.min() for ring in rings]), np.array([ring.max() for ring in rings])


# --- noise against epsilon --------------------------------------------------------------------------------------------

_DONE: dict[tuple[str, str, int], Series] = {}
"""The statements are judged by the same series as are drawn."""


def panel_series(output: Output, points: int, figure: str, letter: str) -> Series:
    """epsilon of every method at every noise multiplier of a panel; computed once."""
    if (figure, letter, points) not in _DONE:
        places = np.geomspace(*PANELS[figure][letter][3], points).tolist()
        _DONE[figure, letter, points] = methods_at(panel_run(figure, letter), places, output)
    return _DONE[figure, letter, points]


def methods_at(run: Run, places: Sequence[float], output: Output) -> Series:
    """The methods of a figure, the best of their deterministic bounds, and the paper's two accountants as printed."""
    known = deterministic_at(run, places, output, without=IN_GAPS)
    paper = [kept("paper_epsilon", paper_epsilon, run(place), output) for place in places]
    printed = [kept("printed_renyi", printed_renyi, run(place), output)[0] for place in places]
    extra = {
        titled(run, PRINTED, method="bin_renyi"): printed,
        titled(run, NOT_CERTIFIED, method="conditional_composition"): paper,
    }
    return Series(places, {**known, **best_of(run, known), **monte_carlo_band(run, places, output), **extra})


def kept(name: str, compute: Callable[[hs.Mechanism, Output], Any], run: hs.Mechanism, output: Output) -> Any:
    """What a function says of a mechanism, computed once."""
    return output.kept.value(f"{name} {run.model_dump_json()}", lambda: compute(run, output))


def deterministic_at(
    run: Run, places: Sequence[float], output: Output, without: Sequence[str] = ()
) -> dict[Curve, list[float]]:
    """epsilon at every place by every side of the deterministic accountants; nan where there is no bound."""
    by_curve = {
        curve: [epsilon_of(curve, place, output) for place in places]
        for curve in registered_curves(run, places[0])
        if curve.method not in without
    }
    return {curve: [value if np.isfinite(value) else nan for value in values] for curve, values in by_curve.items()}


def epsilon_of(curve: Curve, sigma: float, output: Output) -> float:
    """The bound of a deterministic accountant at a noise multiplier; nan where it does not apply, perhaps infinite.

    Computed once.
    """
    run = curve.mechanism(sigma)

    def compute() -> float:
        output.deadline.tick()
        settings = hs.Settings(hs.Resolution(PLOT_NODES, DELTA), steady(output).deadline, effort=EFFORT)
        try:
            return hs.bound(run, curve.method, side=curve.side, settings=settings).epsilon(DELTA)
        except UnsupportedError:
            return nan

    return float(output.kept.value(f"{curve.method} {curve.side} {run.model_dump_json()}", compute))


def best_of(run: Run, known: Mapping[Curve, Sequence[float]]) -> dict[Curve, list[float]]:
    """The smallest of the upper bounds and the largest of the lower ones, at every place."""
    best = {}
    for side, better in ((UPPER, np.fmin), (LOWER, np.fmax)):
        values = [values for curve, values in known.items() if curve.side is side]
        best[titled(run, f"best_{side.value}", method="best", side=side)] = better.reduce(np.array(values)).tolist()
    return best


def monte_carlo_band(run: Run, places: Sequence[float], output: Output) -> dict[Curve, list[float]]:
    """Lower and upper bounds on epsilon by sampling, which hold at all places at once, but for FAILURE.

    Every place has an equal share of FAILURE and a seed of its own. nan where there is no bound.
    """
    ends: dict[hs.Side, list[float]] = {UPPER: [], LOWER: []}
    for number, place in enumerate(places):
        bounds = output.kept.value(
            f"monte_carlo {number} of {len(places)} {run(place).model_dump_json()}",
            lambda number=number, place=place: sampled(run(place), number, len(places), output),
        )
        for side, values in ends.items():
            values.append(bounds[side.value])
    return {
        titled(run, f"monte_carlo_{side.value}", method="monte_carlo", side=side): values
        for side, values in ends.items()
    }


def sampled(run: hs.Mechanism, number: int, places: int, output: Output) -> dict[str, float]:
    """The Monte Carlo bounds on both sides at one of several places; nan where there is none."""
    options = MonteCarlo(
        failure_probability=FAILURE / places, ratio=RATIO, seed=SEED + number, executor=executor("local")
    )
    deadline = Deadline(SAMPLING_SECONDS, output.deadline.on_tick)
    settings = hs.Settings(hs.Resolution(PLOT_NODES, DELTA), deadline, Question(delta=DELTA), options)
    ends = {}
    for side in (UPPER, LOWER):
        try:
            epsilon = hs.bound(run, "monte_carlo", side=side, settings=settings).epsilon(DELTA)
        except BudgetExceededError:
            epsilon = nan
        ends[side.value] = epsilon if np.isfinite(epsilon) else nan
    return ends


def registered_curves(run: Run, sigma: float) -> list[Curve]:
    """One curve for each side of each deterministic accountant that covers the pair."""
    pair = dominating_pair(run(sigma))
    return [
        titled(run, f"{method.name}_{side.value}", method=method.name, side=side)
        for method in ACCOUNTANTS.values()
        for side in method.sides
        if method.kind is hs.Kind.DETERMINISTIC and method.why_not(pair, side) is None
    ]


def titled(run: Run, column: str, *, method: str, side: hs.Side = UPPER) -> Curve:
    """A curve with the label and line that its column has in all figures."""
    label, style = STYLES.get(column, (column.replace("_", " "), {}))
    return Curve(column=column, label=label, mechanism=run, method=method, side=side, style=style)


def paper_epsilon(run: hs.Mechanism, output: Output) -> float:
    """epsilon by conditional composition with the paper's allocation of failure probability, which proves nothing."""
    settings = hs.Settings(hs.Resolution(PLOT_NODES, DELTA), output.deadline)
    profiles = profiles_as_published(dominating_pair(run), settings)
    epsilon = smallest_epsilon(lambda epsilon: max(profile(epsilon) for profile in profiles.values()), DELTA, UPPER)
    return epsilon if np.isfinite(epsilon) else nan


def printed_renyi(run: hs.Mechanism, output: Output) -> tuple[float, float]:
    """epsilon by the paper's Renyi accountant: by Algorithm 3, and with an order for each direction.

    Where the Gram matrix has one band, by Algorithm 1. It would take too long for more bands; there the moments are
    those of our accountant, which are the same, or smaller than with a bandwidth that Algorithm 1 can afford.
    """
    output.deadline.tick()
    pair = dominating_pair(run)
    scaled = np.asarray(pair.gram) / pair.noise_multiplier**2
    if np.count_nonzero(scaled) == pair.bins:
        orders = np.arange(2.0, LARGEST_PRINTED_ORDER + 1.0)
        moments = algorithm_1(scaled, 1, LARGEST_PRINTED_ORDER)
    else:
        remove = remove_moments(pair, hs.Settings(hs.Resolution(PLOT_NODES, DELTA), steady(output).deadline))
        orders, moments = remove.orders, remove.values
    return printed_epsilons(moments, orders, add_divergence(scaled, orders), DELTA)


# --- posteriors -------------------------------------------------------------------------------------------------------

FAILURE_4, FAILURE_6 = 0.5e-5, 1e-5
POSTERIORS: dict[str, dict[str, tuple[str, float]]] = {
    "figure-4": {"a": ("DP-SGD", 2.0), "b": ("DP-SGD", 5.0), "c": ("BSR, p=4", 2.0), "d": ("BSR, p=4", 5.0)},
    "figure-6": {"a": ("BSR, p=4", 2.0), "b": ("BSR, p=4", 5.0), "c": ("BISR, p=4", 2.0), "d": ("BISR, p=4", 5.0)},
}
BINS, EPOCHS = 100, 4
"""Of Figures 4 to 6."""


OPTIONS = ("1", "12", "13", "123")
"""Variational families of Appendix F that Figure 6 chooses from."""


def steps_shown(points: int) -> list[int]:
    """About ``points`` steps, with the first and last of every epoch."""
    ends = [epoch * BINS + step for epoch in range(EPOCHS) for step in (1, BINS)]
    return sorted({*ends, *range(1, BINS * EPOCHS + 1, max(1, BINS * EPOCHS // points))})


def allocation_bounds(strategy: str, sigma: float, steps: Sequence[int], output: Output) -> dict[str, Any]:
    """Figure 4's curves of one panel: the paper's allocations, and the one that our accountant spends its budget by."""
    pair = dominating_pair(mechanism(STRATEGIES[strategy], BINS, EPOCHS, sigma))
    ours = certified_posterior(pair, steps, FAILURE_4, output)
    return {"ours_upper": ours, **allocations(pair, steps, "13", FAILURE_4)}


def certified_posterior(pair: Any, steps: Sequence[int], failure: float, output: Output) -> Any:
    """Our accountant's bounds on the posterior of each step's top bin; they hold together but for ``failure``."""
    means = pair.means()
    levelled = levelled_means(means, pair.rounding)
    rows = np.array(steps) - 1
    shares = budget.union_shares(means, levelled)
    tries = {hs.Direction.REMOVE: np.array([failure])}
    tick = output.deadline.tick
    bounds = tail_bounds(means, pair.noise_multiplier, pair.rounding, levelled, rows, tries, shares, tick)
    tails = bounds[hs.Direction.REMOVE][0]
    return tails[np.arange(rows.size), levelled.index[rows].max(axis=1)]


def family_bounds(strategy: str, sigma: float, steps: Sequence[int], output: Output) -> dict[str, Any]:
    """Figure 6's curves of one panel, each step's bound with its share of a union over steps and components."""
    pair = dominating_pair(mechanism(STRATEGIES[strategy], BINS, EPOCHS, sigma))
    share = FAILURE_6 / (BINS * EPOCHS * (BINS - 1))
    output.deadline.tick()
    return {options: top_posterior(pair, steps, options, [share])[0] for options in OPTIONS}


TRANSITIONS = (100, 200, 300, 101, 201, 301)
SAMPLES = 100_000


def simulated(samples: int) -> dict[int, Any]:
    """Seeded samples of the privacy loss at every step of the figure: DP-SGD at sigma = 5."""
    rng = np.random.default_rng(SEED)
    pair = dominating_pair(mechanism(STRATEGIES["DP-SGD"], BINS, EPOCHS, 5.0))
    return {step: simulated_losses(pair, step, samples, rng) for step in TRANSITIONS}
