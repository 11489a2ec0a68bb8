"""Balls-in-bins and random allocation, beyond the sizes whose law can be enumerated."""

from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest, hypergeom

from hockeystick.samplers import BallsInBins, RandomAllocation
from hockeystick.samplers.grouping import group_by_bin

FALSE_FAILURE = 1e-9  # of each family of exact binomial tests


def picks(sampler: BallsInBins | RandomAllocation, num_examples: int, seed: int) -> list[tuple[int, int]]:
    """All (example, step) pairs of one run, by example and then by step."""
    rng = np.random.default_rng(seed)
    batches = sampler.batches(num_examples, rng)
    return sorted((int(example), step) for step, batch in enumerate(batches) for example in batch)


def pick_table(sampler: RandomAllocation, num_examples: int, seed: int) -> NDArray[np.int64]:
    """Steps of each example of a one-epoch run, ascending; fails unless each has exactly k of them."""
    table = np.array(picks(sampler, num_examples, seed))
    k = sampler.participations
    np.testing.assert_array_equal(table[:, 0], np.repeat(np.arange(num_examples), k))
    steps: NDArray[np.int64] = table[:, 1].reshape(num_examples, k)
    assert np.all(np.diff(steps, axis=1) > 0)
    return steps


@pytest.mark.parametrize(
    ("bins", "k", "num_examples"),
    [
        (300, 2, 20_000),
        (300, 7, 20_000),
        (1000, 10, 20_000),  # large enough for the rejection branch of numpy's binomial
        (40, 37, 20_000),
        (200_000, 2, 2_000),  # stretches of steps that do not fit in 16 bits
        (200_001, 3, 2_000),
    ],
)
def test_allocation_of_several_picks(bins: int, k: int, num_examples: int) -> None:
    """In any window of steps the number of an example's picks is hypergeometric, and examples are independent.

    Windows cut across the stretches in which the steps are drawn. The first and the last pick are windows too.
    """
    steps = pick_table(RandomAllocation(bins=bins, participations=k), num_examples, seed=21)
    windows = [(0, bins // 2), (bins // 3, bins // 2 + 1), (bins - bins // 5, bins), (0, 1 + bins // (2 * k))]
    windows += [(bins // 2, bins // 2 + 1), (0, 1), (bins - 1, bins)]
    tests = len(windows) * (k + 1) + len(windows) * 2
    for first, end in windows:
        inside = ((steps >= first) & (steps < end)).sum(axis=1)
        law = hypergeom(bins, k, end - first)
        for j in range(k + 1):
            p = float(np.clip(law.pmf(j), 0.0, 1.0))
            assert binomtest(int((inside == j).sum()), num_examples, p).pvalue > FALSE_FAILURE / tests
        # Neighbouring examples are independent: both miss the window.
        missed = inside == 0
        both = int((missed[::2] & missed[1::2]).sum())
        p = float(np.clip(law.pmf(0), 0.0, 1.0))
        assert binomtest(both, num_examples // 2, p * p).pvalue > FALSE_FAILURE / tests
    # Two windows at once: the gap between the first two picks is at most g (all gaps have one law).
    for g in (1, bins // (2 * k) + 1):
        p = 1.0 - float(np.prod([(bins - g - i) / (bins - i) for i in range(k)]))
        for earlier, later in pairwise([np.full(num_examples, -1), *steps.T][:4]):
            count = int((later - earlier <= g).sum())
            assert binomtest(count, num_examples, p).pvalue > FALSE_FAILURE / tests


def test_allocation_is_fresh_in_every_epoch() -> None:
    bins, n = 50, 20_000
    for k in (1, 4):
        table = np.array(picks(RandomAllocation(bins=bins, participations=k, epochs=2), n, seed=22))[:, 1]
        first, second = table.reshape(n, 2, k).transpose(1, 0, 2)
        assert first.max() < bins <= second.min()
        common = (first[:, :, None] == second[:, None, :] - bins).sum(axis=(1, 2))
        law = hypergeom(bins, k, k)
        for j in range(k + 1):
            assert binomtest(int((common == j).sum()), n, float(law.pmf(j))).pvalue > FALSE_FAILURE / 7


@pytest.mark.parametrize("make", [BallsInBins, RandomAllocation])
@pytest.mark.parametrize("bins", [7, 1000, 2**16, 2**16 + 1, 300_000])
def test_one_pick_is_uniform(make: type[BallsInBins] | type[RandomAllocation], bins: int) -> None:
    n = 50_000
    steps = np.array(picks(make(bins=bins), n, seed=23))
    np.testing.assert_array_equal(steps[:, 0], np.arange(n))
    edges = sorted({0, 1, bins // 7, bins // 2, min(2**16 - 1, bins - 1), bins - 1, bins})
    for low, high in pairwise(edges):
        inside = (steps[:, 1] >= low) & (steps[:, 1] < high)
        p = (high - low) / bins
        assert binomtest(int(inside.sum()), n, p).pvalue > FALSE_FAILURE / 14
        both = int((inside[::2] & inside[1::2]).sum())
        assert binomtest(both, n // 2, p * p).pvalue > FALSE_FAILURE / 14


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 3), st.integers(0, 2**32))
def test_balls_in_bins_partitions_and_replays(n: int, bins: int, epochs: int, seed: int) -> None:
    batches = [b.tolist() for b in BallsInBins(bins=bins, epochs=epochs).batches(n, np.random.default_rng(seed))]
    assert len(batches) == bins * epochs
    assert sorted(chain.from_iterable(batches[:bins])) == list(range(n))
    assert batches == batches[:bins] * epochs


@given(st.integers(1, 30), st.integers(1, 12), st.data(), st.integers(1, 3), st.integers(0, 2**32))
def test_allocation_gives_each_example_k_steps(n: int, bins: int, draw: st.DataObject, epochs: int, seed: int) -> None:
    k = draw.draw(st.integers(1, bins))
    sampler = RandomAllocation(bins=bins, participations=k, epochs=epochs)
    batches = list(sampler.batches(n, np.random.default_rng(seed)))
    assert len(batches) == sampler.steps == bins * epochs
    assert all(np.all(np.diff(batch) > 0) for batch in batches)
    for epoch in range(epochs):
        drawn = np.concatenate(batches[epoch * bins : (epoch + 1) * bins])
        np.testing.assert_array_equal(np.bincount(drawn, minlength=n), np.full(n, k))


@given(st.lists(st.integers(0, 99_999), max_size=40), st.sampled_from([100_000, 150_000]))
def test_grouping_of_wide_keys_agrees_with_the_obvious_way(assigned: list[int], bins: int) -> None:
    order, starts = group_by_bin(np.array(assigned, dtype=np.uint32), bins)
    assert starts.shape == (bins + 1,)
    assert order.tolist() == sorted(range(len(assigned)), key=lambda item: assigned[item])
    for b in set(assigned):
        assert order[starts[b] : starts[b + 1]].tolist() == [i for i, a in enumerate(assigned) if a == b]


@given(st.lists(st.integers(0, 9), max_size=40))
def test_grouping_of_narrow_keys_agrees_with_the_obvious_way(assigned: list[int]) -> None:
    order, starts = group_by_bin(np.array(assigned, dtype=np.uint16), 10)
    groups = [order[starts[b] : starts[b + 1]].tolist() for b in range(10)]
    assert groups == [[i for i, a in enumerate(assigned) if a == b] for b in range(10)]
