"""Moments of a mixture of bins that interact near each other on a ring only, with 30 digits.

``E X^m`` is ``m! / b^m`` times a sum over all ways to draw m of b bins (:mod:`.ring_kernels`). Where S vanishes beyond
a ring distance, clusters of draws that lie far apart are independent: they are summed one by one and then joined
along the ring. Clusters grow

* draw by draw: every cluster is looked at, ``(reach + 1)^(largest - 1)`` for each first bin; best for few draws;
* or bin by bin, with the last ``reach`` counts as the state: about ``reach C(largest + reach + 2, reach + 3)`` updates
  for each first bin; best for a narrow reach.

One first bin stands for all where S is circulant. What is left are draws that leave no gap on the whole ring, only
where ``largest * reach >= bins``; they are looked at one by one. Everything is exact but for roundings, which are
counted.

Proofs: ``docs/theory/moment-majorants/ring.md``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import comb, factorial, inf, isqrt, log

import numpy as np
from numba import njit

from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.laws.law import Array
from hockeystick.moments.double_double import ROUNDING, rational, two_product
from hockeystick.moments.exact import ExactGram, ExactMoments
from hockeystick.moments.exponential import EXPONENTIAL_ERROR, exponential
from hockeystick.moments.ring_kernels import (
    Counts,
    add_chains,
    along_ring,
    close_from,
    close_shared,
    first_bin,
    first_states,
    inverses,
    next_bin,
    own_weights,
    powers_of,
    total_of,
)

LEAST_ORDER = 3
"""Lower orders cost nothing: chains of two draws and more are kept together."""
LARGEST_LOG = 600.0
"""Of what is computed, whether large or small: it stays in the range of doubles."""
MAX_STATES = 4_000_000
MAX_TABLE = 20_000_000
CHAINS_PER_PIECE = 2e7
SECONDS_PER_CHAIN = 1e-9
"""Where the inner loops, of ``reach`` chains, are long; that cost as much as ``SHORT_LOOP`` chains more."""
SHORT_LOOP = 80.0
SECONDS_PER_UPDATE = 2e-8
SECONDS_PER_CALL = 5e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Ring:
    """A Gram matrix as factors ``exp(S_ij)`` near the diagonal.

    Attributes:
        bins: b.
        reach: at least the largest ring distance of bins that interact, >= 1.
        largest: a, the highest order, at least ``LEAST_ORDER``.
        factors: ``exp(S_(i,i+d))``, d = 0..reach, as pairs of doubles: shape (2, rows, reach + 1), rows = b, or 1 where
            S is circulant.
        wrapped: ``exp(S_(i,i-d))``, d = back..1, ``back = min(reach, b - 1 - reach)``: shape (2, rows, back).
    """

    bins: int
    reach: int
    largest: int
    factors: Array
    wrapped: Array

    @property
    def rows(self) -> int:
        """How many first bins there are to look at."""
        return int(self.factors.shape[1])

    @property
    def longest(self) -> int:
        """The length of the longest cluster with room for a gap beside it; 0 where there is none."""
        return longest_cluster(self.bins, self.reach, self.largest)


def ring_moments(gram: ExactGram, largest: int, *, deadline: Deadline) -> ExactMoments:
    """``E X^k`` for k = 0..largest of the mixture with Gram matrix ``gram``, exact but for a proved relative error.

    Args:
        gram: any; only what vanishes at large ring distances is fast.
        largest: highest order >= 1.
        deadline: told of every piece of work.

    Cost: :func:`ring_cost`.

    Raises: UnsupportedError where that is infinite, InvalidInputError for an order below 1.
    """
    if largest < 1:
        raise InvalidInputError(f"The 'largest' argument must be at least 1. Got {largest} instead.")
    if ring_cost(gram, largest) == inf:
        raise UnsupportedError(
            f"The moments of {gram.bins} bins up to order {largest} are too large for doubles or need too much memory."
        )
    ring = ring_of(gram, max(largest, LEAST_ORDER))
    by_bins = _grows_by_bins(ring.bins, ring.reach, ring.largest)
    clusters = clusters_by_bins(ring, deadline) if by_bins else clusters_by_draws(ring, deadline)
    total = with_gap(ring, clusters, deadline)
    if needs_gapless(ring.bins, ring.reach, ring.largest):
        total = _sum_of([total, without_gap(ring, deadline)])
    values = [rational(float(total[0, m]), float(total[1, m])) for m in range(largest + 1)]
    return ExactMoments(
        values=tuple(value * factorial(m) / ring.bins**m for m, value in enumerate(values)),
        error=relative_error(ring, by_bins=by_bins),
    )


def ring_cost(gram: ExactGram, largest: int) -> float:
    """Rough seconds of :func:`ring_moments`; infinite where doubles or memory do not suffice."""
    bins, reach, order = gram.bins, max(gram.reach, 1), max(largest, LEAST_ORDER)
    rows, longest = 1 if gram.is_circulant else bins, longest_cluster(bins, reach, order)
    peak = gram.scale * float(gram.entries.max())
    too_large = 0.5 * order * (order - 1) * peak + order * log(max(bins, order)) > LARGEST_LOG
    if too_large or rows * longest * (order + 1) > MAX_TABLE:
        return inf
    grow = min(windows_cost(bins, reach, order), chains_cost(bins, reach, order))
    close = (1 if rows == 1 else min(bins, longest + reach)) * bins * longest * order**2 / 4 * SECONDS_PER_CHAIN
    gapless = 0.0
    if needs_gapless(bins, reach, order):
        starts = 1 if rows == 1 else min(reach, bins)
        gapless = starts * chain_count(order, reach, bins - reach, bins - 1) * _seconds_per_chain(reach)
    return rows * grow + close + gapless


def longest_cluster(bins: int, reach: int, largest: int) -> int:
    """The length of the longest cluster with room for a gap beside it, at least 0."""
    return max(min(1 + (largest - 1) * reach, bins - reach), 0)


def needs_gapless(bins: int, reach: int, largest: int) -> bool:
    """Whether ``largest`` draws can leave no gap of ``reach`` bins anywhere on the ring."""
    return largest * reach >= bins


def chain_count(draws: int, reach: int, least: int, most: int) -> float:
    """How many sequences of ``draws - 1`` steps of 0..reach there are with a sum from ``least`` to ``most``."""
    ways = np.ones(1)
    for _ in range(draws - 1):
        sums = np.cumsum(np.pad(ways, (0, reach)))
        sums[reach + 1 :] -= sums[: -reach - 1].copy()
        ways = sums[: most + 1]
    return float(np.maximum(ways[least:], 0.0).sum())


def _grows_by_bins(bins: int, reach: int, largest: int) -> bool:
    return windows_cost(bins, reach, largest) < chains_cost(bins, reach, largest)


def chains_cost(bins: int, reach: int, largest: int) -> float:
    """Rough seconds of the clusters from one first bin, draw by draw."""
    return chain_count(largest, reach, 0, bins - reach - 1) * _seconds_per_chain(reach) + SECONDS_PER_CALL


def windows_cost(bins: int, reach: int, largest: int) -> float:
    """Rough seconds of the clusters from one first bin, bin by bin; infinite where the states need too much memory."""
    if comb(largest + reach + 1, reach + 1) > MAX_STATES:
        return inf
    longest = longest_cluster(bins, reach, largest)
    # the first reach bins of a cluster have shorter windows; every reach further bins have at least one draw more
    later = -(-max(longest - reach, 0) // reach)
    updates = comb(largest + reach + 2, reach) + reach * (
        comb(largest + reach + 2, reach + 3) - comb(max(largest - later, 0) + reach + 2, reach + 3)
    )
    return updates * SECONDS_PER_UPDATE + longest * SECONDS_PER_CALL


def _seconds_per_chain(reach: int) -> float:
    return SECONDS_PER_CHAIN * (1.0 + SHORT_LOOP / (reach + 1))


def ring_of(gram: ExactGram, largest: int) -> Ring:
    """The factors of a Gram matrix, each within ``EXPONENTIAL_ERROR`` and ``2^-900`` (a product that underflows)."""
    bins, reach = gram.bins, max(gram.reach, 1)
    place = np.arange(1 if gram.is_circulant else bins)[:, None]
    after = np.arange(reach + 1)[None, :]
    before = np.arange(max(min(reach, bins - 1 - reach), 0), 0, -1)[None, :]
    factors, wrapped = (
        np.stack(exponential(*_exact_products(np.ascontiguousarray(gram.entries[place, other % bins]), gram.scale)))
        for other in (place + after, place - before)
    )
    return Ring(bins=bins, reach=reach, largest=largest, factors=factors, wrapped=wrapped)


@njit(cache=True)
def _exact_products(entries: Array, scale: float) -> tuple[Array, Array]:
    high, low = np.empty(entries.shape), np.empty(entries.shape)
    for i in range(entries.shape[0]):
        for j in range(entries.shape[1]):
            high[i, j], low[i, j] = two_product(entries[i, j], scale)
    return high, low


def clusters_by_bins(ring: Ring, deadline: Deadline) -> Array:
    """All clusters by first bin, mass and length less 1: shape (2, rows, a + 1, longest)."""
    clusters = np.zeros((2, ring.rows, ring.largest + 1, ring.longest))
    if ring.longest == 0:
        return clusters
    reciprocals = inverses(ring.largest)
    states, chunk_size = first_states(ring.largest, ring.reach)[-1], _chunk_size(ring.reach, ring.largest)
    old, new = np.zeros((2, states)), np.zeros((2, states))
    # before[d - 1]: the factor between a bin and the one d places before it
    place = np.arange(ring.rows)
    before = np.stack([ring.factors[:, (place - d) % ring.rows, d] for d in range(1, ring.reach + 1)], axis=1)
    powers = [powers_of(np.ascontiguousarray(before[:, :, i]), ring.largest) for i in range(ring.rows)]
    itself = powers_of(np.ascontiguousarray(ring.factors[:, :, 0]), ring.largest)
    own = [own_weights(np.ascontiguousarray(itself[:, i]), reciprocals) for i in range(ring.rows)]
    for start in range(ring.rows):
        row = np.zeros((2, ring.largest + 1, ring.longest))
        first_bin(old, row, own[start])
        for length in range(1, ring.longest):
            deadline.tick()
            latest = (start + length) % ring.bins % ring.rows
            next_bin(old, new, row, length, powers[latest], own[latest], chunk_size)
            old, new = new, old
        clusters[:, start] = row
    return clusters


def clusters_by_draws(ring: Ring, deadline: Deadline) -> Array:
    """The same by looking at every cluster."""
    clusters = np.zeros((2, ring.rows, ring.largest + 1, ring.longest))
    for start in range(ring.rows):
        clusters[:, start] = _chains(ring, start, 0, ring.longest, deadline)
    return clusters


def with_gap(ring: Ring, clusters: Array, deadline: Deadline) -> Array:
    """All draws that leave a gap somewhere, by mass, from the clusters: shape (2, a + 1)."""
    deadline.tick()
    bins, reach = ring.bins, ring.reach
    round_once = along_ring(clusters, 0, bins, reach)
    if ring.rows == 1:
        return np.asarray(close_shared(clusters, round_once, reach))
    parts = [round_once[:, :, bins]]
    # the last jump of a ring read from p > 0 passes the seam, so p is below the longest jump
    for origin in range(1, min(bins, ring.longest + reach)):
        deadline.tick()
        parts.append(close_from(clusters, along_ring(clusters, origin, bins - origin - 1, reach), origin, reach))
    return _sum_of(parts)


def without_gap(ring: Ring, deadline: Deadline) -> Array:
    """All draws that leave no gap on the ring, by mass, one by one: shape (2, a + 1).

    Read from the first drawn bin, s, such a draw is a chain that ends within the last ``reach`` bins of the round; one
    that ends ell bins before s comes round has s = 0..ell - 1.
    """
    bins, reach = ring.bins, ring.reach
    first = max(bins - reach, 0)
    if ring.rows == 1:
        chains = _chains(ring, 0, first + 1, bins, deadline)[:, :, first:]
        return _sum_of(np.moveaxis(chains, 2, 0), np.arange(bins - first, 0, -1.0))
    parts = []
    for start in range(bins - first):
        chains = _chains(ring, start, first + 1, bins - start, deadline)[:, :, first:]
        parts.append(_sum_of(np.moveaxis(chains, 2, 0)))
    return _sum_of(parts)


def _sum_of(parts: Sequence[Array] | Array, weights: Array | None = None) -> Array:
    """``sum_x weights[x] parts[x]``, weights small whole numbers; shape (2, a + 1)."""
    whole = np.ascontiguousarray(parts)
    return np.asarray(total_of(whole, np.ones(len(whole)) if weights is None else weights))


def _chains(ring: Ring, start: int, least: int, most: int, deadline: Deadline) -> Array:
    """Chains of ``least`` to ``most`` bins from ``start``, by mass and length less 1: shape (2, a + 1, most)."""
    table = np.zeros((2, ring.largest + 1, most))
    reciprocals = inverses(ring.largest)
    for steps in _beginnings(ring.reach, ring.largest):
        deadline.tick()
        add_chains(table, steps, least, start, ring.bins, ring.factors, ring.wrapped, reciprocals)
    return table


def _beginnings(reach: int, largest: int) -> Iterator[Counts]:
    """All sequences of so many first steps that a piece of work is short."""
    for steps in product(range(reach + 1), repeat=_cut(reach, largest)):
        yield np.array(steps, dtype=np.int64)


def _cut(reach: int, largest: int) -> int:
    """How many steps of a chain are fixed in one piece of work."""
    cut = 0
    while cut < largest - LEAST_ORDER and float(reach + 1) ** (largest - 1 - cut) > CHAINS_PER_PIECE:
        cut += 1
    return cut


def _prefixes(reach: int, largest: int) -> int:
    """How many windows of ``reach - 1`` counts there are."""
    return comb(largest + reach - 1, reach - 1)


def _chunk_size(reach: int, largest: int) -> int:
    """Makes ``largest * chunk + prefixes / chunk`` small."""
    return max(isqrt(_prefixes(reach, largest) // largest), 1)


def relative_error(ring: Ring, *, by_bins: bool) -> Fraction:
    """Proved relative error of all moments: the longest chain of operations, as counted in docs/theory.

    Args:
        by_bins: how the clusters were summed.
    """
    a, bins, reach, longest = ring.largest, ring.bins, ring.reach, ring.longest
    operations = 0
    if by_bins:
        chunk = _chunk_size(reach, a)
        operations = min(bins, (a - 1) * reach) * (a + 1) + a * (a * chunk + _prefixes(reach, a) // chunk + 1)
    if not by_bins or needs_gapless(bins, reach, a):
        operations = max(operations, a * ((a - 1) * (reach + 1) + (reach + 1) ** _cut(reach, a)))
    operations += 4 * a
    operations += bins + a * (a + longest + 2)  # along the ring
    operations += a + 2 * longest + 2 * reach + 8  # round the ring
    pairs = Fraction(a * (a - 1), 2)
    lost = pairs * (Fraction(EXPONENTIAL_ERROR) + Fraction(2) ** -900) + (pairs + operations) * Fraction(ROUNDING)
    return lost / (1 - 2 * lost)
