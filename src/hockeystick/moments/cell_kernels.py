"""Kernels of :mod:`.cell_moments`: weights of draws on a ring around each bin, and normal probabilities of cells.

Everything in pairs of doubles; arrays of pairs have a last axis of length 2, (high, low). Entries of the Gram matrix
are known by the place of their value in a list: ``kinds[i, d]`` is that of ``S_(i,i+d)``, shape (bins, reach + 1), and
``powers[kind, x]`` is ``e^(S x)``. ``inverse[n]`` is ``1 / n!``. A *window* holds the counts ``(c_1, ..., c_reach)`` of
the bins next to a bin on one side, the nearest first; windows are sorted by mass ``c_1 + ... + c_reach``. Two windows
w and x on both sides of a bin with at most ``largest`` draws together have the place ``offsets[w] + x``.

All terms of all sums of weights are positive. Proofs: ``docs/theory/moment-majorants/cells.md``.
"""

from fractions import Fraction
from math import isqrt

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hockeystick.laws.law import Array
from hockeystick.moments.double_double import add, add_positive, multiply, pair_of, quick_two_sum
from hockeystick.moments.exponential import exp_pair

Counts = NDArray[np.int64]

DIVISION_ROUNDING = 2.0**-102
"""Proved relative error of :func:`divide`."""

TAIL_ERROR = 2.0**-90
"""Proved relative error of :func:`normal_tail`."""

EXPANDED_ERROR = 2.0**-87
"""Proved error of a tail from :func:`tail_coefficients`, relative to the tail at the place that is expanded about."""

FARTHEST = 35.0
"""Tails beyond this, all below 1e-267, are taken as 0."""

LEAST_CHANCE = 1e-260
"""Cells of smaller probability are left out."""

LEFT_OUT = 1e-225
"""Counted among the sizes for it: times an error of at least 2^-100 it is more than what is left out."""

PLACES = 32
"""Means are expanded about multiples of 1 / PLACES standard deviations."""

TERMS = 24
"""Of an expansion."""

_NODES = 24
"""Of the midpoint rule with step 1/2; the first node that is left out weighs ``e^-75``."""

_PI = Fraction(31415926535897932384626433832795028841971, 10**40)
_OVER_TWO_PI, _OVER_TWO_PI_LOW = pair_of(1 / (2 * _PI))
_FOUR_PI, _FOUR_PI_LOW = pair_of(4 * _PI)
_OVER_ROOT, _OVER_ROOT_LOW = pair_of(Fraction(isqrt(int(2**256 / (2 * _PI))), 2**128))
"""One over the root of 2 pi."""
_WEIGHTS = np.array([exp_pair(-((n + 0.5) ** 2) / 8.0, 0.0) for n in range(_NODES)])
"""``e^(-s^2 / 2)`` at the nodes ``s = (n + 1/2) / 2``."""
_OVER = np.array([pair_of(Fraction(1, n)) for n in range(1, TERMS + 1)])
"""``1 / (n + 1)``."""


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
def tail_coefficients(z: float, z_low: float, coefficients: Array) -> None:
    """``Pr(N(0, 1) > z + t) = sum_n coefficients[n] t^n`` for ``0 <= z <= FARTHEST``, ``|t| <= 1 / (2 PLACES)``.

    Args:
        coefficients: shape (TERMS, 2), overwritten: of the Taylor series, by the recursion of Hermite polynomials.
    """
    coefficients[0, 0], coefficients[0, 1] = normal_tail(z, z_low)
    square, square_low = multiply(z, z_low, z, z_low)
    density, density_low = exp_pair(-0.5 * square, -0.5 * square_low)
    density, density_low = multiply(density, density_low, _OVER_ROOT, _OVER_ROOT_LOW)
    before, before_low = 0.0, 0.0
    for n in range(1, TERMS):
        value, value_low = multiply(density, density_low, _OVER[n - 1, 0], _OVER[n - 1, 1])
        coefficients[n, 0], coefficients[n, 1] = -value, -value_low
        next_, next_low = multiply(density, density_low, z, z_low)
        next_, next_low = add(next_, next_low, before, before_low)
        next_, next_low = multiply(next_, next_low, -_OVER[n - 1, 0], -_OVER[n - 1, 1])
        before, before_low, density, density_low = density, density_low, next_, next_low


@njit(cache=True)
def step_weights(pattern: Counts, windows: Counts, masses: Counts, powers: Array, inverse: Array) -> Array:
    """The weight of r draws of the bin that follows a window, shape (windows, largest + 1, 2).

    Args:
        pattern: kinds of the bin itself and of its pairs with the bins of the window, nearest first.
    """
    largest = inverse.shape[0] - 1
    result = np.zeros((masses.size, largest + 1, 2))
    for w in range(masses.size):
        for r in range(largest - masses[w] + 1):
            value, low = inverse[r, 0], inverse[r, 1]
            if r > 0:
                x = r * (r - 1) // 2
                value, low = multiply(value, low, powers[pattern[0], x, 0], powers[pattern[0], x, 1])
                for j in range(windows.shape[1]):
                    if windows[w, j] > 0:
                        x, kind = r * windows[w, j], pattern[j + 1]
                        value, low = multiply(value, low, powers[kind, x, 0], powers[kind, x, 1])
            result[w, r, 0], result[w, r, 1] = value, low
    return result


@njit(cache=True)
def _weight_within(start: Counts, kinds: Counts, powers: Array, inverse: Array) -> tuple[float, float]:
    """The weight of the counts of the bins 0..reach-1 among themselves; ``start`` is their window from bin reach."""
    value, low = 1.0, 0.0
    reach = start.size
    for i in range(reach):
        r = start[reach - 1 - i]
        if r > 0:
            value, low = multiply(value, low, inverse[r, 0], inverse[r, 1])
            x = r * (r - 1) // 2
            value, low = multiply(value, low, powers[kinds[i, 0], x, 0], powers[kinds[i, 0], x, 1])
            for j in range(i + 1, reach):
                x, kind = r * start[reach - 1 - j], kinds[i, j - i]
                if x > 0:
                    value, low = multiply(value, low, powers[kind, x, 0], powers[kind, x, 1])
    return value, low


@njit(cache=True)
def _towards_start(start: Counts, j: int, room: int, kinds: Counts, powers: Array, ahead: Array) -> None:
    """Weight between r = 0..room draws of bin j and the bins 0..reach-1 across the seam, into ``ahead``."""
    reach, bins = start.size, kinds.shape[0]
    for r in range(room + 1):
        value, low = 1.0, 0.0
        for i in range(reach - (bins - j) + 1):
            x, kind = r * start[reach - 1 - i], kinds[j, bins - j + i]
            if x > 0:
                value, low = multiply(value, low, powers[kind, x, 0], powers[kind, x, 1])
        ahead[r, 0], ahead[r, 1] = value, low


@njit(cache=True)
def _reached(places: Counts, room: int, masses: Counts, following: Counts, reached: Counts, marks: Counts) -> int:
    """The windows that up to ``room`` draws of the next bin lead to, into ``reached``; how many. Marks are 0."""
    largest, size = following.shape[1] - 1, 0
    for w in places:
        for r in range(min(room, largest - masses[w]) + 1):
            target = following[w, r]
            if marks[target] == 0:
                marks[target] = 1
                reached[size] = target
                size += 1
    for target in reached[:size]:
        marks[target] = 0
    return size


@njit(cache=True)
def _advance(
    old: Array,
    new: Array,
    places: Counts,
    reached: Counts,
    least: int,
    most: int,
    masses: Counts,
    following: Counts,
    weights: Array,
    ahead: Array,
    near: bool,
) -> None:
    """One more bin of the chain: ``old`` and ``new`` have shape (windows, largest + 1, 2), by window and draws.

    Args:
        places, reached: windows of the old and of the new states; no others are looked at.
        least, most: draws.
    """
    for target in reached:
        new[target, : most + 1] = 0.0
    for w in places:
        for t in range(max(least, masses[w]), most + 1):
            value, low = old[w, t, 0], old[w, t, 1]
            if value == 0.0:
                continue
            for r in range(most - t + 1):
                term, term_low = multiply(value, low, weights[w, r, 0], weights[w, r, 1])
                if near:
                    term, term_low = multiply(term, term_low, ahead[r, 0], ahead[r, 1])
                target = following[w, r]
                total, total_low = add_positive(new[target, t + r, 0], new[target, t + r, 1], term, term_low)
                new[target, t + r, 0], new[target, t + r, 1] = total, total_low


@njit(cache=True)
def _join(
    table: Array,
    before: Array,
    after: Array,
    places: Counts,
    least: int,
    masses: Counts,
    counts: Counts,
    offsets: Counts,
) -> None:
    """Add to ``table[., n]`` all pairs of a state before a bin, with a window in ``places``, and one after it."""
    largest = table.shape[1] - 1
    for w in places:
        for t in range(max(least, masses[w]), largest + 1):
            value, low = before[w, t, 0], before[w, t, 1]
            if value == 0.0:
                continue
            for x in range(counts[largest - t]):
                place = offsets[w] + x
                for r in range(masses[x], largest - t + 1):
                    term, term_low = multiply(value, low, after[x, r, 0], after[x, r, 1])
                    total, total_low = add_positive(table[place, t + r, 0], table[place, t + r, 1], term, term_low)
                    table[place, t + r, 0], table[place, t + r, 1] = total, total_low


@njit(cache=True, nogil=True)
def add_ring(
    tables: Array,
    groups: Counts,
    first: int,
    last: int,
    kinds: Counts,
    windows: Counts,
    masses: Counts,
    counts: Counts,
    offsets: Counts,
    following: Counts,
    weights: Array,
    onward: Counts,
    back: Counts,
    powers: Array,
    inverse: Array,
) -> None:
    """For each wanted bin, add the weights of all draws of the others where the first bins hold one of some windows.

    Weights between the bins on both sides of the wanted one are left out, and so is what involves it itself.

    Args:
        tables: shape (groups, pairs of windows, largest + 1, 2), by the windows before and after the wanted bin and
            the number of draws.
        groups: shape (bins,), for each bin the table that it adds to, or -1. Only bins from reach to bins - reach - 1.
        first, last: the windows of the bins 0..reach-1, seen from bin reach.
        windows, masses: shapes (windows, reach) and (windows,).
        counts: how many windows have a mass of at most 0..largest.
        following: shape (windows, largest + 1): the window after r draws of the next bin.
        weights: :func:`step_weights` of several patterns.
        onward, back: shape (bins,), the pattern of each bin after those before it and before those after it.
    """
    bins, reach, largest = kinds.shape[0], windows.shape[1], inverse.shape[0] - 1
    wanted = np.flatnonzero(groups >= 0)
    old, new = np.zeros((masses.size, largest + 1, 2)), np.zeros((masses.size, largest + 1, 2))
    after = np.zeros((bins + 1, masses.size, largest + 1, 2))
    ahead = np.zeros((largest + 1, 2))
    every = np.arange(masses.size)
    places, reached, marks = np.zeros_like(every), np.zeros_like(every), np.zeros_like(every)
    for s in range(first, last):
        start, mass = windows[s], masses[s]
        room = largest - mass
        free = every[: counts[room]]
        after[bins, : free.size, : room + 1] = 0.0
        after[bins, 0, 0, 0] = 1.0
        for j in range(bins - 1, wanted[0], -1):
            near = j >= bins - reach and mass > 0
            if near:
                _towards_start(start, j, room, kinds, powers, ahead)
            _advance(after[j + 1], after[j], free, free, 0, room, masses, following, weights[back[j]], ahead, near)
        places[0], size = s, 1
        old[s] = 0.0
        old[s, mass, 0], old[s, mass, 1] = _weight_within(start, kinds, powers, inverse)
        for i in range(reach, wanted[-1] + 1):
            here = places[:size] if i < 2 * reach else free  # while the window still holds some of the first bins
            if groups[i] >= 0:
                _join(tables[groups[i]], old, after[i + 1], here, mass, masses, counts, offsets)
            if i + 1 < 2 * reach:
                size = _reached(here, room, masses, following, reached, marks)
                there = reached[:size]
            else:
                there = free
            _advance(old, new, here, there, mass, largest, masses, following, weights[onward[i]], ahead, False)
            old, new = new, old
            places, reached = reached, places


@njit(cache=True)
def _weight_across(before: Counts, after: Counts, kinds: Counts, powers: Array) -> tuple[float, float]:
    """The weight across a bin; ``kinds[x, y]`` is that of the bins x + 1 before it and y + 1 after it."""
    value, low = 1.0, 0.0
    reach = before.size
    for i in range(reach - 1):
        if before[i] > 0:
            for j in range(reach - i - 1):
                x = before[i] * after[j]
                if x > 0:
                    value, low = multiply(value, low, powers[kinds[i, j], x, 0], powers[kinds[i, j], x, 1])
    return value, low


@njit(cache=True, nogil=True)
def collect(
    sums: Array,
    lowest: int,
    first: int,
    last: int,
    table: Array,
    own: int,
    sides: Counts,
    across: Counts,
    windows: Counts,
    masses: Counts,
    counts: Counts,
    offsets: Counts,
    values: Array,
    common: Array,
    powers: Array,
    inverse: Array,
    per_deviation: Array,
) -> None:
    """Add the draws of one table, where the windows first..last-1 are before the drawn bin, by its normal law's mean.

    Args:
        sums: shape (places, largest + 1, TERMS, 2): by the place g nearest to the mean in standard deviations, less
            ``lowest``, by the order, and weighted with the powers of ``mean - g / PLACES``.
        table: what :func:`add_ring` has summed for the bin.
        own, sides, across: kinds of the drawn bin itself, of its pairs with the bins before and after (shape
            (2, reach)), and of the pairs of those, shape (reach, reach).
        values: S of each kind, pairs; ``common`` v.
        per_deviation: one over the standard deviation of the drawn bin's normal law.
    """
    largest, reach = inverse.shape[0] - 1, windows.shape[1]
    for w in range(first, last):
        for x in range(counts[largest - masses[w]]):
            both = masses[w] + masses[x]
            place = offsets[w] + x
            between, between_low = _weight_across(windows[w], windows[x], across, powers)
            pull, pull_low = 0.0, 0.0
            for j in range(reach):
                for side in range(2):
                    count, kind = windows[x if side else w, j], sides[side, j]
                    if count > 0:
                        part, part_low = multiply(values[kind, 0], values[kind, 1], float(count), 0.0)
                        pull, pull_low = add_positive(pull, pull_low, part, part_low)
            for again in range(largest - both + 1):  # draws of the bin itself
                weight, weight_low = multiply(between, between_low, inverse[again, 0], inverse[again, 1])
                # again (again - 1) / 2 pairs of draws, and the drawn bin itself brings as many more as there are draws
                y = again * (again + 1) // 2
                weight, weight_low = multiply(weight, weight_low, powers[own, y, 0], powers[own, y, 1])
                for j in range(reach):
                    for side in range(2):
                        y, kind = (again + 1) * windows[x if side else w, j], sides[side, j]
                        if y > 0:
                            weight, weight_low = multiply(weight, weight_low, powers[kind, y, 0], powers[kind, y, 1])
                part, part_low = multiply(values[own, 0], values[own, 1], again + 1.0, 0.0)
                raised, raised_low = add_positive(pull, pull_low, part, part_low)
                for n in range(both, largest - again + 1):
                    term, term_low = table[place, n, 0], table[place, n, 1]
                    if term == 0.0:
                        continue
                    term, term_low = multiply(term, term_low, weight, weight_low)
                    k = n + again
                    part, part_low = multiply(common[0], common[1], k + 1.0, 0.0)
                    mean, mean_low = add(raised, raised_low, -part, -part_low)
                    mean, mean_low = multiply(mean, mean_low, per_deviation[0], per_deviation[1])
                    g = np.rint(PLACES * mean)
                    rest, rest_low = add(mean, mean_low, -g / PLACES, 0.0)
                    row = sums[int(g) - lowest, k]
                    for power in range(TERMS):
                        row[power, 0], row[power, 1] = add(row[power, 0], row[power, 1], term, term_low)
                        term, term_low = multiply(term, term_low, rest, rest_low)


@njit(cache=True)
def _tails(place: float, edges: Array, per_deviation: Array, coefficients: Array, signs: Array) -> None:
    """Expansions of ``Pr(|N(0, 1)| on the far side of each edge)`` and on which side of the mean the edge is."""
    for e in range(edges.size):
        z, z_low = multiply(edges[e], 0.0, per_deviation[0], per_deviation[1])
        z, z_low = add(z, z_low, -place, 0.0)
        signs[e] = 1.0 if z >= 0.0 else -1.0
        coefficients[e] = 0.0
        if abs(z) <= FARTHEST:
            tail_coefficients(signs[e] * z, signs[e] * z_low, coefficients[e])


@njit(cache=True)
def _expanded(row: Array, coefficients: Array, sign: float) -> tuple[float, float]:
    """The sum of weights times tails: the edge's distance falls (sign 1) or grows (-1) with the mean."""
    value, low = 0.0, 0.0
    if coefficients[0, 0] > 0.0:
        turn = 1.0
        for n in range(TERMS):
            term, term_low = multiply(row[n, 0], row[n, 1], turn * coefficients[n, 0], turn * coefficients[n, 1])
            value, low = add(value, low, term, term_low)
            turn *= -sign
    return value, low


@njit(cache=True, nogil=True)
def add_cells(
    moments: Array, sizes: Array, sums: Array, lowest: int, first: int, last: int, edges: Array, per_deviation: Array
) -> None:
    """Add what the places first..last-1 of ``sums`` give to the moments of all cells.

    Args:
        moments: shape (edges + 1, largest + 1, 2), by cell and order; the cells end at the edges.
        sizes: shape (edges + 1, largest + 1): the same with the sizes of the terms of every probability.
        sums, lowest: :func:`collect`.
        edges: increasing.
    """
    cells, largest = edges.size + 1, sums.shape[1] - 1
    coefficients, signs = np.zeros((cells - 1, TERMS, 2)), np.empty(cells - 1)
    for g in range(first, last):
        if not sums[g, :, 0, 0].any():
            continue
        _tails((g + lowest) / PLACES, edges, per_deviation, coefficients, signs)
        for k in range(largest + 1):
            row = sums[g, k]
            whole, whole_low = row[0, 0], row[0, 1]
            if whole == 0.0:
                continue
            left, left_low, left_tail, left_sign = 0.0, 0.0, 0.0, -1.0
            for c in range(cells):
                right, right_low, right_tail, right_sign = 0.0, 0.0, 0.0, 1.0
                if c < cells - 1:
                    right_tail, right_sign = coefficients[c, 0, 0], signs[c]
                    right, right_low = _expanded(row, coefficients[c], right_sign)
                size = left_tail + right_tail
                if left_sign > 0.0:
                    value, low = add(left, left_low, -right, -right_low)
                elif right_sign < 0.0:
                    value, low = add(right, right_low, -left, -left_low)
                else:
                    value, low = add(whole, whole_low, -left, -left_low)
                    value, low = add(value, low, -right, -right_low)
                    size += 1.0
                sizes[c, k] += whole * (size + LEFT_OUT)
                if value > whole * LEAST_CHANCE:
                    total, total_low = add_positive(moments[c, k, 0], moments[c, k, 1], value, low)
                    moments[c, k, 0], moments[c, k, 1] = total, total_low
                left, left_low, left_tail, left_sign = right, right_low, right_tail, right_sign
