"""Profiles of all steps whose batches are drawn without replacement, where an example is replaced.

Given what the others do, a step is ``(1-q) N(v) + q N(e)`` against ``(1-q) N(v) + q N(e')``, a *triple* of points in
the unit ball. For a piecewise linear f with the changes of slope ``m_j`` at ``x_j`` the step adds ``sum m_j o(x_j)`` to
``f(1)``, where

    o(a) = E (X - a)_+ for a >= 1,        o(a) = E (a - X)_+ for a <= 1,        X the likelihood ratio,

its *calls* and *puts*. Here are upper bounds on o: in closed form for *opposite* others, ``v = e' = -e``, and for any
triple by boxes of outputs. Errs upward, but where a side is asked.

Proofs: docs/theory/fixed-size.md, "The run backwards".
"""

from math import cos, exp, expm1, inf, sin, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from hockeystick.compiling import kernel
from hockeystick.laws.gaussian import gaussian_deltas
from hockeystick.laws.law import Array
from hockeystick.types import Side

SAFE = 1e-12
"""Far above the relative rounding of the few operations behind one value."""
CELL_ERROR = 1e-11
"""Far above the relative rounding of a difference of two normal tails a node apart."""
REACH = 9.0
"""Standard deviations of the outputs beyond which boxes are not bounded."""
LEAST = 1e-30
"""Boxes with less mass are not told apart from an infinite ratio."""


class Gram(NamedTuple):
    """``|e - v|^2``, ``|e' - v|^2`` and ``<e - v, e' - v>``, in squared standard deviations of the noise."""

    own: float
    other: float
    inner: float


def deviation(rate: float, distance: float) -> float:
    """Standard deviation of the likelihood ratio of opposite gradients; lattices are planned by it."""
    return rate * sqrt(expm1(min(distance**2, 700.0)))


def opposite(rate: float, distance: float, logs: Array, side: Side) -> Array:
    """Bounds on o at ``e^logs`` for ``(1-q) N(0) + q N(distance)`` against ``N(0)``; shape (n,).

    Args:
        rate: q in (0, 1).
        distance: in standard deviations, > 0.
    """
    sign = 1.0 if side is Side.UPPER else -1.0
    above = logs >= 0.0
    # X = 1 - q + q Y: calls and puts of X at a are q times those of Y at 1 + (a - 1) / q.
    ratios = np.where(above, 1.0, np.maximum(1.0 + np.expm1(logs) / rate + sign * 4.0 * SAFE, 0.0))
    with np.errstate(divide="ignore"):
        epsilons = np.where(above, np.log1p(np.maximum(np.expm1(logs), 0.0) / rate), -np.log(ratios))
    epsilons = np.maximum(epsilons, 0.0) * (1.0 - sign * SAFE)
    values = rate * ratios * gaussian_deltas(distance, np.minimum(epsilons, 1e6), side)
    bounds: Array = np.maximum(values * (1.0 + sign * SAFE), 0.0)
    return bounds


def mirrored(values: Array, logs: Array) -> Array:
    """o of the triple in which e and e' change places, from values at the same places, symmetric around 1."""
    swapped: Array = np.exp(logs) * values[::-1]
    return swapped


def on_circle(squared: float, at_e: float, at_other: float) -> Gram:
    """The triple of points on the unit circle with these angles at e and e', in radians, each at most ``pi / 2``.

    Args:
        squared: the squared distance of opposite gradients, in standard deviations of the noise.
    """
    own, other = sin(at_other), sin(at_e)
    return Gram(squared * own**2, squared * other**2, -squared * own * other * cos(at_e + at_other))


def covered(rate: float, gram: Gram, spacing: float, places: int, width: float) -> Array:
    """Upper bounds on o at ``e^(i spacing)``, i = -places, ..., places, of a triple: shape (2 places + 1,).

    Boxes of outputs of this width, in standard deviations; the mass of each is spread over two places between which
    its ratios are. Cost: O(boxes + places).
    """
    own, other, inner = gram
    along = sqrt(own)
    ahead, aside = inner / along, sqrt(max(other - inner**2 / own, 0.0))
    first = _ends(width, 0.0, along, ahead)
    second = _ends(width * max(along / max(aside, 1e-3 * along), 1.0), 0.0, aside) if aside > 0.0 else _everything()
    odds = rate / (1.0 - rate)
    masses = np.zeros(2 * places + 3)
    _spread(
        rate,
        (odds * exp(-0.5 * own) * _exponentials(along, first), odds * exp(-0.5 * other) * _exponentials(ahead, first)),
        _exponentials(aside, second),
        np.array([_masses(first, centre) for centre in (0.0, along, ahead)]),
        np.array([_masses(second, centre) for centre in (0.0, 0.0, aside)]),
        spacing,
        np.exp(log_places(spacing, -places, places)),
        masses,
    )
    return _values(masses, spacing, places)


def _everything() -> Array:
    return np.array([-inf, inf])


def _ends(width: float, *centres: float) -> Array:
    """Ends of boxes along one coordinate, from minus to plus infinity."""
    low, high = min(centres) - REACH, max(centres) + REACH
    return np.concatenate([[-inf], np.linspace(low, high, int((high - low) / width) + 2), [inf]])


def _masses(ends: Array, centre: float) -> Array:
    """Normal masses between ends, from the tail on their own side."""
    masses: Array = np.where(ends[1:] <= centre, np.diff(ndtr(ends - centre)), -np.diff(ndtr(centre - ends)))
    return masses


def _exponentials(slope: float, ends: Array) -> Array:
    values: Array = np.exp(slope * ends) if slope != 0.0 else np.ones(ends.size)
    return values


@kernel
def _spread(
    rate: float,
    rows: tuple[Array, Array],
    columns: Array,
    first: Array,
    second: Array,
    spacing: float,
    ratios: Array,
    masses: Array,
) -> None:
    """Add the Q-mass of each box to two places; those at 0 are in front, the P-mass at infinity is at the end.

    ``M / K`` is that of the row, ``M' / K`` that of the row times that of the column, at the ends of boxes. The first
    rises along the rows, the second rises or falls along them and rises along the columns.
    """
    places = (masses.shape[0] - 3) // 2
    own, other = rows
    for i in range(first.shape[1]):
        low, high = min(other[i], other[i + 1]), max(other[i], other[i + 1])
        for j in range(second.shape[1]):
            rest = (1.0 - rate) * first[0, i] * second[0, j]
            p = rest + rate * first[1, i] * second[1, j]
            q = rest + rate * first[2, i] * second[2, j]
            if p + q < LEAST:
                masses[0] += q
                masses[-1] += p
                continue
            least = (1.0 + own[i]) / (1.0 + high * columns[j + 1])
            most = (1.0 + own[i + 1]) / (1.0 + low * columns[j])
            bottom = (np.log(least) - SAFE) / spacing if least > 0.0 else -np.inf
            top = (np.log(most) + SAFE) / spacing
            below = -places - 1 if bottom < -places else int(np.floor(min(bottom, places)))
            above = places + 1 if top > places else int(np.ceil(max(top, -places)))
            start = 0.0 if below < -places else ratios[below + places]
            above = max(above, below + 1)  # rounding
            if above > places:
                masses[-1] += max(p - q * start, 0.0)
                masses[below + places + 1] += q
                continue
            moved = min(max((p - q * start) / (ratios[above + places] - start), 0.0), q)
            masses[below + places + 1] += q - moved
            masses[above + places + 1] += moved


def _values(masses: Array, spacing: float, places: int) -> Array:
    """o of a law on the places, raised by the rounding of its masses."""
    ratios = np.exp(spacing * np.arange(-places, places + 1))
    q, p = masses[1:-1], masses[1:-1] * ratios
    p_above, q_above = np.cumsum(p[::-1])[::-1] + masses[-1], np.cumsum(q[::-1])[::-1]
    p_below, q_below = np.cumsum(p), np.cumsum(q) + masses[0]
    calls = p_above - ratios * q_above + CELL_ERROR * (p_above + ratios * q_above)
    puts = ratios * q_below - p_below + CELL_ERROR * (ratios * q_below + p_below)
    values: Array = np.maximum(np.where(ratios >= 1.0, calls, puts), 0.0).astype(np.float64)
    return values


def log_places(spacing: float, first: int, last: int) -> Array:
    """``i spacing`` for i = first, ..., last."""
    return spacing * np.arange(first, last + 1, dtype=np.float64)
