"""Histories with few participations in a block of opportunities, and the chain of counts that dominates their weights.

Proof: docs/theory/monte-carlo/many-bands.md.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import comb, inf, log, sqrt

import numpy as np

from hockeystick.monte_carlo.histories.chain_kernels import (
    Arrays,
    Waits,
    chain_table,
    largest_field,
    largest_spaced_field,
)
from hockeystick.monte_carlo.histories.chances import binomial, log_chances, tails
from hockeystick.monte_carlo.histories.columns import Columns
from hockeystick.monte_carlo.memo import remembered
from hockeystick.monte_carlo.proposals import Array
from hockeystick.monte_carlo.weight_bounds import log_factor

NODES = 256
"""For the field that earlier participations exert in the chain."""
MAX_TABLE = 1 << 23
"""Numbers in a table: 64 MB. Where copies wait there are fewer nodes."""
MAX_STATES = 170
"""Of the cells in which copies wait."""
CELLS = (8, 4, 2, 1)
"""In how many cells a copy may wait: the more, the better it is known when it is free again."""
LEAST_ROOM, MOST_ROOM = 0.7, 0.9
"""Of the last node: fewer nodes than this leaves are not worth more cells, or leave no place for fields that occur."""
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


@remembered
def fewest(own: Columns, block: int, tail: float) -> int:
    """The smallest number of participations that is exceeded in a block with at most the chance ``tail``."""
    whole, rest = divmod(own.steps, block)
    more = whole * tails(own.prob, block * own.coins)
    of_rest = tails(own.prob, rest * own.coins)
    more[: of_rest.size] += of_rest
    return max(int(np.argmax(more <= tail)), 1)


def chance_of_others(own: Columns, limit: Limits) -> float:
    """At least the chance of more participations in some block: Binomial tails; never 0."""
    whole, rest = divmod(own.steps, limit.block)
    in_block, in_rest = (tails(own.prob, steps * own.coins) for steps in (limit.block, rest))
    total = sum(
        times * float(chances[limit.most]) if limit.most < chances.size else 0.0
        for times, chances in ((whole, in_block), (1, in_rest))
    )
    return max(total * (1.0 + 1e-9), 1e-300)


@remembered
def greatest_field(own: Columns, limit: Limits) -> float:
    """At least ``sum_(u < v) x_u <c_u, c_v>`` for all of these histories."""
    largest = float(largest_field(own.couplings, limit.block, limit.most, own.coins))
    if own.min_sep > 1:
        largest = min(largest, float(largest_spaced_field(own.couplings, own.min_sep)))
    return largest * (1.0 + 1e-9)


@dataclass(frozen=True, eq=False)
class Chain:
    """The chain of counts for a number of histories, each of which has the coins of an opportunity.

    Attributes:
        decay: of the field.
        arrays: what :func:`.chain_kernels.draw_counts` takes.
        log_norm: log Z; infinite where doubles end.
        largest_log: of the terms that the table sums.
    """

    decay: float
    arrays: Arrays | None
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
    chances = _chances(copies, own.prob)
    strongest = order * float(pulls.max()) * _longest(decay, limit, own)
    waits, places, room = _lattice(own, copies, decay)
    if room > MOST_ROOM:
        return Chain(decay, None, inf, inf)
    last = max(1.001 * strongest / (1.0 - room), 1e-9)
    nodes = last * np.linspace(0.0, 1.0, places) ** 2
    deviation = room / DEVIATIONS * last
    cap = order * greatest_field(own, limit) + room * last
    rare = np.exp(-0.5 * DEVIATIONS**2)
    spare = rare * (deviation / DEVIATIONS + own.steps * cap)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        table, logs = chain_table(pulls, squares, chances, waits, decay, nodes, cap, spare)
        pulled, norms = np.exp(np.minimum(nodes, cap) + spare), np.exp(logs)
    finite = bool(np.isfinite(table).all() and np.isfinite(norms).all())
    largest = copies * (cap + spare + copies * float(squares.max()) - log(own.prob)) + float(np.log(table.max()))
    arrays = (pulls, squares, chances, nodes, pulled, table, norms, *waits)
    starts = order * log(float(own.first @ (1.0 - own.prob) ** -np.arange(own.first.size)))
    return Chain(decay, arrays, float(logs.sum()) + starts if finite else inf, largest if finite else inf)


def _chances(copies: int, prob: float) -> Array:
    """``chances[f, j]``: j of f coins show 1; 0 for j > f. Shape (copies + 1, copies + 1)."""
    chances = np.eye(copies + 1, 1) @ np.eye(1, copies + 1)
    for able in range(1, copies + 1):
        chances[able, : able + 1] = np.exp(log_chances(prob, able, able + 1))
    return chances


def _lattice(own: Columns, copies: int, decay: float) -> tuple[Waits, int, float]:
    """Who waits, how many nodes a table has room for, and the room that fields need, as a part of the last node."""
    for cells in CELLS if own.min_sep > 1 else CELLS[-1:]:
        waits = waits_of(own.min_sep, own.prob, copies, cells)
        if waits is None:
            continue
        places = min(NODES, MAX_TABLE // ((own.steps + 1) * waits[0].size))
        if places > 1:
            room = DEVIATIONS / ((places - 1) * sqrt(1.0 - decay * decay))  # gaps are at most 2 / (places - 1)
            if cells == CELLS[-1] or room <= LEAST_ROOM:
                return waits, places, room
    raise ValueError("there is no table for so many opportunities")


@lru_cache(maxsize=64)
def waits_of(min_sep: int, prob: float, copies: int, cells: int) -> Waits | None:
    """A copy waits until the start of the cell that is ``cells`` after its own, no longer than it has to.

    For every opportunity at which it is free too early its participation has the factor ``1 / (1 - p)``. None where
    there are too many states.
    """
    none = np.zeros(1, dtype=np.int64)
    if min_sep == 1:
        return np.full(1, copies), np.zeros((1, copies + 1), dtype=np.int64), none, np.ones(1)
    if cells > min_sep or comb(copies + cells, cells) > MAX_STATES:
        return None
    size = min_sep // cells
    states = [state for state in product(range(copies + 1), repeat=cells) if sum(state) <= copies]
    number = {state: place for place, state in enumerate(states)}
    within = np.zeros((len(states), copies + 1), dtype=np.int64)
    for place, state in enumerate(states):
        for count in range(copies - sum(state) + 1):
            within[place, count] = number[(state[0] + count, *state[1:])]
    free = np.array([copies - sum(state) for state in states])
    shifted = np.array([number[(0, *state[:-1])] for state in states])
    early = min_sep - cells * size + np.arange(size, dtype=float)
    return free, within, shifted, (1.0 - prob) ** -early


def _longest(decay: float, limit: Limits, own: Columns) -> float:
    """At least ``sum_(u < v) decay^(v-u) x_u`` for these histories, whatever v and however many blocks there are."""
    coins = own.coins
    powers = np.cumsum(decay ** (1 + np.arange(limit.most) // coins))
    before = powers[-1] / (1.0 - decay**limit.block)  # of full blocks, each with its last opportunities
    opportunities = np.arange(min(-(-limit.most // coins), limit.block) + 1)  # of the block that v is in
    inside = np.concatenate([[0.0], powers])[np.minimum(opportunities * coins, limit.most)]
    largest = float((inside + decay**opportunities * before).max())
    if own.min_sep > 1:
        largest = min(largest, decay / (1.0 - decay**own.min_sep))
    return largest * (1.0 + 1e-9)


@remembered
def kept_shares(own: Columns, order: int) -> Array:
    """For coins: what tuples of histories weigh with J participations at an opportunity, over what the chain says.

    Shape (opportunities, counts), at most 1: the coins of one history take something off each other at an opportunity.
    Empty for one coin.
    """
    if own.coins == 1:
        return np.empty((0, 0))
    numbers, copies = np.arange(own.coins + 1), order * own.coins
    law, shares = binomial(own.coins, own.prob), np.empty((own.steps, copies + 1))
    for u, square in enumerate(own.couplings[:, 0].tolist()):
        single = law * np.exp(-0.5 * square * numbers * (numbers - 1.0))
        sums = np.ones(1)
        for _ in range(order):
            sums = np.convolve(sums, single)
        shares[u] = sums
    found: Array = np.minimum(shares / _chances(copies, own.prob)[-1], 1.0)
    return found


@remembered
def log_norm(own: Columns, order: int, decay: float, limit: Limits) -> float:
    """log Z of the chain."""
    return chain_of(own, order, decay, limit).log_norm


def log_power_bound(own: Columns, order: int, decay: float, limit: Limits, epsilon: float) -> float:
    """log of the largest ``(x - e^epsilon)_+ Z / x^order``."""
    return log_norm(own, order, decay, limit) - (order - 1.0) * epsilon + log_factor(order - 1.0)


def best_chain(own: Columns, epsilon: float) -> tuple[int, float, Limits]:
    """Order, decay and limits with the smallest M found among those whose other histories hardly matter beside M."""
    wanted, found = TAILS[0], (2, DECAYS[len(DECAYS) // 2], limits(own, TAILS[0]))
    for _ in range(3):
        limit = limits(own, max((tail for tail in TAILS if tail <= wanted), default=TAILS[-1]))
        order, decay = _best_decay(own, limit, epsilon, found[1])
        found = (order, decay, limit)
        wanted = WORTH * float(np.exp(min(log_power_bound(own, order, decay, limit, epsilon), 0.0)))
    return found


def _best_decay(own: Columns, limit: Limits, epsilon: float, near: float) -> tuple[int, float]:
    """The best order of the decay from which neither neighbour is better, starting near one."""

    def best(place: int) -> tuple[float, int]:
        return _best_order(own, DECAYS[place], limit, epsilon) if 0 <= place < len(DECAYS) else (inf, 2)

    place = DECAYS.index(near)
    while not np.isfinite(best(place)[0]) and place < len(DECAYS) - 1:
        place += 1
    for step in (1, -1):
        while best(place + step)[0] < best(place)[0]:
            place += step
    return best(place)[1], DECAYS[place]


@remembered
def _best_order(own: Columns, decay: float, limit: Limits, epsilon: float) -> tuple[float, int]:
    """log M and the order with the smallest; log Z is nearly convex in the order."""
    best, least = 2, log_power_bound(own, 2, decay, limit, epsilon)
    while best < MAX_ORDER:
        following = log_power_bound(own, best + 1, decay, limit, epsilon)
        if not following < least:
            break
        best, least = best + 1, following
    return least, best
