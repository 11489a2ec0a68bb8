"""The error of a strategy: the noise in the queries that training asks.

A workload is the first column of a lower-triangular Toeplitz matrix A, shape (steps,); the queries are ``A x``, and the
noise in them is ``A C^{-1} z`` (with the left inverse of a tree). Errors are squared and for noise multiplier 1:
multiply them by its square, or by the squared sensitivity to compare strategies. They promise no side.
"""

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.strategies.matrix.base import Array, StrategyMatrix


def prefix_sums(steps: int) -> Array:
    """The iterates of SGD at a constant learning rate: every query is the sum of all gradients so far."""
    return np.ones(steps)


def momentum(steps: int, momentum: float, weight_decay: float = 0.0) -> Array:
    """The iterates of SGD with heavy-ball momentum and weight decay, both constant, at learning rate 1.

    The velocity is ``v_t = momentum v_{t-1} + g_t`` and the iterate ``w_t = (1 - weight_decay) w_{t-1} - v_t``, so the
    coefficient of ``g_{t-k}`` in ``-w_t`` is ``sum_{j=0..k} momentum^j (1 - weight_decay)^(k-j)``, that of x^k in
    ``1 / ((1 - momentum x) (1 - (1 - weight_decay) x))``. Decay is decoupled: it does not enter the velocity.

    Args:
        momentum: in [0, 1).
        weight_decay: learning rate times decay, in [0, 1).

    Raises: InvalidInputError for values outside.
    Reference: Kalinin and Lampert (2024), "Banded square root matrix factorization", section 2 (A_{alpha, beta} with
    alpha = 1 - weight_decay, beta = momentum).
    """
    for name, value in (("momentum", momentum), ("weight_decay", weight_decay)):
        if not 0.0 <= value < 1.0:
            raise InvalidInputError(f"The {name!r} parameter must be at least 0 and below 1. Got {value!r} instead.")
    workload = np.empty(steps)
    decayed = iterate = 1.0
    for step in range(steps):
        workload[step] = iterate
        decayed *= momentum
        iterate = iterate * (1.0 - weight_decay) + decayed
    return workload


def mean_error(matrix: StrategyMatrix, workload: Array) -> float:
    """Mean over the queries of the squared error, at noise multiplier 1.

    Raises: InvalidInputError for a workload of another number of steps.
    """
    if workload.shape != (matrix.steps,):
        raise InvalidInputError(
            f"The 'workload' parameter must have shape ({matrix.steps},), a coefficient for every step. "
            f"Got shape {workload.shape} instead."
        )
    return float(matrix.query_errors(workload).mean())
