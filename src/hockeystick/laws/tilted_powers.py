"""Both sides of the profile of many independent ratios whose own profile is known on a lattice, by one transform.

Logarithms of n independent copies of a law on a lattice (:mod:`.lattice_laws`) add up on it, exactly, so their law,
tilted by ``e^(order S)``, is the n-th power of one Fourier transform. The transform is periodic: what comes around from
beyond the window is bounded by moments. Rounding is charged.
Proofs: docs/theory/contours.md, "Many epochs". Cost: O(window log(window)) for each order, O(window) for each epsilon.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property, partial
from math import ceil, exp, expm1, floor, fsum, log
from typing import Protocol

import numpy as np

from hockeystick.laws.contours import log_peaks
from hockeystick.laws.lattice_laws import LatticeLaw
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.smooth_powers import OF_TRANSFORMS, SMALLEST_POWER, Part, Waves, spectrum
from hockeystick.types import Direction, Side

OUTSIDE = 1e-9
"""Tilted mass that may come around from beyond the window."""
LONGEST = 2**18
"""Places of a window; what needs more is left to the laws."""
PACE = 1.25
"""Ratio of neighbouring distances of orders. Which of them answers depends on epsilon and the smallest delta alone."""
FIRST_DISTANCE, ORDERS = 0.05, 52
"""The least distance of an order from 0 or from 1, and how many orders there are on either side."""
LONG = 1 << 15
"""Windows of so many places are not looked at place by place where a few frequencies say what their masses are."""
RETREATS = 3
"""Orders beside the first that are tried, towards the pole, until the window of one is short enough."""
NEARER, SPARED = 4, 3e-5
"""By how many places an order may be nearer to the pole than the best, where windows are shorter.

``OUTSIDE`` is charged with at most the second number of the smallest delta that matters there.
"""
LARGEST_EXPONENT = 600.0
"""The largest exponent of a tilt within its window; what needs more is left to the laws."""
LEAST_USEFUL, MOST_USEFUL = 3e-4, 2e-3
"""The least and the largest share of the upper side by which both sides of delta may differ where they are used."""
SHARED = 0.4
"""Epsilons whose logarithms, divided by it, have the same whole part may share an order."""
MOVED = 1e-12
"""Far above the relative rounding of places and thresholds, which both sides move by."""


def useful_share(of_epsilon: float, epsilon: float, order: float) -> float:
    """The share by which both sides of delta may differ, if those of epsilon may by about ``of_epsilon`` of it."""
    return min(max(of_epsilon * epsilon * abs(order), LEAST_USEFUL), MOST_USEFUL)


class Copies:
    """``count`` independent copies of a law, as factors of a product.

    Attributes:
        index: the numbers on the lattice of the places that have mass, shape (places,).
        logs, log_masses: logarithms of the ratios and of the Q-masses there, shape (places,).
        log_excess: the logarithm of the Q-mass or of the P-mass of one copy, whichever is larger, and at least 0.
    """

    def __init__(self, law: LatticeLaw, count: int) -> None:
        self.law, self.count = law, float(count)
        used = np.flatnonzero(law.masses)
        self.index = law.first + used
        self.logs: Array = np.asarray(law.offset + law.spacing * self.index, dtype=np.float64)
        masses: Array = law.masses[used]
        self.log_masses: Array = np.log(masses)
        mass, mean = float(masses.sum()) + law.at_zero, float(masses @ np.exp(self.logs)) + law.p_inf
        self.log_excess = log(max(mass, mean, 1.0))
        self._log_moments: dict[float, float] = {}

    def infinite(self, direction: Direction) -> float:
        """The mass of ratios of one copy that are infinite (remove) or 0 (add)."""
        return self.law.p_inf if direction is Direction.REMOVE else self.law.at_zero

    def log_moment(self, order: float) -> float:
        """log E X^order over the places, of one copy."""
        if order not in self._log_moments:
            exponents = order * self.logs + self.log_masses
            top = float(exponents.max())
            self._log_moments[order] = top + log(float(np.exp(exponents - top).sum()))
        return self._log_moments[order]

    def error_of_weights(self, order: float, log_size: float) -> float:
        """Bounds the relative error of each tilted mass, for a moment of all copies of this logarithm."""
        return UNIT_ROUNDOFF * (4.0 * abs(order) * float(np.abs(self.logs).max()) + 4.0 * abs(log_size) + 64.0)

    def error_of_size(self, order: float, log_size: float) -> float:
        """Bounds the error of the logarithm of the moment of all copies."""
        return self.count * (self.error_of_weights(order, log_size) + len(self.logs) * UNIT_ROUNDOFF)


class Powers:
    """The profile of independent copies of laws on one lattice, bounded on the side that the laws have in common.

    Args:
        factors: at least one; laws of one side and one spacing.
        smallest_delta: the smallest that matters; affects tightness and speed alone.
    """

    def __init__(self, *factors: Copies, smallest_delta: float = 0.0) -> None:
        self.factors, self.smallest = factors, smallest_delta
        self.side, self.spacing = factors[0].law.side, factors[0].law.spacing
        self.size = max(factor.logs.size for factor in factors)  # places of a law that have some mass, at most
        self._log_sizes: dict[float, float] = {}
        self._known: dict[float, Tilted | None] = {}
        self._turns: dict[tuple[Direction, int], float] = {}

    def delta(self, epsilon: float, direction: Direction) -> float | None:
        """A bound on delta on the laws' side; None where windows would be too long."""
        first = self._first(epsilon, direction)
        # Nearer to the pole less of the tilted mass is where epsilon is, in a window that may be far shorter.
        orders = (_order_at(direction, place) for place in range(first, max(first - RETREATS, 0) - 1, -1))
        tilted = next(filter(None, map(self._tilted, orders)), None)
        value = None if tilted is None else tilted.delta(epsilon, self.side)
        return None if value is None else min(max(value + self._infinite[direction], 0.0), 1.0)

    def _first(self, epsilon: float, direction: Direction) -> int:
        """The best order, or one nearer to the pole at which what is outside of the window is negligible too.

        Neighbouring epsilons have that of a smaller one in common, whose charge is larger.
        """
        shared = exp(SHARED * floor(log(epsilon) / SHARED)) if epsilon > 0.0 else 0.0
        best = self._best(shared, direction)
        for place in range(max(best - NEARER, 0), best):
            charge = OUTSIDE * exp(min(self._log_bound(_order_at(direction, place), shared, direction), 0.0))
            if charge <= SPARED * self.smallest:
                return place
        return best if shared == epsilon else self._best(epsilon, direction)

    def most(self, epsilon: float, direction: Direction) -> float:
        """An upper bound on delta by the moment of the best order, where windows are too long; of upper laws."""
        order = self.order(epsilon, direction)
        error = self._error_of_size(order) + (1.0 + abs(order)) * MOVED  # of places and threshold
        exponent = self._log_bound(order, epsilon, direction) + error
        return min(exp(min(exponent, 0.0)) + self._infinite[direction], 1.0)

    def _log_bound(self, order: float, epsilon: float, direction: Direction) -> float:
        """The logarithm of the bound on delta by a moment, but for rounding and what is at infinity, or at 0."""
        x, extra = (epsilon, epsilon) if direction is Direction.REMOVE else (-epsilon, 0.0)
        return self._log_size(order) - order * x + extra + float(log_peaks(np.array([order]))[0])

    @cached_property
    def _infinite(self) -> dict[Direction, float]:
        """Bounds the mass of an infinite ratio, or of one of 0, in any of the copies, with all that the others have."""
        excess = sum(factor.count * factor.log_excess for factor in self.factors)
        masses = {
            direction: [
                factor.count * exp(excess - factor.log_excess) * factor.infinite(direction) for factor in self.factors
            ]
            for direction in Direction
        }
        return {direction: sum(values) * (1.0 + 1e-6) for direction, values in masses.items()}

    def _error_of_size(self, order: float) -> float:
        """Bounds the error of :meth:`_log_size`."""
        logs = [factor.count * factor.log_moment(order) for factor in self.factors]
        of_sum = (len(logs) - 1.0) * UNIT_ROUNDOFF * sum(map(abs, logs))
        return of_sum + sum(
            factor.error_of_size(order, log_size) for factor, log_size in zip(self.factors, logs, strict=True)
        )

    def _log_size(self, order: float) -> float:
        """log E e^(order S) of the sum S of all logarithms."""
        if order not in self._log_sizes:
            self._log_sizes[order] = sum(factor.count * factor.log_moment(order) for factor in self.factors)
        return self._log_sizes[order]

    def order(self, epsilon: float, direction: Direction) -> float:
        """The order at which the moment bound of delta is smallest, among those of a fixed grid."""
        return _order_at(direction, self._best(epsilon, direction))

    def _best(self, epsilon: float, direction: Direction) -> int:
        """The place of the order with the smallest moment bound. A wrong one makes bounds looser, never wrong."""
        # The bound is convex in the order, so each order is better than the one before it from some epsilon on.
        return bisect_left(range(ORDERS - 1), epsilon, key=partial(self._turn, direction))

    def _turn(self, direction: Direction, place: int) -> float:
        """The epsilon beyond which the next order has the smaller moment bound."""
        if (direction, place) not in self._turns:
            near, far = (_order_at(direction, at) for at in (place, place + 1))
            grown = self._log_size(far) - self._log_size(near)
            grown += log(abs(near * (near - 1.0))) - log(abs(far * (far - 1.0)))
            self._turns[direction, place] = grown / abs(far - near)
        return self._turns[direction, place]

    def _tilted(self, order: float) -> "Tilted | None":
        """The power tilted by an order, made when it is first asked; None where its window would be too long."""
        if order not in self._known:
            self._known[order] = self._power(order)
        return self._known[order]

    def _window(self, order: float) -> tuple[float, float]:
        """Places between which S is but for a tilted mass of OUTSIDE."""
        log_size = self._log_size(order)
        pace = 0.05 * min(abs(order), abs(order - 1.0))
        logs = [self._log_size(order + step) for step in (-pace, pace)]
        deviation = max((logs[0] + logs[1] - 2.0 * log_size) / pace**2, self.spacing**2) ** 0.5
        # The tilted mass above a place, and below it, by moments of farther orders.
        reach = []
        for sign in (-1.0, 1.0):
            steps = [factor / deviation for factor in (2.0, 4.0, 6.0, 9.0)]
            steps += [share * min(abs(order), abs(order - 1.0)) for share in (0.25, 0.5, 1.0, 2.0)]
            grown = [self._log_size(order + sign * step) - log_size for step in steps]
            reach.append(min((size - log(0.25 * OUTSIDE)) / step for size, step in zip(grown, steps, strict=True)))
        # No sum is below that of all least logarithms, nor above that of the largest ones.
        least, most = (sum(factor.count * float(factor.logs[end]) for factor in self.factors) for end in (0, -1))
        return max(-reach[0], least - self.spacing), min(reach[1], most + self.spacing)

    def _power(self, order: float) -> "Tilted | None":
        """As :meth:`_tilted`, made anew. None too where the rounding of places could exceed a tenth of MOVED."""
        low, high = self._window(order)
        spacing = self.spacing
        length = _length((high - low) / spacing + 4.0)
        if length > LONGEST or (abs(order) + 1.0) * length * spacing > 2.0 * LARGEST_EXPONENT:
            return None
        parts, origins = zip(*(self._part(factor, order) for factor in self.factors), strict=True)
        if UNIT_ROUNDOFF * sum(map(abs, origins)) > 0.1 * MOVED:
            return None
        origin = fsum(origins)
        start = int((0.5 * (low + high) - origin) / spacing) - length // 2
        places = origin + spacing * (start + np.arange(length, dtype=np.float64))
        smooth = spectrum(parts, length) if length >= LONG else None
        if smooth is None:
            masses, error = _masses(parts, length)
            sums: Sums = Masses(np.roll(masses, -start), places, order)
        else:
            sums, error = Waves(smooth, length, start, spacing, order), smooth.error
        size_error = expm1(self._error_of_size(order))
        return Tilted(order, self._log_size(order), size_error, places, sums, error)

    def _part(self, factor: Copies, order: float) -> tuple[Part, float]:
        """The tilted law of a factor, its places counted from the heaviest, and the sum of so many of that place."""
        log_moment = factor.log_moment(order)
        weights = np.exp(order * factor.logs + factor.log_masses - log_moment)
        main = int(np.argmax(weights))
        error = factor.error_of_weights(order, factor.count * log_moment)
        part = Part(factor.index - factor.index[main], weights, factor.count, error)
        return part, factor.count * float(factor.logs[main])


def _masses(parts: Sequence[Part], length: int) -> tuple[Array, float]:
    """The law of the sum of all offsets, by one transform of this length, and a bound on the error of each mass.

    The place of index r stands for all that differ from it by a multiple of the length.
    """
    of_transform = OF_TRANSFORMS * UNIT_ROUNDOFF * log(length, 2.0)
    # Logarithms and angles of the product of all transforms, and of what its factors may be at most, at frequencies
    # where that is not negligible; what is dropped is charged.
    kept, dropped = np.arange(length // 2 + 1), 0.0
    # The same at all frequencies as long as there is no factor.
    logs, angles, log_most, rounding, by_weights, by_lengths = np.zeros((6, 1))
    for offsets, weights, count, of_weights in parts:
        # The largest weight, which may be nearly all, needs no transform, as all offsets are counted from its own.
        main = int(np.argmax(weights))
        others = weights.copy()
        others[main] = 0.0
        folded = np.bincount(offsets % length, others, length)
        transform = (weights[main] + np.fft.rfft(folded))[kept]
        sizes = np.abs(transform)
        # A transform errs by so much of the Euclidean length of its values; of a product, by that times the rest.
        length_of_error = of_transform * float(np.sum(folded**2)) ** 0.5
        of_values = length**0.5 * length_of_error + of_weights
        most = np.minimum(sizes + of_values, 1.0 + of_values)
        dropped *= exp(count * of_values)
        small = most < np.exp((SMALLEST_POWER - log_most) / count)
        if small.any():
            dropped += 1.001 * exp(SMALLEST_POWER) * np.count_nonzero(small)
            left = ~small
            kept, transform, sizes, most = kept[left], transform[left], sizes[left], most[left]
            if log_most.size > 1:
                logs, angles, log_most, rounding = logs[left], angles[left], log_most[left], rounding[left]
                by_weights, by_lengths = by_weights[left], by_lengths[left]
        log_most = log_most + count * np.log(most)
        by_weights = by_weights + of_weights * count / most
        by_lengths = by_lengths + (length_of_error * count / most) ** 2
        # From sizes and angles: complex logarithms and exponentials take three times as long.
        log_sizes = np.log(np.maximum(sizes, 1e-300))
        logs = logs + count * log_sizes
        angles = angles + count * np.arctan2(transform.imag, transform.real)
        rounding = rounding + count * (1.0 + np.abs(log_sizes))
    powers = np.exp(logs) * (np.cos(angles) + 1j * np.sin(angles))
    product = np.zeros(length // 2 + 1, dtype=np.complex128)
    product[kept] = powers
    whole, number = np.exp(log_most), len(parts)
    of_powers = whole * by_weights
    of_powers += UNIT_ROUNDOFF * (12.0 + 4.0 * number) * rounding * np.abs(powers)
    error = 2.0 * (float(of_powers.sum()) + dropped) / length
    # The sum of as many lengths is at most the root of their number times the root of the sum of their squares.
    error += (number * 2.0 * float(np.sum(whole**2 * by_lengths)) / length) ** 0.5
    error += of_transform * (2.0 * float(np.sum(np.abs(powers) ** 2)) / length) ** 0.5
    return np.maximum(np.fft.irfft(product, length), 0.0), error


class Sums(Protocol):
    """Sums of masses times ``e^((1 - order) u)`` and ``e^(-order u)``, u the distance of a place from the middle."""

    @property
    def rounding(self) -> float:
        """Units of roundoff that a sum may be off by, of the sizes of what is added up, but for the exponentials."""

    def __call__(self, count: int) -> tuple[Array, Array]:
        """Both sums, and the same two sums of the sizes of what is added up; each of shape (2,).

        Args:
            count: of places that are added: the last ones for orders above 1, the first ones for orders below 0.
        """


class Masses:
    """The sums of masses that are known at each place.

    Args:
        masses, places: shape (n,).
    """

    def __init__(self, masses: Array, places: Array, order: float) -> None:
        ahead = slice(None, None, -1) if order > 1.0 else slice(None)
        u = places - places[places.size // 2]
        self.rounding = float(places.size)
        self._sums = np.array([self._running(masses, (power - order) * u, ahead) for power in (1.0, 0.0)])

    def __call__(self, count: int) -> tuple[Array, Array]:
        sums = self._sums[:, count]
        return sums, sums

    def _running(self, masses: Array, exponents: Array, ahead: slice) -> Array:
        """Sums of the masses times the exponentials of the exponents, which are used up, place by place."""
        np.exp(exponents, out=exponents)
        exponents *= masses
        sums = np.zeros(masses.size + 1)
        np.cumsum(exponents[ahead], out=sums[1:])
        return sums


def _length(least: float) -> int:
    """A power of 2, or three times one, that is not below this number, and even."""
    power: int = 2 ** max(ceil(log(least, 2.0)), 6)
    return 3 * power // 4 if 3 * power // 4 >= least and power > 64 else power


def _order_at(direction: Direction, place: int) -> float:
    """The order at a place of the grid: place 0 is next to the pole, at 1 for remove and at 0 for add."""
    distance = FIRST_DISTANCE * PACE**place
    return 1.0 + distance if direction is Direction.REMOVE else -distance


class Tilted:
    """The law of the sum S of logarithms, with density proportional to ``e^(order S)``, on a window of places.

    Args:
        order: above 1 for the remove direction, below 0 for the add direction.
        log_size, size_error: ``log E e^(order S)``, and the relative error of its exponential.
        places: shape (n,), equidistant.
        sums: over some of them.
        error: bounds the error of each mass, but for what comes around from beyond the window.
    """

    def __init__(
        self, order: float, log_size: float, size_error: float, places: Array, sums: Sums, error: float
    ) -> None:
        self.order, self.log_size, self.size_error, self.places = order, log_size, size_error, places
        self.middle, self.sums = float(places[places.size // 2]), sums
        self.largest = exp(float(log_peaks(np.array([order]))[0]))
        spacing = float(places[1] - places[0])
        # The gain rises and falls: a sum is at most the integral over the spacing and the largest value.
        self.error = float(error) * (1.0 / (spacing * abs(order * (order - 1.0))) + self.largest) * (1.0 + 1e-6)
        farthest = max(self.middle - float(places[0]), float(places[-1]) - self.middle)
        self.rounding = UNIT_ROUNDOFF * (sums.rounding + 8.0 * abs(order) * farthest + 4.0 * LARGEST_EXPONENT)

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
        factors = np.exp((np.array([1.0, 0.0]) - self.order) * off)
        sums, sizes = self.sums(count)
        with_place, alone = (float(value) for value in factors * sums)
        value = with_place - threshold * alone if remove else alone - threshold * with_place
        # Beyond the window is what the upper side lacks, and what came around to the lower one.
        error = self.error + self.rounding * float(factors @ sizes) + OUTSIDE * self.largest
        height = self.log_size - self.order * x + extra
        if height > LARGEST_EXPONENT or self.size_error > 0.5:
            return None
        if upper:
            return exp(height) * (value + error) * (1.0 + self.size_error)
        return exp(height) * max(value - error, 0.0) * (1.0 - self.size_error)
