"""Addenda: what follows from their evidence, what is derived again, and what is refused."""

import json
import time
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import hockeystick as hs
from hockeystick import noise
from hockeystick.audit import annex, parts
from hockeystick.audit.addendum_format import FORMAT, is_addendum
from hockeystick.audit.annex import Addendum, Outcome, _sealed, addendum, json_schema
from hockeystick.errors import BudgetExceededError, InvalidInputError, VerificationError

MECHANISM = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.2, steps=5), noise_multiplier=1.0)
CERTIFICATE = hs.state(hs.certify(MECHANISM, delta=0.01, method="direct"), hs.Statements(num_examples=300))
FIXED = hs.certify(hs.Mechanism(sampler=hs.Deterministic(bins=2), noise_multiplier=1.0), delta=1e-5, method="gaussian")


@pytest.fixture(scope="module")
def made():
    """False failure with probability at most 1e-3; the seed is fixed."""
    return addendum(CERTIFICATE, seed=3, samples=1000)


def outcomes(addendum):
    return {check.assumption: check.outcome for check in addendum.checks}


def test_every_assumption_is_listed_with_what_is_known_of_it(made):
    assert [check.assumption for check in made.checks] == [assumption.name for assumption in CERTIFICATE.assumptions]
    assert outcomes(made) == {
        "batches": Outcome.PASSED,
        "noise": Outcome.PASSED,
        "normaliser": Outcome.NOT_TESTED,
        "secrecy": Outcome.NOT_TESTED,
        "theorem": Outcome.HOLDS,
    }
    assert made.checks[0].by == ("sampler", "mechanism")
    assert made.level == pytest.approx(1e-3)
    assert not made.refuted
    assert made.certificate.digest == CERTIFICATE.digest
    text = str(made)
    assert CERTIFICATE.digest[:16] in text
    assert "not tested" in text
    assert "seed 3" in text
    assert made._repr_html_().startswith("<pre>addendum")


def test_it_follows_from_its_seeds(made, tmp_path):
    assert addendum(CERTIFICATE, seed=3, samples=1000) == made
    assert addendum(CERTIFICATE, seed=4, samples=1000, parts=["noise"]).evidence[0].verdict != made.evidence[1].verdict
    made.save(tmp_path / "addendum.json")
    loaded = Addendum.load(tmp_path / "addendum.json")
    assert loaded == made
    assert loaded.verify() is loaded
    assert is_addendum(tmp_path / "addendum.json")
    CERTIFICATE.save(tmp_path / "certificate.json")
    assert not is_addendum(tmp_path / "certificate.json")


def test_a_deadline_ends_the_derivation(made):
    with pytest.raises(BudgetExceededError):
        made.verify(deadline=hs.Deadline(0.0))
    started = time.monotonic()
    many = made.model_copy(update={"evidence": evidence(made, 2, samples=10**9)}).sealed()
    with pytest.raises(BudgetExceededError):
        many.verify(deadline=hs.Deadline(3.0))
    assert time.monotonic() - started < 15.0


def test_a_deadline_ends_the_audit_of_many_batches():
    """The certificate is recomputed at once; the batches would take an hour."""
    mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.5, steps=100_000), noise_multiplier=300.0)
    short = addendum(CERTIFICATE, parts=["sampler"], seed=3).evidence
    long = _sealed(hs.certify(mechanism, delta=1e-5), short)
    started = time.monotonic()
    with pytest.raises(BudgetExceededError):
        long.verify(deadline=hs.Deadline(1.0))
    assert time.monotonic() - started < 15.0


def test_ten_minutes_are_allowed_unless_said_otherwise(made, monkeypatch):
    monkeypatch.setattr(annex, "DEFAULT_BUDGET", 1.0)
    many = made.model_copy(update={"evidence": evidence(made, 2, samples=10**9)}).sealed()
    with pytest.raises(BudgetExceededError):
        many.verify()


def altered(addendum, **changes):
    """Another addendum whose digests are right."""
    return addendum.model_copy(update=changes).sealed()


def evidence(addendum, place, **changes):
    pieces = list(addendum.evidence)
    pieces[place] = pieces[place].model_copy(update=changes)
    return tuple(pieces)


def verdict(addendum, place, **changes):
    return evidence(addendum, place, verdict=addendum.evidence[place].verdict.model_copy(update=changes))


FORGERIES = {
    "another seed": lambda addendum: altered(addendum, evidence=evidence(addendum, 1, seed=99)),
    "fewer samples than said": lambda addendum: altered(addendum, evidence=evidence(addendum, 2, samples=500)),
    "a kinder level": lambda addendum: altered(addendum, evidence=evidence(addendum, 1, level=0.2)),
    "a larger audited epsilon": lambda addendum: altered(
        addendum,
        evidence=verdict(addendum, 2, epsilon=addendum.evidence[2].verdict.epsilon.model_copy(update={"audited": 0.5})),
    ),
    "more numbers of noise": lambda addendum: altered(addendum, evidence=verdict(addendum, 1, samples=10**9)),
    "another claim": lambda addendum: altered(addendum, evidence=verdict(addendum, 0, claimed={})),
    "no findings": lambda addendum: altered(addendum, evidence=verdict(addendum, 0, findings=())),
    "a test that nobody made": lambda addendum: altered(
        addendum,
        checks=(
            *addendum.checks[:2],
            addendum.checks[2].model_copy(update={"outcome": Outcome.PASSED}),
            *addendum.checks[3:],
        ),
    ),
    "an assumption left out": lambda addendum: altered(addendum, checks=addendum.checks[1:]),
    "other words": lambda addendum: altered(
        addendum, checks=(addendum.checks[0].model_copy(update={"text": "."}), *addendum.checks[1:])
    ),
    "a smaller level in all": lambda addendum: altered(addendum, level=1e-9),
    "another certificate": lambda addendum: altered(
        addendum, certificate=CERTIFICATE.model_copy(update={"sensitivity": 0.5}).sealed()
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_that_are_sealed_again_do_not_verify(made, name):
    with pytest.raises(VerificationError):
        FORGERIES[name](made).verify()


def test_what_was_altered_is_refused_when_it_is_read(made, tmp_path):
    path = tmp_path / "addendum.json"
    for old, new in ((f'"seed": {3}', '"seed": 5'), ('"sensitivity": 1.0', '"sensitivity": 0.5')):
        text = made.model_dump_json(indent=2)
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(VerificationError, match="altered"):
            Addendum.load(path)
    with pytest.raises(VerificationError, match="altered"):
        made.model_copy(update={"level": 0.5}).verify()


@pytest.mark.parametrize("says", ["two\nlines", "\x1b[2J", "a" * 301])
def test_sentences_cannot_pretend_to_be_lines_of_the_addendum(made, says, tmp_path):
    content = json.loads(made.model_dump_json())
    content["evidence"][0]["verdict"]["findings"][0]["says"] = says
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(InvalidInputError, match="one line"):
        Addendum.load(tmp_path / "a.json")


@pytest.mark.parametrize("change", [{"outcome": "holds"}, {"text": "proved\n  verified"}, {"by": ["canaries"]}])
def test_checks_that_do_not_follow_are_refused_when_they_are_read(made, change, tmp_path):
    content = json.loads(made.model_dump_json())
    content["checks"][2] |= change
    Addendum.parse_json(json.dumps(content)).sealed().save(tmp_path / "a.json")
    with pytest.raises(VerificationError, match="checks"):
        Addendum.load(tmp_path / "a.json")


def test_words_of_the_certificate_cannot_pretend_to_be_lines_of_the_addendum(made):
    texts = {"text": "proved\n  verified: all"}
    assumptions = tuple(assumption.model_copy(update=texts) for assumption in CERTIFICATE.assumptions)
    certificate = CERTIFICATE.model_copy(update={"sentence": "true\nverified", "assumptions": assumptions}).sealed()
    forged = _sealed(certificate, made.evidence)
    assert len(str(forged).splitlines()) == len(str(made).splitlines())


def test_a_refuted_assumption_is_said_to_be(monkeypatch):
    """Noise that is too small, in the library itself."""
    monkeypatch.setattr(noise.NoiseStream, "in_clipping_norms", lambda stream: (0.9 * row for row in stream))
    refuted = addendum(CERTIFICATE, parts=["noise"], seed=1)
    assert refuted.refuted
    assert outcomes(refuted) | {"noise": None, "theorem": None} == dict.fromkeys(
        outcomes(refuted), Outcome.NOT_TESTED
    ) | {
        "noise": None,
        "theorem": None,
    }
    assert outcomes(refuted)["noise"] is Outcome.REFUTED
    assert "refuted" in str(refuted)
    assert refuted.verify() is refuted
    monkeypatch.undo()
    with pytest.raises(VerificationError, match=r"evidence\.0"):
        refuted.verify()


def with_canaries(mu):
    """Scores of 400 canaries of a Gaussian; the certificate counts them and 100 real examples."""
    canaries = hs.audit.canaries(400, num_examples=100, size=400, seed=7)
    scores = np.random.default_rng(0).normal(size=400) + mu * canaries.included
    return hs.audit.CanaryScores(seed=7, num_examples=100, observed=True, scores=tuple(scores.tolist()))


def test_canaries_are_evidence_too(tmp_path):
    """False failure with probability at most 1e-3; the seeds are fixed."""
    scores = with_canaries(1.0)
    scores.save(tmp_path / "scores.json")
    assert hs.audit.CanaryScores.load(tmp_path / "scores.json") == scores
    audited = addendum(FIXED, parts=["noise"], canaries=scores, seed=1)
    assert not audited.refuted
    assert audited.checks[0].by == ("canaries",)
    assert audited.checks[1].by == ("noise", "canaries")
    assert audited.evidence[1].verdict.epsilon.audited > 1.0
    assert audited.verify() is audited
    forged = altered(audited, evidence=evidence(audited, 1, canaries=scores.model_copy(update={"seed": 8})))
    with pytest.raises(VerificationError, match=r"evidence\.1"):
        forged.verify()
    refuted = addendum(FIXED, parts=["noise"], canaries=with_canaries(3.0), seed=1)
    assert refuted.refuted
    assert not refuted.evidence[0].verdict.refuted
    assert outcomes(refuted)["noise"] is outcomes(refuted)["batches"] is Outcome.REFUTED
    counted = hs.state(FIXED, hs.Statements(num_examples=100))
    with pytest.raises(InvalidInputError, match="500 examples"):
        addendum(counted, parts=[], canaries=scores)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"parts": ["model"]}, "parts"),
        ({"parts": []}, "parts"),
        ({"level": 1.0}, "level"),
        ({"samples": 0}, "samples"),
        ({"num_examples": 200}, "must be 300"),
        ({"certificate": FIXED, "parts": ["sampler"]}, "num_examples"),
        ({"certificate": hs.certify(MECHANISM, epsilon=1.0, method="direct"), "num_examples": 10}, "at a delta"),
    ],
)
def test_bad_input_is_named(arguments, says):
    with pytest.raises(InvalidInputError, match=says):
        addendum(**({"certificate": CERTIFICATE, "seed": 1, "samples": 100} | arguments))


def test_evidence_has_what_its_audit_needs(made, tmp_path):
    content = json.loads(made.model_dump_json())
    del content["evidence"][0]["num_examples"]
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(InvalidInputError, match="num_examples"):
        Addendum.load(tmp_path / "a.json")


def test_the_schema_in_the_package_is_that_of_the_code(made):
    """``python docs/make_reference.py`` writes it; without a change of the format it has to stay as it is."""
    packed = json.loads(files("hockeystick.audit").joinpath("addendum.schema.json").read_text())
    assert packed == json_schema()
    assert packed["properties"]["format"]["const"] == FORMAT
    assert packed["additionalProperties"] is False
    assert set(json.loads(made.model_dump_json())) == set(packed["properties"])
    assert Path(parts.__file__).with_name("addendum.schema.json").exists()
