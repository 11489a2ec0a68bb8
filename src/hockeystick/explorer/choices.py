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
    strategies = {kind: strategy for kind, strategy in STRATEGIES.items() if kind not in LEFT_OUT}
    return {
        "samplers": {
            kind: {
                "fields": _fields(options),
                "strategies": [strategy for strategy in strategies if registered(strategy, kind) is not None],
            }
            for kind, options in SAMPLER_OPTIONS.items()
        },
        "strategies": {kind: {"fields": _fields(strategy)} for kind, strategy in strategies.items()},
    }


def _fields(spec: type[Spec]) -> list[dict[str, Any]]:
    """Name, type and choices of every field but ``kind`` and tables, and whether it has to be given."""
    schema = spec.model_json_schema()
    fields = []
    for name, field in schema["properties"].items():
        if name == "kind":
            continue
        options = [option for option in field.get("anyOf", [field]) if option.get("type") != "null"]
        option = options[0] if options else field
        if "$ref" in option:  # a table of numbers, such as those of a matrix that a certificate holds: nothing to type
            continue
        fields.append(
            {
                "name": name,
                "type": option.get("type", "string"),
                "choices": option.get("enum"),
                "default": field.get("default"),
                "required": name in schema.get("required", ()),
            }
        )
    return fields
