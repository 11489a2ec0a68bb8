"""hockeystick recommend."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

import hockeystick as hs
from hockeystick.cli.recommend import Progress
from hockeystick.sweep import read_records

from .conftest import Cli

SMALL = {
    "data.num_examples": "1000",
    "data.batch_size": "100",
    "data.epochs": "2",
    "sampler.kind": '"poisson"',
    "mechanism.noise_multiplier": None,
}


def test_a_table_of_estimates(cli: Cli) -> None:
    cli.write_plan(SMALL)
    result = cli("recommend", "plan.toml", "--budget", "0")
    assert result.code == 0
    assert "estimate (" in result.out
    assert "certified" not in result.out
    assert "(the plan)" in result.out
    assert "* The best keeps" in result.out or "* Independent noise is recommended" in result.out
    assert "best after" in result.err


def test_a_certified_plan_is_written_and_drawn(cli: Cli) -> None:
    cli.write_plan(SMALL)
    options = ("--samplers", "poisson,random_allocation", "--budget", "60", "--json", "--epsilon", "2.5")
    result = cli("recommend", "plan.toml", *options, "--write", "best.toml", "--plot", "best.svg")
    answer = result.json
    assert answer["certified"]
    assert answer["choices"][0]["status"] == "certified"
    assert answer["choices"][0]["epsilon"]["upper"] <= 2.5
    assert result.created == {"best.toml", "best.svg"}
    best = hs.Plan.load("best.toml")
    assert (best.target.epsilon, best.target.delta) == (2.5, 1e-5)
    assert best.noise_multiplier == answer["choices"][0]["noise_multiplier"]
    assert cli("epsilon", "best.toml", "--json").json["epsilon"]["upper"] <= 2.5


def test_progress_calls_no_smaller_noise_certified(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    cli.write_plan(SMALL)
    recommendation = hs.recommend(hs.Plan.load("plan.toml"), epsilon=2.0, delta=1e-5, budget=0.0)
    mechanism = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=2.3456149)
    calibrated = replace(recommendation.best, certificate=hs.certify(mechanism, delta=1e-5, method="gaussian"))
    Progress(time.monotonic(), table=False).answer(replace(recommendation, choices=(calibrated,)))
    said = capsys.readouterr().err.split()
    assert said[-1] == "(certified)"
    assert float(said[-2]) >= 2.3456149


def test_bad_options_are_named(cli: Cli) -> None:
    cli.write_plan(SMALL)
    for options, part in (
        (("--memory", "1GB"), "'parameters' field is missing"),
        (("--memory", "much", "--parameters", "1"), "'--memory' option must be a size such as 8GB"),
        (("--samplers", "shuffle"), "'samplers' field must name some of"),
        (("--schedule", "warm"), "'schedule' field must be one of"),
        (("--budget", "-1"), "'--budget' option must be from 0"),
        (("--write", "missing/best.toml"), "missing"),
    ):
        result = cli("recommend", "plan.toml", *options)
        assert result.code == 2
        assert part in result.complaint
    assert not Path("best.toml").exists()


def test_an_interruption_ends_the_workers_and_leaves_whole_results(cli: Cli) -> None:
    """Ctrl-C reaches every process of the terminal's group, while two workers calibrate; the best so far is written."""
    cli.write_plan(SMALL | {"data.num_examples": "60000", "data.epochs": "5"})
    options = ("--workers", "2", "--results", "results.jsonl", "--write", "best.toml")
    process = subprocess.Popen(
        [sys.executable, "-m", "hockeystick", "recommend", "plan.toml", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    while not process.stderr.readline().endswith("(certified)\n"):
        assert process.poll() is None
    while len(members(process.pid)) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.splitlines()[-1] == "plan written to best.toml"
    assert "certified" in out
    assert said.splitlines()[-1] == "Interrupted; no file was left half written."
    assert "Traceback" not in said
    until = time.monotonic() + 20
    while members(process.pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert members(process.pid) == []
    _, torn = read_records("results.jsonl", "results")
    assert torn == b""
    best = hs.Plan.load("best.toml")
    assert best.noise_multiplier is not None
    assert best.target.epsilon is not None
    assert hs.certify(best.mechanism(), delta=best.target.delta).bounds.upper <= best.target.epsilon


def test_no_sampler_is_needed(cli: Cli) -> None:
    Path("open.toml").write_text(
        "[data]\nnum_examples = 1000\nbatch_size = 100\nepochs = 2\n[target]\nepsilon = 4.0\ndelta = 1e-5\n"
    )
    result = cli("recommend", "open.toml", "--budget", "0", "--write", "best.toml")
    assert result.code == 0
    assert "(the plan)" not in result.out
    assert hs.Plan.load("best.toml").noise_multiplier is None


def test_progress_is_said_while_nothing_else_is(capsys: pytest.CaptureFixture[str]) -> None:
    """One line in each period, whatever the calibrations do; here they sleep."""
    progress = Progress(time.monotonic(), table=False, period=0.02)
    with progress.every_second():
        time.sleep(0.5)
    lines = capsys.readouterr().err.splitlines()
    assert 5 <= len(lines) <= 25
    assert all("s: estimating" in line for line in lines)
    progress._said, progress.best = "some plan (estimated)", cast("hs.Recommendation", object())
    assert progress.line().endswith(" s: estimating; so far some plan (estimated)")
    assert " of " not in progress.line()
    progress.budget, progress._said = 60.0, "some plan (certified)"
    assert progress.line().endswith(" of 60 s: calibrating; so far some plan (certified)")


@pytest.mark.parametrize(
    "options",
    [
        ("--epsilon", "x"),
        ("--delta", "2"),
        ("--momentum", "1.5"),
        ("--schedule", "cosnie"),
        ("--weight-decay", "-1"),
        ("--measure", "median"),
        ("--budget", "soon"),
        ("--memory", "8XB"),
        ("--memory", "8GB"),  # of how many parameters?
        ("--parameters", "many"),
        ("--dtype", "float16"),
        ("--samplers", "possion"),
        ("--results", "no/such/folder/results.jsonl"),
        ("--write", "plan.toml"),
        ("--plot", "best.gif"),
        ("--workers", "some"),
        ("--backend", "cloud"),
        ("--allow", "monte-carlo", "--failure-probability", "2"),
        ("--allow", "monte-carlo", "--failure-probability", "0.5"),  # above delta, of which it becomes a part
        ("--results", __file__),
        ("--allow", "monte-carlo", "--seed", "x"),
        ("--evidence", "store.db"),
        ("--budget", "0", "--workers", "2"),
    ],
    ids=" ".join,
)
def test_an_option_is_refused_before_any_progress(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    cli.write_plan(SMALL)
    monkeypatch.setattr(Progress, "every_second", lambda self: pytest.fail("The command said that it had begun."))
    result = cli("recommend", "plan.toml", *options)
    assert (result.code, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert result.created == set()


def members(group: int) -> list[int]:
    """The processes of a group that have not ended."""
    processes = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, belongs = entry.read_text().rpartition(")")[2].split()[:3]
            processes += [int(entry.parent.name)] if int(belongs) == group and state != "Z" else []
    return processes


@pytest.mark.parametrize("option", [("--workers", "2"), ("--backend", "dask")])
def test_estimates_take_no_workers(cli: Cli, option: tuple[str, str]) -> None:
    cli.write_plan(SMALL)
    cli.refuses("recommend", "plan.toml", "--budget", "0", *option, says=(option[0], "'--budget' above 0"))
