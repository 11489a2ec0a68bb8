"""Profiles of a ratio X from its Laplace transform, without a grid: both sides within a tenth of a percent of epsilon.

A normal variable that is added to X makes its transform end after some hundred frequencies; it is a spread, and what it
adds is bounded by its own density at the threshold. Ratios of what is rare to what is not are limited by rounding,
which can add some 1e-9 to delta.

Proof: docs/theory/comparable-covariances.md, section 2.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, cosh, exp, log1p, log2, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.law import UNDERFLOW, UNIT_ROUNDOFF, Array
from hockeystick.laws.profile import MAX_EPSILON
from hockeystick.types import Direction, Side

AT_ONCE = 16
"""Frequencies that are computed together."""
SMOOTHING = 0.02
"""Standard deviation of what is added to X, relative to the distance of the threshold from 1."""
LEAST_SMOOTHING = 0.1
"""The same relative to the standard deviation of X: less is of no use."""
OF_ADDING = 3.0
"""Distances below 1 count as so many times as long, as delta falls so much faster there."""
ROOM = 1.5
"""Thresholds up to 1 + this multiple of the distance that is asked for are served."""
LITTLE_ROOM, MOST_WIDER = 1.2, 2.5
"""The same multiple for quick transforms, and how much wider their smoothing is at most: by epsilon, as delta falls the
slower with the threshold the larger epsilon is."""
FINER, LARGER, MOST_LARGER = 3.0, 2.0, 4
"""Ratios of the distances of finer and of larger transforms, and how many larger ones there may be."""
PEAK, CUT = 9.0, 7.0
"""Where the test function turns, below 0, and where frequencies end: in standard deviations of what is added."""
NARROW, DAMPINGS = 3.0, 4
"""Thresholds below so many standard deviations of what is added are bounded without it as well, from so many means."""
PERIOD, DAMPING = 2.5, 12.0
"""The period in multiples of the largest threshold, and by how much one period is damped, on a log scale."""


@dataclass(frozen=True, kw_only=True)
class Transform:
    """The transform of ``W = X + smoothing N`` at ``damping - i f pace``, f = 0, 1, ..., and what bounds its use.

    Attributes:
        values: of X, complex.
        smoothing: standard deviation of the normal variable that is added.
        largest: the largest threshold that may be asked for.
        total, mean: the mass of X, and its mean with what is at infinity, or less; the true mean is at most 1.
        error: bound on the error of each value, one for all or one for each.
        sum_error: relative, of ``total`` and ``mean``.
    """

    values: NDArray[np.complex128]
    damping: float
    pace: float
    smoothing: float
    largest: float
    total: float
    mean: float
    error: float | NDArray[np.float64]
    sum_error: float

    def call(self, threshold: float, side: Side) -> float:
        """``E (X - threshold)_+`` on this side, what is at infinity included."""
        exact = self.mean - threshold * self.total
        rounding = 4.0 * self.sum_error * (self.mean + threshold * self.total)
        return exact + self.put(threshold, side) + (rounding if side is Side.UPPER else -rounding)

    def put(self, threshold: float, side: Side) -> float:
        """``E (threshold - X)_+`` on this side."""
        s, peak, z = self.smoothing, PEAK * self.smoothing, self._places()
        period, last = 2.0 * pi / self.pace, float(-z[-1].imag)
        factor = np.exp(0.5 * (z * s) ** 2)
        weights = np.where(z.imag == 0.0, 1.0, 2.0) / period
        size = 4.0 * cosh(0.5 * self.damping * (threshold + peak)) ** 2 * exp(-self.damping * peak)
        tested = np.exp(-z * peak) * (2.0 * np.sinh(0.5 * z * (threshold + peak)) / z) ** 2
        rounded = self.error + float(self.values[0].real) * UNIT_ROUNDOFF * (
            z.size + 512.0 + 16.0 * last * (threshold + 2.0 * peak)
        )
        error = float(weights @ (rounded * size / np.abs(z) ** 2 * np.abs(factor)))
        beyond = float(self.values[0].real + np.max(self.error)) * exp(
            0.5 * ((self.damping * s) ** 2 - (last * s) ** 2)
        )
        error += size * beyond / (pi * last)
        value = float(weights @ (tested * factor * self.values).real)
        if side is Side.UPPER:
            return value + error + 2.0 * s * self.total * exp(-0.5 * PEAK**2)
        density_error = exp(self.damping * threshold) * float(weights @ (rounded * np.abs(factor)))
        density_error += exp(self.damping * threshold) * beyond / (pi * s * s * last)
        density = float(weights @ (np.exp(z * threshold) * factor * self.values).real)
        added = s * s * max(density + density_error, 0.0)
        return value - error - added - self._folded(threshold)

    def _places(self) -> NDArray[np.complex128]:
        return np.asarray(self.damping - 1j * self.pace * np.arange(self.values.size), dtype=np.complex128)

    def _folded(self, threshold: float) -> float:
        """More than what all other periods add to the put of W; those above by Markov's inequality."""
        period, peak = 2.0 * pi / self.pace, PEAK * self.smoothing
        kept = self.call(self.largest, Side.UPPER) + max(1.0 - self.mean, 0.0)  # the mean may be a lower bound
        above = kept / (period - 2.0 * peak - threshold - self.largest)
        return (threshold + peak) * (exp(-DAMPING) / (1.0 - exp(-DAMPING)) * above + 1e-64)


def frequencies(smoothing: float, largest: float) -> tuple[float, float, int]:
    """The damping, the distance of frequencies and their number."""
    period = PERIOD * largest + 2.0 * PEAK * smoothing
    pace = 2.0 * pi / period
    return DAMPING / period, pace, AT_ONCE * ceil((CUT / smoothing / pace + 2.0) / AT_ONCE)


def scale_of(epsilon: float, spread: float, quick: bool = False) -> tuple[float, float]:
    """The smoothing for an epsilon, and the largest threshold that goes with it; ``spread`` is that of X.

    ``quick`` transforms have fewer frequencies, for some hundredths of a percent of epsilon.
    """
    beyond = exp(min(epsilon, MAX_EPSILON)) - 1.0
    distance = min(beyond, OF_ADDING * beyond / (1.0 + beyond))
    wider, room = (min(max(epsilon, 1.0), MOST_WIDER), LITTLE_ROOM) if quick else (1.0, ROOM)
    return max(wider * SMOOTHING * distance, LEAST_SMOOTHING * spread), 1.0 + room * max(beyond, spread)


def spread_of(products: Array) -> float:
    """The standard deviation of X, large exponents apart; ``products`` are covariances of the bins."""
    return sqrt(float(np.expm1(np.minimum(products, 5.0)).mean()))


def shares_of_delta(damping: float, pace: float, count: int, smoothing: float, largest: float) -> Array:
    """About what an error of one at each frequency adds to delta, shape (count,); a guide for tolerances."""
    theta = pace * np.arange(count, dtype=np.float64)
    added = 4.0 * exp(damping * largest) * pace / pi * (1.0 / (damping**2 + theta**2) + smoothing**2)
    return np.asarray(added * np.exp(0.5 * (damping**2 - theta**2) * smoothing**2))


@dataclass(frozen=True)
class BoundedTransform:
    """A transform and what it leaves out.

    Attributes:
        transform: of the law that stands for X.
        mass_error, place_error: relative errors of that law's masses, and of its places.
        lost: bound on the chance of what is left out, under Q and under P.
        vain: whether the errors are so large that no more than trivial bounds follow.
    """

    transform: Transform
    mass_error: float
    place_error: float
    lost: float
    vain: bool = False


@dataclass(frozen=True)
class TransformProfiles:
    """Both directions of the profile of X, by as many transforms as are asked for.

    Attributes:
        transformed: the transform for a smoothing and a largest threshold.
        spread: about the standard deviation of X.
        side: UPPER is at least the truth, LOWER at most.
        delta: what is far below it is bounded loosely.
        epsilon: where the bounds have to be good.
        alone: whether they need not be good elsewhere.
        quick: of :func:`scale_of`.
    """

    transformed: Callable[[float, float], BoundedTransform]
    spread: float
    side: Side
    delta: float
    epsilon: float
    alone: bool
    quick: bool = False
    _known: dict[int, BoundedTransform] = field(default_factory=dict, repr=False)
    _means: dict[int, float] = field(default_factory=dict, repr=False)

    def profiles(self) -> dict[Direction, Callable[[float], float]]:
        """One for each direction; the first transform is computed here."""
        self._at(0)
        return {direction: partial(self.delta_at, direction=direction) for direction in Direction}

    @property
    def vain(self) -> bool:
        """Whether the first transform bounds nothing."""
        return self._at(0).vain

    def sharing(self, other: "TransformProfiles") -> "TransformProfiles":
        """The same profiles, with the transforms of the same X for the same numbers that others have computed."""
        same = (self.side, self.delta, self.epsilon, self.quick) == (
            other.side,
            other.delta,
            other.epsilon,
            other.quick,
        )
        return replace(self, _known=other._known, _means=other._means) if same else self

    def delta_at(self, epsilon: float, direction: Direction) -> float:
        """delta at an epsilon. Beyond what the transforms serve upper bounds are constant, and lower ones 0."""
        upper = self.side is Side.UPPER
        serving = self._serving(epsilon)
        moved = serving.place_error + 8.0 * UNIT_ROUNDOFF
        slack = serving.mass_error + moved
        if not slack < 0.5:
            return 1.0 if upper else 0.0
        threshold = exp(min(epsilon, MAX_EPSILON))
        threshold = threshold * (1.0 - moved) if upper else threshold / (1.0 - moved)
        if threshold > serving.transform.largest:
            if not upper:
                return 0.0
            threshold = serving.transform.largest
        if direction is Direction.REMOVE:
            value = serving.transform.call(threshold, self.side)
        else:
            put = serving.transform.put(1.0 / threshold, self.side)
            if upper and 1.0 / threshold < NARROW * serving.transform.smoothing and threshold * put > self.delta:
                put = min(put, self._damped(1.0 / threshold))
            value = threshold * put
        value = (value + serving.lost) / (1.0 - slack) + UNDERFLOW if upper else value * (1.0 - slack)
        return min(max(float(value), 0.0), 1.0)

    def _damped(self, threshold: float) -> float:
        """No less than ``E (threshold - X)_+``, however small: ``y_+ <= exp(a y) / (e a)`` for every a > 0."""
        first = ceil(log2(1.0 / threshold)) + 1
        return min(
            exp(2.0**power * threshold - 1.0) * self._mean(power) / 2.0**power
            for power in range(first, first + DAMPINGS)
        )

    def _mean(self, power: int) -> float:
        """No less than ``E exp(-a X)`` for ``a = 2^power``, by a transform of few frequencies with this damping."""
        if power not in self._means:
            period = DAMPING / 2.0**power
            transform = self.transformed(0.25 * period / PEAK, 0.5 * period / PERIOD).transform
            self._means[power] = float(transform.values[0].real) + float(np.ravel(transform.error)[0])
        return self._means[power]

    def _serving(self, epsilon: float) -> BoundedTransform:
        """The coarsest transform that suits an epsilon; a larger one where those do not reach delta."""
        ratio = exp(min(epsilon, MAX_EPSILON))
        wanted = 2.0 * scale_of(epsilon, self.spread, self.quick)[0]
        level = 0
        while not self.alone and ratio < self._scale(level + 1)[1] and self._scale(level)[0] > wanted:
            level += 1
        while ratio > self._scale(level)[1] and level > -MOST_LARGER:
            transform = self._at(level).transform
            if transform.call(transform.largest, self.side) <= self.delta:
                break
            level -= 1
        return self._at(level)

    def _scale(self, level: int) -> tuple[float, float]:
        distance = max(exp(self.epsilon) - 1.0, self.spread)
        distance *= FINER ** -float(level) if level > 0 else LARGER ** -float(level)
        return scale_of(log1p(distance), self.spread, self.quick)

    def _at(self, level: int) -> BoundedTransform:
        if level not in self._known:
            self._known[level] = self.transformed(*self._scale(level))
        return self._known[level]
