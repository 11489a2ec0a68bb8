"""Subsampled steps whose columns of C share no row: a composition of subsampled Gaussians, without loss.

Where the columns c_j of the steps in which one example may take part have disjoint supports, the likelihood ratio is a
product of independent factors: those of Gaussians of sensitivity ``|c_j|``, thinned by the chance to take part.

Of the groups only those are computed whose sorted norms no other group dominates entry by entry. Norms that agree up to
``TOLERANCE`` are rounded to a common level, up for upper and down for lower bounds, and equal ones are powered. Where
that would take more than ``MOST_COMPOSITIONS`` projections, one group stands for all: for upper bounds with the largest
k-th norm of any group, for lower bounds the one with the most squares; neighbouring norms are then rounded together.

Proof: docs/theory/subsets/reductions.md. Errs on the asked side by the rounding of norms, whose own rounding is
charged, and by the laws. Cost: O(steps log(steps)) for the levels, then at most ``MOST_COMPOSITIONS`` projections.
"""

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import ORDINARY, Array, Law, Units
from hockeystick.laws.operations import Tick, compose, power, thin
from hockeystick.strategies import StrategyMatrix
from hockeystick.types import Side

TOLERANCE = 1e-11
"""Relative: norms that differ by less are one level."""
MOST_COMPOSITIONS = 200
"""Projections for all groups together; with more of them one group stands for all."""
MOST_GROUPS = 100
"""At most so many groups are composed; each costs at least about one composition."""


def group_laws(
    norms: Array,
    prob: float,
    noise_multiplier: float,
    side: Side,
    resolution: Resolution,
    deadline: Deadline,
    units: Units = ORDINARY,
) -> list[Law]:
    """The laws of groups that together have the profile of the worst group, up to rounding to the asked side.

    Args:
        norms: shape (groups, opportunities), as :func:`norms_by_group` gives them, rounded to the asked side.
        prob: chance to take part at each opportunity, in (0, 1].
        noise_multiplier: sigma > 0, in the unit of the norms.
        units: FAR for ratios up to e^708.
    """
    rows = worst_groups(norms, side)
    return [_group_law(row, prob, noise_multiplier, side, resolution, deadline.tick, units) for row in rows]


def norms_by_group(matrix: StrategyMatrix, groups: int) -> Array:
    """The column norms of each group's steps, largest first, shape (groups in play, opportunities of the first group).

    Groups with fewer opportunities than the first have a 0 at the end: a step without effect.
    """
    opportunities = -(-matrix.steps // groups)
    padded = np.zeros(opportunities * groups)
    padded[: matrix.steps] = matrix.column_norms
    by_group = padded.reshape(opportunities, groups)[:, : matrix.steps].T
    return -np.sort(-by_group, axis=1)


def worst_groups(norms: Array, side: Side) -> Array:
    """Rows that together have the profile of the worst group, up to rounding to the asked side.

    Args:
        norms: shape (groups, opportunities), each row sorted, largest first; zeros stay zeros.
        side: for UPPER every row of ``norms`` is at most some row of the result, entry by entry; for LOWER every row
            of the result is at most some row of ``norms``.
    """
    rows = _undominated(_on_levels(norms, side))
    if rows is not None and sum(_compositions(row) for row in rows) <= MOST_COMPOSITIONS:
        return rows
    row = norms.max(axis=0) if side is Side.UPPER else norms[int(np.argmax(np.einsum("gk,gk->g", norms, norms)))]
    row = row[row > 0.0]
    size = 1
    while _compositions(in_blocks(row, size, side)) > MOST_COMPOSITIONS:
        size *= 2
    return in_blocks(row, size, side)[None, :]


def in_blocks(row: Array, size: int, side: Side) -> Array:
    """A row, sorted from the largest, with blocks of ``size`` rounded to their largest (UPPER) or smallest (LOWER)."""
    first = np.arange(row.size) // size * size
    return row[first if side is Side.UPPER else np.minimum(first + size, row.size) - 1]


def _on_levels(norms: Array, side: Side) -> Array:
    """The norms rounded to the largest (upper) or smallest (lower) of those that are about the same."""
    positive = norms > 0.0
    values = norms[positive]
    bins = np.floor(np.log(values.max() / values) / TOLERANCE)
    _, level = np.unique(bins, return_inverse=True)
    upper = side is Side.UPPER
    levels = np.full(int(level.max()) + 1, 0.0 if upper else np.inf)
    (np.maximum if upper else np.minimum).at(levels, level, values)
    rounded = np.zeros_like(norms)
    rounded[positive] = levels[level]
    return rounded


def _undominated(rows: Array) -> Array | None:
    """The distinct rows such that no other row is at least as large in every entry; None for too many of them.

    Of the rows that are left, one with the largest sum is dominated by no other. It is kept, and those that it
    dominates go.
    """
    kept: list[Array] = []
    while rows.shape[0]:
        if len(kept) == MOST_GROUPS:
            return None
        worst = rows[int(np.argmax(rows.sum(axis=1)))]
        kept.append(worst)
        rows = rows[(rows > worst).any(axis=1)]
    return np.stack(kept)


def _compositions(row: Array) -> int:
    """The projections that make the law of a group: a squaring or a product for each binary digit of each count."""
    _, counts = np.unique(row[row > 0.0], return_counts=True)
    digits = [int(count) for count in counts]
    return sum(count.bit_length() + count.bit_count() - 1 for count in digits) - 1


def _group_law(
    norms: Array, prob: float, noise_multiplier: float, side: Side, resolution: Resolution, tick: Tick, units: Units
) -> Law:
    """The law of one group: a power for each level of its norms, all of them composed."""
    levels, counts = np.unique(norms[norms > 0.0], return_counts=True)
    parts: list[Law] = []
    for level, count in zip(levels.tolist(), counts.tolist(), strict=True):
        step = thin(gaussian_law(noise_multiplier, level, side, resolution, units), prob)
        parts.append(power(step, count, resolution, tick=tick))
    law = parts[0]
    for part in parts[1:]:
        law = compose(law, part, resolution, tick=tick)
    return law
