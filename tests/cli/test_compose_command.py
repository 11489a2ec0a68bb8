"""hockeystick compose and tune: clean JSON, files that verify, one sentence for bad input."""

from pathlib import Path

import pytest

PHASES = """
[data]
num_examples = 1000
batch_size = 100
[target]
delta = 1e-5
[[phase]]
noise_multiplier = 1.0
data.epochs = 2
sampler.kind = "poisson"
[[phase]]
noise_multiplier = 2.0
data.epochs = 3
sampler.kind = "balls_in_bins"
"""
CLAIM = {"delta", "epsilon", "kind", "confidence", "seconds"}


@pytest.fixture
def phases(cli):
    Path("phases.toml").write_text(PHASES)
    return "phases.toml"


def test_phases_compose_to_a_claim_that_verifies(cli, phases):
    result = cli("compose", phases, "--out", "both.json", "--json")
    assert result.json.keys() == CLAIM | {"data", "runs"}
    assert (result.json["data"], result.json["runs"], result.json["delta"]) == ("same data", 2, 1e-5)
    verified = cli("verify", "both.json", "--json").json
    assert verified["verified"] is True
    assert verified["epsilon"] == result.json["epsilon"]


def test_certificates_compose_in_any_relation(cli):
    cli("epsilon", "plan.toml", "--out", "a.json")
    same = cli("compose", "a.json", "a.json", "--json").json
    apart = cli("compose", "a.json", "a.json", "--data", "disjoint", "--json").json
    some = cli("compose", "a.json", "a.json", "a.json", "--data", "1+2,3", "--json").json
    assert apart["epsilon"]["upper"] < same["epsilon"]["upper"] == some["epsilon"]["upper"]
    at = cli("compose", "a.json", "--epsilon", "1", "--json").json
    assert at["epsilon"] == 1.0
    assert 0.0 < at["delta"]["upper"] < 1.0


def test_a_search_for_the_best_trial(cli):
    cli("epsilon", "plan.toml", "--out", "a.json")
    claim = cli("tune", "a.json", "--trials", "10", "--out", "best.json", "--json").json
    assert claim.keys() == CLAIM | {"trials"}
    assert claim["trials"] == {"kind": "negative_binomial", "shape": 1.0, "gamma": 0.1}
    assert cli("verify", "best.json", "--json").json["verified"] is True
    fixed = cli("tune", "plan.toml", "--trials", "2", "--distribution", "fixed", "--json").json
    assert fixed["epsilon"]["upper"] > claim["epsilon"]["lower"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("phases.toml", "--data", "parts"), "'--data'"),
        (("phases.toml", "--data", "1,5"), "runs from 1 to 2"),
        (("phases.toml", "--data", "1"), "Run 2 is in none"),
        (("phases.toml", "--delta", "2"), "'delta'"),
        (("phases.toml", "--delta", "x"), "'--delta'"),
        (("phases.toml", "--delta", "1e-5", "--epsilon", "1"), "Exactly one"),
        (("missing.json",), "missing.json"),
        (("missing.toml",), "missing.toml"),
        (("phases.toml", "--out", "no/such/place.json"), "no/such/place.json"),
    ],
)
def test_bad_input(cli, phases, arguments, named):
    cli.refuses("compose", *arguments, says=[named])


def test_of_several_files_the_one_that_is_wrong_is_named(cli, phases):
    Path("bare.toml").write_text(PHASES.replace("noise_multiplier = 2.0\n", ""))
    wrong = "Phase 2: The 'noise_multiplier' field is missing"
    said = cli.refuses("compose", "bare.toml", says=[wrong])
    assert "bare.toml" not in said
    cli.refuses("compose", phases, "bare.toml", says=[f"In 'bare.toml': {wrong}"])
    cli.write_plan({"mechanism.noise_multiplier": None}, name="plan.toml")
    cli.refuses("compose", phases, "plan.toml", says=["In 'plan.toml': The 'noise_multiplier' field is missing"])


def test_files_without_one_delta_say_which_option_has_it(cli):
    for name, delta in (("none.toml", None), ("one.toml", "1e-5"), ("other.toml", "1e-6")):
        cli.write_plan({"target.delta": delta}, name=name)
    cli.refuses("compose", "none.toml", says=["No file says at which delta; pass --delta or --epsilon"])
    cli.refuses("compose", "one.toml", "other.toml", says=["The files use different deltas; pass --delta or --epsilon"])


def test_compositions_do_not_compose(cli, phases):
    cli("compose", phases, "--out", "both.json")
    cli.refuses("compose", "both.json", "--delta", "1e-5", says=["both.json", "It is a composition"])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--trials", "0"), "'trials'"),
        (("--trials", "1"), "above 1"),
        (("--trials", "many"), "'--trials'"),
        (("--trials", "5", "--distribution", "uniform"), "'distribution'"),
    ],
)
def test_bad_searches(cli, arguments, named):
    cli.refuses("tune", "plan.toml", *arguments, says=[named])


def test_an_altered_composition_does_not_verify(cli, phases):
    cli("compose", phases, "--out", "both.json")
    text = Path("both.json").read_text()
    Path("both.json").write_text(text.replace('"confidence": 1.0', '"confidence": 0.5'))
    cli.refuses("verify", "both.json", says=["was altered"], code=1)
