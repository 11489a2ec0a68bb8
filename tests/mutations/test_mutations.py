"""The planted faults can be planted: their old text occurs exactly once, their tests exist."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def load_harness() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutations_run", HERE / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for its dataclasses
    spec.loader.exec_module(module)
    return module


HARNESS = load_harness()
FAULTS = [fault for room in HARNESS.names() for fault in HARNESS.faults(room)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.room}-{fault.path.stem}-{fault.reason[:40]}")
def test_a_fault_can_be_planted(fault):
    assert fault.planted(ROOT)
    assert fault.reason
    for one in fault.tests:
        assert (ROOT / one.split("::")[0]).exists(), f"{fault.path}: there is no {one}"


def test_a_text_that_occurs_twice_is_refused(tmp_path):
    (tmp_path / "twice.py").write_text("a = 1\nb = 1\n")
    fault = HARNESS.Fault("door", Path("twice.py"), "= 1", "= 2", "twice", ())
    with pytest.raises(HARNESS.UnplantableError, match="occurs 2 times"):
        fault.planted(tmp_path)


def test_a_fault_that_is_no_python_is_refused(tmp_path):
    (tmp_path / "once.py").write_text("a = 1\n")
    fault = HARNESS.Fault("door", Path("once.py"), "= 1", "= = 1", "broken", ())
    with pytest.raises(HARNESS.UnplantableError, match="not Python"):
        fault.planted(tmp_path)


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("sweep.py", ["tests/test_sweep.py"]),
        ("laws/kernels.py", ["tests/laws/test_kernels.py", "tests/laws"]),
        ("monte_carlo/bins/kernels.py", ["tests/monte_carlo/test_count_kernels.py", "tests/monte_carlo"]),
    ],
)
def test_the_tests_of_a_file_are_those_that_mirror_it(path, tests):
    found = HARNESS.default_tests(HARNESS.SOURCE / path)
    assert found[0] == tests[0]
    assert found[-1] == tests[-1]
