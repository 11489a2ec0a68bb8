"""Histories of participations by enumeration: their chances, and the ratio as a sum over them."""

from itertools import product
from math import comb, sqrt

import numpy as np

from hockeystick.monte_carlo.confidence import betting_lower, betting_upper
from hockeystick.monte_carlo.far.columns import Columns
from hockeystick.monte_carlo.far.draws import Draws, fields_of, scratch_of
from hockeystick.monte_carlo.far.kernels import exponents, log_history, log_mean_field, products
from hockeystick.monte_carlo.far.limits import Limits
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
    return np.array(list(product(range(own.law.coins + 1), repeat=own.steps)), dtype=float)


def chances_of(own: Columns, chosen: np.ndarray) -> np.ndarray:
    """Every opportunity has so many coins; or who takes part waits; or there is one visit in each epoch."""
    if own.law.bins:
        return np.array([visiting_chance(own, history) for history in chosen])
    if own.law.min_sep > 1:
        return np.array([waiting_chance(own, history) for history in chosen])
    taken = chosen.sum(axis=1)
    ways = np.prod(
        np.array([comb(own.law.coins, number) for number in range(own.law.coins + 1)])[chosen.astype(int)], axis=1
    )
    return ways * own.law.prob**taken * (1.0 - own.law.prob) ** (own.law.coins * chosen.shape[1] - taken)


def visiting_chance(own: Columns, chosen: np.ndarray) -> float:
    """The chance of these visits: one in each epoch."""
    visits = chosen.reshape(-1, own.law.bins)
    return float(own.law.bins ** -len(visits)) if (visits.sum(axis=1) == 1.0).all() else 0.0


def waiting_chance(own: Columns, chosen: np.ndarray) -> float:
    """The chance that the opportunities taken are these, coin by coin, for every first opportunity that is free."""
    starts = [1.0] if not own.law.warm_start else [1.0, *[own.law.prob] * (own.law.min_sep - 1)]
    total = 0.0
    for first, weight in enumerate(starts):
        chance, free = weight / sum(starts), first
        for u, taken in enumerate(chosen):
            if taken:
                chance *= own.law.prob if u >= free else 0.0
                free = u + own.law.min_sep
            elif u >= free:
                chance *= 1.0 - own.law.prob
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


def exponents_of(own: Columns, y: np.ndarray) -> np.ndarray:
    """``z_u = <c_u, y> - |c_u|^2 / 2``."""
    z = np.empty(own.steps)
    exponents(own.columns, own.couplings, y, z)
    return z


def mean_field(own: Columns, z: np.ndarray) -> float:
    """The lower bound on log X."""
    edges = own.law.edges
    return float(log_mean_field(z, own.couplings, own.overlaps.kept, edges, fields_of(own.steps, edges)))


def drawn_histories(
    own: Columns, z: np.ndarray, limit: Limits, rng: np.random.Generator, times: int
) -> tuple[float, np.ndarray]:
    """``log X'_A``, and logarithms of so many estimates of ``X_A / X'_A``."""
    draws = Draws(limit.block, limit.most, np.ones(2), 0.5, 1)
    scratch, kept, edges, odds = (
        scratch_of(own.steps, own.law.edges, draws),
        own.overlaps.kept,
        own.law.edges,
        np.exp(z),
    )
    work = (scratch.table, scratch.units)
    whole = products(odds, kept, edges, limit.block, *work)
    logs = [log_history(rng, kept, edges, limit.block, work, odds.copy(), scratch.terms) for _ in range(times)]
    return float(whole), np.array(logs)


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


def assert_same(proposal: Proposal, copy: Proposal) -> None:
    """The copy draws the same samples and proves the same largest weight."""
    drawn = []
    for each in (proposal, copy):
        log_weights, losses = np.empty(64), np.empty(64)
        each.draw(np.random.default_rng(8), log_weights, losses)
        drawn.append(np.concatenate([log_weights, losses]))
    np.testing.assert_array_equal(*drawn)
    assert copy.weight_bound(0.1) == proposal.weight_bound(0.1)
    assert 0.0 < copy.loss_error < 1e-4
