"""Moments of the likelihood ratio at real orders, by trapezoidal sums with proved errors.

The sums converge exponentially (Trefethen and Weideman 2014, Theorem 5.1); what a finite grid leaves out is bounded and
added. Proofs: ``docs/theory/moments-to-profiles.md``.
"""

from math import atan, ceil, cos, exp, log, log1p, pi

import numpy as np
from scipy.special import gammaln, lambertw, log_ndtr, ndtr

from hockeystick.compiling import kernel
from hockeystick.laws.law import UNIT_ROUNDOFF, Array

LOWEST_LOG_THETA = -40.0
LOG_REACH = 40.0
"""The grid in log theta ends where what is left is below e^-40 of the moment (it is bounded and added)."""
TARGET_DECAY = 240.0
"""The inner trapezoidal rule is off by less than e^-240."""
REACH = 21.0
MAX_NODES = 30_000
MAX_TABLE = 8_000_000
MAX_WORK = 100_000_000
"""Beyond these (sigma below about 0.05 or above 1e4) only Chernoff's and Jensen's bounds are left: valid, but loose."""


def log_negative_moments(noise_multiplier: float, bins: int, powers: Array) -> Array:
    """Upper bounds of ``log E_Q[X^-s]`` for 1-of-``bins`` allocation: the add direction's ``log M_(1+s)``.

    ``X = (X_1 + ... + X_t)/t`` with independent ``X_i = exp(tau y_i - tau^2/2)``, ``tau = 1/sigma``, y_i standard
    normal. With ``L(u) = E exp(-u X_1)``,

        E X^-s = 1/Gamma(s) int exp(s v) L(e^v / t)^t dv      (v = log theta over the whole line).

    Formal guarantee: never too small, and at most Jensen's ``E X_1^-s = exp(s (s+1) tau^2 / 2)``, exact for one bin.

    Args:
        noise_multiplier: sigma > 0.
        bins: t >= 1.
        powers: shape (n,), each s > 0 (the grid gets long for tiny ones).

    Cost: some ten milliseconds whatever t; the number of nodes grows with sqrt(max s) / min(sigma, 1).
    """
    tau = 1.0 / noise_multiplier
    jensen: Array = 0.5 * powers * (powers + 1.0) * tau * tau * (1.0 + 8 * UNIT_ROUNDOFF)
    if bins == 1:
        return jensen
    largest = max(float(powers.max()), 32.0)
    step = 2.0 * pi / (80.0 * largest) ** 0.5
    lowest = LOWEST_LOG_THETA / min(float(powers.min()), 1.0)
    nodes = _outer_nodes(tau, bins, lowest, largest, step)
    log_laplace, order = _log_laplace(tau, nodes - log(bins), step)
    decay = bins * log_laplace
    result = np.empty_like(jensen)
    reach = abs(float(nodes[0])) + abs(float(nodes[-1]))
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
            rounding = 16 * UNIT_ROUNDOFF * (nodes.size + s * (reach + log(s) + 1.0))
            result[i] = top + log(total) - float(gammaln(s)) - log1p(-relative) + rounding
        else:
            result[i] = float("inf")
    return np.minimum(jensen, np.maximum(result, 0.0))


def _chernoff(tau: float, log_u: Array) -> tuple[Array, Array]:
    """``log L(u) <= m (log m - 1 - log u) + m (m+1) tau^2 / 2``, from ``e^-x <= (m/(e x))^m``; and the order m > 0.

    Valid for every m; the best one solves ``m tau^2 exp(m tau^2) = tau^2 u exp(-tau^2/2)``.
    """
    argument = np.exp(np.minimum(2.0 * log(tau) + log_u - 0.5 * tau * tau, 600.0))
    order: Array = np.maximum(np.real(np.asarray(lambertw(argument, 0))) / (tau * tau), 1e-300)
    value = order * (np.log(order) - 1.0 - log_u) + 0.5 * order * (order + 1.0) * tau * tau
    size = np.abs(np.log(order)) + np.abs(log_u) + (order + 1.0) * tau * tau
    return value + 32 * UNIT_ROUNDOFF * order * size, order


def _outer_nodes(tau: float, bins: int, lowest: float, largest: float, step: float) -> Array:
    """Equidistant log theta, up to where the tail of the largest power is negligible (or the grid is too long)."""
    candidates = np.arange(lowest, lowest + MAX_NODES * step, 0.25)
    bound, order = _chernoff(tau, candidates - log(bins))
    small = (largest * candidates + bins * bound < float(gammaln(largest)) - LOG_REACH) & (bins * order > largest + 1.0)
    last = candidates[int(np.argmax(small))] if bool(small.any()) else candidates[-1]
    return lowest + step * np.arange(int((last - lowest) / step) + 2, dtype=np.float64)


@kernel
def _spaced_sums(weights: Array, stays: Array, leaves: Array, stride: int, skip: int, rows: int) -> tuple[Array, Array]:
    """Sums of every ``skip``-th entry of both tables times the weights, from starts that are ``stride`` apart."""
    laplace, defect = np.zeros(rows), np.zeros(rows)
    for i in range(rows):
        place, first, second = i * stride, 0.0, 0.0
        for weight in weights:
            first += weight * stays[place]
            second += weight * leaves[place]
            place += skip
        laplace[i], defect[i] = first, second
    return laplace, defect


def _log_laplace(tau: float, log_u: Array, step: float) -> tuple[Array, float]:
    """Upper bounds of ``log L(u)`` at equidistant log u; the last is a Chernoff bound, whose order is returned.

    tau h is ``step`` divided or multiplied by an integer, so all exponentials stand in one table.
    """
    bound, order = _chernoff(tau, log_u)
    strip = min(pi / (3.0 * tau), 8.0)
    wanted = 2.0 * pi * strip / (0.5 * strip * strip + TARGET_DECAY)
    finer, coarser = ceil(step / (tau * wanted)), max(1, int(tau * wanted / step))  # one of them is 1
    h = step * coarser / (finer * tau)
    count = ceil((REACH + max(REACH, tau + 10.0)) / h) + 1
    length = (log_u.size - 1) * finer + (count - 1) * coarser + 1
    if length > MAX_TABLE or log_u.size * count > MAX_WORK:
        return bound, float(order[-1])
    y = -REACH + h * np.arange(count)
    weights = h * np.exp(-0.5 * y * y) / (2.0 * pi) ** 0.5
    start = float(log_u[0]) - tau * REACH - 0.5 * tau * tau
    exponents = np.exp(np.minimum(start + (step / finer) * np.arange(length), 700.0))
    stays, leaves = np.exp(-exponents), -np.expm1(-exponents)
    error = 2.0 * exp(0.5 * strip * strip - 2.0 * pi * strip / h) * (1.0 + 1e-6)
    rounding = 8 * UNIT_ROUNDOFF * (count + abs(start) + (step / finer) * length + 2.0 * REACH * REACH)
    laplace, defect = _spaced_sums(weights, stays, leaves, finer, coarser, log_u.size)
    left_out = 2.0 * float(ndtr(-(REACH - h))) + exp(-249.0)  # the two tails of y, and exponents above 250
    laplace = laplace * (1.0 + 300.0 * rounding) + left_out + error
    defect = defect * (1.0 - rounding) - np.exp(np.minimum(log_u, 600.0)) * (error + 1e-300)
    upper = np.log(np.minimum(laplace, 1.0)) * (1.0 - 4 * UNIT_ROUNDOFF)
    with np.errstate(invalid="ignore"):
        upper = np.where(defect < 0.5, np.log1p(-np.clip(defect, 0.0, 0.5)), upper)
    upper = np.minimum(np.minimum(upper, bound), 0.0)
    upper[-1] = bound[-1]
    return upper, float(order[-1])


SERIES_TERMS = 14
SERIES_REACH = 0.1


def log_thinned_excess(noise_multiplier: float, sampling_prob: float, orders: Array) -> Array:
    """Upper bounds of ``log(E U^a - 1)`` for ``U = 1 - q + q X``, X the ratio of one Gaussian step, real a > 1.

    It is summed as ``E [U^a - 1 - a (U - 1)]``, whose integrand is non-negative: the excess has a small relative error.

    Args:
        noise_multiplier: sigma > 0.
        sampling_prob: q in (0, 1).
        orders: shape (n,), each a > 1, not close to 1 (the rounding grows like 1/(a-1)).

    Cost: O(nodes) for every order, nodes about 100 + 40 a / sigma^2.
    """
    tau, q = 1.0 / noise_multiplier, sampling_prob
    strip = min(pi / (3.0 * tau), 4.0)
    h = 2.0 * pi * strip / (0.5 * strip * strip + 62.0)
    relative = 2.0 * exp(0.5 * strip * strip - 2.0 * pi * strip / h) * (1.0 + 1e-6)
    left = 20.0
    result = np.empty(orders.size)
    for i, a in enumerate(orders):
        growth = 0.5 * a * (a - 1.0) * tau * tau
        right = a * tau + (2.0 * (40.0 - a * log(q))) ** 0.5
        y = np.arange(-left, right + h, h)
        x = tau * y - 0.5 * tau * tau
        with np.errstate(over="ignore"):
            w = q * np.expm1(x)
        # log U also where e^x overflows
        log_u = np.where(x < 600.0, np.log1p(np.where(x < 600.0, w, 0.0)), log(q) + x)
        log_term = _log_convex_gap(log_u, w, float(a)) + log(h) - 0.5 * y * y - 0.5 * log(2.0 * pi)
        top = float(log_term.max())
        log_sum = top + log(float(np.exp(log_term - top).sum()))
        # U <= e^x to the right of 0, and the integrand is at most a q to the left of it
        tails = np.logaddexp(growth + float(log_ndtr(h - right + a * tau)), log(a * q) + float(log_ndtr(h - left)))
        absolute = log(4.0 * relative) + log(q * q * a * (a - 1.0)) + a * log1p(q)
        log_sum = float(np.logaddexp(np.logaddexp(log_sum, tails), absolute)) - log1p(-6.0 * relative)
        size = y.size + 500.0 + right * right + a * (right + tau) * tau + growth + 1.0 / (a - 1.0) / SERIES_REACH
        result[i] = log_sum + 16 * UNIT_ROUNDOFF * size
    return result


def _log_convex_gap(log_u: Array, w: Array, a: float) -> Array:
    """log of ``(1+w)^a - 1 - a w`` >= 0, w > -1, with a small relative error everywhere."""
    small = np.abs(w) < SERIES_REACH / max(a, 1.0)
    near = np.where(small, w, 0.0)
    coefficient, series, power = 0.5 * a * (a - 1.0), np.zeros_like(w), np.ones_like(w)
    for k in range(2, SERIES_TERMS + 2):
        series += coefficient * power
        coefficient *= (a - k) / (k + 1.0)
        power = power * near
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        far = np.exp(np.minimum(a * log_u, 600.0)) - 1.0 - a * np.where(np.isfinite(w), w, 0.0)
        return np.where(
            small,
            np.log(series) + 2.0 * np.log(np.abs(near)),
            np.where(a * log_u > 600.0, a * log_u, np.log(far)),
        )


AVERAGED_STEP = 0.15


@kernel
def _tilted(log_ratio: Array, count: float, log_factorial: Array) -> Array:
    """log of ``N! t^-N [z^N] (sum_r z^r rho_r / r!)^t`` for every row of log rho (rho_0 = 1), N = 0..columns-1 <= t+1.

    Miller's recurrence with the same non-negative weights as for the moments themselves.
    """
    rows, columns = log_ratio.shape
    result = np.zeros((rows, columns))
    log_count = np.log(count)
    terms = np.empty(columns)
    for i in range(rows):
        for n in range(1, columns):
            for r in range(1, n + 1):
                share = (r * (count + 1.0) - n) / n
                weight = log_factorial[n] - log_factorial[r] - log_factorial[n - r] - r * log_count
                log_share = np.log(share) if share > 0.0 else -np.inf
                terms[r] = log_share + weight + log_ratio[i, r] + result[i, n - r]
            top = terms[1 : n + 1].max()
            result[i, n] = top + np.log(np.exp(terms[1 : n + 1] - top).sum())
    return result


def log_averaged_moments(noise_multiplier: float, bins: int, orders: Array, log_moments: Array) -> Array:
    """Upper bounds of ``log E_Q X^a`` for 1-of-``bins`` allocation at orders a that are not integers.

    With ``N = ceil(a) + 1`` and ``s = N - a`` in (1, 2), a trapezoidal sum as in :func:`log_negative_moments` of

        E X^a = E X^N X^-s = 1/Gamma(s) int exp(s v) E[X^N exp(-e^v X)] dv.

    Args:
        noise_multiplier: sigma > 0.
        bins: t >= ceil(max a).
        orders: shape (n,), each a > 1, no integers.
        log_moments: upper bounds of ``log E X^r`` for r = 0..ceil(max a) + 1.

    Cost: O(highest order * nodes of the inner sum * nodes of the outer one), some 20 ms at sigma = 1.
    """
    tau = 1.0 / noise_multiplier
    highest = ceil(float(orders.max())) + 1
    powers = np.ceil(orders) + 1.0
    start = LOWEST_LOG_THETA - float(np.max(log_moments[2 : highest + 1] - log_moments[: highest - 1]))
    stop = 2.0
    while float(np.max(_right_of_grid(tau, powers - orders, powers, stop))) > -LOG_REACH:
        stop += 1.0
    nodes = start + AVERAGED_STEP * np.arange(ceil((stop - start) / AVERAGED_STEP) + 1, dtype=np.float64)
    r = np.arange(highest + 1, dtype=np.float64)
    log_factorial = gammaln(r + 1.0)
    growth = 0.5 * r * (r - 1.0) * tau * tau
    tilted = np.empty((nodes.size, highest + 1))
    for j in range(highest + 1):
        tilted[:, j] = growth[j] + _log_laplace(tau, nodes - log(bins) + j * tau * tau, AVERAGED_STEP)[0]
    ratio = tilted - tilted[:, :1]
    inner = _tilted(ratio, float(bins), log_factorial) + bins * tilted[:, :1]
    size = 3.0 * log_factorial[-1] + highest * log(bins + 1.0) + np.abs(ratio).max(axis=1) + growth[-1] + 8.0
    inner += (16 * UNIT_ROUNDOFF * (highest + 1.0) * size)[:, None]
    result = np.empty(orders.size)
    for i, (a, power) in enumerate(zip(orders, powers, strict=True)):
        s = float(power - a)
        exponent = s * nodes + inner[:, int(power)]
        top = float(exponent.max())
        log_sum = top + log(AVERAGED_STEP * float(np.exp(exponent - top).sum()))
        log_sum = float(np.logaddexp(log_sum, s * nodes[0] + log_moments[int(power)] - log(s)))
        right = _right_of_grid(tau, np.array([s]), np.array([power]), float(nodes[-1]))
        log_sum = float(np.logaddexp(log_sum, right[0]))
        angle = atan(2.0 * pi / (AVERAGED_STEP * s))
        relative = 2.0 * exp(-s * log(cos(angle)) - 2.0 * pi * angle / AVERAGED_STEP) * (1.0 + 1e-6)
        rounding = 16 * UNIT_ROUNDOFF * (nodes.size + s * (abs(float(nodes[0])) + abs(float(nodes[-1])) + 1.0))
        result[i] = log_sum - float(gammaln(s)) - log1p(-relative) + rounding
    return result


def _right_of_grid(tau: float, s: Array, powers: Array, last: float) -> Array:
    """log of a bound of the sum of ``exp(s v) E[X^N exp(-e^v X)]`` over all nodes v > last, N = ``powers`` >= s."""
    extra = np.arange(61.0)
    m = powers[:, None] + extra
    bound = (s[:, None] - m) * last + m * (np.log(m) - 1.0) + 0.5 * extra * (extra + 1.0) * tau * tau
    best: Array = np.min(bound - np.log(m - s[:, None]), axis=1)
    return best + 1e-9
