"""Lower bounds for bins: a sum over rows, read from the last to the first, with a summary of the rows read so far.

Bin i shifts its own row and few rows after it. Rows are read backwards and fall in cells. A *summary* of the rows read,
a point of a lattice, and the cell of the next row give the next summary and a whole number, about ``x_i`` in units:
the ratio of the chances with and without bin i of what is known of its rows. The numbers are added. Their sum T is a
function of the output, so its laws with and without the example bound the profile from below, whatever the tables say.

Good summaries are linear functions of the rows that tell most about the bins to come: the first singular vectors of
these bins' means on the rows read, each time as the best combination of the ones before and the new row.

Errs downward: T is a post-processing, and what is left out of one law is left out of the other. Masses are sums and
products of non-negative numbers, so they have a relative error.

Proof: docs/theory/bin-filters.md. Cost: O(bins bands moves sums).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.filters.bin_filter_kernels import LONGEST, Moves, Places, Units, advance, chances, following
from hockeystick.filters.cell_masses import cell_masses
from hockeystick.laws.law import UNIT_ROUNDOFF, Array

BELOW, ABOVE = 2.0, 2.5
"""Cells end so many standard deviations below 0, and above the largest mean of a row where bins are told."""
CELL, WIDEST_CELL = 0.04, 0.3
"""The width of cells: relative to the mean of a bin in its own row, and in standard deviations of the row."""
GOLDEN = 0.6180339887498949
"""What is rounded down is a fraction more than the number of units, another one at each row."""
EXACT, PACE = 16.0, 0.06
"""More units than this are rounded to numbers that grow by the factor ``exp(PACE)``."""
LEFT_OUT = 0.01
"""Summaries that are rare with the example are left out: a chance of so many delta in all."""
RELATIVE_CUT = 1e-9
LOWEST, FARTHEST = -1.2, 1.5
"""Standard deviations below which the first summary is not followed, and beyond which the others are not."""
MOST_SUMMARIES = 20_000
MOST_COUNT = 3
"""Linear functions of a summary."""
SPREADS = 7.0
"""About how many standard deviations the first summary ranges over, above 0."""
FEWEST_MOVES, MOVED = 25.0, 0.65
"""About how many moves a summary has: for what is added, and for each cell of the lattice that a row spans."""
TABLE = 200.0
"""About how many multiplications the entry of a table, for one summary and cell, is worth."""
COARSEST, FINEST = 0.6, 0.02
COMMON = 1.35
"""An error of the lattice is shared by neighbouring bins, so it counts more than what summaries leave out of each."""
FEWEST_WRAPPED = 0.1
"""Where no larger share of the bins wraps around, what they do to the first rows again is not followed."""
NEGLIGIBLE = 2e-4
"""Relative loss of what is told of a bin, below which the lattice is not made finer."""


@dataclass(frozen=True)
class Shifts:
    """At most what bins shift rows, in standard deviations.

    Attributes:
        own: ``own[i, s]`` of the row i + s by bin i, shape (b, bands); 0 beyond the last row.
        group: of each bin, shape (b,): bins of a group shift the first rows again, all alike; -1 is no group.
        again: ``again[g, r]`` of the row r by each bin of the group g, shape (groups, bands - 1).
    """

    own: Array
    group: Places
    again: Array


def ring_shifts(means: Array, bands: int, rounding: float) -> Shifts:
    """What bins shift the rows of all epochs together.

    Rows of the same place in their epochs are projected on one direction. Bins that reach into the next epoch are in
    groups of neighbours, which are larger the fewer rows they reach.

    Args:
        means: of the bins, in standard deviations, shape (epochs * bins, bins), non-negative.
        rounding: relative error of the means.
    """
    bins = means.shape[1]
    by_place = means.reshape(-1, bins, bins)
    directions = by_place.sum(axis=2)
    directions = directions / np.maximum(np.sqrt((directions * directions).sum(axis=0)), 1e-300)
    lowered = 1.0 - rounding - 8.0 * (means.shape[0] + 16.0) * UNIT_ROUNDOFF
    projected = np.einsum("er,eri->ri", directions, by_place) * lowered
    own = np.zeros((bins, bands))
    for lag in range(min(bands, bins)):
        own[: bins - lag, lag] = projected.diagonal(-lag)
    group, last = np.full(bins, -1), 0
    again: list[Array] = []
    while len(by_place) > 1 and FEWEST_WRAPPED * bins < bands - 1 and last < bands - 1:
        first = last + 1
        last = min(first + max(first // 4, 1) - 1, bands - 1)
        group[bins - last : bins - first + 1] = len(again)
        shared = projected[: bands - 1, bins - last : bins - first + 1].min(axis=1)
        shared[bands - last :] = 0.0
        again.append(shared)
    return Shifts(own, group, np.array(again).reshape(len(again), bands - 1))


@dataclass(frozen=True)
class Summaries:
    """Linear functions of the rows read, in standard deviations of a row.

    Attributes:
        carried: ``carried[t]`` maps those of the rows after t to those of the rows from t on, shape (b, d, d).
        gained: what the row t adds, shape (b, d).
        spread: their standard deviations without the example, shape (b, d).
        known: of each bin, the cosine between its mean and what the summary and its own row tell of it, shape (b,).
    """

    carried: Array
    gained: Array
    spread: Array
    known: Array


@dataclass(frozen=True)
class Lattice:
    """How finely summaries, rows and the sum are told apart.

    Attributes:
        spacing: of summaries, in standard deviations of a row.
        edges: of each row, upper ends of the cells but the last.
        unit: of the sum.
        size: sums at and above ``size - 1`` units are told as one.
    """

    spacing: float
    edges: Sequence[Array]
    unit: float
    size: int


def summaries_of(shifts: Shifts, count: int) -> Summaries:
    """The best ``count`` summaries; any are valid."""
    bins, bands = shifts.own.shape
    # Bins that wrap around come again, before bin 0: bin i has the column i + bands - 1, and i - bins + bands - 1 then.
    means = np.zeros((bins + bands, bins + bands - 1))
    for i in range(bins):
        means[i : i + bands, i + bands - 1] = shifts.own[i]
        if shifts.group[i] >= 0:
            means[: bands - 1, i - bins + bands - 1] = shifts.again[shifts.group[i]]
    means = means[:bins]
    carried, gained = np.zeros((bins, count, count)), np.zeros((bins, count))
    spread, known = np.zeros((bins, count)), np.ones(bins)
    read = np.zeros((count, bins))
    for row in range(bins - 1, -1, -1):
        window = slice(row, min(bins, row + 4 * bands))
        basis = np.concatenate([np.eye(1, bins, row), read])[:, window]
        inverse = np.linalg.pinv(basis @ basis.T, rcond=RELATIVE_CUT, hermitian=True)
        told = basis @ means[window, row + bands - 1]
        own = float(means[:, row + bands - 1] @ means[:, row + bands - 1])
        known[row] = np.sqrt(min(max(float(told @ inverse @ told) / max(own, 1e-300), 0.0), 1.0))
        if row == 0 or bands == 1:
            continue
        later = means[row : min(bins, row + bands), row : row + bands - 1]
        left, sizes, right = np.linalg.svd(later, full_matrices=False)
        kept = min(count, sizes.size)
        signs = np.where(right[:kept, -1] < 0.0, -1.0, 1.0)
        target = np.zeros((count, basis.shape[1]))
        target[:kept, : left.shape[0]] = (left[:, :kept] * sizes[:kept] * signs).T
        weights = target @ basis.T @ inverse
        gained[row], carried[row] = weights[:, 0], weights[:, 1:]
        combined = weights @ basis
        read = np.zeros((count, bins))
        read[:, window] = combined
        spread[row] = np.sqrt((combined * combined).sum(axis=1))
    return Summaries(carried, gained, spread, known)


def fitted(shifts: Shifts, most_work: float, size: int) -> tuple[Summaries, float]:
    """The summaries, one to three, that lose least when the lattice is as fine as the work allows; and its spacing."""
    visible = float(np.median((shifts.own * shifts.own).sum(axis=1)))
    least, kept, kept_spacing = np.inf, None, COARSEST
    for count in range(1, min(MOST_COUNT, max(shifts.own.shape[1] - 1, 1)) + 1):
        summaries = summaries_of(shifts, count)
        finest = min(max(FINEST, np.sqrt(24.0 * visible * NEGLIGIBLE / count)), COARSEST)
        spacings = (float(g) for g in np.geomspace(finest, COARSEST, 60))
        spacing = next((g for g in spacings if work_of(shifts, summaries, g, size) <= most_work), None)
        if spacing is None and kept is not None:
            break
        spacing = COARSEST if spacing is None else spacing
        loss = float((1.0 - summaries.known).mean()) + COMMON * count * spacing**2 / (24.0 * visible)
        if loss < least:
            least, kept, kept_spacing = loss, summaries, spacing
    assert kept is not None
    return kept, kept_spacing


def work_of(shifts: Shifts, summaries: Summaries, spacing: float, size: int) -> float:
    """About how many multiplications the law of the sum takes."""
    bins, bands = shifts.own.shape
    laws = min(bands, bins) + 2.0 + len(shifts.again)
    spread, gained = np.median(summaries.spread, axis=0), np.median(np.abs(summaries.gained), axis=0)
    points = np.prod(1.0 + np.append(SPREADS - LOWEST, np.full(spread.size - 1, 2.0 * FARTHEST)) * spread / spacing)
    visible = float(np.median((shifts.own * shifts.own).sum(axis=1)))
    cells = cells_of(float(np.median(shifts.own[:, 0])), visible, np.e * bins)
    moves = FEWEST_MOVES + MOVED * float(gained.sum()) * (cells[-1] - cells[0]) / spacing
    return float(bins * points * (laws * min(moves, cells.size + 1.0) * size + TABLE * cells.size))


def cells_of(own: float, visible: float, farthest: float) -> Array:
    """The edges of a row where its bin shifts it by ``own``, and all rows by a squared distance of ``visible``.

    Args:
        own, visible: of the bin.
        farthest: the largest term of a bin that has to be told.
    """
    own, visible = max(own, 1e-3), max(np.sqrt(visible), 1e-3)
    told = (np.log(farthest) + 0.5 * visible**2) / visible * min(own / visible, 1.0)
    return np.arange(-BELOW, min(told, own + 6.0) + ABOVE, min(CELL / own, WIDEST_CELL))


def lattice_for(shifts: Shifts, spacing: float, ratio: float, size: int) -> Lattice:
    """Cells for each row, and sums up to ``ratio`` times the number of bins."""
    bins = len(shifts.own)
    edges = [cells_of(float(row[0]), float(row @ row), ratio * bins) for row in shifts.own]
    return Lattice(spacing, edges, ratio * bins / size, size)


def sum_laws(
    shifts: Shifts, summaries: Summaries, lattice: Lattice, smallest_delta: float, deadline: Deadline
) -> tuple[Array, Array, float]:
    """Masses of T without and with the example, shape (size,), and a proved relative error of each.

    What is left out of one is left out of the other: outcomes, not masses.
    """
    bins, bands = shifts.own.shape
    groups = len(shifts.again)
    size, room = lattice.size, (np.zeros(0), np.zeros(0))
    points = np.zeros((1, summaries.gained.shape[1]), dtype=np.int64)
    # Rows of the arrays: without the example; of a bin whose rows have all been read; of a bin of each group whose
    # rows have been read but the first of all; of each bin that is being read.
    laws = np.zeros((2 + groups, 1, LONGEST + size))
    laws[0, 0, LONGEST] = 1.0
    reading: list[int] = []
    begun, error, most_terms = 0, 0.0, 0
    share = LEFT_OUT * smallest_delta / bins
    for row in range(bins - 1, -1, -1):
        deadline.tick()
        # A bin enters at the last row that it shifts, the first of its rows that is read.
        entering = [i for i in range(row, max(row - bands, -1), -1) if i not in reading]
        origin = np.concatenate([np.arange(laws.shape[0]), np.zeros(len(entering), dtype=np.int64)])
        begins = np.concatenate([np.ones(laws.shape[0]), np.full(len(entering), 1.0 / bins)])
        reading += entering
        begun += len(entering)
        edges = lattice.edges[row]
        plain, wrong = cell_masses(edges, 0.0)
        moved = [cell_masses(edges, float(again[row]) if row < bands - 1 else 0.0) for again in shifts.again]
        moved += [cell_masses(edges, float(shifts.own[i, row - i])) for i in reading]
        error = max(error, wrong, *(part for _, part in moved))
        masses = np.stack([plain, plain, *(mass for mass, _ in moved)])
        # The bin whose own row this is has all of its rows read now; at the first row, so have those that wrap around.
        own = 2 + groups + reading.index(row)
        totals = laws.sum(axis=2)[origin] * begins[:, None]
        judged = [own] if row > 0 else [own, *range(2, 2 + groups)]
        told = bins * totals[judged] / np.maximum(totals[0], 1e-300) / lattice.unit
        fraction = ((bins - row) * GOLDEN) % 1.0
        moves, lowest, highest = _moves(points, summaries, lattice, row, told, masses[judged] / plain, fraction)
        weights = np.ones(origin.size)
        weights[0] = 1.0 - begun / bins
        place, points = _kept(moves, weights[:, None] * totals, masses, lowest, highest, share)
        moves, starts = moves.to(place, points.shape[0])
        # It leaves those that are being read: to the bins that are done, or to its group, which shifts the first rows.
        into = np.arange(origin.size)
        into[own] = 1 if shifts.group[row] < 0 else 2 + shifts.group[row]
        into[own + 1 :] -= 1
        reading.remove(row)
        shape = (origin.size - 1, points.shape[0], LONGEST + size)
        room = (room[1], room[0] if room[0].size >= np.prod(shape) else np.empty(int(1.2 * np.prod(shape))))
        target = room[1][: int(np.prod(shape))].reshape(shape)
        target[:] = 0.0
        advance(laws, origin, into, moves, starts, begins[:, None] * masses, target)
        most_terms = max(most_terms, int(np.diff(starts[::2]).max(initial=0)) + edges.size)
        laws = target
    totals = laws.sum(axis=1)[:, LONGEST:]
    farthest = max(float(shifts.own.max(initial=0.0)), float(shifts.again.max(initial=0.0)))
    outermost = max(float(np.abs(edges).max()) for edges in lattice.edges)
    # The logarithm of a cell's mass changes by at most the distance of the cell from the centre when the centre moves.
    placed = 4.0 * UNIT_ROUNDOFF * (farthest + 1.0) * (outermost + farthest + 1.0)
    summed = (2.0 * most_terms + size + points.shape[0] + 32.0 + groups) * UNIT_ROUNDOFF
    return totals[0], totals[1:].sum(axis=0), 2.0 * bins * (error + placed + summed)


def _moves(
    points: Places, summaries: Summaries, lattice: Lattice, row: int, told: Array, share: Array, fraction: float
) -> tuple[Moves, Array, Array]:
    """The moves of a row, and the corners of the box in which the next summaries are."""
    edges, spacing = lattice.edges[row], lattice.spacing
    middle = np.concatenate([edges[:1] - 0.3, 0.5 * (edges[1:] + edges[:-1]), edges[-1:] + 0.3])
    after = points @ summaries.carried[row].T
    gained = np.multiply.outer(middle, summaries.gained[row] / spacing)
    least, most = np.rint(LOWEST * summaries.spread[row] / spacing), np.full(points.shape[1], np.inf)
    most[1:] = np.rint(FARTHEST * summaries.spread[row, 1:] / spacing)
    least[1:] = -most[1:]
    lowest = np.floor(np.clip(after.min(axis=0) + gained.min(axis=0) + 0.5, least, most))
    highest = np.floor(np.clip(after.max(axis=0) + gained.max(axis=0) + 0.5, least, most))
    units = Units(fraction, EXACT, PACE, lattice.size)
    return Moves(*following(after, gained, lowest, highest, told, share, units)), lowest, highest


def _kept(
    moves: Moves, totals: Array, masses: Array, lowest: Array, highest: Array, share: float
) -> tuple[Places, Places]:
    """Of all points of the box, which place each has, -1 for those that are left out; and the points that have one.

    Those that are rare with the example are left out.
    """
    spans = (highest - lowest + 1.0).astype(np.int64)
    below = np.concatenate([np.zeros((masses.shape[0], 1)), np.cumsum(masses, axis=1)], axis=1)
    likely = chances(moves.sources, moves.first, moves.end, moves.targets, totals, below, int(np.prod(spans)))
    reached = np.unique(moves.targets)
    order = reached[np.argsort(likely[reached], kind="stable")]
    rare = max(int(np.searchsorted(np.cumsum(likely[order]), share)), order.size - MOST_SUMMARIES)
    kept = np.sort(order[rare:])
    place = np.full(likely.size, -1, dtype=np.int64)
    place[kept] = np.arange(kept.size)
    return place, np.stack(np.unravel_index(kept, spans), axis=1) + lowest.astype(np.int64)
