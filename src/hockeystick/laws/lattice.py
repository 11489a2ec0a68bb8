"""Mixtures of thousands of Gaussians whose shifts lie on a lattice, so that the ratio is a polynomial.

For ``P = sum_k w_k N(k h, 1)`` against ``Q = N(0, 1)`` the likelihood ratio at y is
``X(y) = sum_k w_k e^{-(k h)^2 / 2} z^k`` with ``z = e^{h y}``: one exponential for each y. The law is then built as in
:mod:`.discretise`, by a Gauss-Legendre rule whose error is bounded for the cells at hand.

Proofs: docs/theory/subsets/mixtures.md.
"""

from dataclasses import replace
from math import ceil, exp, factorial, sqrt

import numpy as np
from scipy.special import ndtr, ndtri

from hockeystick.errors import InvalidInputError
from hockeystick.laws.discretise import spread_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import MAX_RATIO, UNIT_ROUNDOFF, Array, Law, lower_law
from hockeystick.laws.mixture_kernels import polynomial
from hockeystick.laws.operations import affine
from hockeystick.types import Side, as_side

FARTHEST = 30.0
"""Nodes reach this far; upper laws move components with larger shifts to infinity. It matters from epsilon 200 on."""
FARTHEST_LOWER = 20.0
"""Lower laws move components with larger shifts to this one."""
SMALLEST_WEIGHT = 1e-60
"""Components with less are moved to the safe side: their coefficients could underflow."""
SMALLEST_RATIO = 1e-150
"""Below this, terms may have been lost to underflow; cells are joined to the floor."""
QUADRATURE_ERROR = 1e-15
MAX_POINTS = 12
LONGEST = 2.0
"""Largest cell length times rate; longer cells are cut."""


def lattice_law(
    masses: Array,
    spacing: float,
    noise_multiplier: float,
    side: Side,
    resolution: Resolution,
    *,
    lost: float = 0.0,
    weight_error: float = 0.0,
) -> Law:
    """The law of ``sum_k masses[k] N(k spacing, sigma^2)`` against ``N(0, sigma^2)``.

    Args:
        masses: shape (K + 1,), non-negative; with ``lost`` they sum to 1, up to ``weight_error`` and rounding.
        spacing: > 0, in the unit of sigma.
        noise_multiplier: sigma > 0.
        side: UPPER gives a spread, LOWER a contraction of the exact law.
        lost: mass of the sensitivity at infinity (UPPER only).
        weight_error: proved bound on the relative error of each mass.

    Raises: InvalidInputError when the masses are not those of a law.
    Cost: one multiplication and addition for each node, component and quadrature point (5 or 6 of them).
    """
    side, masses = as_side(side), np.asarray(masses, dtype=np.float64)
    _check(masses, lost, weight_error, side)
    step = spacing / noise_multiplier
    masses, step, lost = _within_reach(masses, step, lost, side, resolution.tail)
    absent, taking_part = float(masses[0]), float(masses[1:].sum())
    if taking_part == 0.0:
        return Law(np.array([absent]), np.array([1.0]), lost, side, 0.0, weight_error)
    moved = _moved(masses[1:] / taking_part, step, side, resolution, weight_error)
    whole = affine(moved, taking_part, absent)
    return replace(whole, p_inf=whole.p_inf + lost)


def _check(masses: Array, lost: float, weight_error: float, side: Side) -> None:
    total = float(masses.sum()) + lost
    if not abs(total - 1.0) <= weight_error + (masses.size + 16) * UNIT_ROUNDOFF or float(masses.min()) < 0.0:
        raise InvalidInputError(
            f"The 'masses' parameter must be non-negative and sum to 1 together with 'lost'. Got {total!r} instead."
        )
    if side is Side.LOWER and lost != 0.0:
        raise InvalidInputError(f"The 'lost' parameter must be 0 for a lower law. Got {lost!r} instead.")


def _within_reach(masses: Array, step: float, lost: float, side: Side, tail: float) -> tuple[Array, float, float]:
    """Move shifts that are too large or too rare to the safe side: to infinity, or to smaller shifts.

    ``step`` is the spacing in standard deviations; all the largest shifts together that have at most ``tail`` count as
    too far.
    """
    upper = side is Side.UPPER
    if not upper:
        step = min(step, FARTHEST_LOWER)
    outer = np.cumsum(masses[::-1])
    common = masses.size - 1 - int(np.searchsorted(outer, tail, side="right"))
    last = max(min(int((FARTHEST if upper else FARTHEST_LOWER) / step), common), 0)
    beyond = float(masses[last + 1 :].sum())
    masses = masses[: last + 1].copy()
    rare = masses < SMALLEST_WEIGHT
    rare[0] = False
    removed = float(masses[rare].sum())
    masses[rare] = 0.0
    if upper:
        lost += (beyond + removed) * (1.0 + 1e-9)
    else:
        masses[last] += beyond
        masses[0] += removed
    return masses, step, lost


def _moved(weights: Array, step: float, side: Side, resolution: Resolution, weight_error: float) -> Law:
    """The law for ``weights[k]`` at the shift ``(k + 1) step``: weights sum to 1, and nothing stays in place."""
    used = np.flatnonzero(weights)
    first, weights = int(used[0]) + 1, weights[used[0] : used[-1] + 1]
    shifts: Array = step * np.arange(first, first + weights.size, dtype=np.float64)
    smallest, largest = float(shifts[0]), float(shifts[-1])
    y, count, error, growth = _cells(weights, shifts, side, resolution)
    points, point_weights = np.polynomial.legendre.leggauss(count)
    half = 0.5 * np.diff(y)
    inner = y[:-1, None] + half[:, None] * (1.0 + points)
    places = np.concatenate([y, inner.ravel()])
    # The ratio of the first component is taken out: what is left of the others neither overflows nor underflows.
    coefficients = weights * np.exp(0.5 * (smallest - shifts) * (smallest + shifts))
    # Two components need step <= 15, so the exponent passes 450 only where there is one, and z is not used.
    powers = np.exp(np.minimum(step * places, 700.0))
    values = polynomial(coefficients, powers) * np.exp(smallest * (places - 0.5 * smallest))
    ratio = np.maximum.accumulate(values[: y.size])
    density = half[:, None] * point_weights * np.exp(-0.5 * inner * inner) * 0.3989422804014327
    mass = density.sum(axis=1)
    moment = (density * values[y.size :].reshape(inner.shape)).sum(axis=1)
    if ratio[-1] < SMALLEST_RATIO or ratio[0] > MAX_RATIO:
        return _nothing_known(side)
    kept = slice(int(np.searchsorted(ratio, SMALLEST_RATIO)), int(np.searchsorted(ratio, MAX_RATIO)))
    y, ratio = y[kept], ratio[kept]
    if y.size < 2:
        return _nothing_known(side)
    mass, moment = mass[kept.start : kept.stop - 1], moment[kept.start : kept.stop - 1]
    mean: Array = np.clip(moment / mass, ratio[:-1], ratio[1:])
    mass_error, place_error = _rounding(y, weights.size, largest, weight_error, error, growth, side)
    if side is Side.LOWER:
        return lower_law(mass, mean * mass, mass_error, place_error)
    rise = np.diff(ratio)
    right: Array = mass * np.divide(mean - ratio[:-1], rise, out=np.zeros(rise.size), where=rise > 0.0)
    right = np.minimum(right, mass)
    return spread_law(
        y, ratio, mass, right, weights, shifts, allowance=1e-9, mass_error=mass_error, place_error=place_error
    )


def _nothing_known(side: Side) -> Law:
    """The trivial law: P and Q are disjoint (upper), or nothing is claimed (lower)."""
    if side is Side.LOWER:
        return lower_law(np.zeros(1), np.zeros(1), 0.0, 0.0)
    return Law(np.array([0.0, 1.0]), np.array([1.0, 0.0]), 1.0, side, 0.0, 0.0)


def _rounding(
    y: Array, components: int, largest: float, weight_error: float, error: float, growth: float, side: Side
) -> tuple[float, float]:
    """Proved relative errors of masses and places (docs/theory/subsets/mixtures.md, "Rounding")."""
    reach = float(np.max(np.abs(y)))
    density = (64.0 + 6.0 * reach * reach) * UNIT_ROUNDOFF + error
    # Horner, the powers of z, the coefficients, and the shifts themselves, which may be 8 roundings off.
    exponent = 12.0 * largest * (reach + largest)
    value = (6.0 * components + exponent + 16.0) * UNIT_ROUNDOFF + weight_error
    mean = value + 2.0 * error + 2.0 * density * float(np.expm1(growth)) + 32.0 * UNIT_ROUNDOFF
    if side is Side.LOWER:
        return density, 1.01 * mean
    share = 6.0 * (1.0 + exp(0.5 * growth)) ** 2 * exp(growth)
    return density, mean * (1.0 + max(share, 17.0))


def _cells(weights: Array, shifts: Array, side: Side, resolution: Resolution) -> tuple[Array, int, float, float]:
    """Equidistant nodes in standard deviations of Q, between the tails, and a rule that is exact enough on them.

    The rule has so many Gauss-Legendre points, a relative error of at most this on any cell, and this growth: cell
    length times the largest logarithmic slope of any density or ratio.
    """
    low = max(float(ndtri(resolution.tail)), -FARTHEST)
    high = _where_the_tail_ends(weights, shifts, resolution.tail)
    rate = max(float(shifts[-1]) - low, high, -low)
    count = max(int((high - low) * resolution.for_side(side)) + 1, ceil((high - low) * (rate + 5.0) / LONGEST))
    y = np.linspace(low, high, count + 1)
    length = float(np.diff(y).max())
    growth = length * rate
    points = next(
        n for n in range(4, MAX_POINTS + 1) if n == MAX_POINTS or _gauss_error(n, length, rate) <= QUADRATURE_ERROR
    )
    return y, points, _gauss_error(points, length, rate), growth


def _gauss_error(points: int, length: float, rate: float) -> float:
    """Relative error of the rule for a Gaussian times an exponential on a cell, as on the page of the theory."""
    n = points
    constant = factorial(n) ** 4 / ((2 * n + 1) * factorial(2 * n) ** 3)
    return constant * (length * (rate + sqrt(2.0 * n))) ** (2 * n) * exp(length * rate)


def _where_the_tail_ends(weights: Array, shifts: Array, tail: float) -> float:
    """A place, at most FARTHEST, beyond which P has about the mass ``tail``."""
    below, above = 0.0, FARTHEST
    for _ in range(10):
        middle = 0.5 * (below + above)
        if float(weights @ ndtr(shifts - middle)) > tail:
            below = middle
        else:
            above = middle
    return above
