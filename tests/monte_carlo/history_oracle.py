"""Histories of participations by enumeration: their chances, and the ratio as a sum over them."""

from itertools import product
from math import comb, sqrt

import numpy as np

from hockeystick.monte_carlo.confidence import betting_lower, betting_upper
from hockeystick.monte_carlo.histories.columns import Columns
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.types import Side

FAILURE = 1e-9
"""Of each interval; there are some fifty of them, so all tests together fail by chance with probability 2e-7."""


def whole_of(own: Columns) -> np.ndarray:
    """The columns in full, shape (rows, opportunities)."""
    whole = np.zeros((own.steps, own.steps))
    for u in range(own.steps):
        column = own.columns[min(u, own.columns.shape[0] - 1)]
        whole[u:, u][: column.size] = column[: own.steps - u]
    return whole


def histories(own: Columns) -> np.ndarray:
    """All numbers of participations at the opportunities."""
    return np.array(list(product(range(own.coins + 1), repeat=own.steps)), dtype=float)


def chances_of(own: Columns, chosen: np.ndarray) -> np.ndarray:
    """Every opportunity has so many coins; or who takes part waits."""
    if own.min_sep > 1:
        return np.array([waiting_chance(own, one) for one in chosen])
    taken = chosen.sum(axis=1)
    ways = np.prod(np.array([comb(own.coins, number) for number in range(own.coins + 1)])[chosen.astype(int)], axis=1)
    return ways * own.prob**taken * (1.0 - own.prob) ** (own.coins * chosen.shape[1] - taken)


def waiting_chance(own: Columns, chosen: np.ndarray) -> float:
    """The chance that the opportunities taken are these, coin by coin, for every first opportunity that is free."""
    starts = [1.0] if not own.warm_start else [1.0, *[own.prob] * (own.min_sep - 1)]
    total = 0.0
    for first, weight in enumerate(starts):
        chance, free = weight / sum(starts), first
        for u, taken in enumerate(chosen):
            if taken:
                chance *= own.prob if u >= free else 0.0
                free = u + own.min_sep
            elif u >= free:
                chance *= 1.0 - own.prob
        total += chance
    return total


def among(own: Columns, chosen: np.ndarray) -> np.ndarray:
    """What the participations at one opportunity take off each other's exponents."""
    return 0.5 * (chosen * (chosen - 1.0)) @ own.couplings[:, 0]


def limited(own: Columns, block: int, limit: int) -> np.ndarray:
    """All with at most ``limit`` participations in each block."""
    chosen = histories(own)
    starts = np.arange(0, chosen.shape[1], block)
    return chosen[(np.add.reduceat(chosen, starts, axis=1) <= limit).all(axis=1)]


def ratio(own: Columns, y: np.ndarray, chosen: np.ndarray | None = None) -> float:
    """X, or X_A, by the sum over all histories."""
    if chosen is None:
        chosen = histories(own)
    means = chosen @ whole_of(own).T
    return float(np.exp(means @ y - 0.5 * np.square(means).sum(axis=1)) @ chances_of(own, chosen))


def interval(proposal: Proposal, epsilon: float, samples: int, seed: int) -> tuple[float, float]:
    """Bounds on the mean of Y that fail with probability FAILURE each; checks Y <= M."""
    log_weights, losses = np.empty(samples), np.empty(samples)
    proposal.draw(np.random.default_rng(seed), log_weights, losses)
    largest = proposal.drawn_bound(Side.UPPER, epsilon)
    values = -np.exp(log_weights) * np.expm1(np.minimum(epsilon - losses, 0.0))
    assert values.max() <= largest * (1.0 + 1e-9)
    spread = sqrt(max(float(np.square(values).mean()), 1e-300))
    up = min(0.9 / largest, sqrt(2.0 * 20.0 / samples) / spread)
    down = sqrt(2.0 * 20.0 / samples) / spread
    return (
        betting_lower(samples, float(np.log1p(down * values).sum()), down, FAILURE),
        betting_upper(samples, float(np.log1p(-up * values).sum()), up, FAILURE),
    )


def assert_same(one: Proposal, copy: Proposal) -> None:
    """The copy draws the same samples and proves the same largest weight."""
    drawn = []
    for each in (one, copy):
        log_weights, losses = np.empty(64), np.empty(64)
        each.draw(np.random.default_rng(8), log_weights, losses)
        drawn.append(np.concatenate([log_weights, losses]))
    np.testing.assert_array_equal(*drawn)
    assert copy.weight_bound(0.1) == one.weight_bound(0.1)
    assert 0.0 < copy.loss_error < 1e-4
