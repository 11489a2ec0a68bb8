"""What an attacker gains at most: closed forms, the worst mechanism by hand, and lower bounds."""

from fractions import Fraction
from math import exp
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy.stats import norm

from hockeystick import (
    BallsInBins,
    BandedSquareRoot,
    Bound,
    Deterministic,
    Direction,
    Kind,
    Mechanism,
    MonteCarlo,
    Poisson,
    Question,
    RandomAllocation,
    Settings,
    Side,
    bound,
    certify,
)
from hockeystick.attacks import gdp_mu, gdp_regret, true_positive_rate
from hockeystick.attacks.numbers import FALSE_POSITIVE_RATES
from hockeystick.certificate import AttackNumbers
from hockeystick.certification.issue import PORTABLE, attack_numbers, implied_bound, implied_delta, tighter
from hockeystick.certification.schedule import Outcome
from hockeystick.pairs.registry import dominating_pair


def said(method: str, upper: float) -> Outcome:
    """That a deterministic method has this upper end."""
    return Outcome(method, Side.UPPER, Kind.DETERMINISTIC, 1.0, upper, 0.0, "ok")


def worst_delta(growth: Fraction, delta: Fraction, at: Fraction) -> Fraction:
    """The hockey-stick divergence of the worst (epsilon, delta) pair at e^at, outcome by outcome, exactly.

    Randomised response that fails with probability d: P = (d, (1 - d) g / (1 + g), (1 - d) / (1 + g), 0), and Q is the
    same backwards.
    """
    first = [delta, (1 - delta) * growth / (1 + growth), (1 - delta) / (1 + growth), Fraction(0)]
    return sum((max(p - at * q, Fraction(0)) for p, q in zip(first, reversed(first), strict=True)), Fraction(0))


@hypothesis_settings(derandomize=True)
@given(st.floats(0.0, 30.0), st.floats(0.0, 0.99), st.floats(0.0, 1.0))
def test_the_implied_delta_is_that_of_the_worst_mechanism(epsilon: float, delta: float, share: float) -> None:
    at = share * epsilon
    growth, threshold = Fraction(exp(epsilon)), Fraction(exp(at))
    if threshold > growth:
        return
    exact = float(worst_delta(growth, Fraction(delta), threshold))
    found = implied_delta(epsilon, delta, at)
    # exp is off by a rounding or two, which moves the oracle itself by as much as a relative 1e-15 of each power.
    assert exact - 1e-15 <= found <= exact * (1.0 + 1e-13) + 1e-14


def test_many_epsilons_have_the_implied_deltas_that_they_have_alone() -> None:
    """Below the certified epsilon, at it and beyond, but for the rounding that is charged."""
    pair, end = dominating_pair(Mechanism(sampler=Deterministic(bins=3), noise_multiplier=0.05)), said("direct", 2.0)
    at = [0.0, 0.5, 2.0 * (1.0 - 1e-12), 2.0, 3.0, 1.0]
    together = implied_bound(pair, Question(delta=1e-6), end, 2.0, Settings()).delta(at)
    for epsilon, delta in zip(at, together.tolist(), strict=True):
        assert delta == pytest.approx(implied_delta(2.0, 1e-6, epsilon), rel=1e-14)
    assert together[3] == together[4] == 1e-6


def test_beyond_its_epsilon_it_is_delta() -> None:
    assert implied_delta(1.0, 1e-6, 1.0) == implied_delta(1.0, 1e-6, 2.0) == 1e-6
    assert implied_delta(700.0, 0.0, 0.0) == pytest.approx(1.0)


def numbers_of(upper: Bound, delta: float = 1e-5) -> AttackNumbers:
    return attack_numbers(upper, delta)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta of N(mu, 1) against N(0, 1), from its closed form."""
    first, second = norm.logcdf(mu / 2 - epsilon / mu), epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
    return float(np.exp(first) - np.exp(second))


def test_the_advantage_of_the_gaussian() -> None:
    """2 Phi(mu / 2) - 1 with mu = sensitivity / sigma."""
    run = Mechanism(sampler=Deterministic(bins=10, epochs=9), noise_multiplier=4.0)
    exact = 2.0 * norm.cdf(0.5 * 3.0 / 4.0) - 1.0
    assert exact <= certify(run, delta=1e-5).numbers.advantage <= exact * (1.0 + 3e-7)
    assert exact <= numbers_of(bound(run, "gaussian")).advantage <= exact * (1.0 + 1e-9)


DELTAS = (1e-6, 0.05, 0.2)


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 3.0])
def test_the_rates_of_the_gaussian(mu: float) -> None:
    """No best test does better, ``Phi(mu + Phi^-1(fpr))``, and what is said is at most 1 percent above it."""
    found = numbers_of(bound(Mechanism(sampler=Deterministic(bins=10), noise_multiplier=1.0 / mu), "gaussian"))
    for name, false in FALSE_POSITIVE_RATES.items():
        exact = float(norm.cdf(mu + norm.ppf(false)))
        assert exact <= getattr(found, name) <= 1.01 * exact
    assert norm.cdf(mu / 2.0) <= found.bayes_success <= norm.cdf(mu / 2.0) * (1.0 + 1e-9)


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_the_rates_do_not_depend_on_the_delta_that_is_certified(mu: float) -> None:
    """One that explains no mu has no epsilon up to which all are read; another is one that the profile soon has."""
    gaussian = bound(Mechanism(sampler=Deterministic(bins=10), noise_multiplier=1.0 / mu), "gaussian")
    rates = [{name: getattr(numbers_of(gaussian, delta), name) for name in FALSE_POSITIVE_RATES} for delta in DELTAS]
    assert rates[0] == rates[1] == rates[2]


def test_the_rates_are_those_of_the_refined_search_or_slightly_more() -> None:
    for run in RUNS[:2]:
        upper = bound(run, "direct")
        found = numbers_of(upper)
        for name, false in FALSE_POSITIVE_RATES.items():
            refined = float(true_positive_rate(upper, false))
            assert refined - 1e-6 <= getattr(found, name) <= 1.01 * refined + 1e-6


@pytest.mark.parametrize("mu", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-3])
def test_a_gaussian_is_covered_but_for_delta_and_no_less_than_it_needs(mu: float, delta: float) -> None:
    found = numbers_of(
        bound(Mechanism(sampler=Deterministic(bins=10), noise_multiplier=1.0 / mu), "gaussian"), delta
    ).gdp_mu
    assert found is not None
    epsilons = np.linspace(0.0, 10.0 * mu, 400)
    assert all(gaussian_delta(mu, at) <= gaussian_delta(found, at) + delta * (1.0 + 1e-9) for at in epsilons)
    below = 0.99 * found
    assert any(gaussian_delta(mu, at) > gaussian_delta(below, at) + delta for at in epsilons)


RUNS = (
    Mechanism(sampler=Poisson(sampling_prob=0.05, steps=40), noise_multiplier=1.0),
    Mechanism(sampler=RandomAllocation(bins=20, epochs=2), noise_multiplier=0.8),
    Mechanism(
        sampler=Poisson(sampling_prob=0.05, steps=40, truncated_batch_size=60, num_examples=500), noise_multiplier=1.0
    ),
)


@pytest.mark.parametrize("run", RUNS[:2], ids=lambda run: run.sampler.kind)
@pytest.mark.parametrize("delta", [1e-6, 1e-2])
def test_mu_and_its_regret_are_those_of_the_refined_search_or_slightly_more(run: Mechanism, delta: float) -> None:
    upper = bound(run, "direct")
    found = numbers_of(upper, delta)
    refined = gdp_mu(upper, unexplained=delta)
    assert found.gdp_mu is not None
    assert found.gdp_regret is not None
    assert refined * (1.0 - 1e-7) <= found.gdp_mu <= 1.01 * refined
    assert found.gdp_regret == pytest.approx(gdp_regret(upper, found.gdp_mu), abs=1e-3)
    lower = bound(run, "direct", side=Side.LOWER)
    for at in np.linspace(0.0, 12.0, 60):
        assert lower.delta(float(at)) <= gaussian_delta(found.gdp_mu, at) + delta


def test_where_a_bound_falls_in_a_jump_it_is_not_searched() -> None:
    """As one pair of numbers does. What is found is no larger than what a search finds, which ends within 1e-9."""
    seen: list[float] = []

    def profile(at: float) -> float:
        seen.append(at)
        return implied_delta(2.0, 1e-5, at)

    upper = Bound("test", Side.UPPER, Kind.DETERMINISTIC, 1.0, "by definition", dict.fromkeys(Direction, profile))
    expected = attack_numbers(upper, 1e-5, near=2.0)
    quick = len(seen)
    searched = attack_numbers(upper, 1e-5)
    assert quick + 20 < len(seen) - quick
    assert searched.gdp_mu is not None
    assert expected.gdp_mu is not None
    assert searched.gdp_mu * (1.0 - 1e-8) <= expected.gdp_mu <= searched.gdp_mu * (1.0 + 1e-12)
    # A guess that is no jump is looked for as ever.
    elsewhere = attack_numbers(upper, 1e-5, near=1.9)
    assert elsewhere.gdp_mu == pytest.approx(searched.gdp_mu, rel=1e-8)


def test_no_mu_is_stated_where_there_is_none() -> None:
    upper = bound(RUNS[0], "direct")
    assert attack_numbers(upper, 0.2).gdp_mu is None
    assert attack_numbers(upper, 0.0).gdp_mu is None
    loud = bound(Mechanism(sampler=Deterministic(bins=10), noise_multiplier=0.01), "gaussian")
    assert attack_numbers(loud, 1e-5).gdp_mu is None  # epsilon is above 700
    profile = dict.fromkeys(Direction, lambda at: 1.0 if at < 2.0 else 0.0)
    separate = Bound("test", Side.UPPER, Kind.DETERMINISTIC, 1.0, "by definition", profile)
    assert attack_numbers(separate, 1e-5).gdp_mu is None  # a test that never errs is covered by no finite mu
    quiet = bound(Mechanism(sampler=Deterministic(bins=10), noise_multiplier=100.0), "gaussian")
    assert attack_numbers(quiet, quiet.delta(0.0)).gdp_mu == 0.0  # all of it is within delta


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.sampler.kind)
@pytest.mark.parametrize("question", [{"delta": 1e-2}, {"epsilon": 0.5}])
def test_no_number_is_below_a_proved_lower_bound(run: Mechanism, question: dict[str, float]) -> None:
    certificate = certify(run, **question)
    lower = bound(run, "direct", side=Side.LOWER)
    assert lower.delta(0.0) <= certificate.numbers.advantage
    mu, (_, delta) = certificate.numbers.gdp_mu, Question(**question).claimed(certificate.bounds.upper)
    assert mu is not None
    assert all(lower.delta(at) <= gaussian_delta(mu, at) + delta for at in (0.0, 0.1, 0.5, 1.0, 3.0))
    upper = certificate.bounds.upper
    end = said(certificate.method.upper, upper)
    profile = implied_bound(dominating_pair(run), Question(**question), end, upper, Settings())
    for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0):
        assert lower.delta(epsilon) <= profile.delta(epsilon)


def test_it_is_at_most_what_each_of_its_three_bounds_says() -> None:
    certificate = certify(RUNS[0], delta=1e-5)
    epsilon, room = certificate.bounds.upper, 1.0 + 2e-7
    assert certificate.numbers.advantage <= bound(RUNS[0], "direct").delta(0.0) * room
    assert certificate.numbers.advantage <= bound(RUNS[0], "gaussian").delta(0.0) * room
    assert certificate.numbers.advantage <= implied_delta(epsilon, 1e-5, 0.0) * room


def test_what_is_read_off_truncated_batches_pays_for_the_truncation() -> None:
    """Nothing follows from a certified delta of 1, so the two methods' own bounds are left, with their slack."""
    sampler = Poisson(sampling_prob=0.05, steps=40, truncated_batch_size=46, num_examples=500)
    run = Mechanism(strategy=BandedSquareRoot(bands=1), sampler=sampler, noise_multiplier=1.0)
    pair = dominating_pair(run)
    assert pair.slack > 1e-3
    found = tighter(
        implied_bound(pair, Question(epsilon=0.5), said("direct", 1.0), 1.0, Settings()), bound(run, "direct")
    )
    known = [bound(run, name) for name in ("direct", "gaussian")]
    for at in (0.0, 0.5, 2.0):
        assert found.delta(at) == pytest.approx(min(one.delta(at) for one in known), rel=1e-12)


def test_a_sampled_bound_gives_what_it_implies() -> None:
    run = Mechanism(strategy=BandedSquareRoot(bands=2), sampler=BallsInBins(bins=3, epochs=2), noise_multiplier=1.5)
    found = certify(run, delta=1e-3, method="monte_carlo", monte_carlo=MonteCarlo(seed=1, ratio=0.5))
    known = min(implied_delta(found.bounds.upper, 1e-3, 0.0), bound(run, "gaussian").delta(0.0))
    assert found.numbers.advantage == pytest.approx(known, rel=2e-7)


def test_the_gaussian_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it answers as an accountant is what a certificate says of known batches."""
    asked: list[str] = []
    epsilon = Bound.epsilon

    def watched(bound: Bound, delta: float, near: float | None = None) -> Any:
        asked.append(bound.method)
        return epsilon(bound, delta, near)

    monkeypatch.setattr(Bound, "epsilon", watched)
    run = Mechanism(sampler=Poisson(sampling_prob=0.05, steps=40), noise_multiplier=1.0)
    certificate = certify(run, delta=1e-5)
    assert asked.count("gaussian") == 1
    assert certificate.without_amplification == bound(run, "gaussian").epsilon(1e-5) * (1.0 + PORTABLE)


def test_without_amplification_is_the_gaussian_for_known_batches() -> None:
    run = RUNS[0]
    for question in ({"delta": 1e-5}, {"epsilon": 0.5}):
        certificate = certify(run, **question)
        gaussian = Question(**question).answer(bound(run, "gaussian"))
        assert gaussian <= certificate.without_amplification <= gaussian * (1.0 + 2e-7)
        assert certificate.bounds.upper <= certificate.without_amplification


def test_where_it_is_not_finite_there_is_none() -> None:
    """Truncation costs (1 + e^epsilon) times its slack, more than delta at the large epsilon of known batches."""
    run = RUNS[2].model_copy(update={"strategy": BandedSquareRoot(bands=1)})
    assert certify(run, delta=1e-2).without_amplification is None
    assert bound(run, "gaussian").epsilon(1e-2) == float("inf")
