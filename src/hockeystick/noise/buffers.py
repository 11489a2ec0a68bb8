"""The solver of buffered Toeplitz matrices: a few buffers, however many steps."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.noise.solver import CHUNK, Dtype, Fill, Layout, Reals, StreamingSolver, Work

BLOCK = 4
"""Steps solved at a time: the buffers are then read and written a quarter as often, for four rows of output."""


class Buffers(StreamingSolver):
    """``x_t = z_t / diagonal - sum_j scales_j S_j``, then ``S_j = decays_j S_j + x_t``, from S = 0.

    It solves ``C x = z`` for the Toeplitz matrix C with first column ``diagonal * (1, c_1, c_2, ...)``,
    ``c_k = sum_j scales_j decays_j^(k-1)``, as S_j at step t is ``sum_{s<t} decays_j^(t-s-1) x_s``. O(k d) time a step.

    Keeps the k buffers, always in float64, and a block of 4 rows: decays close to 1 remember thousands of steps, and
    single precision would let their errors add up (a decay that is rounded to float32 alone changes c_k by k 6e-8).

    Rounding: to first order the x it returns solves ``(C + E) x = z`` with ``|E[t, s]|`` at most
    ``((2 (t - s) + k + 4) 1.1e-16 + 2 u [t = s]) C[t, s]``; u = 6e-8 in float32 and 1.1e-16 in float64.
    """

    def __init__(
        self,
        *,
        scales: NDArray[np.float64],
        decays: NDArray[np.float64],
        diagonal: float,
        dtype: Dtype,
        block: int | None = None,
        **options: Any,
    ) -> None:
        block = BLOCK if block is None else block
        layout: Layout = {"buffers": (scales.size, np.float64), "output": (block, dtype)}
        super().__init__(block=block, layout=layout, **options)
        self._scales, self._decays, self._inverse_diagonal = scales, decays, 1.0 / diagonal

    def _block(self, first: int, count: int, fill: Fill) -> Work:
        rows, buffers = self._view(first, count), self.arrays["buffers"]

        def solve(start: int, stop: int) -> None:
            fill(rows[:, start:stop], first, start)
            solve_with_buffers(rows, buffers, self._scales, self._decays, self._inverse_diagonal, start, stop)

        return solve

    def _view(self, first: int, count: int) -> Reals:
        return self.arrays["output"][:count]


@kernel(fastmath={"contract"})
def solve_with_buffers(
    rows: Reals,
    buffers: Reals,
    scales: NDArray[np.float64],
    decays: NDArray[np.float64],
    inverse_diagonal: float,
    first: int,
    last: int,
) -> None:
    """Overwrite rows of z, shape (count, d), with rows of x, and bring the buffers, shape (k, d), up to date.

    Does so for the columns first, ..., last - 1 alone.
    """
    exact = np.empty(CHUNK)
    for start in range(first, last, CHUNK):
        stop = min(start + CHUNK, last)
        for b in range(rows.shape[0]):
            row = rows[b, start:stop]
            for i in range(row.size):
                exact[i] = inverse_diagonal * row[i]
            for j in range(scales.size):
                buffer = buffers[j, start:stop]
                scale = scales[j]
                for i in range(row.size):
                    exact[i] -= scale * buffer[i]
            for i in range(row.size):
                row[i] = exact[i]
            # The buffers sum the rounded x, which is the one that is given out.
            for j in range(scales.size):
                buffer = buffers[j, start:stop]
                decay = decays[j]
                for i in range(row.size):
                    buffer[i] = decay * buffer[i] + row[i]
