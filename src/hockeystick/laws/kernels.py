"""Hot loops of the law engine: the mass of every pair of nodes of two laws goes to a new grid.

Pairs have the ratio ``g_i h_j`` (``product``: composition) or ``g_i + h_j`` (the callers scale supports so that this is
a weighted average). Partners of one node whose Q-mass *and* P-mass sum to less than ``skip``, at either end, are not
visited: the spread returns at least their masses, the contraction leaves them out, which is its safe side. Nor are
pairs with products above ``limit``: the masses of all of them, which may not be a number as products of ratios, are
returned as products of P-masses. With ``square`` both laws are the same and half the pairs suffice.

Only non-negative terms are added, so rounding stays relative. A node gets at most one run of partners from each row:
its mass is a sum of at most ``len(h) + 2 len(g)`` terms in a chain, by which the callers bound the rounding.

Cost: O(len(g) * len(h)) time, O(len(grid)) memory. Loops stand in for numpy's functions where those would take most of
the time that the first answer on a machine takes: their error messages alone compile for seconds.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel

Array = NDArray[np.float64]


class Ends(NamedTuple):
    """Which pairs are not visited."""

    skip: float
    limit: float


class Partners(NamedTuple):
    """The nodes of the other law: ratios and Q-masses, shape (partners,), and what they have together.

    Masses of the first 0, 1, 2, ... partners are ``low``, those of the last are ``high``; shape (partners + 1,).
    """

    ratios: Array
    masses: Array
    low_q: Array
    low_p: Array
    high_q: Array
    high_p: Array


class Pairs(NamedTuple):
    """All pairs of a node of one law and a node of the other.

    Attributes:
        ratios, masses: of the nodes of the first law.
        others: the nodes of the second law.
        product: whether ratios are multiplied, or added.
        square: whether both laws are the same, so that half the pairs suffice.
        ends: which pairs are not visited.
    """

    ratios: Array
    masses: Array
    others: Partners
    product: bool
    square: bool
    ends: Ends


def _partners_of(h: Array, mass_h: Array) -> Partners:
    """These nodes with the sums of their masses, added one by one."""

    def sums(values: Array) -> Array:
        return np.concatenate([[0.0], np.cumsum(values)])

    moments = mass_h * h
    return Partners(h, mass_h, sums(mass_h), sums(moments), sums(mass_h[::-1]), sums(moments[::-1]))


def _open_above(grid: Array) -> Array:
    """The grid with infinity behind its last node."""
    return np.append(grid, np.inf)


@kernel(inline="always")
def _row_masses(mass: float, ratio: float, q: float, p_low: float, p_high: float, product: bool) -> tuple[float, float]:
    """Q- and P-mass of one node's pairs with partners that have ``q`` and ``p_low + p_high`` together."""
    if product:
        return mass * q, mass * ratio * (p_low + p_high)
    return mass * q, mass * ratio * q + mass * (p_low + p_high)  # ratio * q might overflow


@kernel
def _skippable(mass: float, ratio: float, q: Array, p: Array, product: bool, skip: float) -> int:
    """How many partners, of running sums ``q`` and ``p``, have pairs with both masses below ``skip``, by bisection."""
    few, many = 0, q.size - 1
    while few < many:
        middle = (few + many + 1) // 2
        of_q, of_p = _row_masses(mass, ratio, q[middle], p[middle], 0.0, product)
        if of_q < skip and of_p < skip:
            few = middle
        else:
            many = middle - 1
    return few


@kernel(inline="always")
def _visited(mass: float, ratio: float, others: Partners, product: bool, skip: float) -> tuple[int, int, float, float]:
    """The range of partners that are visited for one node, and the masses of the pairs with the others."""
    size = others.low_q.size - 1
    low, high = _skippable(mass, ratio, others.low_q, others.low_p, product, skip), 0
    if low < size:
        high = _skippable(mass, ratio, others.high_q, others.high_p, product, skip)
    if low + high >= size:
        low, high = size, 0
    q, p_low, p_high = others.low_q[low] + others.high_q[high], others.low_p[low], others.high_p[high]
    of_q, of_p = _row_masses(mass, ratio, q, p_low, p_high, product)
    return low, size - high, of_q, of_p


@kernel
def _up_to(limit: float, factor: float, values: Array) -> int:
    """How many of these increasing values, from the first one on, have ``factor * value <= limit``."""
    below, above = 0, values.size  # np.searchsorted would take half a second to compile
    while below < above:
        middle = (below + above) // 2
        if factor * values[middle] <= limit:
            below = middle + 1
        else:
            above = middle
    return below


def spread_pairs(
    g: Array, mass_g: Array, h: Array, mass_h: Array, grid: Array, product: bool, square: bool, ends: Ends
) -> tuple[Array, float, float, float]:
    """Drop all pairs on ``grid``, each split linearly between the two nodes around it (a mean-preserving spread).

    Returns (masses, p_inf, skipped_q, skipped_p). Above the last node the Q-mass stays there, and p_inf is the excess
    P-mass. With ``square`` the skipped masses are counted at both ends of a pair: never understated.
    """
    pairs = Pairs(g, mass_g, _partners_of(h, mass_h), product, square, ends)
    masses, excess = np.zeros(grid.size), np.zeros(grid.size)
    skipped_q, skipped_p, _ = _add_pairs(pairs, _open_above(grid), True, masses, excess)
    return masses, float(excess[-1]), skipped_q, skipped_p


def contract_pairs(
    g: Array, mass_g: Array, h: Array, mass_h: Array, grid: Array, product: bool, square: bool, ends: Ends
) -> tuple[Array, Array, float]:
    """Q- and P-mass of all pairs in each cell [grid[k], grid[k+1]) (the last is open above), P-mass beyond the limit.

    With each cell's mass at its barycentre P/Q it is a mean-preserving contraction.
    """
    pairs = Pairs(g, mass_g, _partners_of(h, mass_h), product, square, ends)
    masses, moments = np.zeros(grid.size), np.zeros(grid.size)
    _, _, beyond = _add_pairs(pairs, _open_above(grid), False, masses, moments)
    return masses, moments, beyond


@kernel
def _add_pairs(pairs: Pairs, edge: Array, spread: bool, masses: Array, moments: Array) -> tuple[float, float, float]:
    """:func:`spread_pairs` or :func:`contract_pairs`, given the edges of cells: one kernel is compiled, and not two.

    Adds to ``masses`` and ``moments``, shape (cells,); of a spread the last moment is the excess, and others are zero.
    Returns the masses of the pairs that are not visited, and the P-mass of those of them beyond the limit.
    """
    others, ends, product = pairs.others, pairs.ends, pairs.product
    h, mass_h = others.ratios, others.masses
    last = masses.size - 1
    skipped_q, skipped_p, beyond = 0.0, 0.0, 0.0
    both = 2.0 if pairs.square else 1.0
    for i in range(pairs.ratios.size):
        mi, gi = pairs.masses[i], pairs.ratios[i]
        if mi == 0.0:
            continue
        lo, hi, q, p = _visited(mi, gi, others, product, ends.skip)
        skipped_q += both * q
        skipped_p += both * p
        within = _up_to(ends.limit, gi, h) if product else h.size
        if within < h.size:  # each row counts its own ones, so both orders of a pair are counted
            hi = min(hi, within)
            p = mi * gi * others.high_p[h.size - within]
            skipped_q += mi * others.high_q[h.size - within]
            skipped_p += p
            beyond += p
        j = max(lo, i) if pairs.square else lo
        if j >= hi:
            continue
        ratio = gi * h[j] if product else gi + h[j]
        k = max(_up_to(ratio, 1.0, edge) - 1, 0)  # below the first edge too
        while j < hi:  # a run of partners in one cell
            while ratio >= edge[k + 1]:
                k += 1
            base, top = edge[k] if spread else 0.0, edge[k + 1]
            in_cell, above_base = 0.0, 0.0
            while ratio < top:
                m = (mi if j == i else both * mi) * mass_h[j]
                in_cell += m
                above_base += m * max(ratio - base, 0.0)
                j += 1
                if j == hi:
                    break
                ratio = gi * h[j] if product else gi + h[j]
            if spread and k < last:
                upper = min(above_base / (top - base), in_cell)
                masses[k + 1] += upper
                masses[k] += in_cell - upper
            else:
                masses[k] += in_cell
                moments[k] += above_base
    return skipped_q, skipped_p, beyond
