"""Moments of what columns of several histories share, bounded without a chain.

For a tuple of independent histories with the numbers J of participations, let
``s = (|C J|^2 - sum_u J_u |c_u|^2) / 2``: what all pairs of participations have in common. Here ``E e^(power s)`` is
bounded by one integral for each opportunity (docs/theory/monte-carlo/tuples.md, Theorem 2), for any columns without
negative inner products.
"""

from collections.abc import Sequence
from math import inf, log, log1p, pi, sqrt

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtr

from hockeystick.laws.law import Array

POWERS = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 11.0, 16.0, 23.0, 32.0, 64.0, 128.0, 256.0)
"""Powers of e^s that bound its tail."""
LOWEST, CELL = -9.0, 1.0 / 32.0
"""Where the cells of a standard normal begin, and their size."""
MARGIN = 12.0
"""How far cells go beyond where the integrand has a slope that no larger normal exceeds."""
FAR = 6.0
"""Beyond this a cell's density is replaced by its largest value, as masses are small differences."""
MOST_CELLS = 1 << 15
"""Of an integral; one that needs more is not bounded."""
TOGETHER = 8
"""Neighbouring opportunities that are given the largest square and exponent among them."""
BLOCK = 1 << 21
"""Numbers that are held at a time."""


def log_moment(couplings: Array, prob: float, order: int, power: float) -> float:
    """At least ``log E e^(power s)`` over tuples of so many histories; infinite where it is not bounded.

    Args:
        couplings: ``<c_u, c_(u+e)>``, none negative, 0 where there is no opportunity u + e; shape (opportunities, w).
        prob: no participation at an opportunity has a larger chance, whatever has been before it.

    Cost: O(opportunities cells).
    """
    squares, sums = couplings[:, 0], _row_sums(couplings)
    firsts = np.arange(0, squares.size, TOGETHER)
    numbers = np.minimum(TOGETHER, squares.size - firsts)
    exponents = order * np.maximum.reduceat(sums / squares, firsts) * (1.0 + 1e-9)
    roots = np.sqrt(np.maximum.reduceat(squares, firsts) * power * (1.0 + 1e-9))
    reach = exponents * roots
    cells = (float(reach.max()) + MARGIN - LOWEST) / CELL
    if not cells <= MOST_CELLS:  # or not a number
        return inf
    nodes: Array = LOWEST + CELL * np.arange(int(cells) + 2.0)
    log_lefts, log_rights = _log_masses(nodes)
    total, size = 0.0, max(BLOCK // nodes.size, 1)
    for first in range(0, firsts.size, size):
        part = slice(first, first + size)
        logs = _logs(exponents[part], roots[part], reach[part], prob, nodes, log_lefts, log_rights)
        total += float((logs / exponents[part]) @ numbers[part]) * order
    return total * (1.0 + 1e-9) + 1e-9


def _row_sums(couplings: Array) -> Array:
    """The sums of the rows of the symmetric matrix with these diagonals."""
    sums = couplings[:, 0].copy()
    for lag in range(1, couplings.shape[1]):
        diagonal = couplings[: sums.size - lag, lag]
        sums[: diagonal.size] += diagonal
        sums[lag:] += diagonal
    return sums


def _log_masses(nodes: Array) -> tuple[Array, Array]:
    """Logarithms of numbers a, b for each cell: a chord with the values v and w at its ends has a mean of at most
    ``a v + b w`` over the cell, under the standard normal law, if it does not fall.
    """
    left, right = nodes[:-1], nodes[1:]
    near = np.abs(left + 0.5 * CELL) < FAR
    densities = np.exp(-0.5 * nodes**2) / sqrt(2.0 * pi)
    masses = np.where(left < 0.0, ndtr(right) - ndtr(left), ndtr(-left) - ndtr(-right))
    rights = (densities[:-1] - densities[1:] - left * masses) / CELL
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = np.log(masses - rights), np.log(rights)
    nearest = np.where(left >= 0.0, left, np.minimum(right, 0.0))
    above = log(0.5 * CELL) - 0.5 * nearest**2 - 0.5 * log(2.0 * pi)  # half of the density's largest value
    both = np.where(left >= 0.0, above, -np.inf), np.where(left >= 0.0, above, above + log(2.0))
    return np.where(near, exact[0], both[0]) + 1e-9, np.where(near, exact[1], both[1]) + 1e-9


def _logs(
    exponents: Array, roots: Array, reach: Array, prob: float, nodes: Array, log_lefts: Array, log_rights: Array
) -> Array:
    """At least ``log E (1 - p + p e^(r z - r^2/2))^exponent`` for a standard normal z and each exponent and root r.

    The integrand grows and is convex in z: below the first node it is at most what it is there, in a cell it is below
    its chord, and beyond the last node the logarithm of the base grows by at most r for each unit.
    """
    gains = np.outer(roots, nodes) - 0.5 * (roots**2)[:, None]
    values = exponents[:, None] * np.logaddexp(log1p(-prob), log(prob) + gains)
    below = values[:, 0] + log_ndtr(nodes[0])
    inside = logsumexp(np.logaddexp(values[:, :-1] + log_lefts, values[:, 1:] + log_rights), axis=1)
    beyond = values[:, -1] - reach * nodes[-1] + 0.5 * reach**2 + log_ndtr(reach - nodes[-1])
    logs: Array = logsumexp([below, inside, beyond], axis=0)
    return logs


def log_tail(log_moments: Sequence[float], cap: float) -> float:
    """At least ``log E e^s 1(s > cap)`` from :func:`log_moment` at POWERS, by Chernoff's inequality at the best one."""
    return min(log_moment - (power - 1.0) * cap for power, log_moment in zip(POWERS, log_moments, strict=True))
