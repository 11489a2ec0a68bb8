"""Samplers that are wrong, and what they pretend to be."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from hockeystick.samplers import (
    BallsInBins,
    BatchSampler,
    BMinSep,
    CyclicPoisson,
    Deterministic,
    MultiAttribution,
    Poisson,
    RandomAllocation,
    Shuffle,
)

Batches = Iterator[Iterable[int]]


def fixed_size_poisson(rng: np.random.Generator) -> Batches:
    """Batches of a fixed size passed off as Poisson (2 of 4 at rate 0.5)."""
    for _ in range(2):
        yield rng.choice(4, size=2, replace=False)


def replayed_poisson(rng: np.random.Generator) -> Batches:
    """One Poisson batch used at every step."""
    batch = np.flatnonzero(rng.random(4) < 0.5)
    yield from (batch, batch)


def one_coin_poisson(rng: np.random.Generator) -> Batches:
    """Right rates at every step, but neighbouring examples share a coin."""
    for _ in range(2):
        yield np.flatnonzero(np.repeat(rng.random(2) < 0.5, 2))


def first_kept_truncation(rng: np.random.Generator) -> Batches:
    """The lowest indices of a batch that is too large are kept, not a random subset."""
    for _ in range(2):
        yield np.flatnonzero(rng.random(3) < 0.5)[:1]


def no_truncation(rng: np.random.Generator) -> Batches:
    """Batches over the cap are passed on."""
    for _ in range(2):
        yield np.flatnonzero(rng.random(3) < 0.5)


def batches_of_bins(bins_of: Iterable[Iterable[int]], bins: int) -> Batches:
    """Batches of one epoch from each example's bins."""
    members: list[list[int]] = [[] for _ in range(bins)]
    for example, chosen in enumerate(bins_of):
        for b in chosen:
            members[b].append(example)
    yield from members


def reused_allocation(rng: np.random.Generator) -> Batches:
    """The picks of the first epoch are replayed in the second."""
    picks = [rng.choice(3, size=2, replace=False) for _ in range(2)]
    yield from batches_of_bins(picks, 3)
    yield from batches_of_bins(picks, 3)


def shared_allocation(rng: np.random.Generator) -> Batches:
    """All examples pick the same steps."""
    for _ in range(2):
        yield from batches_of_bins([rng.choice(3, size=2, replace=False)] * 2, 3)


def allocation_with_replacement(rng: np.random.Generator) -> Batches:
    """Two picks that may fall on one step."""
    yield from batches_of_bins([set(rng.integers(5, size=2)) for _ in range(2)], 5)


def greedy_allocation(rng: np.random.Generator) -> Batches:
    """The first pick uniform where it fits, the second uniform among the later steps: not a uniform pair."""
    picks: list[tuple[int, int]] = []
    for _ in range(2):
        first = int(rng.integers(4))
        picks.append((first, int(rng.integers(first + 1, 5))))
    yield from batches_of_bins(picks, 5)


def shifted_allocation(rng: np.random.Generator) -> Batches:
    """Each step has the right rate, but the two picks are always neighbours."""
    yield from batches_of_bins([(s, (s + 1) % 5) for s in rng.integers(5, size=2)], 5)


def fresh_bins(rng: np.random.Generator) -> Batches:
    """New bins in every epoch passed off as balls-in-bins."""
    for _ in range(2):
        yield from batches_of_bins(rng.integers(3, size=(3, 1)), 3)


def balanced_bins(rng: np.random.Generator) -> Batches:
    """Shuffled batches of equal size passed off as balls-in-bins."""
    bins = list(batches_of_bins(rng.permutation(3)[:, None], 3))
    yield from bins + bins


def replayed_shuffle(rng: np.random.Generator) -> Batches:
    """One permutation for all epochs."""
    order = rng.permutation(4)
    yield from (order[:2], order[2:], order[:2], order[2:])


def rotated_shuffle(rng: np.random.Generator) -> Batches:
    """Rotations in place of permutations: the rates of single examples are right."""
    for _ in range(2):
        order = np.roll(np.arange(4), rng.integers(4))
        yield from (order[:2], order[2:])


def shuffled_deterministic(rng: np.random.Generator) -> Batches:
    """Shuffled batches passed off as fixed ones."""
    yield from rng.permutation(4)[:, None]


def min_sep_taken(rng: np.random.Generator, n: int, wait: int, starts: Iterable[int], steps: int) -> Batches:
    """Each of n examples by its own coin of 0.5 when available; taken ones wait; cold but for ``starts``."""
    until = np.array(starts)
    for step in range(steps):
        taken = np.flatnonzero((until <= step) & (rng.random(n) < 0.5))
        until[taken] = step + wait + 1
        yield taken


def cold_min_sep(rng: np.random.Generator) -> Batches:
    """A cold start passed off as a warm one."""
    return min_sep_taken(rng, 2, wait=2, starts=[0, 0], steps=5)


def long_waiting_min_sep(rng: np.random.Generator) -> Batches:
    """One step too many between two batches, from the right start."""
    starts = rng.choice(3, size=2, p=[0.5, 0.25, 0.25])
    return min_sep_taken(rng, 2, wait=3, starts=starts, steps=5)


def shared_start_min_sep(rng: np.random.Generator) -> Batches:
    """The examples are in the stationary state together."""
    return min_sep_taken(rng, 2, wait=2, starts=[rng.choice(3, p=[0.5, 0.25, 0.25])] * 2, steps=5)


def uniform_start_min_sep(rng: np.random.Generator) -> Batches:
    """The start is uniform over the phases, as in balls-in-bins."""
    return min_sep_taken(rng, 2, wait=2, starts=rng.integers(3, size=2), steps=2)


def forgiving_truncation(rng: np.random.Generator) -> Batches:
    """Examples that are cut off a batch are available again at the next step (3 at q = 0.5, b = 3, B = 1)."""
    until = rng.choice(3, size=3, p=[0.5, 0.25, 0.25])
    for step in range(4):
        taken = np.flatnonzero((until <= step) & (rng.random(3) < 0.5))
        kept = rng.permutation(taken)[:1]
        until[kept] = step + 3
        yield kept


def exclusion_by_batches(rng: np.random.Generator) -> Batches:
    """The batches, not the sampled examples, keep a user out."""
    other = MultiAttribution(min_sep=2, sampling_prob=0.4, steps=3, examples_per_user=1, exclusion="participating")
    yield from other.batches(2, rng)


def cyclic(rng: np.random.Generator, groups: Iterable[int], steps: int) -> Batches:
    """At step t the examples with t mod 2 in ``groups``, each by its own coin of 0.5."""
    of_examples = np.array(groups)
    for step in range(steps):
        yield np.flatnonzero((of_examples == step % 2) & (rng.random(of_examples.size) < 0.5))


def uncyclic_poisson(rng: np.random.Generator) -> Batches:
    """Poisson sampling at the same rate over the run."""
    for _ in range(4):
        yield np.flatnonzero(rng.random(3) < 0.25)


def late_cyclic(rng: np.random.Generator) -> Batches:
    """The groups take turns from the wrong one on."""
    return cyclic(rng, [1, 0, 1], 4)


def shuffled_cyclic(rng: np.random.Generator) -> Batches:
    """A random partition passed off as the one by index."""
    return cyclic(rng, rng.permutation([0, 1, 0]), 4)


def balanced_cyclic(rng: np.random.Generator) -> Batches:
    """Groups of the same size passed off as independent ones."""
    return cyclic(rng, rng.permutation([0, 1]), 4)


def regrouped_cyclic(rng: np.random.Generator) -> Batches:
    """New groups in every round."""
    for _ in range(2):
        yield from cyclic(rng, rng.integers(2, size=2), 2)


def replayed_cyclic(rng: np.random.Generator) -> Batches:
    """The batches of the first round are used again in the second."""
    batches = list(cyclic(rng, [0, 1, 0], 2))
    yield from batches + batches


POISSON = Poisson(sampling_prob=0.5, steps=2)
CYCLIC = CyclicPoisson(groups=2, sampling_prob=0.5, steps=4)
INDEPENDENT_GROUPS = CyclicPoisson(groups=2, sampling_prob=0.5, steps=4, partition="independent")
TRUNCATED = Poisson(sampling_prob=0.5, steps=2, truncated_batch_size=1, num_examples=3)
EPOCHS = RandomAllocation(bins=3, participations=2, epochs=2)
PAIRS = RandomAllocation(bins=5, participations=2)
BINS = BallsInBins(bins=3, epochs=2)
SHUFFLE = Shuffle(batch_size=2, bins=2, epochs=2)
WARM = BMinSep(min_sep=3, sampling_prob=0.25, steps=5)  # q = 0.5
WARM_TRUNCATED = BMinSep(min_sep=3, sampling_prob=0.25, steps=4, truncated_batch_size=1, num_examples=3)
FAULTS: list[tuple[Callable[[np.random.Generator], Batches], BatchSampler, int]] = [
    (fixed_size_poisson, POISSON, 4),
    (replayed_poisson, POISSON, 4),
    (one_coin_poisson, POISSON, 4),
    (first_kept_truncation, TRUNCATED, 3),
    (no_truncation, TRUNCATED, 3),
    (reused_allocation, EPOCHS, 2),
    (shared_allocation, EPOCHS, 2),
    (allocation_with_replacement, PAIRS, 2),
    (greedy_allocation, PAIRS, 2),
    (shifted_allocation, PAIRS, 2),
    (fresh_bins, BINS, 3),
    (balanced_bins, BINS, 3),
    (replayed_shuffle, SHUFFLE, 4),
    (rotated_shuffle, SHUFFLE, 4),
    (shuffled_deterministic, Deterministic(bins=4), 4),
    (cold_min_sep, WARM, 2),
    (long_waiting_min_sep, WARM, 2),
    (shared_start_min_sep, WARM, 2),
    (uniform_start_min_sep, BMinSep(min_sep=3, sampling_prob=0.25, steps=2), 2),
    (forgiving_truncation, WARM_TRUNCATED, 3),
    (uncyclic_poisson, CYCLIC, 3),
    (late_cyclic, CYCLIC, 3),
    (shuffled_cyclic, CYCLIC, 3),
    (replayed_cyclic, CYCLIC, 3),
    (balanced_cyclic, INDEPENDENT_GROUPS, 2),
    (regrouped_cyclic, INDEPENDENT_GROUPS, 2),
]
