"""Numba kernels that draw outputs, and estimate from each what proposals weigh it by: for any automaton.

Outputs of upper bounds are those of the *counts* of several histories, which a source draws: a chain that dominates
their weight, or the histories themselves. A source is a named tuple of what its counts are drawn from, one of SOURCES.

Proof: docs/theory/monte-carlo/many-bands.md.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from hockeystick.compiling import kernel
from hockeystick.moments.copies.fields import ChainTables
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.draws import draw_moved, draw_noise
from hockeystick.monte_carlo.far.kept_counts import Law, draw_kept_counts
from hockeystick.monte_carlo.far.kernels import (
    Overlaps,
    add_column,
    exponents,
    filtered,
    log_history,
    log_mean_field,
    products,
)
from hockeystick.monte_carlo.far.linked_kernels import (
    LinkedHistories,
    LinkedVisits,
    draw_linked_tuple,
    draw_linked_visits,
)
from hockeystick.monte_carlo.far.visits import draw_start, draw_visits, walk
from hockeystick.monte_carlo.weight_bounds import ENDLESS
from hockeystick.pairs.visits import Edges


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


class Chained(NamedTuple):
    """Counts of the chain, given up with the chance that leaves them their own weight: :func:`.draw_kept_counts`."""

    chain: ChainTables
    min_sep: int
    starts: Array
    shares: Array
    law: Law


class Tupled(NamedTuple):
    """Counts of so many independent histories that wait, kept with the chance ``min(1, e^(s - cap))``.

    Here s is what their participations have in common; ``mean`` is overwritten.
    """

    order: int
    cap: float
    mean: Array


class Scratch(NamedTuple):
    """What is overwritten for every sample: outputs, exponents, weights, table, its units, terms and estimates."""

    y: Array
    z: Array
    odds: Array
    left: Array
    table: Array
    units: Array
    terms: Array
    estimates: Array


@kernel
def draw_chained(rng: np.random.Generator, overlaps: Overlaps, edges: Edges, source: Chained, counts: Array) -> bool:
    """As :func:`draw_counts`."""
    chain, min_sep, starts, shares, law = source
    return bool(draw_kept_counts(rng, chain, overlaps.couplings, min_sep, starts, shares, law, counts))


@kernel
def draw_tupled(rng: np.random.Generator, overlaps: Overlaps, edges: Edges, source: Tupled, counts: Array) -> bool:
    """As :func:`draw_counts`."""
    common = draw_tuple(rng, overlaps, edges, source.order, counts, source.mean)
    return bool(rng.random() < np.exp(min(common - source.cap, 0.0)))


@kernel(inline="always")
def draw_tuple(
    rng: np.random.Generator, overlaps: Overlaps, edges: Edges, order: int, counts: Array, mean: Array
) -> float:
    """The numbers of participations of so many histories, the mean of the outputs, and what pairs of them share.

    The last is ``(|mean|^2 - sum_u counts_u |c_u|^2) / 2``. O(participations w).
    """
    columns, couplings, _ = overlaps
    counts[:] = 0.0
    mean[:] = 0.0
    for _ in range(order):
        walk(rng, draw_start(rng, edges.start), edges.chance[1], edges.jump[1], counts)
    common = 0.0
    for u in range(counts.size):
        if counts[u] > 0.0:
            add_column(columns, u, counts[u], mean)
            common -= counts[u] * couplings[u, 0]
    for t in range(mean.size):
        common += mean[t] * mean[t]
    return 0.5 * common


SOURCES: dict[type, Callable[..., Any]] = {
    Chained: draw_chained,
    Tupled: draw_tupled,
    LinkedHistories: draw_linked_tuple,
    LinkedVisits: draw_linked_visits,
}
"""How counts of each source are drawn."""


def draw_counts(rng: np.random.Generator, overlaps: Overlaps, edges: Edges, source: Any, counts: Array) -> bool:
    """Fill ``counts`` with the participations at every opportunity; False if they are given up."""
    return bool(SOURCES[type(source)](rng, overlaps, edges, source, counts))


@overload(draw_counts)
def _compiled(rng: Any, overlaps: Any, edges: Any, source: Any, counts: Any) -> Callable[..., Any]:
    """The one for the source's type."""
    draw = SOURCES[source.instance_class]

    def drawn(rng: Any, overlaps: Any, edges: Any, source: Any, counts: Any) -> Any:
        return draw(rng, overlaps, edges, source, counts)

    return drawn


@kernel
def draw_above(
    rng: np.random.Generator, overlaps: Overlaps, edges: Edges, source: Any, draws: Draws, out: Array
) -> None:
    """Fill ``out``, shape (samples, 3), with the logs of an estimate of X_A, of ``X'_A`` and of F.

    Outputs are those of the source's counts with the chance ``share``, else those of F. Counts that are given up have
    the loss ``-ENDLESS`` and no value. The estimate is the mean of ``histories`` independent ones, each with mean X_A
    given the output.
    """
    steps = overlaps.couplings.shape[0]
    counts, scratch = np.empty(steps), scratch_of(steps, edges, draws)
    for sample in range(out.shape[0]):
        given = rng.random() < draws.share
        if given and not draw_counts(rng, overlaps, edges, source, counts):
            out[sample] = -ENDLESS, 0.0, 0.0
            continue
        if given:
            draw_noise(rng, scratch.y)
            add_columns(overlaps.columns, counts, scratch.y)
        estimate(rng, overlaps, edges, draws, given, scratch, out[sample])


@kernel
def add_columns(columns: Array, counts: Array, y: Array) -> None:
    """Add so many participations at every opportunity."""
    for u in range(counts.size):
        if counts[u] > 0.0:
            add_column(columns, u, counts[u], y)


@kernel(inline="always")
def scratch_of(steps: int, edges: Edges, draws: Draws) -> Scratch:
    """For :func:`estimate`."""
    return Scratch(
        np.empty(steps),
        np.empty(steps),
        np.empty(steps),
        np.empty(steps),
        np.empty((steps, draws.limit + 1)),
        np.empty(((steps - 1) // draws.block + 1, 3)),
        np.empty(edges.chance.size),
        np.empty(draws.histories),
    )


@kernel(inline="always")
def estimate(
    rng: np.random.Generator, overlaps: Overlaps, edges: Edges, draws: Draws, given: bool, scratch: Scratch, out: Array
) -> None:
    """Logs of an estimate of X_A, of ``X'_A`` and of F, in ``out``; of outputs y if they are ``given``, else of F's."""
    (columns, couplings, kept), (y, z, odds, left, table, units, terms, estimates) = overlaps, scratch
    out[2] = filtered(rng, columns, draws.rates, not given, y)
    exponents(columns, couplings, y, z)
    for u in range(z.size):
        odds[u] = np.exp(z[u])
    out[1] = products(odds, kept, edges, draws.block, table, units)
    for i in range(estimates.size):
        left[:] = odds
        estimates[i] = log_history(rng, kept, edges, draws.block, (table, units), left, terms)
    top = estimates.max()
    out[0] = out[1] + top + np.log(np.exp(estimates - top).mean())


@kernel
def draw_below(
    rng: np.random.Generator, overlaps: Overlaps, edges: Edges, rates: Array, share: float, out: Array
) -> None:
    """Fill ``out``, shape (samples, 2), with the logs of a lower bound on X and of F.

    Outputs are those of F with the chance ``share``, else those of P.
    """
    columns, couplings, kept = overlaps
    steps = couplings.shape[0]
    y, z, counts, fields = np.empty(steps), np.empty(steps), np.empty(steps), fields_of(steps, edges)
    for sample in range(out.shape[0]):
        given = rng.random() >= share
        if given:
            draw_noise(rng, y)
            counts[:] = 0.0
            draw_visits(rng, edges, counts)
            add_columns(columns, counts, y)
        out[sample, 1] = filtered(rng, columns, rates, not given, y)
        exponents(columns, couplings, y, z)
        out[sample, 0] = log_mean_field(z, couplings, kept, edges, fields)


@kernel
def draw_add(rng: np.random.Generator, overlaps: Overlaps, edges: Edges, beta: float, mean: Array, out: Array) -> None:
    """Fill ``out``, shape (samples, 2), with a lower bound on log X and ``<mean, y>`` of ``y = z - beta mean``."""
    columns, couplings, kept = overlaps
    y, z, fields = np.empty(mean.size), np.empty(mean.size), fields_of(mean.size, edges)
    for sample in range(out.shape[0]):
        out[sample, 1] = draw_moved(rng, mean, beta, y)
        exponents(columns, couplings, y, z)
        out[sample, 0] = log_mean_field(z, couplings, kept, edges, fields)


@kernel
def fields_of(steps: int, edges: Edges) -> Array:
    """Room for :func:`.kernels.log_mean_field`."""
    return np.empty((edges.jump.max() // edges.stride, steps))
