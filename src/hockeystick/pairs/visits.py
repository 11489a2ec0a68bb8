"""When one example, or user, takes part: an automaton, declared once as edges that all kernels take.

A *node* is an opportunity at which something is decided. From a node u an edge is taken with its chance: the example
takes part ``number`` times at the opportunity ``u + where``, and its next node is ``u + jump``. The first node is drawn
with the chances ``start``. Three constructors: coins, coins after which the example waits, one visit in each epoch.

Proofs for any such automaton: docs/theory/monte-carlo/many-bands.md.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.strategies.matrix.base import Array

Integers = NDArray[np.int64]


class Edges(NamedTuple):
    """The automaton of one example, as kernels take it.

    Edges of one *kind* differ in where alone; a kind in which it does not take part has one edge.

    Attributes:
        chance: of each edge, shape (edges,), as ``where``.
        where: how far after the node it takes part, less than ``stride``.
        first: the first edge of each kind, and the number of edges; shape (kinds + 1,).
        number: how many times it takes part, shape (kinds,), as ``jump``.
        jump: how far away the next node is: a multiple of ``stride``, not falling from kind to kind.
        stride: nodes are multiples of it, and so is the number of opportunities.
        start: the chances that the first node is opportunity 0, 1, ...
    """

    chance: Array
    where: Integers
    first: Integers
    number: Integers
    jump: Integers
    stride: int
    start: Array


@dataclass(frozen=True)
class Visits:
    """The law of when one example, or user, takes part; made by :func:`coins`, :func:`waits` or :func:`one_in`.

    Attributes:
        prob: the chance of a coin; of each step of an epoch where there is one visit in it.
        coins: of every opportunity: as many participations are possible there.
        min_sep: an example that takes part waits until the opportunity so many later; above 1 with one coin alone.
        warm_start: whether it may be waiting at first, as in the long run.
        bins: opportunities of an epoch in which there is one visit; 0 where there are no epochs.
    """

    prob: float
    coins: int = 1
    min_sep: int = 1
    warm_start: bool = False
    bins: int = 0

    @cached_property
    def chances(self) -> Array:
        """The law of the participations at an opportunity that is not waited for, shape (coins + 1,)."""
        return binomial(self.coins, self.prob)

    @cached_property
    def start(self) -> Array:
        """The chances that the first node is opportunity 0, 1, ..."""
        return first_available(self.min_sep, self.prob, self.warm_start)

    @cached_property
    def edges(self) -> Edges:
        """The automaton. Of a visit the last edge is that of the first step."""
        once, numbers, bins = np.ones(1, np.int64), np.arange(self.coins + 1), self.bins
        if bins:
            where = np.arange(bins)[::-1].copy()
            return Edges(np.full(bins, self.prob), where, np.array([0, bins]), once, bins * once, bins, np.ones(1))
        nowhere, first = np.zeros_like(numbers), np.arange(numbers.size + 1)
        return Edges(self.chances, nowhere, first, numbers, np.where(numbers > 0, self.min_sep, 1), 1, self.start)

    def most(self, opportunities: int) -> int:
        """The most participations in so many consecutive opportunities, which begin with an epoch."""
        return self.coins * -(-opportunities // (self.bins or self.min_sep))


def coins(prob: float, number: int = 1) -> Visits:
    """Independent coins, so many at every opportunity: Poisson sampling of an example, or of a user."""
    return Visits(prob, number)


def waits(prob: float, min_sep: int, warm_start: bool) -> Visits:
    """One coin; an example that takes part waits until the opportunity ``min_sep`` later: b-min-sep subsampling."""
    return Visits(prob, 1, min_sep, warm_start)


def one_in(bins: int) -> Visits:
    """One visit in each epoch of so many steps, drawn uniformly and afresh: random allocation."""
    return Visits(1.0 / bins, bins=bins)


def binomial(coins: int, prob: float) -> Array:
    """Chances of 0, ..., coins participations; for one coin ``1 - prob`` and ``prob``, without rounding."""
    law = np.ones(1)
    for _ in range(coins):
        law = np.convolve(law, [1.0 - prob, prob])
    return law


def first_available(min_sep: int, hit: float, warm_start: bool) -> Array:
    """Probabilities of the first step of availability, shape (1,) when cold, (min_sep,) when warm."""
    if not warm_start:
        return np.ones(1)
    weights = np.full(min_sep, hit)
    weights[0] = 1.0
    return weights / (1.0 + (min_sep - 1) * hit)
