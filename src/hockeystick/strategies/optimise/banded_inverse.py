"""The Toeplitz matrix with a banded inverse that has the smallest error of prefix sums."""

import numpy as np

from hockeystick.errors import OptimisationError
from hockeystick.strategies.banded_inverse_square_root import inverse_square_root_coefficients
from hockeystick.strategies.matrix.base import Array
from hockeystick.strategies.matrix.substitution import toeplitz_solve
from hockeystick.strategies.optimise.minimise import minimise
from hockeystick.strategies.sensitivity import spaced_steps_are_worst


def optimal_inverse_coefficients(steps: int, bands: int, min_sep: int | None) -> Array:
    """Coefficients m of C^{-1}, shape (bands,), that minimise mean squared error times squared sensitivity.

    The first is positive and no other is, so that C, whose column obeys ``m_0 c_t = sum_{j>=1} |m_j| c_{t-j}``, is
    non-negative and computed without cancellation, and its first column is the longest. Scaled so that this column
    has l2 norm 1.

    Args:
        min_sep: least distance b of two participations, of which there are as many as fit, ceil(steps / b); None for
            a single one. The sensitivity is then taken to be the norm of the sum of the columns 0, b, 2b, ...; that
            no other pattern is worse is checked of the result.

    Raises: OptimisationError when it does not converge, or another pattern may be worse.
    Reference: Kalinin et al. (2025), "Back to square roots: an optimal bound on the matrix factorization error for
    multi-epoch differentially private SGD" (BandInvMF).
    Cost: tens to hundreds of gradients of O(steps * bands).
    """
    distance = steps if min_sep is None else min_sep
    square_root = inverse_square_root_coefficients(bands)
    start = -square_root[1:] / square_root.sum()

    # The objective does not change when m is scaled: the sum of its entries is kept at 1, the free ones are the -m_j.
    def coefficients(free: Array) -> Array:
        return np.concatenate([[1.0 + free.sum()], -free])

    def objective(free: Array) -> tuple[float, Array]:
        value, gradient = log_error(coefficients(free), steps, distance)
        return value, gradient[0] - gradient[1:]

    subject = f"a Toeplitz matrix whose inverse has {bands} bands for {steps} steps"
    optimum = coefficients(minimise(objective, start, subject, non_negative=True))
    column = toeplitz_solve(optimum, np.eye(1, steps)[0])
    if not spaced_steps_are_worst(column, distance):
        raise OptimisationError(
            f"The optimum of {subject} may have a larger sensitivity than the optimiser took for min_sep {distance}; "
            "choose another number of bands or no min_sep."
        )
    return optimum * np.linalg.norm(column)


def log_error(inverse: Array, steps: int, min_sep: int) -> tuple[float, Array]:
    """``log(mean squared error of prefix sums times squared sensitivity)`` and its gradient in m, shape (bands,).

    Error: ``A C^{-1}`` is Toeplitz with the running sums w of m as coefficients, ``E = sum_s (n - s) w_s^2 / n``.
    Sensitivity: ``|f|^2`` with ``f_t = c_t + f_{t-b}``, c the coefficients of ``1 / m(x)``. From ``M c = e_0``,
    ``M dc = -dM c``: with h solving ``M^T h = d|f|^2/dc``, ``d|f|^2/dm_j = -sum_t h_t c_{t-j}``. O(steps * bands).
    """
    bands = inverse.size
    times = np.arange(steps, 0.0, -1.0) / steps
    noise = np.cumsum(np.concatenate([inverse, np.zeros(steps - bands)]))
    error = float(times @ noise**2)
    of_error = np.cumsum((2.0 * times * noise)[::-1])[::-1][:bands]

    column = toeplitz_solve(inverse, np.eye(1, steps)[0])
    profile = _sums_at_distance(column, min_sep)
    squared = float(profile @ profile)
    adjoint = toeplitz_solve(inverse, _sums_at_distance(2.0 * profile[::-1], min_sep))[::-1]
    of_squared = -np.array([adjoint[j:] @ column[: steps - j] for j in range(bands)])
    return float(np.log(error * squared)), of_error / error + of_squared / squared


def _sums_at_distance(values: Array, distance: int) -> Array:
    """``f_t = v_t + f_{t - distance}``. O(n)."""
    rows = -(-values.size // distance)
    table = np.concatenate([values, np.zeros(rows * distance - values.size)]).reshape(rows, distance)
    return np.cumsum(table, axis=0).ravel()[: values.size]
