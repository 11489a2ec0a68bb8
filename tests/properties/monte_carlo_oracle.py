"""True profiles of small mechanisms, from the definition of what a run does: slow, obvious, and with an error estimate.

A run outputs ``C g + noise``, g the vector of the sums of gradients that its batches have. Here every example has one
gradient, a number from -1 to 1, at all steps. What comes out is the profile for one pair of neighbours, a lower bound
on that of the worst; for one example among others of gradient 0, that are not in its way, it is the worst (C is
non-negative). Every way in which the batches may come out is listed with its probability.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from math import comb, exp, inf

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri
from scipy.stats import qmc

import hockeystick as hs
from hockeystick.types import Direction

Array = NDArray[np.float64]
Law = Mapping[tuple[float, ...], float]
"""Vectors, one number a step, and their probabilities."""

MARGIN = 9.0
"""Standard deviations around all means that the grid covers: what is outside has a probability below 1e-17."""
POINTS = 400
"""Of the grid in each of two dimensions, at most."""
SCRAMBLES, POWER = 16, 10
"""Independent scramblings of a Sobol net of 2^POWER points."""
REACHES = (0.0, 0.5, 1.0, 2.0)
"""How much further from the other side than they are the components are moved, for some of the points of the nets."""
EFFECTIVE = 500.0
"""Effective number of points below which the nets do not know how wrong they are."""
WIDE = 12.0
"""Standard errors of SCRAMBLES values: a t variable of 15 degrees of freedom is beyond with probability 4e-9."""


@dataclass(frozen=True)
class Truth:
    """A profile at one epsilon, and how far it may be off."""

    value: float
    error: float


def participations(sampler: hs.BallsInBins | hs.Poisson | hs.BMinSep | hs.RandomAllocation) -> Law:
    """In which steps one example is taken (before any batch is cut)."""
    law: dict[tuple[float, ...], float] = defaultdict(float)
    steps = sampler.steps
    if isinstance(sampler, hs.BallsInBins):
        for mine in range(sampler.bins):
            law[tuple(float(t % sampler.bins == mine) for t in range(steps))] += 1.0 / sampler.bins
    elif isinstance(sampler, hs.RandomAllocation):
        sets = list(combinations(range(sampler.bins), sampler.participations))
        for chosen in product(sets, repeat=sampler.epochs):
            vector = tuple(float(t in mine) for mine in chosen for t in range(sampler.bins))
            law[vector] += len(sets) ** -float(sampler.epochs)
    elif isinstance(sampler, hs.Poisson):
        p = sampler.sampling_prob
        for vector in product((0.0, 1.0), repeat=steps):
            law[vector] += p ** sum(vector) * (1.0 - p) ** (steps - sum(vector))
    else:
        b, rate = sampler.min_sep, sampler.sampling_prob
        q = rate / (1.0 - rate * (b - 1))
        starts = [1.0] if not sampler.warm_start else [1.0 - (b - 1) * rate] + [rate] * (b - 1)
        for first, chance in enumerate(starts):
            for vector, weight in _renewals(steps, first, b, q):
                law[vector] += chance * weight
    return dict(law)


def turns(sampler: hs.CyclicPoisson, group: int) -> Law:
    """In which steps an example of a group is taken."""
    law: dict[tuple[float, ...], float] = {}
    mine, p = range(group, sampler.steps, sampler.groups), sampler.sampling_prob
    for taken in product((0.0, 1.0), repeat=len(mine)):
        vector = [0.0] * sampler.steps
        for step, coin in zip(mine, taken, strict=True):
            vector[step] = coin
        law[tuple(vector)] = p ** sum(taken) * (1.0 - p) ** (len(mine) - sum(taken))
    return law


def _renewals(steps: int, available: int, b: int, q: float) -> Iterator[tuple[tuple[float, ...], float]]:
    """All ways to flip a coin at every step at which the example is available."""
    if available >= steps:
        yield (0.0,) * steps, 1.0
        return
    for vector, weight in _renewals(steps, available + 1, b, q):
        yield vector, weight * (1.0 - q)
    for vector, weight in _renewals(steps, available + b, b, q):
        yield (*vector[:available], 1.0, *vector[available + 1 :]), weight * q


def user_participations(sampler: hs.MultiAttribution, examples: int) -> Law:
    """How many of the examples of one user, which nobody shares, are in each batch: all coins are listed."""
    q, b, wait = sampler.sampling_prob, sampler.min_sep, sampler.warm_up_steps
    law: dict[tuple[float, ...], float] = defaultdict(float)
    for counts in product(range(examples + 1), repeat=wait + sampler.steps):
        weight, last, batches = 1.0, -b, []
        for step, count in enumerate(counts):
            weight *= comb(examples, count) * q**count * (1.0 - q) ** (examples - count)
            batches.append(float(count) if step - last >= b else 0.0)
            if count and (sampler.exclusion == "sampled" or step - last >= b):
                last = step
        law[tuple(batches[wait:])] += weight
    return dict(law)


def cut_batches(taken: Law, others: int, cap: int, mine: float, theirs: float) -> Law:
    """Sums of the gradients in batches that are cut to ``cap`` examples at random: one has ``mine``, others ``theirs``.

    All examples are taken by the same law, independently of one another.
    """
    law: dict[tuple[float, ...], float] = defaultdict(float)
    crowd: Law = {(0.0,) * len(next(iter(taken))): 1.0}
    for _ in range(others):
        crowd = sums(crowd, taken)
    for (own, chance), (count, weight) in product(taken.items(), crowd.items()):
        steps = [_one_batch(int(x), int(r), cap, mine, theirs) for x, r in zip(own, count, strict=True)]
        for outcome in product(*(step.items() for step in steps)):
            law[tuple(value for value, _ in outcome)] += chance * weight * float(np.prod([c for _, c in outcome]))
    return dict(law)


def _one_batch(taken: int, others: int, cap: int, mine: float, theirs: float) -> dict[float, float]:
    if taken + others <= cap:
        return {taken * mine + others * theirs: 1.0}
    kept = taken * cap / (others + 1.0)
    outcomes: dict[float, float] = defaultdict(float)
    outcomes[mine + (cap - 1) * theirs] += kept
    outcomes[cap * theirs] += 1.0 - kept
    return {value: chance for value, chance in outcomes.items() if chance > 0.0}


def sums(first_law: Law, second_law: Law) -> Law:
    """The law of the sum of two independent ones."""
    law: dict[tuple[float, ...], float] = defaultdict(float)
    for (a, p), (c, q) in product(first_law.items(), second_law.items()):
        law[tuple(x + y for x, y in zip(a, c, strict=True))] += p * q
    return law


def epoch_shuffle(bins: int) -> tuple[Law, Law]:
    """One epoch of shuffled batches of one: the example has gradient 1 or, as a ghost, 0; all others have -1."""
    there = {tuple(1.0 if t == mine else -1.0 for t in range(bins)): 1.0 / bins for mine in range(bins)}
    ghost = {tuple(0.0 if t == mine else -1.0 for t in range(bins)): 1.0 / bins for mine in range(bins)}
    return there, ghost


def absent(law: Law) -> Law:
    """The same run with the example's gradient at 0, all others being 0 too."""
    return {(0.0,) * len(next(iter(law))): 1.0}


def truth(matrix: Array, sigma: float, there: Law, ghost: Law, direction: Direction, epsilon: float) -> Truth:
    """``E (P - e^epsilon Q)_+`` of the outputs: P with the example, Q with its ghost; for add the reverse."""
    first, second = (there, ghost) if direction is Direction.REMOVE else (ghost, there)
    ours, weights = _components(matrix, sigma, first)
    others, other_weights = _components(matrix, sigma, second)
    origin = others[0].copy()
    ours, others = ours - origin, others - origin
    _, sizes, axes = np.linalg.svd(np.vstack([ours, others]), full_matrices=False)
    used = axes[sizes > 1e-12 * max(1.0, float(sizes[0]))]
    if len(used) == 0:
        return Truth(max(1.0 - exp(epsilon), 0.0), 1e-12)
    if len(used) == 1:  # one more direction, in which nothing happens, would do too; this is cheaper
        return _by_grid(ours @ used.T, weights, others @ used.T, other_weights, epsilon, 5001)
    if len(used) == 2:
        return _by_grid(ours @ used.T, weights, others @ used.T, other_weights, epsilon, POINTS)
    return _by_net(ours @ used.T, weights, others @ used.T, other_weights, epsilon)


def _components(matrix: Array, sigma: float, law: Law) -> tuple[Array, Array]:
    return np.array(list(law)) @ matrix.T / sigma, np.array(list(law.values()))


def _by_grid(ours: Array, weights: Array, others: Array, other_weights: Array, epsilon: float, points: int) -> Truth:
    """The trapezoidal rule on a grid; its error, from a kink at a random place, by those of its coarser parts."""
    lows, highs = ours.min(axis=0) - MARGIN, ours.max(axis=0) + MARGIN
    axes = [np.linspace(low, high, points | 1) for low, high in zip(lows, highs, strict=True)]
    sides = [_products(axes, means, mass) for means, mass in ((ours, weights), (others, other_weights))]
    excess = np.maximum(sides[0] - exp(epsilon) * sides[1], 0.0)
    volume = float(np.prod([axis[1] - axis[0] for axis in axes]))
    fine = float(excess.sum()) * volume
    off = 0.0
    for stride in (2, 3):
        for start in product(range(stride), repeat=len(axes)):
            part = excess[tuple(slice(begin, None, stride) for begin in start)]
            off = max(off, abs(float(part.sum()) * volume * stride ** len(axes) - fine))
    return Truth(fine, 2.0 * off + 1e-15)


def _products(axes: list[Array], means: Array, mass: Array) -> Array:
    """The density of a mixture of standard Gaussians on a grid: each component is a product."""
    factors = [np.exp(-0.5 * (axis[:, None] - means[:, i]) ** 2) / np.sqrt(2.0 * np.pi) for i, axis in enumerate(axes)]
    if len(factors) == 1:
        return np.asarray(factors[0] @ mass)
    return np.asarray((factors[0] * mass) @ factors[1].T)


def _by_net(ours: Array, weights: Array, others: Array, other_weights: Array, epsilon: float) -> Truth:
    """The mean of ``(P - e^epsilon Q)_+ / R`` under R on scrambled nets, whose results are independent.

    R mixes P with copies of it that are moved away from Q. Where hardly any point counts, nothing is known.
    """
    away = ours - other_weights @ others
    means = np.concatenate([ours + far * away for far in REACHES])
    mass = np.concatenate([weights] * len(REACHES)) / (weights.sum() * len(REACHES))
    nets, total, squares = [], 0.0, 0.0
    for seed in range(SCRAMBLES):
        points = qmc.Sobol(ours.shape[1] + 1, seed=seed).random_base2(POWER)
        which = np.minimum(np.searchsorted(np.cumsum(mass), points[:, 0], side="right"), len(means) - 1)
        outputs = means[which] + ndtri(np.clip(points[:, 1:], 1e-16, 1.0 - 1e-16))
        log_first = _log_density(outputs, ours, weights)
        loss = log_first - _log_density(outputs, others, other_weights)
        values = -np.exp(log_first - _log_density(outputs, means, mass)) * np.expm1(np.minimum(epsilon - loss, 0.0))
        nets.append(float(values.mean()))
        total, squares = total + float(values.sum()), squares + float(values @ values)
    if total * total < EFFECTIVE * squares or total == 0.0:
        return Truth(float(np.mean(nets)), inf)
    return Truth(float(np.mean(nets)), WIDE * float(np.std(nets, ddof=1)) / SCRAMBLES**0.5 + 1e-12)


def _log_density(outputs: Array, means: Array, weights: Array) -> Array:
    """Log-density of a mixture, but for a constant and ``-|y|^2/2``."""
    exponents = outputs @ means.T - 0.5 * np.square(means).sum(axis=1)
    return np.asarray(logsumexp(exponents, b=weights, axis=1))
