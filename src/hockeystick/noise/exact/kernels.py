"""The loops of exact noise: sums in float64, rounded where their error leaves no doubt, and a list of the doubtful."""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hockeystick.noise.recent_rows import add_past
from hockeystick.noise.solver import CHUNK

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]


class Coefficients(NamedTuple):
    """What a block of ``count`` steps of a feedback multiplies by.

    Attributes:
        weights: minus the entries ``C[t, t - j]``, shape (count, p); column 0 is not read.
        units: the entries in units of ``2^-24``, shape (count, p).
        over: one over the diagonal, shape (count,).
        rough, fine: bounds on the error of what is rounded, shape (count,), when the sum over the past is made in
            float64, and when it is a whole number.
    """

    weights: Floats
    units: NDArray[np.int64]
    over: Floats
    rough: Floats
    fine: Floats


@njit(cache=True, nogil=True)
def beyond(z: Floats, end: float) -> int:
    """How many of these numbers are larger than ``end`` in absolute value."""
    found = 0
    for row in range(z.shape[0]):
        for k in range(z.shape[1]):
            found += abs(z[row, k]) > end
    return found


@njit(cache=True, nogil=True, fastmath={"contract"})
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
    total = np.empty(CHUNK)
    any_doubt = False
    for k in range(size):
        doubtful[k] = count
    for start in range(0, size, CHUNK):
        stop = min(start + CHUNK, size)
        row = total[: stop - start]
        for b in range(begin, count):
            now, out = z[b, start:stop], ring[place + b, first + start : first + stop]
            for k in range(row.size):
                row[k] = now[k]
            add_past(row, ring, place + b, step.weights[b], first + start)
            if not round_off(row, step.over[b], step.rough[b], out):
                continue
            for k in range(row.size):
                if not certain(row[k] * step.over[b] + 0.5, step.rough[b]):
                    value, sure = _by_units(ring, place + b, now[k], step, b, first + start + k)
                    out[k] = value
                    if not sure:
                        doubtful[start + k] = min(doubtful[start + k], b)
                        any_doubt = True
    return any_doubt


@njit(cache=True, nogil=True, fastmath={"contract"})
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


@njit(cache=True, nogil=True, fastmath={"contract"})
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


@njit(cache=True, nogil=True, fastmath={"contract"})
def round_off(row: Floats, over: float, doubt: float, out: Integers) -> int:
    """Overwrite ``out`` with ``floor(over row + 1/2)``; returns how many of them are not certain."""
    found, room = 0, 0.5 - doubt
    for k in range(row.size):
        value = row[k] * over + 0.5
        whole = np.floor(value)
        out[k] = np.int32(whole)
        found += abs(value - whole - 0.5) > room
    return found


@njit(cache=True, nogil=True, inline="always")
def certain(value: float, doubt: float) -> bool:
    """Whether all numbers within ``doubt`` of this one have the same whole part."""
    return bool(abs(value - np.floor(value) - 0.5) <= 0.5 - doubt)
