"""Plans of the page: a control for everything that one must say, kernels for those that are valid, memory for all."""

import asyncio
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from starlette.requests import Request

from hockeystick.explorer.app import Explorer, _left
from hockeystick.explorer.choices import choices
from hockeystick.explorer.page import text
from hockeystick.explorer.pool import Pool
from hockeystick.samplers import SAMPLER_OPTIONS
from hockeystick.strategies import STRATEGIES


def test_sliders_begin_where_a_plan_may_be() -> None:
    """Required fields have a range of their own, and the values that it begins with are allowed."""
    ranges = dict(re.findall(r"^    (\w+): \{ (.*) \},$", text("controls.js"), re.MULTILINE))
    for kinds, specs in ((choices()["samplers"], SAMPLER_OPTIONS), (choices()["strategies"], STRATEGIES)):
        for kind, offered in kinds.items():
            values = {}
            for field in (field for field in offered["fields"] if field["required"]):
                start = re.search(r"start: ([\d.]+)", ranges[field["name"]])
                assert start is not None, (kind, field["name"])
                values[field["name"]] = float(start[1]) if field["type"] == "number" else int(start[1])
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


def test_a_question_that_nobody_waits_for_is_cancelled() -> None:
    """It stops waiting for a worker as soon as its page has left."""

    class Leaving(Request):
        looks = 0

        async def is_disconnected(self) -> bool:
            self.looks += 1
            return self.looks > 2

    async def look() -> None:
        pool, cancel = Pool(1, 10), asyncio.Event()
        worker = await pool.idle.get()  # the only one works for others
        waiting = asyncio.create_task(pool.run("quick", {}, cancel=cancel))
        await _left(Leaving({"type": "http"}), cancel)
        assert cancel.is_set()
        pool.idle.put_nowait(worker)
        assert (await waiting)["kind"] == "cancelled"
        assert worker.process is None

    asyncio.run(look())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce the limit")
def test_a_plan_of_any_size_leaves_half_of_the_memory() -> None:
    code = """
import numpy as np
from hockeystick.explorer.worker import limit_memory
limit_memory()
try:
    np.empty(int(SIZE), dtype=np.uint8)
except MemoryError:
    print("refused")
else:
    print("given")
"""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for share, expected in ((0.02, "given"), (0.6, "refused")):
        text = code.replace("SIZE", str(int(share * memory)))
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=True)
        assert done.stdout.strip() == expected
