"""The best bound on a profile that upper bounds of moments allow: all orders together, and the mean, which is known.

With the moments ``E X^k <= M_k`` of :mod:`.log_moments` and c = e^eps, for every

    f(x) = c_0 + c_1 x + sum_k c_k x^k >= (x - c)_+ on x >= 0,  c_k >= 0 for k > 1,  c_0 and c_1 of any sign,

``delta(eps) = E (X - c)_+ <= c_0 + c_1 + sum_k c_k M_k``. The best f has one or two orders and touches 0 at x_1 and
``x - c`` at x_2, ``x_1 < c < x_2``, the atoms of the worst law: a search over x_2 finds it. It is not trusted: f, in
doubles beta, w_k >= 0 and t_2 = log x_2,

    f(x) = alpha + beta (x - 1) + G(x),  G(x) = sum_k w_k e^(-(k-1) t_2) (x^k - 1 - k (x - 1)) >= 0,
    E f(X) <= alpha + sum_k w_k e^(-(k-1) t_2) (M_k - 1),

has alpha raised, or G scaled up, until it is proved feasible (:func:`_certified`).

Proofs: ``docs/theory/moments-to-profiles.md``.
"""

from dataclasses import dataclass
from functools import partial
from math import exp, expm1, inf, isfinite, log, log1p
from typing import NamedTuple

import numpy as np

from hockeystick.bounds import Profile
from hockeystick.compiling import kernel
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.moments.log_moments import LogMoments, moment_delta

LARGEST_LOG_RATIO = 300.0
"""Searches end here, far from the end of the range of doubles; at a larger epsilon the one-order bound stands."""
SMALLEST_STEP, LARGEST_STEP = 1e-9, 60.0
"""Range of ``log(x_2 / c)`` that is searched."""
COARSE = 40
"""Places of x_2 that are looked at first."""
GOLDEN_STEPS = 45
SMALLEST_LOG_MOMENT = 1e-290
"""No moment is taken to be smaller; its logarithm's logarithm would end."""
LEAST_ATOM = 1e-9
"""The lower atom is kept this far from 0, where its logarithm would end."""
TINY = 2.0**-1020
"""More than what one product loses to underflow."""
SMALLEST_BOUND = 1e-304
"""A smaller one may have lost digits to underflow."""
SMALLEST_CURVE = 1e-280
"""G is not scaled up where it is smaller than this at c."""
BRACKET = 1e-7
"""Width of the interval around x_2 in which the minimum is proved to lie, relative to ``1 - c / x_2``."""


def programme_profile(moments: LogMoments) -> Profile:
    """The profile of one direction from all moments together, never above :func:`.log_moments.moment_delta`.

    Formal guarantee: at least the true profile of the direction that the moments belong to, rounding included.

    Assumptions: the two distributions of the pair are mutually absolutely continuous (X has mean 1).

    Cost of each epsilon: about 50 evaluations of every order.
    """
    useful = _hull(moments)
    with np.errstate(divide="ignore"):
        log_excess = useful.values + np.log(-np.expm1(-useful.values))
    return partial(_delta, useful, log_excess)


def _hull(moments: LogMoments) -> LogMoments:
    """The orders below every chord, from order 1 with value 0 on: the others follow from them (Hoelder). O(orders)."""
    kept = [(1.0, 0.0)]
    for order, value in zip(moments.orders.tolist(), moments.values.tolist(), strict=True):
        if not isfinite(value):
            continue
        while len(kept) > 1 and (value - kept[-1][1]) * (kept[-1][0] - kept[-2][0]) <= (kept[-1][1] - kept[-2][1]) * (
            order - kept[-1][0]
        ):
            kept.pop()
        kept.append((order, max(value, SMALLEST_LOG_MOMENT)))
    return LogMoments(np.array([order for order, _ in kept[1:]]), np.array([value for _, value in kept[1:]]))


def _delta(moments: LogMoments, log_excess: Array, epsilon: float) -> float:
    one_order = moment_delta(moments, epsilon)
    if epsilon >= LARGEST_LOG_RATIO:
        return one_order
    bounds = [_certified(polynomial, epsilon).bound for polynomial in _candidates(moments.orders, log_excess, epsilon)]
    return min([one_order, *(max(bound, SMALLEST_BOUND) for bound in bounds)])


def _candidates(orders: Array, log_excess: Array, epsilon: float) -> list["_Polynomial"]:
    """Polynomials from the worst law: each tight order alone, and both together."""
    if orders.size == 0:
        return []
    log_mass, step, first, second = _worst_law(orders, log_excess, epsilon)
    gap = exp(log_mass) * expm1(epsilon + step) / -expm1(log_mass)  # 1 - x_1
    lower = log1p(-min(gap, 1.0 - LEAST_ATOM))
    if lower == 0.0:  # underflow
        return []
    a, b = ((float(orders[i]), float(log_excess[i])) for i in (min(first, second), max(first, second)))
    candidates = [_one_order(*a, lower, epsilon)]
    if first != second:
        candidates += [_one_order(*b, lower, epsilon), _two_orders(a, b, lower, epsilon + step, epsilon)]
    return candidates


@kernel
def _log_expm1(x: float) -> float:
    value: float = x + np.log(-np.expm1(-x))
    return value


@kernel
def _violation(order: float, log_excess: float, log_mass: float, log_upper: float) -> float:
    """How far the two-atom law exceeds the moment of this order, on a log scale; grows with the mass.

    ``p (x_2^k - 1) <= (M_k - 1) + (1 - p)(1 - x_1^k)``, the log of the left less that of the right.
    """
    mass = np.exp(log_mass)
    gap = min(mass * np.expm1(log_upper) / (1.0 - mass), 1.0 - 1e-15)  # 1 - x_1
    credit = -(1.0 - mass) * np.expm1(order * np.log1p(-gap))
    right = log_excess if credit <= 0.0 else np.logaddexp(log_excess, np.log(credit))
    return log_mass + _log_expm1(order * log_upper) - right


@kernel
def _largest_mass(order: float, log_excess: float, log_upper: float, highest: float) -> float:
    """log p at which the order becomes tight, by bisection; at most ``highest``."""
    low = min(log_excess - _log_expm1(order * log_upper), highest)
    high = highest
    if low >= high or _violation(order, log_excess, high, log_upper) <= 0.0:
        return high
    for _ in range(60):
        middle = 0.5 * (low + high)
        if _violation(order, log_excess, middle, log_upper) > 0.0:
            high = middle
        else:
            low = middle
        if high - low < 1e-14 * (1.0 + abs(low)):
            break
    return low


@kernel
def _allowed(orders: Array, log_excess: Array, log_upper: float, start: int) -> tuple[float, int]:
    """log p that all orders allow at x_2, and the tight order. O(orders), some passes."""
    active = start
    mass = _largest_mass(orders[active], log_excess[active], log_upper, -log_upper - 1e-15)
    for _ in range(20):
        worst, place = 1e-13, -1
        for i in range(orders.size):
            if mass + orders[i] * log_upper <= log_excess[i]:  # far from tight: x_2^k - 1 < x_2^k, no credit needed
                continue
            excess = _violation(orders[i], log_excess[i], mass, log_upper)
            if excess > worst:
                worst, place = excess, i
        if place < 0:
            break
        active = place
        mass = _largest_mass(orders[active], log_excess[active], log_upper, mass)
    return mass, active


@kernel
def _worst_law(orders: Array, log_excess: Array, epsilon: float) -> tuple[float, float, int, int]:
    """The two-atom law with the largest ``p (x_2 - c)``: log p, log(x_2 / c), and the orders tight on both sides.

    Golden-section search over ``log log(x_2 / c)`` within the best of ``COARSE`` equal parts.
    """
    start, stop = np.log(SMALLEST_STEP), np.log(LARGEST_STEP)
    active, best, where = 0, -np.inf, 0
    actives = np.zeros(COARSE + 1, dtype=np.int64)
    for i in range(COARSE + 1):
        step = np.exp(start + (stop - start) * i / COARSE)
        mass, active = _allowed(orders, log_excess, epsilon + step, active)
        actives[i] = active
        value = mass + step + np.log(-np.expm1(-step))
        if value > best:
            best, where = value, i
    before, after = max(where - 1, 0), min(where + 1, COARSE)
    left, right = start + (stop - start) * before / COARSE, start + (stop - start) * after / COARSE
    first, second = actives[before], actives[after]
    golden = 0.6180339887498949
    a, b = right - golden * (right - left), left + golden * (right - left)
    mass_a, active_a = _allowed(orders, log_excess, epsilon + np.exp(a), first)
    mass_b, active_b = _allowed(orders, log_excess, epsilon + np.exp(b), second)
    for _ in range(GOLDEN_STEPS):
        value_a = mass_a + np.exp(a) + np.log(-np.expm1(-np.exp(a)))
        value_b = mass_b + np.exp(b) + np.log(-np.expm1(-np.exp(b)))
        if value_a >= value_b:
            right, second = b, active_b
            b, mass_b, active_b = a, mass_a, active_a
            a = right - golden * (right - left)
            mass_a, active_a = _allowed(orders, log_excess, epsilon + np.exp(a), active_b)
        else:
            left, first = a, active_a
            a, mass_a, active_a = b, mass_b, active_b
            b = left + golden * (right - left)
            mass_b, active_b = _allowed(orders, log_excess, epsilon + np.exp(b), active_a)
    return mass_a, np.exp(a), first, second


@dataclass(frozen=True)
class _Polynomial:
    """f of the module's statement, before alpha and beta.

    Attributes:
        lower, upper: t_1 = log x_1 < 0 and t_2 = log x_2 > eps, where f should be tangent.
        terms: for each order k: k, w_k >= 0 and an upper bound of ``log(M_k - 1)`` up to its rounding.
    """

    lower: float
    upper: float
    terms: tuple[tuple[float, float, float], ...]


def _shape(order: float, lower: float, upper: float) -> tuple[float, float]:
    """Slope gained and height gained over the tangent at x_1, from x_1 to x_2, by ``x_2 (x / x_2)^k``; height / x_2."""
    log_ratio = lower - upper
    slope = -order * expm1((order - 1.0) * log_ratio)
    height = -expm1(order * log_ratio) + order * exp((order - 1.0) * log_ratio) * expm1(log_ratio)
    return slope, height


def _one_order(order: float, log_excess: float, lower: float, epsilon: float) -> _Polynomial:
    """One order alone: x_2 is moved until the tangents at x_1 and x_2 meet at c, by bisection."""

    def meets_before(log_step: float) -> bool:
        slope, height = _shape(order, lower, epsilon + exp(log_step))
        return height > -expm1(-exp(log_step)) * slope

    low, high = log(SMALLEST_STEP), log(LARGEST_STEP)
    while high - low > 1e-13:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if meets_before(middle) else (low, middle)
    upper = epsilon + exp(low)
    return _Polynomial(lower, upper, ((order, 1.0 / _shape(order, lower, upper)[0], log_excess),))


def _two_orders(
    first: tuple[float, float], second: tuple[float, float], lower: float, upper: float, epsilon: float
) -> _Polynomial:
    """The weights of two orders that make the tangents at x_1 and x_2 meet at c, both >= 0 where there are such."""
    rise = -expm1(epsilon - upper)
    (slope_a, height_a), (slope_b, height_b) = _shape(first[0], lower, upper), _shape(second[0], lower, upper)
    part_a, part_b = max(rise * slope_b - height_b, 0.0), max(height_a - rise * slope_a, 0.0)
    if part_a + part_b == 0.0:
        part_a = part_b = 1.0  # rounding; the certificate pays for what is not tangent
    scale = 1.0 / (part_a * slope_a + part_b * slope_b)
    return _Polynomial(lower, upper, ((first[0], part_a * scale, first[1]), (second[0], part_b * scale, second[1])))


class _Certificate(NamedTuple):
    """``f = alpha + beta (x - 1) + factor G``, proved feasible, and an upper bound of ``E f(X)``."""

    bound: float
    alpha: float = inf
    beta: float = 0.0
    factor: float = 1.0


def _certified(polynomial: _Polynomial, epsilon: float) -> _Certificate:
    """The polynomial with alpha raised, or G scaled up, until f is proved feasible; an infinite bound if that fails.

    ``rounding`` bounds the relative error of every term below; ``TINY`` is what underflow may take.
    """
    lower, upper, c_less_1 = polynomial.lower, polynomial.upper, expm1(epsilon)
    largest = max(term[0] for term in polynomial.terms)
    rounding = UNIT_ROUNDOFF * (64.0 + 16.0 * largest * (upper - lower + epsilon))

    def curve(t: float) -> tuple[float, float]:
        """G(e^t), t >= 0, and the sum of its terms' sizes."""
        parts = [
            (-w * exp((k - 1.0) * (t - upper) + t) * expm1(-k * t), w * exp(-(k - 1.0) * upper) * k * expm1(t))
            for k, w, _ in polynomial.terms
        ]
        return sum(a - b for a, b in parts), sum(a + b for a, b in parts)

    def slope(t: float) -> float:
        """G'(e^t), t >= 0: a sum of positive terms."""
        return sum(-k * w * exp((k - 1.0) * (t - upper)) * expm1(-(k - 1.0) * t) for k, w, _ in polynomial.terms)

    # f >= 0 on [0, c]: the tangent at x_1
    gap = -expm1(lower)
    beta = low_curve = low_size = price = lost = 0.0
    for k, w, log_excess in polynomial.terms:
        if log_excess - (k - 1.0) * upper > LARGEST_LOG_RATIO:
            return _Certificate(inf)
        c_k = w * exp(-(k - 1.0) * upper)
        beta -= c_k * k * expm1((k - 1.0) * lower)
        low_curve += c_k * (expm1(k * lower) + k * gap)
        low_size += c_k * (-expm1(k * lower) + k * gap)
        lost += 2.0 * k * TINY
        price += w * exp(log_excess - (k - 1.0) * upper) * (1.0 + UNIT_ROUNDOFF * (8.0 * abs(log_excess) + 64.0))
    tilt = (rounding * beta + lost) * (1.0 + c_less_1)
    alpha = max(beta * gap - low_curve + rounding * (beta * gap + low_size), 0.0) + lost + tilt
    price *= 1.0 + 2.0 * rounding

    # f >= x - c on [c, oo): slopes of proved signs on both sides of x_2
    width = BRACKET * -expm1(epsilon - upper)
    left, right = upper - width, upper + width
    left_slope, right_slope = slope(left), slope(right)
    fall = beta - 1.0 + left_slope - rounding * (beta + 1.0 + left_slope)
    if fall + 2.0 * rounding * (beta + 1.0 + left_slope) > 0.0:
        return _Certificate(inf)
    if beta - 1.0 + right_slope - rounding * (beta + 1.0 + right_slope) < 0.0:
        return _Certificate(inf)
    height, size = curve(left)
    x_less_1 = expm1(left)
    size += alpha + beta * x_less_1 + x_less_1 + c_less_1
    distance = exp(left) * expm1(right - left) * (1.0 + 16.0 * rounding)
    lowest = alpha + (beta - 1.0) * x_less_1 + c_less_1 + height - rounding * size + fall * distance
    lack = max(-lowest, 0.0)
    at_c, at_c_size = curve(epsilon)
    at_c -= rounding * at_c_size
    up = 1.0 + 64.0 * UNIT_ROUNDOFF
    if at_c > SMALLEST_CURVE and price / at_c < 1.0:
        factor = (1.0 + lack / at_c) * up
        return _Certificate((alpha + price * factor) * up, alpha, beta, factor)
    return _Certificate((alpha + price + lack) * up, (alpha + lack) * up, beta)
