"""Kernels of any automaton of participations: how often an example takes part, and what its participations share."""

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.pairs.visits import Edges
from hockeystick.strategies.matrix.base import Array


@kernel
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


@kernel
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


@kernel
def expected(edges: Edges, start: Array, steps: int) -> Array:
    """``E x_u`` for each opportunity, for these chances of the first node."""
    nodes, means = nodes_of(edges, start, steps), np.zeros(steps)
    for u in range(0, steps, edges.stride):
        for kind in range(edges.number.size):
            for e in range(edges.first[kind], edges.first[kind + 1]):
                means[u + edges.where[e]] += nodes[u] * edges.chance[e] * edges.number[kind]
    return means
