"""Several examples of one user under Poisson sampling with correlated noise: columns that are repeated."""

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.base import Array, Indices


class RepeatedColumns(StrategyMatrix):
    """``C`` with every column k times in a row: column j is that of step ``j // k``, for one of k examples.

    A sum of columns is ``C x`` with x the number of the examples at each step. Rows are those of C.

    >>> from hockeystick.strategies import Identity
    >>> RepeatedColumns(Identity().matrix(2), 2).materialize().tolist()
    [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]

    Args:
        base: C.
        copies: k >= 1.
    """

    defined_by: ClassVar[tuple[str, ...]] = ()

    def __init__(self, base: StrategyMatrix, copies: int) -> None:
        self.base = base
        self.copies = copies
        self.steps = base.steps * copies

    @cached_property
    def digest(self) -> str:
        """SHA-256 of C's digest and the number of copies."""
        return hashlib.sha256(f"{type(self).__name__} {self.copies} {self.base.digest}".encode()).hexdigest()

    @property
    def rows(self) -> int:
        """The rows of C."""
        return self.base.rows

    @property
    def bands(self) -> int:
        """k times those of C: columns so far apart are of steps that are p apart."""
        return min(self.base.bands * self.copies, self.steps)

    @property
    def rounding(self) -> float:
        """The rounding error of C, and of sums of k equal terms."""
        return self.base.rounding * (1.0 + self.copies)

    def columns(self, which: Indices) -> Array:
        """The columns of these places' steps, shape (rows, m)."""
        return self.base.columns(np.asarray(which) // self.copies)

    def dot(self, x: Array) -> Array:
        """``C`` times the sums over the copies, for x of shape (steps,) or (steps, d)."""
        return self.base.dot(x.reshape(self.base.steps, self.copies, *x.shape[1:]).sum(axis=1))

    def solve(self, z: Array) -> Array:
        """The shortest x with ``C x = z``: the same for all copies of a step."""
        return np.repeat(self.base.solve(z), self.copies, axis=0) / self.copies

    @cached_property
    def column_norms(self) -> Array:
        """The column norms of C, each k times."""
        return np.repeat(self.base.column_norms, self.copies)

    def bin_norms(self, bins: int) -> Array:
        """For one bin k times the norm of the sum of all columns."""
        return self.copies * self.base.bin_norms(1) if bins == 1 else super().bin_norms(bins)


@lru_cache(maxsize=8)
def repeated(matrix: StrategyMatrix, copies: int) -> RepeatedColumns:
    """The same object for the same matrix, so that what accountants keep about it is found again."""
    return RepeatedColumns(matrix, copies)


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatedSubsets(SubsetMixture):
    """A subset mixture in which every step has k coins, one for each example of a user (docs/theory/units.md).

    Attributes:
        attained: whether some data set makes the outputs exactly these; otherwise the run takes part in fewer steps.
    """

    attained: bool = True

    @property
    def coins(self) -> int:
        """k: one for each example."""
        return self.matrix.copies if isinstance(self.matrix, RepeatedColumns) else 1

    @property
    def step_matrix(self) -> StrategyMatrix:
        """C, of which every column stands for all coins of its step."""
        return self.matrix.base if isinstance(self.matrix, RepeatedColumns) else self.matrix

    @property
    def why_not_from_below(self) -> str | None:
        """Why lower bounds on the pair are none on the mechanism, or None."""
        return None if self.attained else "the pair lets the examples take part more often than the run does"
