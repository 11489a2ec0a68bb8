"""The best of several trials: never below the truth of any score, against published theorems, and bad input."""

from itertools import permutations
from math import exp, log

import mpmath
import numpy as np
import pytest
from composition_oracles import exact_law, hockey_stick, random_pair
from hypothesis import given, settings
from hypothesis import strategies as st

import hockeystick as hs
from hockeystick.composition.selection import best_of, upper_envelope
from hockeystick.composition.trials import (
    FixedTrials,
    NegativeBinomialTrials,
    PoissonTrials,
    negative_binomial_mean,
    trials_of,
)
from hockeystick.errors import InvalidInputError, VerificationError
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.types import Direction, Side

LAWS = (
    FixedTrials(count=3),
    PoissonTrials(mean=0.5),
    PoissonTrials(mean=4.0),
    NegativeBinomialTrials(shape=1.0, gamma=0.2),
    NegativeBinomialTrials(shape=0.0, gamma=0.05),
    NegativeBinomialTrials(shape=-0.5, gamma=0.1),
    NegativeBinomialTrials(shape=3.0, gamma=0.4),
)


def chances(trials, most=4000):
    """Pr[K = 0], Pr[K = 1], ... from the definitions, not from the generating functions that are tested."""
    k = np.arange(most, dtype=np.float64)
    if isinstance(trials, FixedTrials):
        return (k == trials.count).astype(float)
    if isinstance(trials, PoissonTrials):
        logs = k * log(trials.mean) - trials.mean - np.concatenate([[0.0], np.cumsum(np.log(k[1:]))])
        return np.exp(logs)
    weights = np.zeros(most)
    weights[1] = 1.0
    for at in range(2, most):
        weights[at] = weights[at - 1] * (1.0 - trials.gamma) * (at - 1 + trials.shape) / at
    return weights / weights.sum()


def best_of_distribution(single, order, trials):
    """The law of the best output when later places of ``order`` beat earlier ones: cdf^K, averaged over K."""
    weights = chances(trials)
    powers = np.arange(weights.size)
    cdf = np.minimum(np.concatenate([[0.0], np.cumsum(single[list(order)])]), 1.0)
    mixed = np.array([float(weights @ value**powers) for value in cdf])
    distribution = np.empty(single.size)
    distribution[list(order)] = np.diff(mixed)
    return distribution  # where K = 0 nothing is released, with the same probability in both data sets


@pytest.mark.parametrize("trials", LAWS, ids=str)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.weekly) for seed in range(2, 6))])
def test_no_order_of_the_outputs_is_less_private_than_the_bound(trials, seed):
    """All orders of four outputs, enumerated, for two pairs, and weekly for four more."""
    p, q = random_pair(np.random.default_rng(seed), 4)
    chosen = best_of(exact_law(p, q), trials.mean, trials.survival)
    for order in permutations(range(4)):
        first, second = (best_of_distribution(chances, order, trials) for chances in (p, q))
        for direction in Direction:
            for epsilon in (0.0, 0.3, 1.0, 2.5):
                truth = hockey_stick(first, second, epsilon, direction)
                assert chosen.delta(epsilon, direction) >= min(truth, 1.0) - 1e-12


@pytest.mark.parametrize("trials", LAWS, ids=str)
def test_laws_of_the_number_are_what_they_say(trials):
    weights, k = chances(trials), np.arange(4000)
    assert trials.mean == pytest.approx(float(weights @ k), rel=1e-9)
    assert trials.none == pytest.approx(weights[0], rel=1e-9)
    beaten = np.array([0.0, 0.1, 0.5, 0.9])
    exact = (
        np.array([float((weights[1:] * k[1:]) @ (1.0 - chance) ** (k[1:] - 1.0)) for chance in beaten]) / trials.mean
    )
    assert np.allclose(trials.survival(beaten), exact, rtol=1e-9)


@pytest.mark.parametrize("trials", LAWS[1:], ids=str)
def test_numbers_are_drawn_from_the_law(trials):
    """Kolmogorov-Smirnov at 20,000 draws: a false failure has probability below 2 exp(-2 n 0.02^2) < 3e-7 each."""
    rng = np.random.default_rng(7)
    drawn = np.array([trials.draw(rng) for _ in range(20_000)])
    empirical = np.bincount(np.minimum(drawn, 3999), minlength=4000) / drawn.size
    assert np.abs(np.cumsum(empirical) - np.cumsum(chances(trials))).max() < 0.02


def test_pure_dp_with_a_geometric_number_is_at_most_3_epsilon():
    """Liu and Talwar (2019), Theorem 1.3 and Papernot and Steinke (2022), Corollary 3: (2 + shape) eps."""
    single = 0.5
    a = exp(single) / (1.0 + exp(single))
    law = exact_law(np.array([a, 1.0 - a]), np.array([1.0 - a, a]))
    for shape, gamma in ((1.0, 1e-3), (0.0, 1e-3), (1.0, 0.5)):
        trials = NegativeBinomialTrials(shape=shape, gamma=gamma)
        chosen = best_of(law, trials.mean, trials.survival)
        for direction in Direction:
            # cells of the chance to be beaten are 0.0012 wide in its logarithm, and the points of the trade-off 0.01
            # apart in epsilon: either may cost (1 + shape) times that much
            assert chosen.delta((2.0 + shape) * single + (1.0 + shape) * 0.0112, direction) < 1e-9 * trials.mean


@pytest.mark.parametrize("sigma", [2.0, 4.0])
@pytest.mark.parametrize(("shape", "gamma"), [(1.0, 0.1), (0.0, 0.02)])
def test_gaussian_trials_are_tighter_than_the_renyi_theorem(sigma, shape, gamma):
    """Papernot and Steinke (2022), Theorem 2, with rho(a) = a / (2 sigma^2), to delta by Canonne et al. (2020)."""
    trials, delta = NegativeBinomialTrials(shape=shape, gamma=gamma), 1e-6
    orders = np.concatenate([np.linspace(1.05, 20.0, 400), np.linspace(20.5, 400.0, 400)])
    rho = orders / (2.0 * sigma**2)
    second = np.min((1.0 + shape) * ((1.0 - 1.0 / orders) * rho + log(1.0 / gamma) / orders))
    renyi = rho + second + log(trials.mean) / (orders - 1.0)
    published = np.min(renyi + np.log1p(-1.0 / orders) - (log(delta) + np.log(orders)) / (orders - 1.0))
    law = gaussian_law(sigma, 1.0, Side.UPPER, Resolution(68, delta))
    chosen = best_of(law, trials.mean, trials.survival)
    ours = max(smallest_epsilon(profile, delta, Side.UPPER) for profile in chosen.profiles().values())
    single = smallest_epsilon(lambda at: hs.bound(plain(sigma), "gaussian").delta(at), delta, Side.UPPER)
    assert single < ours < published


def plain(sigma):
    return hs.Mechanism(sampler=hs.Deterministic(bins=1), noise_multiplier=sigma)


@given(st.integers(0, 10**6))
@settings(max_examples=50)
def test_the_envelope_is_the_largest_line(seed):
    rng = np.random.default_rng(seed)
    slopes, intercepts = (np.sort(rng.random(rng.integers(1, 30)))[::-1] for _ in range(2))
    size = min(slopes.size, intercepts.size)
    slopes, intercepts = slopes[:size], intercepts[:size]
    envelope = upper_envelope(slopes, intercepts)
    z = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 50)])
    above = np.maximum((np.multiply.outer(z, slopes) - intercepts).max(axis=1), 0.0)
    assert np.allclose(envelope.above(z), above, rtol=1e-9, atol=1e-12)
    below = np.maximum((slopes - np.multiply.outer(z, intercepts)).max(axis=1), 0.0)
    assert np.allclose(envelope.below(z), below, rtol=1e-9, atol=1e-12)


# --- the front door ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trial():
    return hs.certify(plain(4.0), delta=1e-5)


def test_more_trials_are_less_private_and_never_more_private_than_one(trial):
    epsilons = [hs.tuning(trial, trials=mean, delta=1e-5).epsilon for mean in (2, 10, 100)]
    assert [epsilon.upper for epsilon in epsilons] == sorted(epsilon.upper for epsilon in epsilons)
    for epsilon in epsilons:
        assert epsilon.lower == pytest.approx(trial.epsilon.lower, rel=1e-3)
        assert epsilon.upper > trial.epsilon.upper


def test_a_fixed_number_is_no_worse_than_the_composition_of_all(trial):
    five = hs.tuning(trial, trials=5, distribution="fixed", delta=1e-5).epsilon.upper
    assert five <= hs.compose([trial] * 5, delta=1e-5).epsilon.upper * (1.0 + 1e-6)
    epsilon = hs.tuning(trial, trials=1, distribution="fixed", delta=1e-5).epsilon
    assert epsilon.upper == pytest.approx(trial.epsilon.upper, rel=1e-3)


def test_a_poisson_number_may_be_zero(trial):
    """Nothing is released with probability e^-1/2, so the lower bound is that much smaller."""
    claim = hs.tuning(trial, trials=0.5, distribution="poisson", epsilon=0.2)
    once = hs.bound(trial.mechanism, "gaussian", side=Side.LOWER).delta(0.2)
    assert claim.delta.lower == pytest.approx((1.0 - exp(-0.5)) * once, rel=2e-2)
    assert claim.delta.lower <= (1.0 - exp(-0.5)) * once


def test_a_claim_verifies_and_an_altered_one_does_not(trial, tmp_path):
    claim = hs.tuning(trial, trials=10, delta=1e-5)
    claim.save(tmp_path / "tuning.json")
    hs.verify(hs.Tuning.load(tmp_path / "tuning.json"))
    fewer = claim.model_copy(update={"trials": trials_of(100, "geometric")}).sealed()
    with pytest.raises(VerificationError, match=r"epsilon\.upper"):
        hs.verify(fewer)
    with pytest.raises(VerificationError, match="digest"):
        hs.verify(claim.model_copy(update={"delta": 1e-4}))
    said = str(claim)
    assert "the best of a geometric number of trials of mean 10" in said
    assert "draw the number of trials from a geometric distribution with mean 10, and keep it secret" in said
    assert "not how many there were" in said


@pytest.mark.parametrize(("distribution", "drawn"), [("poisson", True), ("geometric", True), ("fixed", False)])
def test_claims_in_the_words_of_early_versions_verify(trial, distribution, drawn):
    """A claim that says the same in other words was written by an early version; one that leaves a word out was not."""
    claim = hs.tuning(trial, trials=10, distribution=distribution, delta=1e-5)
    first = f"Draw the number of trials first, from a {distribution} number of trials of mean 10, in secret.".replace(
        "a poisson", "a Poisson"
    )
    scores = (
        "Compute the score of a trial from what its run releases and from data of nobody that the claim protects, and "
        "choose at random among equal scores."
    )
    before = (*claim.requirements[:3], *([first] if drawn else []), scores, claim.requirements[-1])
    assert len(before) == len(claim.requirements)
    hs.verify(claim.model_copy(update={"requirements": before}).sealed())
    without_scores = claim.model_copy(update={"requirements": (*before[:-2], before[-1])}).sealed()
    with pytest.raises(VerificationError, match="'requirements'"):
        hs.verify(without_scores)


@pytest.mark.parametrize(
    ("trials", "distribution", "named"),
    [
        (1, "geometric", "above 1"),
        (0, "fixed", "above 0"),
        (2.5, "fixed", "whole number"),
        (-1, "poisson", "above 0"),
        (float("nan"), "poisson", "'trials'"),
        (1e6, "logarithmic", "at most 10000"),
        (10, "uniform", "'distribution'"),
        ("ten", "fixed", "'trials'"),
    ],
)
def test_bad_numbers_and_names(trials, distribution, named):
    with pytest.raises(InvalidInputError, match=named):
        trials_of(trials, distribution)


def test_what_is_no_trial():
    with pytest.raises(InvalidInputError, match="'trial'"):
        hs.tuning(3.0, trials=10, delta=1e-5)


@pytest.mark.parametrize("mean", [1.001, 2.0, 50.0, 1e4])
@pytest.mark.parametrize("distribution", ["geometric", "logarithmic"])
def test_means_are_met(mean, distribution):
    law = trials_of(mean, distribution)
    assert negative_binomial_mean(law.shape, law.gamma) == pytest.approx(mean, rel=1e-6)


SHAPES = [100.0, 1.0, 1e-5, 1e-100, 1e-199, 1e-201, 1e-310, 1e-315, -1e-320, 5e-324, 0.0, -1e-9, -0.5, -1.0 + 1e-15]


@pytest.mark.parametrize("gamma", [1e-6, 0.01, 0.5, 1.0 - 1e-9, 1.0 - 2.0**-53])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_mean_is_rounded_up(shape, gamma):
    """Against 50 digits, with shapes for which doubles have few; delta of the best of K is E K times a number."""
    with mpmath.workdps(50):
        a, g = mpmath.mpf(shape), mpmath.mpf(gamma)
        exact = a * (1 - g) / (g * -mpmath.expm1(a * mpmath.log(g))) if shape else (1 / g - 1) / -mpmath.log(g)
        assert exact <= NegativeBinomialTrials(shape=shape, gamma=gamma).mean <= exact * (1 + 2e-12)


@pytest.mark.parametrize("shape", [5e-324, 3.0, 60.0, 100.0])
def test_numbers_of_extreme_laws_are_drawn(shape):
    """Means of 400 draws, whose deviation is the law's over 20: within six of them, or 2e-9 for a false failure.

    The variance is at most that of the law with its zero, ``shape (1 - gamma) / gamma^2``, or the mean over gamma."""
    trials, rng = NegativeBinomialTrials(shape=shape, gamma=1e-6), np.random.default_rng(0)
    if shape < 1.0:
        trials = NegativeBinomialTrials(shape=shape, gamma=0.2)
    deviation = (max(shape / trials.gamma**2, trials.mean / trials.gamma) / 400) ** 0.5
    drawn = [trials.draw(rng) for _ in range(400)]
    assert min(drawn) >= 1
    assert abs(np.mean(drawn) - trials.mean) < 6.0 * deviation


def test_the_survival_of_many_trials_loses_no_digits():
    """``(1 - p)^(n - 1)`` in 50 digits; the bound allows 1e-12. Files may name as many trials as this."""
    trials = FixedTrials(count=10**9)
    with mpmath.workdps(50):
        for beaten in (1.3e-12, 3.3e-10, 1.7e-9, 2e-8, 3e-7):
            exact = float((1 - mpmath.mpf(beaten)) ** (trials.count - 1))
            assert trials.survival(np.array([beaten]))[0] == pytest.approx(exact, rel=5e-13)
    assert FixedTrials(count=1).survival(np.array([0.0, 1.0])).tolist() == [1.0, 1.0]
    assert trials.survival(np.array([1.0])).tolist() == [0.0]
