"""What the tests have to know of a kind of sampler, and what its slow, obvious law is made of."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from typing import Any

import numpy as np

from hockeystick.samplers import BatchSampler

# A run is one outcome: for each example the steps at which it takes part.
Run = tuple[tuple[int, ...], ...]
Law = dict[Run, float]
Batches = Iterator[Iterable[int]]
RUN_EXAMPLES = 24
"""The size of the dataset of ``runs``."""
DATA = {"num_examples": 1200, "batch_size": 60, "epochs": 4}
"""The ``[data]`` table of ``plans``."""


@dataclass(frozen=True)
class Broken:
    """Batches that a broken sampler could make in a recorded run, and the promise that they break at which step."""

    sampler: BatchSampler
    batches: Sequence[Iterable[int]]
    promise: str
    step: int


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What the tests have to know of a kind of sampler: a file of ``tests/conformance/samplers`` for each.

    Attributes:
        cases: samplers with a dataset so small that the law of a whole run can be enumerated.
        law: enumerates it, given a sampler and the number of examples.
        wrong: draws that pretend to be those of a sampler, the sampler, and the number of examples.
        plans: what a plan says beside the kind, and the sampler for ``DATA``; the first one has its rate from
            the first step on.
        needed: what every plan has to say beside the kind, of 8 examples in batches of 2 too.
        mechanisms: samplers with noise multipliers, for bounds without correlated noise.
        runs: samplers whose recorded runs, of ``RUN_EXAMPLES``, keep all promises.
        broken: each promise that is the scheme's own, broken in one of the ``runs``.
    """

    cases: Sequence[tuple[BatchSampler, int]]
    law: Callable[..., Law]
    wrong: Sequence[tuple[Callable[[np.random.Generator], Batches], BatchSampler, int]]
    plans: Sequence[tuple[Mapping[str, Any], BatchSampler]]
    mechanisms: Sequence[tuple[BatchSampler, float]]
    runs: Sequence[BatchSampler]
    broken: Sequence[Broken]
    needed: Mapping[str, Any] = field(default_factory=dict)


def independent_examples(patterns: dict[tuple[int, ...], float], num_examples: int) -> Law:
    """Every example draws its steps from the same law, independently."""
    return {run: math.prod(patterns[p] for p in run) for run in product(patterns, repeat=num_examples)}


def independent_blocks(block: Law, block_steps: int, blocks: int) -> Law:
    """The run repeats one law in every block of steps, independently."""
    law: Law = {}
    for parts in product(block.items(), repeat=blocks):
        run = tuple(
            tuple(chain.from_iterable((step + k * block_steps for step in steps) for k, steps in enumerate(example)))
            for example in zip(*(part for part, _ in parts), strict=True)
        )
        law[run] = math.prod(probability for _, probability in parts)
    return law


def runs_of_batches(batches: Iterable[Iterable[int]], num_examples: int) -> Run:
    """Turn batches (examples of each step) into an outcome (steps of each example)."""
    steps: list[list[int]] = [[] for _ in range(num_examples)]
    for step, batch in enumerate(batches):
        for example in batch:
            steps[example].append(step)
    return tuple(map(tuple, steps))


def batches_of_bins(bins_of: Iterable[Iterable[int]], bins: int) -> Batches:
    """Batches of one epoch from each example's bins."""
    members: list[list[int]] = [[] for _ in range(bins)]
    for example, chosen in enumerate(bins_of):
        for b in chosen:
            members[b].append(example)
    yield from members
