"""Kernels of the proposals for renewal mixtures: drawing outputs, and the densities of P and of the proposal at them.

Outputs are in units of the noise. With ``s_i = <c_i, y>`` and ``k_i = |c_i|^2``, a participation with shift a has the
likelihood ratio ``exp(a s_i - a^2 k_i / 2)``, and every density here is a recursion backwards over the steps,
``f_i = skip f_(i+1) + weight_i f_(i+separation)``, f = 1 beyond the end.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from hockeystick.monte_carlo.proposals import Array
from hockeystick.monte_carlo.renewal.proposal_tables import Indices, Table, draw_participations
from hockeystick.monte_carlo.sums import log_add

LARGEST_EXPONENT = 300.0
"""Recursions are done without logarithms only while no exponent is larger."""
LARGEST_SPREAD = 100.0
"""... and while steps that are one separation apart differ by no larger factor from skipping, ``(1-q)^-b``, in logs."""
_FAR = 1e100
"""Values beyond this, or below its inverse, are rescaled."""

Recursion = tuple[float, int, Array, Array, Array]
"""log of skip; separation; weights of a participation and their logs, shape (n,); starting weights, shape (L,)."""
Chain = tuple[float, Array, Array]
"""Its rate; its shifts and their probabilities, shape (types,)."""
Scratch = tuple[Array, Array, Array, Array]
"""Sizes n, n, n and n + b + 1."""


class Density(NamedTuple):
    """What the densities of P, of Xt and of the chain are computed from.

    Attributes:
        columns: shape (p, n).
        halves: ``k_i / 2``, shape (n,).
        exact, relaxed, boosted: the recursions of X, of Xt and of the chain, whose participations weigh 1 before their
            shift is drawn and which has a separation of its own.
        chain: its participations.
        polynomial: the chain's coefficients of the powers of ``e^(s_i / 2)``, shape (degree + 1, n).
        decays: ``e^(-k_i / 2)``, shape (n,).
        gentle: whether the parameters allow recursions without logarithms.
    """

    columns: Array
    halves: Array
    exact: Recursion
    relaxed: Recursion
    boosted: Recursion
    chain: Chain
    polynomial: Array
    decays: Array
    gentle: bool


@njit(cache=True, nogil=True)
def _scratch(length: int, separation: int) -> Scratch:
    return np.empty(length), np.empty(length), np.empty(length), np.empty(length + separation + 1)


@njit(cache=True, nogil=True)
def project(outputs: Array, columns: Array, products: Array) -> None:
    """``products[i] = sum_d columns[d, i] outputs[i + d]``; columns of shape (p, n), outputs of n + p - 1 or more."""
    steps = products.size
    products[:] = 0.0
    for lag in range(columns.shape[0]):
        row = columns[lag]
        for i in range(steps):
            products[i] += row[i] * outputs[i + lag]


@njit(cache=True, nogil=True)
def sum_renewals(weights: Array, skip: float, separation: int, starts: Array, values: Array) -> float:
    """log of ``sum_u starts[u] f_u``, from the weights themselves; ``values`` is scratch of n + separation + 1.

    Values are rescaled together when the newest is far from 1. Nothing that matters is lost to that while weights are
    below ``e^300`` and ``skip^-separation`` below ``e^100``, as then no two values one separation apart differ by
    more than e^410 or so.
    """
    steps = weights.size
    values[steps:] = 1.0
    scale = 0.0
    newest = 1.0
    for i in range(steps - 1, -1, -1):
        newest = skip * newest + weights[i] * values[i + separation]
        values[i] = newest
        if not 1.0 / _FAR < newest < _FAR:
            for j in range(i, i + separation + 1):
                values[j] /= newest
            scale += np.log(newest)
            newest = 1.0
    total = 0.0
    for u in range(starts.size):
        total += starts[u] * values[min(u, steps)]
    return float(scale + np.log(total))


@njit(cache=True, nogil=True)
def sum_log_renewals(log_weights: Array, log_skip: float, separation: int, starts: Array, values: Array) -> float:
    """The same from logarithms of the weights, for any size of them; slower."""
    steps = log_weights.size
    values[steps:] = 0.0
    for i in range(steps - 1, -1, -1):
        values[i] = log_add(log_skip + values[i + 1], log_weights[i] + values[i + separation])
    largest = values[: starts.size].max()
    total = 0.0
    for u in range(starts.size):
        total += starts[u] * np.exp(values[min(u, steps)] - largest)
    return float(largest + np.log(total))


@njit(cache=True, nogil=True)
def log_densities(outputs: Array, density: Density, mixed: bool, scratch: Scratch) -> tuple[float, float, float]:
    """log X, log Xt and, where mixed, the log-density of the chain relative to Q, at one output of n + p - 1 rows."""
    exact, relaxed, polynomial = density.exact, density.relaxed, density.polynomial
    products, ratios, weights, values = scratch
    project(outputs, density.columns, products)
    largest_shift = max(1.0, density.chain[1].max())
    if not density.gentle or largest_shift * max(products.max(), -products.min()) > LARGEST_EXPONENT:
        return _log_densities_in_logs(density, mixed, scratch)
    steps = products.size
    for i in range(steps):
        products[i] = np.exp(0.5 * products[i])  # the only exponential: all densities are polynomials of it
    for i in range(steps):
        ratios[i] = products[i] * products[i] * density.decays[i]
    log_x = _sum_scaled(ratios, exact, weights, values)
    log_relaxed = log_x
    if relaxed[1] < exact[1]:
        log_relaxed = _sum_scaled(ratios, relaxed, weights, values)
    log_chain = 0.0
    if mixed:
        ratios[:] = polynomial[-1]
        for power in range(polynomial.shape[0] - 2, -1, -1):
            row = polynomial[power]
            for i in range(steps):
                ratios[i] = ratios[i] * products[i] + row[i]
        log_chain = _sum_scaled(ratios, density.boosted, weights, values)
    return log_x, log_relaxed, log_chain


@njit(cache=True, nogil=True)
def _sum_scaled(ratios: Array, recursion: Recursion, weights: Array, values: Array) -> float:
    log_skip, separation, takes, _, starts = recursion
    for i in range(ratios.size):
        weights[i] = takes[i] * ratios[i]
    return sum_renewals(weights, np.exp(log_skip), separation, starts, values)


@njit(cache=True, nogil=True)
def _log_densities_in_logs(density: Density, mixed: bool, scratch: Scratch) -> tuple[float, float, float]:
    """The same from ``scratch[0] = s``, whatever its size."""
    halves, exact, relaxed, boosted = density.halves, density.exact, density.relaxed, density.boosted
    products, _, weights, values = scratch
    weights[:] = exact[3] + (products - halves)
    log_x = sum_log_renewals(weights, exact[0], exact[1], exact[4], values)
    log_relaxed = log_x
    if relaxed[1] < exact[1]:
        weights[:] = relaxed[3] + (products - halves)
        log_relaxed = sum_log_renewals(weights, relaxed[0], relaxed[1], relaxed[4], values)
    log_chain = 0.0
    if mixed:
        _, shifts, shares = density.chain
        for i in range(products.size):
            total = -np.inf
            for kind in range(shifts.size):
                term = np.log(shares[kind]) + shifts[kind] * products[i] - shifts[kind] ** 2 * halves[i]
                total = log_add(total, term)
            weights[i] = boosted[3][i] + total
        log_chain = sum_log_renewals(weights, boosted[0], boosted[1], boosted[4], values)
    return log_x, log_relaxed, log_chain


@njit(cache=True, nogil=True)
def draw_chain(
    rng: np.random.Generator, steps: Indices, shifts: Array, length: int, separation: int, chain: Chain
) -> int:
    """Draw the participations of a cold chain, in ascending order, with their shifts; return their number."""
    rate, kinds, shares = chain
    log_skip = np.log1p(-rate)
    found = 0
    step = 0.0
    while True:
        step += np.floor(np.log1p(-rng.random()) / log_skip)
        if step >= length:
            return found
        left = rng.random()
        kind = 0
        while kind < kinds.size - 1 and left >= shares[kind]:
            left -= shares[kind]
            kind += 1
        steps[found], shifts[found] = int(step), kinds[kind]
        found += 1
        step += separation


@njit(cache=True, nogil=True)
def draw_tilted(
    rng: np.random.Generator,
    log_weights: Array,
    losses: Array,
    density: Density,
    table: Table,
    order: int,
    share: float,
) -> None:
    """Fill both arrays with samples of ``share Xt^order / Z + (1 - share) chain``, in the direction remove."""
    columns, chain = density.columns, density.chain
    bands, length = columns.shape
    scratch, outputs = _scratch(length, density.exact[1]), np.zeros(length + bands - 1)
    steps, shifts = np.empty(order * length, np.int64), np.empty(order * length)
    counts = np.empty(order * length, np.int64)
    terms = np.empty(order + 1)
    mixed = share < 1.0
    for sample in range(losses.size):
        if mixed and rng.random() >= share:
            found = draw_chain(rng, steps, shifts, length, density.boosted[1], chain)
        else:
            found = draw_participations(rng, steps, counts, terms, table)
            shifts[:found] = counts[:found]
        for i in range(length):
            outputs[i] = rng.standard_normal()
        for j in range(found):
            for lag in range(min(bands, length - steps[j])):
                outputs[steps[j] + lag] += shifts[j] * columns[lag, steps[j]]
        log_x, log_relaxed, log_chain = log_densities(outputs, density, mixed, scratch)
        log_proposal = _join(order * log_relaxed - table.log_moment, log_chain, share)
        losses[sample] = log_x
        log_weights[sample] = log_x - log_proposal


@njit(cache=True, nogil=True)
def _join(first: float, second: float, share: float) -> float:
    """log of ``share e^first + (1 - share) e^second``."""
    if share == 1.0:
        return first
    return log_add(np.log(share) + first, np.log1p(-share) + second)


@njit(cache=True, nogil=True)
def draw_shifted(
    rng: np.random.Generator, log_weights: Array, losses: Array, density: Density, mean: Array, beta: float
) -> None:
    """Fill both arrays with samples of ``N(-beta mean, I)``, mean of shape (n,), in the direction add."""
    bands, length = density.columns.shape
    scratch, outputs = _scratch(length, density.exact[1]), np.zeros(length + bands - 1)
    square = np.dot(mean, mean)
    for sample in range(losses.size):
        for i in range(length):
            outputs[i] = rng.standard_normal() - beta * mean[i]
        log_x, _, _ = log_densities(outputs, density, False, scratch)
        losses[sample] = -log_x
        log_weights[sample] = beta * np.dot(mean, outputs[:length]) + 0.5 * beta * beta * square
