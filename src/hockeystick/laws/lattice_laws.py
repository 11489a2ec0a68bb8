"""Laws of a ratio X whose profile is known on a lattice: the chords of bounds on it.

Bounds on ``o(x) = E (x - X)_+ - (x - 1)_+`` at places ``e^(offset + i spacing)`` give two laws on this lattice: the
chords of an upper bound are the profile of a spread of X, and chords that lie below a lower bound between the places
too are that of a contraction. Proofs: docs/theory/contours.md, "Many epochs". Cost: O(places) for each of a few rounds.
"""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.types import Side

Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]

FEW = 16
"""So many points at which a slope falls are looked at one by one."""


@dataclass(frozen=True, eq=False)
class LatticeLaw:
    """A law of X on the places ``e^(offset + i spacing)``, i = first, first + 1, ...

    Attributes:
        masses: shape (k,), Q-masses of the places, >= 0.
        at_zero: Q-mass of an upper law where X = 0.
        p_inf: P-mass of an upper law where X is infinite.
    """

    side: Side
    spacing: float
    first: int
    masses: Array
    at_zero: float
    p_inf: float
    offset: float = 0.0


class Lattice(NamedTuple):
    """Places, in ascending order, and which of them are at most 1.

    Attributes:
        places, below: shape (n,).
        lower, upper: shape (n,), bounds on o, with what the rounding of the places may take from them.
        of_slopes: how far slopes between two places may be off, relatively.
    """

    places: Array
    below: Flags
    lower: Array
    upper: Array
    of_slopes: float


def lattice(spacing: float, indices: Indices, lower: Array, upper: Array, offset: float) -> Lattice:
    """The places ``e^(offset + i spacing)`` for indices i, with these bounds on o, which are rounded outwards."""
    logs = offset + spacing * indices
    places, below = np.exp(logs), logs <= 0.0
    # The slope of o is at most that of the chord towards 1, as puts and calls are convex, and at most 1.
    steep, widths = np.ones(len(places)), np.diff(places)
    rising, falling = below[1:], ~below[:-1]
    steep[:-1][rising] = ((upper[1:] - lower[:-1]) / widths)[rising]
    steep[1:][falling] = ((upper[:-1] - lower[1:]) / widths)[falling]
    # Places are off by some roundings, and o changes by that times its slope. Slopes are off relatively.
    off = 8.0 * UNIT_ROUNDOFF * (1.0 + np.abs(logs))
    moved, of_slopes = off * places * np.minimum(steep, 1.0), 4.0 * float(off.max()) / spacing
    upper, lower = (upper + moved) * (1.0 + of_slopes), (lower - moved) * (1.0 - of_slopes)
    # o rises up to 1 and falls from there on.
    upper[below] = np.minimum.accumulate(upper[below][::-1])[::-1]
    upper[~below] = np.minimum.accumulate(upper[~below])
    return Lattice(places, below, lower, upper, of_slopes)


def lattice_laws(spacing: float, indices: Indices, lower: Array, upper: Array) -> tuple[LatticeLaw, LatticeLaw] | None:
    """A contraction and a spread of X from bounds on o at ``e^(i spacing)`` for ascending i, on both sides of 1."""
    laws = contraction(spacing, indices, lower, upper), spread(spacing, indices, lower, upper)
    return None if laws[0] is None or laws[1] is None else (laws[0], laws[1])


def spread(spacing: float, indices: Indices, lower: Array, upper: Array, offset: float = 0.0) -> LatticeLaw | None:
    """An upper law from bounds on o at the places; it has some mass at 0 and at infinity."""
    places, below, _, upper, of_slopes = lattice(spacing, indices, lower, upper, offset)
    outer = _hull(np.append(0.0, places), np.append(0.0, upper), np.append(True, below))
    if outer is None:
        return None
    outer *= 1.0 + 4.0 * of_slopes
    masses = _on_the_lattice(indices, outer[1:])
    return LatticeLaw(Side.UPPER, spacing, int(indices[0]), masses, float(outer[0]), float(upper[-1]), offset)


def contraction(
    spacing: float, indices: Indices, lower: Array, upper: Array, offset: float = 0.0, *, straight: bool = False
) -> LatticeLaw | None:
    """A lower law from bounds on o at the places, between the first and the last of which it has its mass.

    None where the bounds are so far apart that they tell nothing.

    Args:
        straight: whether the put is 0 at the first place and straight up to the second one.
    """
    places, below, lower, upper, of_slopes = lattice(spacing, indices, lower, upper, offset)
    widths, middle = np.diff(places), 0.5 * (upper + lower)
    noise = (upper - lower) / np.minimum(np.append(widths, inf), np.insert(widths, 0, inf))
    noise = np.maximum.reduce([noise, np.append(noise[1:], 0.0), np.insert(noise[:-1], 0, 0.0)])
    kinks = np.maximum(_masses(places, middle, below), 0.0) + 2.0 * noise
    # A convex function is above its chord less this, by its slopes on both sides of the two places.
    sag = widths * kinks[:-1] * kinks[1:] / np.maximum(kinks[:-1] + kinks[1:], 1e-300) * (1.0 + 1e-9)
    if straight:
        sag[0] = 0.0
    lower = lower - np.maximum(np.append(sag, 0.0), np.insert(sag, 0, 0.0))
    if straight:
        lower[0] = 0.0
    # Nothing is claimed at both ends of a chord that would start below 0: raised to 0, it could be above the function.
    unknown = lower < 0.0
    unknown[[0, -1]] = True
    unknown[1:-1] |= (lower < 0.0)[:-2] | (lower < 0.0)[2:]
    lower = np.where(unknown, 0.0, lower)
    inner = _hull(places, lower, below)
    if inner is None or not inner.any():
        return None
    inner *= 1.0 - 4.0 * of_slopes
    return LatticeLaw(Side.LOWER, spacing, int(indices[0]), _on_the_lattice(indices, inner), 0.0, 0.0, offset)


def _on_the_lattice(indices: Indices, masses: Array) -> Array:
    """These masses at these indices, and nothing at those between them."""
    every = np.zeros(int(indices[-1] - indices[0]) + 1)
    every[indices - indices[0]] = masses
    return every


def _masses(places: Array, values: Array, below: Flags) -> Array:
    """Changes of slope at each place, where puts have the slope 0 before all of them, and calls after them.

    Puts up to 1, calls beyond: the slope of a put is 1 more than that of a call, on the part of a cell beyond 1.
    """
    masses: Array = np.diff(np.concatenate([[0.0], np.diff(values) / np.diff(places), [0.0]]))
    last = int(np.flatnonzero(below)[-1])
    beyond = (places[last + 1] - 1.0) / (places[last + 1] - places[last])
    masses[last] += beyond
    masses[last + 1] += 1.0 - beyond
    return masses


def _hull(places: Array, values: Array, below: Flags) -> Array | None:
    """Changes of slope of the largest convex function that is nowhere above the points, which keeps both ends.

    None where one end is all that would be left on either side of 1.
    """
    kept = _without_ends(places, values, below)
    while True:
        if not below[kept[0]] or below[kept[-1]]:
            return None
        masses = _masses(places[kept], values[kept], below[kept])
        concave = masses < 0.0
        concave[[0, -1]] = False
        if not concave.any():
            break
        few = np.count_nonzero(concave) <= FEW
        kept = _without(kept, places, values, below, np.flatnonzero(concave).tolist()) if few else kept[~concave]
    whole = np.zeros(len(places))
    whole[kept] = np.maximum(masses, 0.0)
    return whole


def _without(kept: Indices, places: Array, values: Array, below: Flags, concave: list[int]) -> Indices:
    """What is left of these points without those at which a slope falls, one after the other, and their neighbours.

    Long edges grow by a point at a time, each of which would take a round over all points.
    """
    x, v, low = places[kept].tolist(), values[kept].tolist(), below[kept].tolist()
    before, after, gone = list(range(-1, len(x) - 1)), list(range(1, len(x) + 1)), np.zeros(len(x), dtype=np.bool_)

    def slope(first: int, second: int) -> tuple[float, float]:
        """That of a chord, and what the slope of the put is more, as in :func:`_masses`."""
        width = x[second] - x[first]
        beyond = 0.0 if low[second] else (x[second] - 1.0) / width if low[first] else 1.0
        return (v[second] - v[first]) / width, beyond

    while concave:
        point = concave.pop()
        first, second = before[point], after[point]
        if gone[point] or first < 0 or second == len(x):
            continue
        (left, more_left), (right, more_right) = slope(first, point), slope(point, second)
        if (right - left) + (more_right - more_left) < 0.0:
            gone[point], after[first], before[second] = True, second, first
            concave += [first, second]
    return kept[~gone]


def _without_ends(places: Array, values: Array, below: Flags) -> NDArray[np.intp]:
    """Indices of the points that are left once the first and the last edge of their hull are known.

    These edges are long, as nothing may be claimed at the ends, and would take one round for each point.
    """
    kept = np.ones(len(places), dtype=np.bool_)
    first, last = np.flatnonzero(below), np.flatnonzero(~below)
    if first.size > 1:
        slopes = (values[first[1:]] - values[0]) / (places[first[1:]] - places[0])
        kept[1 : 1 + int(np.argmin(slopes))] = False
    if last.size > 1:
        slopes = (values[-1] - values[last[:-1]]) / (places[-1] - places[last[:-1]])
        kept[last[0] + int(np.argmax(slopes)) + 1 : -1] = False
    return np.flatnonzero(kept)
