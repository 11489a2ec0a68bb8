"""Numba kernels for strategy matrices of many bands: bounds on the ratio in place of its 2^bands patterns.

``columns[u, d]`` is what a participation at opportunity u adds to row ``u + d``, in units of sigma; the last row of
``columns`` stands for all opportunities from its own on, and what is beyond the last row of outputs is cut off.
``couplings[u, e]`` is ``<c_u, c_(u+e)>``. All of them are at least 0. ``chances[j]`` is the chance of j participations
at an opportunity: 0 or 1 for an example, up to k for a user with k examples.

Proof: docs/theory/monte-carlo/many-bands.md.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hockeystick.monte_carlo.histories.chain_kernels import ChainTables, add_column
from hockeystick.monte_carlo.histories.kept_counts import draw_kept_counts, law_of

Array = NDArray[np.float64]

LARGEST_PRODUCT = 1e200
ENDLESS = 1e4
"""A loss above, or minus it below, every epsilon that is asked for."""


class Overlaps(NamedTuple):
    """The columns, their inner products, and ``exp(-couplings)``, what a participation leaves of later weights."""

    columns: Array
    couplings: Array
    kept: Array


class Draws(NamedTuple):
    """How upper bounds draw their outputs, and what they estimate from each.

    Attributes:
        block, limit: at most so many participations in each block of opportunities.
        rates: of the filtered outputs, the chances of numbers of participations.
        share: of outputs that are drawn from counts.
        histories: independent estimates for each output.
    """

    block: int
    limit: int
    rates: Array
    share: float
    histories: int


@njit(cache=True, nogil=True)
def draw_number(rng: np.random.Generator, chances: Array) -> int:
    """A number of participations at an opportunity."""
    rest, number = rng.random(), chances.size - 1
    while number > 0:
        rest -= chances[number]
        if rest < 0.0:
            break
        number -= 1
    return number


@njit(cache=True, nogil=True)
def weigh(chances: Array, ratio: float, square: float) -> tuple[float, float]:
    """The sum of ``chances[j] ratio^j exp(-j (j - 1) square / 2)``, and the mean of j with these weights."""
    gained = chances[1] * ratio
    both = chances[0] + gained
    if chances.size > 2:
        weight, again = ratio, ratio
        for number in range(2, chances.size):
            again *= np.exp(-square)
            weight *= again
            both += chances[number] * weight
            gained += number * chances[number] * weight
    return both, gained / both


@njit(cache=True, nogil=True)
def filtered(rng: np.random.Generator, columns: Array, rates: Array, drawn: bool, y: Array) -> float:
    """``log F`` of outputs y, where F is the density, relative to Q, of rows drawn one after the other.

    Given the rows before it, a row is normal around the sum of the columns so far, each times the mean number of its
    participations as its own row tells it, with its own column added as often as a draw from ``rates`` says. With
    ``drawn`` the rows are drawn, else they are given.
    """
    means = np.zeros(y.size)
    total = 0.0
    for t in range(y.size):
        column = columns[min(t, columns.shape[0] - 1)]
        mean, own = means[t], column[0]
        if drawn:
            y[t] = mean + draw_number(rng, rates) * own + rng.standard_normal()
        both, number = weigh(rates, np.exp(own * (y[t] - 0.5 * (mean + (mean + own)))), own * own)
        total += mean * (y[t] - 0.5 * mean) + np.log(both)
        for d in range(min(column.size, y.size - t)):
            means[t + d] += number * column[d]
    return total


@njit(cache=True, nogil=True)
def exponents(columns: Array, couplings: Array, y: Array, out: Array) -> None:
    """``z_u = <c_u, y> - |c_u|^2 / 2``, shape (opportunities,)."""
    if columns.shape[0] == 1:  # the same sums in an order that vector instructions take
        out[:] = 0.0
        for d in range(min(columns.shape[1], y.size)):
            entry = columns[0, d]
            for u in range(y.size - d):
                out[u] += entry * y[u + d]
        for u in range(out.size):
            out[u] -= 0.5 * couplings[u, 0]
        return
    for u in range(out.size):
        total = 0.0
        for d in range(min(columns.shape[1], y.size - u)):
            total += columns[u, d] * y[u + d]
        out[u] = total - 0.5 * couplings[u, 0]


@njit(cache=True, nogil=True)
def log_mean_field(z: Array, couplings: Array, chances: Array) -> float:
    """At most log X: what earlier participations take off an exponent is replaced by its mean given the past."""
    fields = np.zeros(z.size)
    total, product = 0.0, 1.0
    for u in range(z.size):
        both, number = weigh(chances, np.exp(z[u] - fields[u]), couplings[u, 0])
        product *= both
        if product > LARGEST_PRODUCT or product < 1.0 / LARGEST_PRODUCT:
            total += np.log(product)
            product = 1.0
        field, coupling = fields[u + 1 :], couplings[u, 1:]
        for e in range(min(coupling.size, field.size)):
            field[e] += number * coupling[e]
    return float(total + np.log(product))


@njit(cache=True, nogil=True)
def limited_products(z: Array, squares: Array, chances: Array, block: int, table: Array) -> float:
    """``log X'_A``, and in ``table[u, k]`` what a block makes of it from u on with at most k participations.

    Opportunities ``block m, ..., block m + block - 1`` are block m, and in each of them there are at most
    ``table.shape[1] - 1`` participations. Shape of the table: (opportunities, limit + 1). ``squares`` are ``|c_u|^2``.
    """
    total, most = 0.0, table.shape[1] - 1
    for u in range(z.size - 1, -1, -1):
        last = u == z.size - 1 or (u + 1) % block == 0
        for k in range(most + 1):
            table[u, k] = chances[0] * (1.0 if last else table[u + 1, k])
        weight, again = 1.0, np.exp(z[u])
        for number in range(1, min(chances.size - 1, most) + 1):
            weight *= again
            if number + 1 < chances.size:
                again *= np.exp(-squares[u])
            gained = chances[number] * weight
            for k in range(number, most + 1):
                table[u, k] += gained * (1.0 if last else table[u + 1, k - number])
        if u % block == 0:
            total += np.log(table[u, most])
    return total


@njit(cache=True, nogil=True)
def log_history(
    rng: np.random.Generator, z: Array, chances: Array, kept: Array, block: int, table: Array, left: Array
) -> float:
    """The logarithm of a number between 0 and 1 whose mean is ``X_A / X'_A``: one history is drawn.

    Args:
        kept: ``exp(-couplings)``.
        table: that of :func:`limited_products`.
        left: for the weights of opportunities; overwritten.
    """
    for u in range(z.size):
        left[u] = np.exp(z[u])
    total, product, most = 0.0, 1.0, table.shape[1] - 1
    free, terms = most, np.empty(chances.size)
    for u in range(z.size):
        if u % block == 0:
            free = most
        last = u == z.size - 1 or (u + 1) % block == 0
        largest = min(chances.size - 1, free)
        weight, again, both = 1.0, left[u], 0.0
        for number in range(largest + 1):
            terms[number] = chances[number] * weight * (1.0 if last else table[u + 1, free - number])
            both += terms[number]
            weight *= again
            if number + 1 < largest:
                again *= kept[u, 0]
        product *= both / table[u, free]
        if product < 1.0 / LARGEST_PRODUCT:
            total += np.log(product)
            product = 1.0
        rest, number = rng.random() * both, largest
        while number > 0:
            rest -= terms[number]
            if rest < 0.0:
                break
            number -= 1
        free -= number
        for _ in range(number):
            for e in range(1, min(kept.shape[1], z.size - u)):
                left[u + e] *= kept[u, e]
    return float(total + np.log(product))


@njit(cache=True, nogil=True)
def draw_above(
    rng: np.random.Generator,
    overlaps: Overlaps,
    chances: Array,
    shares: Array,
    chain: ChainTables,
    draws: Draws,
    out: Array,
) -> None:
    """Fill ``out``, shape (samples, 3), with the logs of an estimate of X_A, of ``X'_A`` and of F.

    Outputs are those of the chain of counts with the chance ``share``, else those of F. Counts are given up with the
    chance that leaves them their own weight, for several coins that of tuples (``shares``); their sample then has the
    loss ``-ENDLESS`` and no value. The estimate is the mean of ``histories`` independent ones, each with mean X_A given
    the output.
    """
    (columns, couplings, kept), (block, limit, rates, share, histories) = overlaps, draws
    steps = couplings.shape[0]
    y, z, left, table = np.empty(steps), np.empty(steps), np.empty(steps), np.empty((steps, limit + 1))
    found, counts = np.empty(histories), np.empty(steps)
    squares = couplings[:, 0].copy()
    law, nobody = law_of(steps, chain), np.empty(0)
    for sample in range(out.shape[0]):
        if rng.random() < share:
            if not draw_kept_counts(rng, chain, couplings, 1, nobody, shares, law, counts):
                out[sample] = -ENDLESS, 0.0, 0.0
                continue
            for t in range(steps):
                y[t] = rng.standard_normal()
            for u in range(steps):
                if counts[u] > 0.0:
                    add_column(columns, u, counts[u], y)
            out[sample, 2] = filtered(rng, columns, rates, False, y)
        else:
            out[sample, 2] = filtered(rng, columns, rates, True, y)
        exponents(columns, couplings, y, z)
        out[sample, 1] = limited_products(z, squares, chances, block, table)
        for i in range(histories):
            found[i] = log_history(rng, z, chances, kept, block, table, left)
        top = found.max()
        out[sample, 0] = out[sample, 1] + top + np.log(np.exp(found - top).mean())


@njit(cache=True, nogil=True)
def draw_below(
    rng: np.random.Generator, columns: Array, couplings: Array, chances: Array, rates: Array, share: float, out: Array
) -> None:
    """Fill ``out``, shape (samples, 2), with the logs of a lower bound on X and of F.

    Outputs are those of F with the chance ``share``, else those of P.
    """
    steps = couplings.shape[0]
    y, z = np.empty(steps), np.empty(steps)
    for sample in range(out.shape[0]):
        if rng.random() < share:
            out[sample, 1] = filtered(rng, columns, rates, True, y)
        else:
            for t in range(steps):
                y[t] = rng.standard_normal()
            for u in range(steps):
                number = draw_number(rng, chances)
                if number > 0:
                    add_column(columns, u, number, y)
            out[sample, 1] = filtered(rng, columns, rates, False, y)
        exponents(columns, couplings, y, z)
        out[sample, 0] = log_mean_field(z, couplings, chances)


@njit(cache=True, nogil=True)
def draw_add(
    rng: np.random.Generator,
    columns: Array,
    couplings: Array,
    chances: Array,
    beta: float,
    mean: Array,
    out: Array,
) -> None:
    """Fill ``out``, shape (samples, 2), with a lower bound on log X and ``<mean, y>`` of ``y = z - beta mean``."""
    y, z = np.empty(mean.size), np.empty(couplings.shape[0])
    for sample in range(out.shape[0]):
        total = 0.0
        for t in range(mean.size):
            y[t] = rng.standard_normal() - beta * mean[t]
            total += mean[t] * y[t]
        exponents(columns, couplings, y, z)
        out[sample, 0] = log_mean_field(z, couplings, chances)
        out[sample, 1] = total
