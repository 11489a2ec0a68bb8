"""The non-zero entries of C."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.band import band_of
from hockeystick.strategies.matrix.base import BLOCK, Indices

if TYPE_CHECKING:
    from scipy.sparse import csc_matrix

MOST_SCANNED = 400_000_000
MOST_ENTRIES = 20_000_000
FEW_BANDS = 32
"""Up to so many diagonals are read directly, for any matrix."""


@dataclass(frozen=True)
class Entries:
    """The columns of C that are in play, as a sparse matrix of shape (rows, steps in play), and what follows from them.

    Attributes:
        entries: without explicit zeros.
        first, last: the first and the last position among the steps in play of a row's entries, shape (rows,).
        sums: row sums, shape (rows,); 0 where a row has no entries.
        error: proved relative error of a sum of products of two entries over rows, and of a norm of such sums.
    """

    entries: "csc_matrix"
    first: Indices
    last: Indices
    sums: Array
    error: float

    @property
    def overlap(self) -> int:
        """The largest number of steps in play that one row spans."""
        return int((self.last - self.first).max()) + 1


def entries_of(matrix: StrategyMatrix, steps: Indices, deadline: Deadline) -> Entries:
    """Read the columns ``steps`` of C.

    Raises: UnsupportedError when there are more than ``MOST_ENTRIES`` non-zero entries.
    """
    from scipy.sparse import csc_matrix

    parts, count = [], 0
    for part in _parts(matrix, steps, deadline):
        count += part[0].size
        if count > MOST_ENTRIES:
            raise too_many()
        parts.append(part)
    rows, columns, values = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
    first = np.full(matrix.rows, steps.size, dtype=np.int64)
    last = np.full(matrix.rows, -1, dtype=np.int64)
    np.minimum.at(first, rows, columns)
    np.maximum.at(last, rows, columns)
    used = last >= 0
    sums: Array = np.bincount(rows, weights=values, minlength=matrix.rows).astype(np.float64)
    row = np.cumsum(used) - 1
    entries = csc_matrix((values, (row[rows], columns)), shape=(int(used.sum()), steps.size))
    error = 4.0 * matrix.rounding + 4.0 * (matrix.rows + matrix.steps + 16) * UNIT_ROUNDOFF
    return Entries(entries, first[used], last[used], sums[used], error)


def too_many() -> UnsupportedError:
    """The error for more than ``MOST_ENTRIES`` entries."""
    return UnsupportedError(f"At most {MOST_ENTRIES} non-zero entries of C are read one by one.")


def why_too_many(matrix: StrategyMatrix, steps: int) -> str | None:
    """The reason not to read so many columns of C, or None."""
    if _has_band(matrix) or matrix.rows * steps <= MOST_SCANNED:
        return None
    return f"it would have to read more than {MOST_SCANNED} entries of the matrix"


def _has_band(matrix: StrategyMatrix) -> bool:
    """Whether the diagonals are the quick way to the entries, and few enough for memory."""
    if matrix.rows != matrix.steps or matrix.steps * matrix.bands > MOST_ENTRIES:
        return False
    return matrix.toeplitz_column is not None or matrix.bands <= FEW_BANDS


def _parts(matrix: StrategyMatrix, steps: Indices, deadline: Deadline) -> Iterator[tuple[Indices, Indices, Array]]:
    """Rows, positions in ``steps`` and values of the entries that are not zero."""
    if _has_band(matrix):
        band = band_of(matrix)[steps]
        columns, distances = np.nonzero(band)
        yield steps[columns] + distances, columns, band[columns, distances]
        return
    for start in range(0, steps.size, BLOCK):
        deadline.tick()
        block = matrix.columns(steps[start : start + BLOCK])
        rows, columns = np.nonzero(block)
        yield rows, start + columns, block[rows, columns]
