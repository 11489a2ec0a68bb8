"""The documentation says what the code does: pages are current, links lead somewhere, what is printed runs."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

import hockeystick as hs
from hockeystick.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUNNING = [ROOT / "README.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
PLANS = sorted((ROOT / "examples" / "plans").glob("*.toml"))


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its text and the number of its first line."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE):
        yield Block(found[2], dedent(found[3]), text.count("\n", 0, found.start(3)) + 1)


def run_python(block: Block, page: Path, names: dict[str, object]) -> None:
    exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)


def run_commands(block: Block, page: Path) -> None:
    """The lines that start with a dollar sign; the others show what is printed."""
    scripts = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": os.pathsep.join([scripts, os.environ.get("PATH", "")])}
    for line in block.text.splitlines():
        if line.startswith("$ "):
            done = subprocess.run(line[2:], shell=True, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{page.name}:{block.line}: {line}\n{done.stdout}{done.stderr}"


@pytest.mark.filterwarnings("ignore::DeprecationWarning:jax_privacy.*", "ignore::DeprecationWarning:optax.*")
@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.stem)
def test_what_a_page_shows_runs(page, tmp_path, monkeypatch):
    """Python, commands and plans, from top to bottom, as a reader would who has the examples beside them."""
    for framework, needed in (("torch", "opacus"), ("jax", "jax_privacy")):
        if f"import {framework}" in page.read_text():
            pytest.importorskip(needed)
    for framework in ("transformers", "peft", "lightning"):
        if re.search(f"^ *(import|from) {framework}", page.read_text(), re.MULTILINE):
            pytest.importorskip(framework)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            run_python(block, page, names)
        elif block.language == "console":
            run_commands(block, page)
        elif block.language == "toml":
            name = re.match(r"# (\S+\.toml)\n", block.text)
            if name is not None:
                Path(name[1]).write_text(block.text)


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.stem)
def test_blocks_are_of_a_kind_that_runs_or_is_meant_to_be_read(page):
    """A block that needs a network or a cluster is ``sh`` and does not run; nothing else hides from the tests."""
    assert page.read_text().count("```") == 2 * len(list(blocks(page)))
    for block in blocks(page):
        assert block.language in {"python", "console", "toml", "sh", "text"}, f"{page.name}:{block.line}"
        if block.language == "sh":
            assert re.search(r"pip install|git clone|--address|pre-commit", block.text), f"{page.name}:{block.line}"
    outside = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"^ {4,}(?:hockeystick|import|from) .*$", outside, re.MULTILINE), "use a fenced block"


def load_generator():
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_current():
    for name, content in load_generator().pages().items():
        assert (ROOT / "docs" / "reference" / name).read_text() == content, f"run docs/make_reference.py for {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", *RUNNING], ids=lambda page: page.stem)
def test_paths_and_modules_that_are_named_exist(page):
    """Paths from the root or from the package; placeholders start with ``my_``."""
    places = (ROOT, ROOT / "src" / "hockeystick")
    for named in re.findall(r"`((?:src|tests|docs|examples|papers|benchmarks|\w+)/[\w./*-]*)`", page.read_text()):
        if "my_" not in named:
            assert any(list(place.glob(named.rstrip("/"))) for place in places), f"{page.name} names {named}"


def test_every_documented_command_exists_and_every_command_is_documented():
    commands = {one.name for one in app.registered_commands} | {one.name for one in app.registered_groups}
    documented = {name for page in PAGES for name in re.findall(r"^\W*hockeystick ([a-z]+)\b", page.read_text(), re.M)}
    assert documented <= commands
    assert set(re.findall(r"^hockeystick ([a-z]+)\b", (ROOT / "README.md").read_text(), re.M)) == commands


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
def test_shipped_plans_can_be_calibrated(plan):
    """With a tenth of the usual work, and no clock; tests/calibration holds certificates against what certify says."""
    loaded = hs.Plan.load(plan)
    target, work = loaded.target, {"budget": 6.0, "deadline": hs.Deadline()}
    found = hs.calibrate_and_certify(loaded.mechanism(), epsilon=target.epsilon, delta=target.delta, **work)
    assert found.bounds.upper <= target.epsilon
