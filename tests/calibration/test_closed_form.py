"""Calibrations that end at the Gaussian's closed form, against that form as scipy computes it."""

from math import exp, sqrt

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import hockeystick as hs
from hockeystick.samplers import Sampler


@pytest.mark.parametrize(
    ("sampler", "epochs"), [(hs.Shuffle(batch_size=50, bins=20, epochs=3), 3), (hs.Deterministic(bins=20, epochs=4), 4)]
)
@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 1e-5), (0.3, 1e-6)])
def test_it_is_the_least_noise_to_two_millionths(sampler: Sampler, epochs: int, epsilon: float, delta: float) -> None:
    def excess(noise: float) -> float:
        mu = sqrt(epochs) / noise
        return float(norm.cdf(0.5 * mu - epsilon / mu) - exp(epsilon) * norm.cdf(-0.5 * mu - epsilon / mu)) - delta

    least = brentq(excess, 0.5, 100.0, xtol=1e-12)
    noise = hs.calibrate(hs.Mechanism(sampler=sampler), epsilon=epsilon, delta=delta).sigma
    assert least * (1.0 - 1e-9) <= noise <= least * (1.0 + 2e-6)
