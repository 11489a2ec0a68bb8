"""BLT: a Toeplitz matrix whose noise needs a few buffers, however many steps there are."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from hockeystick.errors import InvalidInputError
from hockeystick.spec import Count
from hockeystick.strategies.matrix.base import Array, StrategyMatrix
from hockeystick.strategies.optimised import OptimisedSpec, non_negative, of_shape

Buffers = Annotated[int, Field(ge=1, le=10)]
"""Ten buffers reach the error of the best Toeplitz matrix to six digits."""


class BufferedToeplitz(OptimisedSpec):
    """BLT: optimised for prefix sums; noise needs ``buffers`` vectors of state. Maximum column norm 1.

    >>> round(BufferedToeplitz(buffers=1).matrix(8).max_column_norm, 3)
    1.0

    Fields:
        buffers: d, from 1 to 10 and at most the number of steps. Three or four serve ten thousand steps.
        objective: what is minimised, times the squared sensitivity: "max", the squared error of the last prefix sum,
            which is the largest, or "mean", the average over all prefix sums.
        min_sep: optimise for as many participations as fit, at least this many steps apart; None for a single one.

    Optimising takes O(steps * buffers) time for each of some hundred evaluations.

    Reference: Dvijotham, McMahan, Pillutla, Steinke and Thakurta (2024), "Efficient and near-optimal noise generation
    for streaming differential privacy"; McMahan, Xu and Zhang (2024), "A hassle-free algorithm for private learning in
    practice", for several participations.
    """

    holds: ClassVar[tuple[str, ...]] = ("scales", "decays", "diagonal")
    kind: Literal["buffered_toeplitz"] = "buffered_toeplitz"
    buffers: Buffers
    objective: Literal["max", "mean"] = "max"
    min_sep: Count | None = None

    def check(self, steps: int) -> None:
        if self.buffers > steps:
            raise InvalidInputError(
                f"The 'strategy.buffers' field must be at most the {steps} steps. Got {self.buffers} instead."
            )

    def rebuilt(self, numbers: Mapping[str, Array], steps: int) -> StrategyMatrix:
        """The matrix with these buffers, at its own scale."""
        from hockeystick.strategies.matrix.buffered import BufferedToeplitzMatrix

        scales = of_shape(numbers["scales"], (self.buffers,), "scales")
        decays = of_shape(numbers["decays"], (self.buffers,), "decays")
        diagonal = of_shape(numbers["diagonal"], (), "a diagonal")
        non_negative(scales, diagonal, "scales")
        if not ((decays >= 0.0) & (decays <= 1.0)).all():
            raise InvalidInputError("The 'strategy.held' field must have decays from 0 to 1.")
        return BufferedToeplitzMatrix(scales, decays, steps, diagonal=float(diagonal))

    def optimum(self, steps: int) -> StrategyMatrix:
        """The optimised matrix. Raises OptimisationError when the optimiser fails."""
        from hockeystick.strategies.matrix.buffered import BufferedToeplitzMatrix, buffered_column
        from hockeystick.strategies.optimise.buffered import optimal_buffers

        weights = {"max": np.ones(steps), "mean": np.arange(steps, 0.0, -1.0) / steps}[self.objective]
        scales, decays = optimal_buffers(weights, self.min_sep or steps, self.buffers)
        norm = float(np.linalg.norm(buffered_column(scales, decays, steps)))
        return BufferedToeplitzMatrix(scales, decays, steps, diagonal=1.0 / norm)
