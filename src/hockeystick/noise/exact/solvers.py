"""Streaming solvers in whole numbers: feedback where C has the bands, sums where its inverse has them, and trees.

Both forms give ``w_t = x_t + v_t`` as a function of ``y = C x + z`` and of what was released before, for every x in
whole numbers (docs/theory/exact-noise.md, Theorems 1 and 2). What is kept is never reduced modulo anything.
"""

from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hockeystick.errors import InvalidInputError
from hockeystick.noise.draws import Draws
from hockeystick.noise.exact.grid import Grid
from hockeystick.noise.exact.kernels import Coefficients, Floats, average, beyond, feed_back, in_fours, round_off
from hockeystick.noise.exact.lazily import LazyNormal, rounded
from hockeystick.noise.recent_rows import Coefficients as Entries
from hockeystick.noise.solver import Layout, Reals, StreamingSolver, Work, block_for, ring_rows
from hockeystick.noise.tree import TreeAggregation
from hockeystick.strategies.matrix.dyadic import LARGEST_NORMAL, UNIT

ERROR = 1.2e-13
"""Proved error of a number in standard deviations: that of its polynomial, and half the width of its cell."""
FAR = 5.1
"""Beyond it the cells of 63 bits may be wider than that, and more bits are taken at once: of 1 number in 3 million."""
TWO_ROUNDOFFS = 2.0**-52
"""Twice the relative error of one operation: in every formula below it also covers products of errors."""
HALF = Fraction(1, 2)


def drawn(draws: Draws, count: int, first: int, start: int, stop: int) -> Floats:
    """Rows of z in grid steps, shape (count, stop - start), each within ``ERROR`` standard deviations of the real one.

    Raises: OverflowError for a number beyond ``LARGEST_NORMAL`` standard deviations: no run ever meets one.
    """
    z = np.empty((count, stop - start))
    draws(z, first, start)
    sharpen(draws, z, first, start)
    return z


def sharpen(draws: Draws, z: Floats, first: int, start: int) -> None:
    """Give the numbers beyond ``FAR`` standard deviations the precision of the others, by their next 64 bits."""
    end = FAR * draws.scale
    if beyond(z, end):
        for row, column in np.argwhere(np.abs(z) > end):
            z[row, column] = draws.scale * lazy(draws, first + int(row), start + int(column)).nearly()


def lazy(draws: Draws, row: int, column: int) -> LazyNormal:
    """One number of z, whose bits are drawn when they are needed."""
    return LazyNormal(draws.source, draws.position(row, column))


class WholeNumbers(StreamingSolver):
    """A solver whose rows are whole numbers of grid steps, int32.

    Args:
        grid: of the stream.
    """

    def __init__(self, *, grid: Grid, **options: Any) -> None:
        super().__init__(**options)
        self.grid = grid

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        for name, array in self.arrays.items():
            end = self.grid.limit if array.dtype == np.int32 else LARGEST_NORMAL * self.grid.scale
            if array.size and not (-end <= array.min() and array.max() <= end):
                raise InvalidInputError(
                    f"The {name!r} entry of a noise state must have only numbers from {-end:.6g} to {end:.6g}."
                )

    @abstractmethod
    def _block(self, first: int, count: int, fill: Draws) -> Work:  # type: ignore[override]  # it asks for more bits
        """How to solve the steps first, ..., first + count - 1."""


class Feedback(WholeNumbers):
    """``v_t = floor((z_t - sum_{0 < j < p} C[t, t-j] v_{t-j}) / C[t, t] + 1/2)`` for C with p bands.

    Keeps the last p - 1 rows of v, and a block: about 5/4 p d whole numbers of 32 bits. O(p d) time a step.
    """

    def __init__(self, entries: Entries, *, bands: int, grid: Grid, block: int | None = None, **options: Any) -> None:
        block = block_for(bands - 1) if block is None else block
        layout: Layout = {"ring": (ring_rows(bands - 1, block), np.int32)}
        super().__init__(grid=grid, block=block, layout=layout, **options)
        self._entries = entries
        self._bands = bands

    def reach(self, step: int) -> int:
        return 0 if self._bands > 1 else step

    def coefficients(self, first: int, count: int) -> Coefficients:
        """Of these steps; the bounds on errors are derived in docs/theory/exact-noise.md, Section 4."""
        entries = self._entries(first, count)
        diagonal, scale = entries[:, 0], self.grid.scale
        units = (entries / UNIT).astype(np.int64)
        largest = LARGEST_NORMAL * scale + entries[:, 1:].sum(axis=1) * self.grid.limit  # of any partial sum
        drawing = ERROR * scale / diagonal
        ahead = np.zeros_like(entries)
        ahead[:-1, :-1] = -entries[1:, 1:]
        return Coefficients(
            weights=-entries,
            ahead=ahead,
            units=units,
            over=1.0 / diagonal,
            rough=drawing + TWO_ROUNDOFFS * (entries.shape[1] + 4) * (largest / diagonal + 1.0),
            fine=drawing + TWO_ROUNDOFFS * (3.0 * LARGEST_NORMAL * scale / diagonal + 4.0),
        )

    def _block(self, first: int, count: int, fill: Draws) -> Work:  # type: ignore[override]
        ring = self.arrays["ring"]
        step, place = in_fours(self.coefficients(first, count)), first % len(ring)

        def solve(start: int, stop: int) -> None:
            z = drawn(fill, count, first, start, stop)
            doubtful = np.empty(stop - start, np.int64)
            if feed_back(ring, place, z, step, start, 0, doubtful):
                for column in np.flatnonzero(doubtful < count):
                    self._settle(fill, z[:, column : column + 1], step, first, start + int(column), doubtful[column])

        return solve

    def _settle(self, fill: Draws, z: Floats, step: Coefficients, first: int, column: int, doubtful: int) -> None:
        """Decide the doubtful steps of one column of a block, and solve again what follows them."""
        ring, z, at = self.arrays["ring"], z.copy(), np.full(1, doubtful)
        place = first % len(ring)
        while at[0] < len(z):
            b = int(at[0])
            past = sum(
                int(unit) * int(ring[(place + b - j) % len(ring), column])
                for j, unit in enumerate(step.units[b])
                if j > 0
            )
            diagonal = Fraction(int(step.units[b, 0]))
            weight = Fraction(self.grid.scale) / (diagonal * Fraction(UNIT))
            v = rounded([(weight, lazy(fill, first + b, column))], HALF - past / diagonal)
            ring[place + b, column] = v
            feed_back(ring, place, z, step, column, b + 1, at)

    def _view(self, first: int, count: int) -> Reals:
        ring = self.arrays["ring"]
        return ring[first % len(ring) :][:count]


class Sums(WholeNumbers):
    """``v_t = floor(sum_{j < p} W[t, t-j] z_{t-j} + 1/2)`` for ``W = C^{-1}`` with p bands.

    Keeps the last p - 1 rows of z in float64, and a block of them and one of whole numbers. O(p d) time a step.
    """

    def __init__(self, entries: Entries, *, bands: int, grid: Grid, block: int | None = None, **options: Any) -> None:
        block = block_for(bands - 1) if block is None else block
        layout: Layout = {"ring": (ring_rows(bands - 1, block), np.float64), "output": (block, np.int32)}
        super().__init__(grid=grid, block=block, layout=layout, **options)
        self._entries = entries
        self._bands = bands

    def reach(self, step: int) -> int:
        return max(0, step - self._bands + 1)

    def weights(self, first: int, count: int) -> tuple[Floats, Floats]:
        """Of these steps: the entries of W, shape (count, p), and bounds on the errors of their sums, (count,)."""
        weights = self._entries(first, count)
        return weights, doubt_of_sum(np.abs(weights).sum(axis=1), weights.shape[1], self.grid)

    def _block(self, first: int, count: int, fill: Draws) -> Work:  # type: ignore[override]
        ring, output = self.arrays["ring"], self.arrays["output"]
        place, (weights, doubt) = first % len(ring), self.weights(first, count)

        def solve(start: int, stop: int) -> None:
            rows = ring[place : place + count, start:stop]
            fill(rows, first, start)
            sharpen(fill, rows, first, start)
            doubtful = np.empty(stop - start, np.int64)
            if average(ring, place, weights, doubt, output, start, doubtful):
                for column in np.flatnonzero(doubtful < count):
                    for b in range(int(doubtful[column]), count):
                        at = start + int(column)
                        lags = [j for j in range(min(weights.shape[1], first + b + 1)) if weights[b, j]]
                        numbers = [(weights[b, j], first + b - j) for j in lags]
                        output[b, at] = rounded_sum(numbers, self.grid, fill, at)

        return solve

    def _view(self, first: int, count: int) -> Reals:
        return self.arrays["output"][:count]


class TreeSums(WholeNumbers):
    """``v_m = floor(z(new node) - sum of z(nodes that it replaces) + 1/2)``: the tree's left inverse, rounded.

    Keeps one node a level in float64, and one row of whole numbers. O(d) time a step on average.
    """

    def __init__(self, *, leaves: int, steps: int, grid: Grid, block: int | None = None, **options: Any) -> None:
        self._tree = TreeAggregation(leaves=leaves, steps=steps, dtype=np.float64, size=0)
        layout: Layout = {"nodes": (self._tree.layout["nodes"][0], np.float64), "output": (1, np.int32)}
        super().__init__(grid=grid, steps=steps, block=1, layout=layout, **options)

    def reach(self, step: int) -> int:
        return self._tree.reach(step)

    def _block(self, first: int, count: int, fill: Draws) -> Work:  # type: ignore[override]
        level, row = self._tree.level(first), self._tree.row
        nodes, output = self.arrays["nodes"], self.arrays["output"]
        doubt = float(doubt_of_sum(np.array([level + 1.0]), level + 1, self.grid)[0])

        def solve(start: int, stop: int) -> None:
            fresh = nodes[level : level + 1, start:stop]
            fill(fresh, row(first) + level, start)
            sharpen(fill, fresh, row(first) + level, start)
            total = fresh[0] - nodes[:level, start:stop].sum(axis=0)
            if round_off(total, 1.0, doubt, output[0, start:stop]):
                rest = total + 0.5 - np.floor(total + 0.5)
                for column in np.flatnonzero((rest < 2.0 * doubt) | (rest > 1.0 - 2.0 * doubt)):
                    at = start + int(column)
                    numbers = [(1.0, row(first) + level), *((-1.0, below) for below in self._tree.replaced(first))]
                    output[0, at] = rounded_sum(numbers, self.grid, fill, at)

        return solve

    def _view(self, first: int, count: int) -> Reals:
        return self.arrays["output"]


def doubt_of_sum(weights: NDArray[np.float64], terms: int, grid: Grid) -> Floats:
    """Bounds on the error of a sum of so many numbers with weights of these absolute sums, and of adding a half."""
    error = ERROR + TWO_ROUNDOFFS * (terms + 4) * LARGEST_NORMAL
    return weights * (error * grid.scale) + 4.0 * TWO_ROUNDOFFS


def rounded_sum(numbers: list[tuple[float, int]], grid: Grid, fill: Draws, column: int) -> int:
    """``floor(sum of weights times rows of z + 1/2)`` of one column, of the real numbers."""
    scale = Fraction(grid.scale)
    terms = [(Fraction(float(weight)) * scale, lazy(fill, row, column)) for weight, row in numbers]
    return rounded(terms, HALF)
