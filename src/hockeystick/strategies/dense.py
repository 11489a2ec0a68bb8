"""The optimal matrix for prefix sums, without any structure."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.spec import Count
from hockeystick.strategies.matrix.base import Array, StrategyMatrix
from hockeystick.strategies.optimised import OptimisedSpec, non_negative, of_shape

MOST_STEPS = 2048
"""The most steps in one epoch; they take well under a minute on an idle core."""
MOST_STEPS_OF_EPOCHS = 256
"""The most steps in several epochs; they take well under a minute on an idle core."""


class Dense(OptimisedSpec):
    """Optimised without any structure for the mean squared error of prefix sums, up to 2048 steps.

    One epoch: the optimum, proved by a dual bound; all columns have norm 1. Several epochs, with participations
    ``steps / epochs`` steps apart and at most 256 steps: a local minimum over non-negative matrices; the sums of the
    columns of one participant have equal norms for all participants. Maximum column norm 1.

    >>> round(Dense().matrix(8).max_column_norm, 3)
    1.0

    Fields:
        epochs: k, divides the number of steps.

    Reference: Denisov, McMahan, Rush, Smith and Thakurta (2022), "Improved differential privacy for SGD via optimal
    private linear operators on adaptive streams"; Choquette-Choo, McMahan, Rush and Thakurta (2023), "Multi-epoch
    matrix factorization mechanisms for private machine learning".
    """

    table: ClassVar[str | None] = "entries"
    kind: Literal["dense"] = "dense"
    epochs: Count = 1

    def check(self, steps: int) -> None:
        """Refuse epochs that do not divide the steps, and more steps than the optimiser can handle."""
        if steps % self.epochs != 0:
            raise InvalidInputError(
                f"The 'strategy.epochs' field must divide the {steps} steps. Got {self.epochs} instead."
            )
        most = MOST_STEPS if self.epochs == 1 else MOST_STEPS_OF_EPOCHS
        if steps > most:
            raise InvalidInputError(
                f"The 'strategy.kind' field may be 'dense' for at most {most} steps with 'strategy.epochs' "
                f"{self.epochs}. Got {steps} steps instead."
            )

    def rebuilt(self, numbers: Mapping[str, Array], steps: int) -> StrategyMatrix:
        """The matrix with these entries, at its own scale."""
        from hockeystick.strategies.matrix.dense import DenseMatrix

        entries = of_shape(numbers["entries"], (steps, steps), "entries")
        non_negative(entries, entries.diagonal(), "entries")
        if np.triu(entries, 1).any():
            raise InvalidInputError("The 'strategy.held' field must have entries that are zero above the diagonal.")
        return DenseMatrix(entries)

    def optimum(self, steps: int) -> StrategyMatrix:
        """The optimised matrix. Raises OptimisationError when the optimiser fails."""
        from hockeystick.strategies.matrix.dense import DenseMatrix
        from hockeystick.strategies.optimise.dense import optimal_matrix, optimal_matrix_for_epochs

        if self.epochs == 1:
            return DenseMatrix(optimal_matrix(steps))
        matrix = optimal_matrix_for_epochs(steps, self.epochs)
        return DenseMatrix(matrix / np.linalg.norm(matrix, axis=0).max())
