"""From moments of the likelihood ratio to privacy profiles, and the moments of negative order.

For a pair (P, Q) let ``X = dP/dQ(y)``, ``y ~ Q``. The moment of order a > 1 is

    remove:  M_a = E X^a         = exp((a-1) R_a(P || Q))
    add:     M_a = E X^(-(a-1))  = exp((a-1) R_a(Q || P))

with R_a the Renyi divergence. Runs that are independent multiply their moments, so ``log M_a`` adds up.

The shared parts are :class:`LogMoments` (upper bounds of ``log M_a``), :func:`moment_delta` (their profile),
:func:`enough_orders` (how many orders are worth computing) and :func:`log_negative_moments` (the add direction of
random allocation, where no theorem says that the remove direction dominates).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import atan, ceil, cos, exp, log, log1p, pi

import numpy as np
from scipy.special import gammaln, lambertw, ndtr

from hockeystick.bounds import Profile
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.types import Side

DENSE_ORDERS = 64
"""Every integer order up to here; above, orders grow by ``ORDER_RATIO`` where they cost something each."""
ORDER_RATIO = 1.04
SMALLEST_LOG_DELTA = -700.0
"""An upper bound must not underflow to 0."""


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


def moment_delta(moments: LogMoments, epsilon: float) -> float:
    """delta(epsilon) from moments: the best order, integer or not. O(orders).

    Formal guarantee: at least the true profile of the direction that the moments belong to. Markov's inequality with
    the best constant, ``(x - c)_+ <= x^a c^(1-a) (1-1/a)^a / (a-1)`` and
    ``(1 - c x)_+ <= x^(1-a) c^(1-a) (1-1/a)^a / (a-1)`` for x > 0, gives with c = e^epsilon

        delta(epsilon) <= M_a exp(-(a-1) epsilon) (1-1/a)^a / (a-1)    for every real a > 1.

    Between two orders ``log M_a`` is at most the chord, since it is convex in a (Hoelder); ``log M_1 = 0``. On a
    chord of slope m the exponent has the derivative ``m - epsilon + log(1-1/a)`` in a and is convex, so its minimum is
    a closed form, cut to the chord. Rounding of the exponent is bounded by the size of its terms and added.

    Reference: Canonne, Kamath, Steinke 2020, Proposition 12 (there for P and Q; the proof is the line above).
    """
    return exp(min(max(_best_exponent(moments, epsilon)[0], SMALLEST_LOG_DELTA), 0.0))


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


def enough_orders(compute: Callable[[int], LogMoments], largest: Iterable[int], smallest_delta: float) -> LogMoments:
    """``compute(largest order)`` with more and more orders, until the best order is not the largest one any more.

    Looked at where the profile is ``smallest_delta`` and ``1e-6``. Any number of orders is a valid bound.
    """
    moments = None
    for top in largest:
        moments = compute(top)
        last = float(moments.orders[-1])
        inside = True
        for delta in (smallest_delta, max(smallest_delta, 1e-6)):
            epsilon = smallest_epsilon(moment_profile(moments), delta, Side.UPPER, tolerance=1e-3)
            inside &= not 0.0 < epsilon < float("inf") or _best_exponent(moments, epsilon)[1] < last
        if inside:
            break
    if moments is None:
        raise ValueError("The 'largest' parameter of enough_orders must name at least one order. Got none instead.")
    return moments


def sparse_orders(largest: int) -> Array:
    """Integer orders from 2 to ``largest``: all of them at first, then growing by a fixed ratio."""
    orders = list(range(2, min(largest, DENSE_ORDERS) + 1))
    while orders[-1] < largest:
        orders.append(min(ceil(orders[-1] * ORDER_RATIO), largest))
    return np.array(orders, dtype=np.float64)


# --- E X^-s for X the average of ``bins`` independent lognormal likelihood ratios -------------------------------------

LOWEST_LOG_THETA = -40.0
LOG_REACH = 40.0
"""The grid in log theta ends where what is left is below e^-40 of the moment (it is bounded and added)."""
TARGET_DECAY = 240.0
"""The inner trapezoidal rule is off by less than e^-240."""
REACH = 21.0
MAX_NODES = 30_000
MAX_TABLE = 8_000_000


def log_negative_moments(noise_multiplier: float, bins: int, powers: Array) -> Array:
    """Upper bounds of ``log E_Q[X^-s]`` for 1-of-``bins`` allocation: the add direction's ``log M_(1+s)``.

    ``X = (X_1 + ... + X_t)/t`` with independent ``X_i = exp(tau y_i - tau^2/2)``, ``tau = 1/sigma``, y_i standard
    normal. With ``L(u) = E exp(-u X_1)``,

        E X^-s = 1/Gamma(s) int exp(s v) L(e^v / t)^t dv      (v = log theta over the whole line).

    Formal guarantee: never too small. Both integrals are trapezoidal sums with *proved* errors: if F is analytic for
    ``|Im v| < b`` and ``int |F(v + i c)| dv <= M`` for ``|c| < b``, the sum of step h is off by at most
    ``2 M / (exp(2 pi b/h) - 1)`` (Trefethen and Weideman 2014, Theorem 5.1).

    * Outer integral: ``|L(u e^(ic))| <= L(u cos c)``, so M is ``cos(b)^-s`` times the integral itself: the error is
      relative, and the sum is divided by one minus it. Left of the grid L <= 1; right of it the Chernoff bound below
      with a fixed order decreases geometrically. Both remainders are added.
    * Inner integral: see :func:`_log_laplace`.

    Always at most Jensen's ``E X_1^-s = exp(s (s+1) tau^2 / 2)``, which is exact for one bin.

    Args:
        noise_multiplier: sigma > 0.
        bins: t >= 1.
        powers: shape (n,), each s >= 1.

    Cost: some ten milliseconds whatever t; the number of nodes grows with sqrt(max s) / min(sigma, 1).
    """
    tau = 1.0 / noise_multiplier
    jensen: Array = 0.5 * powers * (powers + 1.0) * tau * tau * (1.0 + 8 * UNIT_ROUNDOFF)
    if bins == 1:
        return jensen
    largest = max(float(powers.max()), 32.0)
    step = 2.0 * pi / (80.0 * largest) ** 0.5
    nodes = _outer_nodes(tau, bins, largest, step)
    log_laplace, order = _log_laplace(tau, nodes - log(bins), step)
    decay = bins * log_laplace
    result = np.empty_like(jensen)
    size = abs(nodes[0]) + abs(nodes[-1]) + nodes.size
    for i, s in enumerate(powers):
        exponent = s * nodes + decay
        top = float(exponent.max())
        total = step * float(np.exp(exponent - top).sum())
        total += exp(s * float(nodes[0]) - top) / s
        surplus = bins * order - s
        # exp(surplus (v_last - v)) beyond the last node, from the Chernoff bound that holds there
        total += float(np.exp(exponent[-1] - top)) / surplus if surplus > 0.0 else float("inf")
        angle = atan(2.0 * pi / (step * s))
        relative = 2.0 * exp(min(-s * log(cos(angle)) - 2.0 * pi * angle / step, 0.0)) * (1.0 + 1e-6)
        if relative < 0.5 and total < float("inf"):
            rounding = 16 * UNIT_ROUNDOFF * (nodes.size + s * (size + log(s) + 1.0))
            result[i] = top + log(total) - float(gammaln(s)) - log1p(-relative) + rounding
        else:
            result[i] = float("inf")
    return np.minimum(jensen, np.maximum(result, 0.0))


def _chernoff(tau: float, log_u: Array) -> tuple[Array, Array]:
    """``log L(u) <= m (log m - 1 - log u) + m (m+1) tau^2 / 2``, from ``e^-x <= (m/(e x))^m``; and the order m > 0.

    Valid for every m; the best one solves ``m tau^2 exp(m tau^2) = tau^2 u exp(-tau^2/2)``.
    """
    argument = np.exp(np.minimum(2.0 * log(tau) + log_u - 0.5 * tau * tau, 600.0))
    order = np.maximum(lambertw(argument).real / (tau * tau), 1e-300)
    value = order * (np.log(order) - 1.0 - log_u) + 0.5 * order * (order + 1.0) * tau * tau
    return value + 32 * UNIT_ROUNDOFF * order * (np.abs(np.log(order)) + np.abs(log_u) + (order + 1.0) * tau * tau), order


def _outer_nodes(tau: float, bins: int, largest: float, step: float) -> Array:
    """Equidistant log theta, up to where the tail of the largest power is negligible (or the grid is too long)."""
    candidates = np.arange(LOWEST_LOG_THETA, LOWEST_LOG_THETA + MAX_NODES * step, 0.25)
    bound, order = _chernoff(tau, candidates - log(bins))
    small = (largest * candidates + bins * bound < float(gammaln(largest)) - LOG_REACH) & (bins * order > largest + 1.0)
    last = candidates[int(np.argmax(small))] if bool(small.any()) else candidates[-1]
    return LOWEST_LOG_THETA + step * np.arange(int((last - LOWEST_LOG_THETA) / step) + 2)


def _log_laplace(tau: float, log_u: Array, step: float) -> tuple[Array, float]:
    """Upper bounds of ``log L(u)`` at equidistant log u; the last is a Chernoff bound, whose order is returned.

    The trapezoidal rule in y, step h, strip b with ``tau b <= pi/3``: ``|exp(-u x e^(i tau c))| <= 1`` there, so
    L(u) is off by at most ``e`` and ``1 - L(u)`` by at most ``u e``, ``e = 2 exp(b^2/2) / (exp(2 pi b/h) - 1)``. For
    small u the second is used, so that ``t log L(u)`` keeps its relative accuracy for any t: nodes left out make
    ``1 - L`` too small, which is safe. In the first, what is left out is added. tau h is ``step`` divided by an
    integer, so all exponentials stand in one table.
    """
    bound, order = _chernoff(tau, log_u)
    strip = min(pi / (3.0 * tau), 8.0)
    wanted = 2.0 * pi * strip / (0.5 * strip * strip + TARGET_DECAY)
    finer = ceil(step / (tau * wanted))
    h = step / (finer * tau)
    count = ceil((REACH + max(REACH, tau + 10.0)) / h) + 1
    length = (log_u.size - 1) * finer + count
    if length > MAX_TABLE:
        return bound, float(order[-1])
    y = -REACH + h * np.arange(count)
    weights = h * np.exp(-0.5 * y * y) / (2.0 * pi) ** 0.5
    start = float(log_u[0]) - tau * REACH - 0.5 * tau * tau
    exponents = np.exp(np.minimum(start + (step / finer) * np.arange(length), 700.0))
    stays, leaves = np.exp(-exponents), -np.expm1(-exponents)
    error = 2.0 * exp(0.5 * strip * strip - 2.0 * pi * strip / h) * (1.0 + 1e-6)
    rounding = 8 * UNIT_ROUNDOFF * (count + abs(start) + tau * h * length + 16.0)
    laplace, defect = np.empty(log_u.size), np.empty(log_u.size)
    for i in range(log_u.size):
        laplace[i] = weights @ stays[i * finer : i * finer + count]
        defect[i] = weights @ leaves[i * finer : i * finer + count]
    left_out = 2.0 * float(ndtr(-(REACH - h))) + exp(-249.0)  # the two tails of y, and exponents above 250
    laplace = laplace * (1.0 + 300.0 * rounding) + left_out + error
    defect = defect * (1.0 - rounding) - np.exp(log_u) * (error + 1e-300)
    upper = np.log(np.minimum(laplace, 1.0)) * (1.0 - 4 * UNIT_ROUNDOFF)
    with np.errstate(invalid="ignore"):
        upper = np.where(defect < 0.5, np.log1p(-np.clip(defect, 0.0, 0.5)), upper)
    upper = np.minimum(upper, bound)
    upper[-1] = bound[-1]
    return np.minimum(upper, 0.0), float(order[-1])
