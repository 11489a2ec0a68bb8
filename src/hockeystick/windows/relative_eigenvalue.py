"""How much longer the columns of windows have to be: the largest eigenvalue of G relative to their inner products.

The inner products of a window are ``S R S``, S its scales and ``R = L L^T`` those of a Gauss-Markov chain. ``L^-1``
subtracts rho times the step before and divides by the innovation, but for the first step of a window.

Approximate, and mostly from below: it compares shapes, and says where a factorisation that proves one begins.
"""

from collections.abc import Callable
from math import inf

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.law import Array


def largest_relative(
    product: Callable[[Array], Array],
    scales: Array,
    correlation: float,
    first: NDArray[np.int64],
    start: Array,
    *,
    tolerance: float,
    vectors: int = 20,
    rounds: int | None = None,
) -> tuple[float, Array]:
    """The largest eigenvalue of G relative to the inner products of windows, and its eigenvector; inf where not found.

    Args:
        product: G times a vector, of shape (n,).
        scales: shape (n,), positive, of all steps.
        correlation: rho in [0, 1) of neighbours.
        first: the first step of each window, increasing from 0.
        start: shape (n,), where the search begins, such as the eigenvector of a similar shape.
        tolerance: relative residual of an eigenvector that is close enough.
        vectors: among which it is sought.
        rounds: of the search; about as many products as there are vectors in each. None for 10 n.
    """
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    n = scales.size
    links = np.full(n, correlation)
    links[first] = 0.0
    innovations, before = np.sqrt((1.0 - links) * (1.0 + links)), links[1:]

    def times(vector: Array) -> Array:
        spread = np.ravel(vector) / innovations
        spread[:-1] -= before * spread[1:]
        white = product(spread / scales) / scales
        white[1:] -= before * white[:-1]
        return np.asarray(white / innovations)

    if n <= 2:
        return float(np.linalg.eigvalsh(np.column_stack([times(unit) for unit in np.eye(n)]))[-1]), start
    operator = LinearOperator((n, n), matvec=times, dtype=np.float64)
    try:
        # Where the start is an eigenvector, ARPACK draws another vector.
        values, found = eigsh(operator, 1, which="LA", v0=start, ncv=min(vectors, n), tol=tolerance, maxiter=rounds)
    except ArpackError:
        return inf, start
    return float(values[0]), found[:, 0]
