"""The page has a control for everything that a plan must say, and kernels are compiled for the plans that are valid."""

import asyncio
import re

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from hockeystick.explorer.app import Explorer
from hockeystick.explorer.choices import choices
from hockeystick.explorer.page import text
from hockeystick.samplers import SAMPLER_OPTIONS
from hockeystick.strategies import STRATEGIES


def test_sliders_begin_where_a_plan_may_be() -> None:
    """Required fields have a range of their own, and the values that it begins with are allowed."""
    ranges = dict(re.findall(r"^    (\w+): \{ (.*) \},$", text("controls.js"), re.MULTILINE))
    for kinds, specs in ((choices()["samplers"], SAMPLER_OPTIONS), (choices()["strategies"], STRATEGIES)):
        for kind, offered in kinds.items():
            values = {}
            for field in (one for one in offered["fields"] if one["required"]):
                found = re.search(r"start: ([\d.]+)", ranges[field["name"]])
                assert found is not None, (kind, field["name"])
                values[field["name"]] = float(found[1]) if field["type"] == "number" else int(found[1])
            specs[kind](**values)


def test_a_refused_plan_does_not_pass_for_compiled_kernels() -> None:
    valid = {
        "data": {"num_examples": 5_000, "batch_size": 50, "epochs": 2},
        "sampler": {"kind": "poisson"},
        "target": {"epsilon": 2.0, "delta": 1e-5},
    }

    async def look() -> None:
        explorer = Explorer({"plan": valid, "ask": "noise_multiplier"})
        try:
            refused = explorer._prepare({"plan": valid | {"data": {}}})
            assert refused is not None
            assert (await refused)["kind"] == "input"
            prepared = explorer._prepare({"plan": valid})
            assert prepared is not None
            assert "result" in await prepared
            assert explorer._prepare({"plan": valid}) is prepared
        finally:
            await explorer.compiler.end()

    asyncio.run(look())
