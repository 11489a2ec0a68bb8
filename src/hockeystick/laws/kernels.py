"""Hot loops of the law engine: plain arrays in, plain arrays out, compiled by numba.

Each kernel walks over the pairs of nodes of two laws and drops the mass of every pair into a new grid. ``product``
pairs have ratio ``g_i h_j`` (composition); otherwise the ratio is ``g_i + h_j`` (the callers scale supports so that
this is a weighted average). Only non-negative terms are added, so rounding stays relative. Pairs whose Q-mass *and*
P-mass are both below ``skip`` are not visited one by one: the spread returns at least their masses as
``(skipped_q, skipped_p)`` for the caller to place on the safe side, the contraction leaves them out, which is its
safe side. One node receives at most one run of partners from each row, so a mass is a sum of at most
``len(h) + 2 len(g)`` terms in a chain: the callers bound the rounding by that.

Cost: O(len(g) * len(h)) time, O(len(grid)) memory. With ``square`` both laws are the same and half the pairs suffice.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]


@njit(cache=True)
def _partners(
    mass_i: float, ratio_i: float, low_q: Array, low_p: Array, high_q: Array, high_p: Array, product: bool, skip: float
) -> tuple[int, int, float, float]:
    """The range of partners that are visited for one row, and the masses of those that are not.

    ``low_q[j]`` and ``low_p[j]`` are the masses of the partners 0..j-1, ``high_*[j]`` those of j..end. In a product
    the P-mass of a pair is the product of P-masses, in a sum it is ``mass_i mass_j (ratio_i + ratio_j)``.
    """
    n = low_q.size - 1
    lo = 0
    hi = n
    # The largest lo whose skipped masses stay below the threshold, by bisection (both are non-decreasing in lo).
    a, b = 0, n
    while a < b:
        mid = (a + b + 1) // 2
        q = mass_i * low_q[mid]
        p = mass_i * ratio_i * low_p[mid] if product else mass_i * (ratio_i * low_q[mid] + low_p[mid])
        if q < skip and p < skip:
            a = mid
        else:
            b = mid - 1
    lo = a
    a, b = 0, n
    while a < b:
        mid = (a + b) // 2
        q = mass_i * high_q[mid]
        p = mass_i * ratio_i * high_p[mid] if product else mass_i * (ratio_i * high_q[mid] + high_p[mid])
        if q < skip and p < skip:
            b = mid
        else:
            a = mid + 1
    hi = a
    if lo >= hi:
        q = mass_i * low_q[n]
        p = mass_i * ratio_i * low_p[n] if product else mass_i * (ratio_i * low_q[n] + low_p[n])
        return 0, 0, q, p
    q = mass_i * (low_q[lo] + high_q[hi])
    if product:
        p = mass_i * ratio_i * (low_p[lo] + high_p[hi])
    else:
        p = mass_i * (ratio_i * (low_q[lo] + high_q[hi]) + low_p[lo] + high_p[hi])
    return lo, hi, q, p


@njit(cache=True)
def _partial_sums(support: Array, mass: Array) -> tuple[Array, Array, Array, Array]:
    """Q- and P-masses below and from each node on, each summed from its small end."""
    n = support.size
    low_q = np.zeros(n + 1)
    low_p = np.zeros(n + 1)
    high_q = np.zeros(n + 1)
    high_p = np.zeros(n + 1)
    for j in range(n):
        low_q[j + 1] = low_q[j] + mass[j]
        low_p[j + 1] = low_p[j] + mass[j] * support[j]
    for j in range(n - 1, -1, -1):
        high_q[j] = high_q[j + 1] + mass[j]
        high_p[j] = high_p[j + 1] + mass[j] * support[j]
    return low_q, low_p, high_q, high_p


@njit(cache=True)
def _cell(grid: Array, ratio: float) -> int:
    """Index k of the cell with grid[k] <= ratio < grid[k+1]; 0 below the grid, the last node above it."""
    k = int(np.searchsorted(grid, ratio, side="right")) - 1
    return max(k, 0)


@njit(cache=True)
def spread_pairs(
    g: Array, mass_g: Array, h: Array, mass_h: Array, grid: Array, product: bool, square: bool, skip: float
) -> tuple[Array, float, float, float]:
    """Drop all pairs on ``grid``, each split linearly between the two nodes around it (a mean-preserving spread).

    Above the last node the Q-mass stays there and the excess P-mass is returned as ``p_inf``. With ``square`` the
    skipped masses are counted at both ends of a pair, so they are over- and never understated.
    Returns (masses, p_inf, skipped_q, skipped_p).
    """
    n = grid.size
    out = np.zeros(n)
    edge = np.append(grid, np.inf)
    low_q, low_p, high_q, high_p = _partial_sums(h, mass_h)
    p_inf = 0.0
    skipped_q = 0.0
    skipped_p = 0.0
    both = 2.0 if square else 1.0
    for i in range(g.size):
        mi = mass_g[i]
        if mi == 0.0:
            continue
        gi = g[i]
        lo, hi, q, p = _partners(mi, gi, low_q, low_p, high_q, high_p, product, skip)
        skipped_q += both * q
        skipped_p += both * p
        if square:
            lo = max(lo, i)
        if lo >= hi:
            continue
        k = _cell(grid, gi * h[lo] if product else gi + h[lo])
        base = edge[k]
        top = edge[k + 1]
        in_cell = 0.0
        above_base = 0.0
        for j in range(lo, hi):
            ratio = gi * h[j] if product else gi + h[j]
            m = (mi if j == i else both * mi) * mass_h[j]
            if ratio >= top:
                upper = min(above_base / (top - base), in_cell)
                out[k + 1] += upper
                out[k] += in_cell - upper
                in_cell = 0.0
                above_base = 0.0
                k += 1
                while ratio >= edge[k + 1]:
                    k += 1
                base = edge[k]
                top = edge[k + 1]
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


@njit(cache=True)
def contract_pairs(
    g: Array, mass_g: Array, h: Array, mass_h: Array, grid: Array, product: bool, square: bool, skip: float
) -> tuple[Array, Array]:
    """Collect all pairs in the cells [grid[k], grid[k+1]) (the last is open above).

    Returns (Q-mass, P-mass of each cell). The caller puts each cell's mass at its barycentre P/Q: a mean-preserving
    contraction.
    """
    n = grid.size
    out_q = np.zeros(n)
    out_p = np.zeros(n)
    edge = np.append(grid, np.inf)
    low_q, low_p, high_q, high_p = _partial_sums(h, mass_h)
    both = 2.0 if square else 1.0
    for i in range(g.size):
        mi = mass_g[i]
        if mi == 0.0:
            continue
        gi = g[i]
        lo, hi, _, _ = _partners(mi, gi, low_q, low_p, high_q, high_p, product, skip)
        if square:
            lo = max(lo, i)
        if lo >= hi:
            continue
        k = _cell(grid, gi * h[lo] if product else gi + h[lo])
        top = edge[k + 1]
        in_cell = 0.0
        moment = 0.0
        for j in range(lo, hi):
            ratio = gi * h[j] if product else gi + h[j]
            m = (mi if j == i else both * mi) * mass_h[j]
            if ratio >= top:
                out_q[k] += in_cell
                out_p[k] += moment
                in_cell = 0.0
                moment = 0.0
                k += 1
                while ratio >= edge[k + 1]:
                    k += 1
                top = edge[k + 1]
            in_cell += m
            moment += m * ratio
        out_q[k] += in_cell
        out_p[k] += moment
    return out_q, out_p
