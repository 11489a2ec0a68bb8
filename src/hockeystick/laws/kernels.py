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


@kernel
def _running_sums(values: Array) -> Array:
    """The sums of the first 0, 1, 2, ... values."""
    sums = np.zeros(values.size + 1)
    for i in range(values.size):
        sums[i + 1] = sums[i] + values[i]
    return sums


@kernel
def _running_sums_back(values: Array) -> Array:
    """The sums of the last 0, 1, 2, ... values."""
    sums = np.zeros(values.size + 1)
    for i in range(values.size):
        sums[i + 1] = sums[i] + values[values.size - 1 - i]
    return sums


@kernel
def _open_above(grid: Array) -> Array:
    """The grid with infinity behind its last node."""
    edge = np.empty(grid.size + 1)
    for i in range(grid.size):
        edge[i] = grid[i]
    edge[grid.size] = np.inf
    return edge


@kernel
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


@kernel
def _partners(
    mass: float, ratio: float, low_q: Array, low_p: Array, high_q: Array, high_p: Array, product: bool, skip: float
) -> tuple[int, int, float, float]:
    """The range of partners that are visited for one node, and the masses of the pairs with the others.

    ``low_*`` are running sums of the partners' masses from the first one on, ``high_*`` from the last one back.
    """
    size = low_q.size - 1
    low, high = _skippable(mass, ratio, low_q, low_p, product, skip), 0
    if low < size:
        high = _skippable(mass, ratio, high_q, high_p, product, skip)
    if low + high >= size:
        q, p = _row_masses(mass, ratio, low_q[size], low_p[size], 0.0, product)
        return 0, 0, q, p
    q, p = _row_masses(mass, ratio, low_q[low] + high_q[high], low_p[low], high_p[high], product)
    return low, size - high, q, p


@kernel
def _within(ratio: float, h: Array, product: bool, limit: float) -> int:
    """How many partners, from the first one on, have pairs with a product of at most ``limit``."""
    if not product or ratio * h[-1] <= limit:
        return h.size
    below, above = 0, h.size
    while below < above:
        middle = (below + above) // 2
        if ratio * h[middle] <= limit:
            below = middle + 1
        else:
            above = middle
    return below


@kernel
def _cell(grid: Array, ratio: float) -> int:
    """Index k of the cell with grid[k] <= ratio < grid[k+1]; 0 below the grid, the last node above it."""
    below, above = 0, grid.size  # np.searchsorted would take half a second to compile
    while below < above:
        middle = (below + above) // 2
        if grid[middle] <= ratio:
            below = middle + 1
        else:
            above = middle
    return max(below - 1, 0)


@kernel
def spread_pairs(
    g: Array, mass_g: Array, h: Array, mass_h: Array, grid: Array, product: bool, square: bool, ends: Ends
) -> tuple[Array, float, float, float]:
    """Drop all pairs on ``grid``, each split linearly between the two nodes around it (a mean-preserving spread).

    Returns (masses, p_inf, skipped_q, skipped_p). Above the last node the Q-mass stays there, and p_inf is the excess
    P-mass. With ``square`` the skipped masses are counted at both ends of a pair: never understated.
    """
    n = grid.size
    out = np.zeros(n)
    edge, moments = _open_above(grid), np.empty(h.size)
    for j in range(h.size):
        moments[j] = mass_h[j] * h[j]
    low_q, low_p = _running_sums(mass_h), _running_sums(moments)
    high_q, high_p = _running_sums_back(mass_h), _running_sums_back(moments)
    p_inf, skipped_q, skipped_p = 0.0, 0.0, 0.0
    both = 2.0 if square else 1.0
    for i in range(g.size):
        mi, gi = mass_g[i], g[i]
        if mi == 0.0:
            continue
        lo, hi, q, p = _partners(mi, gi, low_q, low_p, high_q, high_p, product, ends.skip)
        skipped_q += both * q
        skipped_p += both * p
        within = _within(gi, h, product, ends.limit)
        if within < h.size:  # each row counts its own ones, so both orders of a pair are counted
            hi = min(hi, within)
            skipped_q += mi * high_q[h.size - within]
            skipped_p += mi * gi * high_p[h.size - within]
        if square:
            lo = max(lo, i)
        if lo >= hi:
            continue
        k = _cell(grid, gi * h[lo] if product else gi + h[lo])
        base, top = edge[k], edge[k + 1]
        in_cell, above_base = 0.0, 0.0
        for j in range(lo, hi):
            ratio = gi * h[j] if product else gi + h[j]
            m = (mi if j == i else both * mi) * mass_h[j]
            if ratio >= top:
                upper = min(above_base / (top - base), in_cell)
                out[k + 1] += upper
                out[k] += in_cell - upper
                in_cell, above_base = 0.0, 0.0
                k += 1
                while ratio >= edge[k + 1]:
                    k += 1
                base, top = edge[k], edge[k + 1]
            in_cell += m
            above_base += m * max(ratio - base, 0.0)
        if k == n - 1:
            out[k] += in_cell
            p_inf += above_base
        else:
            upper = min(above_base / (top - base), in_cell)
            out[k + 1] += upper
            out[k] += in_cell - upper
    return out, p_inf, skipped_q, skipped_p


@kernel
def contract_pairs(
    g: Array, mass_g: Array, h: Array, mass_h: Array, grid: Array, product: bool, square: bool, ends: Ends
) -> tuple[Array, Array, float]:
    """Q- and P-mass of all pairs in each cell [grid[k], grid[k+1]) (the last is open above), P-mass beyond the limit.

    With each cell's mass at its barycentre P/Q it is a mean-preserving contraction.
    """
    n = grid.size
    out_q, out_p = np.zeros(n), np.zeros(n)
    edge, moments = _open_above(grid), np.empty(h.size)
    for j in range(h.size):
        moments[j] = mass_h[j] * h[j]
    low_q, low_p = _running_sums(mass_h), _running_sums(moments)
    high_q, high_p = _running_sums_back(mass_h), _running_sums_back(moments)
    beyond = 0.0
    both = 2.0 if square else 1.0
    for i in range(g.size):
        mi, gi = mass_g[i], g[i]
        if mi == 0.0:
            continue
        lo, hi, _, _ = _partners(mi, gi, low_q, low_p, high_q, high_p, product, ends.skip)
        within = _within(gi, h, product, ends.limit)
        if within < h.size:
            hi = min(hi, within)
            beyond += mi * gi * high_p[h.size - within]
        if square:
            lo = max(lo, i)
        if lo >= hi:
            continue
        k = _cell(grid, gi * h[lo] if product else gi + h[lo])
        top = edge[k + 1]
        in_cell, moment = 0.0, 0.0
        for j in range(lo, hi):
            ratio = gi * h[j] if product else gi + h[j]
            m = (mi if j == i else both * mi) * mass_h[j]
            if ratio >= top:
                out_q[k] += in_cell
                out_p[k] += moment
                in_cell, moment = 0.0, 0.0
                k += 1
                while ratio >= edge[k + 1]:
                    k += 1
                top = edge[k + 1]
            in_cell += m
            moment += m * ratio
        out_q[k] += in_cell
        out_p[k] += moment
    return out_q, out_p, beyond
