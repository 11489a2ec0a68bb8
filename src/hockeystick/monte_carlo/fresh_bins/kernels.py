"""Numba kernels for one visit in each epoch, with columns of any overlap: bounds on the ratio, and outputs of tuples.

Opportunities are steps, in epochs of ``bins``. Columns and couplings are those of :mod:`.history_kernels`.

Proof: docs/theory/monte-carlo/fresh-bins.md.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hockeystick.monte_carlo.forests.linked_kernels import draw_links
from hockeystick.monte_carlo.histories.chain_kernels import ChainTables, add_column, draw_counts
from hockeystick.monte_carlo.histories.history_kernels import ENDLESS, Overlaps, exponents, filtered
from hockeystick.monte_carlo.histories.kept_counts import PART, Law, begin, law_of, log_excess

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class VisitDraws(NamedTuple):
    """How outputs of upper bounds are drawn, and what is estimated from each.

    Attributes:
        rates: of the filtered outputs, the chances of numbers of visits.
        share: of outputs that are drawn from counts.
        histories: independent estimates for each output.
    """

    rates: Array
    share: float
    histories: int


@njit(cache=True, nogil=True)
def log_product(z: Array, bins: int) -> float:
    """``log X'``: the product over epochs of the mean of ``e^z``."""
    total = 0.0
    for first in range(0, z.size, bins):
        top = z[first : first + bins].max()
        total += top + np.log(np.exp(z[first : first + bins] - top).mean())
    return total


@njit(cache=True, nogil=True)
def log_visits(rng: np.random.Generator, z: Array, bins: int, kept: Array, left: Array) -> float:
    """The logarithm of a number between 0 and 1 whose mean is ``X / X'``: the visits of a run are drawn.

    Args:
        kept: ``exp(-couplings)``.
        left: for what earlier visits leave of ``e^z``; overwritten.
    """
    total = 0.0
    left[:] = 1.0
    for first in range(0, z.size, bins):
        top, whole, some = z[first : first + bins].max(), 0.0, 0.0
        for u in range(first, first + bins):
            weight = np.exp(z[u] - top)
            whole += weight
            left[u] *= weight
            some += left[u]
        total += np.log(some / whole)
        rest, chosen = rng.random() * some, first + bins - 1
        for u in range(first, first + bins):
            rest -= left[u]
            if rest < 0.0:
                chosen = u
                break
        for v in range(first + bins, min(chosen + kept.shape[1], z.size)):
            left[v] *= kept[chosen, v - chosen]
    return total


@njit(cache=True, nogil=True)
def log_mean_field(z: Array, couplings: Array, bins: int) -> float:
    """At most log X: what earlier visits take off an exponent is replaced by its mean given the past."""
    fields, weights = np.zeros(z.size), np.empty(bins)
    total = 0.0
    for first in range(0, z.size, bins):
        top = -np.inf
        for u in range(first, first + bins):
            top = max(top, z[u] - fields[u])
        mass = 0.0
        for place in range(bins):
            weights[place] = np.exp(z[first + place] - fields[first + place] - top)
            mass += weights[place]
        total += top + np.log(mass / bins)
        for place in range(bins):
            chance, u = weights[place] / mass, first + place
            for v in range(first + bins, min(u + couplings.shape[1], z.size)):
                fields[v] += chance * couplings[u, v - u]
    return total


@njit(cache=True, nogil=True)
def draw_kept(rng: np.random.Generator, chain: ChainTables, couplings: Array, law: Law, counts: Array) -> bool:
    """Draw counts, and say whether they are kept: with the chance that leaves them their own weight.

    As :func:`.kept_counts.draw_kept_counts`; the chain knows exactly who may visit, so fields alone are too large.
    """
    allowed = -np.log(1.0 - rng.random())
    excess, place, state, low, high = 0.0, 0, 0, 0, 0
    begin(law)
    for first in range(0, counts.size, PART):
        last = min(first + PART, counts.size)
        place, state = draw_counts(rng, chain, first, last, place, state, counts)
        heavier, low, high = log_excess(counts, couplings, chain, first, last, low, high, law)
        excess += heavier
        if excess > allowed:
            return False
    return True


@njit(cache=True, nogil=True)
def draw_above(
    rng: np.random.Generator,
    overlaps: Overlaps,
    bins: int,
    chain: ChainTables,
    draws: VisitDraws,
    out: Array,
) -> None:
    """Fill ``out``, shape (samples, 3), with the logs of an estimate of X, of ``X'`` and of F.

    Outputs are those of the chain of counts with the chance ``share``, else those of F. Counts that are given up have
    the loss ``-ENDLESS`` and no value. The estimate is the mean of ``histories`` independent ones, each with mean X
    given the output.
    """
    couplings, steps = overlaps.couplings, overlaps.couplings.shape[0]
    counts, scratch = np.empty(steps), scratch_of(steps, draws.histories)
    law = law_of(steps, chain)
    for sample in range(out.shape[0]):
        given = rng.random() < draws.share
        if given and not draw_kept(rng, chain, couplings, law, counts):
            out[sample] = -ENDLESS, 0.0, 0.0
            continue
        estimate(rng, overlaps, bins, draws.rates, given, counts, scratch, out[sample])


@njit(cache=True, nogil=True)
def draw_linked_above(
    rng: np.random.Generator,
    overlaps: Overlaps,
    bins: int,
    trees: tuple[Integers, Array, Array, float],
    order: int,
    draws: VisitDraws,
    out: Array,
) -> None:
    """As :func:`draw_above` with tuples that are drawn by links in place of a chain.

    Args:
        trees: levels, splits, roots and link, as :func:`.linked_kernels.draw_links` takes them.
    """
    steps = overlaps.couplings.shape[0]
    counts, scratch = np.empty(steps), scratch_of(steps, draws.histories)
    most = steps * order
    work = np.zeros(4 * steps, np.int64), np.empty(most, np.int64), np.empty(most, np.bool_)
    visits = np.empty((order, steps // bins), np.int64)
    for sample in range(out.shape[0]):
        given = rng.random() < draws.share
        if given and not draw_linked_visits(rng, bins, trees, work, visits, counts):
            out[sample] = -ENDLESS, 0.0, 0.0
            continue
        estimate(rng, overlaps, bins, draws.rates, given, counts, scratch, out[sample])


@njit(cache=True, nogil=True)
def draw_linked_visits(
    rng: np.random.Generator,
    bins: int,
    trees: tuple[Integers, Array, Array, float],
    work: tuple[Integers, Integers, Flags],
    visits: Integers,
    counts: Array,
) -> bool:
    """Fill ``counts`` with the visits of a tuple of copies; False if the tuple is given up.

    Kept are tuples h with the chance ``prod_i Pr(h_i) e^S(h) / Z``, S the sum of ``link J_v (J_v - 1) / 2`` over the
    nodes v, J_v the visits below them: participations with a link belong to copies drawn at random, and are kept if no
    copy has two in an epoch; all other visits are free. O(nodes + levels participations + copies epochs).

    Args:
        work: numbers below nodes, opportunities and links of participations; overwritten.
        visits: the step of every copy in every epoch, shape (copies, epochs); overwritten.
    """
    times, copies = work[1], visits.shape[0]
    found = draw_links(rng, trees, work)
    visits[:] = -1
    for i in range(found):
        owner = int(copies * rng.random())
        while visits[owner, times[i] // bins] == times[i]:  # participations at one opportunity are of different copies
            owner = int(copies * rng.random())
        if visits[owner, times[i] // bins] >= 0:
            return False
        visits[owner, times[i] // bins] = times[i]
    counts[:] = 0.0
    for owner in range(copies):
        for epoch in range(visits.shape[1]):
            visited = visits[owner, epoch]
            counts[visited if visited >= 0 else epoch * bins + int(bins * rng.random())] += 1.0
    return True


@njit(cache=True, nogil=True)
def scratch_of(steps: int, histories: int) -> tuple[Array, Array, Array, Array]:
    """For :func:`estimate`."""
    return np.empty(steps), np.empty(steps), np.empty(steps), np.empty(histories)


@njit(cache=True, nogil=True)
def estimate(
    rng: np.random.Generator,
    overlaps: Overlaps,
    bins: int,
    rates: Array,
    given: bool,
    counts: Array,
    scratch: tuple[Array, Array, Array, Array],
    out: Array,
) -> None:
    """Logs of an estimate of X, of ``X'`` and of F, in ``out``; outputs are of these counts if ``given``, else F's."""
    (columns, couplings, kept), (y, z, left, found) = overlaps, scratch
    if given:
        add_visits(rng, columns, counts, y)
    out[2] = filtered(rng, columns, rates, not given, y)
    exponents(columns, couplings, y, z)
    out[1] = log_product(z, bins)
    for i in range(found.size):
        found[i] = log_visits(rng, z, bins, kept, left)
    top = found.max()
    out[0] = out[1] + top + np.log(np.exp(found - top).mean())


@njit(cache=True, nogil=True)
def add_visits(rng: np.random.Generator, columns: Array, counts: Array, y: Array) -> None:
    """Outputs with so many visits at every step."""
    for t in range(y.size):
        y[t] = rng.standard_normal()
    for u in range(counts.size):
        if counts[u] > 0.0:
            add_column(columns, u, counts[u], y)


@njit(cache=True, nogil=True)
def draw_below(
    rng: np.random.Generator, columns: Array, couplings: Array, bins: int, rates: Array, share: float, out: Array
) -> None:
    """Fill ``out``, shape (samples, 2), with the logs of a lower bound on X and of F.

    Outputs are those of F with the chance ``share``, else those of P.
    """
    steps = couplings.shape[0]
    y, z, counts = np.empty(steps), np.empty(steps), np.empty(steps)
    for sample in range(out.shape[0]):
        given = rng.random() >= share
        if given:
            counts[:] = 0.0
            for first in range(0, steps, bins):
                counts[first + int(bins * rng.random())] = 1.0
            add_visits(rng, columns, counts, y)
        out[sample, 1] = filtered(rng, columns, rates, not given, y)
        exponents(columns, couplings, y, z)
        out[sample, 0] = log_mean_field(z, couplings, bins)


@njit(cache=True, nogil=True)
def draw_add(
    rng: np.random.Generator, columns: Array, couplings: Array, bins: int, beta: float, mean: Array, out: Array
) -> None:
    """Fill ``out``, shape (samples, 2), with a lower bound on log X and ``<mean, y>`` of ``y = z - beta mean``."""
    y, z = np.empty(mean.size), np.empty(couplings.shape[0])
    for sample in range(out.shape[0]):
        total = 0.0
        for t in range(mean.size):
            y[t] = rng.standard_normal() - beta * mean[t]
            total += mean[t] * y[t]
        exponents(columns, couplings, y, z)
        out[sample, 0] = log_mean_field(z, couplings, bins)
        out[sample, 1] = total


@njit(cache=True, nogil=True)
def largest_field(couplings: Array, bins: int) -> float:
    """The largest ``sum_(u < v) x_u <c_u, c_v>`` over v and visits x: one inner product of every epoch."""
    steps, window = couplings.shape
    largest = 0.0
    for v in range(steps):
        total = 0.0
        for first in range(max(v - window + 1, 0) // bins * bins, v + 1, bins):
            most = 0.0
            for u in range(max(first, v - window + 1), min(first + bins, v)):
                most = max(most, couplings[u, v - u])
            total += most
        largest = max(largest, total)
    return largest
