"""Configurations of other libraries, which are not imported: objects by their class's name, or tables."""

from collections.abc import Mapping
from typing import Any

from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.mechanism import Mechanism, Unit
from hockeystick.spec import MAX_EXAMPLES, plain, real_number

_MISSING = object()


def kind_of(described: Any) -> str:
    """The class's name of an object, or the ``type`` of a table."""
    if isinstance(described, Mapping):
        return str(described.get("type", ""))
    return type(described).__name__


def read(described: Any, name: str, default: Any = _MISSING) -> Any:
    """A field of an object or of a table; numpy's numbers come as Python's.

    Raises: InvalidInputError when it is missing and there is no default.
    """
    table = isinstance(described, Mapping)
    value = described.get(name, default) if table else getattr(described, name, default)
    if value is _MISSING:
        raise InvalidInputError(f"The {name!r} field of {shortened(described)} is missing and has to be given.")
    return plain(value)


def read_number(described: Any, name: str) -> float:
    """A field that is a number."""
    return real_number(name, read(described, name))


def read_count(described: Any, name: str, default: Any = _MISSING) -> int:
    """A field that is a whole number from 1 to MAX_EXAMPLES."""
    return checked_count(name, read(described, name, default))


def read_name(described: Any, name: str, default: Any = _MISSING) -> str | None:
    """A field that is a member of an enumeration, or the name of one; None where it is None."""
    value = read(described, name, default)
    named = getattr(value, "name", value)
    if named is not None and not isinstance(named, str):
        raise InvalidInputError(f"The {name!r} field must be a name. Got {shortened(value)} instead.")
    return named


def checked_count(name: str, value: object) -> int:
    """The value as a whole number from 1 to MAX_EXAMPLES; raises InvalidInputError for anything else."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_EXAMPLES:
        raise InvalidInputError(
            f"The {name!r} field must be a whole number from 1 to {MAX_EXAMPLES}. Got {shortened(value)} instead."
        )
    return value


def check_unit(mechanism: Mechanism) -> None:
    """Refuse a unit that descriptions of other libraries cannot say: all but one example that is zeroed out."""
    if mechanism.unit != Unit():
        raise UnsupportedError(
            f"The unit of the mechanism must be one example that is zeroed out to be converted. Got "
            f"{mechanism.unit.described}, neighbours = {mechanism.unit.neighbours!r} instead."
        )
