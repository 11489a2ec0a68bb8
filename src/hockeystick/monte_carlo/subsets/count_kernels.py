"""Numba kernels of the proposal by counts: how many of a number of copies take part in each opportunity.

They draw from the chains of :mod:`hockeystick.moments.copies.counts`, whose notation they have.

Proof: docs/theory/monte-carlo/subsets.md, "The proposal by counts".
"""

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.moments.copies.counts import attraction, pull_of
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.subsets.kernels import Mixture, add_subset, log_ratio
from hockeystick.monte_carlo.sums import added


@kernel
def draw_counts(
    rng: np.random.Generator,
    mixture: Mixture,
    near: tuple[Array, Array],
    far: tuple[Array, Array],
    shares: tuple[float, float],
    out: Array,
) -> None:
    """Fill ``out``, shape (samples, 3), with ``log X``, ``log X'`` and ``log F`` of outputs of the mixture.

    ``X' = prod_u (1 - p + p e^(z_u))`` and ``F = prod_u sum_j e^(chances[j] + j z_u)``, chances those of ``far``, with
    ``z_u = <c_u, y> - G_uu / 2``. O(opportunities (2^w + rows w)) for each sample.

    Args:
        mixture: of the participations.
        near, far: chances and table of two chains.
        shares: how often the outputs are those of the near and of the far chain; else they are those of P.
    """
    scaled, fresh, prob, couplings = mixture
    y = np.empty((scaled.shape[0], scaled.shape[1]))
    weights = np.exp(far[0])
    for sample in range(out.shape[0]):
        for u in range(y.shape[0]):
            for r in range(y.shape[1]):
                y[u, r] = rng.standard_normal()
        which = rng.random()
        if which < shares[0]:
            _add_counts(rng, scaled, couplings, near[0], near[1], y)
        elif which < shares[0] + shares[1]:
            _add_counts(rng, scaled, couplings, far[0], far[1], y)
        else:
            add_subset(rng, scaled, prob, y)
        out[sample, 0] = log_ratio(scaled, fresh, prob, y)
        log_products(scaled, prob, couplings, weights, y, out[sample, 1:])


@kernel
def _add_counts(
    rng: np.random.Generator, scaled: Array, couplings: Array, chances: Array, table: Array, y: Array
) -> None:
    """The mean of one component of a chain's mixture, one opportunity after the other."""
    opportunities, rows, window = scaled.shape
    counts, states = chances.size, table.shape[1]
    state, last = 0, table.shape[0] - 1
    for u in range(opportunities):
        row = min(opportunities - u, last)
        pull = pull_of(couplings[u], state, counts)
        rest = rng.random()
        count = 0  # hardly ever much further than this, as most opportunities are without participation
        following = (state * counts) % states
        while count < counts - 1:
            exponent = chances[count] + attraction(couplings[u, 0], pull, count)
            rest -= np.exp(exponent + table[row - 1, following] - table[row, state])
            if rest < 0.0:
                break
            count += 1
            following = (state * counts + count) % states
        if count > 0:
            for d in range(min(window, opportunities - u)):
                for r in range(rows):
                    y[u + d, r] += count * scaled[u + d, r, d]
        state = following


@kernel(inline="always")
def log_products(scaled: Array, prob: float, couplings: Array, weights: Array, y: Array, out: Array) -> None:
    """``log X'`` and ``log F`` of outputs y; no exponential is above 1, and sums are Kahan's.

    Args:
        scaled, prob, couplings: as in :class:`Mixture`.
        weights: of the counts in an opportunity, no logs; shape (counts,).
        y: in units of sigma, shape (opportunities, rows).
        out: shape (2,).
    """
    opportunities, rows, window = scaled.shape
    last = weights.size - 1
    out[:] = 0.0
    lost, terms = np.zeros(2), np.empty(2)
    for u in range(opportunities):
        exponent = -0.5 * couplings[u, 0]
        for d in range(min(window, opportunities - u)):
            for r in range(rows):
                exponent += scaled[u + d, r, d] * y[u + d, r]
        value = 0.0
        if exponent > 0.0:
            ratio = np.exp(-exponent)
            for count in range(last + 1):
                value = value * ratio + weights[count]
            terms[0] = exponent + np.log(prob + (1.0 - prob) * ratio)
            terms[1] = last * exponent + np.log(value)
        else:
            ratio = np.exp(exponent)
            for count in range(last, -1, -1):
                value = value * ratio + weights[count]
            terms[0] = np.log1p(prob * np.expm1(exponent))
            terms[1] = np.log(value)
        for i in range(2):
            out[i], lost[i] = added(out[i], lost[i], terms[i])
