"""Which histories upper bounds count: those with few participations in every block, and the fields that they exert.

Proof: docs/theory/monte-carlo/many-bands.md.
"""

from dataclasses import dataclass

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.laws.coins import tails
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.far.columns import Columns
from hockeystick.monte_carlo.memo import remembered

BLOCKS = (16, 64, 256, 1024)
"""Opportunities of a block."""
TAILS = (1e-4, 1e-6, 1e-7, 1e-8, 1e-9, 1e-11, 1e-13, 1e-16, 1e-20)
"""Chances of a history with more participations in some block."""
WORTH = 3e-5
"""The chance of other histories that is charged, over M: a percent of a delta that is 300 times smaller than M."""


@dataclass(frozen=True)
class Limits:
    """At most ``most`` participations, of all coins together, in each ``block`` opportunities, from the first on.

    Of visits the blocks are epochs, and every history keeps the limit.
    """

    block: int
    most: int


def tail_beside(largest: float) -> float:
    """The greatest of TAILS that hardly matters beside M; an M above 1 counts as 1."""
    return max((tail for tail in TAILS if tail <= WORTH * min(largest, 1.0)), default=TAILS[-1])


def limits(own: Columns, tail: float) -> Limits:
    """Of all blocks those in which the largest field of such histories is smallest; others have at most this chance."""
    if own.law.bins:
        return Limits(own.law.bins, 1)
    listed = [
        Limits(block, fewest(own, block, tail)) for block in BLOCKS if block == BLOCKS[0] or block < 2 * own.steps
    ]
    return min(listed, key=lambda limit: greatest_field(own, limit))


@remembered
def fewest(own: Columns, block: int, tail: float) -> int:
    """The smallest number of participations that is exceeded in a block with at most the chance ``tail``.

    No more than are possible for an example that waits.
    """
    whole, rest = divmod(own.steps, block)
    more = whole * tails(own.law.prob, block * own.law.coins)
    of_rest = tails(own.law.prob, rest * own.law.coins)
    more[: of_rest.size] += of_rest
    return min(max(int(np.argmax(more <= tail)), 1), own.law.most(block))


def is_listed(own: Columns, limit: Limits) -> bool:
    """Whether the limits are those that are proposed for one of the chances TAILS."""
    if own.law.bins:
        return limit == Limits(own.law.bins, 1)
    return limit.block in BLOCKS and limit.most in {fewest(own, limit.block, tail) for tail in TAILS}


def chance_of_others(own: Columns, limit: Limits) -> float:
    """At least the chance of more participations in some block: Binomial tails; 0 of visits alone."""
    if own.law.bins:
        return 0.0
    whole, rest = divmod(own.steps, limit.block)
    total = sum(
        times * float(tails(own.law.prob, steps * own.law.coins)[limit.most])
        if limit.most < own.law.most(steps)
        else 0.0
        for times, steps in ((whole, limit.block), (1, rest))
    )
    return max(total * (1.0 + 1e-9), 1e-300)


@remembered
def greatest_field(own: Columns, limit: Limits) -> float:
    """At least ``sum_(u < v) x_u <c_u, c_v>`` for all of these histories."""
    largest = float(largest_field(own.couplings, limit.block, limit.most, own.law.coins))
    if own.law.min_sep > 1:
        largest = min(largest, float(largest_spaced_field(own.couplings, own.law.min_sep)))
    return largest * (1.0 + 1e-9)


def longest(own: Columns, decay: float, limit: Limits) -> float:
    """At least ``sum_(u < v) decay^(v-u) x_u`` for these histories, whatever v and however many blocks there are."""
    coins = own.law.coins
    powers = np.cumsum(decay ** (1 + np.arange(limit.most) // coins))
    before = powers[-1] / (1.0 - decay**limit.block)  # of full blocks, each with its last opportunities
    opportunities = np.arange(min(-(-limit.most // coins), limit.block) + 1)  # of the block that v is in
    inside = np.concatenate([[0.0], powers])[np.minimum(opportunities * coins, limit.most)]
    largest = float((inside + decay**opportunities * before).max())
    if own.law.min_sep > 1:
        largest = min(largest, decay / (1.0 - decay**own.law.min_sep))
    return largest * (1.0 + 1e-9)


@kernel
def largest_field(couplings: Array, block: int, limit: int, coins: int) -> float:
    """The largest ``sum_(u < v) x_u <c_u, c_v>`` over v and numbers x up to ``coins``, at most ``limit`` in a block."""
    opportunities, window = couplings.shape
    largest = 0.0
    for v in range(opportunities):
        total, last = 0.0, v
        while last > 0 and v - last < window - 1:  # those before it, block by block
            first = max((last - 1) // block * block, v - window + 1, 0)
            values = np.empty(last - first)
            for u in range(first, last):
                values[u - first] = couplings[u, v - u]
            values.sort()
            for place in range(min(limit, values.size * coins)):
                total += values[values.size - 1 - place // coins]
            last = first
        largest = max(largest, total)
    return largest


@kernel
def largest_spaced_field(couplings: Array, min_sep: int) -> float:
    """At least ``sum_(u < v) x_u <c_u, c_v>`` for all x whose ones are ``min_sep`` apart: one in as many lags."""
    opportunities, window = couplings.shape
    largest = 0.0
    for v in range(opportunities):
        total = 0.0
        for first in range(1, min(window, v + 1), min_sep):
            most = 0.0
            for lag in range(first, min(first + min_sep, window, v + 1)):
                most = max(most, couplings[v - lag, lag])
            total += most
        largest = max(largest, total)
    return largest
