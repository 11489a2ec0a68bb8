"""Binary trees over the steps: a row for every node, released when its last leaf is."""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hockeystick.strategies.matrix.base import Array, Indices, StrategyMatrix

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


class TreeMatrix(StrategyMatrix):
    """``C[node, i] = 1`` where step i is a leaf below the node, for consecutive binary trees of ``leaves`` steps each.

    Rows stand in the order of their release, and at one step from the leaf upwards. A node whose leaves are not all
    among the ``steps`` is never released and has no row: ``rows > steps`` unless every tree is a single leaf. The left
    inverse is the classical decoder: the prefix sum of the first m steps of a tree is the sum of one node for every
    binary digit 1 of m. Entries are 0 or 1 and exact.

    Args:
        leaves: steps of one tree, a power of two; at least ``steps`` for a single tree.
        steps: n.

    Reference: Dwork, Naor, Pitassi, Rothblum (2010); Chan, Shi, Song (2011).
    """

    defined_by = ("leaves",)

    def __init__(self, leaves: int, steps: int) -> None:
        self.leaves = leaves
        self.steps = steps

    @cached_property
    def first_row(self) -> Indices:
        """The row of the leaf of each step, shape (steps + 1,); the last entry is the number of rows."""
        place = np.arange(self.steps + 1)
        trees, m = np.divmod(place, self.leaves)
        ones = np.array([int(count).bit_count() for count in m], dtype=np.int64)
        return np.asarray(trees * (2 * self.leaves - 1) + 2 * m - ones, dtype=np.int64)

    @property
    def rows(self) -> int:
        return int(self.first_row[-1])

    @property
    def levels(self) -> int:
        """Most nodes above one leaf, the leaf included."""
        return min(self.leaves, self.steps).bit_length()

    @property
    def bands(self) -> int:
        """The leaves of the largest node that is completed: columns that are so many steps apart share no node."""
        return int(2 ** (self.levels - 1))

    @property
    def tree_sizes(self) -> tuple[int, ...]:
        """Whole trees, and of the last one the perfect trees below the nodes that are missing, the largest first."""
        whole, rest = divmod(self.steps, self.leaves)
        digits = [1 << place for place in range(rest.bit_length()) if rest >> place & 1]
        return (self.leaves,) * whole + tuple(reversed(digits))

    def _nodes_above(self, which: Indices) -> tuple[Indices, Indices]:
        """Positions in ``which`` and rows of the nodes above these steps."""
        columns, rows = [], []
        for level in range(self.levels):
            last = which // self.leaves * self.leaves + (which % self.leaves >> level << level) + (1 << level) - 1
            released = np.flatnonzero(last < self.steps)
            columns.append(released)
            rows.append(self.first_row[last[released]] + level)
        return np.concatenate(columns), np.concatenate(rows)

    def columns(self, which: Indices) -> Array:
        entries = np.zeros((self.rows, which.size))
        columns, rows = self._nodes_above(which)
        entries[rows, columns] = 1.0
        return entries

    @cached_property
    def column_norms(self) -> Array:
        """Square roots of the number of nodes above each step."""
        return np.sqrt(np.bincount(self._nodes_above(np.arange(self.steps))[0], minlength=self.steps))

    def _visits(self, bins: int) -> "csr_matrix":
        """How many steps of each bin are leaves below each node, sparse, shape (rows, bins): the means."""
        from scipy.sparse import csr_matrix

        columns, rows = self._nodes_above(np.arange(self.steps))
        return csr_matrix((np.ones(rows.size), (rows, columns % bins)), shape=(self.rows, bins))

    def bin_means(self, bins: int) -> Array:
        """Whole numbers, exact. O(steps log(leaves)) time beside the array."""
        return np.asarray(self._visits(bins).toarray())

    def bin_norms(self, bins: int) -> Array:
        """O(steps log(leaves))."""
        return np.sqrt(np.asarray(self._visits(bins).power(2).sum(axis=0)).ravel())

    def bin_gram(self, bins: int) -> Array:
        """Sums over the nodes that two bins share; whole numbers, exact."""
        visits = self._visits(bins)
        return np.asarray((visits.T @ visits).toarray())

    def dot(self, x: Array) -> Array:
        """``C x``: sums over the leaves of every node. O(rows * d)."""
        sums = np.zeros((self.rows, *x.shape[1:]))
        columns, rows = self._nodes_above(np.arange(self.steps))
        np.add.at(sums, rows, x[columns])
        return sums

    def solve(self, z: Array) -> Array:
        """The left inverse: ``x_m`` is the new node of the prefix's decomposition less those it replaces.

        O(rows * d).
        """
        solved = np.empty((self.steps, *z.shape[1:]))
        live = np.zeros((self.levels + 1, *z.shape[1:]))
        for step in range(self.steps):
            m = step % self.leaves
            level = (~m & (m + 1)).bit_length() - 1  # trailing ones of m: as many nodes are merged
            live[level] = z[self.first_row[step] + level]
            solved[step] = live[level] - live[:level].sum(axis=0)
        return solved
