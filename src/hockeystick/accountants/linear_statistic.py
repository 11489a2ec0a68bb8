"""Lower bounds by linear statistics of disjoint blocks of rows, for subsets of steps and any strategy matrix.

Whoever keeps only ``<w, y>``, w a unit vector, sees a Gaussian whose mean is a sum over the steps in S of
``a_j = <w, C_j>``: under P a product mixture of Bernoulli steps, under Q ``N(0, sigma^2)``. Any w gives a lower bound;
taken is ``w = C 1`` normalised, the direction in which P is shifted on average.

The steps in which the example may take part are cut in windows of m. A row belongs to a window when all its entries
are in the window's columns; rows that see two windows are dropped. The rows of a window have a statistic of their
own, and as the windows share neither steps nor rows, the statistics are independent under P as under Q: their laws
compose. With bands, m trades rows that are dropped against noise that is summed up; several m are tried on coarse
grids, and the best are computed. Windows with similar shifts count as equal, with the smallest shifts that occur.

Under cyclic sampling any one group gives a lower bound; taken is the one with the largest sum of squared columns.

Proof: docs/theory/subsets/reductions.md. Errs downward: the statistics are a post-processing, shifts are rounded down
(by more than their own rounding), the laws are lower laws. Cost: O(non-zero entries) and one product mixture for
each m on coarse grids, then a few fine ones.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csc_matrix

from hockeystick.accountants.base import Accountant, Settings
from hockeystick.bounds import Profile
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import Array, Law
from hockeystick.laws.mixtures import product_mixture_law
from hockeystick.laws.operations import compose, power
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.pairs.band import band_of
from hockeystick.pairs.cyclic_subsets import CyclicSubsets
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.base import BLOCK, Indices
from hockeystick.types import Direction, Side
from hockeystick.watch import Watch

MOST_SCANNED = 400_000_000
MOST_ENTRIES = 20_000_000
FEW_BANDS = 32
"""So many diagonals are had without looking at whole columns, whatever the matrix."""
TOLERANCES = (1e-3, 1e-2, 0.1, 0.5, float("inf"))
"""Relative difference of the sums of shifts of windows that count as equal; the first that leaves few laws."""
MOST_LAWS = 4
MOST_STEPS = 10_000
"""Of one window: the law of a sum takes time in proportion to their square."""
SHORTEST = 1e-100
"""Windows with shorter sums of columns are left out: squares near the end of the range of doubles lose digits."""
COARSE_NODES_PER_UNIT = 16
BROAD_TARGET = 1e-6
"""When nobody says which delta matters, windows are also chosen for this one."""


def steps_in_play(pair: SubsetMixture | CyclicSubsets) -> Indices:
    """The steps at which the example may take part: those of the group with the largest sum of squared columns."""
    return STEPS[type(pair)](pair)


def _strongest_group(pair: CyclicSubsets) -> Indices:
    steps = np.arange(pair.matrix.steps)
    return pair.group_steps(int(np.argmax(np.bincount(steps % pair.groups, weights=pair.matrix.column_norms**2))))


STEPS: Mapping[type, Callable[[Any], Indices]] = {
    SubsetMixture: lambda pair: np.arange(pair.matrix.steps),
    CyclicSubsets: _strongest_group,
}


@dataclass(frozen=True)
class Entries:
    """The columns of C that are in play, as a sparse matrix of shape (rows, steps in play), and what follows from them.

    Attributes:
        entries: without explicit zeros.
        first, last: the first and the last position among the steps in play of a row's entries, shape (rows,).
        sums: row sums, shape (rows,); 0 where a row has no entries.
        error: proved relative error of a shift.
    """

    entries: csc_matrix
    first: Indices
    last: Indices
    sums: Array
    error: float

    @property
    def overlap(self) -> int:
        """Most steps in play that one row spans."""
        return int((self.last - self.first).max()) + 1

    def shifts(self, size: int) -> Array:
        """``a_j`` of each window of ``size`` steps, rounded down; shape (windows, size), rows sorted, largest first.

        The last window may be short, and has zeros at its end; a window without rows has only zeros.
        """
        steps = self.entries.shape[1]
        windows = -(-steps // size)
        window = self.first // size
        sums = np.where(window == self.last // size, self.sums, 0.0)
        lengths = np.sqrt(np.bincount(window, weights=sums * sums, minlength=windows))
        shifts = np.zeros(windows * size)
        lengths[lengths < SHORTEST] = np.inf
        shifts[:steps] = self.entries.T @ (sums / lengths[window])
        return -np.sort(-shifts.reshape(windows, size) * (1.0 - self.error), axis=1)


def entries_of(matrix: StrategyMatrix, steps: Indices, watch: Watch) -> Entries:
    """Read the columns ``steps`` of C.

    Raises: UnsupportedError when there are more than ``MOST_ENTRIES`` entries that are not zero.
    """
    parts = _band_entries(matrix, steps) if _has_band(matrix) else _column_entries(matrix, steps, watch)
    found, count = [], 0
    for part in parts:
        count += part[0].size
        if count > MOST_ENTRIES:
            raise UnsupportedError(f"Linear statistics need at most {MOST_ENTRIES} entries of C that are not zero.")
        found.append(part)
    rows, columns, values = (np.concatenate(pieces) for pieces in zip(*found, strict=True))
    first = np.full(matrix.rows, steps.size, dtype=np.int64)
    last = np.full(matrix.rows, -1, dtype=np.int64)
    np.minimum.at(first, rows, columns)
    np.maximum.at(last, rows, columns)
    used = last >= 0
    sums: Array = np.bincount(rows, weights=values, minlength=matrix.rows).astype(np.float64)
    row = np.cumsum(used) - 1
    entries = csc_matrix((values, (row[rows], columns)), shape=(int(used.sum()), steps.size))
    return Entries(entries, first[used], last[used], sums[used], 4.0 * matrix.rounding)


def _has_band(matrix: StrategyMatrix) -> bool:
    """Whether the diagonals are the quick way to the entries, and few enough for memory."""
    if matrix.rows != matrix.steps or matrix.steps * matrix.bands > MOST_ENTRIES:
        return False
    return matrix.toeplitz_column is not None or matrix.bands <= FEW_BANDS


def _band_entries(matrix: StrategyMatrix, steps: Indices) -> Iterator[tuple[Indices, Indices, Array]]:
    """Rows, positions in ``steps`` and values of the entries that are not zero."""
    band = band_of(matrix)[steps]
    columns, distances = np.nonzero(band)
    yield steps[columns] + distances, columns, band[columns, distances]


def _column_entries(matrix: StrategyMatrix, steps: Indices, watch: Watch) -> Iterator[tuple[Indices, Indices, Array]]:
    for start in range(0, steps.size, BLOCK):
        watch.tick()
        block = matrix.columns(steps[start : start + BLOCK])
        rows, columns = np.nonzero(block)
        yield rows, start + columns, block[rows, columns]


def similar_windows(shifts: Array) -> list[tuple[Array, int]]:
    """Few sets of windows, as the smallest shifts of each (those that are not zero) and the number of its windows.

    Windows are told apart by the sum of their shifts; the smallest of every entry, largest first, is a lower bound of
    each window in the set. Windows without shifts are left out.
    """
    totals = shifts.sum(axis=1)
    shifts, totals = shifts[totals > 0.0], totals[totals > 0.0]
    levels = np.zeros(0)
    for tolerance in TOLERANCES:
        levels = np.floor(np.log(totals.max() / totals) / tolerance) if totals.size else levels
        if np.unique(levels).size <= MOST_LAWS:
            break
    found = []
    for level in np.unique(levels):
        smallest = shifts[levels == level].min(axis=0)
        found.append((smallest[smallest > 0.0], int((levels == level).sum())))
    return [(smallest, count) for smallest, count in found if smallest.size]


def window_law(pair: SubsetMixture | CyclicSubsets, shifts: Array, settings: Settings) -> Law | None:
    """A lower law of the statistics of all windows together; None if no window has a row."""
    resolution, tick = settings.resolution, settings.watch.tick
    law: Law | None = None
    for smallest, count in similar_windows(shifts):
        tick()
        chances = np.full(smallest.size, pair.sampling_prob)
        part = product_mixture_law(chances, smallest, pair.noise_multiplier, Side.LOWER, resolution)
        part = power(part, count, resolution, tick=tick)
        law = part if law is None else compose(law, part, resolution, tick=tick)
    return law


def window_sizes(entries: Entries) -> list[int]:
    """Sizes worth a look: powers of two, alone and as multiples of the steps that a row spans; and all steps."""
    largest = min(entries.entries.shape[1], MOST_STEPS)
    doublings = [2**k for k in range(largest.bit_length())]
    sizes = {size for base in (1, entries.overlap) for size in (base * k for k in doublings) if size < largest}
    return [*sorted(sizes), largest]


def _scores(settings: Settings) -> list[Callable[[Law], float]]:
    """What a good law has much of: delta at the epsilon that is asked for, else epsilon at the usual deltas."""

    def epsilon_at(law: Law, delta: float, direction: Direction) -> float:
        return smallest_epsilon(partial(law_delta, law, direction=direction), delta, Side.LOWER, tolerance=1e-4)

    question, target = settings.question, settings.resolution.smallest_delta
    if question is not None and question.epsilon is not None:
        return [partial(law_delta, epsilon=question.epsilon, direction=direction) for direction in Direction]
    targets = {target, max(target, BROAD_TARGET)}
    return [partial(epsilon_at, delta=delta, direction=direction) for delta in targets for direction in Direction]


def with_equal_shifts(shifts: Array) -> Array:
    """Windows with about the same law, which is quickly computed: sums of fewer, equal shifts.

    They have the same sum, and the same sum of squares up to rounding, so that mean and variance agree. For choices
    only: it is no bound.
    """
    found = np.zeros_like(shifts)
    for row, window in zip(found, shifts, strict=True):
        total, square = float(window.sum()), float(window @ window)
        if square > 0.0:
            count = max(round(total * total / square), 1)
            row[:count] = total / count
    return found


def best_windows(pair: SubsetMixture | CyclicSubsets, entries: Entries, settings: Settings) -> list[Array]:
    """The shifts of the windows that look best on coarse grids (any choice is valid); at most one for each score."""
    coarse = replace(settings, resolution=replace(settings.resolution, nodes_per_unit=COARSE_NODES_PER_UNIT))
    candidates = [entries.shifts(size) for size in window_sizes(entries)]
    laws = [(window_law(pair, with_equal_shifts(shifts), coarse), at) for at, shifts in enumerate(candidates)]
    seen = [(law, at) for law, at in laws if law is not None]
    best = {max(seen, key=lambda one: score(one[0]))[1] for score in _scores(settings)}
    return [candidates[at] for at in sorted(best)]


def _analyse(pair: SubsetMixture | CyclicSubsets, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    entries = entries_of(pair.matrix, steps_in_play(pair), settings.watch)
    laws = [window_law(pair, shifts, settings) for shifts in best_windows(pair, entries, settings)]

    def profile(epsilon: float, direction: Direction) -> float:
        return max(law_delta(law, epsilon, direction) for law in laws if law is not None)

    return {direction: partial(profile, direction=direction) for direction in Direction}


def _refusal(pair: SubsetMixture | CyclicSubsets, side: Side) -> str | None:
    if _has_band(pair.matrix) or pair.matrix.rows * steps_in_play(pair).size <= MOST_SCANNED:
        return None
    return f"it would have to look at more than {MOST_SCANNED} entries of the matrix"


def _cost(pair: SubsetMixture | CyclicSubsets) -> float:
    """Coarse looks, and the law of the largest sum."""
    return 0.3 + 1e-6 * pair.matrix.steps + 5e-8 * min(pair.matrix.steps, MOST_STEPS) ** 2


ACCOUNTANT = Accountant(
    name="linear_statistic",
    summary="what sums over blocks of rows reveal, for Poisson and cyclic Poisson sampling of any strategy",
    sides=(Side.LOWER,),
    errs="downward: fixed linear statistics are a post-processing, and shifts are rounded down",
    reference="post-processing; proof in docs/theory/subsets/reductions.md",
    analyses={SubsetMixture: _analyse, CyclicSubsets: _analyse},
    refusal=_refusal,
    cost=_cost,
    no_better_than=("direct",),
)
