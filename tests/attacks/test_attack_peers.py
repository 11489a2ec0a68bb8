"""The same numbers from riskcal, gdpnum and dp_accounting, where they have them.

dp_accounting's pessimistic privacy loss distributions, composed on a grid of 1e-3, are some 1e-5 above the truth in the
cases below, and riskcal mixes the distributions of the two directions, which errs either way by as much. Our two sides
are up to 6e-5 apart. ``CLOSE`` is the sum of both, rounded up.
"""

import numpy as np
import pytest

pytest.importorskip("dp_accounting")
pytest.importorskip("riskcal")

from dp_accounting.pld import privacy_loss_distribution
from riskcal import analysis

import hockeystick as hs
from hockeystick import attacks
from hockeystick.types import Side

CLOSE = 1e-4
ALPHAS = np.array([1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9])
CASES = [(1.0, 0.01, 1000), (0.6, 0.1, 1), (2.0, 0.3, 20), (0.8, 0.5, 2)]


def pld_of(sigma: float, rate: float, steps: int) -> privacy_loss_distribution.PrivacyLossDistribution:
    step = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=rate, value_discretization_interval=1e-3
    )
    return step.self_compose(steps)


def bounds(sigma: float, rate: float, steps: int) -> dict[Side, hs.Bound]:
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=rate, steps=steps), noise_multiplier=sigma)
    return {side: hs.bound(run, "direct", side=side) for side in Side}


@pytest.mark.parametrize(("sigma", "rate", "steps"), CASES)
def test_poisson_agrees_with_riskcal(sigma: float, rate: float, steps: int) -> None:
    both, pld = bounds(sigma, rate, steps), pld_of(sigma, rate, steps)
    beta = analysis.get_beta_from_pld(pld, alpha=ALPHAS)
    at_least, at_most = (attacks.type_two_error(both[side], ALPHAS, tolerance=1e-6) for side in Side)
    assert np.all(at_least <= at_most)
    assert np.all(at_least <= beta + CLOSE)
    assert np.all(beta - CLOSE <= at_most)
    assert np.all(at_most - at_least <= CLOSE)
    theirs = analysis.get_advantage_from_pld(pld)
    assert attacks.advantage(both[Side.LOWER]) <= theirs + CLOSE <= attacks.advantage(both[Side.UPPER]) + 2 * CLOSE
    priors = np.array([0.5, 0.7, 0.9])
    risk = analysis.get_bayes_risk_from_pld(pld, priors)
    for side in Side:
        assert np.all(np.abs(attacks.bayes_error(both[side], priors) - risk) <= CLOSE)
    # The rate of the symmetric function is at least that of either order; each is found to a tolerance of 1e-6.
    assert np.all(attacks.true_positive_rate(both[Side.UPPER], ALPHAS, tolerance=1e-6) <= 1.0 - at_least + 1e-6)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_gaussian_agrees_with_riskcal(mu: float) -> None:
    run = hs.Mechanism(sampler=hs.Deterministic(bins=1), noise_multiplier=1.0 / mu)
    for side in Side:
        bound = hs.bound(run, "gaussian", side=side)
        assert attacks.type_two_error(bound, ALPHAS) == pytest.approx(analysis.get_beta_from_gdp(mu, ALPHAS), abs=1e-6)
        assert attacks.advantage(bound) == pytest.approx(analysis.get_advantage_from_gdp(mu), rel=1e-9)
        risk = analysis.get_bayes_risk_from_gdp(mu, np.array([0.5, 0.8]))
        assert attacks.bayes_error(bound, [0.5, 0.8]) == pytest.approx(risk, rel=1e-9)


@pytest.mark.parametrize(("sigma", "rate", "steps"), CASES)
def test_regret_of_a_given_mu_agrees_with_gdpnum(sigma: float, rate: float, steps: int) -> None:
    """gdpnum's own mu ignores error rates below 1e-10, ours deltas below 1e-10; the regret of one mu is comparable."""
    gdpnum = pytest.importorskip("gdpnum")
    both = bounds(sigma, rate, steps)
    mu, regret = gdpnum.PLDConverter(pld_of(sigma, rate, steps)).get_mu_and_regret()
    assert attacks.gdp_regret(both[Side.UPPER], mu) <= regret + CLOSE
    assert attacks.gdp_regret(both[Side.LOWER], mu) >= regret - CLOSE
    assert attacks.gdp_regret(both[Side.UPPER], mu) == pytest.approx(regret, abs=CLOSE)
    assert attacks.gdp_mu(both[Side.UPPER]) >= mu - CLOSE


def test_mu_of_a_privacy_loss_distribution() -> None:
    """The mu that the profile of dp_accounting needs, found at each epsilon by bisection, up to the same allowance."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    sigma, rate, steps, allowance = 1.0, 0.05, 50, 1e-6
    pmf = pld_of(sigma, rate, steps)._pmf_remove
    epsilons = np.linspace(0.0, 8.0, 801)
    deltas = np.asarray(pmf.get_delta_for_epsilon(epsilons)) - allowance

    def miss(mu: float, epsilon: float, delta: float) -> float:
        return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    needed = max(
        brentq(miss, 1e-3, 50.0, args=(epsilon, delta), xtol=1e-12)
        for epsilon, delta in zip(epsilons, deltas, strict=True)
        if delta > 0.0
    )
    both = bounds(sigma, rate, steps)
    least, most = (attacks.gdp_mu(both[side], unexplained=allowance) for side in (Side.LOWER, Side.UPPER))
    assert least <= needed * (1.0 + 1e-3)
    assert most >= needed * (1.0 - 1e-3)
    assert most <= least * (1.0 + 2e-3)


def test_the_type_two_error_of_a_fine_distribution_is_that_of_its_profile() -> None:
    """Where riskcal loses the negative noise of a fine grid; the profile of the same distribution agrees with ours."""
    pld = privacy_loss_distribution.from_gaussian_mechanism(
        1.0, sampling_prob=0.01, value_discretization_interval=1e-4
    ).self_compose(1000)
    epsilons = np.linspace(0.0, 6.0, 3001)
    from_profile = np.max(1.0 - np.asarray(pld._pmf_remove.get_delta_for_epsilon(epsilons)) - np.exp(epsilons) * 1e-3)
    both = bounds(1.0, 0.01, 1000)
    at_least, at_most = (float(attacks.type_two_error(both[side], 1e-3)) for side in Side)
    assert at_least - 1e-6 <= from_profile <= at_most + 1e-6
