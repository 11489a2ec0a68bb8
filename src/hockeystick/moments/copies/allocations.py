"""Copies of a random allocation that are joined at some steps: their moment, and the chances of who is joined.

Proof: docs/theory/monte-carlo/allocations.md. Sums of positive terms.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import comb, exp, expm1, log1p

import numpy as np

from hockeystick.laws.law import Array


@dataclass(frozen=True)
class Joined:
    """How ``order`` copies of an allocation are joined: at each step independently, or not at all.

    Attributes:
        log_zeta: log of the sum of the weights at a step.
        more: ``more[i]``, the chance that more than i copies are joined at a step where at least i are, i not 1; shape
            (order + 1,).
    """

    log_zeta: float
    more: Array


@lru_cache(maxsize=256)
def copies_of(order: int, rate: float, sigma: float) -> Joined:
    """The weights are ``u_i binomial(order, i) rate^i`` for i joined copies. O(order^3)."""
    joined = joined_weights(order, sigma)
    weights = np.array([joined[size] * comb(order, size) * rate**size for size in range(order + 1)])
    weights[0] = 0.0
    beyond = np.append(np.cumsum(weights[::-1])[::-1], 0.0)  # of at least so many
    more = np.zeros(order + 1)
    more[0] = beyond[0] / (1.0 + beyond[0])
    more[2:] = np.divide(beyond[3:], beyond[2:-1], out=np.zeros(order - 1), where=beyond[2:-1] > 0.0)
    return Joined(log1p(beyond[0]), more)


def joined_weights(order: int, sigma: float) -> list[float]:
    """``u_0, ..., u_order`` with ``sum_i binomial(j, i) u_i = e^(j (j - 1) / (2 sigma^2))`` for all j. O(order^3).

    u_i is the sum over all graphs on i vertices without an isolated one, each edge of the weight
    ``e^(1/sigma^2) - 1``: vertices are added one after the other, and all terms are positive.
    """
    pull = 1.0 / sigma**2
    edge = expm1(pull)
    isolated = np.zeros(order + 2)  # weights by the number of isolated vertices
    isolated[0] = 1.0
    weights = [1.0]
    for vertices in range(order):
        grown = np.zeros(order + 2)
        for alone in range(vertices + 1):
            grown[alone + 1] += isolated[alone]
            grown[alone] += isolated[alone] * expm1(pull * (vertices - alone))
            for taken in range(1, alone + 1):
                ways = comb(alone, taken) * edge**taken * exp(pull * (vertices - alone))
                grown[alone - taken] += isolated[alone] * ways
        isolated = grown
        weights.append(float(isolated[0]))
    return weights
