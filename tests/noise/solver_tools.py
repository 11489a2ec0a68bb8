"""Streaming solvers one step at a time, and as a whole matrix."""

import numpy as np

from hockeystick.noise import StreamingSolver
from hockeystick.noise.solver import Reals


def left_inverse(solver: StreamingSolver, rows: int) -> Reals:
    """What a new solver of size ``rows`` multiplies by, shape (steps, rows), from unit vectors."""

    def unit_rows(out: Reals, row: int, column: int) -> None:
        out[...] = np.eye(len(out), rows, row)[:, column : column + out.shape[1]]

    solved: list[Reals] = []
    while solver.step < solver.steps:
        solved += [row.copy() for row in solver.advance(unit_rows)]
    return np.array(solved, dtype=np.float64)


def push(solver: StreamingSolver, z: Reals, start: int) -> Reals:
    """The row of x of the next step, for blocks of one, given its rows of z, the first of number ``start``."""
    rows = np.atleast_2d(z)

    def fill(out: Reals, row: int, column: int) -> None:
        out[...] = rows[row - start : row - start + len(out), column : column + out.shape[1]]

    row: Reals = solver.advance(fill)[0].copy()
    return row
