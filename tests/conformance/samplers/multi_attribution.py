"""Samplers of the kind ``multi_attribution``: coins, and a rest for all examples of a user."""

from itertools import combinations, pairwise, product

import numpy as np
from sampler_laws import Batches, Broken, Declaration, Law, runs_of_batches

from hockeystick.samplers import Attribution, MultiAttribution


def multi_attribution_law(sampler: MultiAttribution, num_examples: int, attribution: Attribution | None = None) -> Law:
    """All coins of all steps, and the batches that they make, as in the paper's Algorithms 3 and 4."""
    users = [{e} for e in range(num_examples)]
    if attribution is not None:
        users = [set(attribution.users[start:end].tolist()) for start, end in pairwise(attribution.offsets.tolist())]
    q, total = sampler.sampling_prob, sampler.warm_up_steps + sampler.steps
    subsets = [set(chosen) for k in range(num_examples + 1) for chosen in combinations(range(num_examples), k)]
    law: Law = {}
    for sampled in product(subsets, repeat=total):
        batches: list[set[int]] = []
        for t in range(total):
            blocking = (sampled if sampler.exclusion == "sampled" else batches)[max(0, t - sampler.min_sep + 1) : t]
            if sampler.exclusion == "example":  # whose distance is its own
                batches.append({e for e in sampled[t] if not any(e in batch for batch in blocking)})
                continue
            hit = {user for examples in blocking for e in examples for user in users[e]}
            batches.append({e for e in sampled[t] if not users[e] & hit})
        coins = sum(map(len, sampled))
        run = runs_of_batches(batches[sampler.warm_up_steps :], num_examples)
        law[run] = law.get(run, 0.0) + q**coins * (1 - q) ** (num_examples * total - coins)
    return law


def exclusion_by_batches(rng: np.random.Generator) -> Batches:
    """The batches, not the sampled examples, keep a user out."""
    other = MultiAttribution(min_sep=2, sampling_prob=0.4, steps=3, examples_per_user=1, exclusion="participating")
    yield from other.batches(2, rng)


EXCLUDING = MultiAttribution(min_sep=2, sampling_prob=0.4, steps=3, examples_per_user=1)
RUNS = [
    MultiAttribution(min_sep=3, sampling_prob=0.2, steps=12, examples_per_user=1),
]

DECLARATION = Declaration(
    cases=[
        (MultiAttribution(min_sep=2, sampling_prob=0.4, steps=3, examples_per_user=1), 2),
        (MultiAttribution(min_sep=3, sampling_prob=0.3, steps=2, examples_per_user=1, warm_up_steps=1), 2),
        (MultiAttribution(min_sep=1, sampling_prob=1.0, steps=2, examples_per_user=1), 3),
        (MultiAttribution(min_sep=2, sampling_prob=0.4, steps=3, examples_per_user=1, exclusion="example"), 2),
        (MultiAttribution(min_sep=3, sampling_prob=0.5, steps=3, examples_per_user=1, exclusion="participating"), 2),
    ],
    law=multi_attribution_law,
    wrong=[
        (exclusion_by_batches, EXCLUDING, 2),
    ],
    plans=[
        (
            {"min_sep": 4, "examples_per_user": 1, "warm_up_steps": 3},
            MultiAttribution(min_sep=4, sampling_prob=0.05, steps=80, examples_per_user=1, warm_up_steps=3),
        ),
    ],
    needed={"min_sep": 2, "examples_per_user": 1},
    mechanisms=[
        (MultiAttribution(min_sep=3, sampling_prob=0.05, steps=9, examples_per_user=1), 1.5),
        (MultiAttribution(min_sep=3, sampling_prob=0.05, steps=9, examples_per_user=2), 3.0),
        (MultiAttribution(min_sep=3, sampling_prob=0.05, steps=9, examples_per_user=2, users_per_example=2), 3.0),
    ],
    runs=RUNS,
    broken=[
        Broken(RUNS[0], [[3], [5], [3]], "min_separation", 2),
    ],
)
