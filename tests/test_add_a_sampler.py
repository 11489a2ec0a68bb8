"""The guide that adds a sampler is followed in a copy of the repository; the sampler is certified, verified and run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import hockeystick

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs/how-to/add-a-sampler.md").read_text()
STEPS = {path: dedent(block) for path, block in re.findall(r"^\d\. `(\S+)`.*?```\w+\n(.*?)^ +```$", GUIDE, re.S | re.M)}
"""What the guide writes by hand: a path from the root to a new file, to changed lines or to an end."""
INSTEAD, APPENDED = "src/hockeystick/samplers/__init__.py", "docs/reference/samplers.md"
OF_ALL_SAMPLERS = (
    *("tests/conformance/test_samplers.py", "tests/conformance/test_registry.py"),
    *("tests/certification/test_rates.py", "tests/certification/test_attack_of_plans.py"),
    *("tests/training/test_run.py", "tests/training/test_record.py", "tests/noise/test_generators.py"),
    *("tests/samplers/test_sampler_data.py", "tests/samplers/test_any_size.py", "tests/cli/test_output.py"),
    *("tests/test_plan.py", "tests/test_mechanism.py", "tests/test_misspelt.py", "tests/explorer/test_choices.py"),
    "tests/test_docs.py::test_generated_pages_are_current",
)
SCHEMAS = {
    "docs/reference/plan.schema.json",
    "src/hockeystick/audit/addendum.schema.json",
    "src/hockeystick/certificate/certificate.schema.json",
}
PLAN = """noise_multiplier = 20.0
[data]
num_examples = 400
batch_size = 200
steps = 6
[sampler]
kind = "my_coin"
[strategy]
kind = "banded_square_root"
bands = 3
"""
RECORDED_RUN = """
import numpy as np
import hockeystick as hs

mechanism = hs.Plan.load("plan.toml").mechanism()
run = hs.training.Run(mechanism, num_examples=400, shape=3, rng=np.random.default_rng(1))
for batch in run.batches():
    run.noise(batch)
record = run.record(hs.Certificate.load("claim.json"))
assert not record.violations
assert "same_examples" in record.checked
assert record.certificate is not None
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The repository, before the first step, with the kernels that are compiled already."""
    copy = tmp_path / "repository"
    for name in ("tests", "docs", "changes", "benchmarks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    source = Path(hockeystick.__file__).parent
    shutil.copytree(source, copy / "src" / "hockeystick", ignore=shutil.ignore_patterns("*.pyc"))
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, copy)
    return copy


def run(copy: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """In the copy, with its own source."""
    path = os.pathsep.join([str(copy / "src"), str(copy)])
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)


def pytest_of(copy: Path, *selected: str) -> str:
    """What pytest prints of some tests, slow ones included."""
    options = ("-n", "0", "-m", "slow or not slow", "-p", "no:cacheprovider")
    return run(copy, sys.executable, "-m", "pytest", *options, *selected).stdout


def write(copy: Path, path: str) -> None:
    """Do one step of the guide."""
    place, block = copy / path, STEPS[path]
    if path == APPENDED:
        place.write_text(place.read_text() + "\n" + block)
        return
    if path != INSTEAD:
        assert not place.exists()
        place.write_text(block)
        return
    text = place.read_text()
    for change in block.strip("\n").split("\n\n"):
        lines = change.splitlines()
        old = "\n".join(line[1:] for line in lines if line[0] != "+")
        new = "\n".join(line[1:] for line in lines if line[0] != "-")
        assert text.count(old + "\n") == 1, old
        text = text.replace(old + "\n", new + "\n")
    place.write_text(text)


def contents(copy: Path) -> dict[str, bytes]:
    """All files but what tests and imports leave behind."""
    files = (path for path in copy.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    kept = {str(path.relative_to(copy)): path.read_bytes() for path in files}
    return {path: content for path, content in kept.items() if path.startswith(("src", "tests", "docs", "changes"))}


def test_the_guide_adds_a_sampler(copy: Path) -> None:
    """In the order of the guide; before a step, a test asks for it in the sentence that is looked for here."""
    before = contents(copy)
    scheme, unions, declaration, page, news = STEPS
    conformance = "tests/conformance/test_samplers.py"
    write(copy, scheme)
    registered = f"{conformance}::test_every_scheme_is_registered"
    assert "Add MyCoin to its union in samplers/__init__.py." in pytest_of(copy, registered)
    write(copy, unions)
    declared = f"{conformance}::test_every_registered_kind_is_checked"
    assert "Write tests/conformance/samplers/my_coin.py, with a DECLARATION" in pytest_of(copy, declared)
    write(copy, declaration)
    current = "tests/test_docs.py::test_generated_pages_are_current"
    assert "run python docs/make_reference.py" in pytest_of(copy, current)
    by_hand = contents(copy)
    assert run(copy, sys.executable, "docs/make_reference.py").returncode == 0
    generated = {path for path, content in contents(copy).items() if by_hand.get(path) != content}
    assert "Write what 'my_coin' is in docs/reference/samplers.md." in pytest_of(copy, current)
    write(copy, page)
    write(copy, news)

    changed = {path for path, content in contents(copy).items() if before.get(path) != content}
    assert changed - generated == set(STEPS)
    assert len(STEPS) == 5 <= 8
    assert f"{['no', 'one', 'two', 'three', 'four', 'five'][len(STEPS)]} files by hand".capitalize() in GUIDE
    assert generated == SCHEMAS | {"docs/diagrams/my_coin.svg"}

    printed = pytest_of(
        copy,
        *OF_ALL_SAMPLERS,
        "-k",
        "my_coin or every_kind or every_scheme or every_registered or cases_cover or covers or schema or current",
    )
    assert re.search(r"^\.+ ", printed, re.M), printed
    assert not re.search("^(FAILED|ERROR)", printed, re.M), printed

    (copy / "plan.toml").write_text(PLAN)
    hockeystick = (sys.executable, "-m", "hockeystick")
    for command in (
        (*hockeystick, "epsilon", "plan.toml", "--delta", "1e-5", "--out", "claim.json"),
        (*hockeystick, "verify", "claim.json"),
        (sys.executable, "-c", RECORDED_RUN),
    ):
        done = run(copy, *command)
        assert done.returncode == 0, done.stdout + done.stderr
