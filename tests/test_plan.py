"""Plans: from what a user knows to a mechanism."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samplers import DECLARED

import hockeystick as hs
from hockeystick import BallsInBins, Deterministic, Mechanism, Plan, Poisson, RandomAllocation, Shuffle
from hockeystick.errors import InvalidInputError
from hockeystick.plan import json_schema, split
from hockeystick.samplers import SAMPLER_OPTIONS, Sampler

DATA = {"num_examples": 6000, "batch_size": 20, "epochs": 3}


def plan(kind: str, **more: Any) -> dict[str, Any]:
    """A plan as plain data."""
    return {"data": DATA, "sampler": {"kind": kind}} | more


@pytest.mark.parametrize(
    ("kind", "options", "sampler"),
    [
        ("deterministic", {}, Deterministic(bins=300, epochs=3)),
        ("shuffle", {}, Shuffle(batch_size=20, bins=300, epochs=3)),
        ("poisson", {}, Poisson(sampling_prob=20 / 6000, steps=900)),
        (
            "poisson",
            {"truncated_batch_size": 40},
            Poisson(sampling_prob=20 / 6000, steps=900, truncated_batch_size=40, num_examples=6000),
        ),
        ("balls_in_bins", {}, BallsInBins(bins=300, epochs=3)),
        ("random_allocation", {"participations": 2}, RandomAllocation(bins=300, participations=2, epochs=3)),
    ],
)
def test_the_sampler_follows_from_the_data(kind: str, options: dict[str, Any], sampler: Sampler) -> None:
    made = Plan.parse({"data": DATA, "sampler": {"kind": kind} | options, "noise_multiplier": 1.5}).mechanism()
    assert made == Mechanism(sampler=sampler, noise_multiplier=1.5)


@pytest.mark.parametrize("kind", SAMPLER_OPTIONS)
def test_every_kind_has_a_plan(kind: str) -> None:
    mechanism = Plan.parse(plan(kind, sampler={"kind": kind} | DECLARED[kind].needed)).mechanism()
    assert mechanism.sampler.kind == kind
    assert mechanism.sampler.steps == 900


def test_the_noise_multiplier_has_two_places_and_an_override() -> None:
    assert Plan.parse(plan("poisson")).mechanism().noise_multiplier is None
    assert Plan.parse(plan("poisson", noise_multiplier=2)).mechanism().sigma == 2.0
    assert Plan.parse(plan("poisson", mechanism={"noise_multiplier": 3.0})).mechanism().sigma == 3.0
    assert Plan.parse(plan("poisson", noise_multiplier=2.0)).mechanism(4.0).sigma == 4.0
    with pytest.raises(InvalidInputError, match="'noise_multiplier' field must be given once"):
        Plan.parse(plan("poisson", noise_multiplier=2.0, mechanism={"noise_multiplier": 2.0}))


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    values = plan("balls_in_bins", target={"epsilon": 2.0, "delta": 1e-5}, noise_multiplier=1.0)
    (tmp_path / "p.json").write_text(json.dumps(values))
    (tmp_path / "p.toml").write_text(
        "noise_multiplier = 1.0\n[data]\nnum_examples = 6000\nbatch_size = 20\nepochs = 3\n"
        '[sampler]\nkind = "balls_in_bins"\n[target]\nepsilon = 2.0\ndelta = 1e-5\n'
    )
    assert Plan.load(tmp_path / "p.json") == Plan.load(str(tmp_path / "p.toml")) == Plan.parse(values)
    loaded = Plan.load(tmp_path / "p.toml")
    assert Plan.parse_json(loaded.model_dump_json(by_alias=True)) == loaded


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_a_plan_is_read_from_the_file_that_it_writes(tmp_path: Path, suffix: str) -> None:
    """Also one whose name is no ASCII, in which TOML and JSON write characters in different ways."""
    path = tmp_path / f"plan{suffix}"
    written = [
        plan("poisson", target={"epsilon": 2.0, "delta": 1e-5}, unit={"kind": "user", "examples_per_user": 2}),
        plan("shuffle", mechanism={"noise_multiplier": 1.5}, strategy={"kind": "banded_inverse", "bands": 4}),
        plan("deterministic", strategy={"kind": "custom", "path": 'a\\"\x7f\U0001d6bc.npy'}, noise_multiplier=1e-2),
    ]
    for parsed in map(Plan.parse, written):
        path.write_text(parsed.file_text(json=suffix == ".json"), encoding="utf-8")
        assert Plan.load(path) == parsed


def test_plans_are_frozen() -> None:
    with pytest.raises(InvalidInputError, match="field of this Plan cannot be changed; make another Plan"):
        Plan.parse(plan("poisson")).noise_multiplier = 1.0  # type: ignore[misc]


def test_numbers_too_large_to_print_are_refused_in_words() -> None:
    with pytest.raises(InvalidInputError, match=r"'data.epochs' field must be at most 1000000000\. Got a number too"):
        Plan.parse(plan("poisson") | {"data": DATA | {"epochs": 10**5000}})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"sampler": hs.Poisson(sampling_prob=0.1, steps=3)},
            "with a 'kind', such as sampler.kind = 'poisson'. Got Poisson(",
        ),
        ({"sampler": hs.FixedSize}, "with a 'kind', such as sampler.kind = 'fixed_size'. Got <class"),
        (
            {"sampler": hs.Identity()},
            "with a 'kind'. Got Identity(kind='identity') instead; hs.Mechanism takes samplers and",
        ),
        ({"sampler": "possion"}, "with a 'kind', such as sampler.kind = 'poisson'. Got 'possion' instead."),
        ({"strategy": hs.BinaryTree}, "with a 'kind', such as strategy.kind = 'binary_tree'. Got <class"),
        (
            {"target": (2.0, 1e-5)},
            "The 'target' field must be a table of fields ('epsilon', 'delta'). Got (2.0, 1e-05) instead.",
        ),
        ({"unit": "user"}, "('kind', 'examples_per_user', 'neighbours'). Got 'user' instead."),
        (
            {"data": 100},
            "('num_examples', 'batch_size', 'batches_per_epoch', 'sampling_prob', 'epochs', 'steps'). Got 100",
        ),
    ],
)
def test_what_is_no_table_is_answered_with_what_the_table_holds(values: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        Plan(**{"data": DATA, "sampler": {"kind": "poisson"}} | values)
    assert said in str(raised.value)


@pytest.mark.parametrize("field", ["sampler", "strategy"])
def test_a_name_in_place_of_a_table_is_refused_with_the_line_that_is_meant(field: str) -> None:
    values = {"data": {"num_examples": 9, "batch_size": 3, "epochs": 1}, "sampler": {"kind": "poisson"}}
    with pytest.raises(InvalidInputError) as raised:
        Plan.parse(values | {field: "own"})
    assert str(raised.value) == (
        f"The {field!r} field must be a table of fields with a 'kind', such as {field}.kind = 'own'. Got 'own' instead."
    )


def test_schema() -> None:
    schema = json_schema()
    assert schema["$id"] == "urn:hockeystick:hockeystick-plan:1"  # docs/reference/compatibility.md
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"data", "sampler"}
    assert set(schema["properties"]) == {
        "data",
        "strategy",
        "sampler",
        "target",
        "mechanism",
        "noise_multiplier",
        "unit",
        "noise",
    }
    assert set(schema["properties"]["sampler"]["discriminator"]["mapping"]) == set(SAMPLER_OPTIONS)
    json.dumps(schema)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text('ab\n\0"{é', max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\n", max_size=3), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ["data", "sampler", "strategy", "target", "mechanism", "noise_multiplier", "foo"]
INNER = ["num_examples", "batch_size", "epochs", "steps", "kind", "epsilon", "delta", "noise_multiplier", "bins"]


@settings(derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.sampled_from(FIELDS), JSON | st.dictionaries(st.sampled_from(INNER), JSON, max_size=4)),
    st.booleans(),
)
def test_anything_else_is_refused_in_one_line(values: dict[str, Any], complete: bool) -> None:
    """Whatever plain data is, parsing gives a plan or one sentence."""
    if complete:
        values = plan("poisson") | values
    for parse in (Plan.parse, lambda data: Plan.parse_json(json.dumps(data))):
        try:
            parse(values)
        except InvalidInputError as error:
            text = str(error)
            assert "\n" not in text
            assert text.startswith("The ")
            assert text.endswith(".")
            assert "nput should" not in text


@settings(derandomize=True)
@given(st.binary(max_size=200), st.sampled_from([".toml", ".json"]))
def test_any_bytes_are_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, raw: bytes, suffix: str) -> None:
    path = tmp_path_factory.getbasetemp() / f"any{suffix}"
    path.write_bytes(raw)
    with pytest.raises(InvalidInputError) as raised:
        Plan.load(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("plan.toml", "Got 'plan.toml' instead; hs.Plan.load reads a file."),
        (Path("plan.toml"), "instead; hs.Plan.load reads a file."),
        (Poisson(sampling_prob=0.1, steps=3), "instead; hs.Mechanism(sampler=...) makes one of a sampler."),
        (3, "Got 3 instead."),
    ],
)
def test_what_is_no_mechanism_is_told_what_makes_one(given: object, said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        split(given)  # type: ignore[arg-type]
    assert str(raised.value).startswith("The 'mechanism' argument must be a Mechanism or a Plan. Got ")
    assert str(raised.value).endswith(said)


@pytest.mark.parametrize(
    ("update", "said"),
    [
        ({"misspelt": 1}, "The 'misspelt' field is not known here (the fields are "),
        ({"noise_multipler": 1.0}, "did you mean 'noise_multiplier'?"),
        ({"noise_multiplier": -1.0}, "The 'noise_multiplier' field must be at least 0.01. Got -1.0 instead."),
        ({"sampler": {"kind": "possion"}}, "did you mean 'poisson'?"),
        ({"unit": {"kind": "user", "examples_per_user": 10_000}}, "must be at most num_examples = 6000"),
        ({"mechanism_options": {"noise_multiplier": 2.0}, "noise_multiplier": 1.0}, "must be given once"),
    ],
)
def test_a_copy_is_checked_as_a_plan_is(update: dict[str, Any], said: str) -> None:
    made = Plan.parse(plan("poisson"))
    with pytest.raises(InvalidInputError, match=rf"^[^\n]*{re.escape(said)}"):
        made.model_copy(update=update)


def test_a_copy_has_what_a_plan_of_its_fields_has() -> None:
    made = Plan.parse(plan("poisson"))
    noisy = made.model_copy(update={"noise_multiplier": 2, "target": {"epsilon": 3.0}})
    assert noisy == Plan.parse(plan("poisson", noise_multiplier=2.0, target={"epsilon": 3.0}))
    assert type(noisy.noise_multiplier) is float
    assert made.model_copy() == made
    with pytest.raises(InvalidInputError, match=r"'epoch' field is not known here \(did you mean 'epochs'"):
        made.data.model_copy(update={"epoch": 3})
    with pytest.raises(InvalidInputError, match="'noise_multiplier' field must be a number"):
        noisy.mechanism().model_copy(update={"noise_multiplier": "loud"})
