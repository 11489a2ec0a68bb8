"""The columns of the opportunities, or others with their inner products (docs/theory/monte-carlo/many-bands.md).

The profile of Poisson or cyclic Poisson sampling depends on inner products of columns alone, and grows with each of
them. So the columns of any C are replaced by those of a lower-triangular matrix with one row for each opportunity:
that of a C with more rows than steps, and that of a group. What its rounding may add or take is charged on the side
that is asked for.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from hockeystick.monte_carlo.proposals import Array
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.strategies.matrix.causal_factor import causal_factor
from hockeystick.types import Side

NO_FACTOR = "the inner products of its columns are those of no lower-triangular matrix without negative entries"


@dataclass(frozen=True, eq=False)
class Columns:
    """What each opportunity adds to the rows from its own on, and the inner products of these columns.

    Attributes:
        columns: in units of sigma, shape (opportunities, rows that a column reaches).
        couplings: ``<c_u, c_(u+e)>``, 0 where there is no opportunity u + e; shape (opportunities, w).
        steps: rows, as many as opportunities.
        prob: the chance of every opportunity.
    """

    columns: Array
    couplings: Array
    steps: int
    prob: float

    @cached_property
    def row_sums(self) -> Array:
        """What all opportunities together add to each row."""
        sums = np.zeros(self.steps)
        for u, column in enumerate(self.columns):
            rows = sums[u:][: column.size]
            rows += column[: rows.size]
        return sums

    @cached_property
    def moments(self) -> tuple[float, float]:
        """``|C E x|^2 / sigma^2`` and ``E |C x|^2 / sigma^2``."""
        squared_mean = float(np.square(self.prob * self.row_sums).sum())
        return squared_mean, squared_mean + self.prob * (1.0 - self.prob) * float(self.couplings[:, 0].sum())

    def largest_exponent(self, copies: float) -> float:
        """At least ``sum_t c_t |y_t|`` for every column c, and ``m_t |y_t|`` for the sum m of a row."""
        farthest = copies * float(self.row_sums.max()) + FARTHEST_NORMAL
        return farthest * max(float(self.columns.sum(axis=1).max()), float(self.row_sums.max()))

    def rounding(self, copies: float, slope: float) -> float:
        """First-order bound on the rounding of the loss, and of ``slope`` times each logarithm in a weight."""
        opportunities, window = self.couplings.shape
        terms = float(self.columns.shape[1] + 16)
        exponents = terms * self.largest_exponent(copies)
        fields = (opportunities + terms + window) * float(self.couplings.max(axis=0).sum())
        return float(4.0 * UNIT_ROUNDOFF * (1.0 + slope) * (self.steps * (exponents + 16.0) + opportunities * fields))


def columns_of(pair: SubsetMixture, side: Side) -> Columns:
    """Columns whose profile is that of the pair, or on this side of it.

    Those of the first group; above also of matrices that are not Toeplitz, with inner products that no group exceeds.

    Raises: ValueError for a pair that :func:`why_no_columns` refuses.
    """
    own = _is_square(pair)
    found = _columns(pair.matrix, pair.groups, pair.noise_multiplier, pair.sampling_prob, Side.UPPER if own else side)
    if found is None:
        raise ValueError(NO_FACTOR)
    return found


def why_no_columns(pair: SubsetMixture) -> str | None:
    """Why there are no such columns, or None. O(opportunities^2 steps)."""
    if _is_square(pair) or all(_factor(pair.matrix, pair.groups, every) is not None for every in _groups_read(pair)):
        return None
    return NO_FACTOR


def _is_square(pair: SubsetMixture) -> bool:
    return pair.groups == 1 and pair.matrix.rows == pair.matrix.steps


def _groups_read(pair: SubsetMixture) -> set[bool]:
    return {False, pair.groups > 1 and pair.matrix.toeplitz_column is None}


@lru_cache(maxsize=4)
def _columns(matrix: StrategyMatrix, groups: int, sigma: float, prob: float, side: Side) -> Columns | None:
    if groups == 1 and matrix.rows == matrix.steps:
        steps = np.arange(matrix.steps)
        return _split(matrix.columns(steps) / sigma, matrix.bands, prob)
    found = _factor(matrix, groups, side is Side.UPPER and groups > 1 and matrix.toeplitz_column is None)
    if found is None:
        return None
    factor, error = found
    scale = 1.0 + error if side is Side.UPPER else 1.0 / (1.0 + error)
    reach = int((np.nonzero(factor)[0] - np.nonzero(factor)[1]).max()) + 1
    return _split(factor * (scale / sigma), reach, prob)


@lru_cache(maxsize=2)
def _factor(matrix: StrategyMatrix, groups: int, every_group: bool) -> tuple[Array, float] | None:
    """A causal factor of the first group's inner products, or of the largest ones of any group, and its error."""
    gram = _gram(matrix, groups, 0)
    for group in range(1, min(groups, matrix.steps) if every_group else 1):
        other = _gram(matrix, groups, group)
        np.maximum(gram[: other.shape[0], : other.shape[0]], other, out=gram[: other.shape[0], : other.shape[0]])
    found = causal_factor(gram)
    if found is None:
        return None
    return found[0], found[1] + 4.0 * matrix.rounding + 16.0 * UNIT_ROUNDOFF


def _gram(matrix: StrategyMatrix, groups: int, group: int) -> Array:
    columns = matrix.columns(np.arange(group, matrix.steps, groups))
    found: Array = columns.T @ columns
    return np.maximum(found, found.T)


def _split(whole: Array, reach: int, prob: float) -> Columns:
    """Of a lower-triangular matrix in units of sigma, of so many bands. O(opportunities^2 steps)."""
    opportunities = whole.shape[1]
    gram = whole.T @ whole
    columns, couplings = np.zeros((opportunities, reach)), np.zeros((opportunities, reach))
    for u in range(opportunities):
        own = whole[u:, u][:reach]
        columns[u, : own.size] = own
        couplings[u, : own.size] = gram[u, u : u + reach]
    return Columns(columns, couplings, opportunities, prob)
