"""Kernels of :mod:`.cell_moments`: weights of draws on a ring by label, and normal probabilities of cells.

Everything in pairs of doubles; arrays of pairs have a last axis of length 2, (high, low). ``powers[d, x]`` is
``e^(S_d x)`` for ring distance d, ``own[n]`` is ``e^(S_0 n (n - 1) / 2) / n!``. A *window* holds the counts
``(c_1, ..., c_reach)`` of neighbouring bins; windows are sorted by mass ``c_1 + ... + c_reach``, and the key of one is
``sum_j c_j base^(j - 1)`` with ``base = largest + 1``, so that keys of windows add up where windows do.

All terms of all sums are positive. Proofs: ``docs/theory/moment-majorants/cells.md``.
"""

from fractions import Fraction

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hockeystick.accountants.moment_majorant.double_double import (
    add,
    add_positive,
    multiply,
    pair_of,
    quick_two_sum,
)
from hockeystick.accountants.moment_majorant.exponential import exp_pair
from hockeystick.laws.law import Array

Counts = NDArray[np.int64]

DIVISION_ROUNDING = 2.0**-102
"""Proved relative error of :func:`divide`."""

TAIL_ERROR = 2.0**-90
"""Proved relative error of :func:`normal_tail`."""

FARTHEST = 35.0
"""Tails beyond this, all below 1e-267, are taken as 0."""

LEAST_CHANCE = 1e-260
"""Cells of smaller probability are left out."""

LEFT_OUT = 1e-225
"""Counted among the sizes for it: times an error of at least 2^-100 it is more than what is left out."""

_NODES = 24
"""Of the midpoint rule with step 1/2; the first node that is left out weighs ``e^-75``."""

_PI = Fraction(31415926535897932384626433832795028841971, 10**40)
_OVER_TWO_PI, _OVER_TWO_PI_LOW = pair_of(1 / (2 * _PI))
_FOUR_PI, _FOUR_PI_LOW = pair_of(4 * _PI)
_WEIGHTS = np.array([exp_pair(-((n + 0.5) ** 2) / 8.0, 0.0) for n in range(_NODES)])
"""``e^(-s^2 / 2)`` at the nodes ``s = (n + 1/2) / 2``."""


@njit(cache=True)
def divide(a: float, a_low: float, b: float, b_low: float) -> tuple[float, float]:
    """The quotient: that of the high parts, and what is left over it."""
    q = a / b
    p, p_low = multiply(b, b_low, q, 0.0)
    rest, _ = add(a, a_low, -p, -p_low)
    return quick_two_sum(q, rest / b)


@njit(cache=True)
def normal_tail(z: float, z_low: float) -> tuple[float, float]:
    """``Pr(N(0, 1) > z)`` for ``0 <= z <= FARTHEST``, within :data:`TAIL_ERROR`.

    The midpoint rule with step 1/2 for ``z e^(-z^2 / 2) / (2 pi) int e^(-s^2 / 2) / (s^2 + z^2) ds``, and the residue
    at the pole ``s = i z`` (Chiarella and Reichel 1968), which no longer matters from ``z = 4 pi`` on.
    """
    square, square_low = multiply(z, z_low, z, z_low)
    total, total_low = 0.0, 0.0
    if z > 0.0:
        for n in range(_NODES):
            s = 0.5 * n + 0.25
            below, below_low = add_positive(square, square_low, s * s, 0.0)
            term, term_low = divide(_WEIGHTS[n, 0], _WEIGHTS[n, 1], below, below_low)
            total, total_low = add_positive(total, total_low, term, term_low)
        total, total_low = multiply(total, total_low, z, z_low)
        total, total_low = multiply(total, total_low, _OVER_TWO_PI, _OVER_TWO_PI_LOW)
        decay, decay_low = exp_pair(-0.5 * square, -0.5 * square_low)
        total, total_low = multiply(total, total_low, decay, decay_low)
    if z < _FOUR_PI:
        turn, turn_low = multiply(z, z_low, _FOUR_PI, _FOUR_PI_LOW)
        pole, pole_low = exp_pair(-turn, -turn_low)
        below, below_low = add_positive(1.0, 0.0, pole, pole_low)
        pole, pole_low = divide(pole, pole_low, below, below_low)
        total, total_low = add_positive(total, total_low, pole, pole_low)
    return total, total_low


@njit(cache=True)
def _weight_within(window: Counts, powers: Array, own: Array) -> tuple[float, float]:
    """The weight of the counts of a window among themselves."""
    value, low = 1.0, 0.0
    for i in range(window.size):
        if window[i] > 0:
            value, low = multiply(value, low, own[window[i], 0], own[window[i], 1])
            for j in range(i + 1, window.size):
                if window[j] > 0:
                    x = window[i] * window[j]
                    value, low = multiply(value, low, powers[j - i, x, 0], powers[j - i, x, 1])
    return value, low


@njit(cache=True)
def step_weights(windows: Counts, masses: Counts, powers: Array, own: Array) -> Array:
    """The weight of r draws of the bin that follows a window, shape (windows, largest + 1, 2)."""
    largest = own.shape[0] - 1
    result = np.zeros((masses.size, largest + 1, 2))
    for w in range(masses.size):
        for r in range(largest - masses[w] + 1):
            value, low = own[r, 0], own[r, 1]
            if r > 0:
                for j in range(windows.shape[1]):
                    if windows[w, j] > 0:
                        x = r * windows[w, j]
                        value, low = multiply(value, low, powers[j + 1, x, 0], powers[j + 1, x, 1])
            result[w, r, 0], result[w, r, 1] = value, low
    return result


@njit(cache=True)
def _towards_start(start: Counts, step: int, highest: int, powers: Array, ahead: Array) -> None:
    """Weight between r = 0..highest draws of bin ``reach + step`` and the bins 1..reach before it, into ``ahead``."""
    reach = start.size
    for r in range(highest + 1):
        value, low = 1.0, 0.0
        if r > 0:
            for i in range(step, reach + 1):
                if start[i - 1] > 0:
                    d, x = reach + step - i, r * start[i - 1]
                    value, low = multiply(value, low, powers[d, x, 0], powers[d, x, 1])
        ahead[r, 0], ahead[r, 1] = value, low


@njit(cache=True)
def _advance(
    old: Array, new: Array, states: int, room: int, following: Counts, weights: Array, ahead: Array, near: bool
) -> None:
    """One more bin of the chain: ``old`` and ``new`` have shape (windows, largest + 1, 2), by window and draws."""
    new[:states, : room + 1] = 0.0
    for w in range(states):
        for t in range(room + 1):
            value, low = old[w, t, 0], old[w, t, 1]
            if value == 0.0:
                continue
            for r in range(room - t + 1):
                term, term_low = multiply(value, low, weights[w, r, 0], weights[w, r, 1])
                if near:
                    term, term_low = multiply(term, term_low, ahead[r, 0], ahead[r, 1])
                target = following[w, r]
                total, total_low = add_positive(new[target, t + r, 0], new[target, t + r, 1], term, term_low)
                new[target, t + r, 0], new[target, t + r, 1] = total, total_low


@njit(cache=True)
def _weight_across(start: Counts, window: Counts, powers: Array) -> tuple[float, float]:
    """The weight between the bins 1..reach and -1..-reach across bin 0."""
    reach = start.size
    value, low = 1.0, 0.0
    for i in range(reach - 1):
        if start[i] > 0:
            for j in range(reach - i - 1):
                if window[j] > 0:
                    d, x = i + j + 2, start[i] * window[j]
                    value, low = multiply(value, low, powers[d, x, 0], powers[d, x, 1])
    return value, low


@njit(cache=True, nogil=True)
def add_ring(
    result: Array,
    first: int,
    last: int,
    bins: int,
    windows: Counts,
    masses: Counts,
    counts: Counts,
    keys: Counts,
    sorted_keys: Counts,
    places: Counts,
    following: Counts,
    weights: Array,
    powers: Array,
    own: Array,
) -> None:
    """Add the weights of all draws of the bins 1..bins-1 where the bins 1..reach hold one of the windows first..last-1.

    Args:
        result: shape (windows, largest + 1, 2), by label and number of draws: the label of a configuration is the
            window ``(r_1 + r_-1, ..., r_reach + r_-reach)``.
        first, last: windows, read as ``(r_1, ..., r_reach)``.
        bins: more than twice reach.
        windows, masses, keys: see the module; shapes (windows, reach), (windows,), (windows,).
        counts: how many windows have a mass of at most 0..largest.
        sorted_keys, places: keys in increasing order and whose they are.
        following: shape (windows, largest + 1): the window after r draws of the next bin.
        weights: :func:`step_weights`.
    """
    largest, reach = own.shape[0] - 1, windows.shape[1]
    old, new = np.zeros((masses.size, largest + 1, 2)), np.zeros((masses.size, largest + 1, 2))
    ahead = np.zeros((largest + 1, 2))
    for s in range(first, last):
        start, room = windows[s], largest - masses[s]
        states = counts[room]
        old[:states, : room + 1] = 0.0
        old[0, 0, 0], old[0, 0, 1] = _weight_within(start, powers, own)
        for step in range(1, bins - reach):
            near = step <= reach and masses[s] > 0
            if near:
                _towards_start(start, step, room, powers, ahead)
            _advance(old, new, states, room, following, weights, ahead, near)
            old, new = new, old
        for w in range(states):
            across, across_low = _weight_across(start, windows[w], powers)
            label = places[np.searchsorted(sorted_keys, keys[s] + keys[w])]
            for t in range(masses[w], room + 1):
                term, term_low = multiply(old[w, t, 0], old[w, t, 1], across, across_low)
                n = masses[s] + t
                total, total_low = add_positive(result[label, n, 0], result[label, n, 1], term, term_low)
                result[label, n, 0], result[label, n, 1] = total, total_low


@njit(cache=True)
def _tails(mean: float, mean_low: float, edges: Array, inverse: Array, tails: Array, signs: Array) -> None:
    """``Pr(|N(0, 1)| on the far side of each edge)`` and on which side of the mean the edge is."""
    for e in range(edges.size):
        z, z_low = add(edges[e], 0.0, -mean, -mean_low)
        z, z_low = multiply(z, z_low, inverse[0], inverse[1])
        signs[e] = 1.0 if z >= 0.0 else -1.0
        if z < 0.0:
            z, z_low = -z, -z_low
        tails[e, 0], tails[e, 1] = 0.0, 0.0
        if z <= FARTHEST:
            tails[e, 0], tails[e, 1] = normal_tail(z, z_low)


@njit(cache=True)
def _between(left: Array, left_sign: float, right: Array, right_sign: float) -> tuple[float, float, float]:
    """The probability between two edges from their tails, and the sum of the terms' sizes."""
    size = left[0] + right[0]
    if left_sign > 0.0:
        value, low = add(left[0], left[1], -right[0], -right[1])
    elif right_sign < 0.0:
        value, low = add(right[0], right[1], -left[0], -left[1])
    else:
        value, low = add(1.0, 0.0, -left[0], -left[1])
        value, low = add(value, low, -right[0], -right[1])
        size += 1.0
    return value, low, size


@njit(cache=True, nogil=True)
def add_cells(
    moments: Array,
    sizes: Array,
    first: int,
    last: int,
    table: Array,
    windows: Counts,
    masses: Counts,
    steps: Array,
    common: Array,
    powers: Array,
    own: Array,
    edges: Array,
    inverse: Array,
) -> None:
    """Add what the labels first..last-1 give to the moments of all cells.

    Args:
        moments: shape (edges + 1, largest + 1, 2), by cell and order; the cells end at the edges.
        sizes: shape (edges + 1, largest + 1): the same with the sizes of the terms of every probability.
        table: what :func:`add_ring` has summed.
        steps: S_d for d = 0..reach, and ``common`` v, as pairs.
        edges: increasing.
        inverse: one over the standard deviation of a cell's normal law, a pair.
    """
    largest, cells = own.shape[0] - 1, edges.size + 1
    tails, signs = np.zeros((cells + 1, 2)), np.empty(cells + 1)
    signs[0], signs[cells] = -1.0, 1.0
    for label in range(first, last):
        pull, pull_low = 0.0, 0.0
        for j in range(windows.shape[1]):
            if windows[label, j] > 0:
                part, part_low = multiply(steps[j + 1, 0], steps[j + 1, 1], float(windows[label, j]), 0.0)
                pull, pull_low = add_positive(pull, pull_low, part, part_low)
        for again in range(largest - masses[label] + 1):  # draws of bin 0
            weight, weight_low = own[again, 0], own[again, 1]
            part, part_low = multiply(steps[0, 0], steps[0, 1], again + 1.0, 0.0)
            raised, raised_low = add_positive(pull, pull_low, part, part_low)
            # own[] counts again (again - 1) / 2 pairs; the drawn bin itself brings as many more as there are draws
            weight, weight_low = multiply(weight, weight_low, powers[0, again, 0], powers[0, again, 1])
            for j in range(windows.shape[1]):
                if windows[label, j] > 0:
                    x = (again + 1) * windows[label, j]
                    weight, weight_low = multiply(weight, weight_low, powers[j + 1, x, 0], powers[j + 1, x, 1])
            for n in range(masses[label], largest - again + 1):
                value, value_low = table[label, n, 0], table[label, n, 1]
                if value == 0.0:
                    continue
                value, value_low = multiply(value, value_low, weight, weight_low)
                k = n + again
                part, part_low = multiply(common[0], common[1], k + 1.0, 0.0)
                mean, mean_low = add(raised, raised_low, -part, -part_low)
                _tails(mean, mean_low, edges, inverse, tails[1:cells], signs[1:cells])
                for c in range(cells):
                    chance, chance_low, size = _between(tails[c], signs[c], tails[c + 1], signs[c + 1])
                    sizes[c, k] += value * (size + LEFT_OUT)
                    if chance > LEAST_CHANCE:
                        term, term_low = multiply(value, value_low, chance, chance_low)
                        total, total_low = add_positive(moments[c, k, 0], moments[c, k, 1], term, term_low)
                        moments[c, k, 0], moments[c, k, 1] = total, total_low
