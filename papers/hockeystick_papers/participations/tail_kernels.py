"""Hot loops of the tail bounds, on plain arrays."""

from math import exp, expm1, inf, log, log1p, pi, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.laws.law import Array

Indices = NDArray[np.int64]

REASSOCIATE = {"reassoc", "contract", "nsz"}
"""Sums may be reordered for vector units: all their terms are non-negative, so any order is as accurate."""
ROOT_TWO_PI = sqrt(2.0 * pi)
ROUNDING = 1e-13
"""Relative allowance for the few dozen operations that make one threshold, each rounded to a unit or two."""
CANCELLATION = 1e-11
"""Relative error of a curvature at exponents above SHORT, where two nearly equal terms are subtracted."""
LARGEST_EXPONENT = 700.0
"""Below this its exponential is in the range of doubles."""
SHORT = 1e-3
FIRST_TRIAL = 1.05
NEXT_TRIAL = 0.85
MOST_TRIALS = 12


class Earlier(NamedTuple):
    """What columns do in the rows before a block, in units of the noise's variance; arrays of shape (pairs,).

    Attributes:
        own: squared norms, positive.
        total, square, largest: sum, sum of squares (in units of the variance's square) and largest of the inner
            products with the other columns.
    """

    own: Array
    total: Array
    square: Array
    largest: Array


@kernel
def advance(
    starts: Indices, columns: Indices, entries: Array, first: int, last: int, seen: int, gram: Array
) -> tuple[Indices, Array, Array, Array, Array, Array]:
    """Describe one block of rows by the rows before it, then count it among the rows before.

    Args:
        starts, columns, entries: the rows of C, compressed, columns ascending within a row.
        first, last: the block is rows first..last - 1.
        seen: the largest column that an earlier row has, or -1.
        gram: shape (columns, 2 w - 1), ``gram[j, j' - j + w - 1]`` the inner product of columns j and j' over the
            earlier rows, for ``|j - j'| < w``; no row holds two columns further apart. Changed in place.

    Returns, for the columns that are not zero in the block, the newest first: their numbers; the squared norms of
        the block's parts; the squared norms of the earlier parts; and sum, sum of squares and largest of the earlier
        parts' inner products with all other columns. O(columns in the block * w).
    """
    width = (gram.shape[1] + 1) // 2
    low, high = gram.shape[0], -1
    for row in range(first, last):
        if starts[row + 1] > starts[row]:
            low = min(low, columns[starts[row]])
            high = max(high, columns[starts[row + 1] - 1])
    squares = np.zeros(max(high - low + 1, 0))
    for row in range(first, last):
        for place in range(starts[row], starts[row + 1]):
            squares[columns[place] - low] += entries[place] * entries[place]
    which = low + np.flatnonzero(squares)[::-1]
    norms = squares[which - low]
    own, total, square, largest = np.zeros(which.size), np.zeros(which.size), np.zeros(which.size), np.zeros(which.size)
    for k in range(which.size):
        j = which[k]
        own[k] = gram[j, width - 1]
        if own[k] > 0.0:
            older = _moments(gram[j, max(0, width - 1 - j) : width - 1])
            newer = _moments(gram[j, width : min(2 * width - 1, seen - j + width)])
            total[k], square[k] = older[0] + newer[0], older[1] + newer[1]
            largest[k] = max(older[2], newer[2])
    for row in range(first, last):
        _add_row(columns[starts[row] : starts[row + 1]], entries[starts[row] : starts[row + 1]], gram)
    return which, norms, own, total, square, largest


@kernel(fastmath=REASSOCIATE)
def _moments(products: Array) -> tuple[float, float, float]:
    """Sum, sum of squares and largest of non-negative numbers."""
    total, square, largest = 0.0, 0.0, 0.0
    for place in range(products.size):
        product = products[place]
        total += product
        square += product * product
        largest = max(largest, product)
    return total, square, largest


@kernel
def _add_row(columns: Indices, entries: Array, gram: Array) -> None:
    """Add one row's products. A row without gaps, the usual one, is added by slices."""
    count = columns.size
    if count == 0:
        return
    width = (gram.shape[1] + 1) // 2
    gapless = columns[count - 1] - columns[0] + 1 == count
    for a in range(count):
        line, offset, entry = gram[columns[a]], width - 1 - columns[a], entries[a]
        if gapless:
            place = offset + columns[0]
            for b in range(count):
                line[place + b] += entry * entries[b]
        else:
            for b in range(count):
                line[offset + columns[b]] += entry * entries[b]


@kernel
def growth(exponent: float, prob: float) -> float:
    """``log(1 - p + p e^x)``, the cumulant generating function of one participation, for x >= 0."""
    if exponent < LARGEST_EXPONENT:
        return log1p(prob * expm1(exponent))
    return exponent + log(prob + (1.0 - prob) * exp(-exponent))


@kernel
def curvature(exponent: float, prob: float, most: float) -> float:
    """At least ``(growth(y) - p y) / y^2`` for every y in (0, x]; never above ``most``, a bound for all y > 0.

    The second derivative of ``growth`` is ``r (1 - r)``, with r the tilted probability, and the quotient a mean of it
    over [0, y]; it grows with y as long as r <= 1/2 (docs/theory/subsets/mmcc.md).
    """
    if prob >= 0.5:
        return 0.5 * prob * (1.0 - prob)
    tilted = 1.0 / (1.0 + (1.0 - prob) / prob * exp(-exponent))
    if tilted > 0.5:
        return most
    if exponent < SHORT:
        return min(0.5 * tilted * (1.0 - tilted), most)
    quotient = (growth(exponent, prob) - prob * exponent) / (exponent * exponent)
    return min(quotient * (1.0 + CANCELLATION), most)


@kernel
def log_odds_with(
    earlier: Earlier, error: float, log_budget: float, quantile: float, prob: float, most: float
) -> Array:
    """Bounds on the rise of the log odds of a participation under P, each exceeded with at most ``exp(-log_budget)``.

    Args:
        error: relative error of the four arrays of ``earlier``.
        log_budget: log of the inverse of the failure probability of each.
        quantile: where the tilts that are tried, downwards until one is worse, begin; any tilt > 0 is valid.
        prob: p below 1.
        most: a bound on the curvature, see :func:`curvature`.
    """
    own, total, square, largest = earlier
    raised = np.empty(own.size)
    for k in range(own.size):
        high = own[k] * (1.0 + error)
        root = sqrt(high)
        spread = prob * (1.0 - prob) * (square[k] + own[k] * own[k]) / own[k]
        tilt = FIRST_TRIAL * quantile / sqrt(1.0 + spread)
        best = inf
        for _trial in range(MOST_TRIALS):
            rate = tilt / root
            sharpening = log(max(tilt * ROOT_TWO_PI * (1.0 - error), 1.0))
            other = (1.0 + error) * rate
            exponent = 0.5 * tilt * tilt + growth(rate * high, prob) + prob * other * total[k]
            bend = curvature(other * largest[k], prob, most)
            exponent += other * other * square[k] * (1.0 + error) * bend
            slack = ROUNDING * (log_budget + sharpening + exponent)
            threshold = (log_budget - sharpening + exponent + slack) / rate
            if threshold >= best:
                break
            best = threshold
            tilt *= NEXT_TRIAL
        raised[k] = best - 0.5 * own[k] * (1.0 - error) + ROUNDING * (best + own[k])
    return raised


@kernel
def log_odds_without(own: Array, error: float, log_budget: float, quantile: float) -> Array:
    """The rise of the log odds under Q, where the earlier outputs are pure noise."""
    sharpening = log(max(quantile * ROOT_TWO_PI, 1.0))
    slope = (log_budget - sharpening + 0.5 * quantile * quantile) / quantile
    slope += ROUNDING * (log_budget + sharpening + 0.5 * quantile * quantile) / quantile
    raised = np.empty(own.size)
    for k in range(own.size):
        threshold = slope * sqrt(own[k] * (1.0 + error))
        raised[k] = threshold - 0.5 * own[k] * (1.0 - error) + ROUNDING * (threshold + own[k])
    return raised
