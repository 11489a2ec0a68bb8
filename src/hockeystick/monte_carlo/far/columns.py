"""The columns of the opportunities, when an example takes part in them, and what follows from both."""

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
from hockeystick.strategies.matrix.causal_columns import causal_columns, is_causal
from hockeystick.types import Side


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

    Raises: ValueError for a matrix that :func:`~hockeystick.strategies.matrix.causal_columns.why_no_columns` refuses.
    """
    return _columns(matrix, groups, sigma, law, Side.UPPER if is_causal(matrix, groups) else side)


@lru_cache(maxsize=4)
def _columns(matrix: StrategyMatrix, groups: int, sigma: float, law: Visits, side: Side) -> Columns:
    columns, couplings = causal_columns(matrix, sigma, side, groups=groups)
    return Columns(columns, couplings, couplings.shape[0], law)
