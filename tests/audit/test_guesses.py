"""Guesses about secret coins: no mechanism beats the chances, and the bounds on epsilon keep their level."""

from itertools import product
from math import comb, exp, log

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import lil_matrix
from scipy.stats import binom, norm

import hockeystick as hs
from hockeystick.audit.guessing import (
    Guesses,
    covering_mu,
    gaussian_epsilon,
    largest_epsilon,
    largest_rejected,
)
from hockeystick.audit.one_run import guesses
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.mechanism import Unit
from hockeystick.types import Side

DELTA = 1e-5


def best_of_all_mechanisms(canaries, guessed, right, epsilon, delta):
    """The largest chance of so many right guesses over all (epsilon, delta)-DP mechanisms, by a linear programme.

    What a mechanism releases may be taken to be the guesses themselves: 1, -1, or 0 for none.
    """
    coins = list(product((-1, 1), repeat=canaries))
    said = [t for t in product((-1, 0, 1), repeat=canaries) if sum(map(abs, t)) == guessed]
    place = {(s, t): i * len(said) + j for i, s in enumerate(coins) for j, t in enumerate(said)}
    flips = [(s, (*s[:i], -s[i], *s[i + 1 :])) for s in coins for i in range(canaries)]
    chances, excesses = len(place), len(flips) * len(said)
    limits = lil_matrix((excesses + len(flips), chances + excesses))
    for flip, (kept, flipped) in enumerate(flips):
        for j, t in enumerate(said):
            row = flip * len(said) + j
            limits[row, place[kept, t]], limits[row, place[flipped, t]], limits[row, chances + row] = (
                1,
                -exp(epsilon),
                -1,
            )
        limits[excesses + flip, chances + flip * len(said) : chances + (flip + 1) * len(said)] = 1
    sums = lil_matrix((len(coins), chances + excesses))
    for i in range(len(coins)):
        sums[i, i * len(said) : (i + 1) * len(said)] = 1
    wins = np.zeros(chances + excesses)
    for (s, t), at in place.items():
        wins[at] = (sum(x == y for x, y in zip(s, t, strict=True)) >= right) / len(coins)
    optimum = linprog(
        -wins,
        A_ub=limits.tocsr(),
        b_ub=np.concatenate([np.zeros(excesses), np.full(len(flips), delta)]),
        A_eq=sums.tocsr(),
        b_eq=np.ones(len(coins)),
        bounds=(0, 1),
        method="highs",
    )
    assert optimum.status == 0
    return -optimum.fun


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.05), (0.5, 0.1), (1.0, 0.02), (2.0, 0.0)])
@pytest.mark.parametrize("canaries", [1, 2, 3])
def test_no_mechanism_of_few_canaries_has_more_right_guesses(canaries, epsilon, delta):
    """Every mechanism is in the linear programme; for one guess, and for delta = 0, the chance is attained."""
    for guessed in range(1, canaries + 1):
        for right in range(1, guessed + 1):
            exact = best_of_all_mechanisms(canaries, guessed, right, epsilon, delta)
            count = Guesses(canaries, guessed, right, independent=False)
            bound = count.chances(np.array([epsilon]), delta)[0]
            assert exact <= bound + 1e-9
            assert bound <= exact + canaries * delta / 8 + 1e-9
            if guessed == 1 or delta == 0.0:
                assert bound == pytest.approx(exact, abs=1e-7)


def test_all_canaries_count_and_not_those_that_are_guessed():
    """Seven canaries: what reveals coins with probability delta is guessed where it does, and one guess is made."""
    delta, epsilon = 0.03, 0.0
    attained = 1.0 - 0.5 * (1.0 - delta) ** 7
    bound = Guesses(7, 1, 1, independent=False).chances(np.array([epsilon]), delta)[0]
    assert attained <= bound <= 0.5 + 7 * delta / 2 + 1e-12
    assert Guesses(7, 1, 1, independent=True).chances(np.array([epsilon]), delta)[0] == pytest.approx(attained)


def top(posteriors, guessed):
    return np.sort(posteriors, axis=-1)[..., -guessed:]


def tail(probs, right):
    """P(so many right) of independent guesses, by enumeration."""
    total = 0.0
    for hits in product((0, 1), repeat=len(probs)):
        if sum(hits) >= right:
            total += np.prod([p if hit else 1 - p for p, hit in zip(probs, hits, strict=True)])
    return total


@pytest.mark.parametrize(("guessed", "right"), [(1, 1), (2, 2), (3, 2), (4, 3), (4, 4)])
def test_independent_canaries_by_enumeration(guessed, right):
    """Four copies of the worst (epsilon, delta) pair, which reveals the coin or flips it; the clearest are guessed."""
    epsilon, delta = 0.7, 0.1
    prob = 1 / (1 + exp(-epsilon))
    exact = 0.0
    for seen in range(5):
        weight = comb(4, seen) * delta**seen * (1 - delta) ** (4 - seen)
        exact += weight * tail(top(np.array([1.0] * seen + [prob] * (4 - seen)), guessed), right)
    chance = Guesses(4, guessed, right, independent=True).chances(np.array([epsilon]), delta)[0]
    assert chance == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize(("guessed", "right"), [(30, 23), (10, 10), (3, 3)])
def test_independent_gaussian_canaries_by_simulation(guessed, right):
    """The share of 40,000 runs, at most 5 standard errors above the chance: false failure below 1e-6; and 1.1 times."""
    mu, runs = 1.0, 40_000
    rng = np.random.default_rng(guessed)
    x = rng.normal(size=(runs, 30)) + 0.5 * mu  # the coins are all heads: what is right is symmetric
    order = np.argsort(-np.abs(x), axis=1)[:, :guessed]
    share = ((np.take_along_axis(x, order, axis=1) > 0).sum(axis=1) >= right).mean()
    chance = Guesses(30, guessed, right, independent=True).gaussian_chances(np.array([mu]))[0]
    error = 5.0 * np.sqrt(chance / runs)
    assert share - error <= chance <= 1.1 * share + error
    if guessed == 30:
        assert chance == pytest.approx(binom.sf(right - 1, 30, norm.cdf(0.5 * mu)))


def test_a_gaussian_is_private_at_every_point_of_its_profile():
    """So the chance under mu-GDP is at most that under each of them, which are other bounds on the same."""
    count = Guesses(100, 20, 19, independent=False)
    mu = 0.8
    chance = count.gaussian_chances(np.array([mu]))[0]
    points = [count.chances(np.array([e]), gaussian_delta(1.0, mu, e, Side.UPPER))[0] for e in np.linspace(0, 6, 301)]
    assert chance == pytest.approx(min(points), rel=0.02)
    assert chance < 1.0
    independent = Guesses(100, 20, 19, independent=True)
    assert independent.gaussian_chances(np.array([mu]))[0] < chance


@pytest.mark.parametrize("mu", [0.01, 0.5, 3.0, 12.0])
def test_epsilons_of_gaussians_err_downward_and_their_mus_upward(mu):
    epsilon = gaussian_epsilon(mu, DELTA)
    assert gaussian_delta(1.0, mu, epsilon, Side.LOWER) >= DELTA or epsilon == 0.0
    again = covering_mu(epsilon, DELTA)
    assert gaussian_epsilon(again, DELTA) > epsilon
    if epsilon > 0.0:
        assert again == pytest.approx(mu, rel=1e-6)


def test_a_value_is_rejected_by_any_larger_one():
    """The chance need not rise with epsilon, as the part of delta falls."""
    assert largest_rejected(lambda values: np.where(values == 1.0, 0.0, 1.0), 0.1, 2.0) == 1.0
    assert largest_rejected(np.ones_like, 0.1, 2.0) is None
    assert largest_rejected(lambda values: 0.1 * values, 0.1, 2.0) == pytest.approx(1.0, abs=1e-6)
    assert largest_epsilon(1, 0.5) == pytest.approx(1e-3)
    assert largest_epsilon(10, 0.1) == pytest.approx(log(0.1**0.1 / (1 - 0.1**0.1)))


FIXED = hs.Mechanism(sampler=hs.Deterministic(bins=1), noise_multiplier=1.0)
CERTIFICATE = hs.certify(FIXED, delta=DELTA, method="gaussian")
RUNS, LEVEL, ALLOWED = 200, 0.1, 37


def gaussian(rng, count, mu=1.0):
    included = rng.random(count) < 0.5
    return rng.normal(size=count) + mu * included, included


def revealing(rng, count, epsilon, delta):
    """The worst (epsilon, delta) pair for each canary."""
    included = rng.random(count) < 0.5
    kept = rng.random(count) < 1 / (1 + exp(-epsilon))
    seen = rng.random(count) < delta
    scores = np.where(kept == included, 1.0, -1.0) * (1.0 + rng.random(count))
    return np.where(seen, np.where(included, 10.0, -10.0), scores), included


@pytest.mark.parametrize("independent", [True, False])
def test_the_bound_on_a_gaussian_exceeds_the_truth_no_more_often_than_its_level(independent):
    """Of bounds that keep level 0.1, more than 37 of 200 fail with probability below 1e-3 (asserted)."""
    assert binom.sf(ALLOWED, RUNS, LEVEL) < 1e-3
    rng = np.random.default_rng(1)
    truth = gaussian_epsilon(1.0, DELTA)
    audited = []
    for _ in range(RUNS):
        scores, included = gaussian(rng, 60)
        verdict = guesses(
            scores, included, certificate=CERTIFICATE, level=LEVEL, independent=independent, guessed=(30, 30)
        )
        audited.append(verdict.epsilon.audited)
        assert verdict.refuted == (verdict.epsilon.audited >= verdict.epsilon.upper)
    assert sum(np.array(audited) > truth) <= ALLOWED
    assert np.mean(audited) > (0.3 if independent else 0.0) * truth


def test_the_bound_on_what_reveals_coins_exceeds_the_truth_no_more_often_than_its_level():
    """As above, where the bound with delta is as large as it may be."""
    rng = np.random.default_rng(2)
    epsilon, delta = 1.0, 0.01
    audited = []
    for _ in range(RUNS):
        scores, included = revealing(rng, 40, epsilon, delta)
        audited.append(guesses(scores, included, delta=delta, level=LEVEL, guessed=(10, 10)).epsilon.audited)
    assert sum(np.array(audited) > epsilon) <= ALLOWED


def test_more_is_found_with_more_canaries_and_by_what_may_be_assumed():
    """From 0.4 of epsilon for 200 independent canaries to 0.85 for 5,000; fixed seeds."""
    rng = np.random.default_rng(0)
    shares = []
    for count in (200, 1000, 5000):
        scores, included = gaussian(rng, count)
        strong = guesses(scores, included, certificate=CERTIFICATE, independent=True)
        weak = guesses(scores, included, certificate=CERTIFICATE)
        assert not strong.refuted
        assert 0.0 < weak.epsilon.audited < strong.epsilon.audited < strong.epsilon.upper
        shares.append(strong.epsilon.audited / strong.epsilon.upper)
    assert shares[0] < shares[1] < shares[2]
    assert shares[2] > 0.8


def test_too_little_noise_refutes_the_certificate():
    rng = np.random.default_rng(3)
    scores, included = gaussian(rng, 1000, mu=1.6)
    verdict = guesses(scores, included, certificate=CERTIFICATE, independent=True)
    assert verdict.refuted
    assert verdict.epsilon.audited > verdict.epsilon.upper
    assert verdict.findings[0].evidence > log(1e3)
    assert "certified" in str(verdict)
    small = hs.certify(hs.Mechanism(sampler=hs.Deterministic(bins=1), noise_multiplier=5.0), delta=DELTA)
    assert guesses(scores, included, certificate=small).refuted


def test_a_certificate_of_epsilon_0_is_refuted_by_evidence_alone():
    quiet = hs.certify(hs.Mechanism(sampler=hs.Deterministic(bins=1), noise_multiplier=100.0), delta=0.1)
    assert quiet.epsilon.upper == 0.0
    rng = np.random.default_rng(4)
    assert not guesses(*gaussian(rng, 500, mu=0.01), certificate=quiet, independent=True).refuted
    assert guesses(*gaussian(rng, 500, mu=2.0), certificate=quiet, independent=True).refuted


def test_scores_of_no_use_and_equal_scores_find_nothing():
    rng = np.random.default_rng(5)
    included = rng.random(500) < 0.5
    for scores in (rng.normal(size=500), np.zeros(500)):
        verdict = guesses(scores, included, delta=1e-6)
        assert verdict.epsilon.audited == 0.0
        assert verdict.epsilon.upper is None
        assert not verdict.refuted
        assert "certified" not in str(verdict)
    assert guesses(np.where(included, np.inf, -1.0), included, delta=0.0).epsilon.audited > 2.5


SHUFFLED = hs.certify(
    hs.Mechanism(sampler=hs.Shuffle(batch_size=5, bins=2), noise_multiplier=1.0), delta=DELTA, method="gaussian"
)
SCORES, COINS = np.arange(4.0), np.array([False, True, False, True])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"delta": None}, "certificate"),
        ({"certificate": CERTIFICATE}, "either"),
        ({"certificate": hs.certify(FIXED, epsilon=1.0, method="gaussian"), "delta": None}, "at a delta"),
        ({"delta": -0.1}, "delta"),
        ({"delta": "small"}, "delta"),
        ({"level": "low"}, "level"),
        ({"scores": ["a", "b", "c", "d"]}, "scores"),
        ({"level": 0.0}, "level"),
        ({"independent": True}, "independent"),
        ({"guessed": (3, 2)}, "guessed"),
        ({"guessed": (0, 0)}, "guessed"),
        ({"scores": SCORES[:3]}, "included"),
        ({"scores": [0.0, 1.0, np.nan, 2.0]}, "scores"),
        ({"scores": SCORES[None]}, "scores"),
        ({"included": COINS.astype(int)}, "booleans"),
    ],
)
def test_bad_input_is_named(arguments, says):
    with pytest.raises(InvalidInputError, match=says):
        guesses(**({"scores": SCORES, "included": COINS, "delta": DELTA} | arguments))


def test_canaries_are_not_independent_where_examples_are_not():
    with pytest.raises(UnsupportedError, match="shuffle"):
        guesses(SCORES, COINS, certificate=SHUFFLED, independent=True)
    assert guesses(SCORES, COINS, certificate=SHUFFLED).samples == 4


@pytest.mark.parametrize("unit", [{"neighbours": "replace"}, {"kind": "user", "examples_per_user": 2}])
def test_certificates_of_other_units_are_about_a_coin_too(unit):
    """Replacement by an example without a gradient, and one of a user's examples: at least as far apart as zero-out."""
    certificate = hs.certify(FIXED.model_copy(update={"unit": Unit(**unit)}), delta=DELTA, method="gaussian")
    assert certificate.epsilon.upper > CERTIFICATE.epsilon.upper
    scores, included = gaussian(np.random.default_rng(1), 60)
    mild, strict = (guesses(scores, included, certificate=issued, level=LEVEL) for issued in (certificate, CERTIFICATE))
    assert mild.epsilon.audited == strict.epsilon.audited
    assert not mild.refuted
