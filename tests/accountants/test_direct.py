"""The direct accountant and the Gaussian: blocks of allocations, and the ends of the range of doubles."""

import numpy as np
import pytest

from hockeystick import Direction, RandomAllocation, Resolution, Settings, Side, bound
from hockeystick.accountants import direct, gaussian
from hockeystick.bounds import Focused
from hockeystick.laws.contours import Contour, Plan, Profiles, profiles_of_steps
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.law import ORDINARY, point_mass_at_one
from hockeystick.laws.operations import average, compose
from hockeystick.laws.profile import law_delta
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.known_batches import KnownBatches
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samplers import Poisson
from hockeystick_papers import decomposition


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


@pytest.mark.parametrize(("bins", "participations"), [(3, 2), (5, 3), (7, 2), (6, 3)])
def test_k_of_t_visits_every_block_once(bins: int, participations: int) -> None:
    """The laws of the blocks, whose sizes differ by one, composed one by one."""
    pair = AveragedSteps(noise_multiplier=1.5, bins=bins, participations=participations)
    work = Settings(resolution=Resolution(40, 1e-6))
    upper = direct.ACCOUNTANT.bound(pair, Side.UPPER, work)
    law = point_mass_at_one(Side.LOWER)
    for size in (len(block) for block in np.array_split(np.arange(bins), participations)):
        block = average(gaussian_law(1.5, 1.0, Side.LOWER, work.resolution), size, work.resolution)
        law = compose(law, block, work.resolution)
    for direction in Direction:
        for epsilon in (0.0, 0.3, 1.0):
            exact = law_delta(law, epsilon, direction)
            assert exact <= upper.profiles[direction](epsilon) <= 1.02 * exact + 1e-9


@pytest.mark.parametrize("side", Side)
def test_the_gaussian_rounds_its_sensitivity_to_the_asked_side(side: Side) -> None:
    pair = KnownBatches(noise_multiplier=2.0, sensitivity=1.0, error=1e-3)
    bound = gaussian.ACCOUNTANT.bound(pair, side)
    outward = 1.0 + 1e-3 if side is Side.UPPER else 1.0 - 1e-3
    for epsilon in (0.0, 0.5, 2.0):
        assert bound.delta(epsilon) == pytest.approx(gaussian_delta(2.0, outward, epsilon, side), rel=1e-12)


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


def test_a_search_for_epsilon_needs_no_law_where_delta_is_far_from_the_one_that_is_asked(monkeypatch):
    """Without a question every delta matters, and far ones are left to laws; a search only compares with its own."""
    monkeypatch.setattr(direct, "_steps_law", lambda *arguments: pytest.fail("a law was made"))
    sampler = Poisson(sampling_prob=5.058e-4, steps=58_770)
    both = [bound(Mechanism(sampler=sampler, noise_multiplier=2.901), "direct", side=side) for side in Side]
    lower, upper = sorted(each.epsilon(1e-5) for each in both)
    assert 0.138 < lower <= upper < lower * (1 + 1e-6)
    for each in both:
        (profile, *_) = each.profiles.values()
        assert isinstance(profile, Focused)
        near = profile.about(1e-5)
        assert near(0.1) == profile(0.1)
        assert near(1.0) < 1e-8


@pytest.mark.parametrize("side", Side)
def test_laws_of_other_bins_and_noise_are_those_made_alone(side: Side) -> None:
    """Cells of a sweep share the doublings of a visited step, where its noise is the same."""
    settings = Settings(Resolution(16, 1e-4))
    pairs = [
        AveragedSteps(noise_multiplier=sigma, bins=bins, epochs=1, participations=1)
        for sigma, bins in ((0.25, 12), (0.2, 12), (0.25, 7), (0.25, 40))
    ]
    direct._visited_step.cache_clear()
    shared = [direct.averaged_steps_law(pair, side, settings, ORDINARY) for pair in pairs]
    assert direct._visited_step.cache_info().hits == 2
    for pair, law in zip(pairs, shared, strict=True):
        direct._visited_step.cache_clear()
        alone = direct.averaged_steps_law(pair, side, settings, ORDINARY)
        assert np.array_equal(law.support, alone.support)
        assert np.array_equal(law.mass, alone.mass)


@pytest.mark.parametrize("side", Side)
def test_a_direction_that_is_smaller_by_its_moments_takes_no_line_of_a_search(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the larger one of both is compared with delta; each by itself is as close as ever."""
    directions, made = [], Profiles._contour

    def watched(profiles: Profiles, plan: Plan, direction: Direction) -> Contour:
        directions.append(direction)
        return made(profiles, plan, direction)

    monkeypatch.setattr(Profiles, "_contour", watched)
    profiles_of_steps.cache_clear()
    pair = IndependentSteps(noise_multiplier=1.5, sampling_prob=0.01, steps=100)
    bound = direct.ACCOUNTANT.bound(pair, side, Settings(resolution=Resolution(68, 1e-6)))
    epsilon = bound.epsilon(1e-6)
    assert set(directions) == {Direction.REMOVE}
    sides = profiles_of_steps(0.01, 1.5, 100).sides(epsilon, Direction.ADD)
    assert sides is not None
    assert 0.0 < sides.lower < sides.upper < 1e-10
    assert bound.profiles[Direction.ADD](epsilon) == (sides.upper if side is Side.UPPER else sides.lower)
