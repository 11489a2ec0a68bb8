"""Numba kernels for strategy matrices of many bands: bounds on the ratio in place of its 2^bands patterns.

``columns[u, d]`` is what a participation at opportunity u adds to row ``every u + d``, in units of sigma, and
``couplings[u, e] = <c_u, c_(u+e)>``. All of them are at least 0.

Proof: docs/theory/monte-carlo/many-bands.md.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hockeystick.monte_carlo.subsets.count_kernels import log_chances

Array = NDArray[np.float64]

LARGEST_PRODUCT = 1e200


@njit(cache=True, nogil=True)
def chain_table(pulls: Array, own: Array, prob: float, copies: int, decay: float, nodes: Array) -> Array:
    """Logs of what the opportunities from u on make of the weight of counts, given the field at u.

    The weight of counts J is ``prod_u Pr[Binomial(copies, prob) = J_u] exp(own_u J_u (J_u - 1) / 2 + J_u h_u)``, with
    the field ``h_0 = 0`` and ``h_(u+1)`` one of the two nodes next to ``decay (h_u + pulls_u J_u)``, at random, with
    this mean. Shape (opportunities + 1, nodes); log Z is the first entry. O(opportunities nodes copies).

    Args:
        pulls, own: shape (opportunities,).
        nodes: ascending, from 0 to what no field exceeds.
    """
    opportunities, places = pulls.size, nodes.size
    chances = log_chances(prob, copies, copies + 1)
    table, terms = np.zeros((opportunities + 1, places)), np.empty(copies + 1)
    for u in range(opportunities - 1, -1, -1):
        for place in range(places):
            for count in range(copies + 1):
                low, high = table_value(table, u, place, count, pulls[u], decay, nodes)
                terms[count] = chances[count] + count * (nodes[place] + 0.5 * (count - 1) * own[u])
                terms[count] += max(low, high) + np.log1p(np.exp(-abs(low - high)))
            top = terms.max()
            table[u, place] = top + np.log(np.exp(terms - top).sum())
    return table


@njit(cache=True, nogil=True)
def table_value(
    table: Array, u: int, place: int, count: int, pull: float, decay: float, nodes: Array
) -> tuple[float, float]:
    """Logs of the parts of the weight after u in which the next field is the node below, and above, its mean."""
    below, share = split(decay * (nodes[place] + pull * count), nodes)
    low = np.log1p(-share) + table[u + 1, below] if share < 1.0 else -np.inf
    high = np.log(share) + table[u + 1, below + 1] if share > 0.0 else -np.inf
    return low, high


@njit(cache=True, nogil=True)
def split(field: float, nodes: Array) -> tuple[int, float]:
    """The node below a field, or the last but one, and the share of the node above it."""
    moved = field * (1.0 + 1e-12)  # more than the share loses by rounding
    below = min(int(np.sqrt(moved / nodes[-1]) * (nodes.size - 1)), nodes.size - 2)
    while below > 0 and nodes[below] > moved:
        below -= 1
    while below < nodes.size - 2 and nodes[below + 1] < moved:
        below += 1
    return below, min((moved - nodes[below]) / (nodes[below + 1] - nodes[below]), 1.0)


@njit(cache=True, nogil=True)
def add_chain(
    rng: np.random.Generator,
    columns: Array,
    every: int,
    chances: Array,
    decay: float,
    chain: tuple[Array, ...],
    y: Array,
) -> None:
    """Add the mean of one component of the chain of counts."""
    pulls, own, nodes, table = chain
    place = 0
    for u in range(pulls.size):
        rest = rng.random()
        count, below, share = 0, 0, 0.0
        while True:
            low, high = table_value(table, u, place, count, pulls[u], decay, nodes)
            both = max(low, high) + np.log1p(np.exp(-abs(low - high)))
            exponent = chances[count] + count * (nodes[place] + 0.5 * (count - 1) * own[u])
            rest -= np.exp(exponent + both - table[u, place])
            if rest < 0.0 or count == chances.size - 1:
                below, _ = split(decay * (nodes[place] + pulls[u] * count), nodes)
                share = np.exp(high - both)
                break
            count += 1
        place = below + 1 if rng.random() < share else below
        if count > 0:
            add_column(columns, every, u, float(count), y)


@njit(cache=True, nogil=True)
def add_column(columns: Array, every: int, u: int, times: float, y: Array) -> None:
    """Add a multiple of a column."""
    first = every * u
    for d in range(min(columns.shape[1], y.size - first)):
        y[first + d] += times * columns[u, d]


@njit(cache=True, nogil=True)
def filtered(rng: np.random.Generator, columns: Array, every: int, rate: float, drawn: bool, y: Array) -> float:
    """``log F`` of outputs y, where F is the density, relative to Q, of rows drawn one after the other.

    Given the rows before it, a row is normal around the sum of the columns so far, each times the chance that its
    opportunity was taken as its own row tells it; in the row of an opportunity its column is added with the chance
    ``rate``. With ``drawn`` the rows are drawn, else they are given.
    """
    means = np.zeros(y.size)
    total = 0.0
    for t in range(y.size):
        mean, u = means[t], t // every
        if t % every > 0 or u >= columns.shape[0]:
            if drawn:
                y[t] = mean + rng.standard_normal()
            total += mean * (y[t] - 0.5 * mean)
            continue
        moved = mean + columns[u, 0]
        if drawn:
            y[t] = (moved if rng.random() < rate else mean) + rng.standard_normal()
        gained = rate * np.exp(columns[u, 0] * (y[t] - 0.5 * (mean + moved)))
        both = 1.0 - rate + gained
        total += mean * (y[t] - 0.5 * mean) + np.log(both)
        chance = gained / both
        for d in range(min(columns.shape[1], y.size - t)):
            means[t + d] += chance * columns[u, d]
    return total


@njit(cache=True, nogil=True)
def exponents(columns: Array, couplings: Array, every: int, y: Array, out: Array) -> None:
    """``z_u = <c_u, y> - |c_u|^2 / 2``, shape (opportunities,)."""
    for u in range(out.size):
        first = every * u
        total = 0.0
        for d in range(min(columns.shape[1], y.size - first)):
            total += columns[u, d] * y[first + d]
        out[u] = total - 0.5 * couplings[u, 0]


@njit(cache=True, nogil=True)
def log_product(z: Array, prob: float) -> float:
    """``log X' = sum_u log(1 - p + p e^z_u)``, at least log X."""
    total, product = 0.0, 1.0
    for u in range(z.size):
        product *= 1.0 - prob + prob * np.exp(z[u])
        if product > LARGEST_PRODUCT or product < 1.0 / LARGEST_PRODUCT:
            total += np.log(product)
            product = 1.0
    return float(total + np.log(product))


@njit(cache=True, nogil=True)
def log_mean_field(z: Array, couplings: Array, prob: float) -> float:
    """At most log X: what earlier participations take off an exponent is replaced by its mean given the past."""
    fields = np.zeros(z.size)
    total, product = 0.0, 1.0
    for u in range(z.size):
        gained = prob * np.exp(z[u] - fields[u])
        both = 1.0 - prob + gained
        product *= both
        if product > LARGEST_PRODUCT or product < 1.0 / LARGEST_PRODUCT:
            total += np.log(product)
            product = 1.0
        chance = gained / both
        for e in range(1, min(couplings.shape[1], z.size - u)):
            fields[u + e] += chance * couplings[u, e]
    return float(total + np.log(product))


@njit(cache=True, nogil=True)
def log_history(rng: np.random.Generator, z: Array, couplings: Array, prob: float, fields: Array) -> float:
    """The logarithm of a positive number with mean X, at most ``X'``: one history of participations is drawn."""
    fields[:] = 0.0
    total, product = 0.0, 1.0
    for u in range(z.size):
        gained = prob * np.exp(z[u] - fields[u])
        both = 1.0 - prob + gained
        product *= both
        if product > LARGEST_PRODUCT or product < 1.0 / LARGEST_PRODUCT:
            total += np.log(product)
            product = 1.0
        if rng.random() * both < gained:
            for e in range(1, min(couplings.shape[1], z.size - u)):
                fields[u + e] += couplings[u, e]
    return float(total + np.log(product))


@njit(cache=True, nogil=True)
def draw_above(
    rng: np.random.Generator,
    steps: int,
    columns: Array,
    couplings: Array,
    every: int,
    prob: float,
    decay: float,
    chain: tuple[Array, ...],
    copies: int,
    rate: float,
    share: float,
    histories: int,
    out: Array,
) -> None:
    """Fill ``out``, shape (samples, 3), with the logs of an estimate of X, of ``X'`` and of F.

    Outputs are those of the chain of counts with the chance ``share``, else those of F. The estimate is the mean of
    ``histories`` independent ones, each with mean X given the output.
    """
    y, z, fields = np.empty(steps), np.empty(couplings.shape[0]), np.empty(couplings.shape[0])
    chances, found = log_chances(prob, copies, copies + 1), np.empty(histories)
    for sample in range(out.shape[0]):
        if rng.random() < share:
            for t in range(steps):
                y[t] = rng.standard_normal()
            add_chain(rng, columns, every, chances, decay, chain, y)
            out[sample, 2] = filtered(rng, columns, every, rate, False, y)
        else:
            out[sample, 2] = filtered(rng, columns, every, rate, True, y)
        exponents(columns, couplings, every, y, z)
        out[sample, 1] = log_product(z, prob)
        for i in range(histories):
            found[i] = log_history(rng, z, couplings, prob, fields)
        top = found.max()
        out[sample, 0] = top + np.log(np.exp(found - top).mean())


@njit(cache=True, nogil=True)
def draw_below(
    rng: np.random.Generator,
    steps: int,
    columns: Array,
    couplings: Array,
    every: int,
    prob: float,
    rate: float,
    share: float,
    out: Array,
) -> None:
    """Fill ``out``, shape (samples, 2), with the logs of a lower bound on X and of F.

    Outputs are those of F with the chance ``share``, else those of P.
    """
    y, z = np.empty(steps), np.empty(couplings.shape[0])
    for sample in range(out.shape[0]):
        if rng.random() < share:
            out[sample, 1] = filtered(rng, columns, every, rate, True, y)
        else:
            for t in range(steps):
                y[t] = rng.standard_normal()
            for u in range(couplings.shape[0]):
                if rng.random() < prob:
                    add_column(columns, every, u, 1.0, y)
            out[sample, 1] = filtered(rng, columns, every, rate, False, y)
        exponents(columns, couplings, every, y, z)
        out[sample, 0] = log_mean_field(z, couplings, prob)


@njit(cache=True, nogil=True)
def draw_add(
    rng: np.random.Generator,
    columns: Array,
    couplings: Array,
    every: int,
    prob: float,
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
        exponents(columns, couplings, every, y, z)
        out[sample, 0] = log_mean_field(z, couplings, prob)
        out[sample, 1] = total
