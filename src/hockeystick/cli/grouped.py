"""Options that several commands share, declared once as the fields of a dataclass."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of its parameters that are dataclasses, as typer wants to see it.

    Fields have defaults, and may be dataclasses of options themselves. Names are those of the fields.
    """
    groups = {name: kind for name, kind in get_type_hints(command).items() if is_dataclass(kind)}

    @wraps(command)
    def given(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = _taken(kind, values)
        command(**values)

    hints = get_type_hints(command, include_extras=True)
    options = list(_options(signature(command).parameters.values(), hints))
    given.__signature__ = Signature(options)  # type: ignore[attr-defined]
    given.__annotations__ = {option.name: option.annotation for option in options}
    return given


def _options(parameters: Any, hints: dict[str, Any]) -> Iterator[Parameter]:
    """What stands for parameters or fields, in their order."""
    for each in parameters:
        kind = hints[each.name]
        if is_dataclass(kind):
            yield from _options(fields(kind), get_type_hints(kind, include_extras=True))
        else:
            yield Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=kind)


def _taken(kind: Any, values: dict[str, Any]) -> Any:
    """The dataclass of the values of its fields, which are taken out of all of them."""
    hints = get_type_hints(kind)
    return kind(
        **{
            field.name: _taken(hints[field.name], values) if is_dataclass(hints[field.name]) else values.pop(field.name)
            for field in fields(kind)
        }
    )
