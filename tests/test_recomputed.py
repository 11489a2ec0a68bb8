"""What a report computes again beside a claim: never below what certify says, and nothing without saying so."""

from pathlib import Path

import pytest

import hockeystick as hs
from hockeystick.errors import VerificationError
from hockeystick.recomputed import recomputed, recomputed_together
from hockeystick.types import Side

RUN = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=2.0)


@pytest.fixture(scope="module")
def certificate():
    return hs.certify(RUN, delta=1e-5)


@pytest.fixture(scope="module")
def report(certificate):
    return recomputed(certificate)


def test_no_method_is_said_to_be_better_than_the_certificate(certificate, report):
    assert report.unverified is None
    upper = [outcome.value for outcome in report.outcomes if outcome.side is Side.UPPER and outcome.value is not None]
    lower = [outcome.value for outcome in report.outcomes if outcome.side is Side.LOWER and outcome.value is not None]
    assert min(upper) >= certificate.epsilon.upper
    assert max(lower) <= certificate.epsilon.lower


def test_the_search_for_noise_at_other_epsilons_reports_nothing(certificate):
    """What it would report is no bound on the noise of the certificate."""
    said: list[str] = []
    assert recomputed(certificate, deadline=hs.Deadline(60.0, on_report=said.append)).noise
    assert said == []


def test_every_noise_multiplier_is_certified_for_its_epsilon(certificate, report):
    assert report.noise.keys() >= {1.0, 2.0, 4.0}
    assert list(report.noise) == sorted(report.noise)
    for epsilon, sigma in report.noise.items():
        assert hs.certify(RUN.with_noise(sigma), delta=certificate.delta).epsilon.upper <= epsilon


def test_the_curves_hold_what_the_claim_says(certificate, report):
    upper, lower = report.curve.bounds[Side.UPPER], report.curve.bounds[Side.LOWER]
    assert lower.delta(certificate.epsilon.upper) <= certificate.delta
    assert upper.delta(certificate.epsilon.lower) >= certificate.delta * (1.0 - 1e-9)
    assert report.left_out == ()


def test_a_claim_that_does_not_follow_gets_no_report(certificate):
    low = hs.Interval(lower=None, upper=0.9 * certificate.epsilon.upper)
    claims = certificate.model_copy(update={"epsilon": low}).sealed()
    with pytest.raises(VerificationError):
        recomputed(claims)


def test_a_claim_about_delta_is_drawn_at_its_delta():
    certificate = hs.certify(RUN, epsilon=2.0)
    report = recomputed(certificate)
    assert report.unverified is None
    assert report.curve.numbers["epsilon"][1] == pytest.approx(2.0, rel=1e-3)


def test_what_there_was_no_time_for_is_named(certificate):
    report = recomputed(certificate, deadline=hs.Deadline(0.0))
    assert report.noise == {}
    assert any("noise multipliers at epsilon" in reason for reason in report.left_out)


def test_a_delta_of_zero_has_no_curves():
    certificate = hs.certify(RUN, epsilon=500.0)
    assert certificate.delta.upper < 1e-30
    report = recomputed(certificate)
    assert (report.curve, report.outcomes, report.noise) == (None, (), {})
    assert "claim is about delta" in report.left_out[-1]


def test_a_sampled_claim_below_a_lower_bound_gets_no_report(certificate):
    """Without its samples a Monte Carlo claim is not verified, but it is held against what is proved."""
    folder = Path(__file__).parent / "certification" / "certificates-0.1.0"
    samples = hs.Certificate.load(folder / "monte-carlo.json").monte_carlo
    for factor, refused in ((0.9, True), (1.1, False)):
        bounds = hs.Interval(lower=None, upper=factor * certificate.epsilon.upper)
        sampled = certificate.model_copy(update={"epsilon": bounds, "monte_carlo": samples}).sealed()
        if refused:
            with pytest.raises(VerificationError, match="but epsilon is at least"):
                recomputed(sampled)
        else:
            assert "random samples" in recomputed(sampled).unverified


def test_a_composition_is_asked_at_other_deltas(certificate):
    both = hs.compose([certificate, certificate], delta=1e-5)
    report = recomputed_together(both, deadline=hs.Deadline())
    assert (report.unverified, report.left_out) == (None, ())
    assert report.epsilons[1e-5] == both.epsilon
    gaussian = hs.Mechanism(sampler=hs.Deterministic(bins=10, epochs=2), noise_multiplier=2.0)  # what the two are
    for delta, interval in report.epsilons.items():
        exactly = hs.certify(gaussian, delta=delta).epsilon
        assert interval.lower <= exactly.upper * 1.0001
        assert interval.upper >= exactly.lower
    none = recomputed_together(both, deadline=hs.Deadline(0.0))
    assert "there was no time" in none.unverified
    assert "bounds at delta 1e-09, " in none.left_out[0]


def test_a_composition_that_does_not_follow_gets_no_report(certificate):
    both = hs.compose([certificate, certificate], delta=1e-5)
    low = hs.Interval(lower=None, upper=0.9 * both.epsilon.upper)
    with pytest.raises(VerificationError):
        recomputed_together(both.model_copy(update={"epsilon": low}).sealed(), deadline=hs.Deadline())


@pytest.mark.parametrize(("factor", "refused"), [(0.9, True), (1.0, False)])
def test_a_sampled_composition_has_to_follow_from_its_certificates(certificate, factor, refused):
    """Without the samples the certificates in it stand as they are, but not what is said to follow from them."""
    folder = Path(__file__).parent / "certification" / "certificates-0.1.0"
    samples = hs.Certificate.load(folder / "monte-carlo.json").monte_carlo
    sampled = certificate.model_copy(update={"monte_carlo": samples}).sealed()
    both = hs.compose([sampled, certificate], delta=2e-5)
    bounds = hs.Interval(lower=None, upper=factor * both.epsilon.upper) if refused else both.epsilon
    claim = both.model_copy(update={"epsilon": bounds}).sealed()
    if refused:
        with pytest.raises(VerificationError, match=r"'epsilon\.upper' field claims"):
            recomputed_together(claim, deadline=hs.Deadline())
    else:
        assert "random samples" in recomputed_together(claim, deadline=hs.Deadline()).unverified
