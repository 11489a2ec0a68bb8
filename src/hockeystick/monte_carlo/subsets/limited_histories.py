"""Histories with few participations in a block of opportunities, and the chain of counts that dominates their weights.

Proof: docs/theory/monte-carlo/many-bands.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import inf, log, sqrt

import numpy as np

from hockeystick.monte_carlo.proposals import Array
from hockeystick.monte_carlo.subsets.chain_kernels import chain_table, largest_field
from hockeystick.monte_carlo.subsets.columns import Columns
from hockeystick.monte_carlo.subsets.count_kernels import log_chances
from hockeystick.monte_carlo.weight_bounds import log_factor

NODES = 256
"""For the field that earlier participations exert in the chain."""
DECAYS = (0.8, 0.87, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.997, 0.998)
MAX_ORDER = 16
BLOCKS = (16, 64, 256, 1024)
"""Opportunities of a block."""
TAILS = (1e-4, 1e-6, 1e-7, 1e-8, 1e-9, 1e-11, 1e-13, 1e-16, 1e-20)
"""Chances of a history with more participations in some block."""
WORTH = 3e-5
"""The chance of other histories that is charged, over M: a percent of a delta that is 300 times smaller than M."""
DEVIATIONS = 6.0
"""The room, in standard deviations of what rounding makes of the field, between fields that occur and the cap."""


@dataclass(frozen=True)
class Limits:
    """At most ``most`` participations, of all coins together, in each ``block`` opportunities, from the first on."""

    block: int
    most: int


def limits(own: Columns, tail: float) -> Limits:
    """Of all blocks those in which the largest field of such histories is smallest; others have at most this chance."""
    found = [Limits(block, fewest(own, block, tail)) for block in BLOCKS if block == BLOCKS[0] or block < 2 * own.steps]
    return min(found, key=lambda one: greatest_field(own, one))


@lru_cache(maxsize=256)
def fewest(own: Columns, block: int, tail: float) -> int:
    """The smallest number of participations that is exceeded in a block with at most the chance ``tail``."""
    most = 1
    while chance_of_others(own, Limits(block, most)) > tail:
        most += 1
    return most


def chance_of_others(own: Columns, limit: Limits) -> float:
    """At least the chance of more participations in some block: Binomial tails; never 0."""
    whole, rest = divmod(own.steps, limit.block)
    in_block, in_rest = (_tail(own.prob, steps * own.coins, limit.most) for steps in (limit.block, rest))
    total = whole * in_block + in_rest
    return max(total * (1.0 + 1e-9), 1e-300)


@lru_cache(maxsize=4096)
def _tail(prob: float, draws: int, most: int) -> float:
    return float(np.exp(log_chances(prob, draws, draws + 1)[most + 1 :]).sum()) if draws > most else 0.0


@lru_cache(maxsize=256)
def greatest_field(own: Columns, limit: Limits) -> float:
    """Largest ``sum_(u < v) x_u <c_u, c_v>`` of these histories, rounded up."""
    return float(largest_field(own.couplings, limit.block, limit.most, own.coins)) * (1.0 + 1e-9)


@dataclass(frozen=True, eq=False)
class Chain:
    """The chain of counts for a number of histories, each of which has the coins of an opportunity.

    Attributes:
        decay: of the field.
        arrays: what :func:`.chain_kernels.add_chain` takes.
        log_norm: log Z; infinite where doubles end.
        largest_log: of the terms that the table sums.
    """

    decay: float
    arrays: tuple[Array, ...]
    log_norm: float
    largest_log: float


@lru_cache(maxsize=4)
def chain_of(own: Columns, order: int, decay: float, limit: Limits) -> Chain:
    """Earlier participations exert at least their inner products: ``pull_u decay^e >= <c_u, c_(u+e)>`` at every lag."""
    lags = np.arange(1, own.couplings.shape[1])
    squares = np.ascontiguousarray(own.couplings[:, 0]) * (1.0 + 1e-9)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        needed = np.where(own.couplings[:, 1:] > 0.0, own.couplings[:, 1:] / decay**lags, 0.0)
    pulls = needed.max(axis=1, initial=0.0) * (1.0 + 1e-9)
    copies = order * own.coins
    chances = np.exp(log_chances(own.prob, copies, copies + 1))
    strongest = order * float(pulls.max()) * _longest(decay, limit, own.coins)
    room = DEVIATIONS / ((NODES - 1) * sqrt(1.0 - decay * decay))  # of the last node: gaps are at most 2 / (NODES - 1)
    last = max(1.001 * strongest / (1.0 - room), 1e-9)
    nodes = last * np.linspace(0.0, 1.0, NODES) ** 2
    deviation = room / DEVIATIONS * last
    cap = order * greatest_field(own, limit) + room * last
    rare = np.exp(-0.5 * DEVIATIONS**2)
    spare = rare * (deviation / DEVIATIONS + own.steps * cap)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        table, logs = chain_table(pulls, squares, chances, decay, nodes, cap, spare)
        pulled, norms = np.exp(np.minimum(nodes, cap) + spare), np.exp(logs)
    finite = bool(np.isfinite(table).all() and np.isfinite(norms).all())
    largest = copies * (cap + spare + copies * float(squares.max()) - log(own.prob)) + float(np.log(table.max()))
    arrays = (pulls, squares, chances, nodes, pulled, table, norms)
    return Chain(decay, arrays, float(logs.sum()) if finite else inf, largest if finite else inf)


def _longest(decay: float, limit: Limits, coins: int) -> float:
    """At least ``sum_(u < v) decay^(v-u) x_u`` for these histories, whatever v and however many blocks there are."""
    powers = np.cumsum(decay ** (1 + np.arange(limit.most) // coins))
    before = powers[-1] / (1.0 - decay**limit.block)  # of full blocks, each with its last opportunities
    opportunities = np.arange(min(-(-limit.most // coins), limit.block) + 1)  # of the block that v is in
    inside = np.concatenate([[0.0], powers])[np.minimum(opportunities * coins, limit.most)]
    return float((inside + decay**opportunities * before).max()) * (1.0 + 1e-9)


@lru_cache(maxsize=4096)
def log_norm(own: Columns, order: int, decay: float, limit: Limits) -> float:
    """log Z of the chain."""
    return chain_of(own, order, decay, limit).log_norm


def log_power_bound(own: Columns, order: int, decay: float, limit: Limits, epsilon: float) -> float:
    """log of the largest ``(x - e^epsilon)_+ Z / x^order``."""
    return log_norm(own, order, decay, limit) - (order - 1.0) * epsilon + log_factor(order - 1.0)


def best_chain(own: Columns, epsilon: float) -> tuple[int, float, Limits]:
    """Order, decay and limits with the smallest M among those whose other histories hardly matter beside M."""
    wanted, found = TAILS[0], (2, DECAYS[0], limits(own, TAILS[0]))
    for _ in range(3):
        limit = limits(own, max((tail for tail in TAILS if tail <= wanted), default=TAILS[-1]))
        found = min(
            ((order, decay, limit) for order, decay in _orders(own, limit, epsilon)),
            key=lambda one: log_power_bound(own, one[0], one[1], one[2], epsilon),
        )
        wanted = WORTH * float(np.exp(min(log_power_bound(own, *found, epsilon), 0.0)))
    return found


def _orders(own: Columns, limit: Limits, epsilon: float) -> Iterator[tuple[int, float]]:
    """The order with the smallest M, for each decay; log Z is nearly convex in the order."""
    for decay in DECAYS:
        best = 2
        while best < MAX_ORDER and log_power_bound(own, best + 1, decay, limit, epsilon) < log_power_bound(
            own, best, decay, limit, epsilon
        ):
            best += 1
        yield best, decay
