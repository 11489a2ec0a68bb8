"""Estimates of noise multipliers, against mechanisms that have an exact law."""

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.recommendation.estimate import colliding_bins, estimate
from hockeystick.recommendation.moments import WIDTH, allocation_noise

EPSILON, DELTA = 2.0, 1e-5
COARSE = 0.01
"""What coarse grids add, at most."""


def calibrated(mechanism: hs.Mechanism, method: str) -> float:
    return hs.calibrate(mechanism, epsilon=EPSILON, delta=DELTA, method=method).sigma


def test_the_law_of_cyclic_poisson_sampling_is_scaled_by_the_norm() -> None:
    strategy, sampler = hs.BandedSquareRoot(bands=4), hs.CyclicPoisson(groups=4, sampling_prob=0.5, steps=16)
    mechanism = hs.Mechanism(strategy=strategy, sampler=sampler)
    guess = estimate(mechanism, EPSILON, DELTA)
    assert guess.noise_multiplier == pytest.approx(calibrated(mechanism, "direct"), rel=WIDTH + COARSE)


def test_bins_that_never_collide_are_random_allocation() -> None:
    """Orthogonal means of norm 2: the noise of random allocation, doubled."""
    alike = 2.0 * allocation_noise(40, 1, EPSILON, DELTA)
    assert colliding_bins(4.0 * np.eye(40), EPSILON, DELTA) == pytest.approx(alike, rel=WIDTH + COARSE)


def test_bins_that_always_collide_are_not_amplified() -> None:
    exact = calibrated(hs.Mechanism(sampler=hs.Deterministic(bins=1)), "gaussian")
    assert colliding_bins(np.ones((40, 40)), EPSILON, DELTA) == pytest.approx(exact, rel=WIDTH + COARSE)


def test_pairs_of_equal_bins_count_once() -> None:
    """Forty bins, two of each mean: twenty bins. Only every other row is looked at where there are many."""
    gram = np.kron(np.eye(20), np.ones((2, 2)))
    alike = allocation_noise(20, 1, EPSILON, DELTA)
    assert colliding_bins(gram, EPSILON, DELTA) == pytest.approx(alike, rel=WIDTH + COARSE)


@pytest.mark.parametrize(
    ("rate", "steps", "cohort_steps"), [(0.01, 20, 1), (0.2, 30, 20), (0.05, 900, 1), (0.9, 100, 1), (1.0, 20, 1)]
)
def test_batches_of_a_fixed_size_need_less_than_estimated_but_within_the_room(rate, steps, cohort_steps) -> None:
    sampler = hs.FixedSize(batch_size=round(1000 * rate), num_examples=1000, steps=steps, cohort_steps=cohort_steps)
    mechanism = hs.Mechanism(sampler=sampler)
    guess, exact = estimate(mechanism, EPSILON, DELTA), calibrated(mechanism, "without_replacement")
    assert (1.0 - guess.room) * guess.noise_multiplier <= exact * (1.0 + WIDTH)
    assert exact <= guess.noise_multiplier * (1.0 + WIDTH + COARSE)


def test_users_are_estimated_without_amplification() -> None:
    unit = hs.Unit(kind="user", examples_per_user=2)
    mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=20), unit=unit)
    assert estimate(mechanism, EPSILON, DELTA).how.startswith("Gaussian")
