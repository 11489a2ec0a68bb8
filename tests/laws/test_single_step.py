"""The profile of a single Poisson step against sixty digits, and what certificates make of it."""

from math import log1p

import mpmath as mp
import numpy as np
import pytest

import hockeystick as hs
from hockeystick.certification.schedule import EPSILON_NODES
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.operations import thin
from hockeystick.laws.profile import law_delta
from hockeystick.laws.single_step import single_step
from hockeystick.types import Direction, Side


def truth(rate: float, sigma: float, epsilon: float, direction: Direction) -> mp.mpf:
    """The divergence, as an integral between the two sides of the point at which the densities are as asked."""
    q, mu, threshold = mp.mpf(rate), 1 / mp.mpf(sigma), mp.exp(mp.mpf(epsilon))
    ratio = threshold if direction is Direction.REMOVE else 1 / threshold
    if ratio <= 1 - q:
        return mp.mpf(0)
    z = mp.log((ratio - 1 + q) / q) / mu + mu / 2  # where p = ratio q
    if direction is Direction.REMOVE:
        return (1 - q) * mp.ncdf(-z) + q * mp.ncdf(mu - z) - threshold * mp.ncdf(-z)
    return mp.ncdf(z) - threshold * ((1 - q) * mp.ncdf(z) + q * mp.ncdf(z - mu))


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("sigma", [0.1, 0.7, 1.0, 8.0, 100.0])
def test_both_sides_hold_the_truth_closely(sigma: float, direction: Direction) -> None:
    """Sides are as far apart as those of the Gaussian itself, but for add near 1 - q, where a difference cancels."""
    numbers = np.random.default_rng(0)
    with mp.workdps(60):
        for rate in (1e-12, 1e-5, 0.01, 0.5, 0.999):
            end = -log1p(-rate)
            for epsilon in (
                0.0,
                *10.0 ** numbers.uniform(-9.0, 2.8, 20),
                *(end * numbers.uniform(0.0, 1.0, 20)),
                700.0,
            ):
                lower, upper = single_step(rate, sigma, float(epsilon), direction)
                exact = truth(rate, sigma, float(epsilon), direction)
                assert lower <= exact <= upper
                if exact > 1e-30 and not (direction is Direction.ADD and epsilon > 0.99 * end):
                    assert upper - lower <= 1e-7 * exact


def test_add_ends_where_no_ratio_is_as_small() -> None:
    end = -log1p(-0.1)
    assert single_step(0.1, 1.0, 0.999 * end, Direction.ADD).lower > 0.0
    assert single_step(0.1, 1.0, 1.001 * end, Direction.ADD) == (0.0, 0.0)


@pytest.mark.parametrize("rate", [5e-324, 1e-310, 5e-309])
def test_strikes_may_be_no_doubles(rate: float) -> None:
    """Sides are numbers, and hold the truth, where the exponential over the rate overflows."""
    with mp.workdps(400):
        for epsilon in (1e-15, 1e-3, 1.0, 1.5):
            lower, upper = single_step(rate, 0.02, epsilon, Direction.REMOVE)
            assert lower <= truth(rate, 0.02, epsilon, Direction.REMOVE) <= upper <= 1e-307


@pytest.mark.parametrize("rate", [0.01, 0.9])
def test_the_laws_of_a_step_are_around_it(rate: float) -> None:
    resolution = Resolution(EPSILON_NODES, 1e-6)
    below, above = (thin(gaussian_law(1.0, 1.0, side, resolution), rate) for side in (Side.LOWER, Side.UPPER))
    for direction in Direction:
        for epsilon in (0.0, 0.01, 0.3, 1.0):
            lower, upper = single_step(rate, 1.0, epsilon, direction)
            assert law_delta(below, epsilon, direction) <= upper
            assert lower <= law_delta(above, epsilon, direction)


@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 1.0), (0.7, 2.0), (1e-4, 0.3)])
def test_a_step_is_certified_to_the_last_digits(rate: float, sigma: float) -> None:
    """Between ends 2e-7 apart, which certificates are moved by, lies the epsilon of the closed form."""
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=rate, steps=1), noise_multiplier=sigma)
    certificate = hs.certify(run, delta=1e-6)
    lower, upper = certificate.bounds.lower, certificate.bounds.upper
    assert lower is not None
    assert upper <= lower * (1.0 + 3e-7)
    with mp.workdps(60):
        assert max(truth(rate, sigma, upper, direction) for direction in Direction) <= 1e-6
        assert max(truth(rate, sigma, lower, direction) for direction in Direction) > 1e-6
    hs.verify(certificate)
