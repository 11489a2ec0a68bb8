"""What a report computes again beside a claim: never below what certify says, and nothing without saying so."""

import pytest

import hockeystick as hs
from hockeystick.errors import VerificationError
from hockeystick.recomputed import recomputed
from hockeystick.types import Side

RUN = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=2.0)


@pytest.fixture(scope="module")
def certificate():
    return hs.certify(RUN, delta=1e-5)


@pytest.fixture(scope="module")
def found(certificate):
    return recomputed(certificate)


def test_no_method_is_said_to_be_better_than_the_certificate(certificate, found):
    assert found.verified
    upper = [one.value for one in found.outcomes if one.side is Side.UPPER and one.value is not None]
    lower = [one.value for one in found.outcomes if one.side is Side.LOWER and one.value is not None]
    assert min(upper) >= certificate.epsilon.upper
    assert max(lower) <= certificate.epsilon.lower


def test_every_noise_multiplier_is_certified_for_its_epsilon(certificate, found):
    assert found.noise.keys() >= {1.0, 2.0, 4.0}
    assert list(found.noise) == sorted(found.noise)
    for epsilon, sigma in found.noise.items():
        assert hs.certify(RUN.with_noise(sigma), delta=certificate.delta).epsilon.upper <= epsilon


def test_the_curves_hold_what_the_claim_says(certificate, found):
    upper, lower = found.curve.bounds[Side.UPPER], found.curve.bounds[Side.LOWER]
    assert lower.delta(certificate.epsilon.upper) <= certificate.delta
    assert upper.delta(certificate.epsilon.lower) >= certificate.delta * (1.0 - 1e-9)
    assert found.left_out == ()


def test_a_claim_that_does_not_follow_gets_no_report(certificate):
    low = hs.Interval(lower=None, upper=0.9 * certificate.epsilon.upper)
    claims = certificate.model_copy(update={"epsilon": low}).sealed()
    with pytest.raises(VerificationError):
        recomputed(claims)


def test_a_claim_about_delta_is_drawn_at_its_delta():
    certificate = hs.certify(RUN, epsilon=2.0)
    found = recomputed(certificate)
    assert found.verified
    assert found.curve.numbers["epsilon"][1] == pytest.approx(2.0, rel=1e-3)


def test_what_there_was_no_time_for_is_named(certificate):
    found = recomputed(certificate, deadline=hs.Deadline(0.0))
    assert found.noise == {}
    assert any("noise multipliers at epsilon" in one for one in found.left_out)


def test_a_delta_of_zero_has_no_curves():
    certificate = hs.certify(RUN, epsilon=500.0)
    assert certificate.delta.upper < 1e-30
    found = recomputed(certificate)
    assert (found.curve, found.outcomes, found.noise) == (None, (), {})
    assert "claim is about delta" in found.left_out[-1]
