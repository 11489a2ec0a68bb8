"""Canaries in runs: what is planted is found, correct runs stay below their certificates, and all canaries count."""

import numpy as np
import pytest
from scipy.stats import binom

import hockeystick as hs
from hockeystick.audit.guessing import gaussian_epsilon
from hockeystick.errors import InvalidInputError

DELTA = 1e-5
REAL, COUNT, SIZE = 100, 300, 1200


def trained(mechanism, canaries, seed, *, noise=1.0, clip_norm=2.0, normaliser=5.0):
    """A model whose real gradients depend on all that was released before, and push along some canaries' directions."""
    run = hs.training.Run(mechanism, num_examples=canaries.total, shape=canaries.size, rng=np.random.default_rng(seed))
    model = np.zeros(canaries.size)
    for batch in run.batches():
        pull = np.sin(7.0 * np.arange(canaries.size)) - np.tanh(model)
        total = canaries.sum_of(batch) + 3.0 * clip_norm * pull / np.linalg.norm(pull)
        released = (total + noise * clip_norm * run.noise(batch)) / normaliser
        canaries.observe({"model": released}, normaliser=normaliser)
        model -= 0.1 * released
    return canaries


def made(seed=1, **options):
    return hs.audit.canaries(
        **({"count": COUNT, "num_examples": REAL, "size": SIZE, "clip_norm": 2.0} | options), seed=seed
    )


MECHANISMS = {
    "fixed": hs.Mechanism(sampler=hs.Deterministic(bins=4, epochs=4), noise_multiplier=1.0),
    "fixed, correlated": hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=4), sampler=hs.Deterministic(bins=4, epochs=2), noise_multiplier=1.0
    ),
    "fixed, a tree": hs.Mechanism(
        strategy=hs.BinaryTree(), sampler=hs.Deterministic(bins=4, epochs=2), noise_multiplier=1.5
    ),
    "poisson": hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.3, steps=6), noise_multiplier=0.6),
    "bins, correlated": hs.Mechanism(
        strategy=hs.SquareRoot(), sampler=hs.BallsInBins(bins=4, epochs=2), noise_multiplier=0.6
    ),
    "public groups": hs.Mechanism(sampler=hs.CyclicPoisson(groups=2, sampling_prob=0.8, steps=6), noise_multiplier=0.6),
    "shuffled": hs.Mechanism(sampler=hs.Shuffle(batch_size=100, bins=4, epochs=2), noise_multiplier=0.6),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_correct_runs_stay_below_their_certificates_and_show_something(name):
    """All together fail falsely with probability at most 7e-3; the seeds are fixed."""
    mechanism = MECHANISMS[name]
    certificate = hs.certify(mechanism, delta=DELTA, method="gaussian")
    canaries = trained(mechanism, made(), seed=2)
    verdict = canaries.verdict(certificate)
    assert not verdict.refuted
    assert 0.0 < verdict.epsilon.audited < certificate.epsilon.upper
    assert verdict.epsilon.upper == certificate.epsilon.upper
    assert verdict.claimed["independent"] == (name != "shuffled")
    assert verdict.claimed["gaussian"] == name.startswith("fixed")
    assert verdict.claimed["certificate"] == certificate.digest
    again = trained(mechanism, made(verdict.claimed["seed"]), seed=2)
    assert again.verdict(certificate) == verdict


@pytest.mark.parametrize("name", ["fixed", "fixed, correlated"])
def test_too_little_noise_is_found(name):
    """Less than half of it, in a run whose other gradients hide the canaries a little."""
    mechanism = MECHANISMS[name]
    certificate = hs.certify(mechanism, delta=DELTA, method="gaussian")
    verdict = trained(mechanism, made(), seed=2, noise=0.4).verdict(certificate)
    assert verdict.refuted
    assert verdict.epsilon.audited >= verdict.epsilon.upper


def test_the_bound_of_adaptive_runs_exceeds_the_truth_no_more_often_than_its_level():
    """Steps of 60 runs that react to what was released: more than 17 failures at level 0.1 have a chance below 1e-4."""
    assert binom.sf(17, 60, 0.1) < 1e-4
    mechanism = hs.Mechanism(sampler=hs.Deterministic(bins=1, epochs=3), noise_multiplier=1.5)
    certificate = hs.certify(mechanism, delta=DELTA, method="gaussian")
    truth = gaussian_epsilon(np.sqrt(3.0) / 1.5, DELTA)
    audited = []
    for seed in range(60):
        canaries = trained(mechanism, made(seed, count=80, size=80), seed=1000 + seed)
        audited.append(canaries.verdict(certificate, level=0.1, guessed=(40, 40)).epsilon.audited)
    assert (np.array(audited) > truth).sum() <= 17
    assert np.mean(audited) > 0.2 * truth


def test_directions_are_orthogonal_and_coins_are_those_of_the_seed():
    canaries = made(seed=5)
    rows = np.stack([made(seed=5).sum_of([REAL + i]) for i in range(COUNT)])
    assert np.array_equal(np.linalg.norm(rows, axis=1) > 0.0, canaries.included)
    gram = rows @ rows.T
    assert gram == pytest.approx(4.0 * np.diag(canaries.included.astype(float)))
    assert canaries.sum_of(range(canaries.total)) == pytest.approx(rows.sum(axis=0))
    assert not canaries.sum_of(range(REAL)).any()
    assert canaries.weights.size == canaries.total
    assert np.array_equal(canaries.weights[REAL:] == 1.0, canaries.included)
    assert not np.array_equal(made(seed=6).included, canaries.included)
    assert made(seed=None).seed != made(seed=None).seed


def test_coins_are_fair_and_independent_of_the_directions():
    """100,000 coins, and those of canaries of positive sign: 5 standard errors, false failure below 2e-6."""
    canaries = hs.audit.canaries(100_000, num_examples=0, size=100_000, seed=8)
    signs = canaries.sum_of(np.arange(100_000))
    assert abs(canaries.included.mean() - 0.5) < 5 * 0.5 / 100_000**0.5
    assert abs((signs > 0).sum() - 0.5 * canaries.included.sum()) < 5 * 0.5 * 50_000**0.5


def test_the_certificate_has_to_count_all_canaries():
    mechanism = MECHANISMS["fixed"]
    canaries = trained(mechanism, made(), seed=2)
    certificate = hs.certify(mechanism, delta=DELTA, method="gaussian")
    for stated, says in ((REAL, "It is about 100"), (REAL + 148, "400 examples")):
        wrong = hs.state(certificate, hs.Statements(num_examples=stated))
        with pytest.raises(InvalidInputError, match=says):
            canaries.verdict(wrong)
    right = hs.state(certificate, hs.Statements(num_examples=REAL + COUNT))
    assert not canaries.verdict(right).refuted


def test_losses_are_another_attack_without_more_assumptions():
    canaries = made(seed=3)
    certificate = hs.certify(MECHANISMS["poisson"], delta=DELTA, method="gaussian")
    scores = np.random.default_rng(0).normal(size=COUNT) + 2.0 * canaries.included
    verdict = canaries.verdict(certificate, scores=scores)
    assert not verdict.claimed["independent"]
    assert not verdict.claimed["observed"]
    assert verdict.epsilon.audited > 0.0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"count": 1}, "count"),
        ({"count": 2.5}, "count"),
        ({"count": float("nan")}, "count"),
        ({"count": "many"}, "count"),
        ({"clip_norm": "one"}, "clip_norm"),
        ({"size": 10}, "size"),
        ({"num_examples": -1}, "num_examples"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_canaries_are_named(options, says):
    with pytest.raises(InvalidInputError, match=says):
        made(**options)


def test_bad_observations_are_named():
    canaries = made()
    with pytest.raises(InvalidInputError, match="1200 numbers"):
        canaries.observe(np.zeros(3))
    with pytest.raises(InvalidInputError, match="below 400"):
        canaries.sum_of([REAL + COUNT])
    canaries.observe(np.zeros(SIZE))
    with pytest.raises(InvalidInputError, match="All 16 steps"):
        canaries.scores(MECHANISMS["fixed"])
