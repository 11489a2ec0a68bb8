"""Numba kernels of Poisson sampling with a banded matrix: a recursion over the recent participations.

A *pattern* is an integer whose bit d says whether the example took part d steps ago. Row t of C has the entries
``rows[t, d] = C[t, t - d]``; divided by sigma they are ``a[t, d]``, and everything below is in units of sigma.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

RESCALE = 1e20
"""The sum over all patterns is kept within this factor of 1."""


@njit(cache=True, nogil=True)
def draw_moved(
    rng: np.random.Generator, scaled: Array, fresh: Flags, prob: float, beta: float, mean: Array, out: Array
) -> None:
    """Fill ``out``, shape (samples, 2), with ``log X`` and ``<mean, y>`` of outputs ``y = z - beta mean``.

    beta = 0 is Q. O(2^p n) for each sample.

    Args:
        scaled: a, shape (n, p).
        fresh: whether row t of ``scaled`` differs from the row before, shape (n,).
        prob: the chance to take part in a step.
        mean: ``C E x / sigma``, shape (n,).
    """
    y = np.empty(scaled.shape[0])
    for sample in range(out.shape[0]):
        for t in range(y.size):
            y[t] = rng.standard_normal() - beta * mean[t]
        out[sample, 0] = log_ratio(scaled, fresh, prob, y)
        out[sample, 1] = inner(mean, y)


@njit(cache=True, nogil=True)
def draw_powers(
    rng: np.random.Generator,
    scaled: Array,
    fresh: Flags,
    prob: float,
    order: int,
    table: Array,
    share: float,
    log_ratios: Array,
) -> None:
    """Fill ``log_ratios`` with log X of outputs of P or, with probability ``share``, of ``X^order Q / Z``.

    O(2^p n) for each sample.

    Args:
        table: of :func:`power_table`; not looked at where share = 0.
    """
    y = np.empty(scaled.shape[0])
    for sample in range(log_ratios.size):
        for t in range(y.size):
            y[t] = rng.standard_normal()
        if share > 0.0 and rng.random() < share:
            _add_power(rng, scaled, prob, order, table, y)
        else:
            _add_subset(rng, scaled, prob, y)
        log_ratios[sample] = log_ratio(scaled, fresh, prob, y)


@njit(cache=True, nogil=True)
def inner(a: Array, b: Array) -> float:
    """The inner product, by Kahan's summation: its error does not grow with the number of terms."""
    total, lost = 0.0, 0.0
    for t in range(a.size):
        term = a[t] * b[t] - lost
        grown = total + term
        lost = (grown - total) - term
        total = grown
    return float(total)


@njit(cache=True, nogil=True)
def _add_subset(rng: np.random.Generator, scaled: Array, prob: float, y: Array) -> None:
    """The mean of one component of P."""
    n, p = scaled.shape
    for i in range(n):
        if rng.random() < prob:
            for d in range(min(p, n - i)):
                y[i + d] += scaled[i + d, d]


@njit(cache=True, nogil=True)
def log_ratio(scaled: Array, fresh: Flags, prob: float, y: Array) -> float:
    """``log E_S exp(<C 1_S, y> - |C 1_S|^2 / 2)`` in units of sigma, going forward over the last p participations.

    Row t multiplies the weight of a pattern f by ``exp(sum_{d in f} a_d (y - a_d / 2) - sum_{d < d' in f} a_d a_d')``.
    The second part is kept as long as the row of C stays the same; both are built by doubling.
    """
    n, p = scaled.shape
    states = 1 << (p - 1)
    weights, moved, cross = np.zeros(states), np.empty(2 * states), np.ones(2 * states)
    weights[0] = 1.0
    total, log_scale = 1.0, 0.0
    for t in range(n):
        if fresh[t]:
            _cross_factors(scaled[t], cross)
        moved[0], moved[1] = 1.0 - prob, prob * np.exp(scaled[t, 0] * (y[t] - 0.5 * scaled[t, 0]))
        for d in range(1, p):
            factor = np.exp(scaled[t, d] * (y[t] - 0.5 * scaled[t, d]))
            for pattern in range(1 << d):
                moved[pattern | (1 << d)] = moved[pattern] * factor
        for pattern in range(2 * states):
            moved[pattern] *= cross[pattern] * weights[pattern >> 1]
        total = 0.0
        for pattern in range(states):
            weights[pattern] = moved[pattern] + moved[pattern | states]
            total += weights[pattern]
        if total > RESCALE or total < 1.0 / RESCALE:
            for pattern in range(states):
                weights[pattern] /= total
            log_scale += np.log(total)
            total = 1.0
    return float(np.log(total) + log_scale)


@njit(cache=True, nogil=True)
def _cross_factors(row: Array, cross: Array) -> None:
    """``exp(-sum_{d < d' in f} a_d a_d')`` for every pattern f of p bits."""
    p = row.size
    joined = np.empty(cross.size // 2)
    cross[0] = 1.0
    for d in range(p):
        joined[0] = 1.0
        for earlier in range(d):
            factor = np.exp(-row[d] * row[earlier])
            for pattern in range(1 << earlier):
                joined[pattern | (1 << earlier)] = joined[pattern] * factor
        for pattern in range(1 << d):
            cross[pattern | (1 << d)] = cross[pattern] * joined[pattern]


@njit(cache=True, nogil=True)
def power_table(scaled: Array, prob: float, order: int) -> Array:
    """Logs of ``Z = E exp(sum_{i<j} <C x_i, C x_j>)`` for ``order`` independent copies of the participations.

    Entry (t, s) is the log of the part of the expectation that the rows from t on make, given the last p - 1
    participations of all copies: copy i has the bits from ``i (p - 1)`` on of s, newest first. Entry (0, 0) is log Z.
    Shape (n + 1, 2^(order (p - 1))). O(n 2^(order p)) time. For 0 < prob < 1.
    """
    n, p = scaled.shape
    table = np.zeros((n + 1, 1 << (order * (p - 1))))
    terms = np.empty(1 << order)
    past = np.empty(order)
    for t in range(n - 1, -1, -1):
        for state in range(table.shape[1]):
            _past_shifts(scaled[t], state, past)
            for word in range(terms.size):
                terms[word] = _log_weight(scaled[t, 0], past, word, prob) + table[t + 1, _next(state, word, p, order)]
            top = terms.max()
            total = 0.0
            for word in range(terms.size):
                total += np.exp(terms[word] - top)
            table[t, state] = top + np.log(total)
    return table


@njit(cache=True, nogil=True)
def _add_power(rng: np.random.Generator, scaled: Array, prob: float, order: int, table: Array, y: Array) -> None:
    """The mean of one component of ``X^order Q / Z``: copies that like each other, drawn step by step and added."""
    n, p = scaled.shape
    past = np.empty(order)
    state = 0
    for t in range(n):
        _past_shifts(scaled[t], state, past)
        rest = rng.random()
        last = (1 << order) - 1
        word = 0  # hardly ever much further than this, as most steps are without participation
        while word < last:
            weight = _log_weight(scaled[t, 0], past, word, prob) + table[t + 1, _next(state, word, p, order)]
            rest -= np.exp(weight - table[t, state])
            if rest < 0.0:
                break
            word += 1
        for copy in range(order):
            y[t] += past[copy] + (scaled[t, 0] if word >> copy & 1 else 0.0)
        state = _next(state, word, p, order)


@njit(cache=True, nogil=True)
def _past_shifts(row: Array, state: int, past: Array) -> None:
    """What the last p - 1 participations of each copy add to a row."""
    bits = row.size - 1
    for copy in range(past.size):
        past[copy] = 0.0
        for d in range(bits):
            if state >> (copy * bits + d) & 1:
                past[copy] += row[d + 1]


@njit(cache=True, nogil=True)
def _log_weight(newest: float, past: Array, word: int, prob: float) -> float:
    """Log of the chance of the new participations, the bits of ``word``, times what one row adds to the products."""
    total, squares, taken = 0.0, 0.0, 0
    for copy in range(past.size):
        shift = past[copy]
        if word >> copy & 1:
            shift += newest
            taken += 1
        total += shift
        squares += shift * shift
    chance = taken * np.log(prob) + (past.size - taken) * np.log1p(-prob)
    return float(chance + 0.5 * (total * total - squares))


@njit(cache=True, nogil=True)
def _next(state: int, word: int, p: int, order: int) -> int:
    """The last p - 1 participations of all copies, one step on."""
    if p == 1:
        return 0
    bits = p - 1
    kept = (1 << bits) - 1
    moved = 0
    for copy in range(order):
        recent = state >> (copy * bits) & kept
        moved |= (((recent << 1) | (word >> copy & 1)) & kept) << (copy * bits)
    return moved
