"""Discrete laws of continuous pairs, by quadrature that is exact to rounding.

``P = sum_k w_k N(mu_k, sigma^2)`` with ``mu_k >= 0`` against ``Q = N(0, sigma^2)``: then
``X(y) = sum_k w_k exp(mu_k y / sigma^2 - mu_k^2 / (2 sigma^2))`` increases in y, so cells in y are cells in X. On a
cell [y_j, y_{j+1}] the spread puts the mass ``int (X - g_j)/(g_{j+1} - g_j) dQ`` on the right end and the rest on the
left end; the contraction puts everything at the barycentre. No two large numbers are subtracted: ``X - g_j`` is a sum
of ``expm1`` terms. Proofs: docs/theory/laws.md.
"""

from math import log

import numpy as np
from scipy.special import ndtr

from hockeystick.laws.grid import Resolution, gaussian_nodes
from hockeystick.laws.law import (
    ORDINARY,
    UNDERFLOW,
    UNIT_ROUNDOFF,
    Array,
    Law,
    Units,
    lower_law,
    merge_equal,
    point_mass_at_one,
)
from hockeystick.laws.operations import affine
from hockeystick.types import Side, as_side

QUADRATURE_POINTS = 12
"""Of Gauss and Legendre for each cell; cells are short enough that more would change rounding alone."""


@np.errstate(over="ignore", invalid="ignore")  # in cells of ratios beyond the largest, which are left out
def _cells(
    y: Array, weights: Array, shifts: Array, points: Array, point_weights: Array, log_scale: float
) -> tuple[Array, Array, Array]:
    """Ratios at the nodes, ``e^log_scale`` times the Q-mass of every cell, and the share that the spread puts right.

    ``y`` in standard deviations of Q, ``shifts`` likewise. Cost: nodes x components x quadrature points.
    """
    parts = weights * np.exp(shifts * (y[:, None] - 0.5 * shifts))
    left, half = parts[:-1], 0.5 * np.diff(y)

    def grown(step: Array) -> Array:
        """X - g_j at this distance from the left ends, without a difference of large numbers."""
        growth: Array = np.einsum("jc,jc->j", left, np.expm1(shifts * step[:, None]))
        return growth

    rise = grown(2.0 * half)  # g_(j+1) - g_j
    mass, right = np.zeros(half.size), np.zeros(half.size)
    for point, point_weight in zip(points, point_weights, strict=True):
        step = half * (1.0 + point)
        x = y[:-1] + step
        density = point_weight * half * np.exp(log_scale - 0.5 * x * x) * 0.3989422804014327
        mass += density
        right += density * np.minimum(np.divide(grown(step), rise, out=np.zeros(half.size), where=rise > 0.0), 1.0)
    return parts.sum(axis=1), mass, right


def gaussian_law(
    noise_multiplier: float, sensitivity: float, side: Side, resolution: Resolution, units: Units = ORDINARY
) -> Law:
    """The law of N(sensitivity, noise_multiplier^2) against N(0, noise_multiplier^2).

    Args:
        noise_multiplier: sigma > 0, in the unit of the sensitivity.
        sensitivity: distance between the two centres, >= 0.
        side: UPPER gives a spread, LOWER a contraction of the exact law.
        units: FAR for ratios up to e^708.
    """
    return mixture_law(np.array([1.0]), np.array([sensitivity]), noise_multiplier, side, resolution, units)


def mixture_law(
    weights: Array,
    sensitivities: Array,
    noise_multiplier: float,
    side: Side,
    resolution: Resolution,
    units: Units = ORDINARY,
) -> Law:
    """The law of ``sum_k weights[k] N(sensitivities[k], sigma^2)`` against ``N(0, sigma^2)``.

    Args:
        weights: shape (k,), non-negative, sum 1.
        sensitivities: shape (k,), non-negative.
        noise_multiplier: sigma > 0.
        side: UPPER gives a spread, LOWER a contraction of the exact law.
        units: FAR for ratios up to e^708.

    Cost: O(nodes * k) exponentials.
    """
    side, weights = as_side(side), np.asarray(weights, dtype=np.float64)
    sensitivities = np.asarray(sensitivities, dtype=np.float64)
    moved = sensitivities > 0.0
    taking_part = float(weights[moved].sum())
    if taking_part == 0.0:
        return point_mass_at_one(side)
    law = _shifted(weights[moved] / taking_part, sensitivities[moved] / noise_multiplier, side, resolution, units)
    return law if moved.all() else affine(law, taking_part, float(weights[~moved].sum()))


def _shifted(weights: Array, shifts: Array, side: Side, resolution: Resolution, units: Units) -> Law:
    """The law of a mixture whose shifts (in standard deviations of Q) are all positive."""
    nodes = gaussian_nodes(float(shifts.min()), float(shifts.max()), side, resolution, units)
    y = _short_enough(nodes, float(shifts.max()))
    points, point_weights = np.polynomial.legendre.leggauss(QUADRATURE_POINTS)
    ratio, mass, right = _cells(y, weights, shifts, points, point_weights, log(units.scale))
    first = int(np.searchsorted(ratio, units.smallest_ratio))
    last = int(np.searchsorted(ratio, units.max_ratio)) - 1
    mass_error, place_error = _rounding(y, shifts, units)
    above = y[last + 1 : last + 2]  # the first node that is too high, if any
    y, ratio, mass, right = y[first : last + 1], ratio[first : last + 1], mass[first:last], right[first:last]
    if side is Side.LOWER:
        beyond = float(weights @ ndtr(shifts - above[0])) * (1.0 - 1e-12) if above.size else 0.0
        return lower_law(mass, ratio[:-1] * mass + np.diff(ratio) * right, mass_error, place_error, units, beyond)
    return spread_law(
        y,
        ratio,
        mass,
        right,
        weights,
        shifts,
        allowance=1e-12,
        mass_error=mass_error,
        place_error=place_error,
        units=units,
    )


def spread_law(
    y: Array,
    ratio: Array,
    mass: Array,
    right: Array,
    weights: Array,
    shifts: Array,
    *,
    allowance: float,
    mass_error: float,
    place_error: float,
    units: Units = ORDINARY,
) -> Law:
    """The upper law of these cells, with both tails on the safe side.

    Args:
        y, ratio: shape (n,), the nodes in standard deviations of Q and the ratios there.
        mass, right: shape (n - 1,), Q-mass of each cell, and how much of it goes to its right end, in ``units``.
        weights, shifts: shape (k,), the mixture.
        allowance: relative, for the rounding of the tail of P.
    """
    masses = np.zeros(ratio.size + 1)
    masses[2:] += right
    masses[1:-1] += mass - right
    # Below the first node: part on the node, the rest on the floor 0, rounded up.
    below = float(ndtr(y[0]))
    on_node = min(float(weights @ ndtr(y[0] - shifts)) / float(ratio[0]), below)
    masses[0] = (below - on_node * (1.0 - 1e-12)) * units.scale
    masses[1] += on_node * units.scale
    # Above the last: the Q-mass stays there, all the P-mass goes to infinity.
    masses[-1] += float(ndtr(-y[-1])) * units.scale
    p_inf = float(weights @ ndtr(shifts - y[-1])) * (1.0 + allowance) + UNDERFLOW
    support, masses = merge_equal(np.concatenate([[0.0], ratio]), masses)
    return Law(support, masses, p_inf, Side.UPPER, mass_error, place_error, units)


def _rounding(y: Array, shifts: Array, units: Units) -> tuple[float, float]:
    """Proved relative rounding of the masses and places of ``_cells`` (docs/theory/laws.md, "Rounding")."""
    shift, reach = float(shifts.max()), float(np.max(np.abs(y)))
    # Masses above SMALLEST have y^2 / 2 below 645, and far ones, whose exponent also has the scale, below 1162.
    scale = log(units.scale)
    visible = min(reach * reach, 1400.0 + 3.0 * scale)
    mass_error = (64.0 + 6.0 * visible + 4.0 * scale) * UNIT_ROUNDOFF
    exponent = 1.0 + shift * (reach + shift)
    cell_growth = float(np.expm1(shift * np.diff(y).max()))
    components = 2.0 * shifts.size  # a ratio is a sum over them, with normalised weights
    return mass_error, (8.0 * exponent + 64.0 * cell_growth + components) * UNIT_ROUNDOFF


def _short_enough(y: Array, shift: float) -> Array:
    """Refine until every cell is short against the largest exponential rate, as the quadrature's proof needs."""
    rate = float(np.max(np.abs(y))) + shift
    longest = float(np.diff(y).max())
    pieces = int(np.ceil(longest * rate / 4.0))
    if pieces <= 1:
        return y
    fractions = np.arange(pieces) / pieces
    fine = (y[:-1, None] + np.diff(y)[:, None] * fractions).ravel()
    return np.append(fine, y[-1])
