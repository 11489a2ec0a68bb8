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


@njit(cache=True, nogil=True, fastmath={"contract"})
def step_transforms(
    scales: Array, places: Array, masses: Array, damping: float, pace: float, first: int, count: int
) -> Array:
    """``sum_m masses[m] exp(-(damping - i f pace) scales[s] places[m])`` for ``first <= f < first + count``.

    Real parts, then imaginary ones: shape (S, 2 count). What is damped by more than exp(60) is left out.
    """
    found = np.zeros((scales.size, 2 * count))
    for s in range(scales.size):
        row = found[s]
        for m in range(places.size):
            place = scales[s] * places[m]
            if damping * place > 60.0:
                continue
            size, angle = masses[m] * np.exp(-damping * place), pace * place
            real, imaginary = size * np.cos(first * angle), size * np.sin(first * angle)
            cosine, sine = np.cos(angle), np.sin(angle)
            for f in range(count):
                row[f] += real
                row[count + f] += imaginary
                real, imaginary = real * cosine - imaginary * sine, real * sine + imaginary * cosine
    return found


@njit(cache=True, nogil=True, fastmath={"contract"})
def chain_transforms(
    starts: Counts, targets: Counts, chances: Array, start: Array, end: Array, steps: Array, kinds: Counts
) -> Array:
    """The transform of the sum over all bins, at the frequencies of ``steps``.

    Args:
        starts, targets, chances: edges, as in :func:`mixed`.
        start, end: shape (S,), chances of the first state and factors of the last one.
        steps: shape (K, S, 2 F), of what a bin of each kind adds, given its state: real parts, then imaginary ones.
        kinds: shape (b,), of the bins.
    """
    rows, width = steps.shape[1], steps.shape[2]
    half = width // 2
    later, found, mean = np.zeros((rows, width)), np.zeros((rows, width)), np.zeros(width)
    for s in range(rows):
        later[s, :half] = end[s]
    for place in range(kinds.size - 1, -1, -1):
        for s in range(rows):
            if place == kinds.size - 1:
                mean[:] = later[s]
            else:
                mean[:] = 0.0
                for e in range(starts[s], starts[s + 1]):
                    chance, row = chances[e], later[targets[e]]
                    for f in range(width):
                        mean[f] += chance * row[f]
            step, out = steps[kinds[place], s], found[s]
            for f in range(half):
                out[f] = mean[f] * step[f] - mean[half + f] * step[half + f]
                out[half + f] = mean[f] * step[half + f] + mean[half + f] * step[f]
        later, found = found, later
    total = np.zeros(width)
    for s in range(rows):
        for f in range(width):
            total[f] += start[s] * later[s, f]
    return total
