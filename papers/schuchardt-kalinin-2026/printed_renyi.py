"""The Renyi accountant of section 3: one integer order for both directions (Algorithm 3), Theorem 3.1.

Our ``bin_renyi`` uses all moments together and another bound for add, so it says nothing about how the paper's curves
lie. "As printed" means: Lemma 3.4, the larger of the two divergences *at the same order*, Theorem 3.1, and the sum of
equation (5). Algorithm 1 itself cannot be run as printed, not even for one band; three repairs are needed
(docs/theory/bins-moments.md): line 28 adds Delta to the new state's old weight instead of the incoming one's, lines 37
and 38 list the interaction across the seam as another summand instead of adding it to the exponent, and the last term
of (5) has the wrong sign.
"""

from itertools import combinations, product
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Array = NDArray[np.float64]


def algorithm_1(scaled: Array, bandwidth: int, largest: int) -> Array:
    """``log E X^a`` of the remove direction for a = 2..largest: exact for a cyclically banded Gram matrix, else above.

    With the three repairs of the module's docstring. Like the paper's loop it makes a pass for every prefix of
    ``bandwidth - 1`` counts: O(b largest^(2 bandwidth)) time, so it is for one band or tiny cases. One pass serves all
    orders.

    Args:
        scaled: ``G / sigma^2``, shape (b, b), with b > 2 (bandwidth - 1).
    """
    bins = scaled.shape[0]
    gap = np.abs(np.subtract.outer(np.arange(bins), np.arange(bins)))
    ring = np.minimum(gap, bins - gap)
    common = float(scaled[ring >= bandwidth].max(initial=0.0))
    band = np.where(ring < bandwidth, np.maximum(scaled - common, 0.0), 0.0)
    total = np.full(largest + 1, -np.inf)
    for prefix in product(range(largest + 1), repeat=bandwidth - 1):
        if sum(prefix) <= largest:
            total = np.logaddexp(total, _closed(band, prefix, largest))
    orders = np.arange(2, largest + 1)
    moments: Array = total[2:] + gammaln(orders + 1.0) - orders * log(bins) + common * orders * (orders - 1) / 2.0
    return moments


def _closed(band: Array, prefix: tuple[int, ...], largest: int) -> Array:
    """Logs of the weights of all counts that begin with a prefix, by their sum."""
    bins, kept = band.shape[0], len(prefix)
    weight = sum(band[i, j] * prefix[i] * prefix[j] for i, j in combinations(range(kept), 2))
    weight += sum(band[i, i] * r * (r - 1) / 2.0 - gammaln(r + 1.0) for i, r in enumerate(prefix))
    start = np.full(largest + 1, -np.inf)
    start[sum(prefix)] = weight
    states = {prefix: start}
    for k in range(kept, bins):
        grown: dict[tuple[int, ...], Array] = {}
        for window, logs in states.items():
            pull = sum(band[k, k - kept + i] * r for i, r in enumerate(window))
            for count in range(largest + 1):
                change = band[k, k] * count * (count - 1) / 2.0 + pull * count - gammaln(count + 1.0)
                moved = np.full(largest + 1, -np.inf)
                moved[count:] = logs[: largest + 1 - count] + change
                following = (*window, count)[1:] if kept else ()
                before = grown.get(following)
                grown[following] = moved if before is None else np.logaddexp(before, moved)
        states = grown
    total = np.full(largest + 1, -np.inf)
    for window, logs in states.items():
        seam = sum(band[i, bins - kept + j] * prefix[i] * r for i in range(kept) for j, r in enumerate(window))
        total = np.logaddexp(total, logs + seam)
    return total


def add_divergence(scaled: Array, orders: Array) -> Array:
    """Lemma 3.4: a bound on the Renyi divergence of the add direction."""
    bins = scaled.shape[0]
    divergence: Array = np.trace(scaled) / (2.0 * bins) + (orders - 1.0) * scaled.sum() / (2.0 * bins**2)
    return divergence


def printed_epsilons(log_moments: Array, orders: Array, add: Array, delta: float) -> tuple[float, float]:
    """epsilon by Algorithm 3, with the best order, and with a best order for each direction by itself.

    Args:
        log_moments: ``log E X^a`` of the remove direction at these orders.
        add: Renyi divergences of the add direction at these orders.
    """

    def smallest(divergence: Array) -> float:
        excess = (-log(delta) - np.log(orders - 1.0) + orders * np.log1p(-1.0 / orders)) / (orders - 1.0)
        return float((divergence + excess).min())

    remove = log_moments / (orders - 1.0)
    return smallest(np.maximum(remove, add)), max(smallest(remove), smallest(add))
