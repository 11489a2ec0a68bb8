"""Kernels of the proposals for renewal mixtures: outputs of several copies at once, and the densities at them."""

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.moments.copies.renewal import Table, weigh_moves
from hockeystick.monte_carlo.arrays import Array, Integers
from hockeystick.monte_carlo.draws import draw_noise
from hockeystick.monte_carlo.renewal.kernels import (
    Recursion,
    Workspace,
    add_column,
    correlate,
    log_sum,
    workspace,
)

Densities = tuple[Recursion, Recursion, Recursion]
"""Of X, of Xt and of a chain; their columns are the same."""


@kernel(inline="always")
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


@kernel(inline="always")
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


@kernel(inline="always")
def draw_participations(rng: np.random.Generator, steps: Integers, counts: Integers, terms: Array, table: Table) -> int:
    """Draw at which steps how many copies take part, in ascending order; return the number of such steps.

    A step costs nothing while all copies are available: the next event is found by bisection.
    """
    cumulative, survival, values, copies = table.cumulative, table.survival, table.values, table.copies
    last = values.shape[0]
    start = min(int(np.searchsorted(cumulative, rng.random(), side="right")), cumulative.size - 1)
    step, state, visited = table.first_steps[start], table.first_states[start], 0
    while step < last:
        least = 0
        if state == 0:
            level = survival[step] + np.log1p(-rng.random())
            low, high = step, last  # survival[low] >= level; the event is at the last such step
            while high - low > 1:
                middle = (low + high) // 2
                if survival[middle] >= level:
                    low = middle
                else:
                    high = middle
            if low == last - 1 and survival[last] >= level:
                break
            step, least = low, 1
        most = weigh_moves(terms, step, state, values, table.log_skip, table.log_takes, table.lagged, copies)
        largest = terms[least : most + 1].max()
        total = 0.0
        for taken in range(least, most + 1):
            total += np.exp(terms[taken] - largest)
        left = rng.random() * total
        taken = least
        while taken < most:
            left -= np.exp(terms[taken] - largest)
            if left < 0.0:
                break
            taken += 1
        if taken > 0:
            steps[visited], counts[visited] = step, taken
            visited += 1
        step, state = step + copies.jumps[state, taken], copies.targets[state, taken]
    return visited


@kernel
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
        draw_noise(rng, outputs[:length])
        for j in range(visited):
            add_column(exact.taps, steps[j], shifts[j], length, outputs)
        log_densities(outputs, densities, mixed, work, out[sample])
