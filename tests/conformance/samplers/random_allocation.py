"""Samplers of the kind ``random_allocation``: k of the steps of an epoch for every example."""

from itertools import combinations

import numpy as np
from sampler_laws import Batches, Broken, Declaration, Law, batches_of_bins, independent_blocks, independent_examples

from hockeystick.samplers import RandomAllocation


def random_allocation_law(sampler: RandomAllocation, num_examples: int) -> Law:
    subsets = list(combinations(range(sampler.bins), sampler.participations))
    epoch = independent_examples(dict.fromkeys(subsets, 1 / len(subsets)), num_examples)
    return independent_blocks(epoch, sampler.bins, sampler.epochs)


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


EPOCHS = RandomAllocation(bins=3, participations=2, epochs=2)
PAIRS = RandomAllocation(bins=5, participations=2)
WHOLE = [list(range(first, first + 6)) for first in range(0, 24, 6)]
RUNS = [
    RandomAllocation(bins=4, epochs=3),
    RandomAllocation(bins=4, participations=2, epochs=3),
]

DECLARATION = Declaration(
    cases=[
        (RandomAllocation(bins=5, participations=2), 2),
        (RandomAllocation(bins=3, participations=2, epochs=2), 2),
        (RandomAllocation(bins=6, participations=4), 2),
        (RandomAllocation(bins=3, epochs=2), 2),
        (RandomAllocation(bins=3, participations=3), 2),
    ],
    law=random_allocation_law,
    wrong=[
        (reused_allocation, EPOCHS, 2),
        (shared_allocation, EPOCHS, 2),
        (allocation_with_replacement, PAIRS, 2),
        (greedy_allocation, PAIRS, 2),
        (shifted_allocation, PAIRS, 2),
    ],
    plans=[
        ({}, RandomAllocation(bins=20, epochs=4)),
        ({"participations": 3}, RandomAllocation(bins=20, participations=3, epochs=4)),
    ],
    mechanisms=[
        (RandomAllocation(bins=1), 1.0),
        (RandomAllocation(bins=3, participations=3), 1.7),
        (RandomAllocation(bins=7, participations=3), 0.9),
        (RandomAllocation(bins=100, epochs=2), 0.7),
    ],
    runs=RUNS,
    broken=[
        Broken(RUNS[0], [*WHOLE[:3], []], "participations_an_epoch", 3),
        Broken(RUNS[1], [WHOLE[0], WHOLE[0], WHOLE[0]], "participations_an_epoch", 2),
        Broken(RUNS[1], [*WHOLE[:3], WHOLE[3]], "participations_an_epoch", 3),
    ],
)
