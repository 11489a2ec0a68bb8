"""Histories with few participations in a block of opportunities, and the chain of counts that dominates their weights.

Proof: docs/theory/monte-carlo/many-bands.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations_with_replacement
from math import ceil, comb, inf, log, sqrt

import numpy as np

from hockeystick.monte_carlo import weight_bounds
from hockeystick.monte_carlo.histories.chain_kernels import (
    ChainTables,
    Waits,
    chain_table,
    largest_field,
    largest_spaced_field,
)
from hockeystick.monte_carlo.histories.chances import binomial, log_chances, tails
from hockeystick.monte_carlo.histories.columns import Columns
from hockeystick.monte_carlo.memo import remembered
from hockeystick.monte_carlo.proposals import Array

NODES = 256
"""For the field that earlier participations exert in the chain."""
MAX_TABLE, MAX_TRIED = 1 << 24, 1 << 22
"""Numbers in a table: 128 MB; and in those that are tried. Where copies wait there are fewer nodes."""
MAX_CELLS = 16
"""In how many cells a copy may wait: the more, the better it is known when it is free again."""
MAX_COUNTED, LEAST_GAIN = 6, 0.1
"""Participations in a block are counted for up to so many copies, where log Z is smaller by this for it."""
BUSIER, SPREAD = 1.25, 1.5
"""As many copies may wait as do on the average, times BUSIER, and SPREAD roots of that more."""
LEAST_ROOM, MOST_ROOM = 0.8, 0.9
"""Of the last node: fewer nodes than this leaves are not worth more cells, or leave no place for fields that occur."""
DECAYS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.87, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.997, 0.998)
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
    """The smallest number of participations that is exceeded in a block with at most the chance ``tail``.

    No more than are possible for an example that waits.
    """
    whole, rest = divmod(own.steps, block)
    more = whole * tails(own.prob, block * own.coins)
    of_rest = tails(own.prob, rest * own.coins)
    more[: of_rest.size] += of_rest
    return min(max(int(np.argmax(more <= tail)), 1), _possible(own, block))


def _possible(own: Columns, opportunities: int) -> int:
    """The most participations in so many consecutive opportunities."""
    return own.coins * -(-opportunities // own.min_sep)


def chance_of_others(own: Columns, limit: Limits) -> float:
    """At least the chance of more participations in some block: Binomial tails; never 0."""
    whole, rest = divmod(own.steps, limit.block)
    total = sum(
        times * float(tails(own.prob, steps * own.coins)[limit.most]) if limit.most < _possible(own, steps) else 0.0
        for times, steps in ((whole, limit.block), (1, rest))
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
        tables: what :func:`.chain_kernels.draw_counts` takes.
        log_norm: log Z; infinite where doubles end.
        largest_log: of the terms that the table sums.
    """

    decay: float
    tables: ChainTables | None
    log_norm: float
    largest_log: float


@lru_cache(maxsize=4)
def chain_of(own: Columns, order: int, decay: float, limit: Limits, entries: int = MAX_TABLE) -> Chain:
    """Earlier participations exert at least their inner products: ``pull_u decay^e >= <c_u, c_(u+e)>`` at every lag.

    With at most so many numbers in its table. Where nobody waits, and there are few copies, a chain that keeps the
    limit of every block too, if its Z is smaller: strong fields feed themselves where nothing limits counts.
    """
    copies = order * own.coins
    if own.min_sep > 1:
        return _chain(own, order, decay, limit, _lattice(own, copies, decay, entries))
    plain = _chain(own, order, decay, limit, nodes_for(own, decay, unlimited(copies), entries))
    if copies > MAX_COUNTED:
        return plain
    lattice = nodes_for(own, decay, within_limit(copies, limit.block, order * limit.most), entries)
    counted = _chain(own, order, decay, limit, lattice)
    return counted if counted.log_norm < plain.log_norm - LEAST_GAIN else plain


def _chain(own: Columns, order: int, decay: float, limit: Limits, lattice: tuple[Waits, int, float]) -> Chain:
    copies = int(lattice[0].free[0])
    starts = order * log(float(own.first @ (1.0 - own.prob) ** -np.arange(own.first.size)))
    fields = order * greatest_field(own, limit), order * _longest(decay, limit, own)
    return chain_from(own, decay, fields, coin_chances(copies, own.prob)[None], lattice, starts)


def chain_from(
    own: Columns,
    decay: float,
    fields: tuple[float, float],
    chances: Array,
    lattice: tuple[Waits, int, float],
    starts: float,
) -> Chain:
    """The chain whose field has such pulls, on a lattice of :func:`nodes_for`.

    Args:
        fields: at least what histories exert together on an opportunity; and ``sum_u decay^(v-u) J_u`` for all v.
        chances: of counts by the place in a cell and by the copies that are free, as :func:`.chain_table` takes them.
        starts: what is added to log Z.
    """
    lags = np.arange(1, own.couplings.shape[1])
    squares = np.ascontiguousarray(own.couplings[:, 0]) * (1.0 + 1e-9)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        needed = np.where(own.couplings[:, 1:] > 0.0, own.couplings[:, 1:] / decay**lags, 0.0)
    pulls = needed.max(axis=1, initial=0.0) * (1.0 + 1e-9)
    waits, places, room = lattice
    copies = int(waits.free[0])
    strongest = fields[1] * float(pulls.max())
    if room > MOST_ROOM:
        return Chain(decay, None, inf, inf)
    last = max(1.001 * strongest / (1.0 - room), 1e-9)
    nodes = last * np.linspace(0.0, 1.0, places) ** 2
    deviation = room / DEVIATIONS * last
    cap = fields[0] + room * last
    rare = np.exp(-0.5 * DEVIATIONS**2)
    spare = rare * (deviation / DEVIATIONS + own.steps * cap)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        table, logs = chain_table(pulls, squares, chances, waits, decay, nodes, cap, spare)
        pulled, norms = np.exp(np.minimum(nodes, cap) + spare), np.exp(logs)
    finite = bool(np.isfinite(table).all() and np.isfinite(norms).all())
    largest = copies * (cap + spare + copies * float(squares.max()) - log(own.prob)) + float(np.log(table.max()))
    tables = ChainTables(decay, pulls, squares, chances, nodes, pulled, table, norms, waits)
    return Chain(decay, tables, float(logs.sum()) + starts if finite else inf, largest if finite else inf)


def coin_chances(copies: int, prob: float) -> Array:
    """``chances[f, j]``: j of f coins show 1; 0 for j > f. Shape (copies + 1, copies + 1)."""
    chances = np.eye(copies + 1, 1) @ np.eye(1, copies + 1)
    for able in range(1, copies + 1):
        chances[able, : able + 1] = np.exp(log_chances(prob, able, able + 1))
    return chances


def _lattice(own: Columns, copies: int, decay: float, entries: int) -> tuple[Waits, int, float]:
    """Who waits, how many nodes a table has room for, and the room that fields need, as a part of the last node."""
    most, shapes = _most_waiting(own, copies), _shapes(own.min_sep)
    for cells in shapes:
        if (own.steps + 1) * comb(most + cells, cells) * 2 <= entries:
            lattice = nodes_for(own, decay, waits_of(own.min_sep, own.prob, copies, cells, most), entries)
            if cells == shapes[-1] or lattice[2] <= LEAST_ROOM:
                return lattice
    raise ValueError("there is no table for so many opportunities")


def nodes_for(own: Columns, decay: float, waits: Waits, entries: int) -> tuple[Waits, int, float]:
    """How many nodes a table has room for, and the room that fields need, as a part of the last node."""
    places = max(min(NODES, entries // ((own.steps + 1) * waits.free.size)), 2)
    return waits, places, DEVIATIONS / ((places - 1) * sqrt(1.0 - decay * decay))  # gaps are at most 2 / (places - 1)


def _most_waiting(own: Columns, copies: int) -> int:
    """How many copies may wait in the chain; seldom more do."""
    mean = BUSIER * copies * own.prob * own.min_sep / (1.0 + own.prob * (own.min_sep - 1))
    return min(copies, ceil(mean + SPREAD * sqrt(mean)))


def _shapes(min_sep: int) -> list[int]:
    """In how many cells copies may wait, first those in which they are free the least too early; one, the last."""

    def early(cells: int) -> float:
        size = min_sep // cells
        return min_sep - cells * size + 0.5 * (size - 1)

    return [*sorted(range(2, min(min_sep, MAX_CELLS) + 1), key=early), 1]


@lru_cache(maxsize=64)
def unlimited(copies: int) -> Waits:
    """Nobody waits, and nothing is counted."""
    none = np.zeros(1, dtype=np.int64)
    after = np.zeros((1, copies + 1), dtype=np.int64)
    return Waits(np.full(1, copies), after, none, np.ones(1), np.ones((1, copies + 1)))


@lru_cache(maxsize=64)
def within_limit(copies: int, block: int, most: int) -> Waits:
    """Nobody waits, and in every block of opportunities there are at most so many participations of all copies."""
    numbers = np.arange(most + 1)
    after = np.add.outer(numbers, np.arange(copies + 1))
    none = np.zeros(numbers.size, dtype=np.int64)
    allowed = (after <= most).astype(float)
    return Waits(np.full(numbers.size, copies), np.minimum(after, most), none, np.ones(block), allowed)


@lru_cache(maxsize=64)
def waits_of(min_sep: int, prob: float, copies: int, cells: int, most: int) -> Waits:
    """A copy waits until the start of the cell that is ``cells`` after its own, no longer than it has to.

    If more than ``most`` would wait, those that have waited longest are free at once. For every opportunity at which a
    copy is free too early there is the factor ``1 / (1 - p)``.
    """
    size = min_sep // cells
    placed = [one for waiting in range(most + 1) for one in combinations_with_replacement(range(cells), waiting)]
    states = [tuple(one.count(cell) for cell in range(cells)) for one in placed]
    number = {state: place for place, state in enumerate(states)}
    within, freed = np.zeros((len(states), copies + 1), dtype=np.int64), np.ones((len(states), copies + 1))
    for place, state in enumerate(states):
        for count in range(copies - sum(state) + 1):
            left, early = _forget((state[0] + count, *state[1:]), most, size)
            within[place, count], freed[place, count] = number[left], (1.0 - prob) ** -early
    free = np.array([copies - sum(state) for state in states])
    shifted = np.array([number[(0, *state[:-1])] for state in states])
    waited = min_sep - cells * size + np.arange(size, dtype=float)
    return Waits(free, within, shifted, (1.0 - prob) ** -waited, freed)


def _forget(state: tuple[int, ...], most: int, size: int) -> tuple[tuple[int, ...], int]:
    """The state with at most so many who wait, and at least how many opportunities too early the others are free."""
    left, early, over = list(state), 0, max(sum(state) - most, 0)
    for cell in range(len(left) - 1, -1, -1):
        gone = min(over, left[cell])
        left[cell] -= gone
        over -= gone
        early += gone * ((len(left) - cell) * size - 1)
    return tuple(left), early


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
    found: Array = np.minimum(shares / coin_chances(copies, own.prob)[-1], 1.0)
    return found


@remembered
def log_norm(own: Columns, order: int, decay: float, limit: Limits, entries: int) -> float:
    """log Z of the chain."""
    return chain_of(own, order, decay, limit, entries).log_norm


def log_power_bound(
    own: Columns, order: int, decay: float, limit: Limits, epsilon: float, entries: int = MAX_TABLE
) -> float:
    """log of the largest ``(x - e^epsilon)_+ Z / x^order``."""
    return weight_bounds.log_power_bound(order, log_norm(own, order, decay, limit, entries), epsilon)


def best_chain(own: Columns, epsilon: float) -> tuple[int, float, Limits]:
    """Order, decay and limits with the smallest M found among those whose other histories hardly matter beside M."""
    wanted, order, decay, limit = TAILS[0], 2, DECAYS[len(DECAYS) // 2], limits(own, TAILS[0])
    for _ in range(3):
        limit = limits(own, max((tail for tail in TAILS if tail <= wanted), default=TAILS[-1]))

        def largest(order: int, decay: float, entries: int, limit: Limits = limit) -> float:
            return log_power_bound(own, order, decay, limit, epsilon, entries)

        tried = MAX_TRIED if own.min_sep > 1 else MAX_TABLE
        order, decay = best_decay(partial(largest, entries=tried), decay, 2)
        if own.min_sep > 1:  # larger tables may serve smaller orders better
            order, decay = best_decay(partial(largest, entries=MAX_TABLE), decay, max(order - 2, 2))
        wanted = WORTH * float(np.exp(min(largest(order, decay, MAX_TABLE), 0.0)))
    return order, decay, limit


def best_decay(log_bound: Callable[[int, float], float], near: float, first: int) -> tuple[int, float]:
    """The best order of the decay from which neither neighbour is better, starting near one.

    Args:
        log_bound: log M of an order and a decay.
        first: the smallest order that is tried.
    """

    def best(place: int) -> tuple[float, int]:
        inside = 0 <= place < len(DECAYS)
        return _best_order(lambda order: log_bound(order, DECAYS[place]), first) if inside else (inf, first)

    place = DECAYS.index(near)
    while not np.isfinite(best(place)[0]) and place < len(DECAYS) - 1:
        place += 1
    for step in (1, -1):
        while best(place + step)[0] < best(place)[0]:
            place += step
    return best(place)[1], DECAYS[place]


def _best_order(log_bound: Callable[[int], float], first: int) -> tuple[float, int]:
    """log M and the order with the smallest, from the first one on; log Z is nearly convex in the order."""
    best, least = first, log_bound(first)
    while best < MAX_ORDER:
        following = log_bound(best + 1)
        if not following < least:
            break
        best, least = best + 1, following
    return least, best
