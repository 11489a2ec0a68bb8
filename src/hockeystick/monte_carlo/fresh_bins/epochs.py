"""The chain of counts of copies that visit once in each epoch (docs/theory/monte-carlo/fresh-bins.md).

How many copies have visited in the current epoch says how many may still visit, and with which chance. So the chain of
:mod:`.chain_kernels` knows exactly who waits, and only its field is larger than inner products are.
"""

from functools import lru_cache

import numpy as np

from hockeystick.monte_carlo.forests.linked import Trees
from hockeystick.monte_carlo.fresh_bins.kernels import largest_field
from hockeystick.monte_carlo.histories.chain_kernels import Waits
from hockeystick.monte_carlo.histories.columns import Columns
from hockeystick.monte_carlo.histories.limited_histories import (
    MAX_TABLE,
    Chain,
    chain_from,
    coin_chances,
    nodes_for,
)
from hockeystick.monte_carlo.memo import remembered
from hockeystick.monte_carlo.proposals import Array


@lru_cache(maxsize=64)
def chances_of(bins: int, copies: int) -> Array:
    """``chances[i, f, j]``: j of the f copies without a visit take theirs at place i of an epoch.

    Each of them with the chance ``1 / (bins - i)``: all at the last place. Shape (bins, copies + 1, copies + 1).
    """
    last = np.eye(copies + 1)[None]
    return np.concatenate([*(coin_chances(copies, 1.0 / left)[None] for left in range(bins, 1, -1)), last])


@lru_cache(maxsize=64)
def visits_of(bins: int, copies: int) -> Waits:
    """The state is the number of copies that have visited in the epoch; it starts again at 0 in the next."""
    numbers = np.arange(copies + 1)
    after = np.minimum(np.add.outer(numbers, numbers), copies)
    start = np.zeros(copies + 1, dtype=np.int64)
    return Waits(copies - numbers, after, start, np.ones(bins), np.ones((copies + 1, copies + 1)))


@remembered
def greatest_field(own: Columns, bins: int) -> float:
    """At least ``sum_(u < v) x_u <c_u, c_v>`` for the visits of one copy."""
    return float(largest_field(own.couplings, bins)) * (1.0 + 1e-9)


def longest(decay: float, bins: int) -> float:
    """At least ``sum_(u < v) decay^(v-u) x_u``, whatever v and however many epochs: v at every place of its epoch.

    A visit at the last place of every earlier epoch, and one just before v.
    """
    places = np.arange(bins)
    before = decay ** (places + 1.0) / (1.0 - decay**bins)
    return float((np.where(places > 0, decay, 0.0) + before).max()) * (1.0 + 1e-9)


@lru_cache(maxsize=4)
def chain_of(own: Columns, bins: int, order: int, decay: float) -> Chain:
    """The chain for so many copies."""
    lattice = nodes_for(own, decay, visits_of(bins, order), MAX_TABLE)
    fields = order * greatest_field(own, bins), order * longest(decay, bins)
    return chain_from(own, decay, fields, chances_of(bins, order), lattice, 0.0)


@remembered
def log_norm(own: Columns, bins: int, order: int, decay: float) -> float:
    """log Z of the chain."""
    return chain_of(own, bins, order, decay).log_norm


def most_below(trees: Trees, bins: int, epochs: int) -> tuple[int, ...]:
    """By level, the most visits of one copy below a node: the epochs that its leaves may be in."""
    leaves = [1 << height for height in range(int(trees.levels.max()) + 1)]
    return tuple(min((size + bins - 2) // bins + 1, size, epochs) for size in leaves)
