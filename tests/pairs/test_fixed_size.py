"""Batches of exactly one size: bounds against enumerated batches, and the steps of the proof."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import comb, exp, inf, log

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ndtr

import hockeystick as hs
from hockeystick.accountants.registry import accountant
from hockeystick.bounds import Bound
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.grid import Resolution
from hockeystick.laws.profile import law_delta
from hockeystick.laws.without_replacement import SAFE, Distances, averaged_profile, log_moment, revealing_step
from hockeystick.pairs.fixed_size import FixedSizeSteps, from_fixed_size
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.users import Users
from hockeystick.settings import Settings
from hockeystick.spec import LARGEST_NOISE
from hockeystick.types import Direction, Side

EPSILONS = (0.0, 0.1, 0.4, 1.0, 2.0, 4.0)
METHOD, BACKWARDS = accountant("without_replacement"), accountant("backward_induction")
REACH = 9.0
Cells = tuple[np.ndarray, np.ndarray]
"""Probabilities of the cells of one output, in the two runs."""


def normal_cells(ends: np.ndarray) -> np.ndarray:
    """Probabilities between ends, each from the tail on its own side, where it keeps its digits."""
    return np.where(ends[1:] <= 0.0, np.diff(ndtr(ends)), -np.diff(ndtr(-ends)))


def cells(gradients: list[float], others: list[float], batch: int, sigma: float, count: int) -> list[np.ndarray]:
    """Probabilities of cells of a step's output, for each gradient of the example, by enumeration of all batches."""
    ends = np.concatenate([[-inf], np.linspace(-REACH * sigma - 6.0, REACH * sigma + 6.0, count - 1), [inf]])
    found = []
    for gradient in gradients:
        everyone = [*others, gradient]
        sums = Counter(sum(everyone[i] for i in chosen) for chosen in combinations(range(len(everyone)), batch))
        masses = sum(times * normal_cells((ends - centre) / sigma) for centre, times in sums.items())
        found.append(masses / comb(len(everyone), batch))
    return found


def delta(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """The hockey-stick divergence of cells: at most that of the outputs."""
    return float(np.maximum(p - exp(epsilon) * q, 0.0).sum())


def random_truth(rng: np.random.Generator, replaced: bool) -> tuple[hs.Mechanism, np.ndarray, np.ndarray]:
    """A mechanism and the cells of one of its runs, whose other examples may react to the first output."""
    size = int(rng.integers(1, 7))
    batch, steps = int(rng.integers(1, size + 1)), int(rng.integers(1, 4))
    sigma = float(np.exp(rng.uniform(log(0.4), log(4.0))))
    mechanism = hs.Mechanism(
        sampler=hs.FixedSize(batch_size=batch, num_examples=size, steps=steps),
        noise_multiplier=sigma,
        unit=hs.Unit(neighbours="replace" if replaced else "zero_out"),
    )
    count = {1: 4000, 2: 400, 3: 80}[steps]

    def step() -> list[np.ndarray]:
        gradient = float(rng.choice([-1.0, 1.0]))
        other = -gradient if replaced else 0.0
        others = rng.choice([-1.0, 0.0, 1.0], size - 1).tolist()
        if rng.random() < 0.5:
            others = [float(rng.choice([-1.0, 0.0, 1.0]))] * (size - 1)
        return cells([gradient, other], others, batch, sigma, count)

    p, q = step()
    for _ in range(steps - 1):
        high, low = step(), step()
        reacts = (p > q)[:, None]
        p = (p[:, None] * np.where(reacts, high[0], low[0])).ravel()
        q = (q[:, None] * np.where(reacts, high[1], low[1])).ravel()
    return mechanism, p, q


def bounds(mechanism: hs.Mechanism, side: Side) -> Bound:
    return METHOD.bound(dominating_pair(mechanism), side, Settings(Resolution(30, 1e-9)))


def check_cases(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    for case in range(count):
        mechanism, p, q = random_truth(rng, replaced=case % 2 == 0)
        upper = bounds(mechanism, Side.UPPER)
        for epsilon in EPSILONS:
            assert delta(p, q, epsilon) <= upper.profiles[Direction.REMOVE](epsilon) + 1e-12
            assert delta(q, p, epsilon) <= upper.profiles[Direction.ADD](epsilon) + 1e-12


def test_upper_bounds_cover_random_datasets_that_react() -> None:
    check_cases(1, 30)


@pytest.mark.parametrize("sigma", [0.4, 0.7, 1.5])
@pytest.mark.parametrize("replaced", [True, False])
def test_upper_bounds_cover_others_of_the_opposite_gradient(sigma: float, replaced: bool) -> None:
    """One of six examples in one step."""
    p, q = cells([1.0, -1.0 if replaced else 0.0], [-1.0] * 5, 1, sigma, 4000)
    mechanism = hs.Mechanism(
        sampler=hs.FixedSize(batch_size=1, num_examples=6, steps=1),
        noise_multiplier=sigma,
        unit=hs.Unit(neighbours="replace" if replaced else "zero_out"),
    )
    upper = bounds(mechanism, Side.UPPER)
    for epsilon in (*EPSILONS, 6.0, 8.0):
        assert delta(p, q, epsilon) <= upper.profiles[Direction.REMOVE](epsilon) * (1.0 + 1e-9)
        assert delta(q, p, epsilon) <= upper.profiles[Direction.ADD](epsilon) * (1.0 + 1e-9)


def test_integrals_that_end_early_say_no_less() -> None:
    """What is beyond the last place is bounded by moments."""
    worst = IndependentSteps(noise_multiplier=1.0, sampling_prob=0.5, steps=2)
    known = accountant("direct").bound(worst, Side.UPPER)

    def deltas(epsilons: Sequence[float], direction: Direction) -> list[float]:
        return [known.profiles[direction](epsilon) for epsilon in epsilons]

    early, late = (averaged_profile(deltas, 0.5, 1.0, 2, smallest) for smallest in (1e3, 1e-9))
    for epsilon in (0.0, 0.5, 0.9):
        assert early(epsilon) >= late(epsilon) * 0.999


@pytest.mark.parametrize(
    ("rate", "distance", "order"), [(1e-9, 1e-3, 5), (1e-3, 1e-2, 3), (0.5, 1e-6, 3), (0.9, 0.01, 16), (1e-3, 30.0, 16)]
)
def test_moments_that_are_hardly_above_one_keep_their_digits(rate: float, distance: float, order: int) -> None:
    """Their logarithms are taken times the steps."""
    with mp.workdps(60):
        q, d = mp.mpf(rate), mp.mpf(distance)
        terms = (
            mp.binomial(order, k) * q**k * (1 - q) ** (order - k) * mp.exp(k * (k - 1) * d * d / 2)
            for k in range(order + 1)
        )
        exact = mp.log(sum(terms))
        assert abs(log_moment(rate, distance, order) / exact - 1) < SAFE / 10


@pytest.mark.parametrize(("examples", "size", "batch", "sigma"), [(2, 4, 2, 1.5), (2, 5, 1, 0.7), (3, 6, 4, 3.0)])
def test_users_that_are_replaced_are_covered_and_cost_a_link_for_each_example(
    examples: int, size: int, batch: int, sigma: float
) -> None:
    """One step, all batches enumerated; removing the examples first would be twice as many links."""
    unit = hs.Unit(kind="user", examples_per_user=examples, neighbours="replace")
    sampler = hs.FixedSize(batch_size=batch, num_examples=size, steps=1)
    mechanism = hs.Mechanism(sampler=sampler, noise_multiplier=sigma, unit=unit)
    ends = np.concatenate([[-inf], np.linspace(-REACH * sigma - 6.0, REACH * sigma + 6.0, 3999), [inf]])

    def output(everyone: list[float]) -> np.ndarray:
        sums = [sum(chosen) for chosen in combinations(everyone, batch)]
        return np.mean([normal_cells((ends - centre) / sigma) for centre in sums], axis=0)

    upper, lower = bounds(mechanism, Side.UPPER), bounds(mechanism, Side.LOWER)
    attained = dict.fromkeys(EPSILONS, 0.0)
    for common in (-1.0, 0.0, 1.0):
        for instead in (-1.0, 0.0):
            others = [common] * (size - examples)
            p, q = output([1.0] * examples + others), output([instead] * examples + others)
            for epsilon in EPSILONS:
                attained[epsilon] = max(attained[epsilon], delta(p, q, epsilon), delta(q, p, epsilon))
    for epsilon in EPSILONS:
        assert lower.delta(epsilon) <= attained[epsilon] * (1.0 + 1e-4) <= upper.delta(epsilon) * (1.0 + 2e-4)
    through_ghosts = Users(noise_multiplier=sigma, single=from_fixed_size(mechanism), examples=examples, replaced=True)
    chain = METHOD.bound(through_ghosts, Side.UPPER, Settings(Resolution(30, 1e-9)))
    assert upper.epsilon(1e-3) < chain.epsilon(1e-3)


@pytest.mark.weekly
def test_upper_bounds_cover_many_more_datasets() -> None:
    check_cases(2, 1000)


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize(("size", "batch", "steps"), [(1, 1, 2), (4, 1, 1), (5, 3, 1), (6, 2, 2)])
def test_lower_bounds_are_attained_by_a_dataset(size: int, batch: int, steps: int, replaced: bool) -> None:
    """By others of one gradient.

    A cell of h standard deviations loses, of delta, about the square of h times the slope of the log-ratio there, which
    is below 3: 2e-5 for one step and 2e-3 for two.
    """
    sigma = 1.3
    count, loss = (20_000, 1e-4) if steps == 1 else (2_000, 4e-3)
    mechanism = hs.Mechanism(
        sampler=hs.FixedSize(batch_size=batch, num_examples=size, steps=steps),
        noise_multiplier=sigma,
        unit=hs.Unit(neighbours="replace" if replaced else "zero_out"),
    )
    lower = bounds(mechanism, Side.LOWER)
    truths = {direction: dict.fromkeys(EPSILONS, 0.0) for direction in Direction}
    for common in (-1.0, 0.0, 1.0):
        p, q = cells([1.0, -1.0 if replaced else 0.0], [common] * (size - 1), batch, sigma, count)
        p, q = (one if steps == 1 else np.multiply.outer(one, one).ravel() for one in (p, q))
        for direction, (first, second) in zip((Direction.REMOVE, Direction.ADD), ((p, q), (q, p)), strict=True):
            for epsilon in EPSILONS:
                truths[direction][epsilon] = max(truths[direction][epsilon], delta(first, second, epsilon))
    for direction in Direction:
        for epsilon in EPSILONS:
            assert lower.profiles[direction](epsilon) <= truths[direction][epsilon] * (1.0 + loss) + 1e-12


def test_one_step_of_a_replaced_example_is_known_exactly() -> None:
    """Its profile is ``q`` times that of two Gaussians at distance 2, at ``log(1 + q (e^eps - 1))``."""
    pair = FixedSizeSteps(noise_multiplier=1.0, sampling_prob=0.2, steps=1, replaced=True)
    upper, lower = (METHOD.bound(pair, side) for side in (Side.UPPER, Side.LOWER))
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        exact = 0.2 * float(ndtr(1.0 - epsilon / 2.0) - exp(epsilon) * ndtr(-1.0 - epsilon / 2.0))
        at = log(1.0 + 0.2 * (exp(epsilon) - 1.0))
        for direction in Direction:
            assert exact * 0.999 <= lower.profiles[direction](at) <= exact
            assert exact <= upper.profiles[direction](at) <= exact * 1.001


@pytest.mark.parametrize("sigma", [0.3, 0.7])
def test_a_zeroed_example_tells_no_more_than_if_its_draws_were_known(sigma: float) -> None:
    """``q`` times the profile of a Gaussian at distance 1, which others with gradient 0 attain at large ratios."""
    pair = FixedSizeSteps(noise_multiplier=sigma, sampling_prob=0.01, steps=1)
    upper = METHOD.bound(pair, Side.UPPER).profiles[Direction.REMOVE]
    for epsilon in (0.5, 2.0, 5.0):
        known = float(ndtr(0.5 / sigma - epsilon * sigma) - exp(epsilon) * ndtr(-0.5 / sigma - epsilon * sigma))
        assert upper(epsilon) <= 0.01 * known * 1.01


def test_an_example_in_the_place_of_its_opposite_is_covered_at_low_rates() -> None:
    """A set of one out of ten, zeroed out: enumeration."""
    for sigma in (0.5, 1.0):
        pair = FixedSizeSteps(noise_multiplier=sigma, sampling_prob=0.1, steps=1)
        upper = METHOD.bound(pair, Side.UPPER).profiles[Direction.REMOVE]
        p, q = cells([1.0, 0.0], [-1.0] * 9, 1, sigma, 4000)
        assert all(delta(p, q, epsilon) <= upper(epsilon) for epsilon in EPSILONS)


def curvature_divergence(v: np.ndarray, e: np.ndarray, other: np.ndarray, rate: float, start: float) -> float:
    """``D_f`` for ``f(x) = (x - start)_+^2 / 2`` of a step with these gradients in the plane, on a grid."""
    line = np.linspace(-9.0, 9.0, 361)
    x, y = np.meshgrid(line, line)

    def density(centre: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * ((x - centre[0]) ** 2 + (y - centre[1]) ** 2)) / (2.0 * np.pi)

    p = (1.0 - rate) * density(v) + rate * density(e)
    q = (1.0 - rate) * density(v) + rate * density(other)
    return float((q * np.maximum(p / q - start, 0.0) ** 2).sum() * 0.5 * 0.05**2)


@pytest.mark.parametrize("radius", [0.4, 1.0, 1.6])
def test_opposite_others_are_the_worst_for_functions_whose_curvature_does_not_fall(radius: float) -> None:
    """In one step, over gradients in a disc of this many standard deviations; these functions span all others."""
    rng = np.random.default_rng(3)
    pole = np.array([radius, 0.0])
    for rate in (0.01, 0.3, 0.9):
        for start in (0.0, 0.99, 1.0, 1.3):
            worst = curvature_divergence(-pole, pole, -pole, rate, start)
            for _ in range(25):
                angles, lengths = rng.uniform(0.0, 2.0 * np.pi, 3), radius * rng.choice([1.0, 0.95, rng.random()], 3)
                points = (lengths * np.array([np.cos(angles), np.sin(angles)])).T
                v, e, other = points
                assert curvature_divergence(v, e, other, rate, start) <= worst * (1.0 + 1e-9) + 1e-15


def test_sharper_functions_have_another_worst_dataset() -> None:
    """Others without gradients have, at some ratio, a larger profile than every mixture of those of the extremes."""
    line, width = np.linspace(-12.0, 12.0, 24001, retstep=True)

    def density(centre: float) -> np.ndarray:
        return np.exp(-0.5 * (line - centre) ** 2) / np.sqrt(2.0 * np.pi)

    def profile(v: float, ratio: float) -> float:
        p, q = (0.9 * density(v) + 0.1 * density(own) for own in (1.0, -1.0))
        return float(np.maximum(p - ratio * q, 0.0).sum() * width)

    ratios = [0.95, 0.99, 1.0, 1.01, 1.05, 1.2]
    between, first, second = ([profile(v, ratio) for ratio in ratios] for v in (0.0, -1.0, 1.0))
    shares = np.linspace(0.0, 1.0, 101)
    for share in shares:
        mixed = [share * f + (1.0 - share) * g for f, g in zip(first, second, strict=True)]
        assert any(b > m + 1e-6 for b, m in zip(between, mixed, strict=True))


def test_a_step_law_is_above_the_profiles_of_its_dataset() -> None:
    law = revealing_step(0.1, dict.fromkeys(Direction, Distances(2.0, 2.0)), Resolution(20, 1e-8))
    assert law.mean() == pytest.approx(1.0, abs=1e-9)
    pair = FixedSizeSteps(noise_multiplier=1.0, sampling_prob=0.1, steps=1, replaced=True)
    lower = METHOD.bound(pair, Side.LOWER)
    for epsilon in EPSILONS:
        for direction in Direction:
            assert lower.profiles[direction](epsilon) <= law_delta(law, epsilon, direction)


def test_cohorts_are_steps_with_less_noise() -> None:
    """Four cohorts of nine steps at three times the noise; a last, shorter one counts as whole from above alone."""
    cohorts = FixedSizeSteps(noise_multiplier=3.0, sampling_prob=0.2, steps=36, cohort_steps=9, replaced=True)
    fresh = FixedSizeSteps(noise_multiplier=1.0, sampling_prob=0.2, steps=4, replaced=True)
    longer = FixedSizeSteps(noise_multiplier=3.0, sampling_prob=0.2, steps=37, cohort_steps=9, replaced=True)
    more = FixedSizeSteps(noise_multiplier=1.0, sampling_prob=0.2, steps=5, replaced=True)
    low = {pair: METHOD.bound(pair, Side.LOWER).epsilon(1e-5) for pair in (cohorts, fresh, longer)}
    assert low[cohorts] == pytest.approx(low[fresh], rel=1e-9) == low[longer]
    assert METHOD.bound(cohorts, Side.UPPER).epsilon(1e-5) >= METHOD.bound(fresh, Side.UPPER).epsilon(1e-5)
    assert METHOD.bound(longer, Side.UPPER).epsilon(1e-5) >= METHOD.bound(more, Side.UPPER).epsilon(1e-5)


def test_known_batches_are_a_gaussian_of_twice_the_sensitivity() -> None:
    """Where everybody is in every batch there is nothing to hide. A law loses the square of its cells, of 1/54."""
    mechanism = hs.Mechanism(
        sampler=hs.FixedSize(batch_size=3, num_examples=3, steps=9),
        noise_multiplier=3.0,
        unit=hs.Unit(neighbours="replace"),
    )
    pair = dominating_pair(mechanism)
    exact = gaussian_delta(3.0, 6.0, 1.0, Side.UPPER)
    assert pair.batches_are_public
    assert accountant("gaussian").bound(pair, Side.UPPER).delta(1.0) == pytest.approx(exact, rel=1e-9)
    assert METHOD.bound(pair, Side.LOWER).delta(1.0) == pytest.approx(exact, rel=54.0**-2)


def test_replacement_is_at_least_as_tight_as_renyi_accounting() -> None:
    """That of dp_accounting, by Wang, Balle and Kasiviswanathan (2019)."""
    dp_accounting = pytest.importorskip("dp_accounting")
    for rate, sigma, steps, target in ((0.01, 2.0, 300, 1e-6), (0.2, 4.0, 50, 1e-5), (0.5, 2.0, 1, 1e-5)):
        peer = dp_accounting.rdp.RdpAccountant(
            neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE,
            orders=[1.0 + order / 10.0 for order in range(1, 100)] + list(range(12, 64)),
        )
        event = dp_accounting.SampledWithoutReplacementDpEvent(
            1000, int(1000 * rate), dp_accounting.GaussianDpEvent(sigma / 2.0)
        )
        peer.compose(event, steps)
        pair = FixedSizeSteps(noise_multiplier=sigma, sampling_prob=rate, steps=steps, replaced=True)
        assert METHOD.bound(pair, Side.UPPER).epsilon(target) <= peer.get_epsilon(target)


@pytest.mark.parametrize("noise", [1.0, 3.0])
def test_runs_backwards_cover_random_datasets_that_react(noise: float) -> None:
    """On coarse grids, whose bounds are bounds all the same."""
    rng, settings = np.random.default_rng(int(10.0 * noise)), Settings(Resolution(24, 1e-6))
    for _ in range(3):
        size, steps = int(rng.integers(2, 6)), int(rng.integers(1, 3))
        batch = int(rng.integers(1, size))
        pair = FixedSizeSteps(noise_multiplier=noise, sampling_prob=batch / size, steps=steps, replaced=True)
        upper, lower = (BACKWARDS.bound(pair, side, settings) for side in (Side.UPPER, Side.LOWER))
        other = METHOD.bound(pair, Side.UPPER)
        for _ in range(6):
            p, q = np.ones(1), np.ones(1)
            for _ in range(steps):
                high, low = (
                    cells([sign, -sign], rng.choice([-1.0, 0.0, 1.0], size - 1).tolist(), batch, noise, 400)
                    for sign in rng.choice([-1.0, 1.0], 2).tolist()
                )
                reacts = (p > q)[:, None]
                p = (p[:, None] * np.where(reacts, high[0], low[0])).ravel()
                q = (q[:, None] * np.where(reacts, high[1], low[1])).ravel()
            for epsilon in (*EPSILONS, 6.0):
                assert delta(p, q, epsilon) <= upper.profiles[Direction.REMOVE](epsilon) + 1e-12
                assert delta(q, p, epsilon) <= upper.profiles[Direction.ADD](epsilon) + 1e-12
        for epsilon in EPSILONS:
            assert lower.profiles[Direction.ADD](epsilon) <= other.profiles[Direction.ADD](epsilon)


def test_runs_backwards_nearly_meet_where_other_bounds_do_not() -> None:
    """5,000 of 2,000,000 clients in each of 1,500 rounds."""
    pair = FixedSizeSteps(noise_multiplier=1.2573, sampling_prob=0.0025, steps=1500, replaced=True)
    settings = Settings(Resolution(smallest_delta=1e-7))
    lower, upper = (BACKWARDS.bound(pair, side, settings).epsilon(1e-7) for side in (Side.LOWER, Side.UPPER))
    least, most = (METHOD.bound(pair, side, settings).epsilon(1e-7) for side in (Side.LOWER, Side.UPPER))
    assert least < lower < upper < most
    assert upper <= 1.0002 * lower


@pytest.mark.parametrize(
    ("rate", "noise", "steps"),
    [
        (0.01, 4.0, 10),
        (0.01, 4.0, 100),
        (0.01, 3.2, 1000),
        (0.1, 1.0, 20),
        (0.1, 0.9, 10),
        (0.1, 4.0, 100),
        (0.1, 8.0, 100),
        (0.3, 2.0, 10),
        (0.5, 2.0, 10),
    ],
)
def test_runs_backwards_are_within_a_tenth_of_a_percent(rate: float, noise: float, steps: int) -> None:
    """Few steps and many, little noise and much, at rates of up to a half."""
    pair = FixedSizeSteps(noise_multiplier=noise, sampling_prob=rate, steps=steps, replaced=True)
    settings = Settings(Resolution(smallest_delta=1e-5))
    lower, upper = (BACKWARDS.bound(pair, side, settings).epsilon(1e-5) for side in (Side.LOWER, Side.UPPER))
    assert lower < upper <= 1.001 * lower


def test_runs_backwards_say_what_they_do_not_bound() -> None:
    pair = FixedSizeSteps(noise_multiplier=1.0, sampling_prob=0.2, steps=4, replaced=True)
    assert BACKWARDS.why_not(pair, Side.UPPER) is None
    for changed in ({"replaced": False}, {"cohort_steps": 2}, {"sampling_prob": 1.0}, {"noise_multiplier": 0.02}):
        assert BACKWARDS.why_not(replace(pair, **changed), Side.UPPER)


def test_runs_backwards_can_be_named_for_a_calibration() -> None:
    """Whether a method applies is asked with the largest noise."""
    pair = FixedSizeSteps(noise_multiplier=LARGEST_NOISE, sampling_prob=0.0025, steps=1500, replaced=True)
    assert BACKWARDS.why_not(pair, Side.UPPER) is None
    assert 0.0 <= BACKWARDS.bound(pair, Side.UPPER, Settings(Resolution(24, 1e-5))).epsilon(1e-5) < 1e-4
