"""One row of a filter for bins: where each summary and cell lead to, and the laws that are moved there.

Neighbouring cells that lead a summary to the same next one, and add the same number, are one move: cells may be fine,
and what a row costs is the number of its moves. The tables are any functions of the summary and the cell, so nothing
depends on how they are rounded.

Proof: docs/theory/bin-filters.md. Cost: O(laws moves sums).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.laws.law import Array

Places = NDArray[np.int64]
LONGEST = 16
"""Laws begin with so many zeros, so that moves by at most as many units need no care at the ends."""


class Moves(NamedTuple):
    """What follows from a summary and a run of cells, shape (E,) each.

    Attributes:
        sources: the summary.
        first, end: the cells ``first <= c < end``.
        targets: the next summary.
        units: what is added.
    """

    sources: Places
    first: Places
    end: Places
    targets: Places
    units: Places

    def to(self, place: Places, count: int) -> tuple["Moves", Places]:
        """Those to the ``count`` targets with a place, in their order, the long ones of each at the end.

        The second result has the first short one, and the first long one, of each target.
        """
        starts, order = _sorted(place[self.targets], self.units, count)
        parts = (self.sources, self.first, self.end, place[self.targets], self.units)
        return Moves(*(part[order] for part in parts)), starts


class Units(NamedTuple):
    """How ratios become whole numbers.

    Attributes:
        fraction: in [0, 1), how much is added before numbers are rounded down.
        exact: larger numbers of units grow by the factor ``exp(pace)``.
        size: numbers are below this.
    """

    fraction: float
    exact: float
    pace: float
    size: int


@kernel
def following(
    after: Array, gained: Array, lowest: Array, highest: Array, told: Array, share: Array, rounded: Units
) -> tuple[Places, Places, Places, Places, Places]:
    """The parts of :class:`Moves`; targets are counted in the box from ``lowest`` to ``highest``, the last axis first.

    Args:
        after: shape (U, d), of each summary, what is known of the next one, in units of the lattice.
        gained: shape (C, d), what a cell adds to that.
        lowest, highest: shape (d,), whole numbers between which the next summary is kept.
        told, share: shapes (n, U) and (n, C); the sum of their products is the ratio of the bins that are judged, in
            units of the sum.
    """
    fraction, exact, pace, size = rounded
    count, dimensions = after.shape
    room, n = 32 * count, 0
    runs = np.empty((5, room), np.int64)
    for u in range(count):
        last, last_units = -1, -1
        for c in range(share.shape[1]):
            place = 0
            for j in range(dimensions):
                x = np.floor(after[u, j] + gained[c, j] + 0.5)
                place = place * int(highest[j] - lowest[j] + 1.0) + int(min(max(x, lowest[j]), highest[j]) - lowest[j])
            ratio = 0.0
            for i in range(told.shape[0]):
                ratio += told[i, u] * share[i, c]
            if ratio < exact:
                units = int(np.floor(ratio + fraction))
            elif ratio < size:
                units = int(exact * np.exp(pace * (np.floor(np.log(ratio / exact) / pace + fraction) + 0.5 - fraction)))
            else:
                units = size - 1
            units = min(units, size - 1)
            if place == last and units == last_units:
                runs[2, n - 1] = c + 1
                continue
            if n == room:
                larger = np.empty((5, 2 * room), np.int64)
                larger[:, :room] = runs
                runs, room = larger, 2 * room
            runs[0, n], runs[1, n], runs[2, n], runs[3, n], runs[4, n] = u, c, c + 1, place, units
            last, last_units = place, units
            n += 1
    return runs[0, :n], runs[1, :n], runs[2, :n], runs[3, :n], runs[4, :n]


@kernel
def chances(
    sources: Places, first: Places, end: Places, targets: Places, totals: Array, below: Array, box: int
) -> Array:
    """About how likely each target is: ``totals`` (K, U) times masses whose sums below each cell are ``below``."""
    likely = np.zeros(box)
    for e in range(sources.size):
        for k in range(totals.shape[0]):
            likely[targets[e]] += totals[k, sources[e]] * (below[k, end[e]] - below[k, first[e]])
    return likely


@kernel
def _sorted(targets: Places, units: Places, count: int) -> tuple[Places, Places]:
    starts = np.zeros(2 * count + 1, np.int64)
    for e in range(targets.size):
        if targets[e] >= 0:
            starts[2 * targets[e] + (1 if units[e] > LONGEST else 0) + 1] += 1
    starts = np.cumsum(starts)
    free, order = starts.copy(), np.empty(starts[-1], np.int64)
    for e in range(targets.size):
        if targets[e] >= 0:
            group = 2 * targets[e] + (1 if units[e] > LONGEST else 0)
            order[free[group]] = e
            free[group] += 1
    return starts, order


@kernel
def advance(
    laws: Array, origin: Places, into: Places, moves: Moves, starts: Places, masses: Array, target: Array
) -> None:
    """``target[into[k]] +=`` the law ``origin[k]`` moved with the chances ``masses[k]``; the last sum is open.

    ``laws`` and ``target`` have ``LONGEST`` zeros before each law. Moves are sorted as by :meth:`Moves.to`.
    """
    sources, first, end, units = moves.sources, moves.first, moves.end, moves.units
    size, count = laws.shape[2] - LONGEST, starts.size // 2
    weights = np.empty(sources.size)
    for k in range(origin.size):
        law = laws[origin[k]]
        for e in range(sources.size):
            weights[e] = masses[k, first[e] : end[e]].sum()
        for v in range(count):
            reached = target[into[k], v, LONGEST : LONGEST + size]
            e, long, last = starts[2 * v], starts[2 * v + 1], starts[2 * v + 2]
            while e + 4 <= long:  # four at once, as the sum is loaded and stored once for them
                p0, p1 = LONGEST - units[e], LONGEST - units[e + 1]
                p2, p3 = LONGEST - units[e + 2], LONGEST - units[e + 3]
                x0, x1 = law[sources[e], p0 : p0 + size], law[sources[e + 1], p1 : p1 + size]
                x2, x3 = law[sources[e + 2], p2 : p2 + size], law[sources[e + 3], p3 : p3 + size]
                w0, w1, w2, w3 = weights[e], weights[e + 1], weights[e + 2], weights[e + 3]
                for i in range(size):
                    reached[i] += (w0 * x0[i] + w1 * x1[i]) + (w2 * x2[i] + w3 * x3[i])
                e += 4
            while e < last:
                x, ahead, w0 = law[sources[e], LONGEST : LONGEST + size - units[e]], reached[units[e] :], weights[e]
                for i in range(x.size):
                    ahead[i] += w0 * x[i]
                e += 1
            for e in range(starts[2 * v], last):
                x = law[sources[e], LONGEST + size - units[e] :]
                outside = 0.0
                for i in range(x.size):
                    outside += x[i]
                reached[size - 1] += weights[e] * outside
