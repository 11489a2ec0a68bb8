"""Lower-triangular matrices with the inner products of given columns."""

import numpy as np

from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF, Array

MAX_ERROR = 1e-6
"""A factor whose inner products are further off, relatively, is refused."""


def causal_factor(gram: Array) -> tuple[Array, float] | None:
    """A non-negative lower-triangular L with ``L^T L`` near a given matrix, and how near it is, proved.

    Every entry of ``L^T L`` is within the relative error of that of ``gram``, zeros included; the error covers the
    rounding of this comparison, not that of ``gram``. None where no such L is found, as where the exact factor has
    negative entries. Which L it is matters to nobody who needs inner products alone.

    Args:
        gram: inner products of columns, in the order of their steps; shape (n, n), symmetric, non-negative.

    O(n^3).
    """
    try:
        exact = np.linalg.cholesky(gram[::-1, ::-1])[::-1, ::-1].T
    except np.linalg.LinAlgError:
        return None
    factor: Array = np.maximum(exact, 0.0)
    product = factor.T @ factor
    positive = gram > 0.0
    if product[~positive].any():
        return None
    off = float((np.abs(product[positive] - gram[positive]) / gram[positive]).max())
    error = off + 4.0 * (gram.shape[0] + 8.0) * UNIT_ROUNDOFF * (1.0 + off)
    return (np.ascontiguousarray(factor), error) if error <= MAX_ERROR else None
