"""Columns that have the inner products of any strategy matrix (docs/theory/monte-carlo/many-bands.md).

The profile of a mixture over participations depends on inner products of columns alone, and grows with each of them. So
the columns of any C are replaced by those of a lower-triangular matrix with one row for each opportunity: that of a C
with more rows than steps, and that of a group of cyclic Poisson sampling. What its rounding may add or take is charged
on the side that is asked for.
"""

from functools import lru_cache

import numpy as np

from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF, Array, StrategyMatrix
from hockeystick.strategies.matrix.causal_factor import causal_factor
from hockeystick.types import Side

MAX_ENTRIES = 1 << 22
"""Of the columns, and of their inner products: 32 MB each."""
NO_FACTOR = "the inner products of its columns are those of no lower-triangular matrix without negative entries"


def causal_columns(matrix: StrategyMatrix, sigma: float, side: Side, *, groups: int = 1) -> tuple[Array, Array]:
    """The columns of the opportunities of the first of some groups of steps, and their inner products.

    Above also of matrices that are not Toeplitz, with inner products that no group exceeds.

    Returns: what a participation adds to the rows from its own on, in units of sigma, shape (opportunities, rows that a
        column reaches), a single one where all are the same, cut off after the last row; and ``<c_u, c_(u+e)>``, 0 if
        no opportunity is u + e, shape (opportunities, w). Both are on this side of the truth, but for the rounding that
        the entries of a square C have.

    Raises: ValueError for a matrix that :func:`why_no_columns` refuses.
    """
    if is_causal(matrix, groups):
        return _split(matrix.columns(np.arange(matrix.steps)) / sigma, matrix.bands)
    factored = _factor(matrix, groups, side is Side.UPPER and _groups_differ(matrix, groups))
    if factored is None:
        raise ValueError(NO_FACTOR)
    factor, error = factored
    scale = 1.0 + error if side is Side.UPPER else 1.0 / (1.0 + error)
    reach = int((np.nonzero(factor)[0] - np.nonzero(factor)[1]).max()) + 1
    return _split(factor * (scale / sigma), reach)


def why_no_columns(matrix: StrategyMatrix, groups: int = 1) -> str | None:
    """Why there are no such columns, or None. O(opportunities^2 steps)."""
    opportunities = -(-matrix.steps // groups)
    if opportunities * max(matrix.bands if groups == 1 else 1, opportunities) > MAX_ENTRIES:
        return f"its columns have more than {MAX_ENTRIES} entries"
    if is_causal(matrix, groups) or all(
        _factor(matrix, groups, every) is not None for every in {False, _groups_differ(matrix, groups)}
    ):
        return None
    return NO_FACTOR


def is_causal(matrix: StrategyMatrix, groups: int) -> bool:
    """Whether the columns are those of C itself, on either side."""
    return groups == 1 and matrix.rows == matrix.steps


def _groups_differ(matrix: StrategyMatrix, groups: int) -> bool:
    return groups > 1 and matrix.toeplitz_column is None


@lru_cache(maxsize=2)
def _factor(matrix: StrategyMatrix, groups: int, every_group: bool) -> tuple[Array, float] | None:
    """A causal factor of the first group's inner products, or of the largest ones of any group, and its error."""
    gram = _gram(matrix, groups, 0)
    for group in range(1, min(groups, matrix.steps) if every_group else 1):
        other = _gram(matrix, groups, group)
        np.maximum(gram[: other.shape[0], : other.shape[0]], other, out=gram[: other.shape[0], : other.shape[0]])
    factored = causal_factor(gram)
    if factored is None:
        return None
    return factored[0], factored[1] + 4.0 * matrix.rounding + 16.0 * UNIT_ROUNDOFF


def _gram(matrix: StrategyMatrix, groups: int, group: int) -> Array:
    columns = matrix.columns(np.arange(group, matrix.steps, groups))
    gram: Array = columns.T @ columns
    return np.maximum(gram, gram.T)


def _split(whole: Array, reach: int) -> tuple[Array, Array]:
    """Of a lower-triangular matrix in units of sigma, of so many bands. O(opportunities^2 steps).

    Entries so far below the diagonal that they are no more than rounding, of the sums of their columns and rows, are
    left out.
    """
    opportunities = whole.shape[1]
    reach = _reach(whole, reach)
    gram = whole.T @ whole
    columns, couplings = np.zeros((opportunities, reach)), np.zeros((opportunities, reach))
    for u in range(opportunities):
        own = whole[u:, u][:reach]
        columns[u, : own.size] = own
        couplings[u, : own.size] = gram[u, u : u + reach]
    lengths = opportunities - np.arange(opportunities)
    same = all((own[:size] == columns[0, :size]).all() for own, size in zip(columns, lengths.tolist(), strict=True))
    return columns[:1] if same else columns, couplings


def _reach(whole: Array, bands: int) -> int:
    """The rows that a column reaches, where what comes later sums to less than rounding. O(opportunities^2)."""
    size = whole.shape[0]
    least = 0.25 * UNIT_ROUNDOFF * min(float(whole.sum(axis=0).max()), float(whole.sum(axis=1).max()))
    below, left, columns, rows = bands, 0.0, np.zeros(size), np.zeros(size)
    while below > 1:
        diagonal = np.diagonal(whole, 1 - below)
        columns[: diagonal.size] += diagonal
        rows[below - 1 :] += diagonal
        left = max(float(columns.max()), float(rows.max()))
        if left > least:
            break
        below -= 1
    return below
