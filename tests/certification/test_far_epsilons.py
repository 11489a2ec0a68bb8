"""Epsilons up to 700, where doubles end, and down to 0: certify, calibrate and what they say beyond."""

import sys
from math import log
from pathlib import Path

import pytest
from scipy.optimize import brentq

sys.path.insert(0, str(Path(__file__).parents[1] / "laws"))

from law_oracles import contour_delta, gaussian_delta

import hockeystick as hs
from hockeystick.errors import CannotCertifyError, InvalidInputError
from hockeystick.samplers import Sampler

POISSON = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=30))
DELTA = 1e-5


def exact_delta(sampler: Sampler, sigma: float, epsilon: float) -> float:
    """delta at a large epsilon, in closed form or by a contour integral.

    A secret choice among n has ``X = (X_1 + ... + X_n) / n``, of which P knows one. Far out the others, of mean 1 under
    Q, do not matter beside it: delta is that of the one at epsilon + log n.
    """
    if isinstance(sampler, hs.Poisson | hs.CyclicPoisson):
        groups = sampler.groups if isinstance(sampler, hs.CyclicPoisson) else 1
        secret = groups if groups > 1 and sampler.partition == "independent" else 1
        return contour_delta(sampler.sampling_prob, sampler.steps // groups, sigma, epsilon + log(secret))
    assert sampler.epochs == 1 or not isinstance(sampler, hs.RandomAllocation)
    secret = 1 if isinstance(sampler, hs.Deterministic) else sampler.bins
    return float(gaussian_delta(sampler.epochs**0.5 / sigma, epsilon + log(secret)))


@pytest.mark.parametrize(
    ("sampler", "sigma"),
    [
        (POISSON.sampler, 0.14),
        (POISSON.sampler, 0.12),
        (POISSON.sampler, 0.1),
        (POISSON.sampler, 0.0915),
        (hs.Deterministic(bins=3, epochs=4), 0.0721),
        (hs.Deterministic(bins=3, epochs=4), 0.0638),
        (hs.RandomAllocation(bins=50), 0.04),
        (hs.RandomAllocation(bins=50), 0.0305),
        (hs.BallsInBins(bins=20, epochs=10), 0.11),
        (hs.CyclicPoisson(groups=4, sampling_prob=0.2, steps=40), 0.1),
        (hs.CyclicPoisson(groups=4, sampling_prob=0.2, steps=40, partition="independent"), 0.1),
    ],
    ids=lambda one: getattr(one, "kind", str(one)),
)
def test_both_sides_are_within_a_percent(sampler: Sampler, sigma: float) -> None:
    certificate = hs.certify(hs.Mechanism(sampler=sampler, noise_multiplier=sigma), delta=DELTA)
    lower, upper = certificate.bounds.lower, certificate.bounds.upper
    assert lower is not None
    assert 280.0 < lower <= upper <= min(1.01 * lower, 700.0)
    assert exact_delta(sampler, sigma, upper) <= DELTA <= exact_delta(sampler, sigma, lower)
    assert certificate.method.upper == ("gaussian" if isinstance(sampler, hs.Deterministic) else "direct")


@pytest.mark.parametrize("epsilon", [300.0, 400.0])
def test_delta_at_a_large_epsilon(epsilon: float) -> None:
    certificate = hs.certify(POISSON.with_noise(0.12), epsilon=epsilon)
    exact = contour_delta(0.1, 30, 0.12, epsilon)
    assert certificate.bounds.lower is not None
    assert 0.99 * exact <= certificate.bounds.lower <= exact <= certificate.bounds.upper <= 1.01 * exact


@pytest.mark.parametrize("epsilon", [400.0, 600.0])
def test_a_large_target_is_met_and_not_undershot(epsilon: float) -> None:
    """The noise multiplier falls by 0.1 percent where epsilon grows by less than 0.3."""
    certificate = hs.calibrate_and_certify(POISSON, epsilon=epsilon, delta=DELTA)
    assert 0.997 * epsilon <= certificate.bounds.upper <= epsilon
    hs.verify(certificate)


@pytest.mark.parametrize("method", [None, "direct"])
@pytest.mark.parametrize("sigma", [0.08, 0.02])
def test_beyond_700_one_sentence_says_so(method: str | None, sigma: float) -> None:
    with pytest.raises(CannotCertifyError) as caught:
        hs.certify(POISSON.with_noise(sigma), delta=DELTA, method=method)
    said = str(caught.value)
    assert "no epsilon of at most 700" in said or "an epsilon of at most 700" in said
    assert f"noise_multiplier = {sigma:g}, and larger ones leave the range of doubles; use more noise" in said
    assert said.count(".") == str(sigma).count(".") + 1


@pytest.mark.parametrize("call", [hs.certify, hs.calibrate], ids=lambda one: one.__name__)
def test_no_question_goes_beyond_700(call) -> None:
    more = {"delta": DELTA} if call is hs.calibrate else {}
    with pytest.raises(InvalidInputError, match=r"'epsilon' field must be .*700\. Got 700\.5 instead"):
        call(POISSON.with_noise(1.0), epsilon=700.5, **more)


def test_an_epsilon_of_0_is_known_from_both_sides() -> None:
    """At most (2 Phi(1/2) - 1) times the rate of an advantage is below delta."""
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.00105, steps=1), noise_multiplier=1.0)
    certificate = hs.certify(run, delta=1e-3)
    assert (certificate.bounds.lower, certificate.bounds.upper) == (0.0, 0.0)
    hs.verify(certificate)


@pytest.mark.parametrize("sampler", [hs.Deterministic(bins=10, epochs=3), hs.Poisson(sampling_prob=0.5, steps=10)])
def test_a_target_of_1e_5_is_calibrated(sampler: Sampler) -> None:
    certificate = hs.calibrate_and_certify(hs.Mechanism(sampler=sampler), epsilon=1e-5, delta=DELTA)
    assert 0.99e-5 <= certificate.bounds.upper <= 1e-5
    if isinstance(sampler, hs.Deterministic):
        sigma = brentq(lambda sigma: float(gaussian_delta(3**0.5 / sigma, 1e-5)) - DELTA, 1e4, 1e6)
        assert certificate.mechanism.sigma == pytest.approx(sigma, rel=1e-3)
        assert 4.5e4 < sigma < 5.5e4
