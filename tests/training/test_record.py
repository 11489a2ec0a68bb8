"""The record of a run says what was executed and nothing about the batches."""

import hashlib
import hmac
import itertools
import json

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, VerificationError, ViolationError
from hockeystick.report.certificate import run_rows
from hockeystick.training import Check, Run, RunRecord, Status
from hockeystick.training.record import MEANINGS

MECHANISM = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=10), noise_multiplier=2.0)


def run_of(steps=10, seed=0):
    run = Run(MECHANISM, num_examples=50, shape=2, rng=np.random.default_rng(seed))
    for batch in itertools.islice(run.batches(), steps):
        run.noise(batch)
    return run


@pytest.fixture(scope="module")
def certificate():
    return hs.certify(MECHANISM, delta=1e-5)


@pytest.mark.parametrize("steps", [0, 4, 10])
def test_the_plan_s_certificate_covers_every_stop(steps, certificate, tmp_path):
    record = run_of(steps).record(certificate)
    assert (record.steps, record.certificate) == (steps, certificate)
    record.save(tmp_path / "run.json")
    assert RunRecord.load(tmp_path / "run.json") == record
    assert str(certificate) in str(record)
    assert f"a run of {steps} of 10 planned steps on 50 examples" in str(record)


def test_a_run_without_an_end_names_no_planned_steps(tmp_path):
    endless = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=10**9), noise_multiplier=1.0)
    run = Run(endless, num_examples=50, shape=2, rng=np.random.default_rng(0))
    for batch in itertools.islice(run.batches(), 4):
        run.noise(batch)
    record = run.record(None)
    assert str(record).startswith("a run of 4 steps (no end planned) on 50 examples, resumed 0 times\n")
    assert run_rows(record)[0].text == "4 steps (no end planned) on 50 examples; 0 steps past the plan were refused"


def test_the_certificate_of_the_executed_steps_needs_the_caller_s_word(certificate):
    run = run_of(4)
    executed = run.executed()
    assert executed is not None
    assert executed.sampler == hs.Poisson(sampling_prob=0.1, steps=4)
    smaller = hs.certify(executed, delta=1e-5)
    assert smaller.epsilon.upper < certificate.epsilon.upper
    with pytest.raises(InvalidInputError, match="stopped_without_looking"):
        run.record(smaller)
    record = run.record(smaller, stopped_without_looking=True)
    assert "stop_is_public" in record.asserted
    assert "stop_is_public" not in run.record(certificate).asserted


def test_the_executed_steps_hide_what_the_plan_hides():
    """A certificate about one example is none for a run whose plan hides users."""
    unit = hs.Unit(kind="user", examples_per_user=4)
    planned = hs.Mechanism(sampler=MECHANISM.sampler, noise_multiplier=2.0, unit=unit)
    run = Run(planned, num_examples=50, shape=2, rng=np.random.default_rng(0))
    for batch in itertools.islice(run.batches(), 4):
        run.noise(batch)
    executed = run.executed()
    assert executed is not None
    assert executed.unit == unit
    of_example = hs.certify(hs.Mechanism(sampler=executed.sampler, noise_multiplier=2.0), delta=1e-5)
    with pytest.raises(InvalidInputError, match="it is about another"):
        run.record(of_example, stopped_without_looking=True)


def test_a_record_that_was_sealed_again_with_another_certificate_is_refused(certificate, tmp_path):
    """Whoever writes a record by hand has to say as much as a run does."""
    path, run = tmp_path / "run.json", run_of(4)
    executed = hs.certify(run.executed(), delta=1e-5)
    record = run.record(executed, stopped_without_looking=True)
    record.save(path)
    assert RunRecord.load(path) == record
    unsaid = tuple(one for one in record.checks if one.name != "stop_is_public")
    rarer = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=4), noise_multiplier=MECHANISM.sigma)
    forged = [
        record.model_copy(update={"certificate": hs.certify(rarer, delta=1e-5)}),
        record.model_copy(update={"certificate": hs.certify(MECHANISM.with_noise(3.0), delta=1e-5)}),
        record.model_copy(update={"checks": unsaid}),
        record.model_copy(update={"steps": 5}),
    ]
    for one in forged:
        one.sealed().save(path)
        with pytest.raises(InvalidInputError, match="'certificate' field must be about the planned mechanism"):
            RunRecord.load(path)


def test_a_record_of_more_steps_than_planned_or_other_examples_is_refused(certificate):
    record = run_of().record(certificate)
    with pytest.raises(InvalidInputError, match="'steps' field must be at most the 10 planned steps"):
        RunRecord.parse(record.model_dump() | {"steps": 11})
    mechanism = hs.Mechanism(sampler=hs.FixedSize(batch_size=5, num_examples=50, steps=2), noise_multiplier=2.0)
    fixed = Run(mechanism, num_examples=50, shape=2, rng=np.random.default_rng(0)).record()
    assert RunRecord.parse(fixed.model_dump()) == fixed
    with pytest.raises(InvalidInputError, match="'num_examples' field must be the sampler's num_examples = 50"):
        RunRecord.parse(fixed.model_dump() | {"num_examples": 500})


def test_a_certificate_of_another_mechanism_is_refused():
    other = hs.certify(MECHANISM.with_noise(3.0), delta=1e-5)
    for allowed in (False, True):
        with pytest.raises(InvalidInputError, match="it is about another"):
            run_of().record(other, stopped_without_looking=allowed)


def test_an_altered_record_is_noticed(certificate, tmp_path):
    path = tmp_path / "run.json"
    run_of().record(certificate).save(path)
    content = json.loads(path.read_text())
    for change in ({"steps": 3}, {"checks": content["checks"][1:]}, {"commitment": "0" * 64}):
        path.write_text(json.dumps(content | change))
        with pytest.raises(VerificationError, match="was altered"):
            RunRecord.load(path)


def test_the_record_of_another_seed_differs_in_the_commitment_alone(certificate):
    left, right = run_of(seed=1).record(certificate), run_of(seed=2).record(certificate)
    hidden = {"commitment", "digest"}
    assert left.model_dump(exclude=hidden) == right.model_dump(exclude=hidden)
    assert left.commitment != right.commitment


def test_an_auditor_with_the_key_recomputes_the_commitment():
    """By the definition, with the standard library alone; every step counts, empty batches too."""
    run = Run(MECHANISM, num_examples=5, shape=2, rng=np.random.default_rng(3))
    batches = []
    for batch in run.batches():
        run.noise(batch)
        batches.append(batch)
    assert any(batch.size == 0 for batch in batches)
    key = run.state_dict()["key"].tobytes()
    about = f"{MECHANISM.model_dump_json(exclude={'strategy'})} {MECHANISM.matrix.digest} 5"

    def committed(batches):
        head = hmac.digest(key, b"hockeystick-run/1" + hashlib.sha256(about.encode()).digest(), "sha256")
        for step, batch in enumerate(batches):
            link = head + step.to_bytes(8, "little") + np.asarray(batch, dtype="<i8").tobytes()
            head = hmac.digest(key, link, "sha256")
        return head.hex()

    assert committed(batches) == run.record().commitment
    assert committed([batch for batch in batches if batch.size]) != run.record().commitment


def test_a_record_says_nothing_but_known_promises():
    with pytest.raises(InvalidInputError, match="promise that is known"):
        Check(name="all_is_well", status=Status.CHECKED)
    with pytest.raises(InvalidInputError, match="text that matches"):
        Check(name="all\nis well", status=Status.CHECKED)
    record = run_of().record()
    assert {one.name for one in record.checks} <= set(MEANINGS)
    assert not set(record.checked) & set(record.asserted)


def test_what_a_framework_checked_is_not_asserted():
    record = run_of().record(also_checked=("public_normaliser",))
    assert "public_normaliser" in record.checked
    assert "public_normaliser" not in record.asserted


def test_no_record_has_both_a_certificate_and_a_violation(certificate):
    run = run_of(3)
    with pytest.raises(ViolationError, match="clipping_norm"):
        run.violated("clipping_norm")
    record = run.record(certificate)
    assert record.certificate is None
    assert record.checks[-1] == Check(name="clipping_norm", status=Status.VIOLATED, step=3)
    with pytest.raises(InvalidInputError, match="'certificate' field must be left out"):
        RunRecord.parse(record.model_dump() | {"certificate": certificate})
