"""Numba kernels for columns of any overlap: bounds on the ratio of one output, for any automaton of participations.

``columns[u, d]`` is what a participation at opportunity u adds to row ``u + d``, in units of sigma; the last row of
``columns`` stands for all opportunities from its own on, and what is beyond the last row of outputs is cut off.
``couplings[u, e]`` is ``<c_u, c_(u+e)>``, and ``kept`` is ``exp(-couplings)``: what a participation leaves of later
weights. All of them are at least 0. ``odds`` are ``exp(z)``, the weights of single participations.

Proof: docs/theory/monte-carlo/many-bands.md.
"""

from typing import NamedTuple

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.draws import draw_number
from hockeystick.monte_carlo.far.visits import kind_of
from hockeystick.pairs.visits import Edges

LARGEST_PRODUCT = 1e200


class Overlaps(NamedTuple):
    """The columns, their inner products, and ``exp(-couplings)``, what a participation leaves of later weights."""

    columns: Array
    couplings: Array
    kept: Array


@kernel(inline="always")
def weigh(chances: Array, ratio: float, square: float) -> tuple[float, float]:
    """The sum of ``chances[j] ratio^j exp(-j (j - 1) square / 2)``, and the mean of j with these weights."""
    gained = chances[1] * ratio
    both = chances[0] + gained
    if chances.size > 2:
        weight, again = ratio, ratio
        for number in range(2, chances.size):
            again *= np.exp(-square)
            weight *= again
            both += chances[number] * weight
            gained += number * chances[number] * weight
    return both, gained / both


@kernel
def add_column(columns: Array, u: int, times: float, y: Array) -> None:
    """Add a multiple of the column of opportunity u, the last one of ``columns`` where there is no other."""
    row, begin = np.uint64(min(u, columns.shape[0] - 1)), np.uint64(u)
    # Unsigned places cannot be negative: numba then asks nothing of them, and takes vector instructions.
    for v in range(begin, np.uint64(min(u + columns.shape[1], y.size))):
        y[v] += times * columns[row, v - begin]


@kernel
def filtered(rng: np.random.Generator, columns: Array, rates: Array, drawn: bool, y: Array) -> float:
    """``log F`` of outputs y, where F is the density, relative to Q, of rows drawn one after the other.

    Given the rows before it, a row is normal around the sum of the columns so far, each times the mean number of its
    participations as its own row tells it, with its own column added as often as a draw from ``rates`` says. With
    ``drawn`` the rows are drawn, else they are given.
    """
    means = np.zeros(y.size)
    total = 0.0
    for t in range(y.size):
        mean, own = means[t], columns[min(t, columns.shape[0] - 1), 0]
        if drawn:
            y[t] = mean + draw_number(rng, rates) * own + rng.standard_normal()
        both, number = weigh(rates, np.exp(own * (y[t] - 0.5 * (mean + (mean + own)))), own * own)
        total += mean * (y[t] - 0.5 * mean) + np.log(both)
        add_column(columns, t, number, means)
    return total


@kernel
def exponents(columns: Array, couplings: Array, y: Array, out: Array) -> None:
    """``z_u = <c_u, y> - |c_u|^2 / 2``, shape (opportunities,)."""
    if columns.shape[0] == 1:  # the same sums in an order that vector instructions take
        out[:] = 0.0
        width = min(columns.shape[1], y.size)
        for d in range(0, width - 3, 4):
            _add_four(columns[0, d : d + 4], y[d:], out)
        for d in range(width - width % 4, width):
            _add_some(columns[0, d : d + 1], y[d:], 0, out)
        for u in range(out.size):
            out[u] -= 0.5 * couplings[u, 0]
        return
    for u in range(out.size):
        total = 0.0
        for d in range(min(columns.shape[1], y.size - u)):
            total += columns[u, d] * y[u + d]
        out[u] = total - 0.5 * couplings[u, 0]


@kernel(inline="always")
def _add_four(column: Array, y: Array, out: Array) -> None:
    """Add four rows of a column to its products: sums stay in registers that long."""
    c0, c1, c2, c3 = column[0], column[1], column[2], column[3]
    inside = max(y.size - 3, 0)
    for u in range(inside):
        total = out[u] + c0 * y[u]
        total += c1 * y[u + 1]
        total += c2 * y[u + 2]
        out[u] = total + c3 * y[u + 3]
    _add_some(column, y, inside, out)


@kernel
def _add_some(column: Array, y: Array, begin: int, out: Array) -> None:
    """Add rows of a column to its products, from ``begin`` on, as far as there are outputs."""
    for d in range(column.size):
        for u in range(begin, y.size - d):
            out[u] += column[d] * y[u + d]


@kernel
def weight_of(single: float, again: float, number: int) -> float:
    """``single^number again^(number (number - 1) / 2)``: of so many participations at one opportunity."""
    weight = 1.0
    for _ in range(number):
        weight *= single
        single *= again
    return weight


@kernel(inline="always")
def products(odds: Array, kept: Array, edges: Edges, block: int, table: Array, units: Array) -> float:
    """``log X'_A``, and in ``table[u, k]`` what it is from the node u on, with k participations left in u's block.

    Opportunities ``block m, ..., block m + block - 1`` are block m, and in each of them there are at most
    ``table.shape[1] - 1`` participations. Entries of block m are relative to what the first opportunity after it is
    worth.

    Args:
        table: shape (opportunities, limit + 1); overwritten where there are nodes.
        units: shape (blocks, 3); overwritten. The logarithm of the unit of each block's entries, and what those of the
            next block, and 1, are worth in it.
    """
    chance, where, first, numbers, jumps, stride, start = edges
    size, most, m = table.shape[0], table.shape[1] - 1, units.shape[0] - 1
    ends, begins = size, m * block
    units[m] = 0.0, 1.0, 1.0
    for u in range((size - 1) // stride * stride, -1, -stride):
        if u < begins:
            units[m - 1, 0] = units[m, 0] + np.log(table[begins, most])
            m, ends, begins = m - 1, begins, begins - block
            units[m, 1], units[m, 2] = 1.0 / table[ends, most], np.exp(-units[m, 0])
        for k in range(most + 1):
            table[u, k] = 0.0
        for kind in range(numbers.size):
            number, following, weight = numbers[kind], u + jumps[kind], 0.0
            if number == 0:
                weight = chance[first[kind]]
            else:
                for e in range(first[kind], first[kind + 1]):
                    at = u + where[e]
                    weight += chance[e] * (odds[at] if number == 1 else weight_of(odds[at], kept[at, 0], number))
            if following < ends:
                for k in range(number, most + 1):
                    table[u, k] += weight * table[following, k - number]
            else:
                weight *= _later(following, ends, m, block, table, units)
                for k in range(number, most + 1):
                    table[u, k] += weight
    total = 0.0
    for u in range(start.size):
        total += start[u] * _worth(u, block, table, units)
    return float(np.log(total) + units[0, 0])


@kernel
def _later(u: int, ends: int, m: int, block: int, table: Array, units: Array) -> float:
    """What the node u, after block m, is worth in the unit of block m; it goes up to ``ends``."""
    if u == ends and u < table.shape[0]:
        return 1.0
    if u >= table.shape[0]:
        return float(units[m, 2])
    if u < ends + block:
        return float(table[u, -1] * units[m, 1])
    return float(table[u, -1] * np.exp(units[u // block, 0] - units[m, 0]))


@kernel
def _worth(u: int, block: int, table: Array, units: Array) -> float:
    """What the node u is worth in the unit of the first block."""
    if u >= table.shape[0]:
        return float(units[0, 2])
    return float(table[u, -1] * np.exp(units[u // block, 0] - units[0, 0]))


@kernel(inline="always")
def log_history(
    rng: np.random.Generator,
    kept: Array,
    edges: Edges,
    block: int,
    tables: tuple[Array, Array],
    left: Array,
    terms: Array,
) -> float:
    """The logarithm of a number between 0 and 1 whose mean is ``X_A / X'_A``: one history is drawn.

    Args:
        tables: table and units of :func:`products`.
        left: at first ``odds``, then what participations leave of them; overwritten.
        terms: of the edges of a node; overwritten.
    """
    (chance, where, first, numbers, jumps, _, start), (table, units) = edges, tables
    size, most, last = table.shape[0], table.shape[1] - 1, terms.size - 1
    u, total, product = _drawn_start(rng, start, block, table, units), 0.0, 1.0
    m, free = u // block, most
    ends = min((m + 1) * block, size)
    while u < size:
        if u >= ends:
            m, free = u // block, most
            ends = min((m + 1) * block, size)
        both = 0.0
        for kind in range(numbers.size):
            number, following, later = numbers[kind], u + jumps[kind], 0.0
            if number <= free:
                if following < ends:
                    later = table[following, free - number]
                else:
                    later = _later(following, ends, m, block, table, units)
            if number == 0:
                terms[first[kind]] = chance[first[kind]] * later
                both += terms[first[kind]]
                continue
            for e in range(first[kind], first[kind + 1]):
                at = u + where[e]
                weight = left[at] if number == 1 else weight_of(left[at], kept[at, 0], number)
                terms[e] = chance[e] * weight * later
                both += terms[e]
        product *= both / table[u, free]
        if product < 1.0 / LARGEST_PRODUCT:
            total += np.log(product)
            product = 1.0
        rest, e = rng.random() * both, last
        while e > 0:
            rest -= terms[e]
            if rest < 0.0:
                break
            e -= 1
        kind = kind_of(first, e)
        at, following = u + where[e], u + jumps[kind]
        for _ in range(numbers[kind]):
            _take_off(left, kept, at, following, min(at + kept.shape[1], size))
        free -= numbers[kind]
        u = following
    return float(total + np.log(product))


@kernel(inline="always")
def _take_off(left: Array, kept: Array, at: int, begin: int, end: int) -> None:
    """What a participation leaves of the weights from ``begin`` up to ``end``."""
    for v in range(np.uint64(begin), np.uint64(max(begin, end))):
        left[v] *= kept[at, v - np.uint64(at)]


@kernel(inline="always")
def _drawn_start(rng: np.random.Generator, start: Array, block: int, table: Array, units: Array) -> int:
    """The first node, as X'_A weighs them."""
    if start.size == 1:
        return 0
    total = 0.0
    for u in range(start.size):
        total += start[u] * _worth(u, block, table, units)
    rest, u = rng.random() * total, 0
    while u < start.size - 1:
        rest -= start[u] * _worth(u, block, table, units)
        if rest < 0.0:
            break
        u += 1
    return u


@kernel
def log_mean_field(z: Array, couplings: Array, kept: Array, edges: Edges, fields: Array) -> float:
    """At most log X: histories that meet at a node are given the mean of their fields.

    What earlier participations take off exponents is a field, and the ratio is convex in it: wherever histories meet,
    or an edge is drawn, its mean given the past may take its place. O(opportunities w) for each way to jump.

    Args:
        fields: shape (nodes that the longest jump passes, opportunities); overwritten.
    """
    chance, where, first, numbers, jumps, stride, start = edges
    (size, window), slots, kinds = couplings.shape, fields.shape[0], numbers.size
    masses, terms, hops = np.zeros(slots), np.empty(chance.size), jumps // stride
    log_scale, done, slot = 0.0, 0.0, -1
    fields[:] = 0.0
    for u in range(0, size, stride):
        slot = slot + 1 if slot + 1 < slots else 0
        reach = min(size, u + stride - 1 + window)
        if u < start.size:
            begun = start[u] * np.exp(-log_scale)
            masses[slot] += begun
            if masses[slot] > 0.0:
                _average(fields, slot, slot, 1.0 - begun / masses[slot], 0.0, u, reach)
        mass, top, taken, gained, begin, at, single = masses[slot], 0.0, 0.0, 0.0, 0, -1, 1.0
        masses[slot] = 0.0
        for kind in range(kinds if mass > 0.0 else 0):
            number, following = numbers[kind], u + jumps[kind]
            if number == 0:
                terms[first[kind]] = 0.0
                taken += chance[first[kind]]
            else:
                for e in range(first[kind], first[kind + 1]):
                    if u + where[e] != at:
                        at = u + where[e]
                        single = np.exp(z[at] - fields[slot, at])
                    weight = chance[e] * (single if number == 1 else weight_of(single, kept[at, 0], number))
                    terms[e] = number * weight
                    gained += terms[e]
                    taken += weight
            if kind + 1 < kinds and u + jumps[kind + 1] == following:  # edges that end together
                continue
            met = slot + hops[kind]
            met = met if met < slots else met - slots
            both = (masses[met] if following < size else 0.0) + mass * taken
            if following >= size:
                done += both
            elif both > 0.0:  # else too small, and left out
                share = mass * taken / both if met != slot else 1.0
                if met != slot:
                    _average(fields, met, slot, 1.0 - share, share, following, reach)
                masses[met], top = both, max(top, both)
                if stride == 1 and gained > 0.0:
                    _add(fields, met, couplings, u, following, reach, share * (gained / taken))
                elif gained > 0.0:
                    for e in range(begin, first[kind + 1]):
                        at = u + where[e]
                        _add(fields, met, couplings, at, following, min(at + window, size), share * (terms[e] / taken))
            taken, gained, begin, at = 0.0, 0.0, first[kind + 1], -1
        if top > LARGEST_PRODUCT or 0.0 < top < 1.0 / LARGEST_PRODUCT:
            largest = masses.max()
            if not largest < np.inf:  # or not a number
                return float(np.nan)
            log_scale += np.log(largest)
            masses /= largest
            done /= largest
    for u in range(size, start.size):
        done += start[u] * np.exp(-log_scale)
    return float(np.log(done) + log_scale)


@kernel
def _average(fields: Array, row: int, other: int, own: float, share: float, begin: int, end: int) -> None:
    """``fields[row] = own fields[row] + share fields[other]`` from ``begin`` up to ``end``."""
    for v in range(np.uint64(begin), np.uint64(max(begin, end))):
        fields[row, v] = own * fields[row, v] + share * fields[other, v]


@kernel
def _add(fields: Array, row: int, couplings: Array, at: int, begin: int, end: int, times: float) -> None:
    """Add so much of the couplings of a participation to a field, from ``begin`` up to ``end``."""
    for v in range(np.uint64(begin), np.uint64(max(begin, end))):
        fields[row, v] += times * couplings[at, v - np.uint64(at)]
