"""Compositions of many mechanisms, which are certified on the way, and of phases whose laws would take long."""

import pytest

import hockeystick as hs
from hockeystick.accountants import gaussian
from hockeystick.certification.issue import certify_with
from hockeystick.composition.expected import ExpectedEpsilons

DELTA = 1e-5


def test_searches_begin_at_what_mechanisms_with_other_noise_have(monkeypatch):
    """From the third of them on within a hundredth; those with other batches and with far less noise say nothing."""
    guesses = []

    def watched(mechanism, *arguments, near, **options):
        certificate = certify_with(mechanism, *arguments, near=near, **options)
        guesses.append(None if near is None else near / certificate.bounds.upper)
        return certificate

    monkeypatch.setattr("hockeystick.composition.compose.certify_with", watched)
    monkeypatch.setattr("hockeystick.composition.compose.FEW_MECHANISMS", 2)
    many, other = hs.Poisson(sampling_prob=0.05, steps=60), hs.Poisson(sampling_prob=0.05, steps=61)
    runs = [hs.Mechanism(sampler=many, noise_multiplier=noise) for noise in (1.0, 1.04, 1.08, 1.02, 1.1)]
    runs += [hs.Mechanism(sampler=other, noise_multiplier=1.0), hs.Mechanism(sampler=many, noise_multiplier=4.0)]
    hs.compose(runs, delta=DELTA)
    assert [guess is None for guess in guesses] == [True, True, False, False, False, True, True]
    assert all(guess is None or abs(guess - 1.0) < 1e-2 for guess in guesses)


def test_a_search_without_amplification_does_not_begin_at_what_is_certified(monkeypatch):
    """The epsilon of the Gaussian is a hundred times as large here, and found in a few evaluations."""
    monkeypatch.setattr("hockeystick.composition.compose.FEW_MECHANISMS", 2)
    asked, profile = [], gaussian._Profile.__call__

    def watched(self, epsilon):
        asked.append(epsilon)
        return profile(self, epsilon)

    monkeypatch.setattr(gaussian._Profile, "__call__", watched)
    sampler = hs.Poisson(sampling_prob=0.01, steps=100)
    runs = [hs.Mechanism(sampler=sampler, noise_multiplier=noise) for noise in (2.0, 2.1, 2.2)]
    hs.compose(runs[:2], delta=DELTA)
    few, asked[:] = list(asked), []
    certificates = hs.compose(runs, delta=DELTA).certificates
    assert len(asked) - len(few) <= 8
    assert certificates[2].without_amplification > 50.0 * certificates[2].epsilon.upper
    alone = hs.certify(runs[2], delta=DELTA)
    assert certificates[2].without_amplification == pytest.approx(alone.without_amplification, rel=2e-9)


def test_epsilons_that_make_no_sense_are_no_guesses():
    """None where epsilon is 0 or rises with the noise."""
    run, expected = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.05, steps=60)), ExpectedEpsilons()
    for noise, epsilon in ((1.0, 0.0), (1.1, 1.0), (1.2, 1.5)):
        expected.learn(run.with_noise(noise), epsilon)
    assert expected.of(run.with_noise(1.15)) is None


def test_many_mechanisms_are_certified_without_their_whole_profiles(monkeypatch):
    """Attack numbers take most of the time of a certificate; each says what it was made from, and the claim is one."""
    monkeypatch.setattr("hockeystick.composition.compose.FEW_MECHANISMS", 2)
    runs = [hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=sigma) for sigma in (3.0, 4.0, 5.0, 3.0)]
    few, many = hs.compose([runs[0], runs[1]], delta=DELTA), hs.compose(runs, delta=DELTA)
    assert [run.numbers.basis for run in few.certificates] == ["profile"] * 2
    assert [run.numbers.basis for run in many.certificates] == ["claim"] * 3, "equal mechanisms have one certificate"
    alone = [hs.certify(run, delta=DELTA) for run in runs[:3]]
    assert [run.epsilon for run in few.certificates] == [run.epsilon for run in alone[:2]]
    for short, full in zip(many.certificates, alone, strict=True):  # searches end within 1e-9, wherever they begin
        assert short.epsilon.upper == pytest.approx(full.epsilon.upper, rel=2e-9)
        assert short.epsilon.lower == pytest.approx(full.epsilon.lower, rel=2e-9)
    assert many.epsilon == hs.compose([*alone, alone[0]], delta=DELTA).epsilon
    for short, full in zip(many.certificates, alone, strict=True):
        assert short.numbers.advantage >= full.numbers.advantage
    hs.verify(many)


def test_phases_of_random_allocation_need_no_law(monkeypatch):
    """One transform of all epochs says what their laws say, and both sides are closer; bins that are replayed too."""
    samplers = [hs.RandomAllocation(bins=20, epochs=2), hs.BallsInBins(bins=30, epochs=3)]
    runs = [hs.certify(hs.Mechanism(sampler=sampler, noise_multiplier=1.5), delta=DELTA) for sampler in samplers]
    runs = [runs[0], runs[1], runs[0]]
    with monkeypatch.context() as patched:
        patched.setattr("hockeystick.composition.compose._phases", lambda runs, smallest: None)
        laws = hs.compose(runs, delta=DELTA).epsilon

    def law(*arguments):
        raise AssertionError("a law was made")

    with monkeypatch.context() as patched:
        patched.setattr("hockeystick.composition.compose.composed_powers", law)
        epsilon = hs.compose(runs, delta=DELTA).epsilon
    assert laws.lower <= epsilon.lower <= epsilon.upper <= laws.upper
    assert epsilon.upper - epsilon.lower <= 0.7 * (laws.upper - laws.lower)
    asked = hs.compose(runs, epsilon=epsilon.upper).delta
    assert asked.lower <= DELTA
    assert asked.upper <= DELTA * 1.01
