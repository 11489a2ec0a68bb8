"""Solvers that keep the most recent rows of x or of z: for banded C, banded ``C^{-1}``, and full matrices."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.noise.solver import CHUNK, Dtype, Fill, Layout, Reals, StreamingSolver, Work, block_for, ring_rows

Coefficients = Callable[[int, int], NDArray[np.float64]]
"""Maps (first, count) to an array of shape (count, p or less): entry [b, j] belongs to the row first + b and the row j
before it. Entries that are left out are zero, and so are those where there is no such row."""


class RecentRows(StreamingSolver):
    """A solver with ``bands`` coefficients a step, a ring buffer of the last ``bands - 1`` rows and a block.

    ``output_blocks`` more blocks hold results that must not overwrite the ring.
    """

    output_blocks: ClassVar[int]

    def __init__(
        self,
        coefficients: Coefficients,
        *,
        bands: int,
        dtype: Dtype,
        block: int | None = None,
        **options: Any,
    ) -> None:
        block = block_for(bands - 1) if block is None else block
        layout: Layout = {"ring": (ring_rows(bands - 1, block), dtype)}
        if self.output_blocks:
            layout |= {"output": (self.output_blocks * block, dtype)}
        super().__init__(block=block, layout=layout, **options)
        self._coefficients = coefficients
        self._bands = bands

    @abstractmethod
    def weights(self, first: int, count: int) -> tuple[Reals, Reals | None]:
        """Of these steps: what multiplies each row and the rows before it, and the sum of both, or None for 1."""


class Substitution(RecentRows):
    """Forward substitution, ``x_t = (z_t - sum_{0 < j < p} C[t, t-j] x_{t-j}) / C[t, t]``, for C with p bands.

    Keeps the last p - 1 rows of x, and a block: about 5/4 p d numbers. O(p d) time a step. For a full matrix p is
    the number of steps.

    Rounding (Higham 2002, Theorem 8.5): the x it returns solves ``(C + E) x = z`` with ``|E| <= (p + 2) u C``
    entrywise to first order, u = 6e-8 in float32 and 1.1e-16 in float64.
    """

    output_blocks = 0

    def weights(self, first: int, count: int) -> tuple[Reals, Reals]:
        coefficients, dtype = self._coefficients(first, count), self.arrays["ring"].dtype
        return (-coefficients).astype(dtype), (1.0 / coefficients[:, 0]).astype(dtype)

    def reach(self, step: int) -> int:
        return 0 if self._bands > 1 else step

    def _block(self, first: int, count: int, fill: Fill) -> Work:
        ring, rows = self.arrays["ring"], self._view(first, count)
        weights, scales = self.weights(first, count)

        def solve(start: int, stop: int) -> None:
            fill(rows[:, start:stop], first, start)
            substitute(ring, first % len(ring), weights, scales, start, stop)

        return solve

    def _view(self, first: int, count: int) -> Reals:
        ring = self.arrays["ring"]
        return ring[first % len(ring) :][:count]


class MovingAverage(RecentRows):
    """``x_t = sum_{j < p} W[t, t-j] z_{t-j}`` for ``W = C^{-1}`` with p bands.

    Keeps the last p - 1 rows of z, and two blocks: about 3/2 p d numbers. O(p d) time a step.

    Rounding: the x it returns is ``(W + E) z`` with ``|E| <= (p + 2) u |W|`` entrywise to first order.
    """

    output_blocks = 1

    def weights(self, first: int, count: int) -> tuple[Reals, None]:
        return self._coefficients(first, count).astype(self.arrays["ring"].dtype), None

    def reach(self, step: int) -> int:
        return max(0, step - self._bands + 1)

    def _block(self, first: int, count: int, fill: Fill) -> Work:
        ring, output = self.arrays["ring"], self.arrays["output"]
        place = first % len(ring)
        weights, _ = self.weights(first, count)

        def solve(start: int, stop: int) -> None:
            fill(ring[place : place + count, start:stop], first, start)
            average(ring, place, weights, output, start, stop)

        return solve

    def _view(self, first: int, count: int) -> Reals:
        return self.arrays["output"][:count]


@kernel(fastmath={"contract"})
def substitute(ring: Reals, place: int, weights: Reals, scales: Reals, first: int, last: int) -> None:
    """Solve the rows place, ..., place + count - 1 of the ring, which hold z, in place.

    Args:
        ring: shape (R, d); the rows before ``place``, cyclically, are the rows of x before.
        weights: shape (count, p), minus the entries of C; column 0 is not read.
        scales: shape (count,), one over the diagonal of C.
        first, last: solve the columns first, ..., last - 1.
    """
    for start in range(first, last, CHUNK):
        stop = min(start + CHUNK, last)
        for b in range(scales.size):
            row = ring[place + b, start:stop]
            add_past(row, ring, place + b, weights[b], start)
            for k in range(row.size):
                row[k] *= scales[b]


@kernel(fastmath={"contract"})
def average(ring: Reals, place: int, weights: Reals, out: Reals, first: int, last: int) -> None:
    """Rows of ``W z`` for z in the rows place, ..., place + count - 1 of the ring and cyclically before them.

    Args:
        ring: shape (R, d).
        weights: shape (count, p), the entries of W.
        out: shape (count or more, d).
        first, last: the columns first, ..., last - 1 alone.
    """
    for start in range(first, last, CHUNK):
        stop = min(start + CHUNK, last)
        for b in range(weights.shape[0]):
            row = out[b, start:stop]
            now = ring[place + b, start:stop]
            for k in range(row.size):
                row[k] = weights[b, 0] * now[k]
            add_past(row, ring, place + b, weights[b], start)


@kernel(fastmath={"contract"})
def add_past(row: Reals, ring: Reals, place: int, weights: Reals, start: int) -> None:
    """Add ``weights[j]`` times the row j before ``place``, for j = 1, ..., p - 1, to a part of a row.

    Four rows at a time: the part of the row is then read and written a quarter as often.
    """
    rows = ring.shape[0]
    size = row.size
    stop = start + size
    j = 1
    while j + 3 < weights.size:
        x1, x2 = ring[(place - j) % rows, start:stop], ring[(place - j - 1) % rows, start:stop]
        x3, x4 = ring[(place - j - 2) % rows, start:stop], ring[(place - j - 3) % rows, start:stop]
        w1, w2, w3, w4 = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        for k in range(size):
            row[k] = row[k] + w1 * x1[k] + w2 * x2[k] + w3 * x3[k] + w4 * x4[k]
        j += 4
    while j < weights.size:
        x1 = ring[(place - j) % rows, start:stop]
        w1 = weights[j]
        for k in range(size):
            row[k] += w1 * x1[k]
        j += 1
