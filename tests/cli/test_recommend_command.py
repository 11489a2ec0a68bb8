"""hockeystick recommend."""

from dataclasses import replace
from pathlib import Path

import pytest

import hockeystick as hs
from hockeystick.cli.recommend import _say

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
    found = result.json
    assert found["certified"]
    assert found["choices"][0]["status"] == "certified"
    assert found["choices"][0]["epsilon"]["upper"] <= 2.5
    assert result.created == {"best.toml", "best.svg"}
    best = hs.Plan.load("best.toml")
    assert (best.target.epsilon, best.target.delta) == (2.5, 1e-5)
    assert best.noise_multiplier == found["choices"][0]["noise_multiplier"]
    assert cli("epsilon", "best.toml", "--json").json["epsilon"]["upper"] <= 2.5


def test_progress_calls_no_smaller_noise_certified(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    cli.write_plan(SMALL)
    found = hs.recommend(hs.Plan.load("plan.toml"), epsilon=2.0, delta=1e-5, budget=0.0)
    mechanism = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=2.3456149)
    calibrated = replace(found.best, certificate=hs.certify(mechanism, delta=1e-5, method="gaussian"))
    _say(replace(found, choices=(calibrated,)))
    said = capsys.readouterr().err.split()
    assert said[-1] == "(certified)"
    assert float(said[-2]) >= 2.3456149


def test_bad_options_are_named(cli: Cli) -> None:
    cli.write_plan(SMALL)
    for options, part in (
        (("--memory", "1GB"), "'parameters' field is missing"),
        (("--memory", "much", "--parameters", "1"), "'--memory' option must be a number"),
        (("--samplers", "shuffle"), "'samplers' field must name some of"),
        (("--schedule", "warm"), "'schedule' field must be one of"),
        (("--budget", "-1"), "'--budget' option must be from 0"),
        (("--write", "missing/best.toml"), "missing"),
    ):
        result = cli("recommend", "plan.toml", *options)
        assert result.code == 2
        assert part in result.complaint
    assert not Path("best.toml").exists()
