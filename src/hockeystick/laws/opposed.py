"""The law of two mixtures with the same weights whose components move apart, in opposite directions.

``P = sum_k w_k N(a_k, sigma^2)`` against ``Q = sum_k w_k N(-b_k, sigma^2)`` with ``a_k, b_k >= 0``. Relative to
``N(0, sigma^2)`` the density of P increases with y and that of Q decreases, so the ratio increases: cells in y are
cells in the ratio, as in :mod:`.discretise`. No two large numbers are subtracted.

Proofs: docs/theory/truncated-steps.md.
"""

from math import ceil, sqrt

import numpy as np
from scipy.special import ndtr, ndtri

from hockeystick.compiling import kernel
from hockeystick.errors import InvalidInputError
from hockeystick.laws.discretise import QUADRATURE_POINTS
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import MAX_RATIO, SMALLEST, UNDERFLOW, UNIT_ROUNDOFF, Array, Law, merge_equal
from hockeystick.types import Side

REACH = 35.0
"""Nodes stay within this many standard deviations of 0, where densities are far above the smallest double."""
LEAST_AT_REST = 1e-15
"""The smallest weight of the component that does not move: with it, no density on a node comes near underflow."""
VISIBLE = 38.0
"""Components farther than this from a node add less than a rounding to the densities there."""
DENSITY_ERROR = (64.0 + 8.0 * VISIBLE * VISIBLE) * UNIT_ROUNDOFF
"""Relative rounding of a density at a node or a quadrature point, without that of the weights and their sum."""
TAIL_ERROR = 1e-12
"""Far above the relative rounding of the normal cdf."""


def opposed_law(
    weights: Array, ahead: Array, behind: Array, noise_multiplier: float, resolution: Resolution, *, error: float = 0.0
) -> Law:
    """An upper law of ``sum_k weights[k] N(ahead[k], sigma^2)`` against ``sum_k weights[k] N(-behind[k], sigma^2)``.

    Args:
        weights: shape (k,), non-negative, sum 1; the first is at least 1e-15.
        ahead, behind: shape (k,), non-negative; both start with 0.
        noise_multiplier: sigma > 0, in the unit of the shifts.
        error: proved bound on the relative error of each weight.

    Raises: InvalidInputError when the first component moves, or has next to no weight.
    Cost: O(nodes * k) exponentials, times the points of the quadrature.

    >>> import numpy as np
    >>> law = opposed_law(np.array([0.9, 0.1]), np.array([0.0, 2.0]), np.array([0.0, 1.0]), 1.0, Resolution())
    >>> round(law.mean(), 6)
    1.0
    """
    if ahead[0] != 0.0 or behind[0] != 0.0 or weights[0] < LEAST_AT_REST:
        raise InvalidInputError(
            f"The 'weights' parameter must start with the weight, at least {LEAST_AT_REST}, of a component that stays "
            f"in place. Got {float(weights[0])!r} at the shifts {float(ahead[0])!r} and {float(behind[0])!r} instead."
        )
    right_shifts, left_shifts = ahead / noise_multiplier, behind / noise_multiplier
    y = _nodes(float(right_shifts.max()), float(left_shifts.max()), resolution)
    points, point_weights = np.polynomial.legendre.leggauss(QUADRATURE_POINTS)
    ratio, mass, right = _cells(y, weights, right_shifts, left_shifts, points, point_weights)
    ratio = np.maximum.accumulate(ratio)
    first, last = int(np.searchsorted(ratio, SMALLEST)), int(np.searchsorted(ratio, MAX_RATIO)) - 1
    y, ratio, mass, right = y[first : last + 1], ratio[first : last + 1], mass[first:last], right[first:last]
    masses = np.zeros(ratio.size + 1)
    masses[2:] += right
    masses[1:-1] += mass - right
    # Below the first node: as much on the node as keeps the P-mass, the rest on the floor 0.
    below = float(weights @ ndtr(y[0] + left_shifts))
    on_node = min(float(weights @ ndtr(y[0] - right_shifts)) / float(ratio[0]), below)
    masses[0] = below - on_node * (1.0 - TAIL_ERROR)
    masses[1] += on_node
    # Above the last: the Q-mass stays there, all the P-mass goes to infinity.
    masses[-1] += float(weights @ ndtr(-y[-1] - left_shifts))
    p_inf = float(weights @ ndtr(right_shifts - y[-1])) * (1.0 + TAIL_ERROR + error) + UNDERFLOW
    support, masses = merge_equal(np.concatenate([[0.0], ratio]), masses)
    density = DENSITY_ERROR + 2.0 * weights.size * UNIT_ROUNDOFF + error
    # Shifts beyond what is visible from any node change no ratio there.
    slope = sum(min(float(shifts.max()), REACH + VISIBLE) for shifts in (right_shifts, left_shifts))
    growth = float(np.expm1(slope * np.diff(y).max(initial=0.0)))
    place_error = 2.0 * density + 4.0 * (density + 16.0 * UNIT_ROUNDOFF) * growth
    return Law(support, masses, p_inf, Side.UPPER, density + TAIL_ERROR, 1.01 * place_error)


def _nodes(ahead: float, behind: float, resolution: Resolution) -> Array:
    """Equidistant nodes into the left tail of Q and the right tail of P, as close as the quadrature needs."""
    reach = -float(ndtri(resolution.tail))
    low, high = max(-REACH, -reach - behind), min(REACH, reach + ahead)
    rate = VISIBLE + min(REACH, max(-low, high)) + sqrt(2.0 * QUADRATURE_POINTS)
    count = max(int((high - low) * resolution.for_side(Side.UPPER)) + 1, ceil((high - low) * rate / 4.0))
    return np.linspace(low, high, count + 1)


@kernel
def _cells(
    y: Array, weights: Array, ahead: Array, behind: Array, points: Array, point_weights: Array
) -> tuple[Array, Array, Array]:
    """Ratios at the nodes, Q-mass of every cell, and the part of it that the spread puts on the right end.

    At a distance ``s`` from the left node, of ratio g, the excess of P over g Q is the sum over k of
    ``w phi(y - a) (1 - e^(-a s)) + g w phi(y + b) (e^(b s) - 1)``: all terms are non-negative.
    """
    n, k = y.size, weights.size
    ratio, of_q = np.zeros(n), np.zeros(n)
    for j in range(n):
        of_p = 0.0
        for c in range(k):
            of_p += weights[c] * np.exp(-0.5 * (y[j] - ahead[c]) ** 2)
            of_q[j] += weights[c] * np.exp(-0.5 * (y[j] + behind[c]) ** 2)
        ratio[j] = of_p / of_q[j]
    mass, right = np.zeros(n - 1), np.zeros(n - 1)
    for j in range(n - 1):
        length = y[j + 1] - y[j]
        _, rise = _excess(y[j + 1], length, ratio[j], weights, ahead, behind)
        for i in range(points.size):
            step = 0.5 * length * (1.0 + points[i])
            density, excess = _excess(y[j] + step, step, ratio[j], weights, ahead, behind)
            part = point_weights[i] * 0.5 * length * 0.3989422804014327
            mass[j] += part * density
            if rise > 0.0:
                right[j] += part * min(excess / rise * of_q[j + 1], density)
    return ratio, mass, right


@kernel
def _excess(x: float, step: float, ratio: float, weights: Array, ahead: Array, behind: Array) -> tuple[float, float]:
    """The density of Q at x, and by how much that of P exceeds ``ratio`` times it; both times sqrt(2 pi)."""
    density, excess = 0.0, 0.0
    for c in range(weights.size):
        of_p = weights[c] * np.exp(-0.5 * (x - ahead[c]) ** 2)
        of_q = weights[c] * np.exp(-0.5 * (x + behind[c]) ** 2)
        density += of_q
        excess -= of_p * np.expm1(-ahead[c] * step)
        if of_q > 0.0:
            excess += ratio * of_q * np.expm1(behind[c] * step)
    return density, excess
