"""Buffered Toeplitz matrices: the coefficients are a sum of a few decaying powers."""

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.strategies.matrix.base import Array
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix


class BufferedToeplitzMatrix(ToeplitzMatrix):
    """Toeplitz with first column ``diagonal * (1, c_1, c_2, ...)``, ``c_k = sum_j scales_j decays_j^(k-1)``.

    ``y = C x`` and ``x = C^{-1} z`` run with one buffer for each decay, ``S_j <- decays_j S_j + x_t``, from zero:
    ``y_t = diagonal (x_t + sum_j scales_j S_j)`` before the update, and ``x_t = z_t / diagonal - sum_j scales_j S_j``.

    Args:
        scales: omega, shape (buffers,), non-negative.
        decays: theta, shape (buffers,), in [0, 1].
        steps: n.
        diagonal: the first coefficient, positive; it scales the whole matrix.

    Rounding: the coefficients are computed once, by products and sums of non-negative numbers, to within the relative
    error ``(steps + buffers) u`` of these parameters; everything that accountants read comes from those doubles.
    """

    defined_by = ("scales", "decays", "diagonal")

    def __init__(self, scales: Array, decays: Array, steps: int, *, diagonal: float = 1.0) -> None:
        self.scales: Array = np.ascontiguousarray(scales, dtype=np.float64)
        self.decays: Array = np.ascontiguousarray(decays, dtype=np.float64)
        self.diagonal = float(diagonal)
        super().__init__(self.diagonal * buffered_column(self.scales, self.decays, steps), steps)

    def dot(self, x: Array) -> Array:
        """``C x`` with buffers. O(steps * buffers * d)."""
        rows = np.ascontiguousarray(x, dtype=np.float64).reshape(self.steps, -1)
        return self.diagonal * buffered_rows(self.scales, self.decays, rows, False).reshape(x.shape)

    def solve(self, z: Array) -> Array:
        """``C^{-1} z`` with buffers. O(steps * buffers * d).

        The result solves a system whose coefficients are within the relative error ``(2 steps + buffers + 4) u`` of
        C's, as a buffer is rounded twice a step.
        """
        rows = np.ascontiguousarray(z, dtype=np.float64).reshape(self.steps, -1)
        return buffered_rows(-self.scales, self.decays, rows / self.diagonal, True).reshape(z.shape)


@kernel
def buffered_column(scales: Array, decays: Array, steps: int) -> Array:
    """``1, sum_j scales_j, sum_j scales_j decays_j, ...``, shape (steps,). O(steps * buffers)."""
    column = np.zeros(steps)
    column[0] = 1.0
    terms = scales.copy()
    for t in range(1, steps):
        for j in range(terms.size):
            column[t] += terms[j]
            terms[j] *= decays[j]
    return column


@kernel
def buffered_rows(scales: Array, decays: Array, rows: Array, feedback: bool) -> Array:
    """``y_t = x_t + sum_j scales_j S_j`` for rows x of shape (steps, d), then ``S_j <- decays_j S_j + x_t``, from 0.

    With ``feedback`` the buffers take y_t in the place of x_t.
    """
    result = rows.copy()
    joins = result if feedback else rows
    buffers = np.zeros((scales.size, rows.shape[1]))
    for t in range(rows.shape[0]):
        for j in range(scales.size):
            for i in range(rows.shape[1]):
                result[t, i] += scales[j] * buffers[j, i]
        for j in range(scales.size):
            for i in range(rows.shape[1]):
                buffers[j, i] = decays[j] * buffers[j, i] + joins[t, i]
    return result
