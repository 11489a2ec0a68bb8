"""The base class of the families of strategy matrices."""

from abc import abstractmethod
from functools import lru_cache
from typing import ClassVar, Self

from hockeystick.errors import InvalidInputError
from hockeystick.spec import Count, Spec
from hockeystick.strategies.matrix.base import StrategyMatrix


class StrategySpec(Spec):
    """The matrix C of the mechanism ``C x + z``: lower triangular, entrywise non-negative, public.

    Gradients receive the rows of ``C^{-1} z``. A family is one final class in one file. Its fields and the number of
    steps determine C, which :meth:`matrix` returns.
    """

    kind: str
    """The name of the family in plans and certificates."""

    most_steps: ClassVar[int] = 10_000_000
    """The most steps for which the arrays that describe C fit into memory."""

    optimised: ClassVar[bool] = False
    """Whether C is found by an optimiser, whose last digits may differ on another machine."""

    def check(self, steps: int) -> None:
        """Raise InvalidInputError, naming the field, when there is no such matrix for this number of steps."""
        return

    def check_all(self, steps: int) -> None:
        """:meth:`check`, and that the matrix fits in memory."""
        if steps > self.most_steps:
            raise InvalidInputError(
                f"The 'strategy.kind' field can be {self.kind!r} for at most {self.most_steps} steps. "
                f"Got {steps} instead."
            )
        self.check(steps)

    def noise_requirement(self, noise_multiplier: float, *, exact: bool = False) -> str:
        """One sentence: what noise the run has to add."""
        if exact:
            return (
                f"Round the gradient of every example, clipped to a fixed norm, to whole numbers of grid steps whose "
                f"norm is at most that norm, sum these over the batch, and add to the sum of step t, also for empty "
                f"batches, the whole numbers of row t of the exact noise of this mechanism, whose z has the standard "
                f"deviation {noise_multiplier!r} in clipping norms."
            )
        return (
            f"Clip the gradient of every example to a fixed norm, sum over the batch, and add to the sum of step t, "
            f"also for empty batches, row t of C^-1 z times that norm, where C is the matrix of this mechanism "
            f"and all entries of z are independent Gaussians of standard deviation {noise_multiplier!r}."
        )

    def check_file(self, steps: int) -> None:
        """Refuse a file that holds no matrix for these steps, before anything that takes long; of others, nothing."""

    def pinned(self, steps: int | None = None) -> Self:
        """The same strategy with everything that determines it: a file is identified by its digest.

        Args:
            steps: where given, the numbers of a matrix that an optimiser finds for this many steps are held too.
        """
        return self

    @property
    def companion(self) -> str | None:
        """The digest of the matrix, where its numbers are in a file beside the claim; None for any other strategy."""
        return None

    def unheld(self) -> Self:
        """The same strategy without the numbers of a matrix that an optimiser found."""
        return self

    def read_from(self, path: str | None) -> Self:
        """The same strategy with its file at ``path``: for a certificate from elsewhere, whose own path is not opened.

        Raises: InvalidInputError when a file is needed and not given, or given and not needed.
        """
        if path is not None:
            raise InvalidInputError(f"The '--matrix' option does not apply: the strategy {self.kind!r} reads no file.")
        return self

    @abstractmethod
    def build(self, steps: int) -> StrategyMatrix:
        """C for a number of steps that was checked. May run an optimiser."""

    def matrix(self, steps: int, *, exact: bool = False) -> StrategyMatrix:
        """C for this number of steps; built once and kept.

        Args:
            exact: the C of exact noise, whose entries, or those of its inverse, are multiples of ``2^-24``.

        Raises: InvalidInputError when there is no such matrix; OptimisationError where an optimiser fails;
        UnsupportedError where rounding its entries destroys the structure.
        """
        self.check_all(steps)
        if not exact:
            return _built(self, steps)
        from hockeystick.strategies.matrix.dyadic import dyadic

        return dyadic(_built(self, steps))


class BandedSpec(StrategySpec):
    """A family with ``bands`` diagonals in C or in its inverse: at least 1 and at most the number of steps."""

    bands: Count

    def check(self, steps: int) -> None:
        """Refuse more bands than steps."""
        if self.bands > steps:
            raise InvalidInputError(
                f"The 'strategy.bands' field must be at most the {steps} steps. Got {self.bands} instead."
            )


@lru_cache(maxsize=16)
def _built(strategy: StrategySpec, steps: int) -> StrategyMatrix:
    return strategy.build(steps)
