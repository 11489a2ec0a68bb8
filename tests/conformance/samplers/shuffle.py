"""Samplers of the kind ``shuffle``: a permutation of the examples in every epoch."""

from collections import Counter
from itertools import permutations

import numpy as np
from sampler_laws import Batches, Broken, Declaration, Law, independent_blocks, runs_of_batches

from hockeystick.samplers import Shuffle


def shuffle_law(sampler: Shuffle, num_examples: int) -> Law:
    orders = list(permutations(range(num_examples)))
    size = sampler.batch_size
    drawn = Counter(
        runs_of_batches([order[b * size : (b + 1) * size] for b in range(sampler.bins)], num_examples)
        for order in orders
    )
    epoch = {run: count / len(orders) for run, count in drawn.items()}
    return independent_blocks(epoch, sampler.bins, sampler.epochs)


def replayed_shuffle(rng: np.random.Generator) -> Batches:
    """One permutation for all epochs."""
    order = rng.permutation(4)
    yield from (order[:2], order[2:], order[:2], order[2:])


def rotated_shuffle(rng: np.random.Generator) -> Batches:
    """Rotations in place of permutations: the rates of single examples are right."""
    for _ in range(2):
        order = np.roll(np.arange(4), rng.integers(4))
        yield from (order[:2], order[2:])


SHUFFLE = Shuffle(batch_size=2, bins=2, epochs=2)
WHOLE = [list(range(first, first + 6)) for first in range(0, 24, 6)]
RUNS = [
    Shuffle(batch_size=6, bins=4, epochs=3),
    Shuffle(batch_size=5, bins=4, epochs=3, remainder="drop", num_examples=24),
    Shuffle(batch_size=7, bins=4, epochs=3, remainder="short", num_examples=24),
]

DECLARATION = Declaration(
    cases=[
        (Shuffle(batch_size=2, bins=2, epochs=2), 4),
        (Shuffle(batch_size=1, bins=4), 4),
        (Shuffle(batch_size=3, bins=2), 6),
        (Shuffle(batch_size=2, bins=1, epochs=2, remainder="drop", num_examples=3), 3),
        (Shuffle(batch_size=1, bins=2, remainder="drop", num_examples=4), 4),
        (Shuffle(batch_size=2, bins=2, epochs=2, remainder="short", num_examples=3), 3),
        (Shuffle(batch_size=3, bins=2, remainder="short", num_examples=4), 4),
    ],
    law=shuffle_law,
    wrong=[
        (replayed_shuffle, SHUFFLE, 4),
        (rotated_shuffle, SHUFFLE, 4),
    ],
    plans=[({}, Shuffle(batch_size=60, bins=20, epochs=4))],
    mechanisms=[
        (Shuffle(batch_size=3, bins=1, epochs=2), 0.8),
        (Shuffle(batch_size=2, bins=6), 0.7),
        (Shuffle(batch_size=50, bins=20, epochs=3), 1.5),
        (Shuffle(batch_size=1, bins=100_000), 3.0),
        (Shuffle(batch_size=256, bins=234, epochs=15, remainder="drop", num_examples=60_000), 1.1),
        (Shuffle(batch_size=60, bins=2, remainder="short", num_examples=100), 0.8),
    ],
    runs=RUNS,
    broken=[
        Broken(RUNS[0], [WHOLE[0], WHOLE[1][:-1]], "batch_size", 1),
        Broken(RUNS[0], [WHOLE[0], WHOLE[0]], "participations_an_epoch", 1),
        Broken(RUNS[1], [WHOLE[0]], "batch_size", 0),
        Broken(RUNS[1], [range(5), range(4, 9)], "participations_an_epoch", 1),
        Broken(RUNS[2], [range(7), range(7, 13)], "batch_size", 1),
    ],
)
