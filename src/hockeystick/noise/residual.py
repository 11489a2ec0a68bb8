"""Whether floating-point arithmetic can solve for the noise: measured, as a bound would refuse good matrices too."""

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.noise.solver import Reals, StreamingSolver
from hockeystick.strategies.matrix.base import StrategyMatrix

MOST = 1e-3
"""Largest residual of a step, in standard deviations of z."""
COLUMNS = 16
"""Samples of z, from a fixed seed: they show less than a tenth of a residual with a probability below 1e-12."""


def check_residual(matrix: StrategyMatrix, solver: StreamingSolver) -> None:
    """Refuse a matrix for which ``C x`` is not ``z`` for the x that the solver returns.

    The certificate is about noise with ``C x = z``. When C is nearly singular, the x of floating-point arithmetic can
    miss that by many times z. The residual ``C x - z`` is measured in float64 for random z, as the root mean square of
    every step. It is about ``u || |C| |C^{-1}| ||`` for the unit roundoff u of the solver.

    Args:
        solver: of ``matrix``, with rows of ``COLUMNS`` numbers, at its first step. It is used up.

    Raises: InvalidInputError when the residual of a step exceeds ``MOST``, or is no number.
    """
    dtype = solver.solved().dtype
    z = np.random.default_rng(0).standard_normal((matrix.rows, COLUMNS)).astype(dtype)
    x = np.empty((matrix.steps, COLUMNS))

    def fill(rows: Reals, first: int, column: int) -> None:
        rows[...] = z[first : first + len(rows), column : column + rows.shape[1]]

    with np.errstate(over="ignore", invalid="ignore"):
        while solver.step < solver.steps:
            block = solver.advance(fill)
            x[solver.step - len(block) : solver.step] = block
        residual = float(np.sqrt(((matrix.dot(x) - z) ** 2).mean(axis=1)).max())
    if not residual <= MOST:
        other = (
            "a matrix that is further from singular" if dtype == np.float64 else "the type float64 or another matrix"
        )
        raise InvalidInputError(
            f"The strategy's matrix is too close to singular for noise of type {dtype}: C times the noise would be off "
            f"by {residual:.2g} standard deviations, and at most {MOST:g} is allowed; use {other}."
        )
