"""Moments of a mixture of bins, with 30 digits.

``E X^m`` is ``m! / b^m`` times a sum over all ways to draw m of b bins (:mod:`.ring_kernels`), formed in the cheapest
of three ways.

**Along the ring**, where S vanishes beyond a ring distance: clusters of draws that lie far apart are independent, are
summed one by one and then joined. Clusters grow draw by draw, ``(reach + 1)^(largest - 1)`` for each first bin (best
for few draws), or bin by bin, about ``reach C(largest + reach + 2, reach + 3)`` updates for each first bin (best for a
narrow reach). One first bin stands for all where S is circulant. Draws that leave no gap on the whole ring, possible
only where ``largest * reach >= bins``, are visited one by one.

**In a sweep**, where no entry of S passes the seam: bin by bin from the first to the last, with the counts of the last
``span`` bins as the state; about ``bins C(largest + span + 2, span + 2)`` updates in all.

**Along a line**, for any S: every multiset of draws is a chain of bins that does not decrease, and all
``C(bins + largest - 1, largest)`` are visited.

Everything is exact but for roundings, which are counted. Proofs: ``docs/theory/moment-majorants/ring.md``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import comb, factorial, inf, isqrt, log

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.moments import ring_kernels as kernels
from hockeystick.moments.double_double import RECIPROCALS, ROUNDING, Pairs, products, rational
from hockeystick.moments.exact import ExactGram, ExactMoments
from hockeystick.moments.exponential import EXPONENTIAL_ERROR, exponential
from hockeystick.moments.ring_kernels import Counts

LEAST_ORDER = 3
"""Lower orders cost nothing: chains of two draws and more are kept together."""
LARGEST_LOG = 600.0
"""Largest logarithm of any number that is computed, so that all stay in the range of doubles."""
MAX_STATES = 8_000_000
MAX_TABLE = 20_000_000
CHAINS_PER_PIECE = 2e7
SECONDS_PER_CHAIN = 1e-9
"""Where the inner loops, of ``reach`` chains, are long; each loop costs as much as ``SHORT_LOOP`` chains more."""
SHORT_LOOP = 80.0
SECONDS_PER_UPDATE = 2e-8
FAVOUR_OF_BINS = 2.0
"""Bin by bin is chosen up to this many times the cost of draw by draw: where both cost little it was the faster, and it
needs no kernels that the higher orders, which commonly come next, do without."""
SECONDS_PER_DRAW, SECONDS_PER_LOOP = 1.4e-9, 4.5e-7
"""Along a line."""
SECONDS_PER_CALL = 5e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Factors:
    """``exp(S_ij)`` near the diagonal of a Gram matrix.

    Attributes:
        bins: b.
        reach: at least the largest ring distance of bins that interact, >= 1; b - 1 along a line.
        largest: a, the highest order, at least ``LEAST_ORDER``.
        ahead: ``exp(S_(i,i+d))``, d = 0..reach, pairs of shape (rows, reach + 1), rows = b, or 1 where S is circulant.
        wrapped: ``exp(S_(i,i-d))``, d = back..1, ``back = min(reach, b - 1 - reach)``: pairs of shape (rows, back).
    """

    bins: int
    reach: int
    largest: int
    ahead: Pairs
    wrapped: Pairs

    @property
    def rows(self) -> int:
        """Number of first bins to visit."""
        return int(self.ahead.shape[0])

    @property
    def longest(self) -> int:
        """The length of the longest cluster with room for a gap beside it; 0 where there is none."""
        return longest_cluster(self.bins, self.reach, self.largest)


def ring_moments(gram: ExactGram, largest: int, *, deadline: Deadline) -> ExactMoments:
    """``E X^k`` for k = 0..largest of the whole mixture with Gram matrix ``gram``, common factor included.

    Formal guarantee: the values lie within the stated relative error (about 1e-28) of the moments of the mixture whose
    Gram matrix is exactly ``gram.scale * gram.entries``.

    Args:
        gram: S.
        largest: highest order >= 0.

    Cost: :func:`ring_cost`.
    Raises: UnsupportedError where that is infinite, InvalidInputError for a negative order.

    Reference: the sum is that of schuchardt-kalinin-2026, Lemma 3.2.
    """
    if largest < 0:
        raise InvalidInputError(f"The 'largest' argument must not be negative. Got {largest} instead.")
    if largest < 2:
        return ExactMoments(values=(Fraction(1),) * (largest + 1), error=Fraction(0))
    if ring_cost(gram, largest) == inf:
        raise UnsupportedError(
            f"The moments of {gram.bins} bins up to order {largest} are too large for doubles or need too much memory."
        )
    order = max(largest, LEAST_ORDER)
    line, ring, sweep = _line_cost(gram, order), _ring_cost(gram, order), sweep_cost(gram.bins, gram.span, order)
    swept, by_bins = sweep < min(line, ring), False
    if swept:
        factors = sweep_factors(gram, order)
        total = in_sweep(factors, deadline)
    elif line <= ring:
        factors = line_factors(gram, order)
        total = along_line(factors, deadline)
    else:
        factors = ring_factors(gram, order)
        by_draws = chains_cost(gram.bins, factors.reach, order)
        by_bins = windows_cost(gram.bins, factors.reach, order) < FAVOUR_OF_BINS * by_draws
        total = with_gap(factors, (clusters_by_bins if by_bins else clusters_by_draws)(factors, deadline), deadline)
        if needs_gapless(factors.bins, factors.reach, order):
            total = _sum_of([total, without_gap(factors, deadline)])
    return ExactMoments(
        values=tuple(rational(total[m]) * factorial(m) / gram.bins**m for m in range(largest + 1)),
        error=sweep_error(factors) if swept else relative_error(factors, by_bins=by_bins),
    )


def highest_order(gram: ExactGram, largest: int) -> int:
    """The highest order up to ``largest`` whose sums over draws stay in the range of doubles; orders up to 1 do."""
    peak, order = gram.scale * float(gram.entries.max()), largest
    while order > 1 and 0.5 * order * (order - 1) * peak + order * log(max(gram.bins, order)) > LARGEST_LOG:
        order -= 1
    return order


def ring_cost(gram: ExactGram, largest: int) -> float:
    """Rough seconds of :func:`ring_moments`; infinite where doubles or memory do not suffice."""
    order = max(largest, LEAST_ORDER)
    if highest_order(gram, order) < order or order >= RECIPROCALS.size:
        return 0.0 if largest < 2 else inf
    return min(_line_cost(gram, order), _ring_cost(gram, order), sweep_cost(gram.bins, gram.span, order))


def _line_cost(gram: ExactGram, order: int) -> float:
    if gram.is_circulant or gram.bins**2 > MAX_TABLE:  # fewer draws are visited along a ring where bins are alike
        return inf
    loops = comb(gram.bins + order - 3, order - 2)  # over the last draw but one
    return comb(gram.bins + order - 1, order) * SECONDS_PER_DRAW + loops * SECONDS_PER_LOOP


def _ring_cost(gram: ExactGram, order: int) -> float:
    bins, reach = gram.bins, max(gram.reach, 1)
    rows, longest = 1 if gram.is_circulant else bins, longest_cluster(bins, reach, order)
    if rows * longest * (order + 1) > MAX_TABLE:
        return inf
    grow = min(windows_cost(bins, reach, order), chains_cost(bins, reach, order))
    close = (1 if rows == 1 else min(bins, longest + reach)) * bins * longest * order**2 / 4 * SECONDS_PER_CHAIN
    gapless = 0.0
    if needs_gapless(bins, reach, order):
        starts = 1 if rows == 1 else min(reach, bins)
        gapless = starts * chain_count(order, reach, bins - reach, bins - 1) * _seconds_per_chain(reach)
    return rows * grow + close + gapless


def sweep_cost(bins: int, span: int, largest: int) -> float:
    """Rough seconds of :func:`in_sweep`; infinite where its states need too much memory."""
    reach = max(span, 1)
    if comb(largest + reach + 1, reach + 1) > MAX_STATES:
        return inf
    return bins * (comb(largest + reach + 2, reach + 2) * SECONDS_PER_UPDATE + SECONDS_PER_CALL)


def longest_cluster(bins: int, reach: int, largest: int) -> int:
    """The length of the longest cluster with room for a gap beside it, at least 0."""
    return max(min(1 + (largest - 1) * reach, bins - reach), 0)


def needs_gapless(bins: int, reach: int, largest: int) -> bool:
    """Whether ``largest`` draws can leave no gap of ``reach`` bins anywhere on the ring."""
    return largest * reach >= bins


@lru_cache(maxsize=4096)
def chain_count(draws: int, reach: int, least: int, most: int) -> float:
    """How many sequences of ``draws - 1`` steps of 0..reach there are with a sum from ``least`` to ``most``."""
    ways = np.ones(1)
    for _ in range(draws - 1):
        sums = np.cumsum(np.concatenate([ways, np.zeros(reach)]))
        sums[reach + 1 :] -= sums[: -reach - 1].copy()
        ways = sums[: most + 1]
    return float(np.maximum(ways[least:], 0.0).sum())


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


def ring_factors(gram: ExactGram, largest: int) -> Factors:
    """The factors of a Gram matrix, each within ``EXPONENTIAL_ERROR`` and ``2^-900`` (a product that underflows)."""
    reach = max(gram.reach, 1)
    return _factors(gram, largest, reach, max(min(reach, gram.bins - 1 - reach), 0))


def sweep_factors(gram: ExactGram, largest: int) -> Factors:
    """The factors for :func:`in_sweep`: the reach is the span of S, and none passes the seam."""
    return _factors(gram, largest, max(gram.span, 1), 0)


def line_factors(gram: ExactGram, largest: int) -> Factors:
    """The factors for chains along a line, which never pass the seam and have steps of any size."""
    return _factors(gram, largest, gram.bins - 1, 0)


def _factors(gram: ExactGram, largest: int, reach: int, back: int) -> Factors:
    place = np.arange(1 if gram.is_circulant else gram.bins)[:, None]
    ahead, wrapped = (
        exponential(products(gram.scale, gram.entries[place, (place + distance) % gram.bins]))
        for distance in (np.arange(reach + 1), -np.arange(back, 0, -1))
    )
    return Factors(bins=gram.bins, reach=reach, largest=largest, ahead=ahead, wrapped=wrapped)


def clusters_by_bins(factors: Factors, deadline: Deadline) -> Pairs:
    """All clusters by first bin, mass and length less 1: shape (rows, a + 1, longest)."""
    rows, reach, largest = factors.rows, factors.reach, factors.largest
    clusters = np.zeros((rows, largest + 1, factors.longest), dtype=np.complex128)
    if factors.longest == 0:
        return clusters
    chunk_size, (old, new) = _chunk_size(reach, largest), _states(reach, largest)
    powers, own = _weights(factors)
    for start in range(rows):
        kernels.first_bin(old, clusters[start], own[start])
        for length in range(1, factors.longest):
            deadline.tick()
            latest = (start + length) % factors.bins % rows
            kernels.next_bin(old, new, clusters[start], length, powers[latest], own[latest], chunk_size)
            old, new = new, old
    return clusters


def in_sweep(factors: Factors, deadline: Deadline) -> Pairs:
    """All draws by mass, where no factor passes the seam: shape (a + 1,)."""
    chunk_size, (old, new) = _chunk_size(factors.reach, factors.largest), _states(factors.reach, factors.largest)
    powers, own = _weights(factors)
    total = np.zeros(factors.largest + 1, dtype=np.complex128)
    old[0] = total[0] = 1.0  # nothing drawn
    for place in range(factors.bins):
        deadline.tick()
        row = place % factors.rows
        kernels.sweep_bin(old, new, total, powers[row], own[row], chunk_size)
        old, new = new, old
    return total


def _states(reach: int, largest: int) -> tuple[Pairs, Pairs]:
    """Two arrays for the states of windows of ``reach`` counts, all zero."""
    states = kernels.first_states(largest, reach)[-1]
    return np.zeros(states, dtype=np.complex128), np.zeros(states, dtype=np.complex128)


def _weights(factors: Factors) -> tuple[list[Pairs], list[Pairs]]:
    """For each bin the powers of its factors with those 1..reach before it, and its own weights."""
    rows, largest, after = factors.rows, factors.largest, np.arange(1, factors.reach + 1)
    before = factors.ahead[(np.arange(rows)[:, None] - after) % rows, after]
    powers = [kernels.powers_of(row, largest) for row in before]
    diagonal = np.ascontiguousarray(factors.ahead[:, 0])
    return powers, [kernels.own_weights(own) for own in kernels.powers_of(diagonal, largest)]


def clusters_by_draws(factors: Factors, deadline: Deadline) -> Pairs:
    """What :func:`clusters_by_bins` computes, by visiting every cluster."""
    return np.stack([_chains(factors, start, 0, factors.longest, deadline) for start in range(factors.rows)])


def along_line(factors: Factors, deadline: Deadline) -> Pairs:
    """All draws by mass, each read from its smallest bin: shape (a + 1,)."""
    bins = factors.bins
    parts = [_sum_of(_chains(factors, start, 1, bins - start, deadline).T) for start in range(bins)]
    total = _sum_of(parts)
    total[0] = 1.0  # nothing drawn
    return total


def with_gap(factors: Factors, clusters: Pairs, deadline: Deadline) -> Pairs:
    """All draws that leave a gap somewhere, by mass, from the clusters: shape (a + 1,)."""
    deadline.tick()
    bins, reach = factors.bins, factors.reach
    round_once = kernels.along_ring(clusters, 0, bins, reach)
    if factors.rows == 1:
        return np.asarray(kernels.close_shared(clusters, round_once, reach))
    parts = [round_once[:, bins]]
    # the last jump of a ring read from p > 0 passes the seam, so p is below the longest jump
    for origin in range(1, min(bins, factors.longest + reach)):
        deadline.tick()
        along = kernels.along_ring(clusters, origin, bins - origin - 1, reach)
        parts.append(kernels.close_from(clusters, along, origin, reach))
    return _sum_of(parts)


def without_gap(factors: Factors, deadline: Deadline) -> Pairs:
    """All draws that leave no gap on the ring, by mass, one by one: shape (a + 1,).

    Read from the first drawn bin, s, such a draw is a chain that ends within the last ``reach`` bins of the round; one
    that ends ell bins before s comes round has s = 0..ell - 1.
    """
    bins, first = factors.bins, max(factors.bins - factors.reach, 0)
    if factors.rows == 1:
        chains = _chains(factors, 0, first + 1, bins, deadline)[:, first:]
        return _sum_of(chains.T, np.arange(bins - first, 0, -1))
    return _sum_of(
        [_sum_of(_chains(factors, s, first + 1, bins - s, deadline)[:, first:].T) for s in range(bins - first)]
    )


def _sum_of(parts: Sequence[Pairs] | Pairs, weights: Counts | None = None) -> Pairs:
    """``sum_x weights[x] parts[x]``, weights small whole numbers; shape (a + 1,)."""
    whole = np.ascontiguousarray(parts)
    return np.asarray(kernels.total_of(whole, np.ones(len(whole), dtype=np.int64) if weights is None else weights))


def _chains(factors: Factors, start: int, least: int, most: int, deadline: Deadline) -> Pairs:
    """Chains of ``least`` to ``most`` bins from ``start``, by mass and length less 1: shape (a + 1, most)."""
    table = np.zeros((factors.largest + 1, most), dtype=np.complex128)
    # one piece of work for each sequence of so many first steps that it is short
    for steps in product(range(factors.reach + 1), repeat=_cut(factors.reach, factors.largest, most)):
        if sum(steps) < most:
            deadline.tick()
            first = np.array(steps, dtype=np.int64)
            work = kernels.workspace(factors.largest, most)
            kernels.add_chains(table, first, least, start, factors.bins, factors.ahead, factors.wrapped, work)
    return table


def _cut(reach: int, largest: int, most: int) -> int:
    """How many steps of a chain are fixed in one piece of work."""
    cut = 0
    while cut < largest - LEAST_ORDER and chain_count(largest - cut, reach, 0, most - 1) > CHAINS_PER_PIECE:
        cut += 1
    return cut


def _chunk_size(reach: int, largest: int) -> int:
    """A chunk size that makes ``largest * chunk + prefixes / chunk`` small, for prefixes of ``reach - 1`` counts."""
    return max(isqrt(comb(largest + reach - 1, reach - 1) // largest), 1)


def relative_error(factors: Factors, *, by_bins: bool) -> Fraction:
    """Proved relative error of all moments: the longest chain of operations, as counted in docs/theory."""
    a, bins, reach, longest = factors.largest, factors.bins, factors.reach, factors.longest
    operations = 0
    if by_bins:
        chunk = _chunk_size(reach, a)
        prefixes = comb(a + reach - 1, reach - 1)
        operations = min(bins, (a - 1) * reach) * (a + 1) + a * (a * chunk + prefixes // chunk + 1)
    if not by_bins or needs_gapless(bins, reach, a):
        operations = max(operations, a * ((a - 1) * (reach + 1) + (reach + 1) ** _cut(reach, a, bins)))
    operations += 4 * a
    operations += bins + a * (a + longest + 2)  # along the ring
    operations += a + 2 * longest + 2 * reach + 8  # round the ring
    return _relative_error(a, operations)


def sweep_error(factors: Factors) -> Fraction:
    """Proved relative error of the moments from :func:`in_sweep`, likewise."""
    a, chunk = factors.largest, _chunk_size(factors.reach, factors.largest)
    prefixes = comb(a + factors.reach - 1, factors.reach - 1)
    return _relative_error(a, factors.bins * (a + 2) + a * chunk + prefixes // chunk + 1 + 4 * a)


def _relative_error(a: int, operations: int) -> Fraction:
    pairs = Fraction(a * (a - 1), 2)
    lost = pairs * (Fraction(EXPONENTIAL_ERROR) + Fraction(2) ** -900) + (pairs + operations) * Fraction(ROUNDING)
    return lost / (1 - 2 * lost)
