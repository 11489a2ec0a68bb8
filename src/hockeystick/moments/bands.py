"""Upper bounds of the moments of a mixture of bins, ``E_Q X^a``, all integer orders up to a largest one in one pass.

With ``S = G / sigma^2`` (a pair's Gram matrix G, b bins) the moment of order a is a sum over how often r_i each bin is
drawn,

    E X^a = a! b^-a sum_(r_1 + ... + r_b = a) prod_i exp(S_ii r_i (r_i - 1) / 2) / r_i! prod_(i<j) exp(S_ij r_i r_j).

:func:`banded_moments` replaces S by a band and a constant; :func:`dense_moments` takes the whole S to order 4.

Proofs: ``docs/theory/bins-moments.md``.
"""

from dataclasses import dataclass, replace
from math import comb, log

import numpy as np
from scipy.special import gammaln

from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.moments import band_kernels as kernels
from hockeystick.moments.log_moments import LogMoments

SECONDS_PER_UPDATE = 3e-9
"""Rough cost of an update where the inner loops are long."""
SHORT_LOOPS = 0.5
"""Relative increase for each further bin of the window, as the loops get shorter, up to ``SHORTEST_LOOPS`` times."""
SHORTEST_LOOPS = 13.0
SHORT_CHAINS = 8.0
"""How much more an update costs in the many short chains of draws without a gap."""
SECONDS_PER_SWEPT = 2e-8
"""Cost of an update of a sweep, of windows of any length."""
SECONDS_PER_TERM = 1.5e-8
"""Cost of a term in a product of power series."""
MAX_STATES = 8_000_000
MAX_CLUSTER_TABLE = 20_000_000
LARGEST_LOG_COUNT = 560.0
"""``largest * log(bins)`` at most: sums without noise must stay in the range of doubles, with room for underflow."""
LOG_LOST = -660.0
"""What underflow loses, scaled: at most ``bins^(a+1)`` times the smallest normal double and 1e21 operations."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Band:
    """S as upper bounds: ``diagonal`` and ``band`` within the bandwidth, and the same ``common`` added to every pair.

    Attributes:
        bins: b.
        diagonal: shape (rows,), rows = b, or 1 where all bins share it.
        band: shape (rows, w - 1); ``band[i, d - 1]`` belongs to the bins i and i - d.
        common: tau >= 0, in units of S like all the others.
        size: largest entry of S; rounding grows with it.
    """

    bins: int
    diagonal: Array
    band: Array
    common: float
    size: float

    @property
    def reach(self) -> int:
        """w - 1: the largest distance at which bins interact beyond tau."""
        return int(self.band.shape[1])

    @property
    def peak(self) -> float:
        """The largest entry that is left beside tau."""
        return float(max(self.diagonal.max(), self.band.max(initial=0.0)))

    def shared(self) -> "Band":
        """The circulant upper bound: for each distance the largest entry."""
        return replace(self, diagonal=self.diagonal.max(keepdims=True), band=self.band.max(axis=0, keepdims=True))


def scaled_gram(gram: Array, rounding: float, noise_multiplier: float) -> Array:
    """``S = G / sigma^2``, no entry below the true one, from G with a relative error of at most ``rounding``."""
    return gram * ((1.0 + rounding) * (1.0 + 16 * UNIT_ROUNDOFF) / noise_multiplier / noise_multiplier)


def ring_maxima(scaled: Array) -> Array:
    """The largest entry of S at each ring distance 0..b // 2."""
    bins = scaled.shape[0]
    place = np.arange(bins)
    return np.array([scaled[place, place - d].max() for d in range(bins // 2 + 1)])


def band(scaled: Array, bandwidth: int) -> Band:
    """S reduced to the effective bandwidth w >= 1; above ``b // 2 + 1``, where all pairs are inside, it is whole.

    Args:
        scaled: S, symmetric and non-negative, shape (b, b).
        bandwidth: w; 1 keeps the diagonal only.
    """
    bins = scaled.shape[0]
    width = min(bandwidth, bins // 2 + 1)
    common = float(ring_maxima(scaled)[width:].max(initial=0.0))
    place = np.arange(bins)
    # a difference rounds by half an ulp of the larger number: moments() charges for it
    near = np.stack([np.maximum(scaled[place, place - d] - common, 0.0) for d in range(width)], axis=1)
    return Band(
        bins=bins,
        diagonal=near[:, 0].copy(),
        band=np.ascontiguousarray(near[:, 1:]),
        common=common,
        size=float(scaled.max()),
    )


def longest_cluster(bins: int, reach: int, largest: int) -> int:
    """The length of the longest cluster with room for a gap beside it."""
    return min(1 + (largest - 1) * reach, bins - reach)


def needs_gapless(bins: int, reach: int, largest: int) -> bool:
    """Whether ``largest`` draws can leave no gap of ``reach`` bins anywhere on the ring."""
    return reach > 0 and largest * reach >= bins


def banded_cost(bins: int, reach: int, largest: int, share: bool) -> float:
    """Rough seconds of :func:`banded_moments`; infinite where it would not fit in memory."""
    if reach == 0:
        return bins * largest**2 / 2 * SECONDS_PER_TERM
    states, updates = comb(largest + reach + 1, reach + 1), comb(largest + reach + 2, reach + 2)
    length = longest_cluster(bins, reach, largest)
    rows = 1 if share else bins
    too_large = states > MAX_STATES or rows * length * (largest + 1) > MAX_CLUSTER_TABLE
    if too_large or largest * log(bins) > LARGEST_LOG_COUNT:
        return float("inf")
    # the first reach bins of a cluster have shorter windows; every reach further bins have at least one draw more
    later = -(-max(length - reach, 0) // reach)
    grow = comb(largest + reach + 2, reach) + reach * (
        comb(largest + reach + 2, reach + 3) - comb(max(largest - later, 0) + reach + 2, reach + 3)
    )
    grow *= rows
    close = (1 if share else min(bins, length + reach)) * bins * length * largest**2 / 6
    gapless = 0.0
    if needs_gapless(bins, reach, largest):
        gapless = SHORT_CHAINS * comb(largest + reach, reach) * (bins - reach) * updates / 2
    return ((grow + gapless) * min(1.0 + SHORT_LOOPS * (reach - 1), SHORTEST_LOOPS) + close) * SECONDS_PER_UPDATE


def banded_moments(
    scaled: Array, bandwidth: int, largest: int, *, share: bool = False, deadline: Deadline | None = None
) -> LogMoments:
    """Upper bounds of ``log E_Q X^a`` for every integer a from 2 to ``largest``, at an effective bandwidth w.

    S is replaced by ``max(S, tau)`` at ring distance below w and by ``tau = max S_ij`` over all others.

    Formal guarantee: exact but for rounding, which is bounded and added, where tau = 0 and ``share`` is False or S is
    circulant; never too small otherwise.

    Args:
        scaled: S, symmetric and non-negative, shape (b, b).
        bandwidth: w >= 1.
        largest: highest order >= 2.
        share: whether all bins share the largest weights of each distance, which is faster by about b.

    Cost: :func:`banded_cost`, exponential in w.

    Raises: InvalidInputError where ``bins^largest`` is beyond the range of doubles and w > 1.

    Reference: the sum is that of schuchardt-kalinin-2026, Lemma 3.2; the reduction to a band its section 3.
    """
    deadline = deadline or Deadline()
    reduced = band(scaled, bandwidth)
    if share:
        reduced = reduced.shared()
    if reduced.reach == 0:
        return _diagonal_moments(reduced, largest)
    if largest * log(reduced.bins) > LARGEST_LOG_COUNT:
        highest = int(LARGEST_LOG_COUNT / log(reduced.bins))
        raise InvalidInputError(
            f"The 'largest' argument must be at most {highest} for {reduced.bins} bins. Got {largest} instead."
        )
    total = _with_gap(reduced, largest, deadline)
    if needs_gapless(reduced.bins, reduced.reach, largest):
        deadline.tick()
        total += _gapless(reduced, largest)
    return _finished(reduced, largest, total)


def sweep_cost(bins: int, reach: int, largest: int) -> float:
    """Rough seconds of :func:`swept_moments`; infinite where it does not fit in memory or the range of doubles."""
    if comb(largest + reach + 1, reach + 1) > MAX_STATES or largest * log(bins) > LARGEST_LOG_COUNT:
        return float("inf")
    updates = bins * comb(largest + reach + 2, reach + 2)
    return updates * SECONDS_PER_SWEPT


def swept_moments(scaled: Array, reach: int, largest: int, *, deadline: Deadline | None = None) -> LogMoments:
    """:func:`banded_moments` of the whole S where no entry is farther than ``reach >= 1`` from the diagonal.

    One pass along the line of bins, with the counts of the last ``reach`` bins as the state. Exact but for rounding,
    which is bounded and added.

    Cost: :func:`sweep_cost`.
    """
    deadline = deadline or Deadline()
    bins, place = scaled.shape[0], np.arange(scaled.shape[0])
    near = np.stack([np.where(place >= d, scaled[place, place - d], 0.0) for d in range(reach + 1)], axis=1)
    line = Band(bins=bins, diagonal=near[:, 0].copy(), band=near[:, 1:].copy(), common=0.0, size=float(scaled.max()))
    states, decay = kernels.first_states(largest, reach)[-1], kernels.decay_table(largest, line.peak)
    old, new, total = np.zeros(states), np.zeros(states), np.zeros(largest + 1)
    old[0] = total[0] = 1.0
    for i in range(bins):
        deadline.tick()
        kernels.sweep_bin(old, new, total, decay, line.diagonal[i], line.band[i], line.peak)
        old, new = new, old
    return _finished(line, largest, total)


def _with_gap(reduced: Band, largest: int, deadline: Deadline) -> Array:
    bins, reach, rows = reduced.bins, reduced.reach, reduced.diagonal.size
    decay = kernels.decay_table(largest, reduced.peak)
    clusters = np.empty((rows, longest_cluster(bins, reach, largest), largest + 1))
    for start in range(rows):
        deadline.tick()
        kernels.grow_clusters(clusters, start, bins, decay, reduced.diagonal, reduced.band, reduced.peak)
    if rows == 1:
        return np.asarray(kernels.close_shared(clusters, bins, reach, decay))
    total = np.zeros(largest + 1)
    # the last jump of a ring read from p > 0 passes the seam, so p is below the longest jump
    for origin in range(min(bins, clusters.shape[1] + reach)):
        deadline.tick()
        total += kernels.close_from(clusters, origin, bins, reach, decay)
    return total


def _gapless(reduced: Band, largest: int) -> Array:
    bins, band = reduced.bins, reduced.band.copy()
    if bins == 2 * reduced.reach:
        band[:, -1] *= 0.5
    decay = kernels.decay_table(largest, reduced.peak)
    return np.asarray(kernels.without_gap(bins, decay, reduced.diagonal, band, reduced.peak))


def _finished(reduced: Band, largest: int, total: Array) -> LogMoments:
    """The log-moments from the scaled sums, with a bound on all rounding added; see docs/theory."""
    bins, reach = reduced.bins, reduced.reach
    orders = np.arange(2, largest + 1, dtype=np.float64)
    log_bins, log_factorial, pairs = np.log(bins), gammaln(orders + 1.0), 0.5 * orders * (orders - 1.0)
    with np.errstate(divide="ignore"):  # what underflows is covered by LOG_LOST
        log_sums = np.log(total[2:])
    log_total = np.logaddexp(log_sums, (orders + 1.0) * log_bins + LOG_LOST)
    values = log_total + pairs * (reduced.peak + reduced.common) + log_factorial - orders * log_bins
    prefixes = comb(largest + reach - 1, reach - 1)
    jump = 64.0 * largest + prefixes / 64.0 + bins + 4.0 * largest + 64.0
    gapless = comb(largest + reach, reach) if needs_gapless(bins, reach, largest) else 0
    depth = bins * (2.0 * largest + 32.0) + orders * jump + 2.0 * gapless
    size = orders**2 * reduced.size * (reach + 16.0) + log_factorial + (orders + 1.0) * log_bins + 32.0
    return LogMoments(orders, np.maximum(values, 0.0) + 4 * UNIT_ROUNDOFF * (depth + size))


def _diagonal_moments(reduced: Band, largest: int) -> LogMoments:
    """w = 1: a product of one power series for each bin, equal ones by repeated squaring."""
    every = np.arange(largest + 1, dtype=np.float64)
    log_factorial, pairs = gammaln(every + 1.0), 0.5 * every * (every - 1.0)
    entries, counts = np.unique(reduced.diagonal, return_counts=True)
    if reduced.diagonal.size == 1:
        counts = np.array([reduced.bins])
    product = np.where(every > 0.0, -np.inf, 0.0)
    for entry, count in zip(entries, counts, strict=True):
        product = kernels.log_product(product, _log_power(entry * pairs - log_factorial, int(count)))
    log_bins = np.log(reduced.bins)
    values = product + log_factorial - every * log_bins + pairs * reduced.common
    # a product adds up at most a + 1 terms, each with the rounding of its exponent; a draw of a bins meets so many
    products = entries.size + min(2.0 * reduced.bins, largest * (2.0 * np.log2(reduced.bins) + 2.0))
    size = every + 16.0 + 5.0 * (pairs * reduced.size + log_factorial + every * log_bins)
    values = np.maximum(values, 0.0) + UNIT_ROUNDOFF * (products + 8.0) * size
    return LogMoments(every[2:], values[2:])


def _log_power(series: Array, count: int) -> Array:
    result = series
    for bit in bin(count)[3:]:
        result = kernels.log_product(result, result)
        if bit == "1":
            result = kernels.log_product(result, series)
    return result


def dense_cost(bins: int, largest: int) -> float:
    """Rough seconds of :func:`dense_moments`."""
    flops = {2: 20.0 * bins**2, 3: 2.0 * bins**3 + 20.0 * bins**2, 4: 0.5 * bins**4 + 40.0 * bins**3}
    return 1e-4 * bins + flops[largest] / 1e10


def dense_moments(scaled: Array, largest: int, *, deadline: Deadline | None = None) -> LogMoments:
    """``log E_Q X^a`` for a = 2..largest <= 4 with the whole S: no bandwidth, no structure.

    ``b^a E X^a`` sums, over all a-tuples of bins, the product of ``E_ij = exp(S_ij)`` over their pairs: the sum of E
    for a = 2, of ``E * (E E)`` for a = 3, and for a = 4 the same by the smallest of the four bins.

    Formal guarantee: exact but for rounding, which is bounded and added.

    Args:
        scaled: S, symmetric and non-negative, shape (b, b).
        largest: 2, 3 or 4.

    Cost: O(b^2), O(b^3), O(b^4) in matrix products.
    """
    deadline = deadline or Deadline()
    bins, top = scaled.shape[0], float(scaled.max())
    factors = np.exp(scaled - top)
    totals = [float(factors.sum(axis=1).sum()), 0.0, 0.0][: largest - 1]
    if largest >= 3:
        deadline.tick()
        totals[1] = float(((factors @ factors) * factors).sum(axis=1).sum())
    if largest >= 4:
        for i in range(bins):
            if i % 16 == 0:
                deadline.tick()
            totals[2] += _quadruples_from(factors, i)
    orders = np.arange(2.0, largest + 1.0)
    pairs = 0.5 * orders * (orders - 1.0)
    lost = bins**orders * 1e-290  # underflow, of at most bins**4 terms and of the factors in them
    values = np.log(np.array(totals) + lost) + pairs * top - orders * log(bins)
    size = 8.0 * pairs * (top + 2.0) + 4.0 * bins + orders * log(bins) + 32.0
    return LogMoments(orders, np.maximum(values, 0.0) + 2 * UNIT_ROUNDOFF * size)


def _quadruples_from(factors: Array, i: int) -> float:
    """The 4-tuples whose smallest bin is i, by how many of the four it is: 4 * 1, 6 * 2, 4 * 3, 1 * 4 of them."""
    own, pull, rest = float(factors[i, i]), factors[i, i + 1 :], factors[i + 1 :, i + 1 :]
    pulled = pull[:, None] * rest
    three = float(((pulled.T @ rest) * (pulled * pull)).sum(axis=1).sum())
    two = float(pull**2 @ rest @ pull**2)
    one = float((pull**3).sum())
    return 4.0 * three + 6.0 * own * two + 4.0 * own**3 * one + own**6
