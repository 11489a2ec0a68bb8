"""The documentation says what the code does: generated pages are current, links and commands exist."""

import importlib.util
import re
from pathlib import Path

import pytest

import hockeystick as hs
from hockeystick.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def load_generator():
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
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


def test_every_documented_command_exists_and_every_command_is_documented():
    commands = {one.name for one in (*app.registered_commands, *app.registered_groups)}
    documented = set()
    for page in PAGES:
        documented |= set(
            re.findall(r"hockeystick (calibrate|epsilon|delta|compare|verify|list|reproduce|\w+) ", page.read_text())
        )
    readme = (ROOT / "README.md").read_text()
    assert {name for name in commands if f"hockeystick {name}" in readme} == commands
    assert {name for name in documented if f"    hockeystick {name} " in readme} <= commands


def test_the_python_example_of_the_readme_runs(capsys):
    """The example as it stands, with the training loop's body left empty as it is there."""
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert "is certified" in capsys.readouterr().out
    run = names["run"]
    assert isinstance(run, hs.Mechanism)
    assert run.noise_multiplier is not None


@pytest.mark.parametrize("plan", sorted((ROOT / "examples" / "plans").glob("*.toml")), ids=lambda plan: plan.stem)
def test_shipped_plans_can_be_calibrated(plan):
    loaded = hs.Plan.load(plan)
    mechanism = hs.calibrate(loaded.mechanism(), epsilon=loaded.target.epsilon, delta=loaded.target.delta)
    assert hs.certify(mechanism, delta=loaded.target.delta).epsilon.upper <= loaded.target.epsilon
