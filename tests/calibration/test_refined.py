"""Rough certificates, and what refines them, against calibrations."""

import pytest

import hockeystick as hs
from hockeystick.calibration.noise_search import WIDTH
from hockeystick.calibration.search import refined_certificate, rough_certificate
from hockeystick.deadline import Deadline

EPSILON, DELTA = 3.0, 1e-5
MECHANISM = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.05, steps=40))


@pytest.fixture(scope="module")
def calibrated() -> float:
    return hs.calibrate(MECHANISM, epsilon=EPSILON, delta=DELTA, method="direct").sigma


@pytest.mark.parametrize("off", [0.9, 1.0, 1.2])
def test_a_rough_certificate_is_refined_to_what_calibrate_finds(calibrated: float, off: float) -> None:
    """From wherever the rough search began; whatever is certified is at most the target."""
    rough = rough_certificate(MECHANISM, epsilon=EPSILON, delta=DELTA, near=off * calibrated, deadline=Deadline())
    refined = refined_certificate(rough, epsilon=EPSILON, delta=DELTA, deadline=Deadline())
    for certificate, room in ((rough, 0.01), (refined, 2.0 * WIDTH)):
        assert certificate.bounds.upper <= EPSILON
        assert certificate.mechanism.sigma == pytest.approx(calibrated, rel=room)
    assert hs.certify(refined.mechanism, delta=DELTA).epsilon.upper <= EPSILON
    assert refined.bounds.lower is not None


def test_a_place_that_is_far_off_is_bracketed(calibrated: float) -> None:
    """A rough certificate of far too much noise: extrapolations from there do not end beside the solution."""
    far = hs.certify(MECHANISM.with_noise(20.0 * calibrated), delta=DELTA, method="direct")
    refined = refined_certificate(far, epsilon=EPSILON, delta=DELTA, deadline=Deadline())
    assert refined.bounds.upper <= EPSILON
    assert refined.mechanism.sigma == pytest.approx(calibrated, rel=2.0 * WIDTH)
