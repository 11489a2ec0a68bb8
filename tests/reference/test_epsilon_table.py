"""Certified bounds at default settings against intervals that other accountants leave for the truth.

The intervals come from published accountants run at fine settings (the lower ends from their optimistic, the upper
ends from their pessimistic results); they were not computed with this library. ``gap`` is the largest two-sided gap
allowed: 0.2 percent of epsilon, or 2e-5 where epsilon is below 0.01.
"""

import pytest

import hockeystick as hs


def poisson(sigma: float, steps: int) -> hs.Mechanism:
    return hs.Mechanism(sampler=hs.Poisson(sampling_prob=1 / steps, steps=steps), noise_multiplier=sigma)


def allocation(sigma: float, bins: int, participations: int = 1, epochs: int = 1) -> hs.Mechanism:
    sampler = hs.RandomAllocation(bins=bins, participations=participations, epochs=epochs)
    return hs.Mechanism(sampler=sampler, noise_multiplier=sigma)


EPSILON = [
    (allocation(1.0, 1000), 1e-6, 0.16865, 0.17569),
    (allocation(0.5, 10_000), 1e-6, 1.92918, 1.95698),
    (allocation(2.0, 100), 1e-5, 0.16946, 0.17767),
    (allocation(1.0, 1_000_000), 1e-10, 0.0, 0.00655),
    (allocation(1.0, 1000, epochs=10), 1e-6, 0.0, 0.5425),
    (poisson(0.5, 10_000), 1e-6, 1.9520, 1.9545),
    (poisson(1.3, 10_000), 1e-6, 0.03055, 0.03070),
    (poisson(0.4, 100_000), 1e-6, 2.9960, 3.0000),
]


@pytest.mark.parametrize(("mechanism", "delta", "low", "high"), EPSILON)
def test_epsilon_lies_in_the_interval_and_the_gap_is_small(mechanism, delta, low, high):
    bounds = hs.certify(mechanism, delta=delta).epsilon
    assert low <= bounds.lower
    assert bounds.upper <= high
    allowed = 2e-5 if bounds.upper < 0.01 else 2e-3 * bounds.lower
    assert bounds.upper - bounds.lower <= allowed


def test_ten_of_a_thousand_visits():
    """The upper bound goes through ten blocks; there is no near-exact lower bound for k of t."""
    bounds = hs.certify(allocation(1.0, 1000, participations=10), delta=1e-6).epsilon
    assert bounds.lower < bounds.upper <= 1.968


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "low", "high"),
    [(allocation(0.3, 1000), 10.0, 1.54032e-4, 1.54764e-4), (poisson(1.0, 1000), 1.0, 2.4e-13, 2.7e-13)],
)
def test_delta_lies_in_the_interval(mechanism, epsilon, low, high):
    bounds = hs.certify(mechanism, epsilon=epsilon).delta
    assert low <= bounds.lower <= bounds.upper <= high


def test_the_main_job():
    """CIFAR-10, batch 500, 20 epochs, balls-in-bins, (2, 1e-5): near sigma = 3.21."""
    plan = hs.Plan.parse(
        {
            "data": {"num_examples": 50_000, "batch_size": 500, "epochs": 20},
            "sampler": {"kind": "balls_in_bins"},
        }
    )
    mechanism = hs.calibrate(plan.mechanism(), epsilon=2.0, delta=1e-5)
    assert mechanism.noise_multiplier == pytest.approx(3.21, abs=0.005)
    assert hs.certify(mechanism, delta=1e-5).epsilon.upper <= 2.0
    slightly_less = mechanism.with_noise(mechanism.sigma * 0.999)
    assert hs.certify(slightly_less, delta=1e-5).epsilon.upper > 2.0
