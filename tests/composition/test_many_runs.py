"""Compositions of many mechanisms, which are certified on the way, and of phases whose laws would take long."""

import hockeystick as hs

DELTA = 1e-5


def test_many_mechanisms_are_certified_without_their_whole_profiles(monkeypatch):
    """Attack numbers take most of the time of a certificate; each says what it was made from, and the claim is one."""
    monkeypatch.setattr("hockeystick.composition.compose.FEW_MECHANISMS", 2)
    runs = [hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=sigma) for sigma in (3.0, 4.0, 5.0, 3.0)]
    few, many = hs.compose([runs[0], runs[1]], delta=DELTA), hs.compose(runs, delta=DELTA)
    assert [run.numbers.basis for run in few.certificates] == ["profile"] * 2
    assert [run.numbers.basis for run in many.certificates] == ["claim"] * 3, "equal mechanisms have one certificate"
    alone = [hs.certify(run, delta=DELTA) for run in runs[:3]]
    assert [run.epsilon for run in many.certificates] == [run.epsilon for run in alone]
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
