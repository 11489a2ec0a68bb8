"""The examples in docstrings run and print what they say."""

import doctest
import importlib
from pathlib import Path

import pytest

import hockeystick

HOME = Path(hockeystick.__file__).parents[1]
FILES = sorted((HOME / "hockeystick").rglob("*.py"))
NAMES = [".".join(file.relative_to(HOME).with_suffix("").parts).removesuffix(".__init__") for file in FILES]
"""By their files, as a package whose framework is missing cannot be imported to ask for its modules."""
NEEDED = {
    "noise.devices.columns": ("torch",),
    "noise.devices.kernels": ("triton",),
    "noise.devices.steps": ("torch", "triton"),
    "noise.devices.words": ("triton",),
    "training.flower": ("flwr",),
    "training.huggingface": ("opacus", "accelerate", "transformers"),
    "training.jax": ("jax_privacy",),
    "training.torch": ("opacus",),
}
"""Packages without which modules are left out, by how their names begin."""
MODULES = [name for name in NAMES if name != "hockeystick.__main__"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:jax_privacy.*", "ignore::DeprecationWarning:optax.*")
@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name, tmp_path, monkeypatch):
    for beginning, needed in NEEDED.items():
        if name.startswith(f"hockeystick.{beginning}"):
            for package in needed:
                pytest.importorskip(package)
    module = importlib.import_module(name)
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        said: list[str] = []
        assert runner.run(example, out=said.append).failed == 0, "".join(said)
