"""The bins of every step sorted into few levels of their mean, each mean raised to the largest of its level.

Raising a mean gives a dominating pair, and so does moving posterior mass to a higher level
(docs/theory/conditional-composition.md, Lemma 1). So from here on a step is known by the levels of its bins alone.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.law import UNIT_ROUNDOFF, Array

MAX_LEVELS = 128
"""Different positive means that are told apart; more are merged upward, on a logarithmic scale."""
SAME = 1e-6
"""Means this close, relatively, share a level: entries that differ by rounding must not need a bound each."""
NEGLIGIBLE = 1e-4
"""Means below this share of the largest are raised to about it."""
WORK = 3e10
"""Products of bins that a bound is allowed to cost all in all, before low means are merged to save bounds."""
FEWEST_BOUNDED = 16


@dataclass(frozen=True, eq=False)
class LevelledMeans:
    """Levels of the means, raised.

    Attributes:
        values: shape (levels,), strictly increasing, non-negative.
        index: shape (rows, bins): the mean of bin i at row n is at most ``values[index[n, i]]``.
    """

    values: Array
    index: NDArray[np.int64]


def levelled_means(means: Array, rounding: float) -> LevelledMeans:
    """Sort means, shape (rows, bins), into levels.

    Args:
        rounding: proved relative error of the means; the levels are raised by it.

    O(rows * bins * log) time, O(rows * bins) memory.
    """
    raised = means * ((1.0 + rounding) * (1.0 + 4 * UNIT_ROUNDOFF))
    largest = float(raised.max())
    distinct, places = np.unique(raised, return_inverse=True)
    position = np.log(np.maximum(distinct, NEGLIGIBLE * largest) / largest)
    width = SAME
    cells = np.floor(position / width)
    while np.unique(cells).size > MAX_LEVELS:
        width *= 2.0
        cells = np.floor(position / width)
    cells[distinct == 0.0] = -np.inf
    _, level = np.unique(cells, return_inverse=True)
    values = np.zeros(int(level.max()) + 1)
    np.maximum.at(values, level, distinct)
    index = level[places.reshape(raised.shape)]
    return LevelledMeans(values, _with_few_bounds(index, most_bounded(*raised.shape)))


def most_bounded(rows: int, bins: int) -> int:
    """How many bins of a row get a bound of their own; affects speed and tightness only."""
    return max(int(WORK / (rows * bins**2)), FEWEST_BOUNDED)


def _with_few_bounds(index: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Raise the lowest levels of a row to one, so that at most ``most`` bins lie above its lowest level."""
    bins = index.shape[1]
    if most >= bins:
        return index
    floor = np.partition(index, bins - most - 1, axis=1)[:, bins - most - 1]
    return np.maximum(index, floor[:, None])
