"""Misspelt names come first in a message, all of them, each with the name that was meant."""

from operator import attrgetter

import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.misspelt import OTHER_WORDS, nearest
from hockeystick.samplers import SAMPLER_OPTIONS, SAMPLERS
from hockeystick.strategies import STRATEGIES

DATA = {"num_examples": 100, "batch_size": 10, "epochs": 1}


def complaint(values, parse=hs.Plan.parse):
    with pytest.raises(InvalidInputError) as raised:
        parse(values)
    return str(raised.value)


def test_all_names_are_in_one_message_before_what_is_missing():
    said = complaint(
        {
            "data": {"num_exampels": 100, "batch_size": 10, "epochs": 1},
            "sampler": {"kind": "possion", "truncated_batchsize": 20},
            "targt": {"epsilon": 2.0},
        }
    )
    assert said.startswith("The 'data.num_exampels' field is not known here (did you mean 'num_examples'?); the ")
    assert "Got 'possion' instead (did you mean 'poisson'?); the 'sampler.truncated_batchsize' field is not" in said
    assert "'targt' field is not known here (did you mean 'target'?)" in said
    assert "missing" not in said
    assert said.endswith(".")


def test_the_words_of_other_libraries():
    said = complaint({"rate": 0.01, "steps": 3}, lambda values: hs.Poisson(**values))
    assert said == "The 'rate' field is not known here (did you mean 'sampling_prob'?)."
    assert complaint({"data": DATA, "sampler": {"kind": "poisson"}, "sigma": 1.0}) == (
        "The 'sigma' field is not known here (did you mean 'noise_multiplier'?)."
    )
    known = {name for model in SAMPLERS.values() for name in model.model_fields} | set(hs.Plan.model_fields) | set(DATA)
    assert set(OTHER_WORDS.values()) <= known | set(SAMPLERS) | set(STRATEGIES)
    assert set(OTHER_WORDS) & known == {"noise"}  # a table of plans, which elsewhere is taken for the number
    said = complaint(
        {"sampler": hs.Poisson(sampling_prob=0.1, steps=2), "noise": 1.0}, lambda values: hs.Mechanism(**values)
    )
    assert said == "The 'noise' field is not known here (did you mean 'noise_multiplier'?)."


def test_the_names_of_papers():
    said = complaint({"data": DATA, "sampler": {"kind": "poisson"}, "strategy": {"kind": "BandMF", "bands": 2}})
    assert said.endswith("Got 'BandMF' instead (did you mean 'column_normalized_banded'?).")
    for name, meant in {"BandMF": "ColumnNormalizedBanded", "get_epsilon": "certify", "load": "Plan.load"}.items():
        with pytest.raises(AttributeError, match=rf"\(did you mean 'hockeystick\.{meant}'\?\)$"):
            getattr(hs, name)
        assert attrgetter(meant)(hs)


def test_a_field_of_another_table_is_told_its_place():
    said = complaint({"num_examples": 9, "epsilon": 2.0, "batch": 3, "sampler": {"kind": "poisson", "groups": 2}})
    for where, meant in {
        "num_examples": "data.num_examples",
        "epsilon": "target.epsilon",
        "batch": "data.batch_size",
    }.items():
        assert f"he {where!r} field is not known here (did you mean {meant!r}?)" in said
    said = complaint(
        {"data": DATA | {"delta": 0.1}, "sampler": {"kind": "poisson", "bands": 2, "groups": 2}, "target": {"sigma": 1}}
    )
    for where, meant in {"data.delta": "target.delta", "sampler.bands": "strategy.bands"}.items():
        assert f"he {where!r} field is not known here (did you mean {meant!r}?)" in said
    assert "'target.sigma' field is not known here (did you mean 'noise_multiplier'?)" in said
    assert "'sampler.groups' field is not known here (the fields are 'kind', 'truncated_batch_size')" in said


def test_what_is_missing_is_told_its_kinds():
    assert complaint({"data": DATA}).startswith(
        "The 'sampler' field is missing and has to be given, with a 'kind': 'deterministic', 'shuffle', 'poisson', "
    )
    assert complaint({}, hs.Mechanism.parse) == (
        "The 'sampler' field is missing and has to be given: a sampler, such as hs.Poisson(sampling_prob=0.01, "
        "steps=1000)."
    )


def test_a_name_that_resembles_nothing_is_answered_by_the_fields():
    said = complaint({"data": DATA, "sampler": {"kind": "balls_in_bins", "xyzzy": 1}})
    assert said == "The 'sampler.xyzzy' field is not known here (the fields are 'kind')."
    assert nearest("xyzzy", DATA) is None


def test_the_fields_are_listed_once():
    said = complaint({"data": DATA, "sampler": {"kind": "poisson"}, "xyzzy": 1, "qwerty": 2, "targt": {}})
    assert said.count("(the fields are 'data', ") == 1
    assert "the 'qwerty' field is not known here; the 'targt' field is not known here (did you mean 'target'?)" in said


@pytest.mark.parametrize("kind", SAMPLER_OPTIONS)
def test_every_sampler_of_a_plan(kind):
    """A letter that is missing from the kind, and one from a field of that kind."""
    fields = [name for name in SAMPLER_OPTIONS[kind].model_fields if name != "kind"]
    misspelt = {name[:-1]: 1 for name in fields[:1]}
    said = complaint({"data": DATA, "sampler": {"kind": kind[:-1], **misspelt}})
    assert f"(did you mean {kind!r}?)" in said
    for name in fields[:1]:
        assert f"the 'sampler.{name[:-1]}' field is not known here (did you mean {name!r}?)" in said


@pytest.mark.parametrize("kind", STRATEGIES)
def test_every_strategy_of_a_mechanism(kind):
    sampler = {"kind": "deterministic", "bins": 3}
    said = complaint({"sampler": sampler, "strategy": {"kind": kind[:-1]}}, hs.Mechanism.parse)
    assert "the 'strategy.kind' field must be one of" in said.replace("The", "the", 1)
    assert f"(did you mean {kind!r}?)" in said


def test_a_value_that_is_wrong_is_still_named_where_all_names_are_known():
    said = complaint({"data": DATA | {"num_examples": "100"}, "sampler": {"kind": "poisson"}})
    assert said == "The 'data.num_examples' field must be a whole number. Got '100' instead."


@pytest.mark.parametrize("wrong", ["2", None, [2.0], True])
def test_a_target_of_the_wrong_type_is_one_sentence(wrong):
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=10))
    with pytest.raises(InvalidInputError, match=r"^The 'epsilon' (field must be a number|argument has to be given)"):
        hs.calibrate(run, epsilon=wrong, delta=1e-5)


def test_names_beyond_the_first_few_are_named_too():
    """Twenty of them at most: what is described may be another document, with thousands of fields."""
    said = complaint({"data": DATA, "sampler": {"kind": "poisson"}, **{f"zz{place}": 1 for place in range(7)}})
    assert all(f"'zz{place}'" in said for place in range(7))
    assert said.count("field is not known here") == 5
    assert said.endswith("; not known here either: 'zz5', 'zz6'.")
    many = complaint({"data": DATA, "sampler": {"kind": "poisson"}, **{f"zz{place}": 1 for place in range(5_000)}})
    assert many.endswith("'zz24' and 4975 others.")
    assert len(many) < 2_000
