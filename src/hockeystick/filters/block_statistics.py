"""What the sum of one function of every block of rows tells about a renewal process, from below.

Rows are cut in blocks of m. A block is projected on its mean direction, the projection is mapped to a whole number by
an increasing function, and the numbers are added. The sum T is a function of the output, so its laws with and without
the example bound the profile from below. Given the participations the blocks are independent, so the law of T with the
example follows backwards over blocks, one state for each step at which the example may be available first.

Proof: docs/theory/separated-windows.md, "From below". Sums and products of non-negative numbers only, but for the
normal masses of cells, whose error is measured.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy.special import ndtr

from hockeystick.laws.law import UNIT_ROUNDOFF, Array

CELLS_PER_DEVIATION = (60.0, 30.0)
"""Units of the sum in its standard deviation: the finer ones where they do not take too long."""
REACH = 3.5
"""Cells end so many standard deviations beyond the largest shift; the last one is open."""
NDTR_ERROR = 1e-12
"""Well above the relative error of the normal distribution function, which grows to 2.4e-13 far in its tail."""


@dataclass(frozen=True)
class Blocks:
    """Blocks of one Toeplitz matrix at one noise, and the whole number that each gives.

    Attributes:
        size: m, steps of a block.
        count: whole blocks of the run; the rows after the last one are ignored.
        shifts: ``shifts[i, d]``: of the block d blocks behind that of a participation at its i-th step, in standard
            deviations, shape (m, blocks that a participation can reach).
        edges: upper ends of the cells but the last, in standard deviations.
        most: the largest sum that is told from larger ones.
        cost: multiplications of the law of the sum.
        information: about the variance of the logarithm of the ratio; for ranking only.
    """

    size: int
    count: int
    shifts: Array
    edges: Array
    most: int
    cost: float
    information: float


def blocks_of(
    column: Array,
    steps: int,
    size: int,
    sigma: float,
    prob: float,
    min_sep: int,
    cells: float = CELLS_PER_DEVIATION[-1],
) -> Blocks:
    """The blocks of the Toeplitz matrix with this first column, bands <= min_sep + 1 - size, under coins ``prob``."""
    rate = prob / (1.0 + (min_sep - 1) * prob)
    touched = (size - 1 + column.size - 1) // size + 1
    padded = np.zeros((size, touched * size))
    for place in range(size):
        padded[place, place : place + column.size] = column
    shifts: Array = padded.reshape(size, touched, size).sum(axis=2) / (np.sqrt(size) * sigma)
    all_shifts = shifts[shifts > 0.0]
    reach = float(all_shifts.max()) + REACH
    y = np.linspace(-REACH - 1.0, reach, 4001)
    exponents = np.minimum(np.multiply.outer(y, all_shifts) - 0.5 * all_shifts**2, 600.0)
    score = np.log1p(rate * np.expm1(exponents).sum(axis=1))
    count = steps // size
    weight = np.exp(-0.5 * y**2) / np.exp(-0.5 * y**2).sum()
    second = float(weight @ np.expm1(np.minimum(score, 20.0)) ** 2)
    deviation = np.sqrt(count * second)
    unit = deviation / cells
    levels = np.arange(np.ceil(score[0] / unit + 0.5), np.floor(score[-1] / unit + 0.5)) * unit - 0.5 * unit
    edges = np.interp(levels, score, y)
    lowest = round(float(score[0]) / unit)
    most = int(-lowest * count + (1.0 + 8.0 * deviation + deviation**2) / unit)
    width = (edges.size + 1) * (_waits(size, count, min_sep) + 1)
    return Blocks(size, count, shifts, edges, most, float(count * size) * (most + 1.0) * width, count * second)


def sum_laws(blocks: Blocks, prob: float, min_sep: int, first: Array, rounding: float) -> tuple[Array, Array, float]:
    """Masses of T without and with the example, shape (most + 1,), and a proved relative error of each.

    Args:
        first: probabilities that the first available step is 0, 1, 2, ...
        rounding: proved relative error of the matrix's entries.
    """
    plain, error = cell_masses(blocks.edges, 0.0)
    waits = _waits(blocks.size, blocks.count, min_sep)
    kernels = np.zeros((blocks.size, waits + 1, waits * (plain.size - 1) + 1))
    for place in range(blocks.size):
        law = np.ones(1)
        kernels[place, 0, 0] = 1.0
        for block in range(waits):
            shift = float(blocks.shifts[place, block]) if block < blocks.shifts.shape[1] else 0.0
            masses, own = cell_masses(blocks.edges, shift)
            error = max(error, own)
            law = np.convolve(law, masses)
            kernels[place, block + 1, : law.size] = law
    without, taking_part = _backwards(blocks.count, blocks.most, plain, kernels, prob, min_sep, first)
    terms = float(blocks.count * (blocks.size + 1))
    sums = (terms * 8.0 + 4.0 * blocks.count * kernels.shape[2]) * UNIT_ROUNDOFF
    # A logarithm of a cell's mass changes by at most the distance of the cell from the centre when the centre moves.
    farthest = float(blocks.shifts.max())
    moved = 4.0 * (rounding + 8.0 * UNIT_ROUNDOFF) * farthest * (farthest + REACH + 5.0)
    return without, taking_part, 2.0 * (2.0 * blocks.count * (error + moved) + sums)


def _waits(size: int, count: int, min_sep: int) -> int:
    """The most blocks until an example may be available again, none of them beyond the end."""
    return min((size - 1 + min_sep) // size, count)


def cell_masses(edges: Array, shift: float) -> tuple[Array, float]:
    """Masses of N(shift, 1) in the cells between the edges, the outer ones open, and their relative error.

    The error is infinite where a cell is so far away that its mass is 0 in doubles.
    """
    below = np.concatenate([[0.0], ndtr(edges - shift), [1.0]])
    above = np.concatenate([[1.0], ndtr(shift - edges), [0.0]])
    left = below[1:] <= 0.5
    masses = np.where(left, np.diff(below), -np.diff(above))
    larger = np.where(left, below[1:], above[:-1])
    # The differences of edges and shift are rounded too, which is as much as a wrong mass next to an edge.
    narrow = 8.0 * UNIT_ROUNDOFF * (1.0 + float(np.abs(edges).max()) + shift) / float(np.diff(edges).min())
    shares = np.divide(larger, masses, out=np.full_like(masses, np.inf), where=masses > 0.0)
    return masses, float(NDTR_ERROR * np.max(shares)) + 4.0 * narrow


@njit(cache=True)
def _add_convolution(target: Array, source: Array, kernel: Array, length: int, weight: float) -> None:
    """``target += weight kernel * source``; what is beyond the end is joined to the last place."""
    n = target.size
    for j in range(length):
        factor = weight * kernel[j]
        if factor == 0.0:
            continue
        if j >= n:
            target[n - 1] += factor * source.sum()
            continue
        for k in range(n - j):
            target[k + j] += factor * source[k]
        if j > 0:
            target[n - 1] += factor * source[n - j :].sum()


@njit(cache=True)
def _backwards(
    count: int, most: int, plain: Array, kernels: Array, prob: float, min_sep: int, first: Array
) -> tuple[Array, Array]:
    """The laws of T: without the example, and with it from the first steps of availability ``first``."""
    size, waits = kernels.shape[0], kernels.shape[1] - 1
    one = plain.size - 1
    depth = waits + 1
    available = np.zeros((depth, size, most + 1))  # laws from block k on, by the first available place in block k
    found = np.zeros(most + 1)
    end = np.zeros(most + 1)
    end[0] = 1.0
    for step in range(count * size, first.size):
        found[0] += first[step]
    tails = np.zeros((depth, most + 1))  # laws without the example from block k on
    tails[count % depth, 0] = 1.0
    for k in range(count - 1, -1, -1):
        slot = k % depth
        after = np.zeros(most + 1)
        _add_convolution(after, tails[(k + 1) % depth], plain, one + 1, 1.0)
        following = np.zeros(most + 1)
        source = available[(k + 1) % depth, 0] if k + 1 < count else end
        _add_convolution(following, source, plain, one + 1, 1.0)
        laws = np.zeros((size, most + 1))
        for place in range(size - 1, -1, -1):
            later = laws[place + 1] if place + 1 < size else following
            for i in range(most + 1):
                laws[place, i] = (1.0 - prob) * later[i]
            ahead = (place + min_sep) // size
            if k + ahead < count:
                source = available[(k + ahead) % depth, (place + min_sep) % size]
                _add_convolution(laws[place], source, kernels[place, ahead], ahead * one + 1, prob)
            else:
                left = count - k
                _add_convolution(laws[place], end, kernels[place, left], left * one + 1, prob)
        for i in range(most + 1):
            tails[slot, i] = after[i]
            for place in range(size):
                available[slot, place, i] = laws[place, i]
        if k * size < first.size:  # one that becomes available in a later block leaves this one unchanged
            moved = np.zeros(most + 1)
            _add_convolution(moved, found, plain, one + 1, 1.0)
            found = moved
        for place in range(size):
            step = k * size + place
            if step < first.size:
                for i in range(most + 1):
                    found[i] += first[step] * laws[place, i]
    return tails[0].copy(), found
