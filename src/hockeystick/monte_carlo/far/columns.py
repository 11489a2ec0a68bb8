"""The columns of the opportunities, or others with their inner products (docs/theory/monte-carlo/many-bands.md).

The profile of a mixture over participations depends on inner products of columns alone, and grows with each of them. So
the columns of any C are replaced by those of a lower-triangular matrix with one row for each opportunity: that of a C
with more rows than steps, and that of a group of cyclic Poisson sampling. What its rounding may add or take is charged
on the side that is asked for.
"""

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.far.kernels import Overlaps
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL
from hockeystick.pairs.visit_kernels import moments
from hockeystick.pairs.visits import Visits
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.strategies.matrix.causal_factor import causal_factor
from hockeystick.types import Side

MAX_ENTRIES = 1 << 22
"""Of the columns, and of their inner products: 32 MB each."""
NO_FACTOR = "the inner products of its columns are those of no lower-triangular matrix without negative entries"


@dataclass(frozen=True, eq=False)
class Columns:
    """What a participation at each opportunity adds to the rows from its own on, and the columns' inner products.

    Attributes:
        columns: in units of sigma, shape (opportunities, rows that a column reaches); a single one where all are the
            same, cut off after the last row.
        couplings: ``<c_u, c_(u+e)>``, 0 where there is no opportunity u + e; shape (opportunities, w).
        steps: rows, as many as opportunities.
        law: when the example takes part.
    """

    columns: Array
    couplings: Array
    steps: int
    law: Visits
    memo: dict[Any, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def overlaps(self) -> Overlaps:
        """The columns and what follows from their inner products, for kernels."""
        return Overlaps(self.columns, self.couplings, np.exp(-self.couplings))

    @cached_property
    def _moments(self) -> tuple[Array, float]:
        return moments(self.couplings, self.law.edges)

    @cached_property
    def mean(self) -> Array:
        """``C E x / sigma``, shape (steps,)."""
        return self._sum(self._moments[0])

    @cached_property
    def row_sums(self) -> Array:
        """What all participations together add to each row."""
        return self._sum(np.full(self.steps, float(self.law.coins)))

    def _sum(self, times: Array) -> Array:
        """The sum of the columns, each so many times."""
        total = np.zeros(self.steps)
        for u, number in enumerate(times.tolist()):
            column = self.columns[min(u, self.columns.shape[0] - 1)]
            rows = total[u:][: column.size]
            rows += number * column[: rows.size]
        return total

    @cached_property
    def moments(self) -> tuple[float, float]:
        """``|C E x|^2 / sigma^2``, and at least ``E |C x|^2 / sigma^2``.

        The second is a sum of positive terms, each with two chances that are wrong by 8 roundings for each opportunity.
        """
        terms = self.couplings.size * self.law.edges.chance.size / self.law.edges.stride + 16.0 * self.steps
        return float(np.square(self.mean).sum()), self._moments[1] * (1.0 + terms * UNIT_ROUNDOFF)

    def largest_exponent(self, copies: float) -> float:
        """At least ``sum_t c_t |y_t|`` for the participations c of an opportunity, ``m_t |y_t|`` for a row's sum m."""
        column, row = self._largest_sums
        return (copies * row + FARTHEST_NORMAL) * max(self.law.coins * column, row)

    @cached_property
    def _largest_couplings(self) -> float:
        """The sum of the largest inner products of every lag."""
        return float(self.couplings.max(axis=0).sum())

    @cached_property
    def _largest_sums(self) -> tuple[float, float]:
        """Of the entries of a column, and of a row."""
        return float(self.columns.sum(axis=1).max()), float(self.row_sums.max())

    def rounding(self, copies: float, slope: float) -> float:
        """First-order bound on the rounding of the loss, and of ``slope`` times each logarithm in a weight."""
        opportunities, window = self.couplings.shape
        terms = float(self.columns.shape[1] + 18)  # entries that are left out count as one rounding, in z and in fields
        exponents = terms * self.largest_exponent(copies)
        fields = (opportunities + terms + window) * self.law.coins * self._largest_couplings
        return float(4.0 * UNIT_ROUNDOFF * (1.0 + slope) * (self.steps * (exponents + 16.0) + opportunities * fields))


def columns_of(matrix: StrategyMatrix, sigma: float, law: Visits, side: Side, *, groups: int = 1) -> Columns:
    """Columns whose profile is that of the sampling, or on this side of it.

    Those of the first group; above also of matrices that are not Toeplitz, with inner products that no group exceeds.

    Raises: ValueError for a matrix that :func:`why_no_columns` refuses.
    """
    asked = Side.UPPER if _is_square(matrix, groups) else side
    columns = _columns(matrix, groups, sigma, law, asked)
    if columns is None:
        raise ValueError(NO_FACTOR)
    return columns


def why_no_columns(matrix: StrategyMatrix, groups: int = 1) -> str | None:
    """Why there are no such columns, or None. O(opportunities^2 steps)."""
    opportunities = -(-matrix.steps // groups)
    if opportunities * max(matrix.bands if groups == 1 else 1, opportunities) > MAX_ENTRIES:
        return f"its columns have more than {MAX_ENTRIES} entries"
    if _is_square(matrix, groups) or all(
        _factor(matrix, groups, every) is not None for every in {False, _groups_differ(matrix, groups)}
    ):
        return None
    return NO_FACTOR


def _is_square(matrix: StrategyMatrix, groups: int) -> bool:
    return groups == 1 and matrix.rows == matrix.steps


def _groups_differ(matrix: StrategyMatrix, groups: int) -> bool:
    return groups > 1 and matrix.toeplitz_column is None


@lru_cache(maxsize=4)
def _columns(matrix: StrategyMatrix, groups: int, sigma: float, law: Visits, side: Side) -> Columns | None:
    if _is_square(matrix, groups):
        steps = np.arange(matrix.steps)
        return _split(matrix.columns(steps) / sigma, matrix.bands, law)
    factored = _factor(matrix, groups, side is Side.UPPER and _groups_differ(matrix, groups))
    if factored is None:
        return None
    factor, error = factored
    scale = 1.0 + error if side is Side.UPPER else 1.0 / (1.0 + error)
    reach = int((np.nonzero(factor)[0] - np.nonzero(factor)[1]).max()) + 1
    return _split(factor * (scale / sigma), reach, law)


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


def _split(whole: Array, reach: int, law: Visits) -> Columns:
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
    return Columns(columns[:1] if same else columns, couplings, opportunities, law)


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
