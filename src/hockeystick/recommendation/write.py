"""A plan as a file, ready to calibrate and to train."""

import json as json_module
from typing import Any

from hockeystick.plan import Plan


def plan_text(plan: Plan, *, json: bool = False) -> str:
    """The plan in TOML, or in JSON; :meth:`Plan.load` reads the same plan from it.

    >>> plan = Plan.parse({"data": {"num_examples": 9, "batch_size": 3, "steps": 2}, "sampler": {"kind": "poisson"}})
    >>> print(plan_text(plan).splitlines()[0])
    [data]
    """
    values: dict[str, Any] = plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    values = {name: value for name, value in values.items() if value != {}}
    if json:
        return json_module.dumps(values, indent=2) + "\n"
    lines = [f"{name} = {_value(value)}" for name, value in values.items() if not isinstance(value, dict)]
    for name, table in values.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(f"{field} = {_value(value)}" for field, value in table.items())]
    return "\n".join(lines).lstrip("\n") + "\n"


def _value(value: object) -> str:
    """A string, number or truth value; JSON writes these as TOML does, once numbers have a digit after the point."""
    return repr(value) if isinstance(value, float) else json_module.dumps(value)
