"""Numba kernels of Poisson and cyclic Poisson sampling with a banded matrix: a recursion over recent opportunities.

``scaled`` is that of :class:`~hockeystick.monte_carlo.subsets.participations.Participations`: opportunities, the rows
up to the next one, and what each of the last w opportunities adds to them, in units of sigma. A *pattern* is an integer
whose bit d says whether the example took part d opportunities ago.
"""

from typing import NamedTuple

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.monte_carlo.arrays import Array, Flags
from hockeystick.monte_carlo.sums import added

RESCALE = 1e20
"""The sum over all patterns is kept within this factor of 1."""


class Mixture(NamedTuple):
    """The participations, as kernels take them.

    Attributes:
        scaled: shape (opportunities, rows of a block, w).
        fresh: whether block u of ``scaled`` differs from the block before, shape (opportunities,).
        prob: the chance to take part in an opportunity.
        couplings: ``<c_u, c_(u-e)>``, shape (opportunities, w).
    """

    scaled: Array
    fresh: Flags
    prob: float
    couplings: Array


@kernel
def draw_outputs(rng: np.random.Generator, mixture: Mixture, of_p: bool, mean: Array, beta: float, out: Array) -> None:
    """Fill ``out``, shape (samples, 2), with ``log X`` and ``<mean, y>`` of outputs ``y = z - beta mean``.

    With ``of_p`` a component of P is added. O(opportunities (2^w + rows w)) for each sample.

    Args:
        mean: ``C E x / sigma``, shape (opportunities, rows of a block).
    """
    scaled, fresh, prob, _ = mixture
    y = np.empty((scaled.shape[0], scaled.shape[1]))
    for sample in range(out.shape[0]):
        for u in range(y.shape[0]):
            for r in range(y.shape[1]):
                y[u, r] = rng.standard_normal() - beta * mean[u, r]
        if of_p:
            add_subset(rng, scaled, prob, y)
        out[sample, 0] = log_ratio(scaled, fresh, prob, y)
        out[sample, 1] = inner(mean.ravel(), y.ravel())


@kernel(inline="always")
def inner(a: Array, b: Array) -> float:
    """The inner product, by Kahan's summation: its error does not grow with the number of terms."""
    total, lost = 0.0, 0.0
    for t in range(a.size):
        total, lost = added(total, lost, a[t] * b[t])
    return float(total)


@kernel
def add_subset(rng: np.random.Generator, scaled: Array, prob: float, y: Array) -> None:
    """The mean of one component of P."""
    opportunities, rows, window = scaled.shape
    for i in range(opportunities):
        if rng.random() < prob:
            for d in range(min(window, opportunities - i)):
                for r in range(rows):
                    y[i + d, r] += scaled[i + d, r, d]


@kernel
def log_ratio(scaled: Array, fresh: Flags, prob: float, y: Array) -> float:
    """``log E_S exp(<C 1_S, y> - |C 1_S|^2 / 2)`` in units of sigma, going forward over the last w opportunities.

    Nan where the ratio underflows, which needs prob = 1.

    With vectors ``a_d = scaled[u, :, d]``, block u multiplies the weight of a pattern f by
    ``exp(sum_{d in f} <a_d, y - a_d / 2> - sum_{d < d' in f} <a_d, a_d'>)``. The second part is kept as long as the
    block stays the same; both are built by doubling.
    """
    opportunities, rows, window = scaled.shape
    states = 1 << (window - 1)
    weights, moved, cross = np.zeros(states), np.empty(2 * states), np.ones(2 * states)
    weights[0] = 1.0
    total, log_scale, lost = 1.0, 0.0, 0.0
    for u in range(opportunities):
        if fresh[u]:
            _cross_factors(scaled[u], cross)
        moved[0] = 1.0 - prob
        for d in range(window):
            exponent = 0.0
            for r in range(rows):
                exponent += scaled[u, r, d] * (y[u, r] - 0.5 * scaled[u, r, d])
            factor = np.exp(exponent)
            if d == 0:
                moved[1] = prob * factor
            else:
                for pattern in range(1 << d):
                    moved[pattern | (1 << d)] = moved[pattern] * factor
        for pattern in range(2 * states):
            moved[pattern] *= cross[pattern] * weights[pattern >> 1]
        total = 0.0
        for pattern in range(states):
            weights[pattern] = moved[pattern] + moved[pattern | states]
            total += weights[pattern]
        if total == 0.0:  # without subsampling, far from all means: more than doubles can say
            return float(np.nan)
        if total > RESCALE or total < 1.0 / RESCALE:
            for pattern in range(states):
                weights[pattern] /= total
            log_scale, lost = added(log_scale, lost, np.log(total))
            total = 1.0
    return float(np.log(total) + log_scale)


@kernel(inline="always")
def _cross_factors(block: Array, cross: Array) -> None:
    """``exp(-sum_{d < d' in f} <a_d, a_d'>)`` for every pattern f of w bits; ``block`` has the shape (rows, w)."""
    rows, window = block.shape
    joined = np.empty(cross.size // 2)
    cross[0] = 1.0
    for d in range(window):
        joined[0] = 1.0
        for earlier in range(d):
            product = 0.0
            for r in range(rows):
                product += block[r, d] * block[r, earlier]
            factor = np.exp(-product)
            for pattern in range(1 << earlier):
                joined[pattern | (1 << earlier)] = joined[pattern] * factor
        for pattern in range(1 << d):
            cross[pattern | (1 << d)] = cross[pattern] * joined[pattern]
