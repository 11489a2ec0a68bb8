"""Descriptions whose fields are given by name: what a caller hears who gives a value without one."""

from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from typing import Any, TypeVar, cast, get_args

from pydantic import BaseModel

from hockeystick.errors import InvalidInputError, shortened
from hockeystick.misspelt import not_known

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., None])
MOST = 6
"""Fields and values in a message."""


def named_only(initialise: F) -> F:
    """An ``__init__`` that refuses values without names; raises InvalidInputError, which says the names."""

    @wraps(initialise)
    def checked(self: Any, *unnamed: Any, **values: Any) -> None:
        if unnamed:
            raise InvalidInputError(_without_names(type(self), unnamed))
        initialise(self, **values)

    return cast("F", checked)


def by_name(described: type[T]) -> type[T]:
    """A keyword-only dataclass, whose ``__init__`` raises InvalidInputError where Python's raises TypeError.

    In one sentence, for values without names, for names that it does not have, and for a field that is missing.
    """
    initialise: Callable[..., None] = described.__init__
    needed, others = _fields_of(described)
    known = (*needed, *others)

    @wraps(initialise)
    def checked(self: Any, **values: Any) -> None:
        unknown = [not_known(name, known) for name in values if name not in known]
        if unknown:
            raise InvalidInputError(f"T{'; '.join(unknown)[1:]}.")
        missing = [name for name in needed if name not in values]
        if missing:
            raise InvalidInputError(f"The {missing[0]!r} field is missing and has to be given.")
        initialise(self, **values)

    described.__init__ = named_only(checked)  # type: ignore[method-assign]
    return described


def _without_names(described: type, values: Sequence[object]) -> str:
    """That fields have to be named: those that are needed, or all of a description that needs none."""
    needed, others = _fields_of(described)
    names, name = needed or others, described.__name__
    got = f"{name}({', '.join(map(shortened, values[:MOST]))})"
    if not names:
        return f"There are no fields to give to {name}. Got {got} instead."
    given = [f"{field}=..." for field in names[:MOST]] + ["..."] * (len(names) > MOST)
    hint = f"; {name}.load reads a file" if isinstance(values[0], str) and hasattr(described, "load") else ""
    return f"The fields of {name} must be given by name, as in {name}({', '.join(given)}). Got {got} instead{hint}."


def _fields_of(described: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the fields that have to be given, and of those that may be; not those with one value alone."""
    if issubclass(described, BaseModel):
        given = {
            field.alias or name: field.is_required()
            for name, field in described.model_fields.items()
            if get_args(field.annotation) != (field.default,)  # the kind of a scheme
        }
    else:
        given = {
            field.name: field.default is MISSING and field.default_factory is MISSING
            for field in fields(described)  # type: ignore[arg-type]
            if field.init
        }
    return tuple(name for name in given if given[name]), tuple(name for name in given if not given[name])
