"""Windows of steps as independent mixtures on the line, which linear statistics and split noise share.

Both cut the steps in which an example may take part into windows of m, and turn each window into a product mixture: its
steps, taken independently with probability p, add their *shifts* to one Gaussian. The windows compose. Windows with
similar shifts count as equal, with the smallest (lower bounds) or largest (upper bounds) shifts that occur.

Proof: docs/theory/subsets/reductions.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Array, Law, point_mass_at_one
from hockeystick.laws.mixtures import product_mixture_law
from hockeystick.laws.operations import compose, power
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.types import Direction, Side

TOLERANCES = (1e-3, 1e-2, 0.1, 0.5, float("inf"))
"""Relative difference of the sums of shifts of windows that count as equal; the first that leaves few laws."""
MOST_LAWS = 4
MOST_STEPS = 10_000
"""Largest window; the law of its sum takes time in proportion to the square of its size."""
COARSE_NODES_PER_UNIT = 16
BROAD_TARGET = 1e-6
"""Windows are also chosen for this delta when no epsilon is asked for."""


def window_sizes(steps: int, overlap: int) -> list[int]:
    """Candidate sizes: powers of two, alone and as multiples of 3 and of the steps that a row spans; all steps."""
    largest = min(steps, MOST_STEPS)
    doublings = [2**k for k in range(largest.bit_length())]
    sizes = {size for base in (1, 3, overlap) for size in (base * k for k in doublings) if size < largest}
    return [*sorted(sizes), largest]


def in_windows(shifts: Array, size: int) -> Array:
    """The shifts of all steps, shape (steps,), as windows: shape (windows, size), rows sorted, largest first.

    The last window may be short, and has zeros at its end: steps without effect.
    """
    windows = -(-shifts.size // size)
    padded = np.zeros(windows * size)
    padded[: shifts.size] = shifts
    return -np.sort(-padded.reshape(windows, size), axis=1)


def similar_windows(shifts: Array, side: Side) -> list[tuple[Array, int]]:
    """Few sets of windows, as the shifts of each (those that are not zero) and the number of its windows.

    Windows are told apart by the sum of their shifts; the smallest of every entry, largest first, is a lower bound of
    each window in the set, and the largest an upper bound. Windows without shifts are left out.
    """
    totals = shifts.sum(axis=1)
    shifts, totals = shifts[totals > 0.0], totals[totals > 0.0]
    levels = np.zeros(0)
    for tolerance in TOLERANCES:
        levels = np.floor(np.log(totals.max() / totals) / tolerance) if totals.size else levels
        if np.unique(levels).size <= MOST_LAWS:
            break
    extreme = np.max if side is Side.UPPER else np.min
    bounds = []
    for level in np.unique(levels):
        bound = extreme(shifts[levels == level], axis=0)
        bounds.append((bound[bound > 0.0], int((levels == level).sum())))
    return [(bound, count) for bound, count in bounds if bound.size]


def window_law(
    shifts: Array, prob: float, noise_multiplier: float, side: Side, resolution: Resolution, deadline: Deadline
) -> Law:
    """The law of all windows together, on the asked side."""
    law: Law | None = None
    for bound, count in similar_windows(shifts, side):
        deadline.tick()
        part = product_mixture_law(np.full(bound.size, prob), bound, noise_multiplier, side, resolution)
        part = power(part, count, resolution, tick=deadline.tick)
        law = part if law is None else compose(law, part, resolution, tick=deadline.tick)
    return point_mass_at_one(side) if law is None else law


def with_equal_shifts(shifts: Array) -> Array:
    """Windows with about the same law, which is quickly computed: sums of fewer, equal shifts.

    They have the same sum, and the same sum of squares up to rounding, so that mean and variance agree. For ranking
    only: it is no bound.
    """
    equal = np.zeros_like(shifts)
    for row, window in zip(equal, shifts, strict=True):
        total, square = float(window.sum()), float(window @ window)
        if square > 0.0:
            count = max(round(total * total / square), 1)
            row[:count] = total / count
    return equal


def best_windows(
    candidates: Sequence[Array],
    prob: float,
    noise_multiplier: float,
    side: Side,
    epsilon: float | None,
    resolution: Resolution,
    deadline: Deadline,
) -> list[Array]:
    """The windows that look best on coarse grids (any choice is valid), at most one for each score.

    Args:
        epsilon: where delta is asked for; None to look at the epsilons of the usual deltas.
    """
    coarse = replace(resolution, nodes_per_unit=COARSE_NODES_PER_UNIT)
    laws = [
        window_law(with_equal_shifts(candidate), prob, noise_multiplier, side, coarse, deadline)
        for candidate in candidates
    ]
    choose = min if side is Side.UPPER else max
    scores = _scores(side, epsilon, resolution.smallest_delta)
    best = {choose(range(len(laws)), key=lambda at: score(laws[at])) for score in scores}
    return [candidates[at] for at in sorted(best)]


def reach(law: Law, target: float) -> float:
    """About the epsilon of an upper law at this delta, for comparisons."""
    return max(
        smallest_epsilon(partial(law_delta, law, direction=direction), target, Side.UPPER, tolerance=1e-5)
        for direction in Direction
    )


def _scores(side: Side, epsilon: float | None, target: float) -> list[Callable[[Law], float]]:
    """The scores by which laws are ranked: delta at the epsilon that is asked for, else epsilon at the usual deltas."""

    def epsilon_at(law: Law, delta: float, direction: Direction) -> float:
        return smallest_epsilon(partial(law_delta, law, direction=direction), delta, side, tolerance=1e-4)

    if epsilon is not None:
        return [partial(law_delta, epsilon=epsilon, direction=direction) for direction in Direction]
    targets = {target, max(target, BROAD_TARGET)}
    return [partial(epsilon_at, delta=delta, direction=direction) for delta in targets for direction in Direction]
