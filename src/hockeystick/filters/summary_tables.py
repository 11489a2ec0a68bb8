"""The summary of the rows before a row: which one follows on each cell, and how the cells' chances compare.

Both filters of rows (:mod:`.row_filters`, :mod:`.renewal_filters`) start from a law of histories and make their tables
here. Any tables are valid, so that nothing here can make a bound wrong.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.law import Array


@dataclass(frozen=True)
class SummaryTables:
    """What tells much of the next row, by summary and cell.

    Attributes:
        following: the next summary, shape (summaries, cells).
        ratio: of the cell's chance given the summary to the one without the example, shape (summaries, cells).
        usual: the most frequent summary without the example.
        second: the variance of the ratio at a row without the example; larger ratios count as 1e4.
    """

    following: NDArray[np.int64]
    ratio: Array
    usual: int
    second: float

    def deviation(self, steps: int) -> float:
        """The standard deviation of the sum of the logarithms of the ratios of so many rows without the example."""
        return float(np.sqrt(max(steps * self.second, 1e-30)))


def summary_tables(chances: Array, shifts: Array, plain: Array, summaries: int, rounds: int) -> SummaryTables:
    """The summary is the expected shift of the next row, in cells of equal width of its logarithm.

    The law of the histories given the summary, and the summary that follows on a cell, are improved in turns.

    Args:
        chances: of each cell and next history, by history, shape (H, cells, H). The first history is none.
        shifts: expected shift of a row by history, shape (H,).
        plain: chance of each cell without the example, shape (cells,).
    """
    joint = np.zeros((summaries, shifts.size))
    joint[0, 0] = 1.0
    prior, low, high = joint[0], np.inf, -np.inf
    following = np.zeros((summaries, plain.size), dtype=np.int64)
    ratio = np.ones((summaries, plain.size))
    for _ in range(rounds):
        total = joint.sum(axis=1)
        known = total > 1e-200
        given = np.where(known[:, None], joint / np.maximum(total, 1e-200)[:, None], prior)
        after = np.tensordot(given, chances, 1)
        chance = np.maximum(after.sum(axis=2), 1e-300)
        next_shift = np.log(after @ shifts / chance + 1e-12)
        reached = next_shift[total > 1e-14]
        low, high = min(low, float(reached.min())), max(high, float(reached.max()))
        following = np.clip((next_shift - low) / (high - low + 1e-9) * summaries, 0, summaries - 1).astype(np.int64)
        ratio = chance / np.maximum(plain, 1e-300)
        prior = joint.sum(axis=0) / joint.sum()
        joint = np.zeros((summaries, shifts.size))
        np.add.at(joint, following, after * total[:, None, None])
    summary = np.full(summaries, 1.0 / summaries)
    for _ in range(rounds):
        after_plain = np.zeros(summaries)
        np.add.at(after_plain, following, summary[:, None] * plain)
        summary = after_plain
    second = float((summary[:, None] * plain * (np.minimum(ratio, 1e4) - 1.0) ** 2).sum())
    return SummaryTables(following, ratio, int(np.argmax(summary)), second)
