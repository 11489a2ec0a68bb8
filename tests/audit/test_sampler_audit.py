"""Audits of batches: the chances are those of the definitions, the bets are fair, and planted faults are found."""

import json
from collections import Counter
from fractions import Fraction
from itertools import combinations, permutations, product

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.audit.chances import chances_of
from hockeystick.audit.habits import BETS, STRENGTHS, Habits, settle
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.training import Run

LEVEL = 1e-3
CORRECT = 1e-6
"""The level of audits of correct code: N of them alarm falsely with probability at most N 1e-6."""
SIZE = 1000
"""Examples; with 100 batches there are 100,000 coins."""


def generator(seed):
    return np.random.default_rng(seed)


def renewals(min_sep, prob, steps, first):
    """The law of one example's participations under b-min-sep subsampling, from its definition."""
    law: Counter[tuple] = Counter()
    for start, weight in enumerate(first):
        for coins in product((0, 1), repeat=steps):
            taken, free = [], start
            chance = weight
            for step, coin in enumerate(coins):
                if step < free:
                    chance *= 1 - coin  # a coin that is not thrown, counted once
                    taken.append(0)
                    continue
                chance *= prob if coin else 1 - prob
                taken.append(coin)
                free = step + min_sep if coin else free
            law[tuple(taken)] += chance
    return law


def per_example(law, size):
    """The law of several independent examples, as tuples of batches' flags, shape (examples, steps)."""
    return {rows: np.prod([law[row] for row in rows]) for rows in product(law, repeat=size)}


def of_allocation(bins, picks, epochs):
    rows = [row for row in product((0, 1), repeat=bins) if sum(row) == picks]
    return {sum(choice, ()): len(rows) ** -epochs for choice in product(rows, repeat=epochs)}


def of_cyclic_secret(groups, prob, steps):
    law: Counter[tuple] = Counter()
    for group in range(groups):
        for coins in product((0, 1), repeat=steps):
            if all(coin == 0 or step % groups == group for step, coin in enumerate(coins)):
                turns = coins[group::groups]
                law[coins] += prob ** sum(turns) * (1 - prob) ** (len(turns) - sum(turns)) / groups
    return law


def of_shuffle(size, batch, bins):
    law: Counter[tuple] = Counter()
    for order in permutations(range(size)):
        rows = np.zeros((size, bins), dtype=int)
        for place, example in enumerate(order[: batch * bins] if size > batch * bins else order):
            rows[example, place // batch] = 1
        law[tuple(map(tuple, rows))] += 1 / Fraction(int(np.prod(np.arange(1, size + 1))))
    return law


def of_cohorts(size, batch, cohorts, steps):
    """Sets of one size, each used for a few steps."""
    sets = list(combinations(range(size), batch))
    law = {}
    for drawn in product(sets, repeat=cohorts):
        rows = tuple(tuple(int(example in one) for one in drawn for _ in range(steps)) for example in range(size))
        law[rows] = len(sets) ** -cohorts
    return law


q = 0.3
WARM = np.array([1.0, q, q]) / (1 + 2 * q)
ENUMERATED = {
    "poisson": (hs.Poisson(sampling_prob=0.3, steps=2), per_example(renewals(1, 0.3, 2, [1.0]), 2)),
    "cold": (
        hs.BMinSep(min_sep=3, sampling_prob=q / (1 + 2 * q), steps=5, warm_start=False),
        per_example(renewals(3, q, 5, [1.0]), 2),
    ),
    "warm": (hs.BMinSep(min_sep=3, sampling_prob=q / (1 + 2 * q), steps=5), per_example(renewals(3, q, 5, WARM), 2)),
    "bins": (
        hs.BallsInBins(bins=3, epochs=2),
        per_example({row * 2: 1 / 3 for row in ((1, 0, 0), (0, 1, 0), (0, 0, 1))}, 2),
    ),
    "allocation": (hs.RandomAllocation(bins=3, epochs=2, participations=2), per_example(of_allocation(3, 2, 2), 1)),
    "secret groups": (
        hs.CyclicPoisson(groups=2, sampling_prob=0.4, steps=4, partition="independent"),
        per_example(of_cyclic_secret(2, 0.4, 4), 2),
    ),
    "shuffle": (hs.Shuffle(batch_size=2, bins=2), of_shuffle(4, 2, 2)),
    "dropped rest": (hs.Shuffle(batch_size=2, bins=2, remainder="drop", num_examples=5), of_shuffle(5, 2, 2)),
    "short rest": (hs.Shuffle(batch_size=2, bins=3, remainder="short", num_examples=5), of_shuffle(5, 2, 3)),
    "fixed size": (hs.FixedSize(batch_size=2, num_examples=4, steps=2), of_cohorts(4, 2, 2, 1)),
    "cohorts": (hs.FixedSize(batch_size=1, num_examples=3, steps=4, cohort_steps=2), of_cohorts(3, 1, 2, 2)),
}


@pytest.mark.parametrize("name", ENUMERATED)
def test_the_chances_are_those_of_the_definition_and_every_bet_is_fair(name):
    """Over all runs there are: their probability is the product of the chances of their coins, and a stake of 1 is
    worth 1 on average, though weights depend on the coins before."""
    sampler, law = ENUMERATED[name]
    total, worth = 0.0, np.zeros((len(BETS), STRENGTHS.size))
    first = np.array(max(law), dtype=bool)
    for rows, probability in law.items():
        habits = Habits(len(first), chances_of(sampler, len(first)).period)
        for flags in (first, np.array(rows, dtype=bool)):  # the same first run before each
            habits.begin()
            chances = chances_of(sampler, len(first))
            logs, likelihood = np.zeros_like(worth), 1.0
            for step in range(sampler.steps):
                present = np.ascontiguousarray(flags[:, step])
                coins = chances.advance(step, present)
                likelihood *= np.prod(np.where(present, coins, 1 - coins))
                settle(coins, present, habits.weights(step, coins, present), STRENGTHS, logs)
                habits.observe(step, coins, present)
        assert likelihood == pytest.approx(float(probability), abs=1e-12)
        total += float(probability)
        worth += float(probability) * np.exp(logs)
    assert total == pytest.approx(1.0)
    assert worth == pytest.approx(np.ones_like(worth), rel=1e-9)


CLAIMS = {
    "poisson": hs.Poisson(sampling_prob=0.05, steps=100),
    "bins": hs.BallsInBins(bins=20, epochs=5),
    "allocation": hs.RandomAllocation(bins=20, epochs=5),
    "three of twenty": hs.RandomAllocation(bins=20, epochs=5, participations=3),
    "shuffle": hs.Shuffle(batch_size=50, bins=20, epochs=5),
    "min sep": hs.BMinSep(min_sep=10, sampling_prob=0.03, steps=100),
    "cold": hs.BMinSep(min_sep=10, sampling_prob=0.03, steps=100, warm_start=False),
    "public groups": hs.CyclicPoisson(groups=10, sampling_prob=0.3, steps=100),
    "secret groups": hs.CyclicPoisson(groups=10, sampling_prob=0.3, steps=100, partition="independent"),
    "fixed": hs.Deterministic(bins=20, epochs=5),
    "fixed size": hs.FixedSize(batch_size=50, num_examples=SIZE, steps=100),
    "cohorts": hs.FixedSize(batch_size=50, num_examples=SIZE, steps=100, cohort_steps=20),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_correct_batches_raise_no_alarm(name):
    """Two runs of 50,000 coins each: all of these together fail falsely with probability at most 1e-5."""
    claimed = CLAIMS[name]
    verdict = hs.audit.sampler(
        lambda run: claimed.batches(SIZE, generator(run)), claimed, num_examples=SIZE, runs=2, level=CORRECT
    )
    assert not verdict.refuted, str(verdict)
    assert verdict.samples == 200


def epochs_of(one_epoch, epochs):
    def make(rng):
        for _ in range(epochs):
            yield from one_epoch(rng)

    return make


def drawn(sampler):
    return lambda rng: sampler.batches(SIZE, rng)


def without_empty_batches(rng):
    return (batch for batch in hs.Poisson(sampling_prob=0.001, steps=100).batches(SIZE, rng) if batch.size)


def in_pairs(rng):
    for _ in range(100):
        yield np.flatnonzero(np.repeat(rng.random(SIZE // 2) < 0.05, 2))


def fixed_batches_in_random_order(rng):
    bins = rng.permutation(SIZE).reshape(20, 50)
    for _ in range(5):
        yield from bins[rng.permutation(20)]


def of_one_size(rng):
    for _ in range(100):
        yield rng.choice(SIZE, 50, replace=False)


FAULTS = {
    "batches of one size": (of_one_size, "poisson", "batch_size"),
    "shuffle for poisson": (epochs_of(lambda rng: rng.permutation(SIZE).reshape(20, 50), 5), "poisson", "usage"),
    "rate up by 10 percent": (drawn(hs.Poisson(sampling_prob=0.055, steps=100)), "poisson", "rate"),
    "rate down by 10 percent": (drawn(hs.Poisson(sampling_prob=0.045, steps=100)), "poisson", "rate"),
    "bins redrawn": (epochs_of(drawn(hs.BallsInBins(bins=20)), 5), "bins", "promises"),
    "bins not redrawn": (drawn(hs.BallsInBins(bins=20, epochs=5)), "allocation", "after_a_period"),
    "min sep one too small": (drawn(hs.BMinSep(min_sep=9, sampling_prob=0.03, steps=100)), "min sep", "promises"),
    "min sep one too large": (
        drawn(hs.BMinSep(min_sep=11, sampling_prob=0.03, steps=100)),
        "min sep",
        "after_a_period",
    ),
    "public groups": (drawn(CLAIMS["public groups"]), "secret groups", "neighbours_at_a_period"),
    "an epoch too short": (drawn(hs.BallsInBins(bins=20, epochs=4)), "bins", "promises"),
    "an epoch too long": (drawn(hs.BallsInBins(bins=20, epochs=6)), "bins", "promises"),
    "examples in pairs": (in_pairs, "poisson", "neighbours"),
    "the same batches in another order": (fixed_batches_in_random_order, "shuffle", "companions"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found_within_100_000_coins(name):
    make, claim, finding = FAULTS[name]
    verdict = hs.audit.sampler(make(generator(7)), CLAIMS[claim], num_examples=SIZE, level=LEVEL)
    assert verdict.refuted
    assert verdict.samples * SIZE <= 100_000
    evidence = {finding.name: finding for finding in verdict.findings}
    if finding == "promises":
        assert verdict.broken[0] == "promises"
        assert verdict.findings[0].evidence is None
    else:
        assert evidence[finding].evidence > 2.0


def test_empty_batches_that_are_skipped_are_missed():
    claimed = hs.Poisson(sampling_prob=0.001, steps=100)
    verdict = hs.audit.sampler(without_empty_batches(generator(0)), claimed, num_examples=SIZE)
    assert verdict.refuted


ORDER = generator(99).permutation(SIZE)
ACROSS_RUNS = {
    "a fixed seed": ("poisson", lambda run: CLAIMS["poisson"].batches(SIZE, generator(0)), "earlier_run"),
    "groups that nobody drew": (
        "secret groups",
        lambda run: (ORDER[batch] for batch in CLAIMS["public groups"].batches(SIZE, generator(run))),
        "earlier_phase",
    ),
}


@pytest.mark.parametrize("name", ACROSS_RUNS)
def test_what_runs_have_in_common_is_found(name):
    claim, make, finding = ACROSS_RUNS[name]
    verdict = hs.audit.sampler(make, CLAIMS[claim], num_examples=SIZE, runs=3)
    assert finding in verdict.broken


def test_a_verdict_is_plain_data():
    claimed = CLAIMS["poisson"]
    verdict = hs.audit.sampler(claimed.batches(SIZE, generator(0)), claimed, num_examples=SIZE)
    content = json.loads(verdict.model_dump_json())
    assert content["claimed"] == {"kind": "poisson", "sampling_prob": 0.05, "steps": 100} | content["claimed"]
    assert content["level"] == 1e-3
    assert {finding["name"] for finding in content["findings"]} == set(BETS)
    assert hs.audit.Verdict.parse_json(verdict.model_dump_json()) == verdict
    assert "nothing found" in str(verdict)


@pytest.mark.parametrize(
    "claimed",
    [
        hs.Poisson(sampling_prob=0.1, steps=5, truncated_batch_size=5, num_examples=20),
        hs.MultiAttribution(min_sep=2, sampling_prob=0.1, steps=5, examples_per_user=1),
    ],
    ids=["truncated", "multi-attribution"],
)
def test_what_cannot_be_seen_is_refused_by_name(claimed):
    with pytest.raises(UnsupportedError, match=claimed.kind):
        hs.audit.sampler([], claimed, num_examples=20)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"claimed": "poisson"}, "claimed"),
        ({"level": 0.0}, "level"),
        ({"level": 1.5}, "level"),
        ({"runs": 2}, "runs"),
        ({"runs": 0}, "runs"),
        ({"batches": [[0.5]]}, "whole numbers"),
        ({"batches": [[[1]]]}, "whole numbers"),
        ({"num_examples": 0}, "num_examples"),
    ],
)
def test_bad_input_is_named(arguments, says):
    good = {"batches": [[1]], "claimed": CLAIMS["poisson"], "num_examples": 10}
    with pytest.raises(InvalidInputError, match=says):
        hs.audit.sampler(**(good | arguments))


def test_examples_twice_or_outside_break_a_promise():
    for batch in ([1, 1], [-1], [10]):
        assert hs.audit.sampler([batch], CLAIMS["poisson"], num_examples=10).broken == ("promises",)


class Strategy:
    """A batch selection strategy as jax-privacy has them: arrays that are padded with -1."""

    def batch_iterator(self, num_examples, rng):
        for batch in CLAIMS["poisson"].batches(num_examples, rng):
            yield np.concatenate([batch, np.full(64 - batch.size % 64, -1)])


def test_strategies_of_jax_privacy_are_read():
    batches = list(hs.audit.batches_of(Strategy(), num_examples=SIZE, rng=generator(1)))
    expected = list(CLAIMS["poisson"].batches(SIZE, generator(1)))
    assert all(np.array_equal(batch, wanted) for batch, wanted in zip(batches, expected, strict=True))
    with pytest.raises(InvalidInputError, match="num_examples"):
        next(hs.audit.batches_of(Strategy()))
    with pytest.raises(InvalidInputError, match="source"):
        next(hs.audit.batches_of(3))


def test_loaders_of_torch_and_opacus_are_read():
    torch = pytest.importorskip("torch")
    pytest.importorskip("opacus")
    from opacus.data_loader import DPDataLoader
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.arange(SIZE))
    claimed = CLAIMS["poisson"]
    poisson = DPDataLoader(data, sample_rate=0.05, generator=torch.Generator().manual_seed(0))
    verdict = hs.audit.sampler(hs.audit.batches_of(poisson, epochs=5), claimed, num_examples=SIZE, level=CORRECT)
    assert not verdict.refuted, str(verdict)
    assert verdict.samples == 100
    shuffled = DataLoader(data, batch_size=50, shuffle=True, generator=torch.Generator().manual_seed(0))
    assert hs.audit.sampler(hs.audit.batches_of(shuffled, epochs=5), claimed, num_examples=SIZE).refuted


def test_the_loader_of_a_run_has_one_pass():
    """Without steps between, each pass begins at the same step: a correct run would be refuted for repeating itself."""
    mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=100), noise_multiplier=1.0)

    class OfARun:
        run = Run(mechanism, num_examples=300, shape=1, rng=np.random.default_rng(0))

        def __iter__(self):
            return iter(self.run.batches())

    with pytest.raises(InvalidInputError, match=r"'epochs' argument must be 1 for the loader .* Got 10 instead"):
        list(hs.audit.batches_of(OfARun(), epochs=10))
