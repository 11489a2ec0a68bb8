"""Samplers of the kind ``poisson``: a coin for every example at every step."""

from itertools import combinations

import numpy as np
from sampler_laws import Batches, Broken, Declaration, Law, independent_blocks, runs_of_batches

from hockeystick.samplers import Poisson


def poisson_law(sampler: Poisson, num_examples: int) -> Law:
    q = sampler.sampling_prob
    cap = num_examples if sampler.truncated_batch_size is None else sampler.truncated_batch_size
    step: Law = {}
    for size in range(num_examples + 1):
        for drawn in combinations(range(num_examples), size):
            kept_sets = list(combinations(drawn, min(size, cap)))
            for kept in kept_sets:
                run = runs_of_batches([kept], num_examples)
                chance = q**size * (1 - q) ** (num_examples - size) / len(kept_sets)
                step[run] = step.get(run, 0.0) + chance
    return independent_blocks(step, 1, sampler.steps)


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


POISSON = Poisson(sampling_prob=0.5, steps=2)
TRUNCATED = Poisson(sampling_prob=0.5, steps=2, truncated_batch_size=1, num_examples=3)
RUNS = [
    Poisson(sampling_prob=0.1, steps=12),
    Poisson(sampling_prob=0.5, steps=12, truncated_batch_size=10, num_examples=24),
]

DECLARATION = Declaration(
    cases=[
        (Poisson(sampling_prob=0.4, steps=3), 3),
        (Poisson(sampling_prob=0.75, steps=2), 4),
        (Poisson(sampling_prob=1.0, steps=2), 3),
        (Poisson(sampling_prob=0.5, steps=2, truncated_batch_size=1, num_examples=3), 3),
        (Poisson(sampling_prob=0.6, steps=1, truncated_batch_size=2, num_examples=5), 5),
    ],
    law=poisson_law,
    wrong=[
        (fixed_size_poisson, POISSON, 4),
        (replayed_poisson, POISSON, 4),
        (one_coin_poisson, POISSON, 4),
        (first_kept_truncation, TRUNCATED, 3),
        (no_truncation, TRUNCATED, 3),
    ],
    plans=[
        ({}, Poisson(sampling_prob=0.05, steps=80)),
        (
            {"truncated_batch_size": 90},
            Poisson(sampling_prob=0.05, steps=80, truncated_batch_size=90, num_examples=1200),
        ),
    ],
    mechanisms=[
        (Poisson(sampling_prob=1.0, steps=2), 1.1),
        (Poisson(sampling_prob=0.3, steps=3), 0.6),
        (Poisson(sampling_prob=0.01, steps=300), 0.9),
        (Poisson(sampling_prob=0.05, steps=20, truncated_batch_size=30, num_examples=200), 1.0),
    ],
    runs=RUNS,
    broken=[
        Broken(RUNS[0], [[3], [5, 5]], "distinct_examples", 1),
        Broken(RUNS[0], [[3], [5, 24]], "distinct_examples", 1),
        Broken(RUNS[1], [[], list(range(11))], "truncated_batch_size", 1),
    ],
)
