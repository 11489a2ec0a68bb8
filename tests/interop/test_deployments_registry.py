"""Drafts for the registry of deployments: all its fields, the certified numbers, and nothing private."""

from typing import Any

import pytest

from hockeystick import Certificate, Deterministic, Mechanism, Poisson, Statements, certify, state
from hockeystick.errors import UnsupportedError
from hockeystick.interop.deployments_registry import registry_entry, registry_yaml

FIELDS = {
    "product": "name data_curators intended_use type region sector description publication_date",
    "dp_flavor": "name input_metric bound_on_input_distance output_measure bound_on_output_distance data_domain "
    "unprotected_quantities",
    "privacy_loss": "privacy_unit description parameters",
    "model": "name actors release_type data_source_type access_type",
    "accounting": "post_processing composition",
    "implementation": "pre_processing mechanisms justification",
}
"""The registry's own names."""
RUN = Mechanism(sampler=Poisson(sampling_prob=0.1, steps=5), noise_multiplier=1.0)


def certificate(**question: float) -> Certificate:
    said = Statements(label='a "run"', date="2030-01-31", num_examples=7654321, tuning="the rate")
    return state(certify(RUN, **question), said)


def test_all_fields_of_the_registry_are_there() -> None:
    entry = registry_entry(certificate(delta=1e-5))
    for section, names in FIELDS.items():
        assert list(entry[section]) == names.split()
    assert set(entry) == {*FIELDS, "resources"}
    assert entry["product"]["name"] == 'a "run"'
    assert entry["product"]["publication_date"] == "2030-01-31"
    assert entry["implementation"]["pre_processing"] == "the rate"


@pytest.mark.parametrize("question", [{"delta": 1e-5}, {"epsilon": 0.5}])
def test_its_numbers_are_the_certified_upper_ends(question: dict[str, float]) -> None:
    found = certificate(**question)
    entry = registry_entry(found)
    name, other = ("epsilon", "delta") if "delta" in question else ("delta", "epsilon")
    assert entry["dp_flavor"]["bound_on_output_distance"] == {name: found.bounds.upper, other: question[other]}
    assert entry["privacy_loss"]["parameters"][name] == found.bounds.upper
    assert entry["privacy_loss"]["description"] == found.sentence
    assert entry["implementation"]["mechanisms"]["noise_multiplier"] == 1.0


def test_it_follows_the_mechanism() -> None:
    fixed = certify(Mechanism(sampler=Deterministic(bins=4), noise_multiplier=2.0), delta=1e-5)
    one, other = registry_entry(certificate(delta=1e-5)), registry_entry(fixed)
    assert "add_remove" in one["dp_flavor"]["input_metric"]
    assert "add_remove" not in other["dp_flavor"]["input_metric"]
    for section, name in (("model", "release_type"), ("accounting", "composition"), ("model", "actors")):
        assert one[section][name] != other[section][name]


def values(value: Any) -> list[Any]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(found for one in inside for found in values(one))]


def test_what_should_not_be_published_is_not_in_it() -> None:
    found = certificate(delta=1e-5)
    assert {one.field for one in found.keep_private} == {"statements.num_examples", "rates.expected_batch_size"}
    numbers = [one for one in values(registry_entry(found)) if isinstance(one, int | float)]
    assert 7654321 not in numbers
    assert found.rates.expected_batch_size not in numbers
    assert "7654321" not in registry_yaml(found)


def test_it_is_yaml() -> None:
    yaml = pytest.importorskip("yaml")  # comes with dask
    for question in ({"delta": 1e-5}, {"delta": 1e-7}, {"epsilon": 0.5}):
        assert yaml.safe_load(registry_yaml(certificate(**question))) == registry_entry(certificate(**question))


def test_a_former_certificate_does_not_say_enough() -> None:
    from pathlib import Path

    path = Path(__file__).parents[1] / "certification" / "certificates-0.1.0" / "shuffle.json"
    with pytest.raises(UnsupportedError, match="format 1"):
        registry_entry(Certificate.load(path))
