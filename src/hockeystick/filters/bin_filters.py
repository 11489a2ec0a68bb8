"""Lower bounds for bins: a sum over rows, read from the last to the first, with a summary of the rows read so far.

Bin i shifts its own row and few rows after it. Rows are read backwards and fall in cells. A *summary* of the rows read,
a point of a lattice, and the cell of the next row give the next summary and a whole number, about ``x_i`` in units:
the ratio of the chances with and without bin i of what is known of its rows. The numbers are added. Their sum T is a
function of the output, so its laws with and without the example bound the profile from below, whatever the tables say.

Good summaries are linear functions of the rows that tell most about the bins to come: the first singular vectors of
these bins' means on the rows read, each time as the best combination of the ones before and the new row.

Errs downward: T is a post-processing, and what is left out of one law is left out of the other. Masses are sums and
products of non-negative numbers, so they have a relative error.

Proof: docs/theory/bin-filters.md. Cost: O(bins bands summaries cells sums).
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hockeystick.deadline import Deadline
from hockeystick.filters.block_statistics import cell_masses
from hockeystick.laws.law import UNIT_ROUNDOFF, Array

Places = NDArray[np.int64]
BELOW, ABOVE = 2.0, 2.5
"""Cells end so many standard deviations below 0, and above the largest mean of a row where bins are told."""
GOLDEN = 0.6180339887498949
"""What is rounded down is a fraction more than the number of units, another one at each row."""
LEFT_OUT = 0.01
"""Summaries that are rare with the example are left out: a chance of so many delta in all."""
RELATIVE_CUT = 1e-9
LOWEST = -2.0
"""Standard deviations of the first summary, below which it is not followed."""
MOST_SUMMARIES = 20_000
SPREADS = 9.0
BALLS = (1.0, 0.9, 2.0)
"""About how many standard deviations a summary ranges over, and what so many summaries cost beside such a box."""
COARSEST, FINEST = 0.6, 0.02
NEGLIGIBLE = 7e-4
"""Relative loss of what is told of a bin, below which the lattice is not made finer."""


def ring_shifts(means: Array, bands: int, rounding: float) -> Array:
    """``shifts[i, s]``: at most what bin i shifts row i + s of all epochs together, shape (bins, bands).

    Rows of the same place in their epochs are projected on one direction. Bins that reach into the next epoch have
    their means there set to 0, and what is beyond the last row is 0.

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
    shifts = np.zeros((bins, bands))
    for lag in range(min(bands, bins)):
        shifts[: bins - lag, lag] = projected.diagonal(-lag)
    return shifts


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
        edges: upper ends of the cells but the last.
        unit: of the sum.
        size: sums at and above ``size - 1`` units are told as one.
    """

    spacing: float
    edges: Array
    unit: float
    size: int


def summaries_of(shifts: Array, count: int) -> Summaries:
    """The best ``count`` summaries for ``shifts[i, s]``, the shift of row i + s by bin i; any are valid."""
    bins, bands = shifts.shape
    means = np.zeros((bins + bands, bins))
    for i in range(bins):
        means[i : i + bands, i] = shifts[i]
    means = means[:bins]
    carried, gained = np.zeros((bins, count, count)), np.zeros((bins, count))
    spread, known = np.zeros((bins, count)), np.ones(bins)
    read = np.zeros((count, bins))
    for row in range(bins - 1, -1, -1):
        window = slice(row, min(bins, row + 4 * bands))
        basis = np.concatenate([np.eye(1, bins, row), read])[:, window]
        inverse = np.linalg.pinv(basis @ basis.T, rcond=RELATIVE_CUT, hermitian=True)
        told = basis @ means[window, row]
        own = float(means[:, row] @ means[:, row])
        known[row] = np.sqrt(min(max(float(told @ inverse @ told) / max(own, 1e-300), 0.0), 1.0))
        if row == 0 or bands == 1:
            continue
        later = means[row : min(bins, row + bands), max(0, row - bands + 1) : row]
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


def fitted(shifts: Array, most_work: float, size: int) -> tuple[Summaries, float]:
    """The summaries, one to three, that lose least when the lattice is as fine as the work allows; and its spacing."""
    visible = float((shifts * shifts).sum(axis=1).max())
    best, found, chosen = np.inf, None, COARSEST
    for count in range(1, min(len(BALLS), max(shifts.shape[1] - 1, 1)) + 1):
        summaries = summaries_of(shifts, count)
        finest = min(max(FINEST, np.sqrt(24.0 * visible * NEGLIGIBLE / (count + 1))), COARSEST)
        spacings = np.geomspace(finest, COARSEST, 60)
        spacing = next(
            (float(h) for h in spacings if work_of(shifts, summaries, float(h), size) <= most_work), COARSEST
        )
        loss = float((1.0 - summaries.known).mean()) + (count + 1) * spacing**2 / (24.0 * visible)
        if loss < best:
            best, found, chosen = loss, summaries, spacing
    assert found is not None
    return found, chosen


def work_of(shifts: Array, summaries: Summaries, spacing: float, size: int) -> float:
    """About how many multiplications the law of the sum takes."""
    bins, bands = shifts.shape
    spread = np.median(summaries.spread, axis=0)
    points = BALLS[spread.size - 1] * float(np.prod(1.0 + SPREADS * spread / spacing))
    cells = lattice_for(shifts, spacing, np.e, size).edges.size + 1.0
    return float(bins * (min(bands, bins) + 2.0) * points * cells * size)


def lattice_for(shifts: Array, spacing: float, ratio: float, size: int) -> Lattice:
    """Cells of about the same use as the lattice's, and sums up to ``ratio`` times the number of bins."""
    bins = shifts.shape[0]
    own = max(float(shifts[:, 0].max()), 1e-3)
    visible = max(float(np.sqrt((shifts * shifts).sum(axis=1)).max()), 1e-3)
    farthest = (np.log(bins * ratio) + 0.5 * visible**2) / visible * min(own / visible, 1.0)
    width = min(spacing / own, 0.5)
    top = min(farthest, own + 6.0) + ABOVE
    return Lattice(spacing, np.arange(-BELOW, top + width, width), ratio * bins / size, size)


def sum_laws(
    shifts: Array, summaries: Summaries, lattice: Lattice, smallest_delta: float, deadline: Deadline
) -> tuple[Array, Array, float]:
    """Masses of T without and with the example, shape (size,), and a proved relative error of each.

    What is left out of one is left out of the other: outcomes, not masses.
    """
    bins, bands = shifts.shape
    edges, size = lattice.edges, lattice.size
    middle = np.concatenate([edges[:1] - 0.3, 0.5 * (edges[1:] + edges[:-1]), edges[-1:] + 0.3])
    plain, error = cell_masses(edges, 0.0)
    points = np.zeros((1, summaries.gained.shape[1]), dtype=np.int64)
    # Rows of the arrays: without the example; of a bin whose rows have all been read; of each bin that is being read.
    laws = np.zeros((2, 1, size))
    laws[0, 0, 0] = 1.0
    reading: list[int] = []
    begun = 0
    share = LEFT_OUT * smallest_delta / bins
    for row in range(bins - 1, -1, -1):
        deadline.tick()
        entering = [i for i in range(row, max(row - bands, -1), -1) if i not in reading]
        if entering:
            laws = np.concatenate([laws, np.repeat(laws[:1] / bins, len(entering), axis=0)])
            reading += entering
            begun += len(entering)
        moved = [cell_masses(edges, float(shifts[i, row - i])) for i in reading]
        error = max(error, *(part for _, part in moved))
        masses = np.stack([plain, plain, *(mass for mass, _ in moved)])
        own = 2 + reading.index(row)
        totals = laws.sum(axis=2)
        ratio = bins * totals[own] / np.maximum(totals[0], 1e-300)
        told = np.multiply.outer(ratio, masses[own] / np.maximum(plain, 1e-300))
        fraction = ((bins - row) * GOLDEN) % 1.0
        units = np.floor(np.nan_to_num(told / lattice.unit) + fraction)
        added = np.clip(units, 0.0, size).astype(np.int64)
        after = (points * lattice.spacing) @ summaries.carried[row].T
        places = np.rint((after[:, None, :] + middle[:, None] * summaries.gained[row]) / lattice.spacing)
        places[:, :, 0] = np.maximum(places[:, :, 0], np.rint(LOWEST * summaries.spread[row, 0] / lattice.spacing))
        points, following = _joined(places.astype(np.int64))
        into = np.arange(laws.shape[0])
        into[own] = 1
        into[own + 1 :] -= 1
        reading.remove(row)
        following, kept = _without_rare(totals, following, masses, points.shape[0], 1.0 - begun / bins, share)
        points = points[kept]
        target = np.zeros((laws.shape[0] - 1, points.shape[0], size))
        _advance(laws, following, added, masses, into, target)
        laws = target
    totals = laws.sum(axis=1)
    farthest = float(shifts.max(initial=0.0))
    # The logarithm of a cell's mass changes by at most the distance of the cell from the centre when the centre moves.
    placed = 4.0 * UNIT_ROUNDOFF * (farthest + 1.0) * (float(np.abs(edges).max()) + farthest + 1.0)
    summed = (2.0 * _most_terms(lattice) + size + 16.0) * UNIT_ROUNDOFF
    return totals[0], totals[1], 2.0 * bins * (error + placed + summed)


def _most_terms(lattice: Lattice) -> float:
    """More than there are terms in any sum of masses."""
    return float(MOST_SUMMARIES) * (lattice.edges.size + 1.0)


def _joined(places: Places) -> tuple[Places, Places]:
    """The different points of a lattice, shape (U', d), and which one each of ``places``, shape (U, cells, d), is."""
    flat = places.reshape(-1, places.shape[2])
    lowest = flat.min(axis=0)
    spans = flat.max(axis=0) - lowest + 1
    keys = np.zeros(flat.shape[0], dtype=np.int64)
    for k in range(flat.shape[1]):
        keys = keys * spans[k] + (flat[:, k] - lowest[k])
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return flat[first], which.reshape(places.shape[:2]).astype(np.int64)


def _without_rare(
    totals: Array, following: Places, masses: Array, count: int, to_come: float, share: float
) -> tuple[Places, Places]:
    """Summaries that are rare with the example are left out: -1 for these, and which are kept."""
    chances = np.zeros(count)
    for k in range(totals.shape[0]):
        weight = to_come if k == 0 else 1.0
        if weight > 0.0:
            outcomes = np.multiply.outer(weight * totals[k], masses[k])
            chances += np.bincount(following.ravel(), weights=outcomes.ravel(), minlength=count)
    order = np.argsort(chances, kind="stable")
    rare = int(np.searchsorted(np.cumsum(chances[order]), share))
    rare = max(rare, count - MOST_SUMMARIES)
    kept = np.sort(order[rare:])
    place = np.full(count, -1, dtype=np.int64)
    place[kept] = np.arange(kept.size)
    return place[following], kept


@njit(cache=True)
def _advance(laws: Array, following: Places, added: Places, masses: Array, into: Places, target: Array) -> None:
    """One row: ``target[into[k], following] += masses[k]`` times ``laws[k]`` moved by ``added``, the last sum open."""
    size = laws.shape[2]
    for u in range(following.shape[0]):
        for cell in range(following.shape[1]):
            ahead = following[u, cell]
            if ahead < 0:
                continue
            step = min(added[u, cell], size - 1)
            for k in range(laws.shape[0]):
                weight = masses[k, cell]
                source, reached = laws[k, u, : size - step], target[into[k], ahead, step:]
                for i in range(size - step):
                    reached[i] += weight * source[i]
                beyond = laws[k, u, size - step :]
                outside = 0.0
                for i in range(step):
                    outside += beyond[i]
                target[into[k], ahead, size - 1] += weight * outside
