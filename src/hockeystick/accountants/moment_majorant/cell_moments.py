"""Moments of the mixture on cells of one of its Gaussians, under the law in which that bin was drawn.

Let ``u ~ N(0, T)`` with ``T = S - v 1 1^T``, the Gram matrix without its common factor, and
``Y = (1/b) sum_i e^(u_i - T_ii / 2)``. Under the law P_0, which tilts by ``e^(u_0 - T_00 / 2)``, ``u ~ N(T e_0, T)``.
For a cell A of the line, with r how often each bin is drawn and ``R = r + e_0``,

    E_0[Y^k; u_0 in A] = b^-k sum_(|r| = k) k! / prod_j r_j! Pr(N((T R)_0, T_00) in A)
                         exp(sum_i T_ii R_i (R_i - 1) / 2 + sum_(i<j) T_ij R_i R_j).

S is circulant and vanishes beyond ``reach`` on the ring, so ``(T R)_0`` depends only on the *label* of r: r_0 and
``n_d = r_d + r_-d`` for ``1 <= d <= reach``. The weights of all r of one label are summed once, by a transfer programme
around the ring; each cell then takes one normal probability for every label and order.

Proofs: ``docs/theory/moment-majorants/cells.md``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import comb, factorial, isqrt, log

import numpy as np

from hockeystick.accountants.moment_majorant.base import ExactGram, ExactMoments
from hockeystick.accountants.moment_majorant.cell_kernels import (
    TAIL_ERROR,
    Counts,
    add_cells,
    add_ring,
    step_weights,
)
from hockeystick.accountants.moment_majorant.double_double import ROUNDING, pair_of, rational
from hockeystick.accountants.moment_majorant.exponential import EXPONENTIAL_ERROR, LARGEST_EXPONENT, exponential
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import Array
from hockeystick.watch import Watch

LARGEST_LOG_SUM = 690.0
"""Sums of weights must stay in the range of doubles."""
MAX_WINDOWS = 60_000
SECONDS_PER_UPDATE = 4e-8
SECONDS_PER_TAIL = 1.5e-6
PIECE = 2e6
"""Updates between two looks at the watch, about."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CellMoments:
    """The cells of a line and the moments of the mixture on them, under P_0.

    Attributes:
        edges: increasing, shape (n,), where the n + 1 cells end; the first and the last are half lines.
        variance: ``T_00``, of u_0 and, under P_0, also its mean.
        moments: one for each cell; the entry 0 is the mass of the cell, and they add up to 1.
    """

    edges: Array
    variance: Fraction
    moments: tuple[ExactMoments, ...]


def why_no_cells(gram: ExactGram, largest: int) -> str | None:
    """Why :func:`cell_moments` has no answer, or None."""
    if gram.bins == 1 or not gram.is_circulant or gram.bins <= 2 * gram.reach:
        return "the Gram matrix is not a circulant one that vanishes beyond a distance below half of the ring"
    if _windows(gram, largest) > MAX_WINDOWS or (largest + 1) ** gram.reach >= 2**62:
        return "there are too many counts of neighbouring bins"
    exponent = gram.scale * float(gram.entries[0, 0]) * largest * (largest + 1) / 2
    if exponent > 0.99 * LARGEST_EXPONENT or exponent + (largest + 1) * log(2 * gram.bins) > LARGEST_LOG_SUM:
        return "its weights are beyond the range of doubles"
    return None if _variance(gram) > 0 else "a bin has nothing beside what all bins share"


def cell_cost(gram: ExactGram, largest: int, cells: int) -> float:
    """Rough seconds of :func:`cell_moments`; infinite where it does not apply."""
    if why_no_cells(gram, largest) is not None:
        return float("inf")
    reach = gram.reach
    updates = (gram.bins - reach) * comb(largest + 2 * reach + 2, largest)
    tails = cells * comb(largest + reach + 2, largest)
    return updates * SECONDS_PER_UPDATE + tails * SECONDS_PER_TAIL


def standard_edges(gram: ExactGram, places: Array) -> Array:
    """Edges at ``T_00 + places * sqrt(T_00)``: in standard deviations from the mean of u_0 under P_0."""
    variance = float(_variance(gram))
    result: Array = variance + np.asarray(places, dtype=np.float64) * variance**0.5
    return result


def cell_moments(gram: ExactGram, largest: int, edges: Array, *, watch: Watch) -> CellMoments:
    """Moments 0..largest on every cell, in about 27 digits; their proved error is stated with them.

    Args:
        gram: S, circulant, with more than twice ``reach`` bins.
        largest: highest order >= 1.
        edges: increasing, the places where cells end.

    Cost: :func:`cell_cost`; ``C(a + 2 reach + 2, a)`` updates for each bin and ``C(a + reach + 2, a)`` normal
    probabilities for each cell. Raises UnsupportedError where :func:`why_no_cells` says so.
    """
    reason = why_no_cells(gram, largest)
    if reason is not None:
        raise UnsupportedError(f"Moments on cells cannot be computed: {reason}.")
    ring = _Ring(gram, largest)
    table = _table(ring, watch)
    sums = np.zeros((edges.size + 1, largest + 1, 2))
    sizes = np.zeros((edges.size + 1, largest + 1))
    inverse = np.array(_inverse_root(_variance(gram)))
    for first, last in _pieces(np.full(ring.masses.size, 50.0 * edges.size), PIECE):
        watch.tick()
        add_cells(
            sums, sizes, first, last, table, ring.windows, ring.masses, ring.steps, ring.common, ring.powers, ring.own,
            edges, inverse,
        )  # fmt: skip
    return _finished(ring, edges, sums, sizes)


def whole_moments(cells: CellMoments, gram: ExactGram) -> ExactMoments:
    """``E X^k`` for k = 0..largest + 1, common factor included, as ``E_0 Y^(k-1)`` over all cells; to check them."""
    orders = range(cells.moments[0].degree + 1)
    sums = [sum((part.values[k] for part in cells.moments), Fraction(0)) for k in orders]
    common = Fraction(gram.scale) * Fraction(gram.common)
    factors = _exponentials([[common * (k * (k + 1) // 2) for k in orders]])[0]
    values = (Fraction(1), *(total * rational(*factors[k]) for k, total in enumerate(sums)))
    error = max(part.error for part in cells.moments) + Fraction(2.0**-90)
    return ExactMoments(values=values, error=error)


class _Ring:
    """Tables of one Gram matrix for draws of at most ``largest``; see :mod:`.cell_kernels`."""

    def __init__(self, gram: ExactGram, largest: int) -> None:
        self.gram, self.largest, self.reach = gram, largest, gram.reach
        scale = Fraction(gram.scale)
        self.exact = [scale * Fraction(float(gram.entries[0, d])) for d in range(gram.reach + 1)]
        self.exact_common = scale * Fraction(gram.common)
        self.steps = np.array([pair_of(step) for step in self.exact])
        self.common = np.array(pair_of(self.exact_common))
        self.windows = _all_windows(gram.reach, largest)
        self.masses: Counts = self.windows.sum(axis=1)
        self.counts: Counts = np.searchsorted(self.masses, np.arange(largest + 1), side="right").astype(np.int64)

    @cached_property
    def powers(self) -> Array:
        """``e^(S_d x)``, shape (reach + 1, top + 1, 2); products of two counts, one with the drawn bin, are <= top."""
        top = max((self.largest + 1) ** 2 // 4, self.largest)
        return _exponentials([[step * x for x in range(top + 1)] for step in self.exact])

    @cached_property
    def own(self) -> Array:
        """``e^(S_0 n (n - 1) / 2) / n!``, shape (largest + 1, 2)."""
        counts = range(self.largest + 1)
        parts = _exponentials([[self.exact[0] * (n * (n - 1) // 2) for n in counts]])[0]
        return np.array([pair_of(rational(*parts[n]) / factorial(n)) for n in counts])

    @cached_property
    def keys(self) -> Counts:
        """See :mod:`.cell_kernels`."""
        return self.windows @ (self.largest + 1) ** np.arange(self.reach, dtype=np.int64)

    def places(self, keys: Counts) -> Counts:
        """Which windows these are the keys of."""
        order = np.argsort(self.keys)
        found: Counts = order[np.searchsorted(self.keys[order], keys)]
        return found

    @cached_property
    def following(self) -> Counts:
        """The window after r draws of the next bin, shape (windows, largest + 1); 0 where that is too many."""
        result = np.zeros((self.masses.size, self.largest + 1), dtype=np.int64)
        if self.reach == 0:
            return result
        base = self.largest + 1
        kept = self.keys % base ** (self.reach - 1) * base
        for r in range(self.largest + 1):
            fits = self.counts[self.largest - r]
            result[:fits, r] = self.places(kept[:fits] + r)
        return result


def _table(ring: _Ring, watch: Watch) -> Array:
    """By label and number of draws, the weights of all draws of the bins other than 0."""
    table = np.zeros((ring.masses.size, ring.largest + 1, 2))
    weights = step_weights(ring.windows, ring.masses, ring.powers, ring.own)
    order = np.argsort(ring.keys)
    sorted_keys, places = ring.keys[order], order.astype(np.int64)
    room = ring.largest - ring.masses
    work = ring.gram.bins * np.array([comb(int(r) + ring.reach + 2, int(r)) for r in range(ring.largest + 1)])[room]
    for first, last in _pieces(work, PIECE):
        watch.tick()
        add_ring(
            table, first, last, ring.gram.bins, ring.windows, ring.masses, ring.counts, ring.keys, sorted_keys, places,
            ring.following, weights, ring.powers, ring.own,
        )  # fmt: skip
    return table


def _finished(ring: _Ring, edges: Array, sums: Array, sizes: Array) -> CellMoments:
    """From sums to moments: the factors that depend on the order alone, and all rounding."""
    largest, bins = ring.largest, ring.gram.bins
    shared = _exponentials([[-ring.exact_common * (k * (k + 1) // 2) for k in range(largest + 1)]])[0]
    factors = [rational(*shared[k]) * factorial(k) / bins**k for k in range(largest + 1)]
    weights, places = _weight_error(ring), _place_error(ring, edges)
    tails = Fraction(max(2.0 * TAIL_ERROR + 2.0 * places, 2.0**-100))
    moments = []
    for c in range(edges.size + 1):
        totals = [rational(*sums[c, k]) for k in range(largest + 1)]
        if min(totals) <= 0:
            raise UnsupportedError("Moments on cells cannot be computed: a cell is out of reach of all draws.")
        loss = max(Fraction(float(sizes[c, k])) / totals[k] for k in range(largest + 1))
        values = tuple(total * factor for total, factor in zip(totals, factors, strict=True))
        moments.append(ExactMoments(values=values, error=2 * (weights + tails * loss)))
    return CellMoments(edges=edges, variance=_variance(ring.gram), moments=tuple(moments))


def _weight_error(ring: _Ring) -> Fraction:
    """Relative error of every weight and of the factors of the orders, half of it; see the page of docs/theory."""
    a, windows = ring.largest, ring.masses.size
    factors = ring.gram.bins + (a + 2) ** 2
    sums = ring.gram.bins * (a + 1) ** 2 + windows**2 + windows * (a + 1) ** 2
    exponents = 2 * int(LARGEST_EXPONENT) + 2
    return Fraction(ROUNDING) * (factors + sums + exponents) + Fraction(EXPONENTIAL_ERROR) * (factors + 1)


def _place_error(ring: _Ring, edges: Array) -> float:
    """Relative error of a normal tail through its argument, which is at most 35."""
    size = (ring.largest + 1) * float(ring.exact[0] + ring.exact_common) + float(np.abs(edges).max())
    place = (ring.reach + 6) * size / float(_variance(ring.gram)) ** 0.5 + 72.0
    return float(36.0 * place * ROUNDING)


def _variance(gram: ExactGram) -> Fraction:
    return Fraction(gram.scale) * (Fraction(float(gram.entries[0, 0])) - Fraction(gram.common))


def _inverse_root(variance: Fraction) -> tuple[float, float]:
    """``1 / sqrt(variance)``, relative error below ``2^-105``."""
    shift = 128 + max(variance.numerator.bit_length() - variance.denominator.bit_length(), 0)
    root = isqrt((variance.denominator << 2 * shift) // variance.numerator)
    return pair_of(Fraction(root, 1 << shift))


def _exponentials(exponents: list[list[Fraction]]) -> Array:
    """``e^x`` in pairs, of shape (rows, columns, 2)."""
    pairs = np.array([[pair_of(x) for x in row] for row in exponents])
    return np.stack(exponential(pairs[..., 0].copy(), pairs[..., 1].copy()), axis=-1)


def _windows(gram: ExactGram, largest: int) -> int:
    return comb(largest + gram.reach, largest)


def _all_windows(reach: int, largest: int) -> Counts:
    """All tuples of ``reach`` counts with a sum of at most ``largest``, by their sums; shape (windows, reach)."""
    rows = np.zeros((1, 0), dtype=np.int64)
    for _ in range(reach):
        masses = rows.sum(axis=1)
        rows = np.concatenate(
            [
                np.column_stack([rows[masses <= largest - r], np.full((masses <= largest - r).sum(), r)])
                for r in range(largest + 1)
            ]
        )
    return np.ascontiguousarray(rows[np.argsort(rows.sum(axis=1), kind="stable")])


def _pieces(work: Array, size: float) -> Iterator[tuple[int, int]]:
    """Ranges of places of about this much work each."""
    ends = np.searchsorted(np.cumsum(work), np.arange(size, float(work.sum()), size), side="right")
    borders = np.unique(np.concatenate([[0], ends, [work.size]]))
    yield from zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)
