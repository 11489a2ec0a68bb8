"""Deterministic and shuffled batches, beyond the sizes whose law can be enumerated."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from hockeystick.errors import InvalidInputError
from hockeystick.samplers import Deterministic, Shuffle

FALSE_FAILURE = 1e-9  # of each statistical test

small = st.integers(1, 12)


@given(small, small, st.integers(1, 3))
def test_deterministic_batches_are_consecutive(batch_size: int, bins: int, epochs: int) -> None:
    sampler = Deterministic(bins=bins, epochs=epochs)
    batches = list(sampler.batches(batch_size * bins, np.random.default_rng(0)))
    assert len(batches) == sampler.steps == bins * epochs
    for step, batch in enumerate(batches):
        first = step % bins * batch_size
        assert batch.tolist() == list(range(first, first + batch_size))


def test_deterministic_leaves_the_generator_alone() -> None:
    rng = np.random.default_rng(1)
    list(Deterministic(bins=3, epochs=2).batches(6, rng))
    assert rng.random() == np.random.default_rng(1).random()


@given(small, small, st.integers(1, 3), st.integers(0, 2**32))
def test_shuffle_visits_each_example_once_an_epoch(batch_size: int, bins: int, epochs: int, seed: int) -> None:
    sampler = Shuffle(batch_size=batch_size, bins=bins, epochs=epochs)
    batches = list(sampler.batches(batch_size * bins, np.random.default_rng(seed)))
    assert [batch.size for batch in batches] == [batch_size] * (bins * epochs)
    for epoch in range(epochs):
        seen = np.concatenate(batches[epoch * bins : (epoch + 1) * bins])
        assert sorted(seen.tolist()) == list(range(batch_size * bins))


def test_shuffle_is_fresh_in_every_epoch() -> None:
    """Examples 0 and 1 meet in a batch with probability 9/99, independently in each epoch; example 0 changes bins.

    Each of the three counts is exactly binomial.
    """
    sampler = Shuffle(batch_size=10, bins=10, epochs=2000)
    bins_of = np.empty((2000, 2), dtype=int)
    for step, batch in enumerate(sampler.batches(100, np.random.default_rng(11))):
        epoch, b = divmod(step, 10)
        for example in (0, 1):
            if example in batch:
                bins_of[epoch, example] = b
    meet = bins_of[:, 0] == bins_of[:, 1]
    assert binomtest(int(meet.sum()), 2000, 9 / 99).pvalue > FALSE_FAILURE
    assert binomtest(int((meet[::2] & meet[1::2]).sum()), 1000, (9 / 99) ** 2).pvalue > FALSE_FAILURE
    same_bin = bins_of[::2, 0] == bins_of[1::2, 0]
    assert binomtest(int(same_bin.sum()), 1000, 0.1).pvalue > FALSE_FAILURE


@pytest.mark.parametrize(
    ("sampler", "num_examples", "message"),
    [
        (Deterministic(bins=3), 10, "must be a multiple of bins = 3 for kind = 'deterministic'. Got 10 instead."),
        (Shuffle(batch_size=3, bins=3), 10, "must be batch_size * bins = 9 for kind = 'shuffle'. Got 10 instead."),
    ],
)
def test_sizes_that_do_not_fit_fail_at_the_call(
    sampler: Deterministic | Shuffle, num_examples: int, message: str
) -> None:
    with pytest.raises(InvalidInputError) as error:
        sampler.batches(num_examples, np.random.default_rng(0))
    assert str(error.value) == f"The 'num_examples' argument {message}"
