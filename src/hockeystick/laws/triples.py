"""Profiles of all steps whose batches are drawn without replacement, where an example is replaced.

Given what the others do, a step is ``(1-q) N(v) + q N(e)`` against ``(1-q) N(v) + q N(e')``, a *triple* of points in
the unit ball. For a piecewise linear f with the changes of slope ``m_j`` at ``x_j`` the step adds ``sum m_j o(x_j)`` to
``f(1)``, where

    o(a) = E (X - a)_+ for a >= 1,        o(a) = E (a - X)_+ for a <= 1,        X the likelihood ratio,

its *calls* and *puts*. Here are upper bounds on o: in closed form for *opposite* others, ``v = e' = -e``, and for all
triples of a cell by boxes of outputs. Errs upward, but where a side is asked.

Proofs: docs/theory/fixed-size.md, "The run backwards".
"""

from math import cos, expm1, inf, pi, sin, sqrt
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
NARROWEST, WIDEST = 0.01, 0.25
"""Widths of boxes, in standard deviations."""
LEAST = 1e-30
"""Boxes with less mass are not told apart from an infinite ratio."""


class Gram(NamedTuple):
    """``|e - v|^2``, ``|e' - v|^2`` and ``<e - v, e' - v>``, in squared standard deviations of the noise."""

    own: float
    other: float
    inner: float


class Cell(NamedTuple):
    """Triples on the unit circle, not obtuse at v, whose angles at e and at e' are in two intervals, in radians."""

    at_e: tuple[float, float]
    at_other: tuple[float, float]


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


def near_opposite(squared: float, share: float) -> float:
    """An angle at e up to which triples are taken for the opposite one, as that adds about this share to it."""
    return min(sqrt(share * expm1(min(squared, 700.0)) / squared), 0.25 * pi)


def corner(nearest: float) -> Cell:
    """Triples with an angle of at most ``nearest`` at e; the opposite one is among them."""
    return Cell((0.0, nearest), (0.5 * pi - nearest, 0.5 * pi))


def others(nearest: float) -> Cell:
    """Triples with a larger angle at e, among them all of those with v nearer to e' that are not in the corner."""
    return Cell((nearest, 0.5 * pi), (nearest, 0.5 * pi))


def halves(cell: Cell) -> list[Cell]:
    """The two halves of a cell, along the angle whose halves have the smaller covers, as far as they have triples."""
    found = []
    for along in (0, 1):
        low, high = cell[along]
        middle = 0.5 * (low + high)
        parts = [cell._replace(**{Cell._fields[along]: part}) for part in ((low, middle), (middle, high))]
        found.append([part for part in parts if _has_some(part)])
    return min(found, key=lambda parts: sum(_distance(cover(1.0, part)) ** 2 for part in parts))


def _has_some(cell: Cell) -> bool:
    """Whether there are triples with v nearer to e', not obtuse at v."""
    return cell.at_e[1] + cell.at_other[1] > 0.5 * pi and cell.at_e[0] <= cell.at_other[1]


def _distance(gram: Gram) -> float:
    """The squared distance of e and e'."""
    return gram.own + gram.other - 2.0 * gram.inner


def cover(squared: float, cell: Cell) -> Gram:
    """A triple that is worse than all of a cell: both distances at their largest, the inner product at its least.

    Args:
        squared: the squared distance of opposite gradients, in standard deviations.
    """
    own, other = (squared * sin(high) ** 2 * (1.0 + SAFE) for _, high in (cell.at_other, cell.at_e))
    least_e = max(cell.at_e[0], 0.5 * pi - cell.at_other[1])
    least_other = max(cell.at_other[0], 0.5 * pi - cell.at_e[1])
    cosine = max(-cos(max(least_e + least_other, 0.5 * pi)) - SAFE, 0.0)
    return Gram(own, other, squared * sin(least_e) * sin(least_other) * cosine * (1.0 - SAFE))


def box_width(squared: float, cell: Cell) -> float:
    """About the width at which boxes add as much to a cell's triples as its cover does, in standard deviations."""
    angles = [0.5 * (low + high) for low, high in cell]
    lacking = max(0.5 * pi - sum(angles), 0.0)
    at_e, at_other = (angle + 0.5 * lacking for angle in angles)
    middle = cover(squared, Cell((at_e, at_e), (at_other, at_other)))
    added = _distance(cover(squared, cell)) / _distance(middle) - 1.0
    return min(max(sqrt(max(added, 0.0) / squared), NARROWEST), WIDEST)


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
    masses = np.zeros(2 * places + 3)
    _spread(
        rate,
        np.array([along, 0.0, ahead, aside]),
        np.array([0.5 * own, 0.5 * other]),
        (first, second),
        np.array([_masses(first, centre) for centre in (0.0, along, ahead)]),
        np.array([_masses(second, centre) for centre in (0.0, 0.0, aside)]),
        spacing,
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


@kernel
def _spread(
    rate: float,
    directions: Array,
    halves: Array,
    ends: tuple[Array, Array],
    first: Array,
    second: Array,
    spacing: float,
    masses: Array,
) -> None:
    """Add the Q-mass of each box to two places; those at 0 are in front, the P-mass at infinity is at the end."""
    places = (masses.shape[0] - 3) // 2
    rows, columns = ends
    for i in range(rows.shape[0] - 1):
        own_low, own_high = directions[0] * rows[i] - halves[0], directions[0] * rows[i + 1] - halves[0]
        for j in range(columns.shape[0] - 1):
            rest = (1.0 - rate) * first[0, i] * second[0, j]
            p = rest + rate * first[1, i] * second[1, j]
            q = rest + rate * first[2, i] * second[2, j]
            if p + q < LEAST:
                masses[0] += q
                masses[-1] += p
                continue
            low, high = -halves[1], -halves[1]
            if directions[2] != 0.0:
                low += directions[2] * rows[i]
                high += directions[2] * rows[i + 1]
            if directions[3] != 0.0:
                low += directions[3] * columns[j]
                high += directions[3] * columns[j + 1]
            # Both logarithms of M1 / M and M2 / M rise along both coordinates: the ratio is between these two.
            least = np.log((1.0 - rate + rate * np.exp(own_low)) / (1.0 - rate + rate * np.exp(high))) - SAFE
            most = np.log((1.0 - rate + rate * np.exp(own_high)) / (1.0 - rate + rate * np.exp(low))) + SAFE
            end = places * spacing
            below = -places - 1 if least < -end else int(np.floor(min(least, end) / spacing))
            above = places + 1 if most > end else int(np.ceil(max(most, -end) / spacing))
            start = 0.0 if below < -places else np.exp(below * spacing)
            if above > places:
                masses[-1] += max(p - q * start, 0.0)
                masses[below + places + 1] += q
                continue
            above = max(above, below + 1)  # rounding
            moved = min(max((p - q * start) / (np.exp(above * spacing) - start), 0.0), q)
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
