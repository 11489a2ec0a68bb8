"""Numba kernels of Poisson and cyclic Poisson sampling with a banded matrix: a recursion over the recent turns.

``scaled`` is that of :class:`~hockeystick.accountants.monte_carlo.participations.Participations`: turns, the rows up to
the next turn, and what each of the last w turns adds to them, in units of sigma. A *pattern* is an integer whose bit d
says whether the example took part d turns ago.
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

    beta = 0 is Q. O(turns (2^w + rows w)) for each sample.

    Args:
        scaled: shape (turns, rows of a block, w).
        fresh: whether block u of ``scaled`` differs from the block before, shape (turns,).
        prob: the chance to take part in a turn.
        mean: ``C E x / sigma``, shape (turns, rows of a block).
    """
    y = np.empty((scaled.shape[0], scaled.shape[1]))
    for sample in range(out.shape[0]):
        for u in range(y.shape[0]):
            for r in range(y.shape[1]):
                y[u, r] = rng.standard_normal() - beta * mean[u, r]
        out[sample, 0] = log_ratio(scaled, fresh, prob, y)
        out[sample, 1] = inner(mean.ravel(), y.ravel())


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

    O(turns (2^w + rows w)) for each sample.

    Args:
        table: of :func:`power_table`; not looked at where share = 0.
    """
    y = np.empty((scaled.shape[0], scaled.shape[1]))
    for sample in range(log_ratios.size):
        for u in range(y.shape[0]):
            for r in range(y.shape[1]):
                y[u, r] = rng.standard_normal()
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
    turns, rows, window = scaled.shape
    for i in range(turns):
        if rng.random() < prob:
            for d in range(min(window, turns - i)):
                for r in range(rows):
                    y[i + d, r] += scaled[i + d, r, d]


@njit(cache=True, nogil=True)
def log_ratio(scaled: Array, fresh: Flags, prob: float, y: Array) -> float:
    """``log E_S exp(<C 1_S, y> - |C 1_S|^2 / 2)`` in units of sigma, going forward over the last w turns.

    Nan where the ratio underflows, which needs prob = 1.

    With vectors ``a_d = scaled[u, :, d]``, block u multiplies the weight of a pattern f by
    ``exp(sum_{d in f} <a_d, y - a_d / 2> - sum_{d < d' in f} <a_d, a_d'>)``. The second part is kept as long as the
    block stays the same; both are built by doubling.
    """
    turns, rows, window = scaled.shape
    states = 1 << (window - 1)
    weights, moved, cross = np.zeros(states), np.empty(2 * states), np.ones(2 * states)
    weights[0] = 1.0
    total, log_scale = 1.0, 0.0
    for u in range(turns):
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
            log_scale += np.log(total)
            total = 1.0
    return float(np.log(total) + log_scale)


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def power_table(scaled: Array, fresh: Flags, prob: float, order: int) -> Array:
    """Logs of ``Z = E exp(sum_{i<j} <C x_i, C x_j>)`` for ``order`` independent copies of the participations.

    Entry (u, s) is the log of the part of the expectation that the blocks from u on make, given the last w - 1
    turns of all copies: copy i has the bits from ``i (w - 1)`` on of s, newest first. Entry (0, 0) is log Z.
    Shape (turns + 1, 2^(order (w - 1))). For 0 < prob < 1.

    O((turns + different blocks * rows * order) 2^(order w)) time: what a block adds is kept while it stays the same.
    """
    turns, _, window = scaled.shape
    states, words = 1 << (order * (window - 1)), 1 << order
    table = np.zeros((turns + 1, states))
    gains, terms = np.empty((states, words)), np.empty(words)
    for u in range(turns - 1, -1, -1):
        if u == turns - 1 or fresh[u + 1]:
            _log_weights(scaled[u], prob, order, gains)
        for state in range(states):
            for word in range(words):
                terms[word] = gains[state, word] + table[u + 1, _next(state, word, window, order)]
            top = terms.max()
            total = 0.0
            for word in range(words):
                total += np.exp(terms[word] - top)
            table[u, state] = top + np.log(total)
    return table


@njit(cache=True, nogil=True)
def _log_weights(block: Array, prob: float, order: int, gains: Array) -> None:
    """Fill ``gains``, shape (states, words), with :func:`_log_weight` of every state and word."""
    past = np.empty((order, block.shape[0]))
    chances = np.log(prob), np.log1p(-prob)
    for state in range(gains.shape[0]):
        _past_shifts(block, state, past)
        for word in range(gains.shape[1]):
            gains[state, word] = _log_weight(block, past, word, chances)


@njit(cache=True, nogil=True)
def _add_power(rng: np.random.Generator, scaled: Array, prob: float, order: int, table: Array, y: Array) -> None:
    """The mean of one component of ``X^order Q / Z``: copies that like each other, drawn turn by turn and added."""
    turns, rows, window = scaled.shape
    past = np.empty((order, rows))
    state = 0
    chances = np.log(prob), np.log1p(-prob)
    for u in range(turns):
        _past_shifts(scaled[u], state, past)
        rest = rng.random()
        last = (1 << order) - 1
        word = 0  # hardly ever much further than this, as most turns are without participation
        while word < last:
            weight = _log_weight(scaled[u], past, word, chances) + table[u + 1, _next(state, word, window, order)]
            rest -= np.exp(weight - table[u, state])
            if rest < 0.0:
                break
            word += 1
        for copy in range(order):
            for r in range(rows):
                y[u, r] += past[copy, r] + (scaled[u, r, 0] if word >> copy & 1 else 0.0)
        state = _next(state, word, window, order)


@njit(cache=True, nogil=True)
def _past_shifts(block: Array, state: int, past: Array) -> None:
    """What all but the newest of the w turns of each copy add to the rows of a block; ``past``: (copies, rows)."""
    rows, window = block.shape
    for copy in range(past.shape[0]):
        for r in range(rows):
            past[copy, r] = 0.0
        if state == 0:  # nearly always, where participations are rare
            continue
        for d in range(window - 1):
            if state >> (copy * (window - 1) + d) & 1:
                for r in range(rows):
                    past[copy, r] += block[r, d + 1]


@njit(cache=True, nogil=True)
def _log_weight(block: Array, past: Array, word: int, chances: tuple[float, float]) -> float:
    """Log of the chance of the new participations, the bits of ``word``, times what a block adds to the products.

    Args:
        chances: logs of the chance to take part in a turn, and not to.
    """
    copies, rows = past.shape
    exponent, taken = 0.0, 0
    for copy in range(copies):
        taken += word >> copy & 1
    for r in range(rows):
        total, squares = 0.0, 0.0
        for copy in range(copies):
            shift = past[copy, r]
            if word >> copy & 1:
                shift += block[r, 0]
            total += shift
            squares += shift * shift
        exponent += 0.5 * (total * total - squares)
    return float(taken * chances[0] + (copies - taken) * chances[1] + exponent)


@njit(cache=True, nogil=True)
def _next(state: int, word: int, window: int, order: int) -> int:
    """The last w - 1 turns of all copies, one turn on."""
    if window == 1:
        return 0
    bits = window - 1
    kept = (1 << bits) - 1
    moved = 0
    for copy in range(order):
        recent = state >> (copy * bits) & kept
        moved |= (((recent << 1) | (word >> copy & 1)) & kept) << (copy * bits)
    return moved
