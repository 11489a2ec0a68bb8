"""The numbers of z that a stream draws: which position of the source each column of each row has."""

from collections.abc import Iterator, Sequence

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
        self.width = width
        self._part = part
        self._first = first

    def __call__(self, rows: Reals, first: int, column: int) -> None:
        """Overwrite ``rows``, shape (m, k), with k columns from ``column`` on of m rows from ``first`` on."""
        for start, at, count in self.runs(column, rows.shape[1]):
            for row in range(len(rows)):
                self.source.fill(rows[row, at : at + count], (first + row) * self.width + start, self.scale)

    def runs(self, column: int, columns: int) -> Iterator[tuple[int, int, int]]:
        """Stretches of so many columns from ``column`` on whose numbers follow each other in the source.

        Each is the position of its first number in row 0, that one's place among these columns, and how many they are.
        """
        at, column = 0, column + self._first  # columns of the part before the current range
        for start, stop in self._part:
            low, high = max(at, column), min(at + stop - start, column + columns)
            if low < high:
                yield start + low - at, low - column, high - low
            at += stop - start

    def position(self, row: int, column: int) -> int:
        """The position in the source of one number."""
        column += self._first
        for start, stop in self._part:
            if column < stop - start:
                return row * self.width + start + column
            column -= stop - start
        raise IndexError(f"There is no column {column} beyond the last one.")

    def moved(self, columns: int) -> "Draws":
        """The same numbers, from another column on."""
        return Draws(self.source, self.scale, self.width, self._part, self._first + columns)

    def at(self, columns: Sequence[int]) -> "Draws":
        """The numbers of some columns alone, in ascending order, which are then called 0, 1, ..."""
        positions = [self.position(0, column) for column in columns]
        return Draws(self.source, self.scale, self.width, [(position, position + 1) for position in positions])
