"""The numbers of z that a stream draws: which position of the source each column of each row has."""

from collections.abc import Sequence

from hockeystick.noise.normals import NormalSource
from hockeystick.noise.solver import Reals


class Draws:
    """Columns of rows of ``scale z``, in the order of the whole shape's numbers: what fills the rows of a solver.

    Args:
        source: of the numbers.
        scale: their standard deviation.
        width: numbers in a row of the whole noise.
        part: ranges (start, stop) of them, ascending: the columns.
        first: the number, in the part, of the column that is called 0.
    """

    def __init__(
        self, source: NormalSource, scale: float, width: int, part: Sequence[tuple[int, int]], first: int = 0
    ) -> None:
        self.source = source
        self.scale = scale
        self._width = width
        self._part = part
        self._first = first

    def __call__(self, rows: Reals, first: int, column: int) -> None:
        """Overwrite ``rows``, shape (m, k), with k columns from ``column`` on of m rows from ``first`` on."""
        at, column = 0, column + self._first  # columns of the part before the current range
        for start, stop in self._part:
            low, high = max(at, column), min(at + stop - start, column + rows.shape[1])
            for row in range(len(rows) if low < high else 0):
                position = (first + row) * self._width + start + low - at
                self.source.fill(rows[row, low - column : high - column], position, self.scale)
            at += stop - start

    def position(self, row: int, column: int) -> int:
        """The position in the source of one number."""
        column += self._first
        for start, stop in self._part:
            if column < stop - start:
                return row * self._width + start + column
            column -= stop - start
        raise IndexError(f"There is no column {column} beyond the last one.")

    def moved(self, columns: int) -> "Draws":
        """The same numbers, from another column on."""
        return Draws(self.source, self.scale, self._width, self._part, self._first + columns)
