"""What rows tell one after the other, each judged by a short summary of the rows before it, from below.

A row falls in a cell. The cell and the *summary*, a whole number, give a whole number that is added to a sum T, and
the next summary. T is a function of the output, so its laws with and without the example bound the profile from below,
whatever the two tables say. Good tables: the summary tells how much the participations so far are expected to shift the
next row, and what is added is about the logarithm of the ratio of the cell's chances given the summary.

For the law of T with the example the participations of the last ``p - 1`` steps are tracked as well, at most ``limit``
of them: a participation that would be one more is left out, and what is left out only lowers the profile.

Proof: docs/theory/poisson-windows.md, "From below". Sums and products of non-negative numbers but for masses of cells.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.filters.cell_masses import cell_masses
from hockeystick.filters.summary_tables import summary_tables
from hockeystick.laws.law import UNIT_ROUNDOFF, Array

Places = NDArray[np.int64]
MOST_HISTORIES = 32
RARELY = 0.005
"""A participation is left out with no more than this chance, unless there are too many histories."""
CELLS, SUMMARIES = 24, 16
ROUNDS = 30
"""The tables are improved so many times."""
REACH, ABOVE = 3.5, 2.5
"""Cells end so many standard deviations below 0, and above two and a half participations at once."""
BELOW_SUM, ABOVE_SUM = 6.5, 6.0
"""Sums are kept to so many standard deviations on either side, and for a drift by the variance beyond."""
MOST_ROWS, MOST_ADDED = 5.0, 0.5
"""Above that there is room for so many of the most telling rows, up to a factor of about 1.6 in the ratio."""


@dataclass(frozen=True)
class Histories:
    """Which of the last steps an example took part in.

    Attributes:
        shifts: of the next row, in standard deviations, by history, shape (H,); the first history is none.
        following: the next history without and with a participation at this step, shape (H, 2).
        free: shape (H,): whether a participation at this step is not one too many.
        own: what a participation shifts its own row.
    """

    shifts: Array
    following: Places
    free: NDArray[np.bool_]
    own: float


class Filter(NamedTuple):
    """The tables, by summary and cell, and where the sum is cut.

    Attributes:
        edges: upper ends of the cells but the last, in standard deviations.
        following: the next summary, shape (summaries, cells).
        added: what is added to the sum, shape (summaries, cells).
        first: the first summary.
        start: the sum at the beginning, which is then kept from 0 to ``size - 1``.
        size: how many sums are told apart.
    """

    edges: Array
    following: Places
    added: Places
    first: int
    start: int
    size: int


@lru_cache
def tracked(bands: int, prob: float) -> int:
    """How many participations of the last ``bands - 1`` steps are tracked; 0 where even one makes too many histories.

    As few as make it rare that one is left out, if so many histories can be held.

    >>> tracked(4, 0.01), tracked(8, 0.01), tracked(8, 0.0001), tracked(20, 0.01), tracked(40, 0.01)
    (2, 2, 1, 1, 0)
    """
    from scipy.special import bdtrc

    last = max(bands - 1, 1)
    count, most = 1, 0
    for limit in range(1, last + 1):
        count += comb(last, limit)
        if count > MOST_HISTORIES:
            break
        most = limit
        if float(bdtrc(limit - 1, last, prob)) < RARELY:
            break
    return most


def count_histories(bands: int, limit: int) -> int:
    """How many histories there are with at most ``limit`` participations."""
    return sum(comb(bands - 1, size) for size in range(min(limit, bands - 1) + 1))


def histories_of(column: Array, sigma: float, limit: int) -> Histories:
    """The histories with at most ``limit`` participations in the last ``column.size - 1`` steps."""
    last = column.size - 1
    sets = [frozenset(lags) for size in range(min(limit, last) + 1) for lags in combinations(range(1, last + 1), size)]
    place = {lags: k for k, lags in enumerate(sets)}
    following = np.zeros((len(sets), 2), dtype=np.int64)
    free = np.zeros(len(sets), dtype=np.bool_)
    for k, lags in enumerate(sets):
        without = frozenset(lag + 1 for lag in lags if lag < last)
        taken = without | frozenset({1} if last else ())
        free[k] = len(taken) <= limit or not last
        following[k] = place[without], place[taken] if free[k] else place[without]
    shifts = np.array([sum(column[lag] for lag in sorted(lags)) for lags in sets]) / sigma
    return Histories(shifts, following, free, float(column[0]) / sigma)


def cells_of(histories: Histories) -> Array:
    """Edges of cells of equal width, from below 0 to above what few participations shift a row."""
    top = min(
        histories.own + float(histories.shifts.max()), 2.5 * max(histories.own, float(histories.shifts[:2].max()))
    )
    return np.linspace(-REACH, top + ABOVE, CELLS - 1)


def chances_of(histories: Histories, edges: Array, prob: float) -> tuple[Array, Array, float]:
    """Chances of cell and participation by history, shape (H, 2, cells); of cells without an example; and the error."""
    plain, error = cell_masses(edges, 0.0)
    chances = np.zeros((histories.free.size, 2, edges.size + 1))
    for k in range(histories.free.size):
        own = prob if histories.free[k] else 0.0
        for taken, chance in enumerate((1.0 - own, own)):
            masses, part = cell_masses(edges, float(histories.shifts[k]) + taken * histories.own)
            chances[k, taken] = chance * masses
            error = max(error, part)
    return chances, plain, error


def filter_for(histories: Histories, prob: float, steps: int, per_deviation: float) -> Filter:
    """Tables that tell much, with so many units of the sum for its standard deviation. Any tables are valid."""
    edges = cells_of(histories)
    with_it, plain, _ = chances_of(histories, edges, prob)
    chances = np.zeros((histories.free.size, plain.size, histories.free.size))
    for k, after in enumerate(histories.following.tolist()):
        for taken in range(2):
            chances[k, :, after[taken]] += with_it[k, taken]
    tables = summary_tables(chances, histories.shifts, plain, SUMMARIES, ROUNDS)
    ratio, deviation = tables.ratio, tables.deviation(steps)
    unit = deviation / per_deviation
    start = int((BELOW_SUM * deviation + deviation**2) / unit)
    room = min(MOST_ROWS * float(np.log(ratio).max()), MOST_ADDED)
    size = start + int((ABOVE_SUM * deviation + deviation**2 + room) / unit) + 2
    added = np.clip(np.round(np.log(ratio) / unit), -size, size).astype(np.int64)
    return Filter(edges, tables.following, added, tables.usual, start, size)


def sum_laws(
    histories: Histories, table: Filter, prob: float, steps: int, rounding: float
) -> tuple[Array, Array, float]:
    """Masses of T without and with the example, shape (size,), and a proved relative error of each.

    Args:
        rounding: proved relative error of the column's entries.
    """
    with_it, plain, error = chances_of(histories, table.edges, prob)
    without, present = _forwards(steps, table, histories.following, with_it, plain)
    farthest = float(histories.shifts.max()) + histories.own
    span = float(np.abs(table.edges).max()) + farthest + 1.0
    # The logarithm of a cell's mass changes by at most the distance of the cell from the centre when the centre moves.
    moved = 4.0 * (rounding + (histories.free.size + 8.0) * UNIT_ROUNDOFF) * farthest * span
    sums = (2.0 * with_it.shape[0] * plain.size * table.following.shape[0] + table.size + 16.0) * UNIT_ROUNDOFF
    return without.sum(axis=0), present.sum(axis=0).sum(axis=0), 2.0 * steps * (error + moved + sums)


def work_of(histories: int, size: float, steps: int) -> float:
    """Multiplications of the law of the sum, for so many histories and sums."""
    return float(steps) * SUMMARIES * CELLS * (2.0 * histories + 1.0) * size


@kernel
def _forwards(steps: int, table: Filter, next_history: Places, with_it: Array, plain: Array) -> tuple[Array, Array]:
    """The laws of T after all steps, without the example and with it; sums outside are kept at the nearest end.

    By summary, shape (summaries, size), and by history and summary. They are added by NumPy: a sum over an axis would
    take numba two seconds to compile.

    Args:
        next_history, with_it, plain: ``following`` of :class:`Histories`, and the chances of :func:`chances_of`.
    """
    following, added, size = table.following, table.added, table.size
    summaries, cells = following.shape
    count = next_history.shape[0]
    without, present = np.zeros((summaries, size)), np.zeros((count, summaries, size))
    without[table.first, table.start] = 1.0
    present[0, table.first, table.start] = 1.0
    for _ in range(steps):
        of_none, of_it = np.zeros((summaries, size)), np.zeros((count, summaries, size))
        for summary in range(summaries):
            for cell in range(cells):
                ahead, step = following[summary, cell], added[summary, cell]
                _shift(of_none[ahead], without[summary], plain[cell], step)
                for k in range(count):
                    for taken in range(2):
                        weight = with_it[k, taken, cell]
                        if weight > 0.0:
                            _shift(of_it[next_history[k, taken], ahead], present[k, summary], weight, step)
        without, present = of_none, of_it
    return without, present


@kernel
def _shift(target: Array, source: Array, weight: float, step: int) -> None:
    """``target += weight`` times the source moved by ``step`` places, what is outside joined to the end."""
    size = target.size
    low, high = min(max(0, -step), size), max(min(size, size - step), 0)
    for i in range(low, high):
        target[i + step] += weight * source[i]
    outside = 0.0
    if step > 0:
        for i in range(high, size):
            outside += source[i]
        target[size - 1] += weight * outside
    elif step < 0:
        for i in range(low):
            outside += source[i]
        target[0] += weight * outside
