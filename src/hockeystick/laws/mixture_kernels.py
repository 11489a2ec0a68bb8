"""Hot loops of the mixtures on a lattice: plain arrays in, plain arrays out, compiled by numba. No exponentials."""

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

LANES = 64
"""Places that go through the polynomial side by side: enough to fill the vector units, few enough for the cache."""


@kernel
def polynomial(coefficients: Array, places: Array) -> Array:
    """``sum_k coefficients[k] * places[j]**k`` by Horner's rule, for non-negative coefficients and places.

    All terms are non-negative, so the result has a relative error of at most ``2 K u``. Cost: K multiplications and
    additions for every place.
    """
    out = np.zeros(places.size)
    sums = np.zeros(LANES)
    at = np.zeros(LANES)
    for start in range(0, places.size, LANES):
        used = min(LANES, places.size - start)
        for lane in range(LANES):
            sums[lane] = 0.0
            at[lane] = places[start + min(lane, used - 1)]
        for k in range(coefficients.size - 1, -1, -1):
            coefficient = coefficients[k]
            for lane in range(LANES):
                sums[lane] = sums[lane] * at[lane] + coefficient
        for lane in range(used):
            out[start + lane] = sums[lane]
    return out


@kernel
def two_point_sum(probabilities: Array, counts: Counts, prune: float) -> tuple[Array, float]:
    """The law of ``sum_j counts[j] * Bernoulli(probabilities[j])``, without its ends.

    After every term, end points with less than ``prune`` are taken off. Returns (masses at 0, 1, 2, ..., the mass taken
    off). Only non-negative terms are multiplied and added: each mass has a relative error of at most ``3 n u``; what
    was taken off is summed with compensation. Cost: the number of terms times the width of the law.
    """
    now = np.zeros(1024)
    after = np.zeros(1024)
    now[0] = 1.0
    low, high = 0, 0
    off, lag = 0.0, 0.0
    for j in range(probabilities.size):
        p = probabilities[j]
        m = counts[j]
        if m == 0 or p == 0.0:
            continue
        stay = 1.0 - p
        if high + m >= now.size:
            longer = np.zeros(2 * (high + m + 1))
            for i in range(high + 1):
                longer[i] = now[i]
            now = longer
            after = np.zeros(longer.size)
        apart = min(high + 1, low + m)
        for i in range(low, apart):
            after[i] = stay * now[i]
        for i in range(apart, low + m):
            after[i] = 0.0
        for i in range(low + m, high + 1):
            after[i] = stay * now[i] + p * now[i - m]
        for i in range(max(high + 1, low + m), high + m + 1):
            after[i] = p * now[i - m]
        high += m
        now, after = after, now
        while low < high and min(now[low], now[high]) < prune:
            at_low = now[low] < prune
            part = now[low if at_low else high] - lag
            total = off + part
            lag, off = (total - off) - part, total
            if at_low:
                low += 1
            else:
                high -= 1
    masses = np.zeros(high + 1)
    for i in range(low, high + 1):
        masses[i] = now[i]
    return masses, off
