"""Reading configurations of other libraries without importing them: objects by their class's name, or tables."""

from collections.abc import Mapping
from typing import Any

from hockeystick.errors import InvalidInputError, shortened
from hockeystick.spec import plain, real_number

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


def read_count(described: Any, name: str) -> int:
    """A field that is a whole number from 1 on."""
    return checked_count(name, read(described, name))


def checked_count(name: str, value: object) -> int:
    """The value as a whole number from 1 on; raises InvalidInputError for anything else."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInputError(f"The {name!r} field must be a whole number from 1 on. Got {shortened(value)} instead.")
    return value
