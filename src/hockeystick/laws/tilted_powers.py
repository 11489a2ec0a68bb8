"""Both sides of the profile of many independent ratios whose own profile is known on a lattice, by one transform.

Bounds on ``o(x) = E (x - X)_+ - (x - 1)_+`` at the places ``e^(i h)`` give two laws on this lattice: the chords of an
upper bound are the profile of a spread of X, and chords that lie below a lower bound between the places too are that of
a contraction. Logarithms of n independent copies of either add up on the lattice, exactly, so their law, tilted by
``e^(order S)``, is the n-th power of one Fourier transform. The transform is periodic: what comes around from beyond
the window is bounded by moments. Rounding is charged.
Proofs: docs/theory/contours.md, "Many epochs". Cost: O(window log(window)) for each order, O(window) for each epsilon.
"""

from dataclasses import dataclass
from math import ceil, exp, expm1, inf, log

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.contours import log_peaks
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.types import Direction, Side

Flags = NDArray[np.bool_]

OUTSIDE = 1e-9
"""Tilted mass that may come around from beyond the window."""
LONGEST = 2**18
"""Places of a window; what needs more is left to the laws."""
OF_TRANSFORMS = 10.0
"""Units of roundoff, for each doubling of the length, that a transform may be off by relative to its size.

Higham (2002, Theorem 24.2) proves 6.7 for the textbook's radix 2; that the library's is as good is an assumption.
"""
PACE = 1.25
"""Ratio of neighbouring distances of orders. Which order answers an epsilon depends on epsilon alone."""
FIRST_DISTANCE, ORDERS = 0.05, 52
"""The least distance of an order from 0 or from 1, and how many orders there are on either side."""
LARGEST_EXPONENT = 600.0
"""Of a tilt within its window; what needs more is left to the laws."""
MOVED = 1e-12
"""Far above the relative rounding of places and thresholds, which both sides move by."""


@dataclass(frozen=True, eq=False)
class LatticeLaw:
    """A law of X on the places ``e^(i spacing)``, i = first, first + 1, ...

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


def lattice_laws(spacing: float, first: int, lower: Array, upper: Array) -> tuple[LatticeLaw, LatticeLaw] | None:
    """A contraction and a spread of X from bounds on o at ``e^(i spacing)``, i = first, ..., of which one i is 0.

    The lower law has its mass between the first and the last place. The upper one has some at 0 and at infinity. None
    where the bounds are so far apart that they tell nothing.
    """
    logs = spacing * (first + np.arange(len(upper), dtype=np.float64))
    places = np.exp(logs)
    below = logs <= 0.0
    # Places are off by some roundings, and o changes by at most as much as its place. Slopes are off relatively.
    off = 8.0 * UNIT_ROUNDOFF * (1.0 + np.abs(logs))
    of_slopes = 4.0 * float(off.max()) / spacing
    upper, lower = (upper + off * places) * (1.0 + of_slopes), (lower - off * places) * (1.0 - of_slopes)
    upper[below] = np.minimum.accumulate(upper[below][::-1])[::-1]
    upper[~below] = np.minimum.accumulate(upper[~below])
    widths, middle = np.diff(places), 0.5 * (upper + lower)
    noise = (upper - lower) / np.minimum(np.append(widths, inf), np.insert(widths, 0, inf))
    noise = np.maximum.reduce([noise, np.append(noise[1:], 0.0), np.insert(noise[:-1], 0, 0.0)])
    kinks = np.maximum(_masses(places, middle, below), 0.0) + 2.0 * noise
    # A convex function is above its chord less this, by its slopes on both sides of the two places.
    sag = widths * kinks[:-1] * kinks[1:] / np.maximum(kinks[:-1] + kinks[1:], 1e-300) * (1.0 + 1e-9)
    lower = lower - np.maximum(np.append(sag, 0.0), np.insert(sag, 0, 0.0))
    # Nothing is claimed at both ends of a chord that would start below 0: raised to 0, it could be above the function.
    unknown = lower < 0.0
    unknown[[0, -1]] = True
    unknown[1:-1] |= (lower < 0.0)[:-2] | (lower < 0.0)[2:]
    lower = np.where(unknown, 0.0, lower)
    inner = _hull(places, lower, below)
    outer = _hull(np.append(0.0, places), np.append(0.0, upper), np.append(True, below))
    if inner is None or outer is None or not inner.any():
        return None
    inner, outer = inner * (1.0 - 4.0 * of_slopes), outer * (1.0 + 4.0 * of_slopes)
    return (
        LatticeLaw(Side.LOWER, spacing, first, inner, 0.0, 0.0),
        LatticeLaw(Side.UPPER, spacing, first, outer[1:], float(outer[0]), float(upper[-1])),
    )


def _masses(places: Array, values: Array, below: Flags) -> Array:
    """Changes of slope at each place, where puts have the slope 0 before all of them, and calls after them."""
    # The slope of a put is 1 more than that of a call.
    masses: Array = np.diff(np.concatenate([[0.0], np.diff(values) / np.diff(places), [0.0]]))
    masses[np.flatnonzero(below)[-1]] += 1.0
    return masses


def _hull(places: Array, values: Array, below: Flags) -> Array | None:
    """Changes of slope of the largest convex function that is nowhere above the points, which keeps both ends.

    None where it would leave out the place 1, at which puts and calls meet.
    """
    meeting = int(np.flatnonzero(below)[-1])
    kept = np.arange(len(places))
    while True:
        masses = _masses(places[kept], values[kept], below[kept])
        concave = masses < 0.0
        concave[[0, -1]] = False
        if not concave.any():
            break
        if concave[np.searchsorted(kept, meeting)]:
            return None
        kept = kept[~concave]
    whole = np.zeros(len(places))
    whole[kept] = np.maximum(masses, 0.0)
    return whole


class Powers:
    """The profile of ``count`` independent copies, bounded on the side of their law."""

    def __init__(self, law: LatticeLaw, count: int) -> None:
        self.law, self.count = law, float(count)
        used = np.flatnonzero(law.masses)
        self._index = law.first + used
        self._logs: Array = np.asarray(law.spacing * self._index, dtype=np.float64)
        self._masses: Array = law.masses[used]
        self._log_masses: Array = np.log(self._masses)
        mass, mean = float(self._masses.sum()) + law.at_zero, float(self._masses @ np.exp(self._logs)) + law.p_inf
        self._charge = self.count * exp((self.count - 1.0) * log(max(mass, mean, 1.0))) * (1.0 + 1e-6)
        self._log_moments: dict[float, float] = {}
        self._known: dict[float, Tilted | None] = {}

    def delta(self, epsilon: float, direction: Direction) -> float | None:
        """A bound on delta on the law's side; None where a window would be too long."""
        tilted = self._tilted(self._order(epsilon, direction))
        value = None if tilted is None else tilted.delta(epsilon, self.law.side)
        if value is None:
            return None
        # An infinite ratio in one copy, or one of 0, in any of them.
        value += self._charge * (self.law.p_inf if direction is Direction.REMOVE else self.law.at_zero)
        return min(max(value, 0.0), 1.0)

    def log_moment(self, order: float) -> float:
        """log E X^order over the places."""
        exponents = order * self._logs + self._log_masses
        top = float(exponents.max())
        return top + log(float(np.exp(exponents - top).sum()))

    def _order(self, epsilon: float, direction: Direction) -> float:
        """The order at which the moment bound of delta is smallest, among those of a fixed grid."""
        x = epsilon if direction is Direction.REMOVE else -epsilon
        low, high = 0, ORDERS - 1
        while low < high:  # the bound is convex in the order
            middle = (low + high) // 2
            near, far = (self._height(direction, place, x) for place in (middle, middle + 1))
            low, high = (middle + 1, high) if far < near else (low, middle)
        return _order_at(direction, low)

    def _height(self, direction: Direction, place: int, x: float) -> float:
        order = _order_at(direction, place)
        if order not in self._log_moments:
            self._log_moments[order] = self.log_moment(order)
        return self.count * self._log_moments[order] - order * x - log(abs(order * (order - 1.0)))

    def _tilted(self, order: float) -> "Tilted | None":
        if order not in self._known:
            self._known[order] = self._power(order)
        return self._known[order]

    def _power(self, order: float) -> "Tilted | None":
        spacing, count = self.law.spacing, self.count
        log_size = count * self.log_moment(order)
        pace = 0.05 * min(abs(order), abs(order - 1.0))
        logs = [count * self.log_moment(order + step) for step in (-pace, pace)]
        deviation = max((logs[0] + logs[1] - 2.0 * log_size) / pace**2, spacing**2) ** 0.5
        # The tilted mass above a place, and below it, by moments of farther orders.
        reach = []
        for sign in (-1.0, 1.0):
            steps = [factor / deviation for factor in (2.0, 4.0, 6.0, 9.0)]
            grown = [count * self.log_moment(order + sign * step) - log_size for step in steps]
            reach.append(min((size - log(0.25 * OUTSIDE)) / step for size, step in zip(grown, steps, strict=True)))
        low, high = -reach[0], reach[1]
        length = 2 ** max(ceil(log((high - low) / spacing + 4.0, 2.0)), 6)
        if length > LONGEST or (abs(order) + 1.0) * length * spacing > 2.0 * LARGEST_EXPONENT:
            return None
        # The place of index r in the window stands for all that differ from it by a multiple of its length.
        start = int((0.5 * (low + high)) / spacing) - length // 2
        weights = np.exp(order * self._logs + self._log_masses - log_size / count)
        folded = np.bincount(self._index % length, weights, length)
        transform = np.fft.rfft(folded)
        sizes = np.abs(transform)
        powers = np.exp(count * np.log(np.where(sizes > 1e-300, transform, 1e-300)))
        tilted = np.roll(np.fft.irfft(powers, length), -start)
        of_transform = OF_TRANSFORMS * UNIT_ROUNDOFF * log(length, 2.0)
        of_weights = UNIT_ROUNDOFF * (4.0 * abs(order) * float(np.abs(self._logs).max()) + 4.0 * abs(log_size) + 64.0)
        of_values = of_transform * (length * float(np.sum(folded**2))) ** 0.5 + of_weights
        of_powers = count * of_values * np.exp((count - 1.0) * np.log(np.minimum(sizes + of_values, 1.0 + of_values)))
        of_powers += UNIT_ROUNDOFF * 8.0 * count * (1.0 + np.abs(np.log(np.maximum(sizes, 1e-300)))) * np.abs(powers)
        error = 2.0 * float(of_powers.sum()) / length
        error += of_transform * (2.0 * float(np.sum(np.abs(powers) ** 2)) / length) ** 0.5
        return Tilted(
            order=order,
            log_size=log_size,
            size_error=expm1(count * (of_weights + len(self._logs) * UNIT_ROUNDOFF)),
            places=spacing * (start + np.arange(length, dtype=np.float64)),
            masses=np.maximum(tilted, 0.0),
            error=error,
        )


def _order_at(direction: Direction, place: int) -> float:
    distance = FIRST_DISTANCE * PACE**place
    return 1.0 + distance if direction is Direction.REMOVE else -distance


class Tilted:
    """The law of the sum S of logarithms, with density proportional to ``e^(order S)``, on a window of places.

    Args:
        order: above 1 for the remove direction, below 0 for the add direction.
        log_size, size_error: ``log E e^(order S)``, and the relative error of its exponential.
        places, masses: shape (n,), equidistant places.
        error: bounds the error of each mass, but for what comes around from beyond the window.
    """

    def __init__(
        self, order: float, log_size: float, size_error: float, places: Array, masses: Array, error: float
    ) -> None:
        self.order, self.log_size, self.size_error, self.places = order, log_size, size_error, places
        self.middle = float(places[places.size // 2])
        # Sums over all places above each one (order > 1), or below it (order < 0), of both parts of the gain.
        ahead = slice(None, None, -1) if order > 1.0 else slice(None)
        u = places - self.middle
        self.with_place, self.alone = (
            np.append(0.0, np.cumsum((masses * np.exp((power - order) * u))[ahead])) for power in (1.0, 0.0)
        )
        self.largest = exp(float(log_peaks(np.array([order]))[0]))
        spacing = float(places[1] - places[0])
        # The gain rises and falls: a sum is at most the integral over the spacing and the largest value.
        self.error = error * (1.0 / (spacing * abs(order * (order - 1.0))) + self.largest) * (1.0 + 1e-6)
        self.rounding = UNIT_ROUNDOFF * (
            places.size + 8.0 * abs(order) * float(np.abs(u).max()) + 4.0 * LARGEST_EXPONENT
        )

    def delta(self, epsilon: float, side: Side) -> float | None:
        """The bound on this side; None where its numbers do not fit doubles."""
        upper, remove = side is Side.UPPER, self.order > 1.0
        threshold = 1.0 - MOVED if upper else 1.0 + MOVED
        x, extra = (epsilon, epsilon) if remove else (-epsilon, 0.0)
        off = self.middle - x
        if (abs(self.order) + 1.0) * abs(off) > LARGEST_EXPONENT:
            return None
        # Whatever may gain something counts for an upper bound, and nothing that would count as a loss.
        shift = -0.5 * MOVED if upper else 2.0 * MOVED
        if remove:
            count = self.places.size - int(np.searchsorted(self.places, x + shift))
        else:
            count = int(np.searchsorted(self.places, x - shift))
        with_place = float(self.with_place[count]) * exp((1.0 - self.order) * off)
        alone = float(self.alone[count]) * exp(-self.order * off)
        value = with_place - threshold * alone if remove else alone - threshold * with_place
        # Beyond the window is what the upper side lacks, and what came around to the lower one.
        error = self.error + self.rounding * (with_place + alone) + OUTSIDE * self.largest
        height = self.log_size - self.order * x + extra
        if height > LARGEST_EXPONENT or self.size_error > 0.5:
            return None
        if upper:
            return exp(height) * (value + error) * (1.0 + self.size_error)
        return exp(height) * max(value - error, 0.0) * (1.0 - self.size_error)
