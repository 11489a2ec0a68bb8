"""Noise multipliers from moments, against closed forms, laws and other formulas for the same moments."""

from functools import partial
from math import comb, exp, log

import numpy as np
import pytest
from scipy.stats import norm

import hockeystick as hs
from hockeystick.recommendation.moments import (
    _allocation_moments,
    _between,
    _delta,
    _fixed_size_step,
    allocation_noise,
    poisson_delta,
    poisson_noise,
)

STEPS_ROOM = 0.02
"""What estimates of Poisson steps promise."""
ALLOCATION_ROOM = 0.1
"""What estimates of random allocation promise."""


@pytest.mark.parametrize(("noise", "epsilon"), [(0.05, 300.0), (0.5, 6.0), (2.0, 1.0), (40.0, 0.05)])
def test_one_step_that_everybody_is_in_is_a_gaussian(noise: float, epsilon: float) -> None:
    """Balle and Wang (2018), Theorem 8; the closed form is the oracle."""
    mean = 1.0 / noise
    exact = norm.cdf(0.5 * mean - epsilon / mean) - exp(epsilon + norm.logcdf(-0.5 * mean - epsilon / mean))
    assert poisson_delta(noise, 1.0, 1, epsilon, exact) == pytest.approx(exact, rel=0.03)


@pytest.mark.parametrize(("noise", "epsilon"), [(0.15, 50.0), (0.5, 6.0), (2.0, 1.0), (40.0, 0.05)])
def test_a_batch_of_everybody_is_a_gaussian(noise: float, epsilon: float) -> None:
    """There is nobody whose place the example takes: no distance of 2 is left."""
    mean = 1.0 / noise
    exact = norm.cdf(0.5 * mean - epsilon / mean) - exp(epsilon + norm.logcdf(-0.5 * mean - epsilon / mean))
    with np.errstate(divide="ignore"):
        assert _delta(partial(_fixed_size_step, noise, 1.0), 1, epsilon, exact) == pytest.approx(exact, rel=0.03)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.9])
def test_masses_of_a_step_of_a_fixed_size_are_probabilities(rate: float) -> None:
    """Of its likelihood ratio, without the example and with it."""
    with np.errstate(divide="ignore"):
        losses, weights = _fixed_size_step(0.8, rate, 12.0, 0.0)
    assert [np.exp(weights).sum(), np.exp(weights + losses).sum()] == pytest.approx([1.0, 1.0], rel=0.01)


def test_equal_steps_that_everybody_is_in_are_a_gaussian() -> None:
    """Sixteen Gaussians of mean 1 are a Gaussian of mean 4."""
    assert poisson_noise(1.0, 16, 2.0, 1e-6) == pytest.approx(4.0 * poisson_noise(1.0, 1, 2.0, 1e-6), rel=0.01)


@pytest.mark.parametrize(
    ("rate", "steps", "epsilon", "delta"),
    [(256 / 60000, 3516, 1.5, 1e-5), (0.1, 20, 8.0, 1e-5), (1.2e-4, 7200, 10.0, 1.3e-8)],
)
def test_poisson_steps_are_estimated_within_their_room(rate: float, steps: int, epsilon: float, delta: float) -> None:
    mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=rate, steps=steps))
    exact = hs.calibrate(mechanism, epsilon=epsilon, delta=delta, method="direct").sigma
    assert poisson_noise(rate, steps, epsilon, delta) == pytest.approx(exact, rel=STEPS_ROOM)


@pytest.mark.parametrize(
    ("bins", "epochs", "epsilon", "delta"),
    [(2, 1, 2.0, 1e-5), (64, 1, 0.5, 1e-6), (88, 3, 4.0, 1e-6), (235, 15, 1.5, 1e-5)],
)
def test_allocations_are_estimated_within_their_room(bins: int, epochs: int, epsilon: float, delta: float) -> None:
    mechanism = hs.Mechanism(sampler=hs.RandomAllocation(bins=bins, epochs=epochs))
    exact = hs.calibrate(mechanism, epsilon=epsilon, delta=delta, method="direct").sigma
    assert allocation_noise(bins, epochs, epsilon, delta) == pytest.approx(exact, rel=ALLOCATION_ROOM)


def test_moments_of_an_allocation() -> None:
    """The second and the third moment, from which bins two or three independent draws of a bin are equal."""
    noise, bins = 0.7, 5
    moments = _allocation_moments(noise, bins, 3)
    square = exp(1.0 / noise**2)
    pairs = comb(3, 2) / bins * (1.0 - 1.0 / bins)
    second = 1.0 / bins * square + 1.0 - 1.0 / bins
    third = exp(3.0 / noise**2) / bins**2 + pairs * square + (1.0 - 1.0 / bins) * (1.0 - 2.0 / bins)
    assert moments == pytest.approx([0.0, 0.0, log(second), log(third)], abs=1e-9)


def test_a_spline_follows_a_parabola() -> None:
    places = np.linspace(0.0, 6.0, 50)
    assert _between(np.arange(7.0) ** 2, places) == pytest.approx(places**2, abs=1e-9)
