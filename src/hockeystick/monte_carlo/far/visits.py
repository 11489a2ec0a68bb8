"""Draws of when one example, or user, takes part, from the edges of :mod:`hockeystick.pairs.visits`."""

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.monte_carlo.arrays import Array, Integers
from hockeystick.monte_carlo.draws import draw_number, place_of
from hockeystick.pairs.visits import Edges


@kernel
def draw_start(rng: np.random.Generator, start: Array) -> int:
    """The first node."""
    return int(place_of(rng.random(), start))


@kernel(inline="always")
def draw_visits(rng: np.random.Generator, edges: Edges, counts: Array) -> None:
    """Add the participations of one history to ``counts``, edge by edge."""
    u = draw_start(rng, edges.start) if edges.start.size > 1 else 0
    while u < counts.size:
        e = draw_number(rng, edges.chance)
        kind = kind_of(edges.first, e)
        counts[u + edges.where[e]] += edges.number[kind]
        u += edges.jump[kind]


@kernel
def kind_of(first: Integers, edge: int) -> int:
    """The kind of an edge, from the first one of each."""
    kind = first.size - 2
    while edge < first[kind]:
        kind -= 1
    return kind


@kernel
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
