"""The exact law of a whole run of every registered sampler, enumerated for small sizes by slow, obvious code."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain, combinations, pairwise, permutations, product

from hockeystick.samplers import (
    Attribution,
    BallsInBins,
    BMinSep,
    CyclicPoisson,
    Deterministic,
    MultiAttribution,
    Poisson,
    RandomAllocation,
    Shuffle,
)

# A run is one outcome: for each example the steps at which it takes part.
Run = tuple[tuple[int, ...], ...]
Law = dict[Run, float]


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


def deterministic_law(sampler: Deterministic, num_examples: int) -> Law:
    size = sampler.batch_size or num_examples // sampler.bins
    epoch = [range(num_examples)[b * size : (b + 1) * size] for b in range(sampler.bins)]
    return {runs_of_batches(epoch * sampler.epochs, num_examples): 1.0}


def shuffle_law(sampler: Shuffle, num_examples: int) -> Law:
    orders = list(permutations(range(num_examples)))
    size = sampler.batch_size
    drawn = Counter(
        runs_of_batches([order[b * size : (b + 1) * size] for b in range(sampler.bins)], num_examples)
        for order in orders
    )
    epoch = {run: count / len(orders) for run, count in drawn.items()}
    return independent_blocks(epoch, sampler.bins, sampler.epochs)


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


def random_allocation_law(sampler: RandomAllocation, num_examples: int) -> Law:
    subsets = list(combinations(range(sampler.bins), sampler.participations))
    epoch = independent_examples(dict.fromkeys(subsets, 1 / len(subsets)), num_examples)
    return independent_blocks(epoch, sampler.bins, sampler.epochs)


def balls_in_bins_law(sampler: BallsInBins, num_examples: int) -> Law:
    patterns = {tuple(range(b, sampler.steps, sampler.bins)): 1 / sampler.bins for b in range(sampler.bins)}
    return independent_examples(patterns, num_examples)


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


LAWS: dict[str, Callable[..., Law]] = {
    "deterministic": deterministic_law,
    "shuffle": shuffle_law,
    "poisson": poisson_law,
    "random_allocation": random_allocation_law,
    "balls_in_bins": balls_in_bins_law,
    "b_min_sep": b_min_sep_law,
    "multi_attribution": multi_attribution_law,
    "cyclic_poisson": cyclic_poisson_law,
}
