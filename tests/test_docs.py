"""The documentation says what the code does: pages are current, links lead somewhere, what is printed runs."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from itertools import chain, pairwise
from pathlib import Path

import pytest
from sybil import Document, Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

import hockeystick as hs
from hockeystick.cli.main import app, main
from hockeystick.laws.warm_up import compile_kernels
from hockeystick.samplers import SAMPLERS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PAGES += sorted(
    page for page in (ROOT / "docs").rglob("*.md") if "gallery" not in page.parts
)  # written by docs/conf.py
TUTORIAL = ROOT / "docs" / "tutorial.md"
RUNNING = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs" / "how-to").glob("*.md") if page.stem != "index"),
]
PLANS = sorted((ROOT / "examples" / "plans").glob("*.toml"))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
LONGEST_LINE = 114
LONG_PLAN = "papers-b-min-sep-multi-attribution"
"""Its calibration takes a quarter of a minute."""


def run_command(command: str) -> tuple[int, str, str]:
    """Its exit code, stdout and stderr. What is not one plain command of hockeystick runs in a shell, as printed.

    tests/cli/test_processes.py has the command line as a process.
    """
    if not command.startswith("hockeystick ") or re.search(r"[|<>&;$*]", command):
        scripts = str(Path(sys.executable).parent)
        environment = os.environ | {"PATH": os.pathsep.join([scripts, os.environ.get("PATH", "")])}
        done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err, pytest.raises(SystemExit) as stopped:
        main(shlex.split(command)[1:])
    return stopped.value.code, out.getvalue(), err.getvalue()


def run_commands(example: Example) -> None:
    """Run the lines that start with a dollar sign; what is shown below them is printed, ``...`` for lines left out.

    A backslash at the end of a line continues it. Of numbers that are printed in full, the first eight digits are
    compared: the last ones are those of the processor's sums, and differ by machine.
    """
    text = re.sub(r" \\\n +", " ", example.parsed)
    commands = [part.splitlines() for part in ("\n" + text).split("\n$ ")[1:]]
    for command, *shown in commands:
        code, out, err = run_command(command)
        assert code == 0, f"{command}\n{out}{err}"
        printed = {"...", *map(eight_digits, out.splitlines())}
        assert [line for line in shown if eight_digits(line) not in printed] == [], f"{command}\n{out}"


def eight_digits(line: str) -> str:
    """A line whose numbers of more than ten decimal places have eight digits."""
    return re.sub(r"\d+\.\d{11,}", lambda number: f"{float(number[0]):.8g}", line)


def write_plan(example: Example) -> None:
    """A block of TOML that begins with a comment is the file that the comment names."""
    if name := re.match(r"# (\S+\.toml)\n", example.parsed):
        Path(name[1]).write_text(example.parsed)


SYBIL = Sybil(
    parsers=[
        PythonCodeBlockParser(),
        CodeBlockParser("console", run_commands),
        CodeBlockParser("toml", write_plan),
    ]
)


def run_page(page: Path) -> None:
    """Python, commands and plans, from top to bottom, in the working directory."""
    document = SYBIL.parse(page)
    document.namespace["__name__"] = "__main__"
    for example in document.examples():
        example.evaluate()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:jax_privacy.*", "ignore::DeprecationWarning:optax.*")
@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.stem)
def test_what_a_page_shows_runs(page, tmp_path, monkeypatch):
    """As a reader would run it who has the examples beside him."""
    for framework, needed in (("torch", "opacus"), ("jax", "jax_privacy")):
        if f"import {framework}" in page.read_text():
            pytest.importorskip(needed)
    for framework in ("transformers", "peft", "lightning", "flwr"):
        if re.search(f"^ *(import|from) {framework}", page.read_text(), re.MULTILINE):
            pytest.importorskip(framework)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    run_page(page)


def test_a_newcomers_ten_commands(tmp_path, monkeypatch):
    """The tutorial, in an empty directory, in less than a minute of processor time once the kernels are compiled."""
    assert len(re.findall(r"^\$ hockeystick ", TUTORIAL.read_text(), re.MULTILINE)) == 10
    monkeypatch.chdir(tmp_path)
    compile_kernels()
    before = os.times()
    run_page(TUTORIAL)
    after = os.times()
    assert after.children_user + after.user - before.children_user - before.user < 60.0


def test_the_noise_of_samplers_is_what_is_calibrated():
    """The table of calibrate-a-run.md, for the plan of that page."""
    page = (ROOT / "docs" / "how-to" / "calibrate-a-run.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", page, re.MULTILINE)
    assert len(rows) == 5
    for sampler, *shown in rows:
        for epochs, noise in zip((1, 20), shown, strict=True):
            data = {"num_examples": 50_000, "batch_size": 500, "epochs": epochs}
            plan = hs.Plan.parse({"data": data, "sampler": {"kind": sampler}})
            assert f"{hs.calibrate(plan, epsilon=2.0, delta=1e-5).sigma:.3f}" == noise


@pytest.mark.parametrize("page", [*RUNNING, TUTORIAL], ids=lambda page: page.stem)
def test_blocks_are_of_a_kind_that_runs_or_is_meant_to_be_read(page):
    """A block that needs a network or a cluster is ``sh`` and does not run; nothing else hides from the tests."""
    text = page.read_text()
    regions = list(FencedCodeBlockLexer(r"\w*")(Document(text, str(page))))
    assert text.count("```") == 2 * len(regions)
    for region in regions:
        language, source = region.lexemes["language"], region.lexemes["source"]
        assert language in {"python", "console", "toml", "sh", "text"}, f"{page.name}: {source}"
        if language == "sh":
            assert re.search(r"pip install|git clone|--address|pre-commit", source), f"{page.name}: {source}"
    outside = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"^ {4,}(?:hockeystick|import|from) .*$", outside, re.MULTILINE), "use a fenced block"


def test_lines_of_code_fit_on_the_site():
    """At 1,300 pixels, where ``docs/_static/site.css`` leaves room for LONGEST_LINE characters.

    Indentation of a list is no part of a line, but takes as much room. A formula is indented by four.
    """
    pages = [*PAGES, *(ROOT / "papers").glob("*/README.md"), *(ROOT / "experiments").glob("**/README.md")]
    long = []
    for page in pages:
        text = page.read_text()
        blocks = [block[2] for block in re.finditer(r"^( *)```.*?\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE)]
        outside = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
        formulas = re.findall(r"(?<=\n\n)(?:    +\S.*\n)+(?=\n)", outside) if "theory" in page.parts else []
        lines = "".join(blocks).splitlines() + [line[4:] for block in formulas for line in block.splitlines()]
        long += [(page.name, line) for line in lines if len(line) > LONGEST_LINE]
    for path in (ROOT / "src").rglob("*.py"):  # descriptions of functions are indented by the width of four characters
        examples = re.findall(r"^ *((?:>>>|\.\.\.) .*)", path.read_text(), re.MULTILINE)
        long += [(path.name, line) for line in examples if len(line) > LONGEST_LINE - 4]
    assert long == []


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_current(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    generated = load_script("make_reference").files()
    for place, content in generated.items():
        current = (ROOT / place).exists() and (ROOT / place).read_text() == content
        assert current, f"{place} is not what follows from the code: run python docs/make_reference.py"
    assert {diagram.name for diagram in (ROOT / "docs/diagrams").iterdir()} == {
        place.name for place in generated if place.match("diagrams/*")
    }
    page = (ROOT / "docs/reference/samplers.md").read_text()
    for kind in SAMPLERS:
        assert f"(../diagrams/{kind}.svg)" in page, f"Write what {kind!r} is in docs/reference/samplers.md."


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("http") or "my_" in target or (page.parent / target).exists(), (
            f"{page.name} links to {target}"
        )


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", *RUNNING, TUTORIAL], ids=lambda page: page.stem)
def test_paths_and_modules_that_are_named_exist(page):
    """Paths from the root or from the package; placeholders start with ``my_``."""
    places = (ROOT, ROOT / "src" / "hockeystick")
    for named in re.findall(r"`((?:src|tests|docs|examples|papers|benchmarks|\w+)/[\w./*-]*)`", page.read_text()):
        if "my_" not in named:
            assert any(list(place.glob(named.rstrip("/"))) for place in places), f"{page.name} names {named}"


def test_lines_that_install_work_as_printed():
    """No index has a release: hockeystick comes from a clone, with extras that it has."""
    files = [*PAGES, *(ROOT / "experiments").rglob("*.md")]
    files += [file for name in ("src", "examples", "experiments", "benchmarks") for file in (ROOT / name).rglob("*.py")]
    lines = [line for path in files for line in path.read_text().splitlines() if "pip install" in line]
    assert len(lines) > 20
    assert [line for line in lines if re.search(r"pip install[^`]*hockeystick\[", line)] == []
    asked = {name for line in lines for names in re.findall(r"'\.\[([\w,]+)\]'", line) for name in names.split(",")}
    assert asked <= EXTRAS
    assert {"torch", "jax"} <= asked


def test_messages_that_name_an_extra_name_it_as_it_is():
    code = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"\{install\(['\"](\w+)['\"]\)\}", code))
    assert {"explore", "interop", "plot", "secure", "torch"} <= named <= EXTRAS


def test_the_table_of_rooms_is_that_of_the_layers():
    """All of them, from the top down, as ``lint-imports`` checks them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [layer.split(" : ") for layer in contracts[0]["layers"]]
    floor = {name: place for place, layer in enumerate(layers) for name in layer}
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    rooms = [re.findall(r"`(\w+)(?:/|\.py)`", row) for row in rows]
    assert sorted(chain(*rooms)) == sorted(floor.keys() - {"__main__", "_version"})
    floors = [[floor[name] for name in row] for row in rooms]
    assert all(max(above) <= min(below) for above, below in pairwise(floors))


def test_every_documented_command_exists_and_every_command_is_documented():
    commands = {command.name for command in app.registered_commands} | {
        command.name for command in app.registered_groups
    }
    documented = {name for page in PAGES for name in re.findall(r"^\W*hockeystick ([a-z]+)\b", page.read_text(), re.M)}
    assert documented <= commands
    listed = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert set(re.findall(r"^hockeystick ([a-z]+)\b", listed, re.M)) == commands


@pytest.mark.parametrize(
    "plan",
    [pytest.param(plan, marks=pytest.mark.weekly if plan.stem == LONG_PLAN else (), id=plan.stem) for plan in PLANS],
)
def test_shipped_plans_can_be_calibrated(plan):
    """With a sixtieth of the usual work, and no clock; tests/calibration compares with what certify says."""
    loaded = hs.Plan.load(plan)
    target, work = loaded.target, {"budget": 1.0, "deadline": hs.Deadline()}
    calibrated = hs.calibrate_and_certify(loaded.mechanism(), epsilon=target.epsilon, delta=target.delta, **work)
    assert calibrated.bounds.upper <= target.epsilon
