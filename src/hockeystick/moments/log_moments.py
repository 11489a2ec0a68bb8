"""From moments of the likelihood ratio to privacy profiles.

For a pair (P, Q) let ``X = dP/dQ(y)``, ``y ~ Q``. The moment of order a > 1 is

    remove:  M_a = E X^a         = exp((a-1) R_a(P || Q))
    add:     M_a = E X^(-(a-1))  = exp((a-1) R_a(Q || P))

with R_a the Renyi divergence. Runs that are independent multiply their moments, so ``log M_a`` adds up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil, exp

import numpy as np

from hockeystick.bounds import Profile
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.types import Side

DENSE_ORDERS = 64
"""Every integer order up to here; above, orders grow by ``ORDER_RATIO`` where they cost something each."""
ORDER_RATIO = 1.04
SMALLEST = 2.0**-1074
"""The smallest double, by which deltas that small are rounded; chains of users multiply them by up to e^700."""


@dataclass(frozen=True, eq=False)
class LogMoments:
    """Upper bounds of ``log M_a`` for one direction.

    Attributes:
        orders: shape (n,), strictly increasing, > 1.
        values: shape (n,), each at least ``log M_a`` (rounding included), possibly infinite.
    """

    orders: Array
    values: Array

    def times(self, count: int) -> "LogMoments":
        """``count`` independent runs. One product, rounded up."""
        return LogMoments(self.orders, self.values * (count * (1.0 + 4 * UNIT_ROUNDOFF)))

    def plus(self, other: "LogMoments") -> "LogMoments":
        """Both runs, independently; the orders must be the same. One sum, rounded up."""
        return LogMoments(self.orders, (self.values + other.values) * (1.0 + 4 * UNIT_ROUNDOFF))

    def merged(self, other: "LogMoments") -> "LogMoments":
        """The orders of both; no order may be in both."""
        orders = np.concatenate([self.orders, other.orders])
        order = np.argsort(orders)
        return LogMoments(orders[order], np.concatenate([self.values, other.values])[order])


def moment_delta(moments: LogMoments, epsilon: float) -> float:
    """delta(epsilon) from moments: the best order, integer or not. O(orders).

    Formal guarantee: at least the true profile of the direction that the moments belong to. Markov's inequality with
    the best constant, ``(x - c)_+ <= x^a c^(1-a) (1-1/a)^a / (a-1)`` and
    ``(1 - c x)_+ <= x^(1-a) c^(1-a) (1-1/a)^a / (a-1)`` for x > 0, gives with c = e^epsilon

        delta(epsilon) <= M_a exp(-(a-1) epsilon) (1-1/a)^a / (a-1)    for every real a > 1.

    Between two orders ``log M_a`` is at most the chord, since it is convex in a (Hoelder); ``log M_1 = 0``. On a
    chord of slope m the exponent has the derivative ``m - epsilon + log(1-1/a)`` in a and is convex, so its minimum is
    a closed form, cut to the chord. Rounding is bounded and added.

    Reference: Canonne, Kamath, Steinke 2020, Proposition 12.
    """
    return min(exp(min(_best_exponent(moments, epsilon)[0], 0.0)) + SMALLEST, 1.0)


def moment_profile(moments: LogMoments) -> Profile:
    """The profile of one direction, see :func:`moment_delta`."""
    return partial(moment_delta, moments)


def _best_exponent(moments: LogMoments, epsilon: float) -> tuple[float, float]:
    """The smallest log delta over all orders, and its order."""
    known = np.isfinite(moments.values)
    orders = np.concatenate([[1.0], moments.orders[known]])
    values = np.concatenate([[0.0], moments.values[known]])
    if orders.size == 1:
        return 0.0, 1.0
    slopes = np.diff(values) / np.diff(orders)
    with np.errstate(over="ignore", divide="ignore"):
        best = np.where(slopes > epsilon, -1.0 / np.expm1(np.minimum(epsilon - slopes, 0.0)), np.inf)
    left, right = np.maximum(orders[:-1], 1.0 + 1e-9), orders[1:]
    order = np.clip(best, left, right)
    moment = values[:-1] + slopes * (order - orders[:-1])
    constant = order * np.log1p(-1.0 / order) - np.log(order - 1.0)
    size = 1.0 + np.abs(values[:-1]) + np.abs(values[1:]) + order * (epsilon + 1.0 / (order - 1.0) + 1.0)
    exponent = moment - (order - 1.0) * epsilon + constant + 16 * UNIT_ROUNDOFF * size
    place = int(np.argmin(exponent))
    return float(exponent[place]), float(order[place])


def enough_orders(compute: Callable[[int], LogMoments], first: int, *more: int, smallest_delta: float) -> LogMoments:
    """``compute(largest order)`` for the first, then for more orders, until the best order is not the largest one.

    Looked at where the profile is ``smallest_delta`` and 1e-6. Any number of orders is a valid bound.
    """
    moments = compute(first)
    for top in more:
        if not any(_wants_more(moments, delta) for delta in {smallest_delta, max(smallest_delta, 1e-6)}):
            break
        moments = compute(top)
    return moments


def _wants_more(moments: LogMoments, delta: float) -> bool:
    epsilon = smallest_epsilon(moment_profile(moments), delta, Side.UPPER, tolerance=1e-3)
    return 0.0 < epsilon < float("inf") and _best_exponent(moments, epsilon)[1] == float(moments.orders[-1])


def sparse_orders(largest: int) -> Array:
    """Integer orders from 2 to ``largest``: all of them at first, then growing by a fixed ratio."""
    orders = list(range(2, min(largest, DENSE_ORDERS) + 1))
    while orders[-1] < largest:
        orders.append(min(ceil(orders[-1] * ORDER_RATIO), largest))
    return np.array(orders, dtype=np.float64)
