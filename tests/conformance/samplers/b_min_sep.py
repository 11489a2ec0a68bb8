"""Samplers of the kind ``b_min_sep``: coins, and a rest after every batch."""

import math
from collections.abc import Iterable
from itertools import combinations, product

import numpy as np
from sampler_laws import Batches, Broken, Declaration, Law, independent_examples, runs_of_batches

from hockeystick.samplers import BMinSep


def min_sep_patterns(sampler: BMinSep) -> dict[tuple[int, ...], float]:
    """The steps at which one example is taken, before any truncation."""
    q, b = sampler.participation_prob, sampler.min_sep
    patterns: dict[tuple[int, ...], float] = {}

    def walk(step: int, chance: float, taken: tuple[int, ...]) -> None:
        if step >= sampler.steps:
            patterns[taken] = patterns.get(taken, 0.0) + chance
        else:
            walk(step + 1, chance * (1 - q), taken)
            walk(step + b, chance * q, (*taken, step))

    walk(0, 1 / (1 + (b - 1) * q) if sampler.warm_start else 1.0, ())
    for available_from in range(1, b if sampler.warm_start else 1):
        walk(available_from, q / (1 + (b - 1) * q), ())
    return patterns


def b_min_sep_law(sampler: BMinSep, num_examples: int) -> Law:
    taken = independent_examples(min_sep_patterns(sampler), num_examples)
    cap = sampler.truncated_batch_size
    if cap is None:
        return taken
    law: Law = {}
    for run, chance in taken.items():
        batches = [[i for i, steps in enumerate(run) if t in steps] for t in range(sampler.steps)]
        kept_sets = [list(combinations(batch, min(len(batch), cap))) for batch in batches]
        for kept in product(*kept_sets):
            outcome = runs_of_batches(kept, num_examples)
            law[outcome] = law.get(outcome, 0.0) + chance / math.prod(map(len, kept_sets))
    return law


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


WARM = BMinSep(min_sep=3, sampling_prob=0.25, steps=5)
WARM_TRUNCATED = BMinSep(min_sep=3, sampling_prob=0.25, steps=4, truncated_batch_size=1, num_examples=3)
RUNS = [
    BMinSep(min_sep=3, sampling_prob=0.2, steps=12),
    BMinSep(min_sep=3, sampling_prob=0.2, steps=12, warm_start=False),
]

DECLARATION = Declaration(
    cases=[
        (BMinSep(min_sep=3, sampling_prob=0.2, steps=5), 2),
        (BMinSep(min_sep=3, sampling_prob=0.2, steps=5, warm_start=False), 2),
        (BMinSep(min_sep=2, sampling_prob=0.4, steps=4), 3),
        (BMinSep(min_sep=3, sampling_prob=1 / 3, steps=4), 2),
        (BMinSep(min_sep=3, sampling_prob=1 / 3, steps=4, warm_start=False), 2),
        (BMinSep(min_sep=2, sampling_prob=0.35, steps=3, truncated_batch_size=1, num_examples=3), 3),
        (BMinSep(min_sep=3, sampling_prob=0.3, steps=4, warm_start=False, truncated_batch_size=1, num_examples=2), 2),
        (BMinSep(min_sep=2, sampling_prob=0.5, steps=2, truncated_batch_size=2, num_examples=4), 4),
    ],
    law=b_min_sep_law,
    wrong=[
        (cold_min_sep, WARM, 2),
        (long_waiting_min_sep, WARM, 2),
        (shared_start_min_sep, WARM, 2),
        (uniform_start_min_sep, BMinSep(min_sep=3, sampling_prob=0.25, steps=2), 2),
        (forgiving_truncation, WARM_TRUNCATED, 3),
    ],
    plans=[
        ({"min_sep": 20}, BMinSep(min_sep=20, sampling_prob=0.05, steps=80)),
        (
            {"min_sep": 4, "warm_start": False, "truncated_batch_size": 90},
            BMinSep(
                min_sep=4,
                sampling_prob=0.05,
                steps=80,
                warm_start=False,
                truncated_batch_size=90,
                num_examples=1200,
            ),
        ),
    ],
    needed={"min_sep": 2},
    mechanisms=[
        (BMinSep(min_sep=4, sampling_prob=0.1, steps=12), 1.0),
        (BMinSep(min_sep=2, sampling_prob=0.2, steps=30, warm_start=False), 2.0),
        (BMinSep(min_sep=2, sampling_prob=0.2, steps=8, truncated_batch_size=6, num_examples=20), 2.0),
    ],
    runs=RUNS,
    broken=[
        Broken(RUNS[0], [[3], [5], [3]], "min_separation", 2),
    ],
)
