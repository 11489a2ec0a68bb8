"""Moments of the mixture on cells of the drawn bin's own Gaussian, under the laws in which some bin was drawn.

Let ``u ~ N(0, T)`` with ``T = S - v 1 1^T``, the Gram matrix without its common factor, and
``Y = (1/b) sum_i e^(u_i - T_ii / 2)``; P_i tilts by ``e^(u_i - T_ii / 2)``. For a cell A of the line, with r how often
each bin is drawn and ``R = r + e_i``,

    E_i[Y^k; u_i in A] = b^-k sum_(|r| = k) k! / prod_j r_j! Pr(N((T R)_i, T_ii) in A)
                         exp(sum_j T_jj R_j (R_j - 1) / 2 + sum_(j<l) T_jl R_j R_l).

A cell's moments are the means of this over all bins i; where S is circulant, one bin stands for all. ``(T R)_i``
depends only on r_i and the counts of the ``reach`` bins on both sides, so the weights of all r are summed by those.

Proofs: ``docs/theory/moment-majorants/cells.md``.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, comb, factorial, floor, log

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import Array
from hockeystick.moments.cell_kernels import (
    Counts,
    Drawn,
    Factors,
    Patterns,
    Windows,
    add_cells,
    add_ring,
    collect,
    step_weights,
)
from hockeystick.moments.double_double import ROUNDING, Pairs, pair_of, rational
from hockeystick.moments.exact import ExactGram, ExactMoments
from hockeystick.moments.exponential import EXPONENTIAL_ERROR, LARGEST_EXPONENT, exponential, rational_root
from hockeystick.moments.normal_tail import EXPANDED_ERROR, PLACES, TERMS
from hockeystick.moments.recheck import recheck_on_ranges, sums_on_ranges
from hockeystick.moments.summation import moments_on_ranges, pieces

CONFIRMING_TERMS = 14
"""Terms of the expansions in the second summation: ``(40 / 64)^14 / 14!`` is 1e-14."""
LARGEST_LOG_SUM = 690.0
"""Sums of weights must stay in the range of doubles."""
MAX_TABLE = 40_000_000
"""Largest number of entries in one table."""
SECONDS_PER_UPDATE = 1e-8
SECONDS_PER_MEAN = 4e-7
SECONDS_PER_TAIL = 2.5e-6
"""Cost of the tails at one place and edge; ``TERMS / 2`` orders cost as much again."""
PIECE = 1e7
"""Updates between two ticks of the deadline, roughly."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CellMoments:
    """The cells of a line and the moments of the mixture on them: the means of those under all P_i.

    Attributes:
        edges: increasing, shape (n,), where the n + 1 cells end; the first and the last are half lines.
        variance: the largest ``T_ii``, of u_i and, under P_i, also its mean.
        moments: one for each cell; the entry 0 is the mass of the cell, and they add up to 1.
    """

    edges: Array
    variance: Fraction
    moments: tuple[ExactMoments, ...]


def why_no_cells(gram: ExactGram, largest: int) -> str | None:
    """Why :func:`cell_moments` has no answer, or None."""
    bins, reach = gram.bins, gram.reach
    if bins == 1 or bins <= 2 * reach or (bins < 4 * reach and not gram.is_circulant):
        return "the Gram matrix does not vanish beyond a quarter of the ring, or a half where it is circulant"
    windows, size = comb(largest + reach, largest), 2 * (largest + 1)
    if (largest + 1) ** reach >= 2**62 or (bins + 1) * windows * size > MAX_TABLE:
        return "there are too many counts of neighbouring bins"
    if (gram.entries.diagonal() <= gram.common).any():
        return "a bin has nothing beside what all bins share"
    surroundings = _surroundings(gram)
    tables = surroundings.groups.max() + 1
    steps = surroundings.steps.max() + 1
    if tables * comb(largest + 2 * reach, largest) * size > MAX_TABLE or steps * windows * size > MAX_TABLE:
        return "there are too many counts of neighbouring bins"
    if _places(gram, largest) * (largest + 1) * TERMS * 2 > MAX_TABLE:
        return "the bins' Gaussians are too far from alike"
    exponent = gram.scale * float(gram.entries.max()) * largest * (largest + 1) / 2
    if exponent > 0.99 * LARGEST_EXPONENT or exponent + (largest + 1) * log(2 * bins) > LARGEST_LOG_SUM:
        return "its weights are beyond the range of doubles"
    return None


def cell_cost(gram: ExactGram, largest: int, cells: int) -> float:
    """Rough seconds of :func:`cell_moments`; infinite where it does not apply."""
    if why_no_cells(gram, largest) is not None:
        return float("inf")
    reach, wanted = gram.reach, 1 if gram.is_circulant else gram.bins
    chains = gram.bins * comb(largest + 2 * reach + 2, largest) * (1 if gram.is_circulant else 4)
    updates = chains + wanted * comb(largest + 3 * reach + 2, largest)
    surroundings = _surroundings(gram)
    means = (int(surroundings.groups.max()) + 1) * comb(largest + 2 * reach + 2, largest)
    tails = cells * _places(gram, largest) * len(np.unique(gram.entries.diagonal()))
    seconds = updates * SECONDS_PER_UPDATE + means * (SECONDS_PER_MEAN + 2 * reach * 2e-8)
    return seconds + tails * SECONDS_PER_TAIL * (1.0 + 2.0 * (largest + 1) / TERMS)


def standard_edges(gram: ExactGram, places: Array) -> Array:
    """Edges at ``T_ii + places * sqrt(T_ii)`` for the largest T_ii: in standard deviations from the mean of u_i."""
    variance = float(Fraction(gram.scale) * (Fraction(float(gram.entries.diagonal().max())) - Fraction(gram.common)))
    result: Array = variance + np.asarray(places, dtype=np.float64) * variance**0.5
    return result


def cell_moments(gram: ExactGram, largest: int, edges: Array, *, deadline: Deadline) -> CellMoments:
    """Moments 0..largest on every cell, in about 26 digits; their proved error is stated with them.

    Args:
        gram: S, with at least four times ``reach`` bins, or with more than twice as many where it is circulant.
        largest: highest order >= 1.
        edges: increasing, the places where cells end.

    Cost: :func:`cell_cost`. Raises UnsupportedError where :func:`why_no_cells` says so.
    """
    reason = why_no_cells(gram, largest)
    if reason is not None:
        raise UnsupportedError(f"Moments on cells cannot be computed: {reason}.")
    draws = _Draws(gram, largest)
    tables = _tables(draws, deadline)
    moments = np.zeros((edges.size + 1, largest + 1), dtype=np.complex128)
    sizes = np.zeros((edges.size + 1, largest + 1))
    confirmed = np.zeros((largest + 1, edges.size + 1))
    for kind in draws.diagonal.tolist():
        per_deviation = pair_of(rational_root(1 / draws.variance(kind)))
        sums, lowest = _collected(draws, tables, kind, per_deviation, deadline)
        for first, last in pieces(np.full(len(sums), 250.0 * edges.size), PIECE):
            deadline.tick()
            add_cells(moments, sizes, sums, lowest, first, last, edges, per_deviation)
        places = (np.arange(len(sums)) + lowest) / PLACES
        for k in range(largest + 1):
            confirmed[k] += sums_on_ranges(sums[:, k, :CONFIRMING_TERMS].real, places, edges * per_deviation.real)
    cells = _finished(draws, edges, moments, sizes)
    for k in range(largest + 1):
        recheck_on_ranges(confirmed[k], k, cells.moments)
    return cells


def whole_moments(cells: CellMoments, gram: ExactGram) -> ExactMoments:
    """``E X^k`` for k = 0..largest + 1, common factor included, as ``E_i Y^(k-1)`` over all cells; to check them."""
    orders = range(cells.moments[0].degree + 1)
    sums = [sum((part.values[k] for part in cells.moments), Fraction(0)) for k in orders]
    common = Fraction(gram.scale) * Fraction(gram.common)
    factors = _exponentials([[common * (k * (k + 1) // 2) for k in orders]])[0]
    values = (Fraction(1), *(total * rational(factors[k]) for k, total in enumerate(sums)))
    error = max(part.error for part in cells.moments) + Fraction(2.0**-90)
    return ExactMoments(values=values, error=error)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Surroundings:
    """Which entries of a Gram matrix are equal to the bit, and so which bins see the same ones.

    Attributes:
        entries: the different values near the diagonal.
        kinds: shape (bins, reach + 1), which one ``S_(i,i+d)`` is.
        steps: shape (2, bins), which pattern of entries each bin has with itself and the bins before it, or after it.
        patterns: shape (patterns, reach + 1).
        groups: shape (bins,), equal for wanted bins with equal entries among all bins up to reach around them; else -1.
        members: shape (groups,), one bin of each. One bin alone is wanted where S is circulant.
    """

    entries: Array
    kinds: Counts
    steps: Counts
    patterns: Counts
    groups: Counts
    members: Counts


def _surroundings(gram: ExactGram) -> _Surroundings:
    bins, reach = gram.bins, gram.reach
    place, distance = np.arange(bins), np.arange(reach + 1)
    near = gram.entries[place[:, None], (place[:, None] + distance) % bins]
    entries, flat = np.unique(near, return_inverse=True)
    kinds: Counts = flat.reshape(near.shape).astype(np.int64)
    before = kinds[(place[:, None] - distance) % bins, distance]
    patterns, steps = np.unique(np.concatenate([before, kinds]), axis=0, return_inverse=True)
    around = np.concatenate([kinds[(place - d) % bins] for d in range(reach, -reach - 1, -1)], axis=1)
    # pairs of which one is beyond the reach of the bin in the middle do not matter
    inside = (np.arange(-reach, reach + 1)[:, None] + distance <= reach).ravel()
    _, members, groups = np.unique(around[:, inside], axis=0, return_index=True, return_inverse=True)
    groups = groups.ravel().astype(np.int64)
    if gram.is_circulant:
        members, groups = np.array([reach]), np.where(place == reach, 0, -1)
    return _Surroundings(
        entries=entries,
        kinds=kinds,
        steps=steps.reshape(2, bins).astype(np.int64),
        patterns=patterns,
        groups=groups,
        members=members.astype(np.int64),
    )


class _Draws:
    """Tables of one Gram matrix for draws of at most ``largest``; see :mod:`.cell_kernels`."""

    def __init__(self, gram: ExactGram, largest: int) -> None:
        self.gram, self.largest, self.reach = gram, largest, gram.reach
        self.around = _surroundings(gram)
        scale = Fraction(gram.scale)
        self.exact = [scale * Fraction(float(entry)) for entry in self.around.entries]
        self.exact_common = scale * Fraction(gram.common)
        self.values = np.array([pair_of(step) for step in self.exact])
        self.windows = _all_windows(gram.reach, largest)
        fits = self.windows.counts[largest - self.windows.masses]
        self.places = int(fits.sum())
        top = largest * (largest + 1) // 2
        self.factors = Factors(
            powers=_exponentials([[step * x for x in range(top + 1)] for step in self.exact]),
            inverse=np.array([pair_of(Fraction(1, factorial(n))) for n in range(largest + 1)]),
        )

    def variance(self, kind: int) -> Fraction:
        """``T_ii`` of a bin whose own entry is of this kind."""
        return self.exact[kind] - self.exact_common

    @property
    def diagonal(self) -> Counts:
        """The kinds of the bins' own entries."""
        return np.unique(self.around.kinds[:, 0])

    @cached_property
    def weights(self) -> Pairs:
        """The weights of steps by pattern, shape (patterns, windows, largest + 1)."""
        return np.stack([step_weights(pattern, self.windows, self.factors) for pattern in self.around.patterns])


def _tables(draws: _Draws, deadline: Deadline) -> Pairs:
    """The summed weights of all draws of the other bins, by group, windows on both sides and number of draws.

    The ring is cut open at bin 0 for all bins that are not near it, and half way round for the others.
    """
    bins, reach, around = draws.gram.bins, draws.reach, draws.around
    tables = np.zeros((len(around.members), draws.places, draws.largest + 1), dtype=np.complex128)
    place = np.arange(bins)
    far = (place >= reach) & (place < bins - reach)
    room = draws.largest - draws.windows.masses
    work = np.array([comb(int(r) + 2 * reach + 2, int(r)) for r in room], dtype=np.float64) * len(place)
    for cut, chosen in ((0, far), (bins // 2, ~far)):
        groups = np.roll(np.where(chosen, around.groups, -1), -cut)
        if (groups < 0).all():
            continue
        kinds, onward, back = (np.roll(x, -cut, axis=0) for x in (around.kinds, *around.steps))
        for first, last in pieces(work, PIECE):
            deadline.tick()
            patterns = Patterns(draws.weights, onward, back)
            add_ring(tables, groups, first, last, kinds, draws.windows, patterns, draws.factors)
    return tables


def _collected(
    draws: _Draws, tables: Pairs, kind: int, per_deviation: complex, deadline: Deadline
) -> tuple[Pairs, int]:
    """What :func:`collect` sums for all bins whose own entry is of this kind, and its lowest place."""
    around, reach, bins = draws.around, draws.reach, draws.gram.bins
    lowest, highest = _extremes(draws.gram, draws.largest, float(around.entries[kind]))
    sums = np.zeros((highest - lowest + 1, draws.largest + 1, TERMS), dtype=np.complex128)
    room = draws.largest - draws.windows.masses
    work = 25.0 * np.array([comb(int(r) + reach + 2, int(r)) for r in room], dtype=np.float64)
    steps, common = np.arange(1, reach + 1), pair_of(draws.exact_common)
    for group, i in enumerate(around.members.tolist()):
        if around.kinds[i, 0] != kind:
            continue
        sides = np.stack([around.kinds[(i - steps) % bins, steps], around.kinds[i, steps]])
        gaps = np.minimum(steps[:, None] + steps, reach)  # beyond the reach nothing is looked up
        across = around.kinds[(i - steps[:, None]) % bins, gaps]
        for first, last in pieces(work, PIECE):
            deadline.tick()
            drawn = Drawn(kind, sides, across, draws.values, common, per_deviation)
            collect(sums, lowest, first, last, tables[group], drawn, draws.windows, draws.factors)
    return sums, lowest


def _places(gram: ExactGram, largest: int) -> int:
    """The most places where means may lie, of any bin."""
    lowest, highest = _extremes(gram, largest, float(gram.entries.diagonal().min()))
    return highest - lowest + 1


def _extremes(gram: ExactGram, largest: int, own: float) -> tuple[int, int]:
    """Places between which ``(T R)_i / sqrt(T_ii)`` lies, where ``T_ii = scale (own - common)``."""
    rest = own - gram.common
    most = float(gram.entries.max()) - gram.common
    least = min(float(gram.entries.min()) - gram.common, 0.0)
    unit = PLACES * (gram.scale / rest) ** 0.5
    return floor(unit * (own - gram.common + largest * least)) - 2, ceil(unit * (largest + 1) * most) + 2


def _finished(draws: _Draws, edges: Array, sums: Pairs, sizes: Array) -> CellMoments:
    """The moments from the sums: factors that depend on the order alone are applied, all rounding is charged."""
    largest, bins = draws.largest, draws.gram.bins
    wanted = int((draws.around.groups >= 0).sum())
    shared = _exponentials([[-draws.exact_common * (k * (k + 1) // 2) for k in range(largest + 1)]])[0]
    factors = [rational(shared[k]) * factorial(k) / bins**k / wanted for k in range(largest + 1)]
    weights, places = _weight_error(draws), _place_error(draws, edges)
    tails = Fraction(max(2.0 * EXPANDED_ERROR + 2.0 * places, 2.0**-100)) + weights
    return CellMoments(
        edges=edges,
        variance=max(draws.variance(int(x)) for x in draws.diagonal),
        moments=moments_on_ranges(sums, sizes, factors, weights, tails),
    )


def _weight_error(draws: _Draws) -> Fraction:
    """Half the relative error of every weight and of the factors of the orders; see docs/theory."""
    a, bins, windows = draws.largest, draws.gram.bins, draws.windows.masses.size
    factors = bins + (a + 2) ** 2
    sums = 2 * bins * (a + 1) ** 2 + bins * windows * (a + 1) + 2 * draws.places * (a + 1) * len(draws.around.members)
    sums += len(draws.diagonal) * _places(draws.gram, a)
    exponents = 2 * int(LARGEST_EXPONENT) + 2
    return Fraction(ROUNDING) * (factors + sums + exponents) + Fraction(EXPONENTIAL_ERROR) * (factors + 1)


def _place_error(draws: _Draws, edges: Array) -> float:
    """Relative error of a normal tail that comes from its argument, which is at most 35."""
    size = (draws.largest + 1) * float(max(draws.exact) + draws.exact_common) + float(np.abs(edges).max())
    place = (2 * draws.reach + 8) * size / float(min(draws.variance(int(x)) for x in draws.diagonal)) ** 0.5 + 72.0
    return float(36.0 * place * ROUNDING)


def _exponentials(exponents: list[list[Fraction]]) -> Pairs:
    """``e^x`` of each exponent, shape (rows, columns)."""
    return np.asarray(exponential(np.array([[pair_of(x) for x in row] for row in exponents])))


def _all_windows(reach: int, largest: int) -> Windows:
    """All tuples of ``reach`` counts with a sum of at most ``largest``, by their sums."""
    rows = np.zeros((1, 0), dtype=np.int64)
    for _ in range(reach):
        masses = rows.sum(axis=1)
        parts = [(rows[masses <= largest - r], r) for r in range(largest + 1)]
        rows = np.concatenate([np.column_stack([part, np.full(len(part), r)]) for part, r in parts])
    draws: Counts = np.ascontiguousarray(rows[np.argsort(rows.sum(axis=1), kind="stable")])
    masses = draws.sum(axis=1)
    counts = np.searchsorted(masses, np.arange(largest + 1), side="right").astype(np.int64)
    fits = counts[largest - masses]
    following = np.zeros((masses.size, largest + 1), dtype=np.int64)
    if reach > 0:
        base = largest + 1
        keys = draws @ base ** np.arange(reach, dtype=np.int64)
        order = np.argsort(keys)
        kept = keys % base ** (reach - 1) * base
        for r in range(base):
            after = counts[largest - r]
            following[:after, r] = order[np.searchsorted(keys[order], kept[:after] + r)]
    return Windows(draws, masses, np.cumsum(fits) - fits, counts, following)
