"""Independent references for the law engine: slow, obvious, and in exact or 60-digit arithmetic.

Nothing here calls the engine, except ``assert_bracketed``, which reads the two bounds that are being checked.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement
from math import factorial, log, prod
from typing import Any

import mpmath as mp
import numpy as np
from scipy.optimize import minimize_scalar

from hockeystick.laws.law import UNIT_ROUNDOFF, Law
from hockeystick.laws.profile import law_delta
from hockeystick.types import Direction, Side

mp.mp.dps = 60

Exact = Callable[[float, Direction], mp.mpf]


def assert_bracketed(
    upper: Law,
    lower: Law,
    exact: Exact,
    epsilons: Iterable[float],
    *,
    gap: float,
    from_delta: float = 1e-30,
) -> None:
    """lower <= exact <= upper everywhere, and both within ``gap`` (relative) where delta >= ``from_delta``."""
    for direction in Direction:
        for epsilon in epsilons:
            truth = exact(epsilon, direction)
            above = law_delta(upper, epsilon, direction)
            below = law_delta(lower, epsilon, direction)
            where = f"at epsilon {epsilon!r}, {direction}: lower {below!r}, exact {mp.nstr(truth, 17)}, upper {above!r}"
            assert below <= truth, f"The lower bound is above the truth {where}"
            assert above >= truth, f"The upper bound is below the truth {where}"
            if truth >= from_delta:
                assert above <= truth * (1 + gap), f"The upper bound is looser than {gap} {where}"
                assert below >= truth * (1 - gap), f"The lower bound is looser than {gap} {where}"


# --- Gaussians -----------------------------------------------------------------------------------------------------


def gaussian_delta(mu: float, epsilon: float) -> mp.mpf:
    """Balle and Wang (2018, Theorem 8): Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu). Both directions."""
    mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


def mixture_delta(weights: Sequence[float], shifts: Sequence[float], epsilon: float, direction: Direction) -> mp.mpf:
    """H(P||Q) or H(Q||P) for P = sum_k w_k N(mu_k, 1), mu_k >= 0, Q = N(0, 1), straight from the two cdfs.

    The ratio increases in y, so the best test rejects on one side of the y* where it equals e^eps (or e^-eps); y* is
    found by bisection. At y* the value is stationary, so an error d in y* costs only O(d^2).
    """
    weights = [mp.mpf(w) / mp.fsum(weights) for w in weights]
    shifts = [mp.mpf(s) for s in shifts]

    def ratio(y: mp.mpf) -> mp.mpf:
        return mp.fsum(w * mp.exp(s * y - s * s / 2) for w, s in zip(weights, shifts, strict=True))

    c = mp.exp(mp.mpf(epsilon))
    level = c if direction is Direction.REMOVE else 1 / c
    low, high = mp.mpf(-300), mp.mpf(300)
    for _ in range(160):
        middle = (low + high) / 2
        low, high = (middle, high) if ratio(middle) < level else (low, middle)
    if direction is Direction.REMOVE:
        p = mp.fsum(w * mp.ncdf(s - low) for w, s in zip(weights, shifts, strict=True))
        return max(p - c * mp.ncdf(-low), mp.mpf(0))
    p = mp.fsum(w * mp.ncdf(low - s) for w, s in zip(weights, shifts, strict=True))
    return max(mp.ncdf(low) - c * p, mp.mpf(0))


def lognormal_call(mu: float, strike: mp.mpf) -> mp.mpf:
    """E (X - k)_+ for the ratio X of N(mu, 1) against N(0, 1) (the Black-Scholes formula)."""
    if strike <= 0:
        return 1 - strike
    y = mp.log(strike) / mu
    return mp.ncdf(mu / 2 - y) - strike * mp.ncdf(-mu / 2 - y)


def lognormal_put(mu: float, strike: mp.mpf) -> mp.mpf:
    """E (k - X)_+ for the same X."""
    if strike <= 0:
        return mp.mpf(0)
    y = mp.log(strike) / mu
    return strike * mp.ncdf(y + mu / 2) - mp.ncdf(y - mu / 2)


def average_of_two_delta(mu: float, epsilon: float, direction: Direction) -> mp.mpf:
    """The profile of (X_1 + X_2) / 2: one copy integrated out in closed form, the other by quadrature."""
    c = mp.exp(mp.mpf(epsilon))

    def integrand(y: mp.mpf) -> mp.mpf:
        x = mp.exp(mu * y - mp.mpf(mu) ** 2 / 2)
        if direction is Direction.REMOVE:
            return mp.npdf(y) * lognormal_call(mu, 2 * c - x) / 2
        return mp.npdf(y) * c * lognormal_put(mu, 2 / c - x) / 2

    with mp.workdps(25):
        return mp.quad(integrand, mp.linspace(-12, 12 + 2 * mu, 13))


# --- Discrete pairs, by enumeration --------------------------------------------------------------------------------


def hand_built(support: Sequence[float], mass: Sequence[float], p_inf: float, side: Side) -> Law:
    """A law typed in by hand, good to a few roundings."""
    return Law(np.array(support), np.array(mass), p_inf, side, 8 * UNIT_ROUNDOFF, 8 * UNIT_ROUNDOFF)


def enumerated_delta(
    atoms: Sequence[tuple[Fraction, Fraction]],
    copies: int,
    combine: Callable[[Sequence[Fraction]], Fraction],
    epsilon: float,
    direction: Direction,
) -> mp.mpf:
    """The profile of ``combine(X_1..X_t)`` for independent discrete X_i, by going through all multisets of atoms.

    ``atoms`` are (ratio, Q-mass); the P-mass that is missing from sum of ratio * Q-mass counts as p_inf.
    """
    c = mp.exp(mp.mpf(epsilon))
    total, p_mass = mp.mpf(0), Fraction(0)
    for chosen in combinations_with_replacement(range(len(atoms)), copies):
        count = factorial(copies) // prod(factorial(chosen.count(k)) for k in set(chosen))
        q = count * prod(atoms[k][1] for k in chosen)
        ratio = combine([atoms[k][0] for k in chosen])
        p_mass += q * ratio
        x = mp.mpf(ratio.numerator) / ratio.denominator
        value = x - c if direction is Direction.REMOVE else 1 - c * x
        total += max(value, mp.mpf(0)) * q.numerator / q.denominator
    escaped = 1 - p_mass
    if direction is Direction.REMOVE:
        total += mp.mpf(escaped.numerator) / escaped.denominator
    return total


# --- The kernels, pair by pair -------------------------------------------------------------------------------------


def _exactly(values: Iterable[float]) -> list[Fraction]:
    return [Fraction(float(v)) for v in values]


def visited_pairs(g, mass_g, h, mass_h, product: bool, skip: float) -> tuple[list, Fraction, Fraction]:
    """All pairs (ratio, Q-mass) that are not skipped, and the Q- and P-mass of those that are.

    A row skips its longest prefix and its longest suffix of partners with both masses below ``skip``.
    """
    g, mass_g, h, mass_h = map(_exactly, (g, mass_g, h, mass_h))
    threshold = Fraction(skip)
    visited, skipped_q, skipped_p = [], Fraction(0), Fraction(0)
    for x, m in zip(g, mass_g, strict=True):
        row = [((x * y if product else x + y), m * w) for y, w in zip(h, mass_h, strict=True)]

        def negligible(part: list) -> bool:
            return sum(q for _, q in part) < threshold and sum(r * q for r, q in part) < threshold

        first = max(k for k in range(len(row) + 1) if k == 0 or negligible(row[:k]))
        last = min(k for k in range(len(row) + 1) if k == len(row) or negligible(row[k:]))
        last = max(first, last)
        visited += row[first:last]
        for ratio, q in row[:first] + row[last:]:
            skipped_q += q
            skipped_p += ratio * q
    return visited, skipped_q, skipped_p


def _cell_of(grid: list[Fraction], ratio: Fraction) -> int:
    return max(k for k in range(len(grid)) if grid[k] <= ratio or k == 0)


def spread_oracle(pairs: list, grid) -> tuple[list[Fraction], Fraction]:
    """Split every pair linearly between its two nodes; above the grid the excess P-mass is infinite."""
    grid = _exactly(grid)
    out, p_inf = [Fraction(0)] * len(grid), Fraction(0)
    for ratio, q in pairs:
        k = _cell_of(grid, ratio)
        if k == len(grid) - 1:
            out[k] += q
            p_inf += q * (ratio - grid[k])
        else:
            share = (ratio - grid[k]) / (grid[k + 1] - grid[k])
            out[k] += q * (1 - share)
            out[k + 1] += q * share
    return out, p_inf


def contract_oracle(pairs: list, grid) -> tuple[list[Fraction], list[Fraction]]:
    """Q- and P-mass of every cell."""
    grid = _exactly(grid)
    out_q, out_p = [Fraction(0)] * len(grid), [Fraction(0)] * len(grid)
    for ratio, q in pairs:
        k = _cell_of(grid, ratio)
        out_q[k] += q
        out_p[k] += q * ratio
    return out_q, out_p


# --- Poisson sampling far out --------------------------------------------------------------------------------------


def contour_delta(rate: float, steps: int, sigma: float, epsilon: float) -> float:
    """H(P||Q) of Poisson-subsampled Gaussians by inverting the moment generating function of the privacy loss L.

    ``E_P (1 - e^(eps - L))_+`` is the integral of ``e^(-s eps) M(s)^steps / (2 pi i s (s + 1))`` along ``Re s = c``,
    for any c > 0, where ``M(s) = E_Q X^(1 + s)`` belongs to one step. c is near the saddle point; both the integral
    over y and the one over s are sums at equal distances, which converge exponentially. Where L has next to an atom,
    at no participation at all, M does not fall: what is cut off is below (its share of the tilted law) / 3.
    """
    mu = 1.0 / sigma
    spacing, pace, reach = 4e-3, 5e-3, 3.0
    y = np.arange(-14.0, 2.0 * mu + 20.0, spacing)
    log_ratio = np.logaddexp(np.log1p(-rate), np.log(rate) + mu * y - 0.5 * mu * mu)
    log_density = -0.5 * y * y - 0.5 * np.log(2.0 * np.pi) + np.log(spacing)

    def log_moment(c: float) -> float:
        exponents = log_density + (1.0 + c) * log_ratio
        return float(exponents.max() + np.log(np.exp(exponents - exponents.max()).sum()))

    def exponent(c: float) -> float:
        return steps * log_moment(c) - c * epsilon - log(c * (1.0 + c))

    c = float(minimize_scalar(exponent, bounds=(1e-3, 0.9), method="bounded", options={"xatol": 1e-3}).x)
    tilted = np.exp(log_density + (1.0 + c) * log_ratio - log_moment(c))
    total = 0.0
    for k in range(int(reach / pace)):
        s = complex(c, k * pace)
        moment = complex(tilted @ np.exp(1j * k * pace * log_ratio)) ** steps
        value = (moment * np.exp(-1j * k * pace * epsilon) / (s * (s + 1.0))).real
        total += (0.5 if k == 0 else 1.0) * value
    return float(total * pace / np.pi * np.exp(steps * log_moment(c) - c * epsilon))


def exact_moment(moments: Any, order: complex) -> mp.mpc:
    """E X^order of a Poisson step, whose rate and noise multiplier ``moments`` has, in thirty digits."""
    rate, mu = mp.mpf(moments.sampling_prob), 1 / mp.mpf(moments.noise_multiplier)
    order = mp.mpc(order)
    reach = abs(float(order.real)) * float(mu) + 11

    def integrand(z: mp.mpf) -> mp.mpc:
        return mp.npdf(z) * mp.exp(order * mp.log1p(rate * mp.expm1(mu * z - mu * mu / 2)))

    nodes = int(8 * reach * (1 + abs(float(order.imag)) * float(mu) / 20))  # the trapezoidal rule, exponentially good
    step = 2 * reach / nodes
    return step * mp.fsum(integrand(-reach + step * k) for k in range(nodes + 1))
