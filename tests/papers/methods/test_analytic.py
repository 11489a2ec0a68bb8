"""The Poisson bound of random allocation: its rates, its sandwich with the direct laws, both directions apart."""

from math import cosh, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.accountants import direct
from hockeystick.errors import UnsupportedError
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.grid import Resolution
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side
from hockeystick_papers import analytic

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)


def quick(delta: float, nodes: int = 24) -> Settings:
    return Settings(resolution=Resolution(nodes_per_unit=nodes, smallest_delta=delta))


def pair(sigma: float, bins: int, visits: int = 1, epochs: int = 1) -> AveragedSteps:
    return AveragedSteps(noise_multiplier=sigma, bins=bins, participations=visits, epochs=epochs)


@given(
    sigma=st.floats(0.5, 6.0),
    bins=st.integers(1, 3000),
    visits=st.integers(1, 12),
    epochs=st.integers(1, 4),
    exponent=st.floats(3.0, 12.0),
)
@settings(max_examples=20, derandomize=True)
def test_never_below_the_direct_lower_bound(sigma: float, bins: int, visits: int, epochs: int, exponent: float) -> None:
    allocation = pair(sigma, bins, min(visits, bins), epochs)
    work = quick(10.0**-exponent)
    upper = analytic.ACCOUNTANT.bound(allocation, Side.UPPER, work)
    lower = direct.ACCOUNTANT.bound(allocation, Side.LOWER, work)
    for direction in Direction:
        for epsilon in EPSILONS:
            assert upper.profiles[direction](epsilon) >= lower.profiles[direction](epsilon)


@pytest.mark.parametrize(("bins", "sigma"), [(1000, 1.0), (10_000, 0.7)])
def test_never_below_the_direct_upper_bound_where_that_is_exact(bins: int, sigma: float) -> None:
    allocation = pair(sigma, bins)
    upper = analytic.ACCOUNTANT.bound(allocation, Side.UPPER, quick(1e-6))
    exact = direct.ACCOUNTANT.bound(allocation, Side.UPPER, quick(1e-6, nodes=72))
    for direction in Direction:
        for epsilon in EPSILONS:
            assert upper.profiles[direction](epsilon) >= exact.profiles[direction](epsilon) * 0.999


def test_close_to_the_truth_for_many_steps() -> None:
    """feldman-shenfeld-2025, Figure 1: t = 1e6, delta = 1e-10. The paper's own rate says nothing here at sigma = 1."""
    allocation = pair(1.0, 10**6)
    delta = 1e-10
    bound = analytic.ACCOUNTANT.bound(allocation, Side.UPPER, quick(delta, nodes=48)).epsilon(delta)
    truth = direct.ACCOUNTANT.bound(allocation, Side.LOWER, quick(delta, nodes=48)).epsilon(delta)
    assert truth < bound < 1.03 * truth
    assert analytic.theorem_rate(allocation, 0.03 * delta) == 1.0


def test_theorem_rate_is_the_printed_formula() -> None:
    """Corollary 3.12 recomputed for one of the divisions tried; the rate is the best of them."""
    allocation = pair(10.0, 10_000, visits=10, epochs=2)
    slack = 1e-7
    share = 0.5
    bad_event, delta0 = share * slack / 2, (1 - share) * slack / (2 * 10_000)
    epsilon0 = next(e for e in np.arange(0.0, 5.0, 1e-4) if gaussian_delta(10.0, 1.0, e, Side.UPPER) <= delta0)
    gamma = cosh(epsilon0) * sqrt(2 * 10 / 10_000 * log(10 / bad_event))
    assert gamma < 1
    assert analytic.theorem_rate(allocation, slack) <= 10 / (10_000 * (1 - gamma)) * (1 + 1e-4)
    assert analytic.theorem_rate(allocation, slack) > 10 / 10_000


@given(sigma=st.floats(0.3, 30.0), bins=st.integers(1, 10**6), exponent=st.floats(2.0, 30.0))
@settings(max_examples=50, derandomize=True)
def test_bennett_never_needs_a_larger_rate(sigma: float, bins: int, exponent: float) -> None:
    allocation = pair(sigma, bins)
    slack = 10.0**-exponent
    assert 1.0 / bins <= analytic.bennett_rate(allocation, slack) <= analytic.theorem_rate(allocation, slack) <= 1.0


@pytest.mark.parametrize(("sigma", "bins", "slack"), [(1.0, 200, 0.2), (2.0, 50, 0.05), (0.7, 400, 0.3)])
def test_bad_event_is_rare_under_both_hypotheses(sigma: float, bins: int, slack: float) -> None:
    """Posterior probabilities above the Bennett rate, simulated: 20,000 runs, false failure below 1e-6 (5 sigma)."""
    rng = np.random.default_rng(20240607)
    eta = analytic.bennett_rate(pair(sigma, bins), slack)
    assert eta < 1.0
    y = rng.normal(0.0, sigma, (20_000, bins))
    seen = {}
    for name in ("absent", "present"):
        if name == "present":
            y[np.arange(20_000), rng.integers(0, bins, 20_000)] += 1.0
        ratio = np.exp((y - 0.5) / sigma**2)
        posterior = 1.0 / (bins - np.cumsum(1.0 - ratio, axis=1)[:, :-1])
        seen[name] = float((posterior.max(axis=1) > eta).mean())
    allowance = 5.0 * sqrt(slack / 20_000)
    assert seen["absent"] <= slack + allowance
    assert seen["present"] <= seen["absent"] + allowance  # Harris


def test_theorem_alone_is_a_bound_too_and_never_better() -> None:
    allocation = pair(8.0, 2000, visits=3, epochs=2)
    work = quick(1e-6)
    alone = analytic.profiles(allocation, work, (analytic.theorem_rate,))
    both = analytic.ACCOUNTANT.bound(allocation, Side.UPPER, work)
    lower = direct.ACCOUNTANT.bound(allocation, Side.LOWER, work)
    for direction in Direction:
        for epsilon in EPSILONS:
            value = alone[direction](epsilon)
            assert value >= both.profiles[direction](epsilon) * (1 - 1e-9)
            assert value >= lower.profiles[direction](epsilon)


def test_planted_fault_a_rate_below_one_in_t_is_caught() -> None:
    allocation = pair(1.0, 1000)
    work = quick(1e-6)
    faulty = analytic.profiles(allocation, work, (lambda allocation, slack: 0.9 / allocation.bins,))
    lower = direct.ACCOUNTANT.bound(allocation, Side.LOWER, work)
    for direction in Direction:
        assert any(faulty[direction](e) < lower.profiles[direction](e) for e in EPSILONS)


def test_vacuous_rate_falls_back_on_all_steps() -> None:
    allocation = pair(0.02, 10)
    bound = analytic.ACCOUNTANT.bound(allocation, Side.UPPER, quick(1e-6))
    assert bound.delta(1.0) == pytest.approx(gaussian_delta(0.02, sqrt(10), 1.0, Side.UPPER))
    with pytest.raises(UnsupportedError, match="no lower bounds"):
        analytic.ACCOUNTANT.bound(allocation, Side.LOWER)


def test_broad_slack_helps_far_from_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    allocation = pair(1.0, 3000)
    broad = analytic.ACCOUNTANT.bound(allocation, Side.UPPER, quick(1e-30))
    monkeypatch.setattr(analytic, "BROAD_SLACKS", ())
    narrow = analytic.ACCOUNTANT.bound(allocation, Side.UPPER, quick(1e-30))
    assert broad.delta(0.1) < 0.3 * narrow.delta(0.1)
    assert broad.epsilon(1e-30) <= narrow.epsilon(1e-30)
