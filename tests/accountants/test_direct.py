"""The direct accountant at the ends of the range of doubles: underflow must not turn a bound to the other side."""

import pytest

from hockeystick import Direction, RandomAllocation, Resolution, Settings, Side
from hockeystick.accountants import direct, gaussian
from hockeystick.accountants.published import decomposition
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samplers import Poisson


@pytest.mark.parametrize("epsilon", [0.0, 30.0, 250.0, 400.0, 600.0, 700.0])
def test_lower_stays_below_the_closed_form_at_every_epsilon(epsilon: float) -> None:
    """With one bin the mechanism is a Gaussian; its profile at epsilon = 700 is about 1e-36."""
    pair = AveragedSteps(noise_multiplier=0.15299, bins=1, participations=1, epochs=17)
    lower = direct.ACCOUNTANT.bound(pair, Side.LOWER, Settings(resolution=Resolution(24, 1e-25)))
    assert lower.delta(epsilon) <= gaussian.ACCOUNTANT.bound(pair, Side.UPPER).delta(epsilon)


def test_the_add_direction_ends_where_the_smallest_ratio_does() -> None:
    """X >= (1-q)^T, so the add direction is exactly 0 beyond eps = -T ln(1-q) = 690.8."""
    pair = IndependentSteps(noise_multiplier=0.25, sampling_prob=0.999, steps=100)
    lower = direct.ACCOUNTANT.bound(pair, Side.LOWER, Settings(resolution=Resolution(48, 1e-25)))
    assert lower.profiles[Direction.ADD](691.0) == 0.0
    assert lower.profiles[Direction.ADD](100.0) > 0.99


@pytest.mark.parametrize(("bins", "participations", "epochs", "sigma"), [(16, 8, 5, 0.05), (1000, 282, 1, 0.2789)])
def test_extreme_noise_gives_a_bound_and_no_warning(bins: int, participations: int, epochs: int, sigma: float) -> None:
    pair = AveragedSteps(noise_multiplier=sigma, bins=bins, participations=participations, epochs=epochs)
    settings = Settings(resolution=Resolution(24, 1e-25))
    lower = direct.ACCOUNTANT.bound(pair, Side.LOWER, settings)
    for module in (direct, decomposition):
        upper = module.ACCOUNTANT.bound(pair, Side.UPPER, settings)
        for direction in Direction:
            assert upper.profiles[direction](200.0) >= lower.profiles[direction](200.0)


def test_a_truncation_that_never_happens_still_has_a_price() -> None:
    """The tail underflows, and is counted as 1e-300 rather than as nothing."""
    sampler = Poisson(sampling_prob=0.001, steps=10, truncated_batch_size=900_000, num_examples=1_000_000)
    assert 0.0 < dominating_pair(Mechanism(sampler=sampler, noise_multiplier=1.0)).slack <= 1e-299
    whole = RandomAllocation(bins=3)
    assert dominating_pair(Mechanism(sampler=whole, noise_multiplier=1.0)).slack == 0.0
