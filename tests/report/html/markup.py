"""Documents of a stranger: every string in them is markup."""

from typing import Any, Literal, get_origin

from pydantic import BaseModel

_ELEMENTS = '<script>hacked=1</script>"><img src=x onerror=hacked=1></script></table>{{7*7}}{% raw %}&lt;'
MARKUP = f"{_ELEMENTS}\u2028\u202e\x1b[31m"
SHOWN = f"{_ELEMENTS}\\u2028\\u202e\\x1b[31m"
"""How a reader has to see it."""


def poisoned(value: Any) -> Any:
    """A description with markup in place of all its strings, those included whose pattern no file can break.

    The names that select a class are left: there is nothing to say without them.
    """
    if isinstance(value, BaseModel):
        fields = {name: field.annotation for name, field in type(value).model_fields.items()}
        changed = [name for name, annotation in fields.items() if get_origin(annotation) is not Literal]
        return value.model_copy(update={name: poisoned(getattr(value, name)) for name in changed})
    if isinstance(value, dict):
        return {poisoned(name): poisoned(inner) for name, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(poisoned(inner) for inner in value)
    return MARKUP if type(value) is str else value
