"""How a unit is said in plans, kept in mechanisms and certificates, and left out where it is the usual one."""

import json
import tracemalloc
from pathlib import Path

import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, VerificationError
from hockeystick.mechanism import Unit
from hockeystick.types import Adjacency

PLAN = {
    "data": {"num_examples": 1000, "batch_size": 10, "epochs": 2},
    "sampler": {"kind": "poisson"},
    "noise_multiplier": 1.0,
}
USERS = {"kind": "user", "examples_per_user": 3}


def test_the_usual_unit_leaves_no_trace_in_what_is_written() -> None:
    plan = hs.Plan.parse(PLAN)
    assert plan.unit == Unit()
    for written in (plan, plan.mechanism(), plan.mechanism().with_noise(2.0)):
        assert "unit" not in json.loads(written.model_dump_json())
    assert hs.Plan.parse({**PLAN, "unit": {"kind": "example"}}) == plan


def test_a_unit_travels_from_the_plan_to_the_mechanism_and_back() -> None:
    mechanism = hs.Plan.parse({**PLAN, "unit": USERS}).mechanism()
    assert mechanism.unit.examples == mechanism.with_noise(3.0).unit.examples == mechanism.pinned().unit.examples == 3
    assert hs.Mechanism.parse_json(mechanism.model_dump_json()) == mechanism


@pytest.mark.parametrize(
    ("unit", "what"),
    [
        ({"kind": "user"}, "The 'unit.examples_per_user' field has to be given for kind = 'user'"),
        (
            {"kind": "example", "examples_per_user": 2},
            "The 'unit.examples_per_user' field is for kind = 'user' only. Got 2 instead",
        ),
        ({"kind": "user", "examples_per_user": 0}, "'unit.examples_per_user' field must be at least 1. Got 0 instead"),
        ({"kind": "household"}, "'unit.kind' field must be 'example' or 'user'. Got 'household' instead"),
        ({"neighbours": "any"}, "'unit.neighbours' field must be 'zero_out' or 'replace'. Got 'any' instead"),
        ({"kind": "user", "examples_per_user": 1001}, "must be at most num_examples = 1000. Got 1001 instead"),
    ],
)
def test_units_that_are_none(unit: dict[str, object], what: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        hs.Plan.parse({**PLAN, "unit": unit})
    assert what in str(error.value)


def test_certificates_say_the_unit_and_verify(tmp_path: Path) -> None:
    runs = {kind: hs.Plan.parse({**PLAN, "unit": unit}).mechanism() for kind, unit in (("users", USERS), ("one", {}))}
    certificates = {kind: hs.certify(run, delta=1e-5) for kind, run in runs.items()}
    assert certificates["users"].bounds.upper > 2.0 * certificates["one"].bounds.upper
    assert any("no user have more than 3 example(s)" in text for text in certificates["users"].requirements)
    assert not any("user" in text for text in certificates["one"].requirements)
    for kind, certificate in certificates.items():
        certificate.save(tmp_path / f"{kind}.json")
        assert hs.verify(hs.Certificate.load(tmp_path / f"{kind}.json")) == certificate
    fewer = certificates["users"].model_copy(
        update={"mechanism": runs["one"].model_copy(update={"unit": Unit(**USERS)})}
    )
    assert fewer.content_digest() == certificates["users"].digest
    less = certificates["one"].model_copy(update={"mechanism": runs["users"]}).sealed()
    with pytest.raises(VerificationError):
        hs.verify(less)


def test_replacement_is_its_own_neighbouring_relation() -> None:
    run = hs.Plan.parse({**PLAN, "unit": {"neighbours": "replace"}}).mechanism()
    certificate = hs.certify(run, delta=1e-5)
    assert (certificate.adjacency, certificate.also_holds_for) == (Adjacency.REPLACE, ())
    removed = hs.certify(run.model_copy(update={"unit": Unit()}), delta=1e-5)
    assert removed.bounds.upper < certificate.bounds.upper < 3.0 * removed.bounds.upper
    assert hs.verify(certificate) == certificate


def test_noise_is_calibrated_for_users() -> None:
    run = hs.Mechanism(sampler=hs.Deterministic(bins=10), unit=Unit(**USERS))
    alone = hs.calibrate(hs.Mechanism(sampler=hs.Deterministic(bins=10)), epsilon=2.0, delta=1e-5)
    assert hs.calibrate(run, epsilon=2.0, delta=1e-5).sigma == pytest.approx(3.0 * alone.sigma, rel=1e-3)


def test_rounds_of_a_federation_of_many_clients() -> None:
    """340 million clients, of whom some 6,500 take part in each of 2,000 rounds: a client in a round is an example."""
    data = {"num_examples": 340_000_000, "batch_size": 6500, "steps": 2000}
    run = hs.Plan.parse({"data": data, "sampler": {"kind": "poisson"}, "noise_multiplier": 0.5}).mechanism()
    tracemalloc.start()
    certificate = hs.certify(run, delta=1e-10)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6  # bytes; one byte for each client would be more
    assert 0.0 < certificate.bounds.upper < 3.0
    assert certificate.bounds.gap is not None
    assert certificate.bounds.gap < 0.01


@pytest.mark.parametrize(("neighbours", "shift"), [("zero_out", 5.0**0.5), ("replace", 2.0 * 5.0**0.5)])
def test_examples_that_cannot_share_a_fixed_batch_are_not_bounded_from_below_as_if_they_did(
    neighbours: str, shift: float
) -> None:
    """Batches of two, three examples of a user: at worst two and one of them, a shift of sqrt(5) or twice that."""
    unit = Unit.parse({"kind": "user", "examples_per_user": 3, "neighbours": neighbours})
    sampler = hs.Deterministic(bins=4, remainder="short", batch_size=2, num_examples=7)
    interval = hs.certify(hs.Mechanism(sampler=sampler, noise_multiplier=4.0, unit=unit), delta=1e-5).bounds
    worst = hs.Mechanism(sampler=hs.Deterministic(bins=1), noise_multiplier=4.0 / shift)
    truth = hs.bound(worst, "gaussian").epsilon(1e-5)
    assert interval.lower is not None
    assert interval.lower <= truth <= interval.upper
