"""Families that an optimiser finds, and the numbers it found, so that no other machine has to find them again."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from hockeystick.errors import InvalidInputError
from hockeystick.spec import Extended
from hockeystick.strategies import companion
from hockeystick.strategies.base import StrategySpec
from hockeystick.strategies.matrix.base import Array, StrategyMatrix

LARGEST = 4096
"""Numbers that a certificate holds; more of them go into a file of their own."""
EXTREME = 1e50
"""No number is above this and no diagonal entry below its inverse, so that squares neither overflow nor vanish."""

Number = Annotated[float, Field(ge=-EXTREME, le=EXTREME)]


def _tuple(value: object) -> object:
    """A list, as plan files have it, as a tuple."""
    return tuple(value) if isinstance(value, list) else value


Numbers = Annotated[tuple[Number, ...], Field(min_length=1, max_length=LARGEST), BeforeValidator(_tuple)]


class Held(Extended):
    """The numbers that determine C, all their digits.

    Each family has its own; the others are left out.

    >>> Held(coefficients=(1.0, 0.5)).names
    ('coefficients',)

    Attributes:
        coefficients: first column of a banded Toeplitz C, without the zeros below.
        inverse_coefficients: first column of the banded Toeplitz inverse of C, without the zeros below.
        scales, decays, diagonal: first column of a buffered C, ``diagonal (1, c_1, c_2, ...)`` with
            ``c_k = sum_j scales_j decays_j^(k-1)``.
        digest: SHA-256 of a matrix whose numbers are in a file of their own (``StrategyMatrix.digest``).
    """

    LATER: ClassVar[frozenset[str]] = frozenset(
        {"coefficients", "inverse_coefficients", "scales", "decays", "diagonal", "digest"}
    )

    coefficients: Numbers | None = None
    inverse_coefficients: Numbers | None = None
    scales: Numbers | None = None
    decays: Numbers | None = None
    diagonal: Number | None = None
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that are given."""
        return tuple(name for name in type(self).model_fields if getattr(self, name) is not None)


class OptimisedSpec(Extended, StrategySpec):
    """A family that an optimiser finds, whose last digits depend on the machine.

    Certificates, states and evidence are about one matrix. They hold its numbers in ``held``, from which it is built
    again by arithmetic that rounds in the same way on every machine. A matrix that no optimiser found may be held too:
    whatever is claimed is claimed, and computed, for the matrix that is held.

    Fields:
        held: the numbers of C; None until the optimiser has run, and in plans.
    """

    LATER: ClassVar[frozenset[str]] = frozenset({"held"})
    optimised: ClassVar[bool] = True
    holds: ClassVar[tuple[str, ...]] = ()
    """The fields of :class:`Held` that determine C; none where its numbers are always in a file."""
    table: ClassVar[str | None] = None
    """The attribute of the matrix that the file holds; None where there is never a file."""

    held: Held | None = None

    @model_validator(mode="after")
    def _held_numbers_are_those_of_the_family(self) -> Self:
        allowed = [self.holds] if self.holds else []
        allowed += [("digest",)] if self.table is not None else []
        if self.held is not None and self.held.names not in allowed:
            wanted = " or ".join(", ".join(names) for names in allowed)
            raise InvalidInputError(
                f"The 'strategy.held' field of {self.kind!r} must have {wanted}. "
                f"Got {', '.join(self.held.names) or 'nothing'} instead"
            )
        return self

    @abstractmethod
    def optimum(self, steps: int) -> StrategyMatrix:
        """What the optimiser finds for a number of steps that was checked."""

    @abstractmethod
    def rebuilt(self, numbers: Mapping[str, Array], steps: int) -> StrategyMatrix:
        """C from the numbers of :class:`Held`, or from the one array of the file, as they stand.

        Raises: InvalidInputError when these are not numbers of a matrix of this family.
        """

    @property
    def companion(self) -> str | None:
        """The digest of the matrix whose numbers are in a file; None where there is none."""
        return None if self.held is None else self.held.digest

    def unheld(self) -> Self:
        """The same family, parameters as they are, whose matrix is to be found by the optimiser."""
        return self.model_copy(update={"held": None})

    def pinned(self, steps: int | None = None) -> Self:
        """The same strategy; for a number of steps, with the numbers that the optimiser finds where none are held."""
        if steps is None or self.held is not None:
            return self
        matrix = self.matrix(steps)
        numbers: dict[str, Any] = {name: np.asarray(getattr(matrix, name)).tolist() for name in self.holds}
        if not numbers or any(isinstance(value, list) and len(value) > LARGEST for value in numbers.values()):
            return self.model_copy(update={"held": Held(digest=matrix.digest)})
        held = {name: tuple(value) if isinstance(value, list) else value for name, value in numbers.items()}
        return self.model_copy(update={"held": Held.parse(held)})

    def build(self, steps: int) -> StrategyMatrix:
        """C from the held numbers, or by the optimiser where none are held.

        Raises: OptimisationError where the optimiser fails; InvalidInputError for numbers of no such matrix, and for a
            digest whose file is not at hand where the optimiser finds another matrix.
        """
        if self.held is None:
            return self.optimum(steps)
        if self.held.digest is None:
            numbers = {name: np.array(getattr(self.held, name), dtype=np.float64) for name in self.held.names}
            return self.rebuilt(numbers, steps)
        return self._of_digest(self.held.digest, steps)

    def _of_digest(self, digest: str, steps: int) -> StrategyMatrix:
        table = companion.table_of(digest)
        if table is not None:
            assert self.table is not None
            matrix = self.rebuilt({self.table: table}, steps)
            if matrix.digest != digest:
                raise InvalidInputError(
                    f"The 'strategy.held.digest' field must be that of the matrix in its file. Got {digest[:16]}... "
                    f"instead, and the file holds {matrix.digest[:16]}..."
                )
            return matrix
        matrix = self.unheld().matrix(steps)
        if matrix.digest != digest:
            raise InvalidInputError(
                f"The 'strategy.held.digest' field names a matrix whose file is missing, and the optimiser of "
                f"{self.kind!r} finds another matrix on this machine; put the file {companion.file_name(digest)!r} "
                f"beside the certificate again, where it was written."
            )
        return matrix

    def read_from(self, path: str | None) -> Self:
        """The same strategy, with the file of its matrix at ``path``, where the numbers of C are in a file."""
        if path is None or self.companion is None:
            return super().read_from(path)
        companion.remember(self.companion, path)
        return self


def of_shape(numbers: Array, shape: tuple[int, ...], what: str) -> Array:
    """Held numbers of this shape, finite and not too large; raises InvalidInputError, naming ``what`` they are."""
    if numbers.shape != shape:
        raise InvalidInputError(
            f"The 'strategy.held' field must have {what} of shape {shape}. Got shape {numbers.shape} instead."
        )
    if not (np.isfinite(numbers).all() and (np.abs(numbers) <= EXTREME).all()):
        raise InvalidInputError(f"The 'strategy.held' field must have {what} of finite numbers of at most {EXTREME:g}.")
    return numbers


def non_negative(numbers: Array, diagonal: Array, what: str) -> None:
    """Raises InvalidInputError for negative numbers, and for diagonal entries of C that are not clearly positive."""
    if (numbers < 0.0).any():
        raise InvalidInputError(f"The 'strategy.held' field must have {what} without negative numbers.")
    if not (diagonal >= 1.0 / EXTREME).all():
        raise InvalidInputError(
            f"The 'strategy.held' field must have {what} with at least {1.0 / EXTREME:g} everywhere on the diagonal."
        )
