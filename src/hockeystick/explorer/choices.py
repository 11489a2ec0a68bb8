"""What the page offers: samplers and strategies, their fields, and which of them are analysed together."""

from functools import cache
from typing import Any

from hockeystick.pairs.registry import registered
from hockeystick.samplers import SAMPLER_OPTIONS
from hockeystick.spec import Spec
from hockeystick.strategies import STRATEGIES

LEFT_OUT = ("custom",)
"""Strategies in files, which the explorer does not open."""


@cache
def choices() -> dict[str, Any]:
    """Samplers and strategies by kind, each with its fields; a sampler names the strategies that go with it."""
    strategies = {kind: one for kind, one in STRATEGIES.items() if kind not in LEFT_OUT}
    return {
        "samplers": {
            kind: {
                "fields": _fields(options),
                "strategies": [one for one in strategies if registered(one, kind) is not None],
            }
            for kind, options in SAMPLER_OPTIONS.items()
        },
        "strategies": {kind: {"fields": _fields(one)} for kind, one in strategies.items()},
    }


def _fields(spec: type[Spec]) -> list[dict[str, Any]]:
    """Name, type and choices of every field but ``kind`` and tables, and whether it has to be given."""
    schema = spec.model_json_schema()
    found = []
    for name, field in schema["properties"].items():
        if name == "kind":
            continue
        options = [one for one in field.get("anyOf", [field]) if one.get("type") != "null"]
        one = options[0] if options else field
        if "$ref" in one:  # a table of numbers, such as those of a matrix that a certificate holds: nothing to type
            continue
        found.append(
            {
                "name": name,
                "type": one.get("type", "string"),
                "choices": one.get("enum"),
                "default": field.get("default"),
                "required": name in schema.get("required", ()),
            }
        )
    return found
