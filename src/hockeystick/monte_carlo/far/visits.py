"""When one example, or user, takes part: an automaton, declared once as edges that all kernels of this folder take.

A *node* is an opportunity at which something is decided. From a node u an edge is taken with its chance: the example
takes part ``number`` times at the opportunity ``u + where``, and its next node is ``u + jump``. The first node is drawn
with the chances ``start``. Three constructors: coins, coins after which the example waits, one visit in each epoch.

Proofs for any such automaton: docs/theory/monte-carlo/many-bands.md.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit

from hockeystick.monte_carlo.arrays import Array, Integers
from hockeystick.monte_carlo.chances import binomial, draw_number, place_of
from hockeystick.pairs.renewal_mixture import first_available


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


@njit(cache=True, nogil=True)
def moments(couplings: Array, edges: Edges) -> tuple[Array, float]:
    """``E x_u`` for each opportunity, and ``E sum_(u,v) <c_u, c_v> x_u x_v`` from the columns' inner products.

    O(edges opportunities w / stride). Sums of positive terms.
    """
    steps, window = couplings.shape
    ahead, total = expected(edges, np.ones(1), steps), 0.0
    nodes = nodes_of(edges, edges.start, steps)
    for u in range(0, steps, edges.stride):
        for kind in range(edges.number.size):
            following = u + edges.jump[kind]
            for e in range(edges.first[kind], edges.first[kind + 1]):
                rate, at = nodes[u] * edges.chance[e] * edges.number[kind], u + edges.where[e]
                if rate > 0.0:
                    total += rate * edges.number[kind] * couplings[at, 0]
                    for v in range(following, min(at + window, steps)):
                        total += 2.0 * rate * ahead[v - following] * couplings[at, v - at]
    return expected(edges, edges.start, steps), total


@njit(cache=True, nogil=True)
def nodes_of(edges: Edges, start: Array, steps: int) -> Array:
    """The chance that each opportunity is a node, for these chances of the first one."""
    chances = np.zeros(steps)
    for u in range(0, steps, edges.stride):
        if u < start.size:
            chances[u] += start[u]
        for kind in range(edges.number.size):
            if u + edges.jump[kind] < steps:
                for e in range(edges.first[kind], edges.first[kind + 1]):
                    chances[u + edges.jump[kind]] += chances[u] * edges.chance[e]
    return chances


@njit(cache=True, nogil=True)
def expected(edges: Edges, start: Array, steps: int) -> Array:
    """``E x_u`` for each opportunity, for these chances of the first node."""
    nodes, means = nodes_of(edges, start, steps), np.zeros(steps)
    for u in range(0, steps, edges.stride):
        for kind in range(edges.number.size):
            for e in range(edges.first[kind], edges.first[kind + 1]):
                means[u + edges.where[e]] += nodes[u] * edges.chance[e] * edges.number[kind]
    return means


@njit(cache=True, nogil=True)
def draw_start(rng: np.random.Generator, start: Array) -> int:
    """The first node."""
    return int(place_of(rng.random(), start))


@njit(cache=True, nogil=True, inline="always")
def draw_visits(rng: np.random.Generator, edges: Edges, counts: Array) -> None:
    """Add the participations of one history to ``counts``, edge by edge."""
    u = draw_start(rng, edges.start) if edges.start.size > 1 else 0
    while u < counts.size:
        e = draw_number(rng, edges.chance)
        kind = kind_of(edges.first, e)
        counts[u + edges.where[e]] += edges.number[kind]
        u += edges.jump[kind]


@njit(cache=True, nogil=True)
def kind_of(first: Integers, edge: int) -> int:
    """The kind of an edge, from the first one of each."""
    kind = first.size - 2
    while edge < first[kind]:
        kind -= 1
    return kind


@njit(cache=True, nogil=True)
def walk(rng: np.random.Generator, u: int, prob: float, min_sep: int, counts: Array) -> None:
    """Add the participations of an example that waits and is free at opportunity u, from there on.

    O(participations).
    """
    log_stay = np.log1p(-prob)
    while u < counts.size:
        tails = np.floor(np.log1p(-rng.random()) / log_stay)
        if tails >= counts.size - u:
            break
        u += int(tails)
        counts[u] += 1.0
        u += min_sep
