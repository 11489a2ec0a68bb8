"""The lower-triangular matrix, with no further structure, that has the smallest mean squared error of prefix sums."""

from functools import partial

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.linalg.blas import dtrmm
from scipy.linalg.lapack import dtrtri

from hockeystick.deadline import tick
from hockeystick.errors import OptimisationError
from hockeystick.strategies.banded_square_root import square_root_coefficients
from hockeystick.strategies.matrix.base import Array
from hockeystick.strategies.optimise.minimise import minimise

MEMORY = 10
ITERATIONS = 200
CLOSE = 1e-9
"""Relative change of the multipliers at which their iteration has converged."""
GAP = 1e-8
"""Largest relative gap between the error and its lower bound that counts as optimal."""
LEAST_DIAGONAL = 1e-6
"""Kept from zero in the search for several epochs; an optimum that sits here is no optimum."""


def optimal_matrix(steps: int) -> Array:
    """C of shape (steps, steps) with columns of norm 1 and the least ``tr(A X^{-1} A^T)``, ``X = C^T C``.

    A is the matrix of prefix sums. The problem is convex in X with ``diag(X) = 1``; with multipliers v and
    ``V = diag(v)``, ``S = A^T A``, its dual is ``2 tr((V^{1/2} S V^{1/2})^{1/2}) - sum v``, and the optimum has
    ``X = V^{-1/2} R V^{-1/2}``, ``R = (V^{1/2} S V^{1/2})^{1/2}``, ``diag(R) = v`` (Denisov et al., 2022).
    The inverse of S is tridiagonal, so an iteration for v needs one tridiagonal eigenvalue problem.

    Raises: OptimisationError when the iteration does not converge, when the error of C is not within the relative
        ``GAP`` of the dual value (which bounds the error of every C from below), or when an entry of C is negative.
    Cost: some 25 iterations of O(steps^2), then O(steps^3). Memory O(steps^2).
    """
    if steps == 1:
        return np.ones((1, 1))
    multipliers = _multipliers(steps)
    eigenvalues, vectors = _inverse_eigenvalues(multipliers)
    tick()
    root = (vectors / np.sqrt(eigenvalues)) @ vectors.T
    tick()
    scale = 1.0 / np.sqrt(multipliers)
    matrix = lower_factor(root * scale[:, None] * scale)
    tick()
    matrix /= np.linalg.norm(matrix, axis=0)
    bound = np.sum(1.0 / np.sqrt(eigenvalues)) ** 2 / multipliers.sum() / steps
    error = np.exp(log_error(matrix, 1)[0])
    if not error <= bound * (1.0 + GAP):
        raise OptimisationError(
            f"The optimisation of a dense matrix for {steps} steps did not converge: its error {error:.9g} is above "
            f"the bound {bound:.9g}."
        )
    if not matrix[np.tril_indices(steps)].min() >= 0.0:
        raise OptimisationError(
            f"The optimal dense matrix for {steps} steps has a negative entry, which a strategy may not have; "
            "choose fewer steps."
        )
    return matrix


def _multipliers(steps: int) -> Array:
    """v, shape (steps,), with ``diag((V^{1/2} S V^{1/2})^{1/2})`` proportional to v: fixed point, Anderson mixing."""
    point = np.log(np.arange(steps, 0.0, -1.0))
    points: list[Array] = []
    changes: list[Array] = []
    for _ in range(ITERATIONS):
        tick()
        eigenvalues, vectors = _inverse_eigenvalues(np.exp(point))
        response = np.square(vectors) @ (1.0 / np.sqrt(eigenvalues))
        change = np.log(response / response.sum()) - (point - np.log(np.exp(point).sum()))
        if np.abs(change).max() <= CLOSE:
            converged: Array = np.exp(point)
            return converged
        points, changes = [*points[-MEMORY:], point], [*changes[-MEMORY:], change]
        # A double step, as the square root halves every change; then what the last iterations say of the rest.
        point = point + 2.0 * change
        if len(points) > 1:
            turns = np.diff(changes, axis=0).T
            mixed = np.linalg.lstsq(turns, change, rcond=None)[0]
            point = point - (np.diff(points, axis=0).T + 2.0 * turns) @ mixed
    raise OptimisationError(f"The optimisation of a dense matrix for {steps} steps did not converge.")


def _inverse_eigenvalues(multipliers: Array) -> tuple[Array, Array]:
    """Eigenvalues and vectors of ``V^{-1/2} S^{-1} V^{-1/2}``; ``S^{-1}`` has 1, 2, 2, ... and -1 beside them."""
    scale = 1.0 / np.sqrt(multipliers)
    diagonal = 2.0 * scale**2
    diagonal[0] *= 0.5
    eigenvalues, vectors = eigh_tridiagonal(diagonal, -scale[1:] * scale[:-1])
    return np.asarray(eigenvalues, dtype=np.float64), np.asarray(vectors, dtype=np.float64)


def lower_factor(gram: Array) -> Array:
    """The lower-triangular C with ``C^T C = gram``: Cholesky's factor with the order of the steps reversed."""
    return np.ascontiguousarray(np.linalg.cholesky(gram[::-1, ::-1])[::-1, ::-1].T)


def optimal_matrix_for_epochs(steps: int, epochs: int) -> Array:
    """A non-negative C of shape (steps, steps) for a participation in every epoch, ``max_i |sum_j C[:, i + j b]| = 1``.

    b is ``steps / epochs``. Of all lower-triangular matrices with non-negative entries, a local minimum of the mean
    squared error of prefix sums. The optimum over Gram matrices of Choquette-Choo et al. (2023, "Multi-epoch matrix
    factorization mechanisms for private machine learning") makes the columns of a bin orthogonal, which a C without
    negative entries cannot do unless their supports are disjoint; so this searches over the entries themselves.

    Raises: OptimisationError when no stationary point is found.
    Cost: about 4 steps gradients of O(steps^3), and as many again for the last digits.
    """
    from scipy.optimize import Bounds, minimize

    subject = f"a dense matrix for {epochs} epochs in {steps} steps"
    failed = OptimisationError(f"The optimisation of {subject} did not converge; fewer steps make the problem easier.")
    rows, columns = np.tril_indices(steps)
    bins = steps // epochs
    coefficients = np.append(square_root_coefficients(bins), np.zeros(steps - bins))
    start = _scaled(np.tril(coefficients[np.abs(np.subtract.outer(np.arange(steps), np.arange(steps)))]), epochs)
    least = np.where(rows == columns, LEAST_DIAGONAL, 0.0)
    objective = partial(pinned_log_error, steps=steps, epochs=epochs)
    entries: Array = minimize(
        objective,
        start[rows, columns],
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(least, np.inf),
        options={"maxiter": 20_000, "maxfun": 40_000, "maxcor": 20, "ftol": 0.0, "gtol": 1e-10},
    ).x
    entries = _scaled(_filled(entries, steps), epochs)[rows, columns]
    try:
        entries = minimise(objective, entries, subject, non_negative=True)
    except OptimisationError:
        raise failed from None
    if not entries[rows == columns].min() > LEAST_DIAGONAL:
        raise failed
    return _scaled(_filled(entries, steps), epochs)


def _filled(entries: Array, steps: int) -> Array:
    matrix = np.zeros((steps, steps))
    matrix[np.tril_indices(steps)] = entries
    return matrix


def _scaled(matrix: Array, epochs: int) -> Array:
    """The columns of each bin divided by the norm of their sum."""
    sums = matrix.reshape(matrix.shape[0], epochs, -1).sum(axis=1)
    scaled: Array = matrix / np.tile(np.linalg.norm(sums, axis=0), epochs)
    return scaled


def pinned_log_error(entries: Array, steps: int, epochs: int) -> tuple[float, Array]:
    """:func:`log_error` in the entries, plus half the mean of ``log^2 |m_i|^2`` over the bins.

    The error does not depend on the scales of the bins; the second term keeps them at 1, so that the second derivative
    is definite.
    """
    matrix = _filled(entries, steps)
    tick()
    value, gradient = log_error(matrix, epochs)
    sums = matrix.reshape(steps, epochs, -1).sum(axis=1)
    squares = (sums**2).sum(axis=0)
    logarithms = np.log(squares)
    gradient += np.tile(2.0 * sums * (logarithms / squares / squares.size), epochs)
    return value + 0.5 * float((logarithms**2).mean()), gradient[np.tril_indices(steps)]


def log_error(matrix: Array, epochs: int) -> tuple[float, Array]:
    """The logarithm of the mean squared error of prefix sums, and its gradient in C, for C after scaling by bins.

    Scaling divides the columns of bin i by ``|m_i|``, ``m_i = sum_j C[:, i + j b]``, so the error is
    ``E = |A D C^{-1}|^2 / steps`` with ``D = diag(|m_1|, ..., |m_b|, |m_1|, ...)``. With ``B = A D C^{-1}`` and
    ``P = A^T B``, ``dE/dC = -2 C^{-T} D P C^{-T}`` from the inverse, and ``dE/dD_tt = 2 sum_s P[t, s] C^{-1}[t, s]``
    moves the columns of a bin along m_i. O(steps^3). Only the lower triangle of the gradient has a meaning.
    """
    steps = matrix.shape[0]
    inverse = dtrtri(matrix, lower=1)[0]
    sums = matrix.reshape(steps, epochs, -1).sum(axis=1)
    norms = np.linalg.norm(sums, axis=0)
    scales = np.tile(norms, epochs)
    queries = np.cumsum(scales[:, None] * inverse, axis=0)
    total = float(np.sum(queries**2))
    adjoint = np.cumsum(queries[::-1], axis=0)[::-1]
    by_scale = np.sum(adjoint * inverse, axis=1).reshape(epochs, -1).sum(axis=0)
    through_inverse = dtrmm(1.0, inverse, scales[:, None] * adjoint, lower=1, trans_a=1)
    gradient = -dtrmm(1.0, inverse, through_inverse, lower=1, trans_a=1, side=1)
    gradient += np.tile(sums * (by_scale / norms), epochs)
    return float(np.log(total / steps)), (2.0 / total) * gradient
