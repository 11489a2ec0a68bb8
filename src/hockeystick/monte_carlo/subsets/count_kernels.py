"""Numba kernels of the proposal by counts: how many of a number of copies take part in each opportunity.

The copies know of each other only through their counts J_u, so a chain over the counts of the last w opportunities
draws them. ``couplings[u, e]`` is ``G_u(u-e) = <c_u, c_(u-e)>``, the inner product of what opportunities u and u - e
add to all rows, in units of sigma. ``chances[j]`` is the log of the weight of j copies in an opportunity. A *state* has
the digit ``J_(u-e)`` at place e - 1, newest first, in base ``chances.size``.

Proof: docs/theory/monte-carlo/subsets.md, "The proposal by counts".
"""

import numpy as np
from numba import njit

from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.subsets.kernels import Mixture, add_subset, log_ratio
from hockeystick.monte_carlo.sums import added

SETTLED = 1e-13
"""Rows of a table that differ by a constant, up to this, repeat: the rows before them are not computed."""


@njit(cache=True, nogil=True)
def count_table(couplings: Array, chances: Array, most: int) -> Array:
    """Logs of ``Z = sum_J prod_u e^chances[J_u] exp(sum_u G_uu J_u (J_u - 1) / 2 + sum_(v < u) G_uv J_u J_v)``.

    Entry (k, s) is the log of the part that the last k opportunities make, given the counts s of the w - 1 before them.
    Shape (rows, counts^(w - 1)), with opportunities + 1 rows, or fewer where couplings stay the same and the rows have
    settled: the last row then stands for all that follow, less a constant. No rows where more than ``most`` are needed.

    O(rows counts^w) time. See :func:`log_sum` for log Z.

    Args:
        couplings: shape (opportunities, w).
        chances: shape (counts,), finite.
        most: none are made where it is below 1.
    """
    opportunities, window = couplings.shape
    counts = chances.size
    states = counts ** (window - 1)
    if most < 1:
        return np.empty((0, 0))
    table, terms = np.zeros((min(opportunities, most) + 1, states)), np.empty(counts)
    for k in range(1, opportunities + 1):
        if k > most:
            return table[:0]
        u = opportunities - k
        for state in range(states):
            pull = _pull(couplings[u], state, counts)
            for count in range(counts):
                following = (state * counts + count) % states
                terms[count] = chances[count] + _attraction(couplings[u, 0], pull, count) + table[k - 1, following]
            top = terms.max()
            total = 0.0
            for count in range(counts):
                total += np.exp(terms[count] - top)
            table[k, state] = top + np.log(total)
        change = table[k] - table[k - 1] - (table[k, 0] - table[k - 1, 0])
        if np.abs(change).max() <= SETTLED and (couplings[: u + 1] == couplings[0]).all():
            return table[: k + 1]
    return table


@njit(cache=True, nogil=True)
def log_sum(table: Array, opportunities: int) -> float:
    """log Z from the table of :func:`count_table`; infinite where it has no rows."""
    if table.shape[0] == 0:
        return np.inf
    last = table.shape[0] - 1
    if last == opportunities:
        return float(table[last, 0])
    return float(table[last, 0] + (opportunities - last) * (table[last, 0] - table[last - 1, 0]))


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _add_counts(
    rng: np.random.Generator, scaled: Array, couplings: Array, chances: Array, table: Array, y: Array
) -> None:
    """The mean of one component of a chain's mixture, one opportunity after the other."""
    opportunities, rows, window = scaled.shape
    counts, states = chances.size, table.shape[1]
    state, last = 0, table.shape[0] - 1
    for u in range(opportunities):
        row = min(opportunities - u, last)
        pull = _pull(couplings[u], state, counts)
        rest = rng.random()
        count = 0  # hardly ever much further than this, as most opportunities are without participation
        following = (state * counts) % states
        while count < counts - 1:
            exponent = chances[count] + _attraction(couplings[u, 0], pull, count)
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


@njit(cache=True, nogil=True, inline="always")
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


@njit(cache=True, nogil=True)
def _attraction(own: float, pull: float, count: int) -> float:
    """What ``count`` copies in an opportunity add to the exponent, among themselves and with those before."""
    return count * (pull + 0.5 * (count - 1) * own)


@njit(cache=True, nogil=True)
def _pull(couplings: Array, state: int, counts: int) -> float:
    """``sum_e couplings[e] J_(u-e)`` over the opportunities before."""
    total = 0.0
    for e in range(1, couplings.size):
        if state == 0:  # nearly always, where participations are rare
            break
        total += couplings[e] * (state % counts)
        state //= counts
    return total
