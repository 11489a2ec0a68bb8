"""Poisson batches, beyond the sizes whose law can be enumerated: many examples, extreme rates, truncation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from hockeystick.errors import InvalidInputError
from hockeystick.samplers import Poisson

FALSE_FAILURE = 1e-9  # of each exact binomial test


def assert_binomial(count: int, trials: int, prob: float, tests: int = 1) -> None:
    assert binomtest(count, trials, prob).pvalue > FALSE_FAILURE / tests


def test_many_examples_at_a_small_rate() -> None:
    """Counts of single inclusions and of disjoint pairs, within a step and across steps: each exactly binomial."""
    n, q, steps = 100_000, 0.01, 60
    hits = np.zeros((steps, n), dtype=bool)
    for step, batch in enumerate(Poisson(sampling_prob=q, steps=steps).batches(n, np.random.default_rng(3))):
        hits[step, batch] = True
    assert_binomial(int(hits.sum()), steps * n, q)
    for block in np.split(hits, 20, axis=1):  # positions along a batch: nothing special at either end
        assert_binomial(int(block.sum()), block.size, q, tests=20)
    assert_binomial(int(hits[:, 0].sum()), steps, q)
    assert_binomial(int(hits[:, -1].sum()), steps, q)
    assert_binomial(int((hits[:, ::2] & hits[:, 1::2]).sum()), steps * n // 2, q * q)
    assert_binomial(int((hits[::2] & hits[1::2]).sum()), steps * n // 2, q * q)


@pytest.mark.parametrize("q", [0.3, 0.9, 1 - 1e-9])
def test_batches_longer_than_one_chunk_of_gaps(q: float) -> None:
    """Blocks of positions along a batch of several hundred thousand, so that chunks meet inside blocks."""
    n = 500_000
    (batch,) = Poisson(sampling_prob=q, steps=1).batches(n, np.random.default_rng(4))
    for count in np.bincount(batch // 2500, minlength=200):
        assert_binomial(int(count), 2500, q, tests=200)
    pairs = np.zeros(n, dtype=bool)
    pairs[batch] = True
    assert_binomial(int((pairs[::2] & pairs[1::2]).sum()), n // 2, q * q)


@pytest.mark.parametrize("q", [5e-324, 1e-300, 1e-20])
def test_tiny_rates_give_empty_batches(q: float) -> None:
    """A right sampler includes anything at all with probability at most 1e-11."""
    sizes = [batch.size for batch in Poisson(sampling_prob=q, steps=10).batches(10**8, np.random.default_rng(5))]
    assert sizes == [0] * 10


def test_rate_one_takes_everything() -> None:
    for batch in Poisson(sampling_prob=1.0, steps=3).batches(7, np.random.default_rng(6)):
        assert batch.tolist() == list(range(7))


def test_one_example() -> None:
    sizes = [batch.size for batch in Poisson(sampling_prob=0.3, steps=5000).batches(1, np.random.default_rng(7))]
    assert_binomial(sum(sizes), 5000, 0.3)


def test_truncation_cuts_as_often_as_it_should_and_anywhere() -> None:
    n, q, cap, steps = 1000, 0.05, 50, 4000
    sampler = Poisson(sampling_prob=q, steps=steps, truncated_batch_size=cap, num_examples=n)
    batches = list(sampler.batches(n, np.random.default_rng(8)))
    sizes = np.array([batch.size for batch in batches])
    assert sizes.max() == cap
    assert_binomial(int((sizes == cap).sum()), steps, float(binom.sf(cap - 1, n, q)))
    assert_binomial(int((sizes < cap - 10).sum()), steps, float(binom.cdf(cap - 11, n, q)))
    # A full batch is a uniform subset of cap examples, so its smallest index is below 20 with this probability:
    full = [batch for batch in batches if batch.size == cap]
    none_below = np.prod([(n - 20 - i) / (n - i) for i in range(cap)])
    assert_binomial(sum(int(batch[0] < 20) for batch in full), len(full), float(1 - none_below))
    assert_binomial(sum(int(batch[-1] >= n - 20) for batch in full), len(full), float(1 - none_below))


@given(
    n=st.integers(1, 200),
    q=st.floats(0.0, 1.0, exclude_min=True),
    steps=st.integers(1, 5),
    cap=st.none() | st.integers(1, 200),
    seed=st.integers(0, 2**32),
)
def test_structure(n: int, q: float, steps: int, cap: int | None, seed: int) -> None:
    cap = None if cap is None else min(cap, n)
    sampler = Poisson(sampling_prob=q, steps=steps, truncated_batch_size=cap, num_examples=n)
    batches = list(sampler.batches(n, np.random.default_rng(seed)))
    assert len(batches) == steps
    for batch in batches:
        assert np.all(np.diff(batch) > 0)
        assert batch.size <= (n if cap is None else cap)
        assert batch.size == 0 or (batch[0] >= 0 and batch[-1] < n)


def test_the_declared_number_of_examples_is_checked_at_the_call() -> None:
    sampler = Poisson(sampling_prob=0.5, steps=1, num_examples=4)
    with pytest.raises(InvalidInputError, match=r"must be the sampler's num_examples = 4\. Got 5 instead\.$"):
        sampler.batches(5, np.random.default_rng(0))


def test_a_dataset_of_a_hundred_billion_examples_is_drawn_from() -> None:
    """Positions stay exact beyond the range of 32 bits; five hundred examples are expected, and 400 to 600 nearly sure.

    False failure: two times e^(-100^2 / 1200) < 5e-4, for one fixed seed.
    """
    size = 10**11
    (batch,) = Poisson(sampling_prob=5e-9, steps=1).batches(size, np.random.default_rng(1))
    assert 400 <= batch.size <= 600
    assert np.all(np.diff(batch) > 0)
    assert 0.9 * size < batch[-1] < size
    with pytest.raises(InvalidInputError, match="from 1 to 100000000000"):
        Poisson(sampling_prob=5e-9, steps=1).batches(size + 1, np.random.default_rng(1))
