"""The banded Toeplitz matrix with the smallest error of prefix sums."""

import numpy as np

from hockeystick.errors import OptimisationError
from hockeystick.strategies.banded_square_root import square_root_coefficients
from hockeystick.strategies.matrix.base import Array
from hockeystick.strategies.matrix.substitution import toeplitz_solve
from hockeystick.strategies.optimise.minimise import minimise


def optimal_coefficients(steps: int, bands: int) -> Array:
    """Coefficients c, shape (bands,), l2 norm 1, that minimise mean squared error times squared sensitivity.

    The error is that of the prefix sums of ``C^{-1} z``, the sensitivity the norm of C's first column.

    Raises: OptimisationError when it does not converge, or to a negative coefficient.
    Reference: Choquette-Choo et al. (2023), "(Amplified) banded matrix factorization"; McKenna (2025), Section 4.
    Cost: some tens of gradients of O(steps * bands).
    """

    def objective(free: Array) -> tuple[float, Array]:
        value, gradient = log_error(np.concatenate([[1.0], free]), steps)
        return value, gradient[1:]

    start = square_root_coefficients(bands)[1:]
    subject = f"a Toeplitz matrix with {bands} bands for {steps} steps"
    optimum = np.concatenate([[1.0], minimise(objective, start, subject)])
    if optimum.min() < 0.0:
        raise OptimisationError(f"The optimum of {subject} has negative entries; choose another number of bands.")
    unit: Array = optimum / np.linalg.norm(optimum)
    return unit


def log_error(coefficients: Array, steps: int) -> tuple[float, Array]:
    """``log(mean squared error of prefix sums times |c|^2)`` and its gradient in c, shape (bands,).

    ``A C^{-1}`` is Toeplitz with coefficients w of ``1 / ((1 - x) c(x))``, and w_s appears in n - s rows, so the mean
    error is ``E = sum_s (n - s) w_s^2 / n``. From ``C w = 1``, ``C dw = -dC w``: with h solving ``C^T h = dE/dw`` (the
    same filter, backwards), ``dE/dc_j = -sum_s h_s w_{s-j}``. O(steps * bands).
    """
    times = np.arange(steps, 0.0, -1.0) / steps
    noise = toeplitz_solve(coefficients, np.ones(steps))
    error = float(times @ noise**2)
    adjoint = toeplitz_solve(coefficients, (2.0 * times * noise)[::-1])[::-1]
    slope = -np.array([adjoint[j:] @ noise[: steps - j] for j in range(coefficients.size)])
    squared = float(coefficients @ coefficients)
    return float(np.log(error * squared)), slope / error + 2.0 * coefficients / squared
