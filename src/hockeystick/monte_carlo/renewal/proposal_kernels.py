"""Kernels of the proposals for renewal mixtures: outputs of several copies at once, and the densities at them."""

import numpy as np
from numba import njit

from hockeystick.monte_carlo.arrays import Array, Integers
from hockeystick.monte_carlo.renewal.kernels import (
    Recursion,
    Workspace,
    add_column,
    correlate,
    log_sum,
    workspace,
)
from hockeystick.monte_carlo.renewal.proposal_tables import Table, draw_participations

Densities = tuple[Recursion, Recursion, Recursion]
"""Of X, of Xt and of a chain; their columns are the same."""


@njit(cache=True, nogil=True, inline="always")
def log_densities(outputs: Array, densities: Densities, mixed: bool, work: Workspace, out: Array) -> None:
    """Fill ``out`` with log X, log Xt and, where mixed, the log-density of the chain relative to Q, at one output.

    Args:
        outputs: in units of the noise, shape (n + p,), the last p entries zero.
    """
    exact, relaxed, chain = densities
    correlate(outputs, exact.taps, work.products)
    out[0] = log_sum(exact, work)
    out[1] = log_sum(relaxed, work) if relaxed.min_sep < exact.min_sep else out[0]
    out[2] = log_sum(chain, work) if mixed else -np.inf


@njit(cache=True, nogil=True, inline="always")
def draw_chain(rng: np.random.Generator, steps: Integers, shifts: Array, length: int, chain: Recursion) -> int:
    """Draw the participations of a cold chain, in ascending order, with their shifts; return their number."""
    rate = -np.expm1(chain.log_stay)
    visited = 0
    step = 0.0
    while True:
        step += np.floor(np.log1p(-rng.random()) / chain.log_stay)
        if step >= length:
            return visited
        left = rng.random() * rate
        kind = 0
        while kind < chain.times.size - 1:
            left -= np.exp(chain.log_weights[kind])
            if left < 0.0:
                break
            kind += 1
        steps[visited], shifts[visited] = int(step), chain.times[kind]
        visited += 1
        step += chain.min_sep


@njit(cache=True, nogil=True)
def draw_tilted(
    rng: np.random.Generator, densities: Densities, table: Table, order: int, share: float, out: Array
) -> None:
    """Fill ``out``, shape (samples, 3), with log X, log Xt and the log-density of the chain, which is -inf without one.

    Outputs are those of ``Xt^order / Z`` with the chance ``share``, else of the chain.
    """
    exact, _, chain = densities
    length, bands = exact.half_squares.size, exact.taps.shape[0]
    work, outputs = workspace(exact), np.zeros(length + bands)
    steps, shifts = np.empty(order * length, np.int64), np.empty(order * length)
    counts = np.empty(order * length, np.int64)
    terms = np.empty(order + 1)
    mixed = share < 1.0
    for sample in range(out.shape[0]):
        if mixed and rng.random() >= share:
            visited = draw_chain(rng, steps, shifts, length, chain)
        else:
            visited = draw_participations(rng, steps, counts, terms, table)
            shifts[:visited] = counts[:visited]
        for i in range(length):
            outputs[i] = rng.standard_normal()
        for j in range(visited):
            add_column(exact.taps, steps[j], shifts[j], length, outputs)
        log_densities(outputs, densities, mixed, work, out[sample])
