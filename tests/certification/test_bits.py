"""Certificates of exact noise: what they say of bits, and that nothing else says it."""

import json

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.certificate import Certificate
from hockeystick.certification.verification import verify
from hockeystick.errors import InvalidInputError, UnsupportedError, VerificationError
from hockeystick.evidence.store import EvidenceStore
from hockeystick.interop.deployments_registry import registry_entry
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.report.certificate import document
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix


def run(strategy=None, *, exact=True, sigma=1.0):
    return hs.Mechanism(
        strategy=strategy or hs.Identity(),
        sampler=hs.Poisson(sampling_prob=0.01, steps=100),
        noise_multiplier=sigma,
        exact=exact,
    )


@pytest.fixture(scope="module")
def certificate():
    return hs.certify(run(), delta=1e-5)


def test_it_says_what_of_the_bits_is_proved_assumed_and_not_covered(certificate, tmp_path):
    assert "Everything computed from the released sums, in any arithmetic." in certificate.bits.covered
    assert any("invariance" in sentence for sentence in certificate.bits.assumed)
    assert any("How long" in sentence for sentence in certificate.bits.not_covered)
    assert "bits              noise and sums are covered, if gradients are invariant" in str(certificate)
    assert not any("floating-point" in caveat for caveat in certificate.caveats)
    assert {"noise", "invariance"} <= {one.name for one in certificate.assumptions}
    assert "docs/theory/exact-noise.md" in certificate.references
    rows = {row.name for section in document(certificate).sections for row in section.rows}
    assert {"bits covered", "bits assumed", "bits not covered", "lower end"} <= rows
    assert "How long" in registry_entry(certificate)["deployment"]["dp_variant"]["unprotected_quantities"]
    certificate.save(tmp_path / "exact.json")
    verify(Certificate.load(tmp_path / "exact.json"))


def test_a_certificate_of_other_noise_says_nothing_of_bits():
    plain = hs.certify(run(exact=False), delta=1e-5)
    assert plain.bits is None
    assert "bits" not in plain.content()
    assert any("floating-point" in caveat for caveat in plain.caveats)


def test_the_bounds_are_those_of_the_rounded_matrix():
    """The identity is its own rounding; bands are not, and their sensitivity is that of the rounded ones."""
    assert hs.certify(run(), delta=1e-5).epsilon == hs.certify(run(exact=False), delta=1e-5).epsilon
    banded = run(hs.BandedToeplitz(bands=3), sigma=2.0)
    exact, plain = (hs.certify(one, delta=1e-5) for one in (banded, banded.model_copy(update={"exact": False})))
    assert isinstance(banded.matrix, ToeplitzMatrix)
    assert exact.sensitivity == banded.matrix.max_column_norm != plain.sensitivity
    assert exact.epsilon.upper == pytest.approx(plain.epsilon.upper, rel=1e-5)


@pytest.mark.parametrize("changed", [{"bits": None}, {"mechanism": {"exact": False}}, {"generator": "torch"}])
def test_a_block_that_does_not_belong_to_the_mechanism_is_refused(certificate, changed):
    content = json.loads(certificate.file_text())
    content["mechanism"] |= changed.get("mechanism", {})
    if "bits" in changed:
        del content["bits"]
    if "generator" in changed:
        content["generator"] = {"name": "jax-float32", "lowest": -5.0, "highest": 5.0, "floor": 0.0}
    with pytest.raises(InvalidInputError, match=r"'(bits|generator)' field must be"):
        Certificate.parse_json(json.dumps(content))


def test_a_block_that_says_more_does_not_verify(certificate):
    more = certificate.bits.model_copy(update={"not_covered": ()})
    forged = certificate.model_copy(update={"bits": more}).sealed()
    with pytest.raises(VerificationError, match="bits"):
        verify(forged)


def test_noise_of_another_library_is_not_exact():
    with pytest.raises(InvalidInputError, match=r"'generator' argument must be left out for an exact mechanism"):
        hs.certify(run(), delta=1e-5, generator="jax-float32")


def test_a_strategy_without_whole_numbers_is_refused_before_any_work():
    with pytest.raises(UnsupportedError, match="sum of decaying powers"):
        hs.certify(run(hs.BufferedToeplitz(buffers=2)), delta=1e-5)


def test_a_plan_asks_for_it_and_keeps_it(tmp_path):
    text = """
    [data]
    num_examples = 1000
    batch_size = 10
    epochs = 1
    [sampler]
    kind = "poisson"
    [noise]
    exact = true
    """
    (tmp_path / "plan.toml").write_text(text)
    plan = hs.Plan.load(tmp_path / "plan.toml")
    assert plan.mechanism(1.0).exact
    assert plan.mechanism(1.0).with_noise(2.0).exact
    assert hs.calibrate(plan, epsilon=2.0, delta=1e-5).exact
    (tmp_path / "again.toml").write_text(plan.file_text())
    assert hs.Plan.load(tmp_path / "again.toml") == plan


def test_the_lower_end_of_trees_is_about_all_nodes():
    """Two steps of a tree in one batch: what is released shows less than the nodes do."""
    tree = hs.Mechanism(
        strategy=hs.BinaryTree(), sampler=hs.Deterministic(bins=1, epochs=2), noise_multiplier=2.0, exact=True
    )
    said = hs.certify(tree, delta=1e-5)
    assert "every node of the trees" in said.bits.lower_end
    assert "every node" not in hs.certify(run(), delta=1e-5).bits.lower_end
    released = tree.matrix.solve(np.eye(tree.matrix.rows))  # W, of the mechanism W y
    covariance = released @ released.T
    shift = np.ones(2)
    mu = np.sqrt(shift @ np.linalg.solve(covariance, shift)) / 2.0
    assert gaussian_delta(mu, 1.0, said.epsilon.lower, hs.Side.UPPER) < 1e-5


@pytest.mark.parametrize("form", ["hockeystick-certificate/1", "hockeystick-certificate/2"])
def test_exact_mechanisms_belong_to_format_3(form, certificate):
    content = json.loads(certificate.file_text()) | {"format": form}
    with pytest.raises(InvalidInputError, match=r"field"):
        Certificate.parse_json(json.dumps(content))


@pytest.mark.parametrize(
    "strategy", [hs.BandedToeplitz(bands=3), hs.BandedInverse(bands=2), hs.ColumnNormalizedBanded(bands=3)]
)
def test_a_store_keeps_the_matrices_of_exact_mechanisms(strategy, tmp_path):
    """As the strategy holds them, before they are rounded; the second opening reads them again."""
    for _ in range(2):
        with EvidenceStore.open(tmp_path / "evidence.db") as store:
            pinned = store.pinned(run(strategy, sigma=2.0))
            assert pinned.exact
            assert pinned.matrix.digest == run(strategy, sigma=2.0).matrix.digest
            store.check()
