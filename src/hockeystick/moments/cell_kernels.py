"""Kernels of :mod:`.cells`: weights of draws on a ring around each bin, and normal probabilities of cells.

Numbers are pairs (:mod:`.double_double`). An entry of the Gram matrix is known by its *kind*, the place of its value in
a list: ``kinds[i, d]`` is that of ``S_(i,i+d)``, shape (bins, reach + 1). A *window* holds the counts
``(c_1, ..., c_reach)`` of the bins next to a bin on one side, the nearest first.

All terms of all sums of weights are positive. Proofs: ``docs/theory/moment-majorants/cells.md``.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.laws.law import Array
from hockeystick.moments.double_double import Pairs, add, add_positive, multiply, shift
from hockeystick.moments.normal_tail import FARTHEST, LEAST_CHANCE, LEFT_OUT, PLACES, TERMS, in_range, tail_coefficients

Counts = NDArray[np.int64]


class Windows(NamedTuple):
    """All windows of at most ``largest`` draws, sorted by mass.

    Two windows w and x beside a bin with at most ``largest`` draws together have the place ``offsets[w] + x``.

    Attributes:
        draws: c_1, ..., c_reach, shape (windows, reach).
        masses, offsets: shape (windows,); a mass is ``c_1 + ... + c_reach``.
        counts: how many windows have a mass of at most 0..largest.
        following: shape (windows, largest + 1): the window after r draws of the next bin.
    """

    draws: Counts
    masses: Counts
    offsets: Counts
    counts: Counts
    following: Counts


class Reach(NamedTuple):
    """Windows of the old and of the new states, besides which none is looked at, and the least and most draws."""

    places: Counts
    reached: Counts
    least: int
    most: int


class Patterns(NamedTuple):
    """:func:`step_weights` of several patterns, and for each bin that after those before it and before those after it.

    Attributes:
        weights: shape (patterns, windows, largest + 1).
        onward, back: shape (bins,).
    """

    weights: Pairs
    onward: Counts
    back: Counts


class Drawn(NamedTuple):
    """The drawn bin.

    Attributes:
        own, sides, across: kinds of the bin itself, of its pairs with the bins before and after (shape (2, reach)),
            and of the pairs of those, shape (reach, reach).
        values: S of each kind; ``common`` v.
        per_deviation: one over the standard deviation of its normal law.
    """

    own: int
    sides: Counts
    across: Counts
    values: Pairs
    common: complex
    per_deviation: complex


class Factors(NamedTuple):
    """``powers[kind, x]`` is ``e^(S x)``, and ``inverse[n]`` is ``1 / n!``, n = 0..largest."""

    powers: Pairs
    inverse: Pairs


@kernel
def step_weights(pattern: Counts, windows: Windows, factors: Factors) -> Pairs:
    """The weight of r draws of the bin that follows a window, shape (windows, largest + 1).

    Args:
        pattern: kinds of the bin itself and of its pairs with the bins of the window, nearest first.
    """
    powers, inverse, draws, masses = factors.powers, factors.inverse, windows.draws, windows.masses
    largest = inverse.size - 1
    result = np.zeros((masses.size, largest + 1), dtype=np.complex128)
    for w in range(masses.size):
        for r in range(largest - masses[w] + 1):
            value = inverse[r]
            if r > 0:
                value = multiply(value, powers[pattern[0], r * (r - 1) // 2])
                for j in range(draws.shape[1]):
                    if draws[w, j] > 0:
                        value = multiply(value, powers[pattern[j + 1], r * draws[w, j]])
            result[w, r] = value
    return result


@kernel(inline="always")
def _weight_within(start: Counts, kinds: Counts, factors: Factors) -> complex:
    """The weight of the counts of the bins 0..reach-1 among themselves; ``start`` is their window from bin reach."""
    powers, inverse = factors.powers, factors.inverse
    value, reach = complex(1.0, 0.0), start.size
    for i in range(reach):
        r = start[reach - 1 - i]
        if r > 0:
            value = multiply(multiply(value, inverse[r]), powers[kinds[i, 0], r * (r - 1) // 2])
            for j in range(i + 1, reach):
                if start[reach - 1 - j] > 0:
                    value = multiply(value, powers[kinds[i, j - i], r * start[reach - 1 - j]])
    return value


@kernel(inline="always")
def _towards_start(start: Counts, j: int, room: int, kinds: Counts, powers: Pairs, ahead: Pairs) -> None:
    """Weight between r = 0..room draws of bin j and the bins 0..reach-1 across the seam, into ``ahead``."""
    reach, bins = start.size, kinds.shape[0]
    for r in range(room + 1):
        ahead[r] = 1.0
        for i in range(reach - (bins - j) + 1):
            x = r * start[reach - 1 - i]
            if x > 0:
                ahead[r] = multiply(ahead[r], powers[kinds[j, bins - j + i], x])


@kernel(inline="always")
def _reached(places: Counts, room: int, windows: Windows, reached: Counts, marks: Counts) -> int:
    """The windows that up to ``room`` draws of the next bin lead to, into ``reached``; how many. Marks are 0."""
    masses, following = windows.masses, windows.following
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


@kernel
def _advance(
    old: Pairs,
    new: Pairs,
    reach: Reach,
    windows: Windows,
    weights: Pairs,
    ahead: Pairs,
    near: bool,
) -> None:
    """One more bin of the chain: ``old`` and ``new`` have shape (windows, largest + 1), by window and draws."""
    places, reached, least, most = reach
    masses, following = windows.masses, windows.following
    for target in reached:
        new[target, : most + 1] = 0.0
    for w in places:
        for t in range(max(least, masses[w]), most + 1):
            value = old[w, t]
            if value.real == 0.0:
                continue
            for r in range(most - t + 1):
                term = multiply(value, weights[w, r])
                if near:
                    term = multiply(term, ahead[r])
                target = following[w, r]
                new[target, t + r] = add_positive(new[target, t + r], term)


@kernel(inline="always")
def _join(table: Pairs, before: Pairs, after: Pairs, places: Counts, least: int, windows: Windows) -> None:
    """Add to ``table[., n]`` all pairs of a state before a bin, with a window in ``places``, and one after it."""
    masses, counts, offsets = windows.masses, windows.counts, windows.offsets
    largest = table.shape[1] - 1
    for w in places:
        for t in range(max(least, masses[w]), largest + 1):
            value = before[w, t]
            if value.real == 0.0:
                continue
            for x in range(counts[largest - t]):
                row = table[offsets[w] + x]
                for r in range(masses[x], largest - t + 1):
                    row[t + r] = add_positive(row[t + r], multiply(value, after[x, r]))


@kernel
def add_ring(
    tables: Pairs,
    groups: Counts,
    first: int,
    last: int,
    kinds: Counts,
    windows: Windows,
    patterns: Patterns,
    factors: Factors,
) -> None:
    """For each wanted bin, add the weights of all draws of the others where the first bins hold one of some windows.

    Weights between the bins on both sides of the wanted one are left out, and so is what involves it itself.

    Args:
        tables: shape (groups, places of windows, largest + 1), by the windows before and after the wanted bin and
            the number of draws.
        groups: shape (bins,), for each bin the table that it adds to, or -1. Only bins from reach to bins - reach - 1.
        first, last: the windows of the bins 0..reach-1, seen from bin reach.
    """
    weights, onward, back = patterns
    masses, powers = windows.masses, factors.powers
    bins, reach, largest = kinds.shape[0], windows.draws.shape[1], factors.inverse.size - 1
    wanted = np.flatnonzero(groups >= 0)
    states = np.zeros((2, masses.size, largest + 1), dtype=np.complex128)
    old, new = states[0], states[1]
    after = np.zeros((bins + 1, masses.size, largest + 1), dtype=np.complex128)
    ahead = np.zeros(largest + 1, dtype=np.complex128)
    every = np.arange(masses.size)
    places, reached, marks = np.zeros_like(every), np.zeros_like(every), np.zeros_like(every)
    for s in range(first, last):
        start, mass = windows.draws[s], masses[s]
        room = largest - mass
        free = every[: windows.counts[room]]
        # From the seam backwards: the states of the bins from j on, given what the first bins hold.
        after[bins, : free.size, : room + 1] = 0.0
        after[bins, 0, 0] = 1.0
        for j in range(bins - 1, wanted[0], -1):
            near = j >= bins - reach and mass > 0
            if near:
                _towards_start(start, j, room, kinds, powers, ahead)
            _advance(after[j + 1], after[j], Reach(free, free, 0, room), windows, weights[back[j]], ahead, near)
        # From the first bins onwards: the states before each bin, joined at a wanted one with those after it.
        places[0], size = s, 1
        old[s] = 0.0
        old[s, mass] = _weight_within(start, kinds, factors)
        for i in range(reach, wanted[-1] + 1):
            here = places[:size] if i < 2 * reach else free  # while the window still holds some of the first bins
            if groups[i] >= 0:
                _join(tables[groups[i]], old, after[i + 1], here, mass, windows)
            if i + 1 < 2 * reach:
                size = _reached(here, room, windows, reached, marks)
                there = reached[:size]
            else:
                there = free
            _advance(old, new, Reach(here, there, mass, largest), windows, weights[onward[i]], ahead, False)
            old, new = new, old
            places, reached = reached, places


@kernel(inline="always")
def _weight_across(before: Counts, after: Counts, kinds: Counts, powers: Pairs) -> complex:
    """The weight across a bin; ``kinds[x, y]`` is that of the bins x + 1 before it and y + 1 after it."""
    value, reach = complex(1.0, 0.0), before.size
    for i in range(reach - 1):
        for j in range(reach - i - 1):
            x = before[i] * after[j]
            if x > 0:
                value = multiply(value, powers[kinds[i, j], x])
    return value


@kernel
def collect(
    sums: Pairs,
    lowest: int,
    first: int,
    last: int,
    table: Pairs,
    drawn: Drawn,
    windows: Windows,
    factors: Factors,
) -> None:
    """Add the draws of one table, where the windows first..last-1 are before the drawn bin, by its normal law's mean.

    Args:
        sums: shape (places, largest + 1, TERMS): by the place g nearest to the mean in standard deviations, less
            ``lowest``, by the order, and weighted with the powers of ``mean - g / PLACES``.
        table: what :func:`add_ring` has summed for the bin.
    """
    own, sides, across, values, common, per_deviation = drawn
    powers, inverse, draws, masses = factors.powers, factors.inverse, windows.draws, windows.masses
    largest, reach = inverse.size - 1, draws.shape[1]
    for w in range(first, last):
        for x in range(windows.counts[largest - masses[w]]):
            both, row = masses[w] + masses[x], table[windows.offsets[w] + x]
            between = _weight_across(draws[w], draws[x], across, powers)
            pull = complex(0.0, 0.0)
            for j in range(reach):
                for side in range(2):
                    count = draws[x if side else w, j]
                    if count > 0:
                        pull = add_positive(pull, multiply(values[sides[side, j]], complex(float(count), 0.0)))
            for again in range(largest - both + 1):  # draws of the bin itself
                # again (again - 1) / 2 pairs of draws, and the drawn bin itself brings as many more as there are draws
                weight = multiply(multiply(between, inverse[again]), powers[own, again * (again + 1) // 2])
                for j in range(reach):
                    for side in range(2):
                        y = (again + 1) * draws[x if side else w, j]
                        if y > 0:
                            weight = multiply(weight, powers[sides[side, j], y])
                raised = add_positive(pull, multiply(values[own], complex(again + 1.0, 0.0)))
                for n in range(both, largest - again + 1):
                    if row[n].real == 0.0:
                        continue
                    k, term = n + again, multiply(row[n], weight)
                    mean = multiply(add(raised, -multiply(common, complex(k + 1.0, 0.0))), per_deviation)
                    g = np.rint(PLACES * mean.real)
                    rest = add(mean, complex(-g / PLACES, 0.0))
                    target = sums[int(g) - lowest, k]
                    for power in range(TERMS):
                        target[power] = add(target[power], term)
                        term = multiply(term, rest)


@kernel(inline="always")
def _tails(place: float, edges: Array, per_deviation: complex, coefficients: Pairs, above: NDArray[np.bool_]) -> None:
    """Expansions of ``Pr(|N(0, 1)| on the far side of each edge)``, and whether the edge is at or above the mean."""
    for e in range(edges.size):
        z = add(multiply(complex(edges[e], 0.0), per_deviation), complex(-place, 0.0))
        above[e] = z.real >= 0.0
        coefficients[e] = 0.0
        if abs(z.real) <= FARTHEST:
            tail_coefficients(z if above[e] else -z, coefficients[e])


@kernel(inline="always")
def _expanded(row: Pairs, coefficients: Pairs, above: bool) -> complex:
    """The sum of weights times tails: the distance of an edge falls with the mean if it is above it, else grows."""
    value = complex(0.0, 0.0)
    if coefficients[0].real > 0.0:
        sign = 1.0
        for n in range(TERMS):
            value = add(value, multiply(row[n], shift(coefficients[n], sign)))
            if above:
                sign = -sign
    return value


@kernel
def add_cells(
    moments: Pairs, sizes: Array, sums: Pairs, lowest: int, first: int, last: int, edges: Array, per_deviation: complex
) -> None:
    """Add what the places first..last-1 of ``sums`` give to the moments of all cells.

    Args:
        moments: shape (edges + 1, largest + 1), by cell and order; the cells end at the edges.
        sizes: shape (edges + 1, largest + 1): the same with the sizes of the terms of every probability.
        sums, lowest: :func:`collect`.
        edges: increasing.
    """
    cells, largest = edges.size + 1, sums.shape[1] - 1
    coefficients = np.zeros((cells - 1, TERMS), dtype=np.complex128)
    above = np.ones(cells, dtype=np.bool_)  # the last one is infinity
    for g in range(first, last):
        if not sums[g, :, 0].real.any():
            continue
        _tails((g + lowest) / PLACES, edges, per_deviation, coefficients, above)
        for k in range(largest + 1):
            row = sums[g, k]
            whole = row[0]
            if whole.real == 0.0:
                continue
            left, left_tail, left_above = complex(0.0, 0.0), 0.0, False
            for c in range(cells):
                right, right_tail = complex(0.0, 0.0), 0.0
                if c < cells - 1:
                    right, right_tail = _expanded(row, coefficients[c], above[c]), coefficients[c, 0].real
                value = in_range(whole, left, left_above, right, above[c])
                size = left_tail + right_tail + (1.0 if above[c] and not left_above else 0.0)
                sizes[c, k] += whole.real * (size + LEFT_OUT)
                if value.real > whole.real * LEAST_CHANCE:
                    moments[c, k] = add_positive(moments[c, k], value)
                left, left_tail, left_above = right, right_tail, above[c]
