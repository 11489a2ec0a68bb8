"""Numba kernels for histories in which a participation is followed by a wait, one coin at each opportunity.

The counterparts of :mod:`.history_kernels` for b-min-sep subsampling: an example that takes part at opportunity u is
free again at ``u + min_sep``; ``first[u]`` is the chance that it waits for u opportunities at first.

Proof: docs/theory/monte-carlo/many-bands.md, "Examples that wait".
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hockeystick.monte_carlo.histories.chain_kernels import ChainTables, add_column
from hockeystick.monte_carlo.histories.history_kernels import (
    ENDLESS,
    LARGEST_PRODUCT,
    Draws,
    Overlaps,
    exponents,
    filtered,
)
from hockeystick.monte_carlo.histories.kept_counts import draw_kept_counts, law_of

Array = NDArray[np.float64]


class Wait(NamedTuple):
    """The chance of a coin, the opportunities from one participation to the next, and the chances of a first wait."""

    prob: float
    min_sep: int
    first: Array


@njit(cache=True, nogil=True)
def log_waiting_mean_field(z: Array, couplings: Array, prob: float, min_sep: int, first: Array) -> float:
    """At most log X: histories that are free at an opportunity are given the mean of their fields.

    O(opportunities (w + min_sep)).
    """
    size, window = z.size, couplings.shape[1]
    weights, waiting = np.zeros(min_sep), np.zeros((min_sep, size))
    fields = np.zeros(size)
    free, log_scale = 0.0, 0.0
    for u in range(size):
        slot, last = u % min_sep, min(size, u + window)
        back, start = weights[slot], first[u] * np.exp(-log_scale) if u < first.size else 0.0
        total = free + back + start
        if total == 0.0:  # nobody is free here who matters beside those that wait
            weights[slot] = 0.0
            continue
        kept, added = free / total, back / total
        taken = total * prob * np.exp(z[u] - (kept * fields[u] + added * waiting[slot, u]))
        free, weights[slot] = total * (1.0 - prob), taken
        field, wait, coupling = fields[u + 1 : last], waiting[slot, u + 1 : last], couplings[u, 1 : last - u]
        for e in range(field.size):
            mean = kept * field[e] + added * wait[e]
            field[e], wait[e] = mean, mean + coupling[e]
        if max(free, taken) > LARGEST_PRODUCT or max(free, taken) < 1.0 / LARGEST_PRODUCT:
            largest = max(free, weights.max())
            if not 0.0 < largest < np.inf:  # or not a number
                return float(np.nan)
            log_scale += np.log(largest)
            free /= largest
            weights /= largest
    total = free + weights.sum()
    for u in range(size, first.size):
        total += first[u] * np.exp(-log_scale)
    return float(np.log(total) + log_scale)


@njit(cache=True, nogil=True)
def waiting_products(z: Array, prob: float, min_sep: int, first: Array, block: int, table: Array) -> float:
    """``log X'_A``, and in ``table[u, k]`` what it is from u on for who is free there, at most k times in its block.

    Opportunities ``block m, ..., block m + block - 1`` are block m, and in each of them there are at most
    ``table.shape[1] - 1`` participations. Shape of the table: (opportunities, limit + 1).
    """
    most = table.shape[1] - 1
    for u in range(z.size - 1, -1, -1):
        gained, ends = prob * np.exp(z[u]), (u // block + 1) * block
        for k in range(most + 1):
            left = k if u + 1 < ends else most
            table[u, k] = (1.0 - prob) * (table[u + 1, left] if u + 1 < z.size else 1.0)
            if k > 0:
                left = k - 1 if u + min_sep < ends else most
                table[u, k] += gained * (table[u + min_sep, left] if u + min_sep < z.size else 1.0)
    total = 0.0
    for u in range(first.size):
        total += first[u] * (table[u, most] if u < z.size else 1.0)
    return float(np.log(total))


@njit(cache=True, nogil=True)
def log_waiting_history(
    rng: np.random.Generator, z: Array, wait: Wait, kept: Array, block: int, table: Array, left: Array
) -> float:
    """The logarithm of a number between 0 and 1 whose mean is ``X_A / X'_A``: one history is drawn.

    Args:
        kept: ``exp(-couplings)``.
        table: that of :func:`waiting_products`.
        left: for the weights of opportunities; overwritten.
    """
    prob, min_sep, first = wait
    for u in range(z.size):
        left[u] = prob * np.exp(z[u])
    most = table.shape[1] - 1
    u, free = _drawn_start(rng, first, table), most
    total, product, ends = 0.0, 1.0, (u // block + 1) * block
    while u < z.size:
        if u >= ends:
            ends, free = (u // block + 1) * block, most
        without, taken = 1.0 - prob, left[u] if free > 0 else 0.0
        if u + 1 < z.size:
            without *= table[u + 1, free if u + 1 < ends else most]
        if free > 0 and u + min_sep < z.size:
            taken *= table[u + min_sep, free - 1 if u + min_sep < ends else most]
        product *= (without + taken) / table[u, free]
        if product < 1.0 / LARGEST_PRODUCT:
            total += np.log(product)
            product = 1.0
        if rng.random() * (without + taken) < taken:
            free -= 1
            for e in range(min_sep, min(kept.shape[1], z.size - u)):
                left[u + e] *= kept[u, e]
            u += min_sep
        else:
            u += 1
    return float(total + np.log(product))


@njit(cache=True, nogil=True)
def _drawn_start(rng: np.random.Generator, first: Array, table: Array) -> int:
    """The first opportunity at which the example is free, as X'_A weighs them."""
    if first.size == 1:
        return 0
    size, most = table.shape[0], table.shape[1] - 1
    total = 0.0
    for u in range(first.size):
        total += first[u] * (table[u, most] if u < size else 1.0)
    rest, u = rng.random() * total, 0
    while u < first.size - 1:
        rest -= first[u] * (table[u, most] if u < size else 1.0)
        if rest < 0.0:
            break
        u += 1
    return u


@njit(cache=True, nogil=True)
def draw_wait(rng: np.random.Generator, first: Array) -> int:
    """The first opportunity at which an example is free."""
    rest, u = rng.random(), 0
    while u < first.size - 1:
        rest -= first[u]
        if rest < 0.0:
            break
        u += 1
    return u


@njit(cache=True, nogil=True)
def _add_participations(rng: np.random.Generator, columns: Array, wait: Wait, y: Array) -> None:
    """The mean of one component of P."""
    prob, min_sep, first = wait
    u = draw_wait(rng, first)
    while u < y.size:
        if rng.random() < prob:
            add_column(columns, u, 1.0, y)
            u += min_sep
        else:
            u += 1


@njit(cache=True, nogil=True)
def draw_waiting_above(
    rng: np.random.Generator,
    overlaps: Overlaps,
    wait: Wait,
    chain: ChainTables,
    draws: Draws,
    out: Array,
) -> None:
    """As :func:`.history_kernels.draw_above`; counts are given up too as far as copies in the chain wait too little."""
    (columns, couplings, _), (prob, min_sep, first) = overlaps, wait
    steps = couplings.shape[0]
    y, counts = np.empty(steps), np.empty(steps)
    scratch = scratch_of(steps, draws)
    starts = np.cumsum(first * (1.0 - prob) ** -np.arange(first.size))
    starts /= starts[-1]
    law, shares = law_of(steps, chain), np.empty((0, 0))
    for sample in range(out.shape[0]):
        given = rng.random() < draws.share
        if given:
            if not draw_kept_counts(rng, chain, couplings, min_sep, starts, shares, law, counts):
                out[sample] = -ENDLESS, 0.0, 0.0
                continue
            for t in range(steps):
                y[t] = rng.standard_normal()
            for u in range(steps):
                if counts[u] > 0.0:
                    add_column(columns, u, counts[u], y)
        estimate(rng, overlaps, wait, draws, given, y, scratch, out[sample])


@njit(cache=True, nogil=True)
def draw_waiting_tuples(
    rng: np.random.Generator,
    overlaps: Overlaps,
    wait: Wait,
    order: int,
    cap: float,
    draws: Draws,
    out: Array,
) -> None:
    """As :func:`draw_waiting_above` with counts of so many independent histories in place of a chain.

    They are kept with the chance ``min(1, e^(s - cap))``, s what their participations have in common.
    """
    steps = overlaps.couplings.shape[0]
    y, counts = np.empty(steps), np.empty(steps)
    scratch = scratch_of(steps, draws)
    for sample in range(out.shape[0]):
        given = rng.random() < draws.share
        if given:
            common = draw_tuple(rng, overlaps, wait, order, counts, y)
            if rng.random() >= np.exp(min(common - cap, 0.0)):
                out[sample] = -ENDLESS, 0.0, 0.0
                continue
            for t in range(steps):
                y[t] += rng.standard_normal()
        estimate(rng, overlaps, wait, draws, given, y, scratch, out[sample])


@njit(cache=True, nogil=True)
def draw_tuple(
    rng: np.random.Generator,
    overlaps: Overlaps,
    wait: Wait,
    order: int,
    counts: Array,
    mean: Array,
) -> float:
    """The numbers of participations of so many histories, the mean of the outputs, and what pairs of them share.

    The last is ``(|mean|^2 - sum_u counts_u |c_u|^2) / 2``. O(participations w).
    """
    columns, couplings, _ = overlaps
    counts[:] = 0.0
    mean[:] = 0.0
    for _ in range(order):
        walk(rng, draw_wait(rng, wait.first), wait.prob, wait.min_sep, counts)
    common = 0.0
    for u in range(counts.size):
        if counts[u] > 0.0:
            add_column(columns, u, counts[u], mean)
            common -= counts[u] * couplings[u, 0]
    for t in range(mean.size):
        common += mean[t] * mean[t]
    return 0.5 * common


@njit(cache=True, nogil=True)
def walk(rng: np.random.Generator, u: int, prob: float, min_sep: int, counts: Array) -> None:
    """Add the participations of an example that is free at opportunity u, from there on. O(participations)."""
    log_stay = np.log1p(-prob)
    while u < counts.size:
        tails = np.floor(np.log1p(-rng.random()) / log_stay)
        if tails >= counts.size - u:
            break
        u += int(tails)
        counts[u] += 1.0
        u += min_sep


@njit(cache=True, nogil=True)
def scratch_of(steps: int, draws: Draws) -> tuple[Array, Array, Array, Array]:
    """For :func:`estimate`."""
    return np.empty(steps), np.empty(steps), np.empty((steps, draws.limit + 1)), np.empty(draws.histories)


@njit(cache=True, nogil=True)
def estimate(
    rng: np.random.Generator,
    overlaps: Overlaps,
    wait: Wait,
    draws: Draws,
    given: bool,
    y: Array,
    scratch: tuple[Array, Array, Array, Array],
    out: Array,
) -> None:
    """Logs of an estimate of X_A, of ``X'_A`` and of F, in ``out``; of outputs y if they are ``given``, else of F's."""
    (columns, couplings, kept), (prob, min_sep, first) = overlaps, wait
    z, left, table, found = scratch
    out[2] = filtered(rng, columns, draws.rates, not given, y)
    exponents(columns, couplings, y, z)
    out[1] = waiting_products(z, prob, min_sep, first, draws.block, table)
    for i in range(found.size):
        found[i] = log_waiting_history(rng, z, wait, kept, draws.block, table, left)
    top = found.max()
    out[0] = out[1] + top + np.log(np.exp(found - top).mean())


@njit(cache=True, nogil=True)
def draw_waiting_below(
    rng: np.random.Generator,
    overlaps: Overlaps,
    wait: Wait,
    rates: Array,
    share: float,
    out: Array,
) -> None:
    """As :func:`.history_kernels.draw_below`."""
    (columns, couplings, _), (prob, min_sep, first) = overlaps, wait
    steps = couplings.shape[0]
    y, z = np.empty(steps), np.empty(steps)
    for sample in range(out.shape[0]):
        if rng.random() < share:
            out[sample, 1] = filtered(rng, columns, rates, True, y)
        else:
            for t in range(steps):
                y[t] = rng.standard_normal()
            _add_participations(rng, columns, wait, y)
            out[sample, 1] = filtered(rng, columns, rates, False, y)
        exponents(columns, couplings, y, z)
        out[sample, 0] = log_waiting_mean_field(z, couplings, prob, min_sep, first)


@njit(cache=True, nogil=True)
def draw_waiting_add(
    rng: np.random.Generator,
    overlaps: Overlaps,
    wait: Wait,
    beta: float,
    mean: Array,
    out: Array,
) -> None:
    """As :func:`.history_kernels.draw_add`."""
    (columns, couplings, _), (prob, min_sep, first) = overlaps, wait
    y, z = np.empty(mean.size), np.empty(couplings.shape[0])
    for sample in range(out.shape[0]):
        total = 0.0
        for t in range(mean.size):
            y[t] = rng.standard_normal() - beta * mean[t]
            total += mean[t] * y[t]
        exponents(columns, couplings, y, z)
        out[sample, 0] = log_waiting_mean_field(z, couplings, prob, min_sep, first)
        out[sample, 1] = total
