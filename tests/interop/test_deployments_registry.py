"""Drafts for the registry of deployments: its layout, the certified numbers, and nothing private."""

from datetime import date
from typing import Any

import pytest

from hockeystick import Certificate, Deterministic, Mechanism, Poisson, Statements, certify, state
from hockeystick.errors import UnsupportedError
from hockeystick.interop.deployments_registry import UNKNOWN, registry_entry, registry_yaml

STATUS = "Converted|Draft|Pending|Changes Required|Approved|Approved (Update Requested)|Approved (Pending)"
PRODUCTS = "Summary statistics|Machine learning model|Dataset|Synthetic data|Interactive API|SQL queries"
LAYOUT: dict[str, tuple[type | tuple[type, ...], str | None]] = {
    "url_slug": (str, None),
    "status": (str, STATUS),
    "tier": (int, "1|2|3"),
    "deployment": (dict, None),
    "deployment.basic": (dict, None),
    "deployment.basic.name": (str, None),
    "deployment.basic.data_curators": (list, None),
    "deployment.basic.intended_use": (str, None),
    "deployment.basic.data_product_type": (str, PRODUCTS),
    "deployment.basic.data_product_region": (str, None),
    "deployment.basic.description": (str, None),
    "deployment.basic.publication_date": (date, None),
    "deployment.basic.data_product_sector": (str, "Technology|Healthcare|Education|Government|Energy|Finance"),
    "deployment.dp_variant": (dict, None),
    "deployment.dp_variant.variant_name": (
        str,
        "Pure DP|Approximate DP|Zero-concentrated DP|Renyi DP|Custom",
    ),
    "deployment.dp_variant.data_domain": (str, None),
    "deployment.dp_variant.unprotected_quantities": (str, None),
    "deployment.privacy_loss": (dict, None),
    "deployment.privacy_loss.privacy_unit": (str, None),
    "deployment.privacy_loss.privacy_unit_details": (str, None),
    "deployment.privacy_loss.privacy_parameters": (dict, None),
    "deployment.privacy_loss.privacy_parameters.epsilon": ((int, float), None),
    "deployment.privacy_loss.privacy_parameters.delta": ((int, float, str), None),
    "deployment.privacy_loss.privacy_parameters.rho": ((int, float), None),
    "deployment.privacy_loss.privacy_parameters_details": (object, None),
    "deployment.deployment_model": (dict, None),
    "deployment.deployment_model.model_name": (str, "Local|Central|Shuffle|Federated|Varies"),
    "deployment.deployment_model.model_name_details": (str, None),
    "deployment.deployment_model.actors": (str, None),
    "deployment.deployment_model.release_type": (str, "One release|Many releases"),
    "deployment.deployment_model.release_type_details": (str, None),
    "deployment.deployment_model.data_source_type": (str, "Static|Dynamic"),
    "deployment.deployment_model.data_source_type_details": (object, None),
    "deployment.deployment_model.access_type": (str, "Interactive|Non-interactive"),
    "deployment.deployment_model.access_type_details": (str, None),
    "deployment.accounting": (dict, None),
    "deployment.accounting.post_processing": (str, None),
    "deployment.accounting.composition": (str, None),
    "deployment.implementation": (dict, None),
    "deployment.implementation.preprocessing_and_hyperparameter_tuning": (str, None),
    "deployment.implementation.mechanisms": (str, None),
    "deployment.implementation.justification": (str, None),
    "deployment.administrative": (dict, None),
    "deployment.administrative.sources": (str, None),
    "deployment.administrative.notes": (str, None),
    "deployment.administrative.registry_authors": (list, None),
}
"""The registry's fields in July 2026, with their types and, where there are any, the only values that it takes.

Every object is closed, and every list holds texts, at least one.
"""
REQUIRED = [
    "url_slug",
    "status",
    "tier",
    "deployment",
    "deployment.basic",
    *(
        name
        for name in LAYOUT
        if name.startswith("deployment.basic.") and name != "deployment.basic.data_product_sector"
    ),
    "deployment.administrative.registry_authors",
]
RUN = Mechanism(sampler=Poisson(sampling_prob=0.1, steps=5), noise_multiplier=1.0)


def certificate(**question: float) -> Certificate:
    said = Statements(label='a "run"', date="2030-01-31", num_examples=7654321, tuning="the rate")
    return state(certify(RUN, **question), said)


def fields(entry: dict[str, Any], inside: str = "") -> dict[str, Any]:
    """All fields by their paths; the parts of an object follow it."""
    listed = {}
    for name, value in entry.items():
        listed[f"{inside}{name}"] = value
        if isinstance(value, dict):
            listed |= fields(value, f"{inside}{name}.")
    return listed


def problems(entry: dict[str, Any]) -> list[str]:
    """What the registry would refuse."""
    present = fields(entry)
    wrong = [f"{name} is missing" for name in REQUIRED if name not in present]
    for name, value in present.items():
        if name not in LAYOUT:
            wrong.append(f"{name} is unknown")
            continue
        kind, allowed = LAYOUT[name]
        if kind is date:
            try:
                date.fromisoformat(value)
            except (TypeError, ValueError):
                wrong.append(f"{name} is no date")
        elif not isinstance(value, kind) or isinstance(value, bool):
            wrong.append(f"{name} has the wrong type")
        elif allowed is not None and str(value) not in allowed.split("|"):
            wrong.append(f"{name} has a value that is not allowed")
        elif isinstance(value, list) and not (value and all(isinstance(text, str) for text in value)):
            wrong.append(f"{name} holds no texts")
    return wrong


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("steps", [1, 5])
def test_the_registry_takes_it(stated: bool, steps: int) -> None:
    run = Mechanism(sampler=Poisson(sampling_prob=0.1, steps=steps), noise_multiplier=1.0)
    issued = certify(run, delta=1e-5)
    entry = registry_entry(state(issued, Statements(label="a", date="2030-01-31", tuning="b")) if stated else issued)
    assert problems(entry) == []
    release = entry["deployment"]["deployment_model"]["release_type"]
    assert release == ("Many releases" if steps > 1 else "One release")


def test_the_check_finds_what_is_wrong() -> None:
    entry = registry_entry(certificate(delta=1e-5))
    basic = entry["deployment"]["basic"]
    assert problems(entry | {"tier": 4}) == ["tier has a value that is not allowed"]
    assert problems(entry | {"more": 1}) == ["more is unknown"]
    for name, value, says in (
        ("name", None, "has the wrong type"),
        ("data_curators", [], "holds no texts"),
        ("publication_date", "soon", "is no date"),
    ):
        spoilt = entry["deployment"] | {"basic": basic | {name: value}}
        assert problems(entry | {"deployment": spoilt}) == [f"deployment.basic.{name} {says}"]
    without = {name: value for name, value in entry.items() if name != "status"}
    assert problems(without) == ["status is missing"]


def test_what_the_user_states_is_in_it_and_what_nobody_knows_says_so() -> None:
    entry = registry_entry(certificate(delta=1e-5))
    basic, rest = entry["deployment"]["basic"], entry["deployment"]
    assert (entry["url_slug"], entry["status"]) == ("a-run", "Draft")
    assert (basic["name"], basic["publication_date"]) == ('a "run"', "2030-01-31")
    assert rest["implementation"]["preprocessing_and_hyperparameter_tuning"] == "the rate"
    assert basic["intended_use"] == UNKNOWN
    assert UNKNOWN in rest["administrative"]["notes"]
    assert "9999" not in registry_yaml(certificate(delta=1e-5))
    unstated = registry_entry(certify(RUN, delta=1e-5))["deployment"]
    assert unstated["basic"]["publication_date"] in unstated["administrative"]["notes"]


@pytest.mark.parametrize("question", [{"delta": 1e-5}, {"epsilon": 0.5}])
def test_its_numbers_are_the_certified_upper_ends(question: dict[str, float]) -> None:
    issued = certificate(**question)
    loss = registry_entry(issued)["deployment"]["privacy_loss"]
    name, other = ("epsilon", "delta") if "delta" in question else ("delta", "epsilon")
    assert loss["privacy_parameters"] == {name: issued.bounds.upper, other: question[other]}
    assert loss["privacy_parameters_details"].startswith(issued.sentence)


def test_it_follows_the_mechanism() -> None:
    fixed = certify(Mechanism(sampler=Deterministic(bins=4), noise_multiplier=2.0), delta=1e-5)
    drawn, known = (registry_entry(issued)["deployment"] for issued in (certificate(delta=1e-5), fixed))
    assert "add_remove" in drawn["privacy_loss"]["privacy_unit_details"]
    assert "add_remove" not in known["privacy_loss"]["privacy_unit_details"]
    for section, name in (
        ("deployment_model", "release_type_details"),
        ("deployment_model", "actors"),
        ("accounting", "composition"),
        ("implementation", "mechanisms"),
        ("implementation", "justification"),
    ):
        assert drawn[section][name] != known[section][name]


def test_what_should_not_be_published_is_not_in_it() -> None:
    issued = certificate(delta=1e-5)
    assert {private.field for private in issued.keep_private} == {
        "statements.num_examples",
        "rates.expected_batch_size",
    }
    text = registry_yaml(issued)
    assert "7654321" not in text
    assert f"{issued.rates.expected_batch_size:.12g}" not in text


def test_it_is_yaml() -> None:
    yaml = pytest.importorskip("yaml")  # comes with dask
    for question in ({"delta": 1e-5}, {"delta": 1e-7}, {"epsilon": 0.5}):
        assert yaml.safe_load(registry_yaml(certificate(**question))) == registry_entry(certificate(**question))


def test_a_former_certificate_does_not_say_enough() -> None:
    from pathlib import Path

    path = Path(__file__).parents[1] / "certification" / "certificates-0.1.0" / "shuffle.json"
    with pytest.raises(UnsupportedError, match="format 1"):
        registry_entry(Certificate.load(path))
