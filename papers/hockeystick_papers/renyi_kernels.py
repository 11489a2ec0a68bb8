"""Kernels of the excesses of moments: sums in the log domain; arrays in, arrays out."""

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.laws.law import Array


@kernel
def thinned_excess(orders: Array, log_rate: float, log_rest: float, precision: float, log_factorial: Array) -> Array:
    """log of ``sum_r C(a,r) (1-q)^(a-r) q^r (e^(g_r) - 1)`` for q < 1. O(sum of orders)."""
    result = np.empty(orders.size)
    for i in range(orders.size):
        a = int(orders[i])
        terms = np.empty(a - 1)
        for r in range(2, a + 1):
            growth = 0.5 * r * (r - 1.0) * precision
            binomial = log_factorial[a] - log_factorial[r] - log_factorial[a - r]
            terms[r - 2] = binomial + (a - r) * log_rest + r * log_rate + growth + np.log(-np.expm1(-growth))
        top = terms.max()
        result[i] = top + np.log(np.exp(terms - top).sum())
    return result


@kernel
def recurrence(growth: Array, log_excess: Array, count: float, log_factorial: Array) -> Array:
    """log of ``E X^n - 1``, X the mean of ``count`` copies, n = 0..N <= count + 1. O(N^2).

    Miller's recurrence divided by its own value for growth 0, where every moment is 1: with the non-negative weights
    ``w = (r (t+1) - n)/n C(n,r) t^-r``, which sum to 1, ``d_n = sum_r w (e^(g_r) (1 + d_(n-r)) - 1)``.
    """
    result = np.full(growth.size, -np.inf)
    log_count = np.log(count)
    terms = np.empty(growth.size)
    for n in range(2, growth.size):
        for r in range(1, n + 1):
            share = (r * (count + 1.0) - n) / n
            terms[r] = -np.inf
            if share > 0.0:
                weight = np.log(share) + log_factorial[n] - log_factorial[r] - log_factorial[n - r] - r * log_count
                terms[r] = weight + _log_sum(log_excess[r], growth[r] + result[n - r])
        result[n] = _log_total(terms[1 : n + 1])
    return result


@kernel
def convolved(a: Array, na: float, b: Array, nb: float, log_factorial: Array) -> Array:
    """log of ``E ((na A + nb B)/(na + nb))^n - 1`` from the logs a and b of ``E A^r - 1``, ``E B^r - 1``. O(N^2).

    ``d_n = sum_r C(n,r) w^r (1-w)^(n-r) (a_r + b_(n-r) + a_r b_(n-r))`` with w = na/(na + nb).
    """
    result = np.full(a.size, -np.inf)
    log_a, log_b = np.log(na / (na + nb)), np.log(nb / (na + nb))
    terms = np.empty(a.size)
    for n in range(2, a.size):
        for r in range(n + 1):
            weight = log_factorial[n] - log_factorial[r] - log_factorial[n - r] + r * log_a + (n - r) * log_b
            terms[r] = weight + _log_sum(_log_sum(a[r], b[n - r]), a[r] + b[n - r])
        result[n] = _log_total(terms[: n + 1])
    return result


@kernel
def _log_sum(a: float, b: float) -> float:
    """log(e^a + e^b)."""
    high, low = max(a, b), min(a, b)
    if low == -np.inf:
        return high
    return float(high + np.log1p(np.exp(low - high)))


@kernel
def _log_total(terms: Array) -> float:
    """log of the sum of e^terms."""
    top = terms.max()
    if top == -np.inf:
        return float(top)
    total = 0.0
    for term in terms:
        total += np.exp(term - top)
    return float(top + np.log(total))
