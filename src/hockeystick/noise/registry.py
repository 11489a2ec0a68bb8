"""Which solver streams which structure of strategy matrix: one line a structure."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hockeystick.calls import called
from hockeystick.errors import UnsupportedError
from hockeystick.noise.buffers import Buffers
from hockeystick.noise.exact.grid import Grid
from hockeystick.noise.exact.solvers import Feedback, Sums, TreeSums, WholeNumbers
from hockeystick.noise.recent_rows import Coefficients, MovingAverage, Substitution
from hockeystick.noise.residual import COLUMNS, check_residual
from hockeystick.noise.solver import Allocate, Dtype, StreamingSolver, zeros
from hockeystick.noise.tree import TreeAggregation
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.strategies.matrix.base import Array, Indices, StrategyMatrix
from hockeystick.strategies.matrix.buffered import BufferedToeplitzMatrix
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.dyadic import check_dyadic
from hockeystick.strategies.matrix.inverse_toeplitz import InverseToeplitzMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix


@called("hs.noise.streaming_solver(matrix, size=10, dtype=np.float32)")
def streaming_solver(
    matrix: StrategyMatrix, *, size: int, dtype: Dtype, block: int | None = None, allocate: Allocate = zeros
) -> StreamingSolver:
    """A solver for ``x = C^{-1} z`` (the left inverse of a tree) with rows of ``size`` numbers, at its first step.

    Args:
        matrix: C.
        size: d, numbers in a row.
        dtype: float32 or float64.
        block: steps to solve at a time; the structure's own choice when None.
        allocate: makes the arrays that are kept between steps.

    Raises: UnsupportedError where the structure has no streaming solver; InvalidInputError where a matrix of unknown
    origin is too close to singular for the type.
    """
    make = SOLVERS.get(type(matrix))
    if make is None:
        raise UnsupportedError(f"There is no streaming noise for a matrix of type {type(matrix).__name__}.")
    return make(matrix, steps=matrix.steps, size=size, dtype=dtype, block=block, allocate=allocate)


def exact_solver(
    matrix: StrategyMatrix, *, grid: Grid, size: int, block: int | None = None, allocate: Allocate = zeros
) -> WholeNumbers:
    """A solver in whole numbers of grid steps with rows of ``size`` numbers, at its first step.

    Args:
        matrix: C of an exact mechanism.
        grid: of this matrix and its noise multiplier.
        size, block, allocate: as for :func:`streaming_solver`.

    Raises: UnsupportedError where the structure has no such solver; InvalidInputError where entries are not multiples
    of ``2^-24``.
    """
    make = EXACT.get(type(matrix))
    if make is None:
        raise UnsupportedError(f"There is no exact noise for a matrix of type {type(matrix).__name__}.")
    check_dyadic(matrix)
    return make(matrix, steps=matrix.steps, grid=grid, size=size, block=block, allocate=allocate)


def _toeplitz(matrix: ToeplitzMatrix, **options: Any) -> StreamingSolver:
    return Substitution(_of_toeplitz(matrix), bands=matrix.bands, **options)


def _inverse_toeplitz(matrix: InverseToeplitzMatrix, **options: Any) -> StreamingSolver:
    column = matrix.inverse_coefficients
    return MovingAverage(_same_every_step(column), bands=column.size, **options)


def _banded(matrix: BandedMatrix, **options: Any) -> StreamingSolver:
    return Substitution(_of_band(matrix), bands=matrix.bands, **options)


def _buffered(matrix: BufferedToeplitzMatrix, **options: Any) -> StreamingSolver:
    return Buffers(scales=matrix.scales, decays=matrix.decays, diagonal=matrix.diagonal, **options)


def _dense(matrix: DenseMatrix, **options: Any) -> StreamingSolver:
    coefficients = _of_entries(matrix)
    solver = Substitution(coefficients, bands=matrix.bands, **options)
    probe = {"steps": options["steps"], "size": COLUMNS, "dtype": options["dtype"]}
    check_residual(matrix, Substitution(coefficients, bands=matrix.bands, **probe))
    return solver


def _tree(matrix: TreeMatrix, **options: Any) -> StreamingSolver:
    return TreeAggregation(leaves=matrix.leaves, **options)


def _feedback(entries: Callable[[Any], Coefficients]) -> Callable[..., WholeNumbers]:
    return lambda matrix, **options: Feedback(entries(matrix), bands=matrix.bands, **options)


def _sums(matrix: InverseToeplitzMatrix, **options: Any) -> WholeNumbers:
    column = matrix.inverse_coefficients
    return Sums(_same_every_step(column), bands=column.size, **options)


def _tree_sums(matrix: TreeMatrix, **options: Any) -> WholeNumbers:
    return TreeSums(leaves=matrix.leaves, **options)


def _of_toeplitz(matrix: ToeplitzMatrix) -> Coefficients:
    return _same_every_step(matrix.coefficients)


def _of_band(matrix: BandedMatrix) -> Coefficients:
    return _row_by_row(matrix, lambda row, column: matrix.band[column, row - column])


def _of_entries(matrix: DenseMatrix) -> Coefficients:
    return _row_by_row(matrix, lambda row, column: matrix.entries[row, column])


def _row_by_row(matrix: StrategyMatrix, entries: Callable[[Indices, Indices], Array]) -> Coefficients:
    """The coefficients of a matrix whose entries at some rows and columns are given."""

    def coefficients(first: int, count: int) -> Array:
        rows = first + np.arange(count)[:, None]
        columns = rows - np.arange(min(matrix.bands, first + count))
        return np.where(columns >= 0, entries(rows, np.maximum(columns, 0)), 0.0)

    return coefficients


def _same_every_step(column: Array) -> Coefficients:
    def coefficients(first: int, count: int) -> Array:
        return np.tile(column[: first + count], (count, 1))

    return coefficients


SOLVERS: Mapping[type[StrategyMatrix], Callable[..., StreamingSolver]] = {
    BandedMatrix: _banded,
    BufferedToeplitzMatrix: _buffered,
    DenseMatrix: _dense,
    InverseToeplitzMatrix: _inverse_toeplitz,
    ToeplitzMatrix: _toeplitz,
    TreeMatrix: _tree,
}

EXACT: Mapping[type[StrategyMatrix], Callable[..., WholeNumbers]] = {
    BandedMatrix: _feedback(_of_band),
    DenseMatrix: _feedback(_of_entries),
    InverseToeplitzMatrix: _sums,
    ToeplitzMatrix: _feedback(_of_toeplitz),
    TreeMatrix: _tree_sums,
}
"""Those that have one in whole numbers: a sum of decaying powers has no whole numbers to be multiplied by."""
