"""Numba kernels for strategy matrices of many bands: bounds on the ratio in place of its 2^bands patterns.

``columns[u, d]`` is what a participation at opportunity u adds to row ``u + d``, in units of sigma, and
``couplings[u, e] = <c_u, c_(u+e)>``. All of them are at least 0.

Proof: docs/theory/monte-carlo/many-bands.md.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hockeystick.monte_carlo.subsets.chain_kernels import add_column, draw_counts, log_excess

Array = NDArray[np.float64]

LARGEST_PRODUCT = 1e200
ENDLESS = 1e4
"""A loss above, or minus it below, every epsilon that is asked for."""


@njit(cache=True, nogil=True)
def filtered(rng: np.random.Generator, columns: Array, rate: float, drawn: bool, y: Array) -> float:
    """``log F`` of outputs y, where F is the density, relative to Q, of rows drawn one after the other.

    Given the rows before it, a row is normal around the sum of the columns so far, each times the chance that its
    opportunity was taken as its own row tells it, with its own column added with the chance ``rate``. With ``drawn``
    the rows are drawn, else they are given.
    """
    means = np.zeros(y.size)
    total = 0.0
    for t in range(y.size):
        mean = means[t]
        moved = mean + columns[t, 0]
        if drawn:
            y[t] = (moved if rng.random() < rate else mean) + rng.standard_normal()
        gained = rate * np.exp(columns[t, 0] * (y[t] - 0.5 * (mean + moved)))
        both = 1.0 - rate + gained
        total += mean * (y[t] - 0.5 * mean) + np.log(both)
        chance = gained / both
        for d in range(min(columns.shape[1], y.size - t)):
            means[t + d] += chance * columns[t, d]
    return total


@njit(cache=True, nogil=True)
def exponents(columns: Array, couplings: Array, y: Array, out: Array) -> None:
    """``z_u = <c_u, y> - |c_u|^2 / 2``, shape (opportunities,)."""
    for u in range(out.size):
        total = 0.0
        for d in range(min(columns.shape[1], y.size - u)):
            total += columns[u, d] * y[u + d]
        out[u] = total - 0.5 * couplings[u, 0]


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
def limited_products(z: Array, prob: float, block: int, table: Array) -> float:
    """``log X'_A``, and in ``table[u, k]`` what a block makes of it from u on with at most k participations.

    Opportunities ``block m, ..., block m + block - 1`` are block m, and in each of them an example takes part at most
    ``table.shape[1] - 1`` times. Shape of the table: (opportunities, limit + 1).
    """
    total, most = 0.0, table.shape[1] - 1
    for u in range(z.size - 1, -1, -1):
        gained = prob * np.exp(z[u])
        last = u == z.size - 1 or (u + 1) % block == 0
        for k in range(most + 1):
            table[u, k] = (1.0 - prob) * (1.0 if last else table[u + 1, k])
            if k > 0:
                table[u, k] += gained * (1.0 if last else table[u + 1, k - 1])
        if u % block == 0:
            total += np.log(table[u, most])
    return total


@njit(cache=True, nogil=True)
def log_history(
    rng: np.random.Generator, z: Array, prob: float, kept: Array, block: int, table: Array, left: Array
) -> float:
    """The logarithm of a number between 0 and 1 whose mean is ``X_A / X'_A``: one history is drawn.

    Args:
        kept: ``exp(-couplings)``.
        table: that of :func:`limited_products`.
        left: for the weights of opportunities; overwritten.
    """
    for u in range(z.size):
        left[u] = prob * np.exp(z[u])
    total, product, most = 0.0, 1.0, table.shape[1] - 1
    free = most
    for u in range(z.size):
        if u % block == 0:
            free = most
        last = u == z.size - 1 or (u + 1) % block == 0
        without = (1.0 - prob) * (1.0 if last else table[u + 1, free])
        taken = 0.0
        if free > 0:
            taken = left[u] * (1.0 if last else table[u + 1, free - 1])
        product *= (without + taken) / table[u, free]
        if product < 1.0 / LARGEST_PRODUCT:
            total += np.log(product)
            product = 1.0
        if rng.random() * (without + taken) < taken:
            free -= 1
            for e in range(1, min(kept.shape[1], z.size - u)):
                left[u + e] *= kept[u, e]
    return float(total + np.log(product))


@njit(cache=True, nogil=True)
def draw_above(
    rng: np.random.Generator,
    columns: Array,
    couplings: Array,
    prob: float,
    chain: tuple[Array, ...],
    decay: float,
    block: int,
    limit: int,
    rate: float,
    share: float,
    histories: int,
    out: Array,
) -> None:
    """Fill ``out``, shape (samples, 3), with the logs of an estimate of X_A, of ``X'_A`` and of F.

    Outputs are those of the chain of counts with the chance ``share``, else those of F. Counts are given up with the
    chance that leaves them their own weight; their sample then has the loss ``-ENDLESS`` and no value. The estimate is
    the mean of ``histories`` independent ones, each with mean X_A given the output.
    """
    steps = couplings.shape[0]
    y, z, left, table = np.empty(steps), np.empty(steps), np.empty(steps), np.empty((steps, limit + 1))
    kept, found, counts = np.exp(-couplings), np.empty(histories), np.empty(steps)
    for sample in range(out.shape[0]):
        if rng.random() < share:
            draw_counts(rng, chain, decay, counts)
            if rng.random() > np.exp(-log_excess(counts, couplings, chain, decay)):
                out[sample] = -ENDLESS, 0.0, 0.0
                continue
            for t in range(steps):
                y[t] = rng.standard_normal()
            for u in range(steps):
                if counts[u] > 0.0:
                    add_column(columns, u, counts[u], y)
            out[sample, 2] = filtered(rng, columns, rate, False, y)
        else:
            out[sample, 2] = filtered(rng, columns, rate, True, y)
        exponents(columns, couplings, y, z)
        out[sample, 1] = limited_products(z, prob, block, table)
        for i in range(histories):
            found[i] = log_history(rng, z, prob, kept, block, table, left)
        top = found.max()
        out[sample, 0] = out[sample, 1] + top + np.log(np.exp(found - top).mean())


@njit(cache=True, nogil=True)
def draw_below(
    rng: np.random.Generator, columns: Array, couplings: Array, prob: float, rate: float, share: float, out: Array
) -> None:
    """Fill ``out``, shape (samples, 2), with the logs of a lower bound on X and of F.

    Outputs are those of F with the chance ``share``, else those of P.
    """
    steps = couplings.shape[0]
    y, z = np.empty(steps), np.empty(steps)
    for sample in range(out.shape[0]):
        if rng.random() < share:
            out[sample, 1] = filtered(rng, columns, rate, True, y)
        else:
            for t in range(steps):
                y[t] = rng.standard_normal()
            for u in range(steps):
                if rng.random() < prob:
                    add_column(columns, u, 1.0, y)
            out[sample, 1] = filtered(rng, columns, rate, False, y)
        exponents(columns, couplings, y, z)
        out[sample, 0] = log_mean_field(z, couplings, prob)


@njit(cache=True, nogil=True)
def draw_add(
    rng: np.random.Generator,
    columns: Array,
    couplings: Array,
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
        exponents(columns, couplings, y, z)
        out[sample, 0] = log_mean_field(z, couplings, prob)
        out[sample, 1] = total
