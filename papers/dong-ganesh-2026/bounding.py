"""Appendix C: contribution bounding with duplicates, batches for runs without amplification, the rule ``b p k_e < 1``.

The algorithms are those of Ganesh et al. (2025) as this paper describes them: examples in random order, each kept while
its users have room. They look at the attribution alone, which is public, so they cost no privacy.
"""

from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from hockeystick.errors import InvalidInputError
from hockeystick.reproduction.papers import Check, Output
from hockeystick.samplers.attribution import Attribution

Indices = NDArray[np.int64]
SEED = 20250303
USERS, EXAMPLES, STEPS, BATCH = 20_000, 15_000, 200, 30
"""Of the synthetic graph: papers of 2 to 6 authors whose numbers of papers have a heavy tail."""


def synthetic(rng: np.random.Generator, users: int = USERS, examples: int = EXAMPLES) -> Attribution:
    """A random graph in which every example has 2 to 6 users, and some users have many examples."""
    weights = rng.pareto(1.5, users) + 0.1
    places = np.cumsum(weights) / weights.sum()
    rows = [np.unique(np.searchsorted(places, rng.random(rng.integers(2, 7)))) for _ in range(examples)]
    present, of_user = np.unique(np.concatenate(rows), return_inverse=True)
    of_example = np.repeat(np.arange(examples), [row.size for row in rows])
    return Attribution.from_pairs(of_user, of_example, num_users=present.size)


def neighbourhoods(graph: Attribution) -> Indices:
    """``|N(e)|``: how many examples share a user with each example, itself included."""
    users, starts = graph.of_examples(np.arange(graph.num_examples))
    ends = np.append(starts[1:], users.size)
    by_user: list[list[int]] = [[] for _ in range(graph.num_users)]
    for example, (start, end) in enumerate(zip(starts, ends, strict=True)):
        for user in users[start:end]:
            by_user[user].append(example)
    return np.array(
        [
            len(set().union(*(by_user[user] for user in users[start:end])))
            for start, end in zip(starts, ends, strict=True)
        ]
    )


def bounded(
    graph: Attribution, per_user: int, rng: np.random.Generator, *, duplicates: bool = False, most_sharing: int = 0
) -> Indices:
    """Examples, repeated if ``duplicates``, such that every user has at most ``per_user`` of them, repeats counted.

    Args:
        most_sharing: k_e, the most examples of a neighbourhood; larger ones are left out first. 0 for no limit.

    With duplicates the random order is gone through again until nothing can be added.
    """
    if per_user < 1:
        raise InvalidInputError(f"The 'per_user' argument must be at least 1. Got {per_user!r} instead.")
    order = rng.permutation(graph.num_examples)
    if most_sharing:
        order = order[neighbourhoods(graph)[order] <= most_sharing]
    users, starts = graph.of_examples(np.arange(graph.num_examples))
    rows = np.split(users, starts[1:])
    used, kept = np.zeros(graph.num_users, dtype=np.int64), []
    while order.size:
        added = []
        for example in order:
            if used[rows[example]].max() < per_user:
                used[rows[example]] += 1
                added.append(example)
        kept += added
        if not duplicates:
            break
        order = np.array(added, dtype=np.int64)
    return np.array(kept, dtype=np.int64)


def formed(
    graph: Attribution, steps: int, batch_size: int, min_sep: int, most: int, rng: np.random.Generator
) -> list[Indices] | None:
    """Batches in which no user takes part twice within ``min_sep`` steps, nor more than ``most`` times in all.

    Each takes the examples that were used least so far, in random order. None where one cannot be filled, which a
    better choice may avoid.
    """
    users, starts = graph.of_examples(np.arange(graph.num_examples))
    rows = np.split(users, starts[1:])
    last, count = np.full(graph.num_users, -min_sep), np.zeros(graph.num_users, dtype=np.int64)
    uses, batches = np.zeros(graph.num_examples, dtype=np.int64), []
    for step in range(steps):
        free = (last <= step - min_sep) & (count < most)
        possible = np.flatnonzero(np.minimum.reduceat(free[users].astype(np.int8), starts))
        order = possible[np.lexsort((rng.random(possible.size), uses[possible]))]
        batch: list[int] = []
        for example in order:
            if len(batch) == batch_size:
                break
            if free[rows[example]].all():
                free[rows[example]] = False
                batch.append(int(example))
        if len(batch) < batch_size:
            return None
        chosen = np.array(batch, dtype=np.int64)
        uses[chosen] += 1
        involved = graph.of_examples(np.sort(chosen))[0]
        last[involved] = step
        count[involved] += 1
        batches.append(chosen)
    return batches


def bounding(output: Output, users: int = USERS, examples: int = EXAMPLES, steps: int = STEPS) -> None:
    """How much is kept, and how far apart batches can be, on a synthetic graph."""
    rng = np.random.default_rng(SEED)
    graph, rows = synthetic(rng, users, examples), []
    for per_user in (1, 2, 5):
        for sharing in (0, 10, 5):
            for duplicates in (False, True):
                output.deadline.tick()
                kept = bounded(graph, per_user, rng, duplicates=duplicates, most_sharing=sharing)
                rows.append([per_user, sharing or "", duplicates, np.unique(kept).size, kept.size])
    header = ["examples_per_user", "most_sharing", "duplicates", "different_examples", "examples"]
    output.table("bounding", header, rows)
    of_batches = []
    for min_sep in (8, 16, 32, 64, 128):
        output.deadline.tick()
        least = next((most for most in range(1, 9) if formed(graph, steps, BATCH, min_sep, most, rng) is not None), "")
        of_batches.append([min_sep, least])
    output.table("batch-formation", ["min_sep", "least_participations"], of_batches)
    output.lines.append(f"a synthetic graph: {graph.num_examples} examples of {graph.num_users} users")
    output.lines += [" ".join(map(str, row)) for row in (header, *rows)]
    output.lines += [
        f"batches of {BATCH} for {steps} steps, {min_sep} apart: at least {least or 'more than 8'} participations"
        for min_sep, least in of_batches
    ]


# --- the rule of thumb ------------------------------------------------------------------------------------------------


def gain(prob: float, min_sep: int, users: int) -> float:
    """What the shared example of Appendix C's toy graph adds to the expected batch of Algorithm 3, exactly.

    ``users`` users have an example each, and one example belongs to all. An example is in a batch when it is sampled
    and nothing that shares a user with it was sampled in the ``min_sep - 1`` steps before.
    """
    idle = (1.0 - prob) ** (min_sep - 1)
    without = users * prob * idle
    return users * prob * idle**2 + prob * idle ** (users + 1) - without


def crossing(prob: float, users: int) -> float:
    """``b p k_e`` at which the shared example stops to pay, for real b."""

    def at(log_sep: float) -> float:
        exponent = np.exp(log_sep) * np.log1p(-prob)
        return float(users * np.expm1(exponent) + np.exp(users * exponent))

    separated = 1.0 + float(np.exp(brentq(at, log(1e-9), log(1e9))))
    return separated * prob * (users + 1)


def bounding_checks() -> list[Check]:
    """The rule ``b p k_e < 1`` against the exact rates of Algorithm 3."""
    product = crossing(1e-5, 1000)
    note = "the shared example is itself kept out by the others; x e^x = 1 at 0.567 is the threshold for small p"
    what = "Appendix C: largest b p k_e at which a shared example adds to the batch, Algorithm 3, p=1e-5, 1000 users"
    return [Check(what, "~", 1.0, product, abs(product - 1.0) < 0.05, note)]
