"""The few words that every layer shares."""

from enum import StrEnum
from typing import TypeVar

from hockeystick.errors import InvalidInputError, shortened

E = TypeVar("E", bound=StrEnum)


class Direction(StrEnum):
    """Which of the two neighbouring datasets the adversary would like to recognise."""

    REMOVE = "remove"
    """P = the output with the example, Q = with the example zeroed out: H(P || Q)."""
    ADD = "add"
    """The same two, swapped: H(Q || P)."""


class Side(StrEnum):
    """Which side of the true privacy profile a bound stays on."""

    UPPER = "upper"
    LOWER = "lower"


class Kind(StrEnum):
    """How a bound was obtained."""

    DETERMINISTIC = "deterministic"
    MONTE_CARLO = "monte_carlo"


class Adjacency(StrEnum):
    """Which datasets count as neighbours."""

    ZERO_OUT = "zero_out"
    """One example is replaced by a ghost whose gradient is zero; sizes and batches stay as they are."""
    ADD_REMOVE = "add_remove"
    """One example is present in one dataset and absent from the other."""
    REPLACE = "replace"
    """One example is replaced by any other."""


def as_side(given: object) -> Side:
    """The Side that is given, itself or by its word, which equals the Side but is another object.

    Raises: InvalidInputError for anything else.
    """
    return given if isinstance(given, Side) else _member(Side, "side", given)


def as_direction(given: object) -> Direction:
    """The Direction that is given, itself or by its word; raises InvalidInputError for anything else."""
    return given if isinstance(given, Direction) else _member(Direction, "direction", given)


def _member(words: type[E], name: str, given: object) -> E:
    for member in words:
        if isinstance(given, str) and given == member:
            return member
    raise InvalidInputError(f"The {name!r} argument must be one of {', '.join(words)}. Got {shortened(given)} instead.")
