"""The loops of exact noise: sums in float64, rounded where their error leaves no doubt, and a list of the doubtful."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.noise.recent_rows import add_past
from hockeystick.noise.solver import CHUNK

APART = 40
"""Numbers between two rows of sums: at a distance of a multiple of 4096 bytes a load of one would wait for each store
of the other, on many processors, which took up to half as long again."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]


class Coefficients(NamedTuple):
    """What a block of ``count`` steps of a feedback multiplies by.

    Attributes:
        weights: minus the entries ``C[t, t - j]``, shape (count, p); column 0 is not read.
        ahead: what the row j before step t is multiplied by for step t + 1, shape (count, p): weights of the next step,
            one place earlier.
        units: the entries in units of ``2^-24``, shape (count, p).
        over: one over the diagonal, shape (count,).
        rough, fine: bounds on the error of what is rounded, shape (count,), when the sum over the past is made in
            float64, and when it is a whole number.
    """

    weights: Floats
    ahead: Floats
    units: NDArray[np.int64]
    over: Floats
    rough: Floats
    fine: Floats


def in_fours(step: Coefficients) -> Coefficients:
    """The same sums, with an entry 0 where three rows would be left after fours: four together take less time."""
    if step.units.shape[1] % 4:
        return step
    zero = np.zeros((len(step.units), 1))
    weights, ahead = (np.hstack([entries, zero]) for entries in (step.weights, step.ahead))
    return step._replace(weights=weights, ahead=ahead, units=np.hstack([step.units, zero.astype(np.int64)]))


@kernel
def beyond(z: Floats, end: float) -> int:
    """How many of these numbers are larger than ``end`` in absolute value."""
    count = 0
    for row in range(z.shape[0]):
        for k in range(z.shape[1]):
            count += abs(z[row, k]) > end
    return count


@kernel(fastmath={"contract"})
def feed_back(
    ring: Integers, place: int, z: Floats, step: Coefficients, first: int, begin: int, doubtful: NDArray[np.int64]
) -> bool:
    """``v_t = floor((z_t - sum_{j > 0} C[t, t-j] v_{t-j}) / C[t, t] + 1/2)`` for the rows begin, ..., count - 1 of z.

    Args:
        ring: shape (R, d); row ``place + b`` is overwritten with the row of step b, in some of its columns.
        z: shape (count, k), in grid steps; column 0 belongs to the column ``first`` of the ring.
        doubtful: shape (k,), is overwritten with the first step whose v is in doubt, or with count. What follows in
            such a column is of no use.

    Returns: whether any is in doubt.
    """
    count, size = z.shape
    totals = np.empty((2, CHUNK + APART))
    any_doubt = False
    for k in range(size):
        doubtful[k] = count
    for start in range(0, size, CHUNK):
        stop = min(start + CHUNK, size)
        column, open_ones = first + start, doubtful[start:stop]
        row, next_row = totals[0, : stop - start], totals[1, : stop - start]
        for b in range(begin, count, 2):  # two steps at a time: the rows before both are read and converted once
            now = z[b, start:stop]
            for k in range(row.size):
                row[k] = now[k]
            if b + 1 == count:
                add_past(row, ring, place + b, step.weights[b], column)
                any_doubt |= _decide(ring, place + b, row, now, step, b, column, open_ones)
                continue
            later = z[b + 1, start:stop]
            for k in range(row.size):
                next_row[k] = later[k]
            _add_past_to_two(row, next_row, ring, place + b, step.weights[b], step.ahead[b], column)
            any_doubt |= _decide(ring, place + b, row, now, step, b, column, open_ones)
            add_past(next_row, ring, place + b + 1, step.weights[b + 1, :2], column)
            any_doubt |= _decide(ring, place + b + 1, next_row, later, step, b + 1, column, open_ones)
    return any_doubt


@kernel(fastmath={"contract"})
def _add_past_to_two(
    row: Floats, next_row: Floats, ring: Integers, place: int, weights: Floats, ahead: Floats, start: int
) -> None:
    """Add ``weights[j]`` and ``ahead[j]`` times the row j before ``place``, j = 1, ..., p - 1, to parts of two rows."""
    rows, size = ring.shape[0], row.size
    stop = start + size
    j = 1
    while j + 3 < weights.size:
        x1, x2 = ring[(place - j) % rows, start:stop], ring[(place - j - 1) % rows, start:stop]
        x3, x4 = ring[(place - j - 2) % rows, start:stop], ring[(place - j - 3) % rows, start:stop]
        w1, w2, w3, w4 = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        a1, a2, a3, a4 = ahead[j], ahead[j + 1], ahead[j + 2], ahead[j + 3]
        for k in range(size):
            y1, y2, y3, y4 = np.float64(x1[k]), np.float64(x2[k]), np.float64(x3[k]), np.float64(x4[k])
            row[k] = row[k] + w1 * y1 + w2 * y2 + w3 * y3 + w4 * y4
            next_row[k] = next_row[k] + a1 * y1 + a2 * y2 + a3 * y3 + a4 * y4
        j += 4
    while j < weights.size:
        x1 = ring[(place - j) % rows, start:stop]
        w1, a1 = weights[j], ahead[j]
        for k in range(size):
            y1 = np.float64(x1[k])
            row[k] += w1 * y1
            next_row[k] += a1 * y1
        j += 1


@kernel(fastmath={"contract"})
def _decide(
    ring: Integers,
    place: int,
    row: Floats,
    z: Floats,
    step: Coefficients,
    b: int,
    first: int,
    doubtful: NDArray[np.int64],
) -> bool:
    """Round one step, from its sums in ``row``, into the ring; returns whether any number of it is in doubt."""
    out = ring[place, first : first + row.size]
    if not round_off(row, step.over[b], step.rough[b], out):
        return False
    any_doubt = False
    for k in range(row.size):
        if not certain(row[k] * step.over[b] + 0.5, step.rough[b]):
            out[k], sure = _by_units(ring, place, z[k], step, b, first + k)
            if not sure:
                doubtful[k] = min(doubtful[k], b)
                any_doubt = True
    return any_doubt


@kernel(fastmath={"contract"})
def _by_units(ring: Integers, place: int, z: float, step: Coefficients, b: int, column: int) -> tuple[int, bool]:
    """One v with the sum over the past in whole numbers, and whether it is certain.

    The whole part of the sum over the diagonal is taken off in whole numbers, so floating point sees its rest alone.
    """
    rows, units = ring.shape[0], step.units[b]
    past = np.int64(0)
    for j in range(1, units.size):
        past += units[j] * np.int64(ring[(place - j) % rows, column])
    whole = past // units[0]
    shifted = z * step.over[b] - np.float64(past - whole * units[0]) / np.float64(units[0]) + 0.5
    return np.int64(np.floor(shifted)) - whole, certain(shifted, step.fine[b])


@kernel(fastmath={"contract"})
def average(
    ring: Floats, place: int, weights: Floats, doubt: Floats, out: Integers, first: int, doubtful: NDArray[np.int64]
) -> bool:
    """``floor(sum_j W[t, t-j] z_{t-j} + 1/2)`` for z in the rows place, ..., place + count - 1 of the ring and before.

    Args:
        ring: shape (R, d), in grid steps.
        weights: shape (count, p), entries of W.
        doubt: bounds on the error of a sum, shape (count,).
        out: shape (count or more, d), is overwritten in the columns first, ..., first + k - 1.
        doubtful: shape (k,), as for :func:`feed_back`; what follows in such a column is right here.
    """
    count, size = weights.shape[0], doubtful.size
    total = np.empty(CHUNK)
    any_doubt = False
    for k in range(size):
        doubtful[k] = count
    for start in range(0, size, CHUNK):
        stop = min(start + CHUNK, size)
        row = total[: stop - start]
        for b in range(count):
            now = ring[place + b, first + start : first + stop]
            for k in range(row.size):
                row[k] = weights[b, 0] * now[k]
            add_past(row, ring, place + b, weights[b], first + start)
            if round_off(row, 1.0, doubt[b], out[b, first + start : first + stop]):
                any_doubt = True
                for k in range(row.size):
                    if not certain(row[k] + 0.5, doubt[b]):
                        doubtful[start + k] = min(doubtful[start + k], b)
    return any_doubt


@kernel(fastmath={"contract"})
def round_off(row: Floats, over: float, doubt: float, out: Integers) -> int:
    """Overwrite ``out`` with ``floor(over row + 1/2)``; returns how many of them are not certain."""
    uncertain, room = 0, 0.5 - doubt
    for k in range(row.size):
        value = row[k] * over + 0.5
        whole = np.floor(value)
        out[k] = np.int32(whole)
        uncertain += abs(value - whole - 0.5) > room
    return uncertain


@kernel(inline="always")
def certain(value: float, doubt: float) -> bool:
    """Whether all numbers within ``doubt`` of this one have the same whole part."""
    return bool(abs(value - np.floor(value) - 0.5) <= 0.5 - doubt)
