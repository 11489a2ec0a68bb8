"""Every public name of the samplers, strategies, descriptions and noise has an example, and it runs as printed."""

import doctest
import importlib

import pytest

import hockeystick as hs

MODULES = ("samplers", "strategies", "mechanism", "plan", "bounds")
PUBLIC = [name for name, home in hs._HOMES.items() if home in MODULES]


@pytest.mark.parametrize("name", [*PUBLIC, "noise.stream"])
def test_examples_run(name: str) -> None:
    thing = hs.noise.stream if name == "noise.stream" else getattr(hs, name)
    module = importlib.import_module(thing.__module__)
    examples = doctest.DocTestFinder(recurse=False).find(thing, name, module=module)
    assert sum(len(example.examples) for example in examples) > 0, f"{name} has no example"
    report: list[str] = []
    for example in examples:
        failed = doctest.DocTestRunner(verbose=False).run(example, out=report.append).failed
        assert not failed, "".join(report)
