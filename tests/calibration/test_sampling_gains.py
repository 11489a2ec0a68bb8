"""Allowing samples never takes more noise, for the plans of the examples. The long ones run weekly."""

from pathlib import Path

import pytest

import hockeystick as hs
from hockeystick.calibration.search import WIDTH, _would_take, calibrate_and_certify
from hockeystick.certification.verification import verify

PLANS = sorted((Path(__file__).parents[2] / "examples" / "plans").glob("*.toml"))
QUICK = {"cifar10-poisson", "mnist-poisson", "cifar10-cyclic-poisson"}


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path.stem in QUICK else pytest.mark.weekly, id=path.stem) for path in PLANS],
)
def test_allowing_samples_never_takes_more_noise(path: Path) -> None:
    """Up to the width of the search, as delta pays for tests that refuse."""
    plan = hs.Plan.load(path)
    without = hs.calibrate(plan)
    allowed = calibrate_and_certify(plan, monte_carlo=hs.MonteCarlo(seed=1))
    assert allowed.mechanism.sigma <= without.sigma * (1.0 + WIDTH)
    if allowed.monte_carlo is None and not allowed.cut_off:
        assert allowed.mechanism.sigma <= without.sigma


def test_a_certificate_says_what_samples_would_have_taken_and_verifies() -> None:
    run = hs.Mechanism(sampler=hs.Deterministic(bins=10))
    certificate = calibrate_and_certify(run, epsilon=2.0, delta=1e-5)
    said = _would_take(certificate, 34.5)
    (left,) = said.cut_off
    assert (left.method, left.seconds) == ("monte_carlo", 34.5)
    assert "monte_carlo (upper, about 34 s)" in str(said) or "monte_carlo (upper, about 35 s)" in str(said)
    assert verify(said).bounds == certificate.bounds
