"""Samplers of the kind ``fixed_size``: a uniform set of one size, for one step or for a few."""

from collections.abc import Iterable
from itertools import chain, combinations, product

import numpy as np
from sampler_laws import Batches, Broken, Declaration, Law, runs_of_batches

from hockeystick.samplers import FixedSize


def fixed_size_law(sampler: FixedSize, num_examples: int) -> Law:
    sets = list(combinations(range(num_examples), sampler.batch_size))
    cohorts = -(-sampler.steps // sampler.cohort_steps)
    law: Law = {}
    for drawn in product(sets, repeat=cohorts):
        batches: Iterable[Iterable[int]] = chain.from_iterable([chosen] * sampler.cohort_steps for chosen in drawn)
        run = runs_of_batches(list(batches)[: sampler.steps], num_examples)
        law[run] = law.get(run, 0.0) + len(sets) ** -float(cohorts)
    return law


def with_replacement(rng: np.random.Generator) -> Batches:
    """Two draws that may fall on one example."""
    for _ in range(2):
        yield set(rng.integers(4, size=2))


def coins_of_the_same_rate(rng: np.random.Generator) -> Batches:
    """Poisson batches of the same mean size."""
    for _ in range(2):
        yield np.flatnonzero(rng.random(4) < 0.5)


def neighbours_in_a_row(rng: np.random.Generator) -> Batches:
    """Every example has the right rate, but a batch is a stretch of the dataset."""
    for _ in range(2):
        yield (int(rng.integers(4)) + np.arange(2)) % 4


def one_cohort(rng: np.random.Generator) -> Batches:
    """The cohort of the first step is kept for the whole run."""
    batch = rng.choice(4, size=2, replace=False)
    yield from (batch, batch)


def fresh_batches(rng: np.random.Generator) -> Batches:
    """Every step of a cohort draws its own batch."""
    for _ in range(4):
        yield rng.choice(3, size=1)


FRESH = FixedSize(batch_size=2, num_examples=4, steps=2)
COHORTS = FixedSize(batch_size=1, num_examples=3, steps=4, cohort_steps=2)
RUNS = [
    FixedSize(batch_size=5, num_examples=24, steps=12),
    FixedSize(batch_size=5, num_examples=24, steps=12, cohort_steps=5),
]

DECLARATION = Declaration(
    cases=[
        (FRESH, 4),
        (FixedSize(batch_size=1, num_examples=3, steps=3), 3),
        (FixedSize(batch_size=3, num_examples=3, steps=2), 3),
        (COHORTS, 3),
        (FixedSize(batch_size=2, num_examples=4, steps=3, cohort_steps=2), 4),
    ],
    law=fixed_size_law,
    wrong=[
        (with_replacement, FRESH, 4),
        (coins_of_the_same_rate, FRESH, 4),
        (neighbours_in_a_row, FRESH, 4),
        (one_cohort, FRESH, 4),
        (fresh_batches, COHORTS, 3),
    ],
    plans=[
        ({}, FixedSize(batch_size=60, num_examples=1200, steps=80)),
        ({"cohort_steps": 20}, FixedSize(batch_size=60, num_examples=1200, steps=80, cohort_steps=20)),
    ],
    mechanisms=[
        (FixedSize(batch_size=1, num_examples=1, steps=2), 1.1),
        (FixedSize(batch_size=3, num_examples=10, steps=3), 0.6),
        (FixedSize(batch_size=1, num_examples=100, steps=300), 1.5),
        (FixedSize(batch_size=2, num_examples=50, steps=20, cohort_steps=7), 3.0),
    ],
    runs=RUNS,
    broken=[
        Broken(RUNS[0], [range(5), range(4)], "batch_size", 1),
        Broken(RUNS[1], [range(5), range(1, 6)], "same_cohort", 1),
    ],
)
