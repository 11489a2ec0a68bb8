"""Hot loops of the sums over a hidden chain: plain arrays in, plain arrays out, compiled by numba.

Row s of ``masses`` is the law of the rest of the sum given state s; it is zero outside ``low[s] <= k < high[s]``. Grids
are multiples of a step up to the node ``core``, and any increasing numbers beyond it.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@njit(cache=True, nogil=True)
def mixed(starts: Counts, targets: Counts, chances: Array, masses: Array, low: Counts, high: Counts) -> Array:
    """``sum_e chances[e] masses[targets[e]]`` over the edges of each state, ``starts[s] <= e < starts[s + 1]``."""
    found = np.zeros((starts.size - 1, masses.shape[1]))
    for s in range(starts.size - 1):
        row = found[s]
        for e in range(starts[s], starts[s + 1]):
            t, chance = targets[e], chances[e]
            other = masses[t]
            for k in range(low[t], high[t]):
                row[k] += chance * other[k]
    return found


@njit(cache=True, nogil=True)
def mixed_numbers(starts: Counts, targets: Counts, chances: Array, numbers: Array) -> Array:
    """The same for one number of each state."""
    found = np.zeros(starts.size - 1)
    for s in range(starts.size - 1):
        for e in range(starts[s], starts[s + 1]):
            found[s] += chances[e] * numbers[targets[e]]
    return found


@njit(cache=True, nogil=True)
def bands(masses: Array, skip: Array) -> tuple[Counts, Counts]:
    """Where row s begins and ends to exceed ``skip[s]``."""
    rows, n = masses.shape
    low, high = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    for s in range(rows):
        first, last = 0, n
        while first < n and masses[s, first] <= skip[s]:
            first += 1
        while last > first and masses[s, last - 1] <= skip[s]:
            last -= 1
        low[s], high[s] = first, last
    return low, high


@njit(cache=True, nogil=True)
def shifted_spread(
    grid: Array,
    core: int,
    masses: Array,
    low: Counts,
    high: Counts,
    starts: Counts,
    counts: Counts,
    chances: Array,
    beyond: Array,
) -> Array:
    """The laws of ``V_s + Y_s``, split on the grid; ``beyond`` takes in place what must be at infinity.

    Y_s is ``counts[y]`` steps with the chance ``chances[y]``, ``starts[s] <= y < starts[s + 1]``, independent of V_s.
    Inside the core sums are nodes. Above the last node the rest of the mean goes to infinity.
    """
    rows, n = masses.shape
    step = grid[1]
    found = np.zeros((rows, n))
    for s in range(rows):
        row, out = masses[s], found[s]
        for y in range(starts[s], starts[s + 1]):
            count, chance = counts[y], chances[y]
            inside = max(min(high[s], core + 1 - count), low[s])
            for k in range(low[s], inside):
                out[k + count] += chance * row[k]
            cell = 0
            for k in range(inside, high[s]):
                mass = chance * row[k]
                value = grid[k] + count * step
                if cell == 0:
                    cell = min(max(np.searchsorted(grid, value, side="right") - 1, 0), n - 1)
                while cell < n - 1 and grid[cell + 1] <= value:
                    cell += 1
                if cell == n - 1:
                    out[cell] += mass
                    beyond[s] += mass * (value - grid[cell])
                    continue
                right = mass * max(min((value - grid[cell]) / (grid[cell + 1] - grid[cell]), 1.0), 0.0)
                out[cell + 1] += right
                out[cell] += mass - right
    return found


@njit(cache=True, nogil=True)
def shifted_contraction(
    grid: Array,
    core: int,
    masses: Array,
    moments: Array,
    low: Counts,
    high: Counts,
    starts: Counts,
    counts: Counts,
    chances: Array,
    means: Array,
) -> tuple[Array, Array]:
    """Masses of the groups of ``V_s + Y_s``, and their means times their masses.

    V_s has the atoms ``moments[s, k] / masses[s, k]``; Y_s has ``means[y]`` with the chance ``chances[y]``. In the core
    pairs are joined by the sum of k and ``counts[y]``, elsewhere by the cell that their sum lies in.
    """
    rows, n = masses.shape
    found_masses, found_moments = np.zeros((rows, n)), np.zeros((rows, n))
    for s in range(rows):
        row, first = masses[s], moments[s]
        out, out_first = found_masses[s], found_moments[s]
        for y in range(starts[s], starts[s + 1]):
            count, chance, mean = counts[y], chances[y], means[y]
            inside = max(min(high[s], core - count), low[s])
            for k in range(low[s], inside):
                out[k + count] += chance * row[k]
                out_first[k + count] += chance * (first[k] + mean * row[k])
            cell = core
            for k in range(inside, high[s]):
                if row[k] == 0.0:
                    continue
                value = first[k] / row[k] + mean
                while cell > 0 and grid[cell] > value:
                    cell -= 1
                while cell < n - 1 and grid[cell + 1] <= value:
                    cell += 1
                out[cell] += chance * row[k]
                out_first[cell] += chance * (first[k] + mean * row[k])
    return found_masses, found_moments
