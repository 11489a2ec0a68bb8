"""Inner products of many vectors, whose bits do not depend on the number of threads."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 1 << 17
"""Multiplications of one matrix product. OpenBLAS leaves less than twice as many to one thread."""
DEEP = 256
"""Longer vectors are cut, so that matrix products are no strips, which take three times as long."""


def inner_products(rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[Any]:
    """``sum_n rows[a, n] columns[b, n]``, shapes (a, n) and (b, n) to (a, b), in whatever order of summation.

    Of real numbers if both are.

    >>> inner_products(np.array([[1.0, 2.0j]]), np.array([[1.0, 1.0], [0.0, 1.0]])).tolist()
    [[(1+2j), 2j]]
    """
    many, length = rows.shape[0], max(rows.shape[1], 1)
    if length > DEEP:
        parts = (slice(first, first + DEEP) for first in range(0, length, DEEP))
        return np.asarray(sum(inner_products(rows[:, part], columns[:, part]) for part in parts))
    kind = np.result_type(rows, columns)
    products = np.zeros((many, columns.shape[0]), dtype=kind)
    # A single row or column would be left to a product with a vector, which more threads may share.
    wide = max(min(columns.shape[0], AT_ONCE // (2 * length)), 2)
    high = max(AT_ONCE // (wide * length), 2)
    for b in range(0, columns.shape[0], wide):
        across = _at_least_two(columns[b : b + wide]).astype(kind, copy=False).T
        for a in range(0, many, high):
            product = _at_least_two(rows[a : a + high]).astype(kind, copy=False) @ across
            products[a : a + high, b : b + wide] = product[: many - a, : columns.shape[0] - b]
    return products


def _at_least_two(vectors: NDArray[Any]) -> NDArray[Any]:
    """The vectors, and zeros beside a single one."""
    return vectors if len(vectors) > 1 else np.vstack([vectors, np.zeros_like(vectors)])
