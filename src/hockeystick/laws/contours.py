"""Both sides of the profile of many Poisson steps at once, by an integral over a vertical line.

With ``S = L_1 + ... + L_n`` the sum of the logarithms of independent likelihood ratios and ``M(s) = E X^s``,

    delta(eps) = e^(eps) / (2 pi) int M(c + it)^n e^(-(c + it) eps) / (s (s - 1)) dt       remove, c > 1
    delta(eps) = 1 / (2 pi) int M(c + it)^n e^((c + it) eps) / (s (s - 1)) dt              add,    c < 0

The trapezoidal rule for such an integral adds to the value only other values of the same non-negative function, far
away, so it errs upwards and by an amount that moments bound. Truncation of the line and every rounding are charged.
Proofs: docs/theory/contours.md. Cost: O(frequencies * nodes) for each line, O(frequencies) for each epsilon after it;
a line serves all epsilons within some standard deviations of S around the epsilon for which it was chosen.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil, exp, expm1, inf, isfinite, log, pi
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.answers import Answers, Foreseen, Sides
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.poisson_moments import (
    ERROR_OF_LOGS,
    LARGEST_ORDER,
    OCTAVE,
    SHARING,
    Moments,
    PoissonMoments,
    relative_error_of_power,
)
from hockeystick.types import Direction

SHARE = 1e-7
"""Share of the expected value that other values of the function, and what is cut off the line, may each amount to."""
LEAST_NOISE, LEAST_RATE, MOST_RATE = 0.125, 1e-12, 0.5
"""Less noise and smaller rates are left to the laws, as ratios and slopes could leave the range of doubles, and so are
larger rates, whose smallest ratios lose digits."""
WORK = (0.0, 2e6, 8e6, 3e7)
"""Frequencies times nodes of a line: lines beyond one of these numbers are asked after all nearer to the pole that are
below it. What needs more than the last is left to lattices and laws."""
MOST_FREQUENCIES = 200_000
USEFUL = 1e-3
"""A line answers where its sides are this close, relative to the upper side."""
RETREATS = 4
"""Lines beside that of the saddle that are tried, towards the pole, until one answers."""
ORDERS = 60
"""Orders of lines. Which line answers an epsilon depends on epsilon alone, and not on what was asked before."""
NEAR_ORDERS, FAR_ORDERS = 24.0, 300.0
"""Orders are sought up to the first of these times the noise multiplier; where that is too small, up to the second."""
NEAREST, NEAREST_OF_FAR = 3e-3, 1.0 / 8.0
"""The nearest order of the first search, less its pole, and that of the second as a share of where the first ends."""
ERROR_OF_LEAST = 1e-11
"""Far above the rounding of the logarithm of the least ratio of all steps, relative."""
NEGLIGIBLE = 1e-6
"""A direction whose delta is below this share of the other direction's is bounded by its moments alone."""


MOST_TOGETHER = 1 << 17
"""Frequencies times epsilons whose angles are in memory at a time."""


class Orders(NamedTuple):
    """Real orders a of moments, the farthest of them, and at each: all of shape (n,).

    Attributes:
        nearer: groups of orders before them, of which nothing is known yet.
        orders: a.
        log_sizes: ``log M(a)^steps``.
        log_poles: ``log(a (a - 1))``.
        log_bounds: at least the log of ``M(a)^steps`` times the B of :func:`log_peaks`.
    """

    nearer: tuple[Array, ...]
    orders: Array
    log_sizes: Array
    log_poles: Array
    log_bounds: Array

    @property
    def first(self) -> int:
        """How many orders there are before them."""
        return sum(orders.size for orders in self.nearer)

    def extended(self, moments: Moments, steps: float) -> "Orders":
        """The same with the next group of nearer ones."""
        orders = self.nearer[-1]
        log_sizes = steps * moments.log_moments(orders)
        log_bounds = log_sizes + steps * ERROR_OF_LOGS + log_peaks(orders)
        group = (orders, log_sizes, np.log(orders * (orders - 1.0)), log_bounds)
        return Orders(self.nearer[:-1], *(np.append(near, far) for near, far in zip(group, self[1:], strict=True)))


class Distant(NamedTuple):
    """A bound ``e^(height - rate y)`` on the values that the trapezoidal rule adds at distance y on one side."""

    height: float
    rate: float

    def total(self, x: float, window: float) -> float:
        """The sum of the bounds at ``x + window``, ``x + 2 window``, ..."""
        first = self.height - self.rate * (x + window)
        if first > 700.0 or self.rate * window < 1e-3:
            return inf
        return exp(first) / -expm1(-self.rate * window)


class Plan(NamedTuple):
    """A line before its moments are known.

    Attributes:
        order: c.
        target: the logarithm of the size, relative to M(c)^steps, beyond which the line may end.
        last: where it ends.
        before, after, window: those of the :class:`Contour`.
        work: frequencies times nodes.
    """

    order: float
    target: float
    last: float
    before: Distant
    after: Distant
    window: float
    work: float

    @property
    def step(self) -> float:
        """The distance of two frequencies."""
        return 2.0 * pi / self.window


@dataclass(frozen=True, eq=False)
class Contour:
    """One line ``Re s = order`` for one direction, ready to be asked for many epsilons.

    Attributes:
        log_size, size_error: log M(order)^steps, and the relative error of its exponential.
        frequencies: shape (n,), the imaginary parts of s.
        terms: shape (n,), complex, of the sum relative to M(order)^steps, without the factor of epsilon.
        error, error_of_angles: bounds on the error of the sum: always, and for each unit of epsilon.
        before, after, window: bounds on the values that the trapezoidal rule adds, and their distance.
    """

    direction: Direction
    order: float
    log_size: float
    size_error: float
    frequencies: Array
    terms: NDArray[np.complex128]
    error: float
    error_of_angles: float
    before: Distant
    after: Distant
    window: float

    def sides(self, epsilon: float) -> Sides:
        """Both bounds on delta at this epsilon; ``(0, 1)`` where the numbers do not fit doubles."""
        return self.sides_of([epsilon])[0]

    def sides_of(self, epsilons: Sequence[float]) -> list[Sides]:
        """:meth:`sides` of each of some epsilons, in a fraction of the time; the same numbers."""
        x = np.array(epsilons) if self.direction is Direction.REMOVE else -np.array(epsilons)
        values: list[float] = []
        together = max(MOST_TOGETHER // self.frequencies.size, 1)
        for first in range(0, x.size, together):
            angles = np.multiply.outer(x[first : first + together], self.frequencies)
            # e^(-i t x) times a term has the real part cos(t x) Re + sin(t x) Im.
            parts = np.cos(angles) * self.terms.real + np.sin(angles) * self.terms.imag
            values += parts.sum(axis=1).tolist()
        return [self._around(epsilon, value) for epsilon, value in zip(epsilons, values, strict=True)]

    def _around(self, epsilon: float, value: float) -> Sides:
        """Both bounds on delta from the sum of all terms."""
        x, extra = (epsilon, epsilon) if self.direction is Direction.REMOVE else (-epsilon, 0.0)
        log_factor = self.log_size - self.order * x + extra
        if log_factor > 700.0:
            return Sides(0.0, 1.0)
        error = self.error + self.error_of_angles * abs(x)
        distant = 1.01 * (self.before.total(-x, self.window) + self.after.total(x, self.window))
        exponents = abs(self.log_size) + abs(self.order * x) + extra
        relative = self.size_error + UNIT_ROUNDOFF * (8.0 * exponents + 16.0)
        factor = exp(log_factor)
        upper = factor * (value + error) * (1.0 + relative)
        lower = factor * max(value - error - distant, 0.0) * max(1.0 - relative, 0.0)
        return Sides(min(max(lower, 0.0), 1.0), min(max(upper, 0.0), 1.0))


class Profiles(Foreseen):
    """The profile of ``steps`` steps from both sides, by lines that are made when they are needed.

    >>> profiles = Profiles(PoissonMoments(0.01, 1.0), 2000)
    >>> lower, upper = profiles.sides(2.0, Direction.REMOVE)
    >>> upper / lower - 1.0 < 1e-5
    True
    """

    def __init__(self, moments: Moments, steps: int, orders: int = ORDERS) -> None:
        super().__init__()
        self.moments, self.steps, self.count = moments, float(steps), orders
        self._orders: dict[tuple[Direction, float], Orders] = {}
        self._plans: dict[tuple[Direction, float], Plan | None] = {}
        self._contours: dict[tuple[Direction, float], Contour] = {}

    @property
    def in_reach(self) -> bool:
        """Whether the noise is large enough for moments of many orders on a short grid."""
        return self.moments.noise_multiplier >= LEAST_NOISE

    @property
    def _has_lines(self) -> bool:
        return self.in_reach and LEAST_RATE <= self.moments.sampling_prob <= MOST_RATE

    def foresee(self, epsilons: Sequence[float], direction: Direction) -> Answers:
        """As :meth:`Foreseen.foresee`; None where no line is good enough."""
        known = self._kept()
        impossible = [epsilon for epsilon in epsilons if self._is_impossible(epsilon, direction)]
        if impossible:
            known |= {(epsilon, direction): Sides(0.0, 0.0) for epsilon in impossible}
            epsilons = [epsilon for epsilon in epsilons if (epsilon, direction) not in known]
        for either in dict.fromkeys((Direction.REMOVE, direction)):  # add asks for remove
            fresh = [epsilon for epsilon in dict.fromkeys(epsilons) if (epsilon, either) not in known]
            found = self._found(fresh, either, known) if self._has_lines and fresh else dict.fromkeys(fresh)
            # All at once: an interruption leaves no epsilon without the answer that it would have.
            known |= {(epsilon, either): sides for epsilon, sides in found.items()}
        return known

    def _found(self, epsilons: Sequence[float], direction: Direction, known: Answers) -> dict[float, Sides | None]:
        """The answers that moments or lines give."""
        found: dict[float, Sides | None] = dict.fromkeys(epsilons)
        if direction is Direction.ADD:
            bounds = dict(zip(epsilons, self._by_moments(epsilons, direction), strict=True))
            others = {epsilon: known[epsilon, Direction.REMOVE] for epsilon in epsilons}
            for epsilon, other in others.items():
                if other is not None and bounds[epsilon] < NEGLIGIBLE * other.lower:
                    found[epsilon] = Sides(0.0, bounds[epsilon])
            epsilons = [epsilon for epsilon in epsilons if found[epsilon] is None]
        for epsilon, sides in self._tried(epsilons, direction, found):
            is_close = sides.lower > 0.0 and sides.upper - sides.lower <= USEFUL * sides.upper
            found[epsilon] = sides if is_close else None
        return found

    def at_most(self, epsilon: float, direction: Direction) -> float:
        """An upper bound on delta where no line answers: the least of what they say, and of what moments say."""
        known = {epsilon: self._answers.get((epsilon, direction))}
        tried = self._tried([epsilon], direction, known) if self._has_lines else ()
        return min([self.by_moments(epsilon, direction), *(sides.upper for _, sides in tried)])

    def _tried(
        self, epsilons: Sequence[float], direction: Direction, found: Mapping[float, Sides | None]
    ) -> Iterator[tuple[float, Sides]]:
        """What lines say, from the saddle towards the pole: those nearer to it find less, and may be far shorter.

        Longer ones are asked later. An epsilon whose answer is found when its turn comes again is tried no more.
        """
        saddles = self._saddles(epsilons, direction)
        for least, most in pairwise(WORK):
            for retreat in range(RETREATS + 1):
                lines: dict[tuple[float, int], list[float]] = {}
                for epsilon, (reach, saddle) in zip(epsilons, saddles, strict=True):
                    if saddle >= retreat and found[epsilon] is None:
                        lines.setdefault((reach, saddle - retreat), []).append(epsilon)
                for (reach, place), together in lines.items():
                    known = self._known(direction, reach)
                    while known.first > place:  # another thread had put fewer in their place
                        known = self._extended(direction, reach)
                    plan = self._planned(float(known.orders[place - known.first]), direction, known)
                    if plan is not None and least < plan.work <= most:
                        yield from zip(together, self._line(plan, direction).sides_of(together), strict=True)

    def _planned(self, order: float, direction: Direction, known: Orders) -> Plan | None:
        if (direction, order) not in self._plans:
            self._plans[direction, order] = self._plan(order, known)
        return self._plans[direction, order]

    def _line(self, plan: Plan, direction: Direction) -> Contour:
        if (direction, plan.order) not in self._contours:
            self._contours[direction, plan.order] = self._contour(plan, direction)
        return self._contours[direction, plan.order]

    def _known(self, direction: Direction, reach: float) -> Orders:
        if (direction, reach) not in self._orders:
            near, end = (min(most / self.moments.mu, LARGEST_ORDER) for most in (NEAR_ORDERS, reach))
            distances = np.geomspace(NEAREST if reach == NEAR_ORDERS else NEAREST_OF_FAR * near, end, self.count)
            orders = 1.0 + distances if direction is Direction.REMOVE else -distances
            groups, nothing = np.array_split(orders, ceil(self.count / SHARING)), np.empty(0)
            none = Orders(tuple(groups), nothing, nothing, nothing, nothing)
            self._orders[direction, reach] = none.extended(self.moments, self.steps)
        return self._orders[direction, reach]

    def _extended(self, direction: Direction, reach: float) -> Orders:
        """The known orders with a group of nearer ones."""
        self._orders[direction, reach] = self._known(direction, reach).extended(self.moments, self.steps)
        return self._orders[direction, reach]

    def _saddles(self, epsilons: Sequence[float], direction: Direction) -> list[tuple[float, int]]:
        """How far orders are sought, and the place among them of the one at which the integrand is smallest on the real
        line.
        """
        near = self._smallest(epsilons, direction, NEAR_ORDERS)
        beyond = [epsilon for epsilon, place in zip(epsilons, near, strict=True) if place >= self.count - 4]
        far = dict(zip(beyond, self._smallest(beyond, direction, FAR_ORDERS), strict=True)) if beyond else {}
        return [
            (FAR_ORDERS, far[epsilon]) if epsilon in far else (NEAR_ORDERS, place)
            for epsilon, place in zip(epsilons, near, strict=True)
        ]

    def _smallest(self, epsilons: Sequence[float], direction: Direction, reach: float) -> list[int]:
        """The place among all orders, for each epsilon, at which the integrand is smallest on the real line.

        Its logarithm is convex, so what is least, and not among the nearest orders that are known, is least of all.
        """
        x = np.array(epsilons) if direction is Direction.REMOVE else -np.array(epsilons)
        known = self._known(direction, reach)
        while True:
            heights = known.log_sizes - np.multiply.outer(x, known.orders) - known.log_poles
            places = heights.argmin(axis=1)
            if not known.nearer or (places > RETREATS).all():  # lines towards the pole may be asked too
                return [known.first + place for place in places.tolist()]
            known = self._extended(direction, reach)

    def _least_bound(self, x: float, direction: Direction, reach: float) -> float:
        """The least of ``log_bounds - a x``, which is convex in a as well, over all orders."""
        known = self._known(direction, reach)
        while True:
            bounds = known.log_bounds - known.orders * x
            if not known.nearer or bounds.argmin() > 0:
                return float(bounds.min())
            known = self._extended(direction, reach)

    def by_moments(self, epsilon: float, direction: Direction) -> float:
        """An upper bound on delta from the moments at the known orders; 1 where the noise is out of reach."""
        return self._by_moments([epsilon], direction)[0]

    def _by_moments(self, epsilons: Sequence[float], direction: Direction) -> list[float]:
        """:meth:`by_moments` of each of some epsilons."""
        if not self.in_reach:
            return [1.0] * len(epsilons)
        possible = [epsilon for epsilon in epsilons if not self._is_impossible(epsilon, direction)]
        bounds = dict.fromkeys(epsilons, 0.0)
        for epsilon, (reach, _) in zip(possible, self._saddles(possible, direction) if possible else (), strict=True):
            x, extra = (epsilon, epsilon) if direction is Direction.REMOVE else (-epsilon, 0.0)
            bounds[epsilon] = exp(min(self._least_bound(x, direction, reach) + extra + 1e-9, 0.0))
        return [bounds[epsilon] for epsilon in epsilons]

    def _is_impossible(self, epsilon: float, direction: Direction) -> bool:
        """Whether delta is 0: no ratio is below the product of all chances not to take part."""
        if direction is Direction.REMOVE or not self._has_lines:
            return False
        return epsilon > -self.steps * self.moments.log_least * (1.0 + ERROR_OF_LEAST)

    def _plan(self, order: float, known: Orders) -> Plan | None:
        """The line through ``order``, good where that is the saddle; None where it would take too much work."""
        steps = self.steps
        pace = 0.02 * min(abs(order), abs(order - 1.0))
        logs = steps * self.moments.log_moments(order + pace * np.array([-1.0, 0.0, 1.0]))
        variance = max(float(logs[0] - 2.0 * logs[1] + logs[2]), 0.0) / pace**2
        x = float(logs[2] - logs[0]) / (2.0 * pace) - 1.0 / order - 1.0 / (order - 1.0)
        # The value that the saddle point suggests, relative to M(c)^n; a poor guess makes poor bounds, no wrong ones.
        expected = -log(abs(order * (order - 1.0))) - 0.5 * log(2.0 * pi * (variance + min(order**2, 1.0)))
        target = expected + log(SHARE)
        before, after, window = self._distant_values(order, float(logs[1]), x, target, known)
        if not isfinite(window):
            return None
        step = 2.0 * pi / window
        farthest = self._farthest(order, step) if self.moments.heeds_limits else inf
        last = self.moments.settled_frequency(order, steps, target, farthest)
        if not self._is_short(order, step, last):
            return None
        return Plan(order, target, last, before, after, window, self._work(order, step, last))

    def _contour(self, plan: Plan, direction: Direction) -> Contour:
        """The moments on a line, and what it says."""
        steps, order, step = self.steps, plan.order, plan.step
        count = ceil(plan.last / step) + 1
        line = self.moments.line(order, step, count)
        frequencies = step * np.arange(count, dtype=np.float64)
        s = order + 1j * frequencies
        weights = np.full(count, step / pi)
        weights[0] *= 0.5
        shares = weights / np.abs(s * (s - 1.0))
        log_ratios = np.log(line.ratios)
        powers = np.exp(steps * log_ratios)
        largest = np.exp(np.minimum((steps - 1.0) * np.log(np.abs(line.ratios) + line.errors), 700.0))
        rounding = UNIT_ROUNDOFF * (4.0 * steps * (1.0 + np.abs(log_ratios)) + 2.0 * count + 96.0)
        sizes = shares * np.abs(powers)
        errors = shares * steps * line.errors * largest + sizes * rounding
        cut_off = exp(plan.target) / (pi * plan.last)
        return Contour(
            direction=direction,
            order=order,
            log_size=steps * line.log_moment,
            size_error=relative_error_of_power(steps, line.log_error + 2.0 * UNIT_ROUNDOFF),
            frequencies=frequencies,
            terms=np.asarray(weights * powers / (s * (s - 1.0)), dtype=np.complex128),
            error=1.01 * float(errors.sum()) + cut_off,
            error_of_angles=4.0 * UNIT_ROUNDOFF * float(np.sum(sizes * frequencies)),
            before=plan.before,
            after=plan.after,
            window=plan.window,
        )

    def _is_short(self, order: float, step: float, last: float) -> bool:
        """Whether a line up to this frequency takes no more work than it may."""
        return last < MOST_FREQUENCIES * step and self._work(order, step, last) <= WORK[-1]

    def _work(self, order: float, step: float, last: float) -> float:
        """Frequencies times nodes."""
        count = ceil(last / step) + 1
        return count * self.moments.size(order, count * step)

    def _farthest(self, order: float, step: float) -> float:
        """A frequency beyond which every line is too long."""
        farthest = [MOST_FREQUENCIES * step]
        while farthest[-1] > step:
            farthest.append(farthest[-1] / OCTAVE)
        # Lines grow with their last frequency: those of the first places are too long.
        return farthest[
            bisect_left(
                farthest, True, hi=len(farthest) - 1, key=lambda last: self._is_short(order, step, last / OCTAVE)
            )
        ]

    def _distant_values(
        self, order: float, log_size: float, x: float, target: float, known: Orders
    ) -> tuple[Distant, Distant, float]:
        """Bounds on the values before and after x that the trapezoidal rule adds, and a window that makes them small.

        They are relative to M(order)^steps.
        """
        sign = 1.0 if order > 1.0 else -1.0
        log_size -= self.steps * ERROR_OF_LOGS
        # The value at y is at most e^((c - 1) y) for remove, and e^(c y) for add.
        plain = Distant(-log_size, order - 1.0 if order > 1.0 else -order)
        usable = sign * (known.orders - order) > 1e-6 * abs(order)
        if not usable.any():
            return plain, plain, inf
        rates = np.abs(known.orders - order)[usable]
        heights = known.log_bounds[usable] - log_size
        windows = (heights - sign * rates * x - target) / rates
        best = int(np.argmin(windows))
        by_moment = Distant(float(heights[best]), float(rates[best]))
        window = max(float(windows[best]), (plain.height + sign * plain.rate * x - target) / plain.rate, 1.0)
        return (plain, by_moment, window) if order > 1.0 else (by_moment, plain, window)


@lru_cache(maxsize=64)
def profiles_of_steps(sampling_prob: float, noise_multiplier: float, steps: int) -> Profiles:
    """The profiles of Poisson steps, which both sides and neighbouring questions share."""
    return Profiles(PoissonMoments(sampling_prob, noise_multiplier), steps)


def log_peaks(orders: Array) -> Array:
    """The log of the least B with ``(e^u - 1)_+ <= B e^(a u)`` for a > 1, or ``(1 - e^u)_+ <= B e^(a u)`` for a < 0."""
    farther, nearer = np.abs(orders), np.abs(orders - 1.0)
    larger, smaller = np.maximum(farther, nearer), np.minimum(farther, nearer)
    logs: Array = smaller * np.log(smaller) - larger * np.log(larger)
    return logs
