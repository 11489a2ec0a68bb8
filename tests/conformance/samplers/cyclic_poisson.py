"""Samplers of the kind ``cyclic_poisson``: groups that take turns."""

import math
from collections.abc import Iterable
from itertools import combinations, product

import numpy as np
from sampler_laws import Batches, Broken, Declaration, Law, independent_examples

from hockeystick.samplers import CyclicPoisson


def cyclic_patterns(sampler: CyclicPoisson, group: int) -> dict[tuple[int, ...], float]:
    """The steps of one example of a group: any of those at which the group has its turn."""
    q, turns = sampler.sampling_prob, [t for t in range(sampler.steps) if t % sampler.groups == group]
    return {
        taken: q**size * (1 - q) ** (len(turns) - size)
        for size in range(len(turns) + 1)
        for taken in combinations(turns, size)
    }


def cyclic_poisson_law(sampler: CyclicPoisson, num_examples: int) -> Law:
    groups = [cyclic_patterns(sampler, group) for group in range(sampler.groups)]
    if sampler.partition == "equal":
        of_examples = [groups[example % sampler.groups] for example in range(num_examples)]
        return {
            run: math.prod(law[steps] for law, steps in zip(of_examples, run, strict=True))
            for run in product(*of_examples)
        }
    anywhere: dict[tuple[int, ...], float] = {}
    for patterns in groups:
        for steps, chance in patterns.items():
            anywhere[steps] = anywhere.get(steps, 0.0) + chance / sampler.groups
    return independent_examples(anywhere, num_examples)


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


def replayed_cyclic(rng: np.random.Generator) -> Batches:
    """The batches of the first round are used again in the second."""
    batches = list(cyclic(rng, [0, 1, 0], 2))
    yield from batches + batches


def balanced_cyclic(rng: np.random.Generator) -> Batches:
    """Groups of the same size passed off as independent ones."""
    return cyclic(rng, rng.permutation([0, 1]), 4)


def regrouped_cyclic(rng: np.random.Generator) -> Batches:
    """New groups in every round."""
    for _ in range(2):
        yield from cyclic(rng, rng.integers(2, size=2), 2)


CYCLIC = CyclicPoisson(groups=2, sampling_prob=0.5, steps=4)
INDEPENDENT_GROUPS = CyclicPoisson(groups=2, sampling_prob=0.5, steps=4, partition="independent")
RUNS = [
    CyclicPoisson(groups=3, sampling_prob=0.5, steps=12),
    CyclicPoisson(groups=3, sampling_prob=0.5, steps=12, partition="independent"),
]

DECLARATION = Declaration(
    cases=[
        (CyclicPoisson(groups=2, sampling_prob=0.4, steps=5), 3),
        (CyclicPoisson(groups=3, sampling_prob=0.7, steps=4), 4),
        (CyclicPoisson(groups=3, sampling_prob=0.5, steps=2), 3),
        (CyclicPoisson(groups=2, sampling_prob=1.0, steps=3), 4),
        (CyclicPoisson(groups=2, sampling_prob=0.4, steps=4, partition="independent"), 3),
        (CyclicPoisson(groups=3, sampling_prob=0.6, steps=5, partition="independent"), 2),
        (CyclicPoisson(groups=2, sampling_prob=1.0, steps=4, partition="independent"), 3),
        (CyclicPoisson(groups=4, sampling_prob=0.5, steps=2, partition="independent"), 2),
    ],
    law=cyclic_poisson_law,
    wrong=[
        (uncyclic_poisson, CYCLIC, 3),
        (late_cyclic, CYCLIC, 3),
        (shuffled_cyclic, CYCLIC, 3),
        (replayed_cyclic, CYCLIC, 3),
        (balanced_cyclic, INDEPENDENT_GROUPS, 2),
        (regrouped_cyclic, INDEPENDENT_GROUPS, 2),
    ],
    plans=[
        ({"groups": 4}, CyclicPoisson(groups=4, sampling_prob=0.2, steps=80)),
        (
            {"groups": 20, "partition": "independent"},
            CyclicPoisson(groups=20, sampling_prob=1.0, steps=80, partition="independent"),
        ),
    ],
    needed={"groups": 2},
    mechanisms=[
        (CyclicPoisson(groups=3, sampling_prob=0.3, steps=10), 1.0),
    ],
    runs=RUNS,
    broken=[
        Broken(RUNS[0], [[0, 3], [1], [2, 4]], "one_group_an_example", 2),
        Broken(RUNS[1], [[4], [1], [2], [4], [4]], "one_group_an_example", 4),
    ],
)
