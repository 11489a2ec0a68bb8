"""Buffered Toeplitz matrices: the coefficients are a sum of a few decaying powers."""

from functools import cached_property

import numpy as np
from numba import njit

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

    @cached_property
    def inverse_buffers(self) -> tuple[Array, Array]:
        """Scales and decays, each of shape (buffers,), of ``diagonal * C^{-1}``, a matrix of the same form.

        The scales are negative or zero; the decays, in decreasing order, lie between those of C, and the last one
        below them. With ``w_j = sqrt(scales_j)``, ``c_k = w' D^(k-1) w`` for the diagonal matrix D of decays, and the
        inverse has ``-w' (D - w w')^(k-1) w``: a symmetric eigenvalue problem. Accurate to rounding of 1, not relative.
        """
        weights = np.sqrt(self.scales)
        decays, vectors = np.linalg.eigh(np.diag(self.decays) - np.outer(weights, weights))
        scales = -((vectors.T @ weights) ** 2)
        return scales[::-1].copy(), decays[::-1].copy()

    def dot(self, x: Array) -> Array:
        """``C x`` with buffers. O(steps * buffers * d)."""
        rows = np.ascontiguousarray(x, dtype=np.float64).reshape(self.steps, -1)
        product: Array = self.diagonal * buffered_product(self.scales, self.decays, rows).reshape(x.shape)
        return product

    def solve(self, z: Array) -> Array:
        """``C^{-1} z`` with buffers. O(steps * buffers * d).

        The result solves a system whose coefficients are within the relative error ``(2 steps + buffers + 4) u`` of
        C's, as a buffer is rounded twice a step.
        """
        rows = np.ascontiguousarray(z, dtype=np.float64).reshape(self.steps, -1)
        return buffered_solution(self.scales, self.decays, rows / self.diagonal).reshape(z.shape)


@njit(cache=True)
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


@njit(cache=True)
def buffered_product(scales: Array, decays: Array, rows: Array) -> Array:
    """``y_t = x_t + sum_j scales_j S_j`` for rows x of shape (steps, d)."""
    product = rows.copy()
    buffers = np.zeros((scales.size, rows.shape[1]))
    for t in range(rows.shape[0]):
        for j in range(scales.size):
            for i in range(rows.shape[1]):
                product[t, i] += scales[j] * buffers[j, i]
                buffers[j, i] = decays[j] * buffers[j, i] + rows[t, i]
    return product


@njit(cache=True)
def buffered_solution(scales: Array, decays: Array, rows: Array) -> Array:
    """``x_t = z_t - sum_j scales_j S_j`` for rows z of shape (steps, d)."""
    solution = rows.copy()
    buffers = np.zeros((scales.size, rows.shape[1]))
    for t in range(rows.shape[0]):
        for j in range(scales.size):
            for i in range(rows.shape[1]):
                solution[t, i] -= scales[j] * buffers[j, i]
        for j in range(scales.size):
            for i in range(rows.shape[1]):
                buffers[j, i] = decays[j] * buffers[j, i] + solution[t, i]
    return solution
