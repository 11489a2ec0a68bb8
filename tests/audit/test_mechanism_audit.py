"""Audits of mechanisms: the likelihood ratios are those of the pairs, the bets keep their level, faults are found."""

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom, norm

import hockeystick as hs
from hockeystick.audit import outputs
from hockeystick.audit.betting import Bets
from hockeystick.audit.ratios import ratio_of
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.types import Side

BANDED = hs.BandedSquareRoot(bands=2)
SIGMA = 1.3
LEVEL = 1e-3


def mechanism(sampler, strategy=None, sigma=SIGMA):
    return hs.Mechanism(strategy=strategy or hs.Identity(), sampler=sampler, noise_multiplier=sigma)


def coins(steps, prob, turns=None):
    """The law of independent participations at the given steps, as a list of (probability, participations)."""
    turns = range(steps) if turns is None else turns
    law = []
    for taken in product((0, 1), repeat=len(turns)):
        x = np.zeros(steps)
        x[list(turns)] = taken
        law.append((prob ** sum(taken) * (1 - prob) ** (len(taken) - sum(taken)), x))
    return law


def sets(bins, picks, repeats):
    rows = [np.array(row, dtype=float) for row in product((0, 1), repeat=bins) if sum(row) == picks]
    return [(len(rows) ** -repeats, np.concatenate(choice)) for choice in product(rows, repeat=repeats)]


def separated(steps, min_sep, prob):
    """Cold b-min-sep subsampling, from its definition."""
    law = []
    for taken in product((0, 1), repeat=steps):
        chance, free = 1.0, 0
        for step, takes_part in enumerate(taken):
            if step < free:
                chance *= 1 - takes_part
            else:
                chance *= prob if takes_part else 1 - prob
                free = step + min_sep if takes_part else free
        law.append((chance, np.array(taken, dtype=float)))
    return law


def of_users(law, examples):
    """The sum of so many independent participations of one law."""
    return [
        (float(np.prod([p for p, _ in rows])), np.sum([x for _, x in rows], axis=0))
        for rows in product(law, repeat=examples)
    ]


def of_users_of(chosen, examples):
    return chosen.model_copy(update={"unit": hs.Unit(kind="user", examples_per_user=examples)})


CASES = {
    "poisson": (mechanism(hs.Poisson(sampling_prob=0.3, steps=5)), coins(5, 0.3)),
    "always": (mechanism(hs.Poisson(sampling_prob=1.0, steps=3)), coins(3, 1.0)),
    "fixed": (mechanism(hs.Deterministic(bins=3, epochs=2)), [(1.0, np.array([1.0, 0, 0, 1, 0, 0]))]),
    "fixed, correlated": (
        mechanism(hs.Deterministic(bins=3, epochs=2), BANDED),
        [(1.0, np.array([1.0, 0, 0, 1, 0, 0]))],
    ),
    "public groups": (
        mechanism(hs.CyclicPoisson(groups=2, sampling_prob=0.4, steps=5)),
        coins(5, 0.4, [0, 2, 4]),
    ),
    "public groups, correlated": (
        mechanism(hs.CyclicPoisson(groups=2, sampling_prob=0.4, steps=5), BANDED),
        coins(5, 0.4, [0, 2, 4]),
    ),
    "secret groups": (
        mechanism(hs.CyclicPoisson(groups=2, sampling_prob=0.8, steps=5, partition="independent")),
        [(p / 2, x) for turns in ([0, 2, 4], [1, 3]) for p, x in coins(5, 0.8, turns)],
    ),
    "poisson, correlated": (mechanism(hs.Poisson(sampling_prob=0.3, steps=5), BANDED), coins(5, 0.3)),
    "allocation": (mechanism(hs.RandomAllocation(bins=3, epochs=2)), sets(3, 1, 2)),
    "two of three": (mechanism(hs.RandomAllocation(bins=3, epochs=2, participations=2)), sets(3, 2, 2)),
    "bins": (mechanism(hs.BallsInBins(bins=3, epochs=2)), [(p, np.tile(x, 2)) for p, x in sets(3, 1, 1)]),
    "bins, correlated": (
        mechanism(hs.BallsInBins(bins=3, epochs=2), hs.SquareRoot()),
        [(p, np.tile(x, 2)) for p, x in sets(3, 1, 1)],
    ),
    "min sep": (
        mechanism(hs.BMinSep(min_sep=2, sampling_prob=0.3 / 1.3, steps=5, warm_start=False), BANDED),
        separated(5, 2, 0.3),
    ),
}
USERS = {
    "poisson": 3,
    "always": 2,
    "fixed": 3,
    "fixed, correlated": 2,
    "public groups": 2,
    "allocation": 2,
    "bins": 3,
}
CASES |= {
    f"{name}, users of {examples}": (of_users_of(CASES[name][0], examples), of_users(CASES[name][1], examples))
    for name, examples in USERS.items()
}


@pytest.mark.parametrize("name", CASES)
def test_likelihood_ratios_are_those_of_all_participations(name):
    """``log E_x exp(<C x, y> / sigma - |C x|^2 / (2 sigma^2))`` over all participations x of the definition."""
    chosen, law = CASES[name]
    c = chosen.matrix.materialize()
    y = np.random.default_rng(3).normal(size=(c.shape[0], 7)) * 2.0
    means = np.stack([c @ x for _, x in law]) / SIGMA
    with np.errstate(divide="ignore"):
        weights = np.log([p for p, _ in law])[:, None]
    expected = logsumexp(weights + means @ y - 0.5 * np.square(means).sum(axis=1)[:, None], axis=0)
    assert sum(p for p, _ in law) == pytest.approx(1.0)
    assert ratio_of(chosen).log_ratios(y) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_audits_of_correct_code_stay_below_the_certificate_and_find_something(name):
    """All of these together fail falsely with probability at most 2e-5 on the one side; seeds are fixed."""
    chosen, _ = CASES[name]
    sensitivity = hs.certify(chosen, delta=0.05, method="gaussian")
    verdict = hs.audit.mechanism(
        chosen, certificate=sensitivity, samples=3000, level=1e-6, rng=np.random.default_rng(5), examples=100
    )
    assert not verdict.refuted
    assert verdict.samples == 3000
    assert 0.0 < verdict.epsilon.audited < sensitivity.epsilon.upper
    assert verdict.epsilon.upper == sensitivity.epsilon.upper


def test_runs_with_exact_noise_are_audited_like_others():
    """False failure with probability at most 1e-6; noise in grid steps taken for clipping norms would show nothing."""
    chosen = mechanism(hs.Deterministic(bins=2, epochs=3), sigma=0.7).model_copy(update={"exact": True})
    claimed = hs.certify(chosen, delta=0.05, method="gaussian")
    verdict = hs.audit.mechanism(
        chosen, certificate=claimed, samples=3000, level=1e-6, rng=np.random.default_rng(5), examples=100
    )
    assert 0.0 < verdict.epsilon.audited < claimed.epsilon.upper


def gaussian_epsilon(mu, delta):
    low, high = 0.0, 50.0
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if gaussian_delta(mu, 1.0, middle, Side.UPPER) <= delta else (middle, high)
    return high


def test_the_bound_exceeds_the_truth_no_more_often_than_its_level():
    """A Gaussian of sensitivity 1, with looks after every 200 of 1,000 pairs: 100 audits at level 0.1.

    Of a bound that keeps its level more than 20 fail with probability below 1e-3 (binomial tail, asserted).
    """
    level, audits, allowed = 0.1, 100, 20
    assert binom.sf(allowed, audits, level) < 1e-3
    epsilon = gaussian_epsilon(1.0, 0.02)
    rng = np.random.default_rng(11)
    failures, audited = 0, []
    for _ in range(audits):
        bets = Bets(epsilon, 0.02, level)
        for _ in range(5):
            z = rng.normal(size=(2, 200))
            bets.observe(z[0] + 0.5, z[1] - 0.5)
        failures += bets.audited > epsilon * (1 + 1e-9)
        audited.append(bets.audited)
    assert failures <= allowed
    assert np.mean(audited) > 0.4 * epsilon


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_every_bet_loses_on_average_where_the_claim_is_tight(direction):
    """The mean of what a bet pays, from the exact chances of its events, is at most 1 at the true epsilon, and it is
    above 1 for the best event at a smaller one."""
    delta = 0.02
    epsilon = gaussian_epsilon(1.0, delta)
    for at, fair in ((epsilon, True), (0.5 * epsilon, False)):
        bets = Bets(at, delta, 0.1)
        tau = bets.thresholds[bets.at_upper]
        first, second = norm.sf(tau - 0.5), norm.sf(tau + 0.5)  # a loss is N(1/2, 1) with, and N(-1/2, 1) without
        means = sum(
            chance[:, None] * np.exp(bets.pays[above, below][bets.at_upper])[None, :]
            for (above, below), chance in {
                (1, 1): first * second,
                (1, 0): first * (1 - second),
                (0, 1): (1 - first) * second,
                (0, 0): (1 - first) * (1 - second),
            }.items()
        )
        assert (means.max() <= 1.0 + 1e-12) == fair


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_each_direction_finds_what_the_other_one_cannot(direction):
    """A loss of 5 in one world, half of the time, and never in the other; backwards it shows no more than log(2)."""
    rare, never = np.tile([5.0, 0.0], 500), np.zeros(1000)
    bets = Bets(1.0, 1e-3, 1e-3)
    bets.observe(*((rare, never) if direction == "remove" else (never, -rare)))
    assert bets.refuted
    assert bets.audited > 1.0


def test_losses_that_are_unknown_or_infinite_are_in_consistent_events():
    bets = Bets(1.0, 0.1, 0.1)
    bets.observe(np.array([np.nan, np.inf, -np.inf, 0.3]), np.array([0.3, np.nan, np.inf, np.nan]))
    assert bets.counts.min() >= 0.0
    assert bets.counts.sum(axis=(1, 2)) == pytest.approx(4.0)


SMALL = mechanism(hs.Poisson(sampling_prob=0.3, steps=4), sigma=1.0)


def test_a_certificate_of_epsilon_0_is_refuted_by_evidence_alone():
    """0 is also the bound of an audit that saw nothing. False failure with probability at most 1e-3; a fixed seed."""
    claimed = mechanism(hs.Poisson(sampling_prob=0.01, steps=2))
    certificate = hs.certify(claimed, delta=0.2)
    assert certificate.epsilon.upper == 0.0
    arguments = {"certificate": certificate, "samples": 4000}
    verdict = hs.audit.mechanism(claimed, **arguments, rng=np.random.default_rng(0))
    assert not verdict.refuted
    assert verdict.samples == 4000
    verdict = hs.audit.mechanism(claimed, **arguments, rng=np.random.default_rng(0), source=nothing_hidden)
    assert verdict.refuted
    assert verdict.findings[0].evidence >= np.log(1e3)


def nothing_hidden(examples, rng):
    for _ in range(2):
        yield np.arange(examples), 1e-3 * rng.standard_normal(examples)


@pytest.mark.parametrize("upper", [1e-4, 2.0, 390.0, 5000.0])
def test_bets_on_any_certificate_are_numbers(upper):
    """The one at the upper end is looked at, or the next of a grid that is not about it, or the last."""
    with np.errstate(all="raise", under="ignore"):
        bets = Bets(upper=upper, delta=1e-3, level=1e-3)
        bets.observe(np.full(100, 300.0), np.full(100, -300.0))
    assert np.isfinite(bets.highest).all()
    assert (bets.epsilons[: bets.at_upper] < upper).all()
    assert bets.epsilons[bets.at_upper] >= min(upper, bets.epsilons[-1])
    assert bets.refuted == (bets.audited >= upper)


def white(examples, rng, sigma=1.0):
    return sigma * rng.standard_normal(examples)


def divided_noise(examples, rng):
    for batch in SMALL.sampler.batches(examples, rng):
        yield batch, white(examples, rng, 1.0 / 3.0)


def every_batch(examples, rng):
    for _ in range(4):
        yield np.arange(examples), white(examples, rng)


FAULTS = {
    "noise divided by the batch, one example in a run": (divided_noise, 1),
    "noise divided by the batch": (divided_noise, 100),
    "no sampling": (every_batch, 100),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_refute_the_certificate(name):
    source, examples = FAULTS[name]
    verdict = hs.audit.mechanism(
        SMALL, delta=1e-3, samples=20_000, rng=np.random.default_rng(2), examples=examples, source=source
    )
    assert verdict.refuted
    assert verdict.broken == ("certificate",)
    assert verdict.epsilon.audited >= verdict.epsilon.upper
    assert verdict.samples <= 20_000


FULL = 40
"""Examples of the truncated mechanisms."""


def cut(batch, users=1, **changes):
    chosen = mechanism(
        hs.Poisson(sampling_prob=0.3, steps=5, truncated_batch_size=batch, num_examples=FULL), sigma=1.0, **changes
    )
    return of_users_of(chosen, users) if users > 1 else chosen


TRUNCATED = {
    "often": cut(10),
    "hardly ever": cut(30),
    "correlated": cut(34, strategy=BANDED),
    "min sep": mechanism(
        hs.BMinSep(min_sep=2, sampling_prob=0.2, steps=5, truncated_batch_size=6, num_examples=FULL, warm_start=False),
        BANDED,
        sigma=1.0,
    ),
    "users": cut(10, users=2),
}


def given_away(chosen):
    """Everybody is in every batch, and the noise is a tenth of what it should be."""

    def steps(examples, rng):
        rows = hs.noise.stream(chosen, examples, rng=rng)
        for row in rows:
            yield np.arange(examples), np.asarray(row) / 10.0

    return steps


@pytest.mark.parametrize("name", TRUNCATED)
def test_truncated_batches_are_audited_by_the_mean_over_a_run(name):
    """Correct code passes, at level 1e-4 each, and the bound says something; too little noise without sampling too."""
    chosen = TRUNCATED[name]
    certificate = hs.certify(chosen, delta=0.05, method="gaussian")
    arguments = {"samples": 12_000, "level": 1e-4, "rng": np.random.default_rng(3)}
    verdict = hs.audit.mechanism(chosen, certificate=certificate, **arguments)
    assert not verdict.refuted
    assert 0.0 < verdict.epsilon.audited < certificate.epsilon.upper
    assert verdict.samples == 12_000
    louder = chosen.model_copy(update={"noise_multiplier": 2.0 * chosen.unit.examples})
    certificate = hs.certify(louder, delta=0.05, method="gaussian")
    arguments["level"] = LEVEL
    refuted = hs.audit.mechanism(louder, certificate=certificate, source=given_away(louder), **arguments)
    assert refuted.refuted


def test_the_statistic_of_cut_poisson_batches_is_that_of_examples_that_are_drawn_and_kept():
    """The chance to be drawn and kept, by enumeration of how many others are drawn."""
    q, others = 0.3, np.arange(FULL)
    chance = q * float(binom.pmf(others, FULL - 1, q) @ np.minimum(1.0, 10 / (others + 1.0)))
    y = np.random.default_rng(0).normal(size=(5, 6))
    expected = np.log(1 - chance + chance * np.exp(y - 0.5)).sum(axis=0)
    ratio = ratio_of(TRUNCATED["often"])
    assert ratio.size == FULL
    assert ratio.log_ratios(y) == pytest.approx(expected, abs=1e-9)


def test_bets_on_means_keep_their_level_when_all_examples_of_a_run_are_the_same():
    """100 audits at level 0.1 of runs whose 50 examples have one loss: more than 20 fail with probability below 1e-3.

    Bets on one example after another would take them for independent evidence, and do not keep it.
    """
    level, audits, allowed = 0.1, 100, 20
    assert binom.sf(allowed, audits, level) < 1e-3
    epsilon = gaussian_epsilon(1.0, 0.02)
    rng = np.random.default_rng(17)
    failures = np.zeros(2)
    for _ in range(audits):
        every = Bets(epsilon, 0.02, level), Bets(epsilon, 0.02, level)
        for z in rng.normal(size=(5, 2)):
            losses = np.full(50, z[0] + 0.5), np.full(50, z[1] - 0.5)
            every[0].observe_mean(*losses)
            every[1].observe(*losses)
        failures += [bets.audited > epsilon * (1 + 1e-9) for bets in every]
    assert failures[0] <= allowed
    assert failures[1] > allowed


def test_examples_of_batches_that_are_cut_are_never_bet_on_one_by_one(monkeypatch):
    chosen = TRUNCATED["often"]
    certificate = hs.certify(chosen, delta=0.05, method="gaussian")
    monkeypatch.setattr(Bets, "observe", lambda *arguments: pytest.fail("pairs of one run are not independent"))
    verdict = hs.audit.mechanism(chosen, certificate=certificate, samples=100, rng=np.random.default_rng(0))
    assert verdict.samples == 3 * FULL


def test_all_examples_of_a_user_take_part():
    """Without noise, what a run releases is how many examples of each user are in each batch."""
    chosen = CASES["fixed, users of 3"][0]
    seen = []

    def silent(examples, rng):
        for batch in chosen.sampler.batches(examples, rng):
            seen.append((examples, batch))
            yield batch, np.zeros(examples)

    certificate = hs.certify(chosen, delta=0.05, method="gaussian")
    ratio = ratio_of(chosen)
    verdict = hs.audit.mechanism(
        chosen, certificate=certificate, samples=4, examples=1, source=silent, rng=np.random.default_rng(0)
    )
    (examples, first), *_ = seen
    assert examples == 9
    assert first.tolist() == [0, 1, 2] == ratio.who(examples).ravel().tolist()
    driver = outputs._Driver(chosen, ratio, examples, silent, np.random.default_rng(0))
    three = np.array([[3.0], [0.0], [0.0]] * 2)
    assert driver.run(True) == pytest.approx(ratio.log_ratios(three / SIGMA))
    assert driver.run(False) == pytest.approx(ratio.log_ratios(0.0 * three))
    assert verdict.samples == 4


def test_a_bet_on_the_mean_of_one_pair_is_the_bet_on_it():
    single, on_means = Bets(1.0, 0.1, 0.1), Bets(1.0, 0.1, 0.1)
    for z in np.random.default_rng(0).normal(size=(6, 2)):
        single.observe(z[:1] + 1.0, z[1:])
        on_means.observe_mean(z[:1] + 1.0, z[1:])
    assert single.highest == pytest.approx(on_means.highest)
    assert single.pairs == on_means.pairs == 6


SECRET_GROUPS = hs.CyclicPoisson(groups=2, sampling_prob=0.4, steps=6, partition="independent")
REFUSED = [
    ("FixedSizeSteps", mechanism(hs.FixedSize(batch_size=5, num_examples=50, steps=3))),
    ("ShuffledBatches", mechanism(hs.Shuffle(batch_size=5, bins=2))),
    ("KnownBatches", mechanism(hs.Deterministic(bins=4, epochs=2), hs.BinaryTree())),
    ("RenewalMixture", mechanism(hs.BMinSep(min_sep=2, sampling_prob=0.1, steps=8), hs.SquareRoot())),
    ("RenewalMixture", mechanism(hs.BMinSep(min_sep=2, sampling_prob=0.1, steps=8), hs.BinaryTree())),
    ("SubsetMixture", mechanism(hs.Poisson(sampling_prob=0.1, steps=20), hs.BandedSquareRoot(bands=16))),
    ("SubsetMixture", mechanism(SECRET_GROUPS, BANDED)),
    ("Users of RepeatedSubsets", of_users_of(mechanism(hs.Poisson(sampling_prob=0.1, steps=4), BANDED), 2)),
    ("Users of BinMixture", of_users_of(mechanism(hs.BallsInBins(bins=3), BANDED), 2)),
    ("Users of PlacedCopies", of_users_of(mechanism(SECRET_GROUPS), 2)),
    (
        "Users of IndependentSteps",
        mechanism(hs.Poisson(sampling_prob=0.1, steps=4)).model_copy(update={"unit": hs.Unit(neighbours="replace")}),
    ),
]


@pytest.mark.parametrize(("name", "refused"), REFUSED)
def test_mechanisms_without_a_likelihood_ratio_are_refused_by_name(name, refused):
    with pytest.raises(UnsupportedError, match=f"The pair {name} of .*; audit the parts 'sampler' and 'noise' alone"):
        hs.audit.mechanism(refused, delta=1e-5)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"delta": None}, "certificate"),
        ({"samples": 0}, "samples"),
        ({"examples": 0}, "examples"),
        ({"level": 1.0}, "level"),
        ({"source": lambda examples, rng: [([], np.zeros(examples))]}, "runs of 4 steps"),
        ({"certificate": (CASES["poisson"][0], {"delta": 0.1}), "delta": None}, "another one"),
        ({"certificate": (SMALL, {"epsilon": 1.0}), "delta": None}, "at a delta"),
    ],
)
def test_bad_input_is_named(arguments, says):
    if "certificate" in arguments:
        claimed, question = arguments["certificate"]
        arguments = arguments | {"certificate": hs.certify(claimed, **question, method="gaussian")}
    with pytest.raises(InvalidInputError, match=says):
        hs.audit.mechanism(SMALL, **({"delta": 0.01, "rng": np.random.default_rng(0)} | arguments))
