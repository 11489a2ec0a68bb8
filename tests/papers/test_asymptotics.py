"""feldman-shenfeld-2025, section 3.3: what our proofs need, by simulation, and the two refuted statements."""

import sys
from math import exp, log, sqrt
from types import ModuleType

import numpy as np
import pytest
from scipy.stats import norm

from hockeystick.reproduction.papers import Output, figures_of, folder_of

PATHS = 20_000
SURE = 5.0
"""Standard errors: a bound that holds fails a comparison with probability below 1e-6."""


@pytest.fixture(scope="module")
def asymptotics() -> ModuleType:
    figures_of(folder_of("feldman-shenfeld-2025"))
    return sys.modules["hockeystick_papers_feldman_shenfeld_2025.asymptotics"]


def sums(sigma: float, steps: int, visited: bool, seed: int) -> np.ndarray:
    """Partial sums of ``1 - X_j``, shape (PATHS, steps); the visited step is uniform."""
    rng = np.random.default_rng(seed)
    y = sigma * rng.standard_normal((PATHS, steps))
    if visited:
        y[np.arange(PATHS), rng.integers(0, steps, PATHS)] += 1.0
    return np.cumsum(1.0 - np.exp((y - 0.5) / sigma**2), axis=1)


@pytest.mark.parametrize(("sigma", "steps", "gamma"), [(1.0, 20, 0.8), (2.0, 40, 0.4), (4.0, 10, 0.25)])
def test_the_walk_bounds_the_bad_event(asymptotics: ModuleType, sigma: float, steps: int, gamma: float) -> None:
    bound = asymptotics.failure(sigma, steps, gamma)
    assert bound < 0.7
    for visited in (False, True):
        seen = float((sums(sigma, steps, visited, 1).max(axis=1) > gamma * steps).mean())
        assert seen <= bound + SURE * sqrt(bound / PATHS)


@pytest.mark.parametrize(("sigma", "steps", "slack"), [(1.0, 100, 0.3), (2.0, 400, 0.05)])
def test_posteriors_seldom_fall_below_the_reverse_rate(
    asymptotics: ModuleType, sigma: float, steps: int, slack: float
) -> None:
    gamma = asymptotics.reverse_gamma(sigma, steps, slack)
    for visited in (False, True):
        seen = float((sums(sigma, steps, visited, 2).min(axis=1) < -gamma * steps).mean())
        assert seen <= slack + SURE * sqrt(slack / PATHS)


def test_the_second_part_of_corollary_3_12_holds_where_its_proof_does_not(
    asymptotics: ModuleType, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asymptotics, "SETTINGS", asymptotics.SETTINGS[::3])
    checks = asymptotics.corollary_3_12_checks(output)
    gammas = [check for check in checks if "gamma of the printed proof" in check.what]
    assert len(gammas) == 2
    assert not any(check.holds for check in gammas)
    assert all(check.holds for check in checks if check not in gammas)
    first = asymptotics.SETTINGS[0]
    assert gammas[0].ours > sqrt(2.0 * log(1.0 / first.delta) / first.steps) > 0.5  # cosh is at least 1


def test_constants_of_the_refuted_statements_grow(asymptotics: ModuleType) -> None:
    """The lower bound on epsilon against the Gaussian's own delta, and the growth like sqrt(t) / ln t."""
    needed = [asymptotics.corollary_constant(16 * 10**power, 1e-5) for power in (7, 9, 11)]
    assert 5.0 < needed[1] / needed[0] < 10.0
    assert 5.0 < needed[2] / needed[1] < 10.0
    shift = 3.0
    epsilon = shift**2 / 2
    delta = norm.cdf(shift / 2 - epsilon / shift) - exp(epsilon) * norm.cdf(-shift / 2 - epsilon / shift)
    assert delta >= 0.5 - 1.0 / (shift * sqrt(2.0 * np.pi))
    # Doubling c1 halves the shift, so that a quarter of epsilon is left against half of the claim.
    doubled = asymptotics.corollary_constant(16 * 10**7, 1e-5, first=2.0)
    assert doubled == pytest.approx(needed[0] / 2.0, rel=1e-9)


def test_lemma_3_13_needs_its_further_premise(asymptotics: ModuleType, output: Output) -> None:
    lemma, corollary, premise = asymptotics.constants_checks(output)
    assert "refuted" in lemma.verdict
    assert "refuted" in corollary.verdict
    assert premise.holds


def test_claim_c_1_fails_beyond_its_range_alone(asymptotics: ModuleType, output: Output) -> None:
    beyond, within = asymptotics.claim_checks(output)
    assert beyond.ours == 10.0
    assert not beyond.holds
    assert within.holds
    # The conversion is exact at order 1/delta for a ratio with one positive value.
    assert asymptotics.conversion(10.0, 0.1) == pytest.approx(log(0.9))
    delta = 1e-3
    signs = [asymptotics.conversion(order, delta) >= 0.0 for order in (2.0, 1.0 / (np.e * delta), 0.5 / delta)]
    assert signs == [True, True, False]


def test_rates_of_remark_3_10(asymptotics: ModuleType, output: Output) -> None:
    assert all(check.holds for check in asymptotics.remark_checks(output))
