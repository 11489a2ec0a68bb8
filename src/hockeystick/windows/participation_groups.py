"""One window of b-min-sep subsampling: the law of what its participation adds, shared by groups of its steps.

Let step j of a window of b steps have the ratio ``L_j = exp(z_j - var(z_j) / 2)``, z a Gauss-Markov chain, and let
``w_j = q (1-q)^(j-1)``. An example of which a share a is available at step 1 and the rest at step i adds
``A = sum_j c_j L_j`` with ``c_j = a w_j`` before step i and ``c_j = kappa w_j`` from it on. What is needed are the
measures ``(sum_j owners[j, g] c_j L_j / A) dQ`` of A for groups g. Every rounding scales all terms of a sum alike
and keeps the mean, so the shares of the groups are carried along like masses.

The steps before i and those from it on are independent given a point between two states of the chain, so one pass
forwards and one backwards serve all a and i.

Proof: docs/theory/separated-windows.md, "Windows that are linked". Cost: O(b states nodes groups points) in matrix
products.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from hockeystick.compiling import kernel
from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.windows.chains import SPLIT, sampled_normal

Numbers = NDArray[np.int64]
EVERY = 3
"""Nodes of a pass for each node on which its two halves are joined."""


@dataclass(frozen=True)
class Lattice:
    """A chain on a lattice, each step of which goes through one of few points.

    Attributes:
        states: shape (s,).
        start: shape (s,), chances of the first state.
        leaving: shape (s, points), from a state to a point.
        entering: shape (points, s), from a point to a state.
        variance: of a state, with the noise of the lattice.
    """

    states: Array
    start: Array
    leaving: Array
    entering: Array
    variance: float


def lattice(correlation: float, longest: float, steps_per_innovation: float, tail: float) -> Lattice:
    """States and points that are left, at any step, with a chance of at most four tails.

    Args:
        correlation: rho in [0, 1) of neighbours.
        longest: the largest standard deviation of a ``z_j``: how far a participation may move a state.
        tail: of the normal distribution, at either end of the states and of the points.
    """
    innovation = sqrt((1.0 - correlation) * (1.0 + correlation))
    spacing = innovation / steps_per_innovation
    variance = 1.0 + (spacing / innovation) ** 2
    states = _reaching(spacing, -float(ndtri(tail)) * sqrt(variance), longest * variance)
    start = sampled_normal(states, 0.0, variance, spacing)
    if correlation == 0.0:
        return Lattice(states, start, np.ones((states.size, 1)), start[None, :], variance)
    both = innovation**2 + spacing**2
    first, second = SPLIT * both, (1.0 - SPLIT) * both
    gap = sqrt(SPLIT * (1.0 - SPLIT) * both)  # the deviation of a point between two states that are known
    spread = sqrt(correlation**2 * variance + first)
    points = _reaching(gap, -float(ndtri(tail)) * spread, longest * variance)
    leaving = sampled_normal(points[None, :], correlation * states[:, None], first, gap)
    entering = sampled_normal(states[None, :], points[:, None], second, spacing)
    return Lattice(states, start, leaving, entering, variance)


def _reaching(spacing: float, reach: float, shift: float) -> Array:
    """Multiples of the spacing from at most -reach to at least reach + shift."""
    multiples: Array = spacing * np.arange(-ceil(reach / spacing), ceil((reach + shift) / spacing) + 1.0)
    return multiples


@dataclass(frozen=True)
class Cut:
    """What is before a step, and what is from it on, given the point between; all in units of ``c_j = w_j``.

    Attributes:
        before: shape (points, coarse nodes, groups), a measure of the points and of the sum before.
        after: shape (points, coarse nodes, groups), for each point the law of the sum from the step on.
        alone: shape (nodes, groups), the law of the sum from the step on.
        far_before, far_after, far_alone: their P-masses at infinity; of shape (points,) the first two.
    """

    before: Array
    after: Array
    alone: Array
    far_before: Array
    far_after: Array
    far_alone: float


def cuts(chain: Lattice, grid: Array, terms: Array, owners: Array, deadline: Deadline) -> list[Cut]:
    """One for each step.

    Args:
        grid: shape (n,), nodes for the sums, increasing from 0.
        terms: shape (b, s), ``w_j L_j`` for each state.
        owners: shape (b, groups), how each step is shared by groups; rows add up to 1.
    """
    coarse, everyone = grid[coarse_nodes(grid.size)], slice(0, owners.shape[1])
    after = list(_from_the_end(chain, grid, terms, owners, deadline))
    cuts, groups = list[Cut](), everyone
    before, far_before = np.zeros((chain.entering.shape[0], grid.size, everyone.stop)), np.zeros(len(chain.entering))
    for step in range(owners.shape[0]):
        deadline.tick()
        rest = after.pop()
        wide = _among(coarser(grid, before, coarse), groups, everyone)
        narrow = _among(coarser(grid, rest.entered, coarse), rest.groups, everyone)
        cuts.append(Cut(wide, narrow, rest.alone, far_before, rest.far_entered, rest.far_alone))
        held, groups = groups, _groups(owners[: step + 1])
        if step == 0:
            law, far = _nothing(chain, grid, groups) * chain.start[:, None, None], np.zeros(chain.states.size)
        else:
            law = _among(_times(chain.entering.T, before), held, groups)
            far = chain.entering.T @ far_before
        law, excess = added(grid, law, terms[step], owners[step, groups])
        before, far_before = _times(chain.leaving.T, law), chain.leaving.T @ (far + excess)
    return cuts


def whole(chain: Lattice, grid: Array, terms: Array, owners: Array, deadline: Deadline) -> tuple[Array, float]:
    """The law of the sum of all terms, shape (nodes, groups), and its P-mass at infinity."""
    every = deque(_from_the_end(chain, grid, terms, owners, deadline), maxlen=1).pop()
    return every.alone, every.far_alone


@dataclass(frozen=True)
class _Rest:
    """The sum of the terms from a step on.

    Attributes:
        entered: shape (points, nodes, groups that own some of these steps), its law for each point before the step.
        groups: those.
        alone: shape (nodes, groups), its law, for all groups.
        far_entered, far_alone: their P-masses at infinity, the first of shape (points,).
    """

    entered: Array
    groups: slice
    alone: Array
    far_entered: Array
    far_alone: float


def _from_the_end(chain: Lattice, grid: Array, terms: Array, owners: Array, deadline: Deadline) -> Iterator[_Rest]:
    """The sums from each step on, the last step first."""
    held = _groups(owners[-1:])
    law, far = _nothing(chain, grid, held), np.zeros(chain.states.size)
    for step in range(owners.shape[0] - 1, -1, -1):
        deadline.tick()
        groups = _groups(owners[step:])
        law, excess = added(grid, _among(law, held, groups), terms[step], owners[step, groups])
        far, held = far + excess, groups
        entered, far_entered = _times(chain.entering, law), chain.entering @ far
        alone = _among(_times(chain.start[None, :], law)[0], groups, slice(0, owners.shape[1]))
        yield _Rest(entered, groups, alone, far_entered, float(chain.start @ far))
        law, far = _times(chain.leaving, entered), chain.leaving @ far_entered


def _groups(owners: Array) -> slice:
    """The groups that own these steps: all from the first to the last one."""
    own = np.flatnonzero(owners.any(axis=0))
    return slice(int(own[0]), int(own[-1]) + 1)


def _among(laws: Array, held: slice, groups: slice) -> Array:
    """Laws of the groups ``held``, along the last axis, with nothing for the others of ``groups``."""
    if held == groups:
        return laws
    among = np.zeros((*laws.shape[:-1], groups.stop - groups.start))
    among[..., held.start - groups.start : held.stop - groups.start] = laws
    return among


def _nothing(chain: Lattice, grid: Array, groups: slice) -> Array:
    """A sum of no terms, which any group may own: it is no part of what is added."""
    law = np.zeros((chain.states.size, grid.size, groups.stop - groups.start))
    law[:, 0, 0] = 1.0
    return law


def _times(matrix: Array, laws: Array) -> Array:
    products: Array = matrix @ laws.reshape(laws.shape[0], -1)
    return products.reshape(matrix.shape[0], *laws.shape[1:])


def added(grid: Array, laws: Array, terms: Array, owners: Array) -> tuple[Array, Array]:
    """The laws of ``terms[s] + V``, of which the groups own ``terms[s] / (terms[s] + V)`` as ``owners`` says.

    Args:
        laws: shape (s, nodes, groups), masses of V on the grid, by the group that they belong to.
        terms: shape (s,), positive.
        owners: shape (groups,).

    Returns: the same for the sum, split between the nodes around it; and of shape (s,) what is above the last node,
        where the mass stays.
    """
    split, excess = np.empty(laws.shape), np.empty(len(laws))
    _add(grid, laws, terms, owners, split, excess)
    return split, excess


@kernel
def _add(grid: Array, laws: Array, terms: Array, owners: Array, split: Array, excess: Array) -> None:
    """:func:`added`, into ``split`` and ``excess``."""
    states, n, count = laws.shape
    sums = np.zeros(n * count)  # of one state; shares no memory with what is read, which makes the loops faster
    first, last = 0, count
    while first < count - 1 and owners[first] == 0.0:
        first += 1
    while last > first + 1 and owners[last - 1] == 0.0:
        last -= 1
    for s in range(states):
        for k in range(n * count):
            sums[k] = 0.0
        cell, above = 0, 0.0
        for i in range(n):
            total = 0.0
            for g in range(count):
                total += laws[s, i, g]
            if total == 0.0:
                continue
            value = terms[s] + grid[i]
            while cell < n - 1 and grid[cell + 1] <= value:
                cell += 1
            kept, own = grid[i] / value, total * (terms[s] / value)
            if cell == n - 1:
                for g in range(count):
                    sums[cell * count + g] += laws[s, i, g] * kept
                for g in range(first, last):
                    sums[cell * count + g] += own * owners[g]
                above += total * (value - grid[cell])
                continue
            right = min((value - grid[cell]) / (grid[cell + 1] - grid[cell]), 1.0)
            left = 1.0 - right
            for g in range(count):
                mass = laws[s, i, g] * kept
                sums[cell * count + g] += mass * left
                sums[(cell + 1) * count + g] += mass * right
            for g in range(first, last):
                sums[cell * count + g] += own * left * owners[g]
                sums[(cell + 1) * count + g] += own * right * owners[g]
        excess[s] = above
        for i in range(n):
            for g in range(count):
                split[s, i, g] = sums[i * count + g]


def coarse_nodes(count: int) -> Numbers:
    """Every so many of the numbers below ``count``, and the last."""
    return np.append(np.arange(0, count - 1, EVERY), count - 1)


def coarser(grid: Array, laws: Array, coarse: Array) -> Array:
    """Laws on the grid, shape (s, nodes, groups), split on some of its nodes, the first and the last among them."""
    cell = np.clip(np.searchsorted(coarse, grid, side="right") - 1, 0, coarse.size - 2)
    right = np.clip((grid - coarse[cell]) / (coarse[cell + 1] - coarse[cell]), 0.0, 1.0)
    split = np.zeros((coarse.size, grid.size))
    nodes = np.arange(grid.size)
    split[cell, nodes] = 1.0 - right
    split[cell + 1, nodes] = right
    coarsened: Array = np.einsum("mn,sng->smg", split, laws, optimize=True)
    return coarsened
