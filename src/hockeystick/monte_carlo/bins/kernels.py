"""Compiled draws for a mixture of bins: normals, their products with a factor, tuples of bins, losses.

All kernels work on blocks of ``LANES`` samples that lie next to each other (last axis), so that inner loops run over
samples. One call is one thread; the same generator state gives the same bits.
"""

from math import exp, log
from typing import NamedTuple

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.monte_carlo.arrays import Array, Integers
from hockeystick.monte_carlo.draws import place_of
from hockeystick.monte_carlo.sums import log_add

LANES = 64
"""Samples in a block: its normals and exponents stay in the cache for a hundred bins."""


class Means(NamedTuple):
    """The means of the bins in units of the noise.

    Attributes:
        factor: A, shape (bins, dimensions); its rows are the means.
        spans: shape (bins, 2); outside columns ``spans[i, 0] .. spans[i, 1] - 1`` row i is zero.
        half: ``|A_i|^2 / 2``, shape (bins,).
    """

    factor: Array
    spans: Integers
    half: Array


@kernel
def draw_outputs(rng: np.random.Generator, means: Means, of_p: bool, middle: Array, beta: float, out: Array) -> None:
    """Fill ``out``, shape (samples, 2), with ``log X`` and ``<middle, z>`` of noise z moved by ``-beta middle``.

    With ``of_p`` it is moved by a row too.
    """
    factor, spans, half = means
    bins, dimensions = factor.shape
    z, u, block = np.empty((dimensions, LANES)), np.empty((bins, LANES)), np.empty(LANES)
    products = np.empty(LANES)
    for start in range(0, out.shape[0], LANES):
        _normals(rng, z)
        products[:] = 0.0
        for j in range(dimensions):
            for s in range(LANES):
                z[j, s] -= beta * middle[j]
                products[s] += middle[j] * z[j, s]
        if of_p:
            for s in range(LANES):
                row = _uniform(rng, bins)
                for j in range(spans[row, 0], spans[row, 1]):
                    z[j, s] += factor[row, j]
        multiply(factor, spans, z, u)
        log_mean_exp(u, half, block)
        used = min(LANES, out.shape[0] - start)
        out[start : start + used, 0] = block[:used]
        out[start : start + used, 1] = products[:used]


class BallLaws(NamedTuple):
    """The laws of the balls of a tuple.

    Attributes:
        growth: ``exp(K)``, shape (bins, bins).
        focused: ``exp(f K - max)``, shape (bins, bins); row c is the law of the balls around c but for its sum.
        spread: bins over the sums of these rows, shape (bins,).
    """

    growth: Array
    focused: Array
    spread: Array


@kernel
def draw_balls(
    rng: np.random.Generator,
    means: Means,
    balls: BallLaws,
    order: int,
    share: float,
    log_weights: Array,
    losses: Array,
) -> None:
    """Losses ``log X`` with the noise moved by the rows of a random tuple of bins, and the log-weights.

    Args:
        order: balls in a tuple.
        share: of the tuples that are concentrated around a bin.
        log_weights, losses: filled, shape (samples,).
    """
    (factor, spans, half), (growth, focused, spread) = means, balls
    bins, dimensions = factor.shape
    z, u, block = np.empty((dimensions, LANES)), np.empty((bins, LANES)), np.empty(LANES)
    tuples, weights, shift = np.empty(order, np.int64), np.empty(LANES), np.empty(dimensions)
    work = np.empty(bins)
    for start in range(0, losses.size, LANES):
        _normals(rng, z)
        for s in range(LANES):
            if share > 0.0 and rng.random() < share:
                concentrated_tuple(rng, focused, spread, tuples)
                log_growth = tuple_growth(rng, growth, False, tuples, work)
            else:
                log_growth = tuple_growth(rng, growth, True, tuples, work)
            shift[:] = 0.0
            own = 0.0
            for ball in tuples:
                own += half[ball]
                for j in range(spans[ball, 0], spans[ball, 1]):
                    shift[j] += factor[ball, j]
            for j in range(dimensions):
                z[j, s] += shift[j]
            if share > 0.0:
                meetings = 0.5 * _square(shift) - own
                log_density = log_concentration(focused, spread, tuples, work) - meetings
                weights[s] = -log_add(log(1.0 - share) - log_growth, log(share) + log_density)
            else:
                weights[s] = log_growth
        multiply(factor, spans, z, u)
        log_mean_exp(u, half, block)
        for s in range(min(LANES, losses.size - start)):
            losses[start + s] = block[s]
            log_weights[start + s] = weights[s] - (order - 1) * block[s]


@kernel
def tuple_growth(rng: np.random.Generator, growth: Array, drawn: bool, tuples: Integers, work: Array) -> float:
    """``log V`` of a tuple, the sum of the logs of the means that its balls are chosen from, ball after ball.

    With ``drawn`` the tuple is drawn, else it is given.
    """
    bins = growth.shape[0]
    if drawn:
        tuples[0] = _uniform(rng, bins)
    work[:] = growth[tuples[0]]
    value = 1.0
    for k in range(1, tuples.size):
        total = _total(work)
        value *= total / bins
        if drawn:
            tuples[k] = place_of(rng.random() * total, work)
        if k + 1 < tuples.size:
            work *= growth[tuples[k]]
    return log(value)


@kernel(inline="always")
def concentrated_tuple(rng: np.random.Generator, focused: Array, spread: Array, tuples: Integers) -> None:
    """Fill the tuple with independent balls around a uniform centre."""
    bins = focused.shape[0]
    centre = _uniform(rng, bins)
    for k in range(tuples.size):
        tuples[k] = place_of(rng.random() * (bins / spread[centre]), focused[centre])


@kernel(inline="always")
def log_concentration(focused: Array, spread: Array, tuples: Integers, work: Array) -> float:
    """Log of how much likelier a tuple is around a uniform centre than with uniform balls."""
    work[:] = 1.0
    for ball in tuples:
        for c in range(work.size):
            work[c] *= focused[ball, c] * spread[c]
    total = _total(work) / work.size
    return log(total) if total > 0.0 else -np.inf


@kernel
def _normals(rng: np.random.Generator, z: Array) -> None:
    """Standard normals, sample by sample within a row."""
    for j in range(z.shape[0]):
        for s in range(z.shape[1]):
            z[j, s] = rng.standard_normal()


@kernel(fastmath={"contract"})
def multiply(factor: Array, spans: Integers, z: Array, u: Array) -> None:
    """``u = factor z``, four columns at a time. O(entries of all spans) for each sample."""
    bins, lanes = u.shape
    for i in range(bins):
        for s in range(lanes):
            u[i, s] = 0.0
        j, end = spans[i, 0], spans[i, 1]
        while j + 4 <= end:
            a0, a1, a2, a3 = factor[i, j], factor[i, j + 1], factor[i, j + 2], factor[i, j + 3]
            for s in range(lanes):
                u[i, s] += (a0 * z[j, s] + a1 * z[j + 1, s]) + (a2 * z[j + 2, s] + a3 * z[j + 3, s])
            j += 4
        while j < end:
            entry = factor[i, j]
            for s in range(lanes):
                u[i, s] += entry * z[j, s]
            j += 1


@kernel
def log_mean_exp(u: Array, half: Array, result: Array) -> None:
    """``log mean_i exp(u_i - half_i)`` of every sample. ``u`` is overwritten."""
    bins, lanes = u.shape
    top = np.full(lanes, -np.inf)
    for i in range(bins):
        for s in range(lanes):
            u[i, s] -= half[i]
            top[s] = max(top[s], u[i, s])
    result[:] = 0.0
    for i in range(bins):
        for s in range(lanes):
            result[s] += exp(u[i, s] - top[s])
    for s in range(lanes):
        result[s] = top[s] + log(result[s] / bins)


@kernel(fastmath={"reassoc"})
def _total(values: Array) -> float:
    """The sum, in the order that the processor likes: only non-negative numbers are added."""
    total = 0.0
    for i in range(values.size):
        total += values[i]
    return total


@kernel(fastmath={"reassoc"})
def _square(values: Array) -> float:
    """The sum of the squares."""
    total = 0.0
    for i in range(values.size):
        total += values[i] * values[i]
    return total


@kernel
def _uniform(rng: np.random.Generator, count: int) -> int:
    """A uniform index below ``count``."""
    return min(int(rng.random() * count), count - 1)
