"""A run of steps without replacement, backwards: the adversary chooses the worst triple at every ratio.

With t steps to go and a ratio of the two runs so far of x times ``e^epsilon``, let ``V_t(x)`` be the most that an
adversary can reach: ``V_0(x) = (x - 1)_+``, ``V_(t+1)(x) = max E V_t(x X)`` over all triples (:mod:`.triples`). Then
``delta(epsilon) = V_T(x) / x`` at ``x = e^-epsilon``, for all epsilons at once. As the two runs may change places,
``V(x) = x - 1 + x V(1/x)``, so places up to 1 say all.

From above the opposite triple is the worst, but for what :mod:`.charges` add for others. From below the adversary has
the opposite triple at ratios up to 1, and its mirror image beyond.

Proofs: docs/theory/fixed-size.md, "The run backwards". Cost: O(places log(places)) a step.
"""

from collections.abc import Callable
from math import ceil, exp, expm1, floor, log, log1p, log2, pi, sqrt
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from hockeystick.laws.charges import charges
from hockeystick.laws.lattice_laws import contraction
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.smooth_powers import OF_TRANSFORMS
from hockeystick.laws.triples import deviation, log_places, opposite
from hockeystick.laws.without_replacement import ORDERS, log_moment
from hockeystick.types import Side

Tick = Callable[[], None]

BLUR, NODES, FEW_STEPS = 1e-4, 68, 100
"""Share of the second moment of a step that places add, where there are so many nodes per unit of score; with fewer
steps it is less, as epsilons are read at places."""
MARGIN, LEAST_DELTA = 0.03, 1e-30
"""The lattice ends where delta is this share of the smallest one that matters, which is taken to be at least this: with
smaller ones tilted values would overflow."""
LONGEST = 80.0
"""The largest epsilon of a lattice."""
FEWEST_PLACES, MOST_PLACES, COARSEST, FINEST = 3500, 40_000, 20.0, 1e-12
"""How many places a lattice has, how many times as wide as wanted its spacing may be where it would have more, and the
smallest spacing, far above the rounding of places."""
BELOW_ONE, FEWEST_FROM_BELOW = 5.6, 25_000
"""The lower side wants so many places between 1 and the smallest ratio of a step, and so many in all, as it reads delta
at the next place."""
MOST_FROM_BELOW, MOST_WORK = 75_000, 8e7
"""It has no more places, and no more places times steps, unless the upper side has."""
SHARE = 4e-4
"""Share that may be charged for triples inside cells, where there are so many nodes per unit of score."""
ROUNDING = 1e-12
"""Far above the relative rounding of one step."""


class Lattice(NamedTuple):
    """Places ``e^(i spacing)``, i = -places, ..., places, and the order by which values are tilted for transforms."""

    spacing: float
    places: int
    order: float


class Run(NamedTuple):
    """Steps of a run, and how their profile is bounded.

    Attributes:
        rate: q in (0, 1).
        distance: of opposite gradients, in standard deviations of the noise.
        steps: at least 1.
        lattice: where values are kept.
        share: of what a step adds, which may be charged for triples inside cells.
    """

    rate: float
    distance: float
    steps: int
    lattice: Lattice
    share: float


def planned(rate: float, distance: float, steps: int, smallest_delta: float, nodes: int) -> Run | None:
    """A run with a lattice down to this delta; None where it would be too long or too fine.

    Args:
        nodes: per unit of score, as of :class:`~hockeystick.laws.grid.Resolution`.
    """
    delta = MARGIN * min(max(smallest_delta, LEAST_DELTA), 1.0)
    end, order = _reach(rate, distance, steps, delta)
    if end > LONGEST:
        return None
    blur = BLUR * (NODES / nodes) ** 2 * min(max(steps / FEW_STEPS, 0.25), 1.0)
    widest = deviation(rate, distance) * sqrt(6.0 * blur)
    if end > MOST_PLACES * widest:
        end, order = min((end, order), _rare_reach(rate, distance, steps, delta))
    wanted = min(widest, end / FEWEST_PLACES)
    spacing = max(wanted, end / MOST_PLACES)
    if not FINEST < spacing <= COARSEST * wanted:
        return None
    places = ceil(end / spacing)
    # With the first order, V is as large at the end of the lattice as at 1, once it is tilted: with a larger one the
    # values around 1 would drown in the error of transforms.
    tilt = min(1.0 - log(delta) / end, max(order - 0.5, 0.5 * (order + 1.0)))
    return Run(rate, distance, steps, Lattice(spacing, places, tilt), SHARE * (NODES / nodes) ** 2)


def _reach(rate: float, distance: float, steps: int, delta: float) -> tuple[float, float]:
    """About the epsilon at which delta is this, by moments of the opposite triple, and the best of their orders.

    A lattice that ends early makes bounds loose, and not wrong. Moments of orders below 2, which tell more where there
    is little noise, and of high ones are sums over places of a normal number. They are left out where the largest term
    is at the end.
    """
    logs = [(float(order), log_moment(rate, distance, order)) for order in (2, *ORDERS)]
    scores = np.linspace(-10.0, 10.0 + max(40.0 * min(distance, 1.0), 2.0 * distance), 1500)
    orders = np.concatenate([1.0 + np.geomspace(0.01, 0.97, 40), np.geomspace(ORDERS[-1] + 1.0, 1e9, 150)])
    ratios = np.logaddexp(log1p(-rate), log(rate) + distance * scores - 0.5 * distance**2)
    terms = np.multiply.outer(orders, ratios) - 0.5 * scores**2
    largest = terms.argmax(axis=1)
    sums = np.logaddexp.reduce(terms, axis=1) + log((scores[1] - scores[0]) / sqrt(2.0 * pi))
    inside = largest < scores.size - 1
    logs += zip(orders[inside].tolist(), sums[inside].tolist(), strict=True)
    return min(((value * steps - log(delta)) / (order - 1.0), order) for order, value in logs)


def _rare_reach(rate: float, distance: float, steps: int, delta: float) -> tuple[float, float]:
    """About the epsilon at which delta is this where one large ratio in a run decides, and an order to tilt by.

    Moments of high orders say nothing where such ratios are rare, and low ones are ruled by all others. The lattice
    ends where the others, taken as a Gaussian, have this delta beyond the large one. With the order, no tilted value of
    a step is above that at 1.
    """
    one = deviation(rate, distance)
    epsilons = np.append(0.0, np.geomspace(1e-3 * one, LONGEST, 2000))
    added = opposite(rate, distance, epsilons, Side.UPPER)
    largest = float(epsilons[max(int(np.count_nonzero(steps * added > delta)) - 1, 0)])
    end = largest + sqrt(-2.0 * log(delta) * steps) * one + 0.5 * steps * one**2
    reached = (epsilons > 0.0) & (epsilons <= 2.0 * end) & (added > 1e-300)
    return end, 1.0 + float(np.min((log(added[0]) - np.log(added[reached])) / epsilons[reached]))


class Correlation:
    """Sums ``sum_l values[i + l] kernel[l]`` at i = -places, ..., 0, of pairs of values and kernels, by transforms.

    Args:
        kernels: non-negative, at l = -places, ..., places or as far as 2 places.
    """

    def __init__(self, lattice: Lattice, *kernels: Array) -> None:
        spacing, places, order = lattice
        self.places, self.length = places, next_fast_len(3 * places + 1, real=True)
        self.tilt = np.exp(-order * log_places(spacing, -places, places))
        self.back = 1.0 / self.tilt[: places + 1]
        self.transforms, self.errors = [], []
        for values in kernels:
            tilted = np.zeros(self.length)
            tilted[: values.size] = values * np.exp(order * log_places(spacing, -places, values.size - places - 1))
            self.transforms.append(np.conj(rfft(np.roll(tilted, -places))))
            size = float(np.sqrt(tilted @ tilted))
            self.errors.append(3.0 * OF_TRANSFORMS * UNIT_ROUNDOFF * log2(self.length) * size)

    def of(self, side: Side, *values: Array) -> Array:
        """The sums for non-negative values at all places, shape (2 places + 1,); rounded to the asked side."""
        product, error, tilted = np.zeros(self.transforms[0].size, dtype=complex), 0.0, np.zeros(self.length)
        for one, transform, of_kernel in zip(values, self.transforms, self.errors, strict=True):
            tilted[: one.size] = one * self.tilt
            product += rfft(tilted) * transform
            error += of_kernel * float(np.sqrt(tilted @ tilted))
        sums = irfft(product, self.length)[: self.places + 1]
        bounds: Array = (sums + (error if side is Side.UPPER else -error)) * self.back
        return bounds


def upper_values(run: Run, tick: Tick) -> Array:
    """At least ``V_steps`` at ``e^(i spacing)``, i = -places, ..., 0: shape (places + 1,)."""
    lattice = run.lattice
    spacing, places, _ = lattice
    base, charged, far, less, most = charges(run.rate, run.distance, spacing, places, run.share, tick)
    roots = np.exp(-0.5 * log_places(spacing, -places, 2 * places))
    correlation = Correlation(lattice, base * roots, most * roots)
    x = np.exp(log_places(spacing, -places, 0))
    values, reach = np.zeros(places + 1), charged.shape[0]
    for _ in range(run.steps):
        tick()
        curvature = (_curvature(values, x, spacing) * np.sqrt(x))[::-1]
        falling = np.minimum.accumulate(curvature)
        rest = curvature - falling
        added = correlation.of(Side.UPPER, _around(falling[::-1]), _around(rest[::-1]))
        steps = falling - np.append(falling[1:], 0.0)
        others = far * falling
        others[:reach] += charged @ steps[:reach]
        if less.size:
            others -= np.correlate(np.append(steps, np.zeros(less.size - 1)), less)
        added += others[::-1]
        values = np.minimum((values + np.sqrt(x) * added) * (1.0 + ROUNDING), x)
    return values


def _around(values: Array) -> Array:
    """Values at places up to 1, and the same at those beyond."""
    return np.append(values, values[-2::-1])


def _curvature(values: Array, x: Array, spacing: float) -> Array:
    """At least the changes of slope of V at places up to 1, at least 0; V is straight between them, and below them.

    Places are off by as many units of roundoff as their logarithms, and a few more.
    """
    step = expm1(spacing)
    slopes = np.diff(values) / (x[:-1] * step)
    beyond = 1.0 + (values[-2] / x[-2] - values[-1]) / step  # V is x - 1 + x V(1/x) at the next place
    changes = np.diff(np.concatenate([[values[0] / x[0]], slopes, [beyond]]))
    units = (16.0 - 4.0 * np.log(x)) * UNIT_ROUNDOFF
    raised: Array = np.maximum(changes + units * values / (x * step), 0.0)
    return raised


def lower_values(run: Run, tick: Tick) -> Array:
    """At most ``V_steps`` at ``e^(i spacing)``, i = -places, ..., 0; 0 where the lattice is too coarse to tell."""
    rate, distance, _, lattice, _ = run
    spacing, places, _ = lattice
    logs = log_places(spacing, -places, places)
    low, high = (opposite(rate, distance, logs, side) for side in (Side.LOWER, Side.UPPER))
    law = contraction(spacing, np.arange(-places, places + 1), low, high)
    values = np.zeros(places + 1)
    if law is None:
        return values
    masses = np.zeros(logs.size)
    masses[law.first + places :][: law.masses.size] = law.masses
    correlation = Correlation(lattice, masses)
    x, beyond = np.exp(logs[: places + 1]), np.expm1(logs[places + 1 :])
    for _ in range(run.steps):
        tick()
        above = beyond + (values / x)[-2::-1]  # x - 1 + x V(1/x)
        values = np.maximum(correlation.of(Side.LOWER, np.append(values, above)) * (1.0 - ROUNDING), 0.0)
    return values


def from_below(run: Run) -> Run:
    """The same run for the lower side, on a finer lattice where that can be had.

    A contraction of a step tells nothing unless it has a place between 1 and the smallest ratio, 1 - rate.
    """
    spacing, places, order = run.lattice
    end = spacing * places
    wanted = min(-log1p(-run.rate) / BELOW_ONE, end / FEWEST_FROM_BELOW)
    finest = end / min(MOST_FROM_BELOW, MOST_WORK / run.steps)
    finer = min(spacing, max(wanted, finest))
    return run._replace(lattice=Lattice(finer, ceil(end / finer), order))


def profile(run: Run, side: Side, tick: Tick) -> Callable[[float], float]:
    """A bound on delta at any epsilon, of both directions; V is convex, and V(x) / x never falls."""
    if side is Side.LOWER:
        run = from_below(run)
    spacing, places, _ = run.lattice
    values = upper_values(run, tick) if side is Side.UPPER else lower_values(run, tick)
    x = np.exp(log_places(spacing, -places, 0))
    deltas = (values / x)[::-1]

    def delta(epsilon: float) -> float:
        if epsilon < 0.0:
            return 1.0 - exp(epsilon) + exp(epsilon) * delta(-epsilon)
        place = epsilon / spacing
        if side is Side.LOWER:
            at = ceil(place * (1.0 + ROUNDING))
            return float(deltas[at]) if at <= places else 0.0
        at = min(floor(place * (1.0 - ROUNDING)), places)
        if at == places:
            return float(deltas[-1])
        # The chord of V between two places, over x, is a chord of delta in e^epsilon.
        share = min(max(expm1(epsilon - at * spacing) / expm1(spacing), 0.0), 1.0)
        found = float(deltas[at]) + share * (float(deltas[at + 1]) - float(deltas[at]))
        return min(found * (1.0 + ROUNDING), 1.0)

    return delta
