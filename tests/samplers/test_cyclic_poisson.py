"""Cyclic Poisson batches, beyond the sizes whose law can be enumerated."""

import numpy as np
import pytest
from scipy.stats import binomtest

from hockeystick.errors import InvalidInputError
from hockeystick.samplers import CyclicPoisson, CyclicPoissonOptions, Data, Poisson
from hockeystick.types import Adjacency

FALSE_FAILURE = 1e-9  # of each exact binomial test


def assert_binomial(count: int, trials: int, prob: float, tests: int = 1) -> None:
    assert binomtest(count, trials, prob).pvalue > FALSE_FAILURE / tests


def drawn(sampler: CyclicPoisson, n: int, seed: int) -> np.ndarray:
    hits = np.zeros((sampler.steps, n), dtype=bool)
    for step, batch in enumerate(sampler.batches(n, np.random.default_rng(seed))):
        hits[step, batch] = True
    return hits


def test_each_group_is_poisson_sampled_at_its_turns() -> None:
    """Sizes that differ by one: 100,003 examples in 7 groups."""
    n, groups, q = 100_003, 7, 0.03
    hits = drawn(CyclicPoisson(groups=groups, sampling_prob=q, steps=30), n, 3)
    of_examples = np.arange(n) % groups
    for step in range(30):
        turn = of_examples == step % groups
        assert not hits[step, ~turn].any()
        assert_binomial(int(hits[step, turn].sum()), int(turn.sum()), q, tests=30)
    last = hits[n % groups - 1 :: groups, n - 1]  # the last example is in the last of the larger groups
    assert_binomial(int(last.sum()), last.size, q)
    again = hits[:21].reshape(3, 7, n).any(axis=1)
    assert_binomial(int((again[0] & again[1]).sum()), n, q * q)
    assert_binomial(int((again[0, ::2][: n // 2] & again[0, 1::2]).sum()), n // 2, q * q)


@pytest.mark.parametrize("groups", [1, 3, 4, 7, 10])
def test_every_example_has_its_turn(groups: int) -> None:
    """Of ten, in groups of equal size and not, all of whom take part when it is their turn."""
    batches = list(CyclicPoisson(groups=groups, sampling_prob=1.0, steps=groups).batches(10, np.random.default_rng(0)))
    assert sorted(np.concatenate(batches).tolist()) == list(range(10))


def test_independent_groups_are_uniform_and_stay() -> None:
    n, groups = 60_000, 5
    hits = drawn(CyclicPoisson(groups=groups, sampling_prob=0.5, steps=40, partition="independent"), n, 4)
    seen = np.stack([hits[group::groups].any(axis=0) for group in range(groups)])
    assert int(seen.sum(axis=0).max()) == 1
    for group in range(groups):
        assert_binomial(int(seen[group].sum()), n, (1 - 0.5**8) / groups, tests=groups)
    assert_binomial(int((seen[0, ::2] & seen[0, 1::2]).sum()), n // 2, ((1 - 0.5**8) / groups) ** 2)


def test_one_group_draws_what_poisson_sampling_draws() -> None:
    ours = CyclicPoisson(groups=1, sampling_prob=0.2, steps=5).batches(1000, np.random.default_rng(8))
    theirs = Poisson(sampling_prob=0.2, steps=5).batches(1000, np.random.default_rng(8))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_only_a_partition_without_indices_covers_added_and_removed_examples() -> None:
    by_index = CyclicPoisson(groups=2, sampling_prob=0.5, steps=4)
    assert by_index.holds_for == (Adjacency.ZERO_OUT,)
    independent = CyclicPoisson(groups=2, sampling_prob=0.5, steps=4, partition="independent")
    assert independent.holds_for == (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE)
    assert "index" in by_index.requirement
    assert "uniformly at random" in independent.requirement
    assert "keep the groups secret" in independent.requirement
    assert "lower bound" not in by_index.requirement


def test_empty_groups_are_refused_where_the_worst_example_may_be_missing() -> None:
    sampler = CyclicPoisson(groups=5, sampling_prob=0.5, steps=4)
    message = r"^The 'num_examples' argument must be at least the sampler's groups = 5\. Got 4 instead\.$"
    with pytest.raises(InvalidInputError, match=message):
        sampler.batches(4, np.random.default_rng(0))
    assert len(list(sampler.batches(5, np.random.default_rng(0)))) == 4


@pytest.mark.parametrize("groups", [13, 1000])
def test_a_rate_above_one_is_refused(groups: int) -> None:
    data = Data(num_examples=1200, batch_size=100, epochs=1)
    message = rf"^The 'sampler.groups' field must be at most num_examples / batch_size = 12 .*Got {groups} instead; sam"
    with pytest.raises(InvalidInputError, match=message):
        CyclicPoissonOptions(groups=groups).sampler(data)
    assert CyclicPoissonOptions(groups=12).sampler(data).sampling_prob == 1.0
    uneven = Data(num_examples=1000, batch_size=300, steps=7)
    assert CyclicPoissonOptions(groups=3).sampler(uneven).sampling_prob == 0.9
    with pytest.raises(InvalidInputError, match=r"= 3\.333333333 for .*sampler\.groups = 3 would do"):
        CyclicPoissonOptions(groups=4).sampler(uneven)


def test_groups_that_never_have_a_turn_are_refused() -> None:
    short = Data(num_examples=1200, batch_size=100, steps=5)
    message = (
        r"^The 'sampler.groups' field must be at most the number of steps, 5: .* Got 6 instead; sampler\.groups = "
    )
    with pytest.raises(InvalidInputError, match=message):
        CyclicPoissonOptions(groups=6).sampler(short)
    assert CyclicPoissonOptions(groups=5).sampler(short).groups == 5
