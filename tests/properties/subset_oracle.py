"""The true profiles of Poisson and cyclic Poisson sampling of small strategy matrices, from the definition.

An example that takes part in the set S of steps moves the outputs by ``C 1_S``; against its absence this is
``P = E_S N(C 1_S, sigma^2 I)`` against ``Q = N(0, sigma^2 I)``. All subsets are listed, and their mixture is integrated
by bins_oracle.py. Also here: the best *adaptive* adversary against two or three steps, by dynamic programming, and how
often the chance that an example took part, given the outputs so far, exceeds claimed bounds on it.

Nothing of the package is used but the entries of C.
"""

from dataclasses import dataclass
from itertools import product
from math import erfc, exp, sqrt

import numpy as np
from bins_oracle import Truth, truth
from numba import njit

Array = np.ndarray


def subsets(columns: int, rate: float) -> tuple[Array, Array]:
    """All subsets as rows of zeros and ones, shape (2^columns, columns), and their probabilities."""
    members = np.array(list(product((0.0, 1.0), repeat=columns)))
    taken = members.sum(axis=1)
    return members, rate**taken * (1.0 - rate) ** (columns - taken)


def poisson_truth(entries: Array, rate: float, sigma: float, epsilons: Array) -> Truth:
    """Every column of C at the given rate, independently."""
    members, probabilities = subsets(entries.shape[1], rate)
    means = members @ entries.T
    return truth(means @ means.T, sigma, epsilons, probabilities)


def cyclic_truth(entries: Array, groups: int, rate: float, sigma: float, epsilons: Array) -> Truth:
    """The largest over the groups: group g may take part in the steps g, g + groups, g + 2 groups, ..."""
    return worst(
        [poisson_truth(entries[:, g::groups], rate, sigma, epsilons) for g in range(min(groups, entries.shape[1]))]
    )


def worst(parts: list[Truth]) -> Truth:
    """The largest of several at every epsilon; its error covers the largest of the lower ends, and of the upper."""
    ends = []
    for value, error in (("remove", "remove_error"), ("add", "add_error")):
        low = np.max([getattr(part, value) - getattr(part, error) for part in parts], axis=0)
        high = np.max([getattr(part, value) + getattr(part, error) for part in parts], axis=0)
        ends += [0.5 * (low + high), 0.5 * (high - low)]
    return Truth(*ends)


# An adversary who chooses the example's gradient at every step when it has seen the outputs before it.


@dataclass(frozen=True)
class Choices:
    """What the adversary may choose from, and where it looks at the outputs.

    Attributes:
        gradients: from -1 to 1, to choose from at every step; the first is 1, which is what constant adversaries take.
        points: of the grid in each output but the last, over which the integral is exact.
    """

    gradients: Array
    points: int


def adaptive_delta(
    entries: Array, rate: float, sigma: float, epsilon: float, adding: bool, choices: Choices
) -> tuple[float, float]:
    """delta of the best adversary, and of the constant one, on the same grid.

    Given the outputs and gradients so far the best choice is the one with the largest rest of the integral: dynamic
    programming over at most three steps finds the optimum of all adaptive strategies over ``choices.gradients``.
    """
    steps = entries.shape[1]
    members, probabilities = subsets(steps, rate)
    scaled = np.ascontiguousarray(entries) / sigma
    reach = 7.0
    largest = scaled.sum(axis=1).max()
    grid = np.linspace(-reach - largest, reach + largest, choices.points)
    best = _search(scaled, members, probabilities, exp(epsilon), adding, choices.gradients, grid)
    constant = _search(scaled, members, probabilities, exp(epsilon), adding, choices.gradients[:1], grid)
    return best, constant


def _search(
    scaled: Array, members: Array, weights: Array, c: float, adding: bool, gradients: Array, grid: Array
) -> float:
    """The largest over the first gradient; the steps after it are in the kernel."""
    chosen = np.zeros(len(scaled))
    best = 0.0
    for first in gradients:
        chosen[0] = first
        shifts = scaled[0, 0] * first * members[:, 0]
        densities = weights * np.exp(-0.5 * (grid[:, None] - shifts) ** 2)
        plain = np.exp(-0.5 * grid**2)
        total = 0.0
        for k in range(grid.size):
            total += _rest(1, chosen, densities[k], plain[k], scaled, members, c, adding, gradients, grid)
        best = max(best, total * (grid[1] - grid[0]) / sqrt(2.0 * np.pi))
    return best


@njit(cache=True)
def _rest(
    step: int,
    chosen: Array,
    densities: Array,
    plain: float,
    scaled: Array,
    members: Array,
    c: float,
    adding: bool,
    gradients: Array,
    grid: Array,
) -> float:
    """The integral over the outputs from ``step`` on, given those before, at the best choices of gradients."""
    best = 0.0
    last = step == scaled.shape[0] - 1
    width = (grid[1] - grid[0]) / sqrt(2.0 * np.pi)
    shifts = np.empty(densities.size)
    for g in range(gradients.size):
        chosen[step] = gradients[g]
        for s in range(densities.size):
            shifts[s] = 0.0
            for u in range(step + 1):
                shifts[s] += scaled[step, u] * chosen[u] * members[s, u]
        if last:
            best = max(best, _last(shifts, densities, plain, c, adding))
            continue
        total = 0.0
        for k in range(grid.size):
            following = densities * np.exp(-0.5 * (grid[k] - shifts) ** 2)
            nothing = plain * exp(-0.5 * grid[k] ** 2)
            total += _rest(step + 1, chosen, following, nothing, scaled, members, c, adding, gradients, grid)
        best = max(best, total * width)
    return best


@njit(cache=True)
def _last(shifts: Array, densities: Array, plain: float, c: float, adding: bool) -> float:
    """``int (P - c Q)_+`` over the last output y, or with P and Q swapped: exact between the roots.

    P/Q is a convex function of y, so ``P > c' Q`` outside of an interval, which is found from its lowest point.
    """
    offsets = np.empty(shifts.size)
    top = 0.0
    for s in range(shifts.size):
        offsets[s] = densities[s] * exp(-0.5 * shifts[s] ** 2)
        top = max(top, abs(shifts[s]))
    level = plain / c if adding else plain * c
    low, high = _interval(shifts, offsets, level, top + 12.0)
    # outside [low, high]: P above the level, inside below
    inside_q = 0.5 * (erfc(-high / sqrt(2.0)) - erfc(-low / sqrt(2.0)))
    inside_p = 0.0
    for s in range(shifts.size):
        inside_p += densities[s] * 0.5 * (erfc(-(high - shifts[s]) / sqrt(2.0)) - erfc(-(low - shifts[s]) / sqrt(2.0)))
    if adding:
        return max(plain * inside_q - c * inside_p, 0.0)
    return max(densities.sum() - inside_p - c * plain * (1.0 - inside_q), 0.0)


@njit(cache=True)
def _interval(shifts: Array, offsets: Array, level: float, reach: float) -> tuple[float, float]:
    """Where ``f(y) = sum_s offsets_s exp(shifts_s y)`` is below a level, from -reach to reach; (0, 0) if nowhere."""
    low, high = -reach, reach
    for _ in range(60):  # bisection on the slope of the convex f
        middle = 0.5 * (low + high)
        slope = 0.0
        for s in range(shifts.size):
            slope += shifts[s] * offsets[s] * exp(shifts[s] * middle)
        if slope > 0.0:
            high = middle
        else:
            low = middle
    bottom = 0.5 * (low + high)
    if _sum(shifts, offsets, bottom) >= level:
        return 0.0, 0.0
    ends = np.empty(2)
    for side in range(2):
        inside, outside = bottom, (2.0 * side - 1.0) * reach
        if _sum(shifts, offsets, outside) <= level:
            ends[side] = outside
            continue
        for _ in range(45):
            middle = 0.5 * (inside + outside)
            if _sum(shifts, offsets, middle) < level:
                inside = middle
            else:
                outside = middle
        ends[side] = inside
    return ends[0], ends[1]


@njit(cache=True)
def _sum(shifts: Array, offsets: Array, y: float) -> float:
    total = 0.0
    for s in range(shifts.size):
        total += offsets[s] * exp(shifts[s] * y)
    return total


# Whether claimed bounds on the chance of having taken part hold.


def exceedances(
    columns: Array, seen: list[int], rate: float, sigma: float, claims: Array, adding: bool, runs: int, seed: int
) -> int:
    """Runs in which, for some i and j, the chance of "took part in j" given the first ``seen[i]`` outputs is too large.

    The chance is the largest over what is known of the other participations: given all of them, it must not exceed the
    claim for the rows to be dominated by independent participations.

    Args:
        columns: those of C in which the example may take part, shape (rows, m).
        claims: shape (len(seen), m): what the chances are claimed not to exceed (1 where nothing is claimed).
        adding: draw the outputs without the example (Q), otherwise with it (P).
    """
    rng = np.random.default_rng(seed)
    members, probabilities = subsets(columns.shape[1], rate)
    outputs = sigma * rng.standard_normal((runs, len(columns)))
    if not adding:
        outputs += (members @ columns.T)[rng.choice(len(members), size=runs, p=probabilities)]
    wrong = np.zeros(runs, dtype=bool)
    for rows, claim in zip(seen, claims, strict=True):
        means = members @ columns[:rows].T
        logs = (outputs[:, :rows] @ means.T - 0.5 * (means**2).sum(axis=1)) / sigma**2 + np.log(probabilities)
        for j, most in enumerate(claim):
            without = np.flatnonzero(members[:, j] == 0.0)
            others = members[without]
            others[:, j] = 1.0
            joined = [int(np.flatnonzero((members == other).all(axis=1))[0]) for other in others]
            odds = np.exp((logs[:, joined] - logs[:, without]).max(axis=1))
            wrong |= odds / (1.0 + odds) > most * (1.0 + 1e-12)
    return int(wrong.sum())
