"""The interface of strategy matrices, whatever their structure."""

import hashlib
from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hockeystick.errors import UnsupportedError

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

UNIT_ROUNDOFF = 2.0**-53
BLOCK = 256
"""Columns that are worked on at a time where all of them would not fit in memory."""


class StrategyMatrix(ABC):
    """C of the mechanism ``C x + z``: entrywise non-negative, shape (rows, steps), causal, with a left inverse.

    Causal: a row is released after a step and depends on no later column. Square matrices are lower triangular; the
    trees have more rows than steps.

    Attributes:
        steps: n, columns of C.

    Rounding: C *is* the matrix of doubles that these methods compute with. A method that computes an entry in
    several operations keeps it within the relative error ``rounding``, as no two terms of different sign are added.
    """

    steps: int
    defined_by: ClassVar[tuple[str, ...]]
    """Names of the attributes that, with the number of steps, determine every entry."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the structure and of all the doubles that determine C: the same for the same matrix only."""
        content = hashlib.sha256(f"{type(self).__name__} {self.steps}".encode())
        for name in self.defined_by:
            numbers = np.ascontiguousarray(getattr(self, name), dtype="<f8")
            content.update(f" {name} {numbers.shape} ".encode())
            content.update(numbers.tobytes())
        return content.hexdigest()

    @property
    def table(self) -> Array:
        """The one array that, with the number of steps, determines every entry.

        Raises: UnsupportedError for a structure that several arrays determine.
        """
        if len(self.defined_by) != 1:
            raise UnsupportedError(f"No single array determines a {type(self).__name__}.")
        table: Array = getattr(self, self.defined_by[0])
        return table

    @property
    def rows(self) -> int:
        """Rows of C, equal to ``steps`` unless the family says otherwise."""
        return self.steps

    @property
    @abstractmethod
    def bands(self) -> int:
        """p: columns that are p or more steps apart are orthogonal (``steps`` for a full matrix).

        For a square matrix: an entry C[t, i] is zero unless ``i <= t < i + p``.
        """

    @property
    def toeplitz_column(self) -> Array | None:
        """The first column when every other one is it, moved down; None for any other structure."""
        return None

    @property
    def tree_sizes(self) -> tuple[int, ...] | None:
        """The leaves of consecutive perfect binary trees whose nodes are the rows; None for any other structure.

        A step is a leaf, and an entry is 1 where it is below the node, else 0. The order of the rows is not said.
        """
        return None

    @property
    def rounding(self) -> float:
        """Proved relative error of an entry, a mean or an inner product that these methods return."""
        return (4.0 * self.rows + 64.0) * UNIT_ROUNDOFF

    @abstractmethod
    def columns(self, which: Indices) -> Array:
        """The columns ``which`` (shape (m,)) as an array of shape (rows, m)."""

    @abstractmethod
    def dot(self, x: Array) -> Array:
        """``C x`` for x of shape (steps,) or (steps, d)."""

    @abstractmethod
    def solve(self, z: Array) -> Array:
        """``C^{-1} z`` for z of shape (rows,) or (rows, d): the x with ``C x = z``, or the left inverse's."""

    def materialize(self) -> Array:
        """C as an array of shape (rows, steps), for tests and small sizes."""
        return self.columns(np.arange(self.steps))

    @cached_property
    def column_norms(self) -> Array:
        """l2 norms of the columns, shape (steps,). O(rows * steps) time, O(rows) memory unless overridden."""
        norms = np.empty(self.steps)
        for first in range(0, self.steps, BLOCK):
            which = np.arange(first, min(first + BLOCK, self.steps))
            norms[which] = np.sqrt(np.einsum("ti,ti->i", *(2 * (self.columns(which),))))
        return norms

    @property
    def diagonal_entries(self) -> Array:
        """The entries C[t, t] of a square matrix, shape (steps,). O(rows * steps) time unless overridden."""
        entries = np.empty(self.steps)
        for first in range(0, self.steps, BLOCK):
            which = np.arange(first, min(first + BLOCK, self.steps))
            entries[which] = self.columns(which)[which, which - first]
        return entries

    @property
    def max_column_norm(self) -> float:
        """Largest l2 norm of a column: the sensitivity of one participation, in clipping norms."""
        return float(self.column_norms.max())

    def bin_means(self, bins: int) -> Array:
        """``m_i = sum_j C[:, i + j bins]`` for every bin i, shape (rows, bins); ``bins`` divides ``steps``.

        O(rows * steps) time and O(rows * bins) memory unless overridden.
        """
        means = np.zeros((self.rows, bins))
        for first in range(0, self.steps, bins):
            for start in range(0, bins, BLOCK):
                stop = min(start + BLOCK, bins)
                means[:, start:stop] += self.columns(np.arange(first + start, first + stop))
        return means

    def bin_norms(self, bins: int) -> Array:
        """l2 norms of the means of all bins, shape (bins,). O(rows * steps) time, O(rows) memory unless overridden."""
        norms = np.empty(bins)
        for first in range(0, bins, BLOCK):
            which = np.arange(first, min(first + BLOCK, bins))
            means = np.zeros((self.rows, which.size))
            for epoch in range(0, self.steps, bins):
                means += self.columns(which + epoch)
            norms[which] = np.sqrt(np.einsum("ti,ti->i", means, means))
        return norms

    def bin_gram(self, bins: int) -> Array:
        """``G_ij = <m_i, m_j>``, shape (bins, bins), symmetric. O(rows * bins^2) time unless overridden."""
        means = self.bin_means(bins)
        gram: Array = means.T @ means
        return np.maximum(gram, gram.T)

    def query_errors(self, workload: Array) -> Array:
        """Squared l2 norms of the rows of ``A C^{-1}``, shape (steps,), at noise multiplier 1.

        Args:
            workload: shape (steps,), first column of the lower-triangular Toeplitz matrix A.

        O(steps^2 * bands) time, O(rows * BLOCK) memory unless overridden.
        """
        from scipy.signal import oaconvolve

        errors = np.zeros(self.steps)
        for first in range(0, self.rows, BLOCK):
            unit = np.zeros((self.rows, min(BLOCK, self.rows - first)))
            unit[first + np.arange(unit.shape[1]), np.arange(unit.shape[1])] = 1.0
            noise = self.solve(unit)
            queries = oaconvolve(noise, workload[:, None], axes=0)[: self.steps]
            errors += np.einsum("ti,ti->t", queries, queries)
        return errors
