"""The chain of counts that dominates the weights of several histories.

Proof: docs/theory/monte-carlo/many-bands.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from math import ceil, comb, inf, log, sqrt

import numpy as np

from hockeystick.moments.copies.fields import (
    ChainTables,
    Waits,
    chain_table,
    coin_chances,
    unlimited,
    visit_chances,
    visits_of,
    waits_of,
    within_limit,
)
from hockeystick.monte_carlo import weight_bounds
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.far.columns import Columns
from hockeystick.monte_carlo.far.limits import TAILS, Limits, greatest_field, limits, longest, tail_beside
from hockeystick.monte_carlo.memo import remembered

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
DEVIATIONS = 6.0
"""The room, in standard deviations of what rounding makes of the field, between fields that occur and the cap."""


@dataclass(frozen=True, eq=False)
class Chain:
    """The chain of counts for a number of histories, each of which has the coins of an opportunity.

    Attributes:
        decay: of the field.
        tables: what :func:`.kept_counts.draw_counts` takes.
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
    copies = order * own.law.coins
    if own.law.bins:
        return _chain(own, order, decay, limit, nodes_for(own, decay, visits_of(own.law.bins, copies), entries))
    if own.law.min_sep > 1:
        return _chain(own, order, decay, limit, _lattice(own, copies, decay, entries))
    plain = _chain(own, order, decay, limit, nodes_for(own, decay, unlimited(copies), entries))
    if copies > MAX_COUNTED:
        return plain
    lattice = nodes_for(own, decay, within_limit(copies, limit.block, order * limit.most), entries)
    counted = _chain(own, order, decay, limit, lattice)
    return counted if counted.log_norm < plain.log_norm - LEAST_GAIN else plain


def _chain(own: Columns, order: int, decay: float, limit: Limits, lattice: tuple[Waits, int, float]) -> Chain:
    """The chain on a lattice of :func:`nodes_for`."""
    waits, places, room = lattice
    copies, law = int(waits.free[0]), own.law
    chances = visit_chances(law.bins, copies) if law.bins else coin_chances(copies, law.prob)[None]
    starts = order * log(float(law.start @ (1.0 - law.prob) ** -np.arange(law.start.size)))
    lags = np.arange(1, own.couplings.shape[1])
    squares = np.ascontiguousarray(own.couplings[:, 0]) * (1.0 + 1e-9)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        needed = np.where(own.couplings[:, 1:] > 0.0, own.couplings[:, 1:] / decay**lags, 0.0)
    pulls = needed.max(axis=1, initial=0.0) * (1.0 + 1e-9)
    strongest = order * longest(own, decay, limit) * float(pulls.max())
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
    largest = copies * (cap + spare + copies * float(squares.max()) - log(law.prob)) + float(np.log(table.max()))
    tables = ChainTables(decay, pulls, squares, chances, nodes, pulled, table, norms, waits)
    return Chain(decay, tables, float(logs.sum()) + starts if finite else inf, largest if finite else inf)


def _lattice(own: Columns, copies: int, decay: float, entries: int) -> tuple[Waits, int, float]:
    """Who waits, how many nodes a table has room for, and the room that fields need, as a part of the last node."""
    most, shapes = _most_waiting(own, copies), _shapes(own.law.min_sep)
    for cells in shapes:
        if (own.steps + 1) * comb(most + cells, cells) * 2 <= entries:
            lattice = nodes_for(own, decay, waits_of(own.law.min_sep, own.law.prob, copies, cells, most), entries)
            if cells == shapes[-1] or lattice[2] <= LEAST_ROOM:
                return lattice
    raise ValueError("there is no table for so many opportunities")


def nodes_for(own: Columns, decay: float, waits: Waits, entries: int) -> tuple[Waits, int, float]:
    """How many nodes a table has room for, and the room that fields need, as a part of the last node."""
    places = max(min(NODES, entries // ((own.steps + 1) * waits.free.size)), 2)
    return waits, places, DEVIATIONS / ((places - 1) * sqrt(1.0 - decay * decay))  # gaps are at most 2 / (places - 1)


def _most_waiting(own: Columns, copies: int) -> int:
    """How many copies may wait in the chain; seldom more do."""
    mean = BUSIER * copies * own.law.prob * own.law.min_sep / (1.0 + own.law.prob * (own.law.min_sep - 1))
    return min(copies, ceil(mean + SPREAD * sqrt(mean)))


def _shapes(min_sep: int) -> list[int]:
    """In how many cells copies may wait, first those in which they are free the least too early; one, the last."""

    def early(cells: int) -> float:
        size = min_sep // cells
        return min_sep - cells * size + 0.5 * (size - 1)

    return [*sorted(range(2, min(min_sep, MAX_CELLS) + 1), key=early), 1]


@remembered
def kept_shares(own: Columns, order: int) -> Array:
    """For coins: what tuples of histories weigh with J participations at an opportunity, over what the chain says.

    Shape (opportunities, counts), at most 1: the coins of one history take something off each other at an opportunity.
    Empty for one coin.
    """
    if own.law.coins == 1:
        return np.empty((0, 0))
    numbers, copies = np.arange(own.law.coins + 1), order * own.law.coins
    law, shares = own.law.chances, np.empty((own.steps, copies + 1))
    for u, square in enumerate(own.couplings[:, 0].tolist()):
        single = law * np.exp(-0.5 * square * numbers * (numbers - 1.0))
        sums = np.ones(1)
        for _ in range(order):
            sums = np.convolve(sums, single)
        shares[u] = sums
    kept: Array = np.minimum(shares / coin_chances(copies, own.law.prob)[-1], 1.0)
    return kept


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
    tail, order, decay = TAILS[0], 2, DECAYS[len(DECAYS) // 2]
    for _ in range(3):
        limit = limits(own, tail)

        def largest(order: int, decay: float, entries: int, limit: Limits = limit) -> float:
            return log_power_bound(own, order, decay, limit, epsilon, entries)

        tried = MAX_TRIED if own.law.min_sep > 1 else MAX_TABLE
        order, decay = best_decay(partial(largest, entries=tried), decay, 2)
        if own.law.min_sep > 1:  # larger tables may serve smaller orders better
            order, decay = best_decay(partial(largest, entries=MAX_TABLE), decay, max(order - 2, 2))
        tail = tail_beside(weight_bounds.bounded_exp(largest(order, decay, MAX_TABLE)))
    return order, decay, limit


def best_decay(log_bound: Callable[[int, float], float], near: float, first: int) -> tuple[int, float]:
    """The best order of the decay from which neither neighbour is better, starting near one.

    Args:
        log_bound: log M of an order and a decay.
        first: the smallest order that is tried.
    """

    def best(place: int) -> tuple[float, int]:
        inside = 0 <= place < len(DECAYS)
        orders = range(first, MAX_ORDER + 1) if inside else ()
        return min(weight_bounds.falling(lambda order: log_bound(order, DECAYS[place]), orders), default=(inf, first))

    place = DECAYS.index(near)
    while not np.isfinite(best(place)[0]) and place < len(DECAYS) - 1:
        place += 1
    for step in (1, -1):
        while best(place + step)[0] < best(place)[0]:
            place += step
    return best(place)[1], DECAYS[place]
