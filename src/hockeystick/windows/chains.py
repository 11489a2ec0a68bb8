"""The likelihood ratio of a window with at most one participation, when its columns form a Gauss-Markov chain.

A window of w steps has the ratio ``X_u = (1-q)^(w-u+1) + W_u``, where u is the first step of availability,
``W_u = sum_(i >= u) q (1-q)^(i-u) exp(z_i - var(z_i) / 2)`` and ``z_i = scales[i] s_i``, s a stationary chain of unit
variance and correlation rho between neighbours. As

    W_i = q exp(z_i - var(z_i) / 2) + (1 - q) W_(i+1),     W_(w+1) = 0,

the law of W_i given s_i follows from that of W_(i+1) given s_(i+1), backwards. The state lives on a lattice, by extra
Gaussian noise that leaves every conditional mean in place, and W on a grid, by mean-preserving spreads: upper laws of
both directions. One law stands for all u: the least upper bound of the X_u in convex order.

Where each step has a chance of its own, the last of which may be 1, no ratio of taking no part is left.

Proof: docs/theory/separated-windows.md, and fresh-bins.md for steps with chances of their own. Cost: O(w states^2
nodes) in matrix products.
"""

from math import exp, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from hockeystick.compiling import kernel
from hockeystick.deadline import Deadline
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import UNDERFLOW, UNIT_ROUNDOFF, Array, Law, merge_equal
from hockeystick.types import Side
from hockeystick.windows.participation_chances import absences_of, weights_of

STEP = 5.5
"""Lattice points for each standard deviation of an innovation, for the 68 nodes per unit of the finest grids."""
LATTICE_ERROR = 5.4e-9
"""Above 2 e^(-2 pi^2) (1 + 1e-9): the relative difference of the lattice sum of a Gaussian of its spacing."""
SPLIT = 0.3
"""Share of the innovation's variance on the way from a state to a point between it and the next state."""
TAIL_SHARE = 1e-8
"""The chance of a state that is left out, as a share of the smallest delta."""
LARGEST_VALUE = 1e60


def window_law(
    scales: Array,
    correlation: float,
    prob: float | Array,
    resolution: Resolution,
    deadline: Deadline,
    starts: int | None = None,
) -> Law:
    """An upper law of every X_u, u = 1, ..., starts.

    Args:
        scales: shape (w,), standard deviations of the z_i, positive.
        correlation: rho in [0, 1) of neighbours.
        prob: q in (0, 1), the chance of an available step; shape (w,) if each has its own, in (0, 1].
        starts: the last step from which on an example may be available; w by default.
    """
    starts = scales.size if starts is None else starts
    coins = np.broadcast_to(prob, scales.shape)
    fine = resolution.nodes_per_unit / 68.0
    tail = max(resolution.smallest_delta * TAIL_SHARE, 1e-38)
    innovation = sqrt((1.0 - correlation) * (1.0 + correlation))
    spacing = innovation / (2.2 * STEP * sqrt(fine))
    variance = 1.0 + (spacing / innovation) ** 2
    reach, largest = -float(ndtri(tail)) * sqrt(variance), float(scales.max())
    lowest, highest = int(np.ceil(reach / spacing)), int(np.ceil((reach + largest * variance) / spacing))
    states = spacing * np.arange(-lowest, highest + 1.0)
    none = absences_of(prob, scales.size)[:starts]  # (1-q)^(w-u+1), u = 1, ..., starts
    places, _ = places_of_sums(scales, correlation, prob, float(none[0]), reach, variance, fine)
    start = spacing / sqrt(2.0 * np.pi * variance) * np.exp(-0.5 * states**2 / variance)
    kernel = _transitions(states, correlation, innovation, spacing)
    ratios = np.exp(np.multiply.outer(scales, states) - 0.5 * variance * scales[:, None] ** 2)
    masses, infinite = _backwards(places, kernel, start, ratios, coins, starts, deadline)
    grid = none[0] + places
    grid[int(np.searchsorted(places, float(1.0 - none[0])))] = 1.0
    masses, excess = _moved(places, masses, none, 1.0, grid)
    infinite += excess
    # A state is out of reach with a chance below twice the tail at each step, under Q and with any one participation.
    # No ratio is below that of taking no part, where the Q-mass of such states is put; their P-mass is put at infinity.
    lost = 4.0 * scales.size * tail + UNDERFLOW
    support, mass, p_inf = least_upper_bound(grid, masses, infinite)
    mass[0] += lost
    steps = float(scales.size)
    span = float(states[-1] - states[0])
    exponent = largest * (span + largest) + 0.5 * (span / innovation) ** 2 + 1.0
    mass_error = steps * (4.0 * LATTICE_ERROR + (states.size + 64.0 + 8.0 * exponent) * UNIT_ROUNDOFF) + 1e-12
    place_error = steps * (6.0 * LATTICE_ERROR + 32.0 * UNIT_ROUNDOFF) + 16.0 * exponent * UNIT_ROUNDOFF
    return Law(support, mass, p_inf + lost, Side.UPPER, mass_error, place_error)


def _transitions(states: Array, correlation: float, innovation: float, spacing: float) -> Array:
    """Chances from each state (row) to each (column): the innovation and rounding noise of one spacing, sampled."""
    spread = sqrt(innovation**2 + spacing**2)
    distance = (states[None, :] - correlation * states[:, None]) / spread
    kernel: Array = spacing / (sqrt(2.0 * np.pi) * spread) * np.exp(-0.5 * distance**2)
    return kernel


def places_of_sums(
    scales: Array, correlation: float, prob: float | Array, none: float, reach: float, variance: float, fine: float
) -> tuple[Array, float]:
    """Nodes for W from 0 up: equidistant to its mean, which is one of them and 1 - none, then in proportion.

    Returns: the nodes, and about the standard deviation of W.
    """
    w, largest = scales.size, float(scales.max())
    mean = 1.0 - none
    lags = np.abs(np.subtract.outer(np.arange(w), np.arange(w)))
    second = np.expm1(np.minimum(np.multiply.outer(scales, scales) * correlation**lags, 50.0))
    weights = weights_of(prob, w)
    deviation = min(sqrt(float(weights @ second @ weights)), mean)
    top = min(w * float(weights.max()) * exp(min(largest * (reach + 0.5 * largest * variance), 130.0)), LARGEST_VALUE)
    return nodes_around(mean, deviation, top, fine, SPACING), deviation


class Spacing(NamedTuple):
    """How close the nodes of sums are, on the coarsest grids.

    Attributes:
        core, most: nodes for each standard deviation up to the mean, and the most of them.
        near, far: spacing beyond it, as a share of the distance from it: within 12 standard deviations, and beyond.
    """

    core: float
    most: float
    near: float
    far: float


SPACING = Spacing(core=40.0, most=1500.0, near=0.015, far=0.05)


def nodes_around(mean: float, deviation: float, top: float, fine: float, spacing: Spacing) -> Array:
    """Nodes from 0 to beyond ``mean + top``: equidistant to the mean, then in proportion to the distance from it."""
    count = int(min(max(mean * spacing.core * sqrt(fine) / min(deviation, mean), 40.0), spacing.most))
    nodes = np.linspace(0.0, mean, count + 1)
    above, step = [float(nodes[-1])], mean / count
    while above[-1] - mean < top:
        away = above[-1] - mean
        share = spacing.near if away < 12.0 * deviation else spacing.far
        above.append(above[-1] + max(step, share / sqrt(fine) * away))
    return np.concatenate([nodes, above[1:]])


def _backwards(
    grid: Array, kernel: Array, start: Array, ratios: Array, coins: Array, starts: int, deadline: Deadline
) -> tuple[Array, Array]:
    """Masses on the grid, shape (starts, nodes), and P-mass at infinity, shape (starts,), of the first W_u."""
    steps, states = ratios.shape
    masses, infinite = np.zeros((starts, grid.size)), np.zeros(starts)
    ahead, beyond = np.zeros((states, grid.size)), np.zeros(states)
    ahead[:, 0] = 1.0
    for step in range(steps - 1, -1, -1):
        deadline.tick()
        # The state at this step decides its ratio; the law of what follows is a mean over the next state.
        if step < steps - 1:
            ahead, beyond = kernel @ ahead, kernel @ beyond
        ahead, excess = _moved(grid, ahead, coins[step] * ratios[step], 1.0 - coins[step], grid)
        beyond = (1.0 - coins[step]) * beyond + excess
        if step < starts:
            masses[step], infinite[step] = start @ ahead, float(start @ beyond)
    return masses, infinite


def _moved(grid: Array, masses: Array, shifts: Array, scale: float, target: Array) -> tuple[Array, Array]:
    """The laws of ``shifts[j] + scale V`` split on ``target``; what is above it keeps the rest of its mean at infinity.

    ``masses[j]`` is that of V on ``grid``; no value is below the target.
    """
    moved, excess = np.zeros((len(masses), target.size)), np.zeros(len(masses))
    _move(grid, masses, shifts, scale, target, moved, excess)
    return moved, excess


@kernel
def _move(grid: Array, masses: Array, shifts: Array, scale: float, target: Array, moved: Array, excess: Array) -> None:
    """:func:`_moved`, into arrays of zeros."""
    n = target.size
    for j in range(masses.shape[0]):
        cell = 0
        for i in range(grid.size):
            mass = masses[j, i]
            if mass == 0.0:
                continue
            value = shifts[j] + scale * grid[i]
            while cell < n - 1 and target[cell + 1] <= value:
                cell += 1
            if cell == n - 1:
                moved[j, cell] += mass
                excess[j] += mass * (value - target[cell])
                continue
            right = mass * min((value - target[cell]) / (target[cell + 1] - target[cell]), 1.0)
            moved[j, cell + 1] += right
            moved[j, cell] += mass - right


def least_upper_bound(grid: Array, masses: Array, infinite: Array) -> tuple[Array, Array, float]:
    """The smallest law, in convex order, above several laws on one grid that have the mean 1.

    Below 1 the largest of the functions ``E (c - X)_+`` decides, above it the largest of ``E (X - c)_+``: sums of
    non-negative terms, so that both tails keep their digits. Between two nodes a chord is above the maximum of both.

    Args:
        grid: shape (n,), increasing, 1 among them and neither first nor last.
        masses: shape (laws, n).
        infinite: shape (laws,), P-masses at infinity.

    Returns: support, masses and P-mass at infinity; where the largest law changes, mass is rounded up.
    """
    middle = int(np.searchsorted(grid, 1.0))
    upper = _tail(grid[middle:], masses[:, middle:], infinite)
    lower = _tail(-grid[middle::-1], masses[:, middle::-1], np.zeros(infinite.size))[::-1]
    mass = np.concatenate([lower[:-1], [0.0], upper[1:]])
    mass[middle] = max(float(masses.sum(axis=1).max()) - float(mass.sum()), 0.0) + 1e-12
    support, mass = merge_equal(grid.copy(), mass)
    return support, mass, float(infinite.max()) * (1.0 + 1e-12)


def _tail(places: Array, masses: Array, infinite: Array) -> Array:
    """Masses of the largest of ``E (X - c)_+`` on increasing places, the first of which is left to the caller."""
    survival = np.cumsum(masses[:, ::-1], axis=1)[:, ::-1]  # at or above each place
    rises = np.diff(places) * survival[:, 1:]
    calls = np.concatenate([np.cumsum(rises[:, ::-1], axis=1)[:, ::-1], np.zeros((masses.shape[0], 1))], axis=1)
    calls += infinite[:, None]
    largest = np.argmax(calls, axis=0)
    height = calls.max(axis=0)
    same = largest[1:] == largest[:-1]
    # How much mass is above each cell: that of the law that is largest at both ends, or the slope of the chord.
    own = survival[largest[:-1], np.arange(1, places.size)]
    slopes = np.where(same, own, (height[:-1] - height[1:]) / np.diff(places))
    tail = np.zeros(places.size)
    tail[1:-1] = np.maximum(slopes[:-1] - slopes[1:], 0.0) + 1e-12 * slopes[:-1]
    tail[-1] = slopes[-1] * (1.0 + 1e-12)
    alone = same[:-1] & same[1:]
    inner = np.arange(1, places.size - 1)
    tail[1:-1] = np.where(alone, masses[largest[1:-1], inner], tail[1:-1])
    return tail


def sampled_normal(places: Array, centre: Array | float, variance: float, spacing: float) -> Array:
    """The normal density at places of a lattice, times its spacing."""
    densities: Array = spacing / sqrt(2.0 * np.pi * variance) * np.exp(-0.5 * (places - centre) ** 2 / variance)
    return densities
