"""Compositions of many mechanisms, which are certified on the way."""

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
