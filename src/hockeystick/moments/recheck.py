"""A second computation of a mixture's moments, in doubles and by other code, that the first must agree with.

* Where entries vanish beyond a short reach, by :mod:`.bands`, which sweeps along the line of bins, or joins clusters of
  draws, by the formulas that the first computation uses too, but shares no code with it;
* otherwise from the definition, by enumerating multisets of draws with running products.

An import contract keeps the first computation's code out. The check finds mistakes; it is no part of any bound.
Proofs: ``docs/theory/moment-majorants/gram.md``.
"""

from collections.abc import Sequence
from math import comb, inf, lgamma, log
from typing import cast

import numpy as np
from scipy.special import ndtr

from hockeystick.compiling import kernel
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.moments.bands import banded_cost, banded_moments, sweep_cost, swept_moments
from hockeystick.moments.exact import ExactGram, ExactMoments

AGREEMENT = 1e-7
"""Largest difference of the logarithms; rounding of the second computation takes at most half of it."""
AGREEMENT_ON_RANGES = 5e-7
"""Largest relative difference on one range, whose probability is a difference."""
SMALLEST_VISIBLE = 1e-280
"""Part of a moment below which doubles may have lost digits to underflow."""
LARGEST_BANDED_EXPONENT = 550.0
"""Largest ``S_ii a (a-1) / 2`` at which underflow in the banded computation is too small to be seen here."""
LARGEST_EXPONENT = 690.0
"""Largest logarithm of what the enumeration adds up, so that it stays in the range of doubles."""
PIECE = 300_000_000
"""Multisets between two ticks, roughly: some tenths of a second."""
SECONDS_PER_MULTISET = 4e-10
SECONDS_PER_NODE = 4e-8
"""Cost of starting an inner loop, once for every multiset short of two draws."""


def recheck(gram: ExactGram, moments: ExactMoments, *, deadline: Deadline) -> None:
    """Return if the moments agree with a second computation, which finds a relative error of 1e-6 in any of them.

    Args:
        gram: the covariance S.
        moments: of the whole mixture, common factor included, orders 0..a.

    Cost: :func:`recheck_cost`.
    Raises: UnsupportedError where the two disagree, and where no second computation is affordable or exact enough.
    """
    largest = moments.degree
    for order in range(min(largest, 1) + 1):
        _require(order, log(moments.values[order]), 0.0)
    if largest < 2:
        return
    banded, enumerated = _banded_cost(gram, largest), _enumeration_cost(gram, largest)
    if min(banded, enumerated) == inf:
        raise UnsupportedError(f"No second computation of the moments up to order {largest} is exact enough here.")
    logs = _banded_logs(gram, largest, deadline) if banded < enumerated else _enumerated_logs(gram, largest, deadline)
    for order in range(2, largest + 1):
        value = moments.values[order]
        _require(order, log(value.numerator) - log(value.denominator), float(logs[order - 2]))


def recheck_cost(gram: ExactGram, largest: int) -> float:
    """Rough seconds of :func:`recheck` for the orders up to ``largest``; infinite where it would refuse."""
    return 0.0 if largest < 2 else min(_banded_cost(gram, largest), _enumeration_cost(gram, largest))


def _require(order: int, first: float, second: float) -> None:
    if not abs(first - second) <= AGREEMENT:
        raise UnsupportedError(
            f"Two computations of the moment of order {order} disagree: its logarithm is {first:.12g} or {second:.12g}."
        )


def _largest_entry(gram: ExactGram) -> float:
    return float(gram.entries.max()) * gram.scale


def _banded_cost(gram: ExactGram, largest: int) -> float:
    if largest * (largest - 1) / 2 * _largest_entry(gram) > LARGEST_BANDED_EXPONENT:
        return inf
    swept = sweep_cost(gram.bins, max(gram.span, 1), largest)
    return min(banded_cost(gram.bins, gram.reach, largest, gram.is_circulant), swept)


def _banded_logs(gram: ExactGram, largest: int, deadline: Deadline) -> Array:
    """Log moments of orders 2..largest; exact but for rounding, as nothing lies beyond the reach."""
    scaled, span = gram.entries * gram.scale, max(gram.span, 1)
    if sweep_cost(gram.bins, span, largest) < banded_cost(gram.bins, gram.reach, largest, gram.is_circulant):
        return swept_moments(scaled, span, largest, deadline=deadline).values
    return banded_moments(scaled, gram.reach + 1, largest, share=gram.is_circulant, deadline=deadline).values


def _free_draws(gram: ExactGram, largest: int) -> int:
    """Number of draws to enumerate: in a circulant mixture all bins are alike, so one draw may be taken to be bin 0."""
    return largest - 1 if gram.is_circulant else largest


def _enumeration_cost(gram: ExactGram, largest: int) -> float:
    bins, draws = gram.bins, _free_draws(gram, largest)
    if _enumeration_exponent(gram, largest) > LARGEST_EXPONENT or _enumeration_error(gram, largest) > AGREEMENT / 2:
        return inf
    multisets, nodes = comb(bins + draws - 1, draws), comb(bins + draws - 2, max(draws - 2, 0))
    return multisets * SECONDS_PER_MULTISET + nodes * SECONDS_PER_NODE


def _enumeration_exponent(gram: ExactGram, largest: int) -> float:
    return largest * (largest - 1) / 4 * _largest_entry(gram) + largest * log(gram.bins) + lgamma(largest + 1.0)


def _enumeration_error(gram: ExactGram, largest: int) -> float:
    """Bound of the relative rounding error of the enumerated moments."""
    bins, draws = gram.bins, _free_draws(gram, largest)
    factors = largest * (largest - 1) / 2
    products = factors * (12.0 + 4.0 * _largest_entry(gram)) + 8.0 * largest + 64.0
    logs = 8.0 * (_enumeration_exponent(gram, largest) + largest * log(bins))
    if comb(bins + draws - 1, draws) <= PIECE:
        additions = 3 * comb(bins + draws - 2, max(draws - 2, 0))
    else:
        additions = 3 * comb(bins + draws - 3, max(draws - 3, 0)) + draws * bins * bins
    return 2.0 * UNIT_ROUNDOFF * (products + logs + additions + 3.0 * bins)


def _enumerated_logs(gram: ExactGram, largest: int, deadline: Deadline) -> Array:
    """Log moments of orders 2..largest: sums over multisets of draws, all summands positive."""
    bins, draws = gram.bins, _free_draws(gram, largest)
    scaled = gram.entries * gram.scale
    # half the largest exponent is taken out of every pair of draws: products stay near 1
    centre = 0.5 * float(scaled.max())
    factors = np.exp(scaled - centre)
    fields = np.ones((draws + 1, bins))
    fixed = largest - draws
    if fixed:
        fields[0] = factors[0]
    sums = _sums(factors, fields, deadline)
    orders = np.arange(2, largest + 1)
    free = orders - fixed
    log_factorials = np.array([lgamma(n + 1.0) for n in free])
    pairs = 0.5 * orders * (orders - 1.0)
    return cast(Array, np.log(sums[free]) + log_factorials - free * log(bins) + pairs * centre)


def _sums(factors: Array, fields: Array, deadline: Deadline) -> Array:
    """For n = 0..draws the sum, over all ways to draw a multiset of n bins, of its product; see :func:`_draw`."""
    draws, bins = fields.shape[0] - 1, fields.shape[1]
    sums = np.zeros(draws + 1)
    halved = np.triu(factors) - 0.5 * np.diag(factors.diagonal())
    deadline.tick()
    if comb(bins + draws - 1, draws) <= PIECE:
        _draw(factors, halved, fields, sums, 0, 1.0, 0, bins)
        return sums
    # the smallest bin and its count here, the rest in pieces by the next bin
    for j in range(bins):
        weight = 1.0
        for count in range(1, draws + 1):
            weight *= fields[count - 1, j] / count
            fields[count] = fields[count - 1] * factors[j]
            sums[count] += weight
            rest = draws - count
            below = comb(bins - j + rest - 1, rest)
            step = max(1, int(min(1.0, PIECE / (below * (rest + 1))) * bins))
            for start in range(j + 1, bins if rest else 0, step):
                deadline.tick()
                part = np.zeros(draws + 1)
                _draw(factors, halved, fields, part, count, weight, start, min(start + step, bins))
                sums += part
    return sums


@kernel
def _draw(
    factors: Array, halved: Array, fields: Array, sums: Array, drawn: int, weight: float, start: int, stop: int
) -> None:
    """Add to ``sums[n]`` all multisets of n draws that continue the given one with a next bin in start..stop - 1.

    The product of a multiset with counts r is ``prod_j f_j^r_j E_jj^(r_j (r_j - 1) / 2) / r_j!`` times
    ``prod_(i<j) E_ij^(r_i r_j)``, with ``f = fields[0]`` and ``E = factors``. A draw of bin j after m others
    multiplies it by ``fields[m, j]`` over the new count: the row m holds f times all factors towards those drawn.

    Args:
        halved: the upper triangle of E with half its diagonal.
        drawn: size of the given multiset, all of whose bins are below start.
        weight: its product.
    """
    largest, bins = sums.size - 1, factors.shape[0]
    for j in range(start, stop):
        product = weight
        for count in range(1, largest - drawn + 1):
            size = drawn + count
            product *= fields[size - 1, j] / count
            sums[size] += product
            if size == largest:
                break
            before, after, row = fields[size - 1, j:], fields[size, j:], factors[j, j:]
            for k in range(row.size):
                after[k] = before[k] * row[k]
            if size < largest - 2:
                _draw(factors, halved, fields, sums, size, product, j + 1, bins)
                continue
            one, two = _last_draws(halved, fields[size], j + 1)
            sums[size + 1] += product * one
            if size == largest - 2:
                sums[largest] += product * two


@kernel(fastmath={"reassoc", "contract"})
def _last_draws(halved: Array, field: Array, start: int) -> tuple[float, float]:
    """The sums over one further draw and over a multiset of two, from the bins start, start + 1, ...

    Four rows at a time; slices let the compiler see that no index is negative, and use vector instructions.
    """
    bins, one, two = field.size, 0.0, 0.0
    for j in range(start, bins - 3, 4):
        rest = field[j:]
        first, second, third, fourth = halved[j, j:], halved[j + 1, j:], halved[j + 2, j:], halved[j + 3, j:]
        a, b, c, d = rest[0], rest[1], rest[2], rest[3]
        one += a + b + c + d
        for k in range(rest.size):
            two += rest[k] * (a * first[k] + b * second[k] + c * third[k] + d * fourth[k])
    for j in range(bins - (bins - start) % 4, bins):
        one += field[j]
        for k in range(j, bins):
            two += field[j] * field[k] * halved[j, k]
    return one, two


def sums_on_ranges(weights: Array, means: Array, edges: Array) -> Array:
    """``sum_j w_j Pr(N(m_j, 1) in range)`` for every range, in doubles, with scipy's normal distribution function.

    Args:
        weights: shape (places, powers): ``weights[g, t]`` is the sum over the j near ``means[g]`` of
            ``w_j (m_j - means[g])^t``; the probabilities are expanded in these powers.
        means: in standard deviations, shape (places,).
        edges: increasing, where ranges end, in standard deviations; the two outermost ranges are unbounded.

    Returns: shape (edges + 1,).
    """
    used = weights[:, 0] != 0.0
    weights, means = weights[used], means[used]
    distance = edges[:, None] - means
    borders = np.vstack([np.full(means.size, -np.inf), distance, np.full(means.size, np.inf)])
    right = borders[:-1] > 0.0
    chances = ndtr(np.where(right, -borders[:-1], borders[1:])) - ndtr(np.where(right, -borders[1:], borders[:-1]))
    sums = chances @ weights[:, 0]
    before, density = np.zeros_like(distance), np.exp(-0.5 * distance**2) / np.sqrt(2.0 * np.pi)
    for power in range(1, weights.shape[1]):  # density is He_(power-1)(z) phi(z) / (power - 1)!
        below_edge = -(density / power) @ weights[:, power]
        sums += np.append(below_edge, 0.0) - np.insert(below_edge, 0, 0.0)
        before, density = density, (distance * density - before) / power
    return np.asarray(sums)


def recheck_on_ranges(moments: Array, order: int, parts: Sequence[ExactMoments]) -> None:
    """Refuse moments of one order on ranges of a Gaussian that :func:`sums_on_ranges` does not confirm one by one.

    Args:
        moments: up to one common factor, shape (ranges,).
        parts: moments on each range.

    Raises: UnsupportedError where a range differs by more than ``AGREEMENT_ON_RANGES``.
    """
    stated = np.array([float(part.values[order]) for part in parts])
    scaled = moments * (stated.sum() / moments.sum())
    visible = stated > SMALLEST_VISIBLE * stated.sum()
    if not (np.abs(scaled - stated) <= AGREEMENT_ON_RANGES * stated)[visible].all():
        raise UnsupportedError("The moments on ranges of a Gaussian are not confirmed by their second computation.")
