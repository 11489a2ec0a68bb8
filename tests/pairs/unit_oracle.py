"""All that can happen to the k examples of a user in a few steps, by brute force, and the hockey sticks of it.

Nothing here comes from the library: visits are enumerated from the description of each sampler, and hockey sticks are
sums over a grid of all outputs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, permutations, product
from math import exp, prod

import numpy as np

Visits = tuple[tuple[int, ...], ...]
"""The steps of each example, in their order."""
Outcomes = list[tuple[float, Visits]]
Mixture = list[tuple[float, tuple[float, ...]]]
"""Probabilities and means of Gaussians with the same noise in every coordinate."""

EPSILONS = (0.0, 0.4, 1.0, 2.0)
GRID_ERROR = {1: 1e-3, 2: 2e-3, 3: 2e-3, 4: 6e-3}
"""Of a sum over the grid, by the number of rows: test_the_oracle_itself measures it against a closed form."""


BLOCK = 20_000
"""Points of the grid that are summed at a time."""


def independently(law: Sequence[tuple[float, tuple[int, ...]]], examples: int) -> Outcomes:
    """Every example for itself."""
    return [(prod(p for p, _ in each), tuple(steps for _, steps in each)) for each in product(law, repeat=examples)]


def coins(steps: Iterable[int], prob: float) -> list[tuple[float, tuple[int, ...]]]:
    """Each of the steps with this chance."""
    places = list(steps)
    return [
        (prob ** len(taken) * (1.0 - prob) ** (len(places) - len(taken)), taken)
        for size in range(len(places) + 1)
        for taken in combinations(places, size)
    ]


def allocations(bins: int, picks: int, epochs: int) -> list[tuple[float, tuple[int, ...]]]:
    """``picks`` of the steps of every epoch, afresh."""
    sets = list(combinations(range(bins), picks))
    runs = product(sets, repeat=epochs)
    return [(len(sets) ** -epochs, tuple(e * bins + i for e, taken in enumerate(run) for i in taken)) for run in runs]


def replayed(bins: int, epochs: int) -> list[tuple[float, tuple[int, ...]]]:
    """One bin, visited in every epoch."""
    return [(1.0 / bins, tuple(e * bins + i for e in range(epochs))) for i in range(bins)]


def renewals(steps: int, gap: int, prob: float, warm: bool) -> list[tuple[float, tuple[int, ...]]]:
    """A coin at every step at which the example has waited long enough."""

    def runs(step: int, free_from: int) -> Iterator[tuple[float, tuple[int, ...]]]:
        if step == steps:
            yield 1.0, ()
            return
        if step < free_from:
            yield from runs(step + 1, free_from)
            return
        yield from ((p * (1.0 - prob), rest) for p, rest in runs(step + 1, free_from))
        yield from ((p * prob, (step, *rest)) for p, rest in runs(step + 1, step + gap))

    starts = [(1.0, 0)]
    if warm:
        whole = 1.0 + (gap - 1) * prob
        starts = [(1.0 / whole, 0), *((prob / whole, late) for late in range(1, gap))]
    return [(weight * p, visits) for weight, late in starts for p, visits in runs(0, late)]


def attributed(examples: int, steps: int, gap: int, prob: float) -> Outcomes:
    """Coins for every example and step; all examples of the user are kept out while one was sampled too lately."""
    outcomes = []
    for sampled in product(product((False, True), repeat=examples), repeat=steps):
        count = sum(map(sum, sampled))
        visits: list[list[int]] = [[] for _ in range(examples)]
        last = -gap
        for step, coins_of in enumerate(sampled):
            if any(coins_of):
                if last <= step - gap:
                    for example, taken in enumerate(coins_of):
                        visits[example] += [step] * taken
                last = step
        chance = prob**count * (1.0 - prob) ** (examples * steps - count)
        outcomes.append((chance, tuple(tuple(of_example) for of_example in visits)))
    return outcomes


def deals(examples: int, batch_size: int, bins: int, epochs: int) -> Outcomes:
    """Fresh permutations of all places, ``batch_size`` to a batch."""
    orders = list(permutations(range(batch_size * bins), examples))
    return [
        (
            len(orders) ** -epochs,
            tuple(
                tuple(e * bins + run[e][example] // batch_size for e in range(epochs)) for example in range(examples)
            ),
        )
        for run in product(orders, repeat=epochs)
    ]


def mixture(outcomes: Outcomes, matrix: np.ndarray, gradients: np.ndarray, others: float = 0.0) -> Mixture:
    """The law of the outputs if example e contributes ``gradients[e, t]`` at step t.

    Args:
        others: what every visit of the user takes away from what the other examples contribute, as in batches of a
            fixed size.
    """
    chances: dict[tuple[float, ...], float] = defaultdict(float)
    for probability, visits in outcomes:
        x = np.zeros(matrix.shape[1])
        for example, steps in enumerate(visits):
            for step in steps:
                x[step] += gradients[example, step] + others
        chances[tuple((matrix @ x).tolist())] += probability
    return [(probability, mean) for mean, probability in chances.items()]


def deltas(p: Mixture, q: Mixture, sigma: float) -> np.ndarray:
    """(remove, add) at all EPSILONS, shape (2, epsilons): sums over a grid."""
    rows = len(p[0][1])
    means = np.array([mean for _, mean in [*p, *q]]) / sigma
    half = {1: 2000, 2: 200, 3: 45, 4: 19}[rows]
    axes = [np.linspace(means[:, t].min() - 6.0, means[:, t].max() + 6.0, 2 * half + 1) for t in range(rows)]

    def factors(law: Mixture) -> tuple[np.ndarray, np.ndarray]:
        """Two matrices, shapes (points of the first axes, means) and (points of the others, means)."""
        weights = np.array([probability for probability, _ in law])
        centres = np.array([mean for _, mean in law]) / sigma
        first, second = weights[None, :], np.ones((1, len(law)))
        for t, axis in enumerate(axes):
            factor = np.exp(-0.5 * (axis[:, None] - centres[None, :, t]) ** 2) / np.sqrt(2.0 * np.pi)
            if 2 * t < rows:
                first = (first[:, None, :] * factor[None, :, :]).reshape(-1, len(law))
            else:
                second = (second[:, None, :] * factor[None, :, :]).reshape(-1, len(law))
        return first, np.ascontiguousarray(second.T)

    cell = prod(float(axis[1] - axis[0]) for axis in axes)
    (first_p, second_p), (first_q, second_q) = factors(p), factors(q)
    totals = np.zeros((2, len(EPSILONS)))
    block = max(BLOCK // second_p.shape[1], 1)
    for start in range(0, len(first_p), block):  # so many points that their densities stay in the cache
        with_user = first_p[start : start + block] @ second_p
        without = first_q[start : start + block] @ second_q
        for place, epsilon in enumerate(EPSILONS):
            totals[0, place] += np.maximum(with_user - exp(epsilon) * without, 0.0).sum()
            totals[1, place] += np.maximum(without - exp(epsilon) * with_user, 0.0).sum()
    return totals * cell


def nobody(matrix: np.ndarray) -> Mixture:
    """The outputs without any contribution."""
    return [(1.0, (0.0,) * matrix.shape[0])]
