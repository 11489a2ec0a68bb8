"""Importing hockeystick, and asking for help, loads nothing heavy."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

import hockeystick

HEAVY = (
    "transformers",
    "numpy",
    "scipy",
    "numba",
    "matplotlib",
    "typer",
    "rich",
    "pydantic",
    "torch",
    "jax",
    "dp_accounting",
)


def loaded(statements: str) -> set[str]:
    """Which heavy packages a fresh Python has loaded after some statements."""
    code = f"{statements}\nimport sys\nprint('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_the_package_loads_nothing_heavy() -> None:
    assert loaded("import hockeystick; dir(hockeystick); hockeystick.__version__") == set()


def test_help_loads_no_numerics() -> None:
    statements = (
        "from hockeystick.cli.main import main\n"
        "for arguments in (['--help'], ['calibrate', '--help'], ['foo'], ['list', 'foo']):\n"
        "    try: main(arguments)\n"
        "    except SystemExit: pass"
    )
    assert loaded(statements) <= {"typer", "rich", "pydantic"}


def test_a_plan_needs_no_compiler_and_no_plots() -> None:
    assert not loaded("import hockeystick; hockeystick.Plan") & {"numba", "matplotlib", "typer"}


def test_certify_needs_no_plots_and_no_optional_packages() -> None:
    assert not loaded("import hockeystick; hockeystick.certify") & {"matplotlib", "torch", "jax", "dp_accounting"}


@pytest.mark.parametrize("name", hockeystick.__all__)
def test_public_names_exist(name: str) -> None:
    assert getattr(hockeystick, name) is not None
    assert name in dir(hockeystick)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hockeystick.nothing


@pytest.mark.skipif(find_spec("opacus") is not None, reason="it is there")
def test_the_part_for_torch_says_what_it_needs() -> None:
    with pytest.raises(ImportError, match=r"pip install '\.\[torch\]'"):
        _ = hockeystick.torch


@pytest.mark.skipif(find_spec("jax_privacy") is not None, reason="it is there")
def test_the_part_for_jax_says_what_it_needs() -> None:
    with pytest.raises(ImportError, match=r"pip install '\.\[jax\]'"):
        _ = hockeystick.jax


def test_training_needs_no_framework() -> None:
    assert not loaded("import hockeystick; hockeystick.training.Run") & {"torch", "jax", "matplotlib"}
