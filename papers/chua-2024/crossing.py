"""Theorem 4.2 and Conjecture 4.3: where the deltas of deterministic and of Poisson batches cross, and how often."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from math import exp, inf, isfinite, log, sqrt

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp
from scipy.stats import binom

from hockeystick.reproduction.curves import precise
from hockeystick.reproduction.papers import Check, Output

from .runs import LOWER, UPPER, deterministic, poisson

GRID = [(steps, sigma) for steps in (2, 10, 100, 1000) for sigma in (0.3, 0.5, 0.7, 1.0, 1.5, 2.0)]
"""T and sigma. The paper shows T = 10, sigma = 0.3."""
FEW = [(2, 0.5), (10, 0.3), (10, 1.0)]
LEAST = 1e-40
"""Deltas below this are not compared: the certified lower bounds end there."""
POINTS = 240
WIDTH = 1e-3
"""Of a located crossing, in epsilon."""
CROSSING = "D > P, D < P"


@dataclass(frozen=True)
class Case:
    """One T and sigma; every sign is certified by bounds on both sides.

    Attributes:
        order: which delta is larger as epsilon grows, such as "D > P, D < P".
        open: points at which the bounds do not decide.
        low, high: the crossing is between these epsilons; high is infinite where delta gets too small to tell.
        delta: of deterministic batches at ``low``.
        proof: the epsilon_1 of the paper's proof, where (6) exceeds (7) for good.
        half_space: from which epsilon the proof's half-space itself shows more than the deterministic delta.
    """

    steps: int
    sigma: float
    order: str
    open: int
    low: float
    high: float
    delta: float
    proof: float
    half_space: float


def located(steps: int, sigma: float, output: Output, points: int = POINTS) -> Case:
    """The signs of delta_D - delta_P on a grid of epsilons, and the crossing by bisection."""
    output.deadline.tick()
    fixed, random = deterministic(steps, sigma), poisson(steps, sigma)
    fixed_upper, fixed_lower = (precise(fixed, "gaussian", output, side) for side in (UPPER, LOWER))
    random_upper, random_lower = (precise(random, "direct", output, side) for side in (UPPER, LOWER))

    def sign(epsilon: float) -> int:
        if fixed_lower.delta(epsilon) > random_upper.delta(epsilon):
            return 1
        return -1 if fixed_upper.delta(epsilon) < random_lower.delta(epsilon) else 0

    last = brentq(lambda epsilon: log(max(fixed_lower.delta(epsilon), 1e-300)) - log(LEAST), 0.0, 30.0 / sigma**2 + 100)
    epsilons = np.linspace(0.0, last, points).tolist()
    signs = [sign(epsilon) for epsilon in epsilons]
    order = ", ".join("D > P" if side > 0 else "D < P" for side, _ in groupby(filter(None, signs)))
    low = max((epsilon for epsilon, side in zip(epsilons, signs, strict=True) if side > 0), default=0.0)
    high = min((epsilon for epsilon, side in zip(epsilons, signs, strict=True) if side < 0), default=inf)
    while isfinite(high) and high - low > WIDTH:
        middle = 0.5 * (low + high)
        side = sign(middle)
        if side == 0:
            break
        low, high = (middle, high) if side > 0 else (low, middle)
    return Case(
        steps,
        sigma,
        order,
        signs.count(0),
        low,
        high,
        fixed_lower.delta(low),
        proof_epsilon(steps, sigma),
        half_space_epsilon(steps, sigma),
    )


def proof_epsilon(steps: int, sigma: float) -> float:
    """The largest epsilon at which (6), half of a half-space's mass without the example, equals (7)."""

    def gap(epsilon: float) -> float:
        inside = -(epsilon + steps * log(steps) + log(2.0)) * sigma / sqrt(steps) - sqrt(steps) / (2.0 * sigma)
        return float(log_ndtr(inside) - log(2.0) - log_ndtr(-epsilon * sigma + 0.5 / sigma))

    return _last_root(gap)


def half_space_epsilon(steps: int, sigma: float) -> float:
    """The largest epsilon at which P(E) - e^epsilon Q(E) of the half-space E equals the deterministic delta.

    Nothing is bounded: under P the sum of the outputs is a binomial mixture of normal distributions, under Q normal.
    """
    counts = np.arange(steps + 1)
    chances = binom.logpmf(counts, steps, 1.0 / steps)

    def gap(epsilon: float) -> float:
        cut = (epsilon + log(2.0) + steps * log(steps)) * sigma**2 + steps / 2.0
        inside = (counts - cut) / (sigma * sqrt(steps))
        mass = float(logsumexp(chances + log_ndtr(inside)))
        excess = mass + log(-np.expm1(min(epsilon + float(log_ndtr(inside[0])) - mass, -1e-300)))
        return excess - log_delta(epsilon, sigma)

    return _last_root(gap)


def log_delta(epsilon: float, sigma: float) -> float:
    """Proposition 3.1, by logarithms."""
    first = float(log_ndtr(-epsilon * sigma + 0.5 / sigma))
    second = epsilon + float(log_ndtr(-epsilon * sigma - 0.5 / sigma))
    return first + log(-np.expm1(min(second - first, -1e-16)))


def _last_root(gap: Callable[[float], float]) -> float:
    """The last change of sign on a grid that ends where the function has been positive over half of it."""
    high = 1.0
    while True:
        places = np.linspace(0.0, high, 2001)
        negative = np.flatnonzero([gap(float(place)) <= 0.0 for place in places])
        if negative.size == 0:
            return 0.0
        if negative[-1] < 1000:
            return float(brentq(gap, places[negative[-1]], places[negative[-1] + 1], xtol=1e-9))
        high *= 2.0


# --- the part ---------------------------------------------------------------------------------------------------------


def cases(output: Output, grid: list[tuple[int, float]]) -> list[Case]:
    """All cases; each is computed once."""
    return [
        Case(**output.kept.value(f"crossing {steps} {sigma:g}", lambda at=(steps, sigma): vars(located(*at, output))))
        for steps, sigma in grid
    ]


def crossings(output: Output, grid: list[tuple[int, float]] = GRID) -> None:
    """A table of the crossings."""
    of_grid = cases(output, grid)
    header = ["T", "sigma", "order", "open", "crossing_from", "crossing_to", "delta", "half_space", "proof"]
    rows = [
        [
            case.steps,
            f"{case.sigma:g}",
            case.order,
            case.open,
            *(f"{value:.6g}" for value in (case.low, case.high, case.delta, case.half_space, case.proof)),
        ]
        for case in of_grid
    ]
    output.table("crossings", header, rows)
    output.lines += ["  ".join(str(cell) for cell in row) for row in [header, *rows]]


def theorem_checks(output: Output, grid: list[tuple[int, float]] = GRID) -> list[Check]:
    """Theorem 4.2 at every T and sigma of the grid, and Conjecture 4.3 as far as the bounds decide."""
    checks = []
    for case in cases(output, grid):
        where = f"sigma={case.sigma:g}, T={case.steps}"
        changes = case.order.count(",")
        if not isfinite(case.high):
            what = f"Theorem 4.2(a): changes of sign before delta is {LEAST:g}, {where}"
            checks.append(Check(what, "<=", 0, changes, case.order == "D > P", f"{case.open} points open"))
            continue
        what = f"Conjecture 4.3: changes of sign of delta_D - delta_P, {where}"
        note = f"between {case.low:.5g} and {case.high:.5g}, delta {case.delta:.3g}; {case.open} points open"
        checks.append(Check(what, "~", 1, changes, case.order == CROSSING, note))
        what = f"Theorem 4.2(b): crossing / epsilon_1 of the proof ({case.proof:.5g}), {where}"
        checks.append(Check(what, "<=", 1, case.high / case.proof, case.high <= case.proof))
    return checks


def mass_above(steps: int, sigma: float, threshold: float, shift: float) -> float:
    """1 - Phi((C - shift) / sigma) Phi(C / sigma)^(T - 1): the mass of the paper's E_C around ``shift`` e_t."""
    return -float(np.expm1(log_ndtr((threshold - shift) / sigma) + (steps - 1) * log_ndtr(threshold / sigma)))


def far_delta(steps: int, sigma: float, epsilon: float, length: float) -> float:
    """Section 4.3.1: what threshold sets show where all other examples are ``-length``, by (3) with the best C."""
    cuts = np.linspace(0.0, length + 12.0 * sigma + 2.0, 20_001)
    rest = (steps - 1) * log_ndtr(cuts / sigma)
    with_example = -np.expm1(log_ndtr((cuts - length - 1.0) / sigma) + rest)
    without = -np.expm1(log_ndtr((cuts - length) / sigma) + rest)
    return float((with_example - exp(epsilon) * without).max())
