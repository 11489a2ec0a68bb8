"""Profiles of a sum over a hidden chain by its Laplace transform: no grid for the sum, and both sides within a tenth
of a percent of epsilon.

Given the states the bins add independent terms, so the transform of their sum at one frequency is found backwards with
one complex number for each state. A normal variable that is added to the sum makes its transform end after some
hundred frequencies; it is a spread, and what it adds is bounded by its own density at the threshold. Ratios of what is
rare to what is not are limited by rounding, which can add some 1e-9 to delta.

Proof: docs/theory/hidden-chains.md, section 5. Cost: O(frequencies bins edges).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import ceil, cosh, exp, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from hockeystick.deadline import Deadline
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import UNDERFLOW, UNIT_ROUNDOFF, Array, Law
from hockeystick.laws.profile import MAX_EPSILON
from hockeystick.types import Direction, Side
from hockeystick.windows.hidden_chain import (
    LATTICE_ERROR,
    LOST_SHARE,
    WHITE_NODES,
    HiddenChain,
    States,
    size_of,
    states_of,
)
from hockeystick.windows.hidden_chain_kernels import chain_transforms, mixed_numbers, step_transforms

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
FINER, LARGER, MOST_LARGER = 3.0, 2.0, 4
"""By how much the distances of further transforms differ, and how many larger ones there may be."""
PEAK, CUT = 9.0, 7.0
"""Where the test function turns, below 0, and where frequencies end: in standard deviations of what is added."""
PERIOD, DAMPING = 2.5, 12.0
"""The period in multiples of the largest threshold, and by how much one period is damped, on a log scale."""
SCALES = 160.0
"""Levels of what is seen of the states in upper transforms, at noise as large as that."""
ALIKE = 1e-6
"""Relative difference of scales below which there is nothing to place levels between."""
EDGE_PACE, ATOM_PACE, ATOMS = 4.5e-10, 4e-9, 130.0
"""Seconds for each edge, and for each atom of the white noise, at one frequency; about how many atoms there are."""


@dataclass(frozen=True, kw_only=True)
class Transform:
    """The transform of ``W = X + smoothing N`` at ``damping - i f pace``, f = 0, 1, ..., and what bounds its use.

    Attributes:
        values: of X, complex.
        smoothing: standard deviation of the normal variable that is added.
        largest: the largest threshold that may be asked for.
        total, mean: the mass of X, and its mean with what is at infinity.
        error: bound on the rounding of each value.
        sum_error: relative, of ``total`` and ``mean``.
    """

    values: NDArray[np.complex128]
    damping: float
    pace: float
    smoothing: float
    largest: float
    total: float
    mean: float
    error: float
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
        error = rounded * float(weights @ (size / np.abs(z) ** 2 * np.abs(factor)))
        beyond = float(self.values[0].real + self.error) * exp(0.5 * ((self.damping * s) ** 2 - (last * s) ** 2))
        error += size * beyond / (pi * last)
        found = float(weights @ (tested * factor * self.values).real)
        if side is Side.UPPER:
            return found + error + 2.0 * s * self.total * exp(-0.5 * PEAK**2)
        density_error = rounded * exp(self.damping * threshold) * float(weights @ np.abs(factor))
        density_error += exp(self.damping * threshold) * beyond / (pi * s * s * last)
        density = float(weights @ (np.exp(z * threshold) * factor * self.values).real)
        added = s * s * max(density + density_error, 0.0)
        return found - error - added - self._folded(threshold)

    def _places(self) -> NDArray[np.complex128]:
        return np.asarray(self.damping - 1j * self.pace * np.arange(self.values.size), dtype=np.complex128)

    def _folded(self, threshold: float) -> float:
        """More than what all other periods add to the put of W; those above by Markov's inequality."""
        period, peak = 2.0 * pi / self.pace, PEAK * self.smoothing
        above = self.call(self.largest, Side.UPPER) / (period - 2.0 * peak - threshold - self.largest)
        return (threshold + peak) * (exp(-DAMPING) / (1.0 - exp(-DAMPING)) * above + 1e-64)


def frequencies(smoothing: float, largest: float) -> tuple[float, float, int]:
    """The damping, the distance of frequencies and their number."""
    period = PERIOD * largest + 2.0 * PEAK * smoothing
    pace = 2.0 * pi / period
    return DAMPING / period, pace, AT_ONCE * ceil((CUT / smoothing / pace + 2.0) / AT_ONCE)


def scale_of(epsilon: float, spread: float) -> tuple[float, float]:
    """The smoothing for an epsilon, and the largest threshold that goes with it; ``spread`` is that of X."""
    beyond = exp(min(epsilon, MAX_EPSILON)) - 1.0
    distance = min(beyond, OF_ADDING * beyond / (1.0 + beyond))
    return max(SMOOTHING * distance, LEAST_SMOOTHING * spread), 1.0 + ROOM * max(beyond, spread)


def spread_of(chain: HiddenChain) -> float:
    """The standard deviation of X, large exponents apart."""
    return sqrt(float(np.expm1(np.minimum(chain.products, 5.0)).mean()))


def transform_work(chain: HiddenChain, side: Side, delta: float, epsilon: float) -> float:
    """Rough seconds of the transform that serves this epsilon."""
    states, edges = size_of(chain, delta)
    count = frequencies(*scale_of(epsilon, spread_of(chain)))[2]
    kinds = int(np.unique(np.stack([chain.gains, chain.whites]), axis=1).shape[1])
    scales = min(states, SCALES * sqrt(chain.seen_variance) / chain.white) if side is Side.UPPER else states
    return float(count * (EDGE_PACE * chain.bins * states * edges + ATOM_PACE * ATOMS * kinds * scales))


@dataclass(frozen=True)
class Levels:
    """Scales of which those of the states are means.

    Attributes:
        places: the scales.
        before, share: shape (S,), the scale below that of each state, and how much of the one above it there is; every
            state has its own scale where they are None.
    """

    places: Array
    before: NDArray[np.int64] | None = None
    share: Array | None = None

    @classmethod
    def upper(cls, scales: Array, width: float) -> "Levels":
        """Two scales for each, a spread, if fewer than half as many scales this far apart on a log scale suffice."""
        low, high = float(scales.min()), float(scales.max())
        if not (low > 0.0 and high > low * (1.0 + ALIKE)):
            return cls(scales)
        count = ceil((log(high) - log(low)) / width) + 2 if width > 0.0 else scales.size
        if 2 * count > scales.size:
            return cls(scales)
        places = np.geomspace(low, high, count)
        before = np.clip(np.searchsorted(places, scales, side="right") - 1, 0, count - 2)
        share = np.clip((scales - places[before]) / (places[before + 1] - places[before]), 0.0, 1.0)
        return cls(places, before, share[:, None])

    def between(self, found: Array) -> Array:
        """Of the states, given those of the levels."""
        if self.before is None or self.share is None:
            return found
        return found[self.before] * (1.0 - self.share) + found[self.before + 1] * self.share


def _transform(
    chain: HiddenChain, states: States, side: Side, delta: float, smoothing: float, largest: float, deadline: Deadline
) -> tuple[Transform, float, float]:
    """With relative errors of masses and of places; the lattice and the states left out are not part of them."""
    damping, pace, count = frequencies(smoothing, largest)
    edges = (states.starts, states.targets, states.chances)
    different, kinds = np.unique(np.stack([chain.gains, chain.whites]), axis=1, return_inverse=True)
    kinds = kinds.ravel().astype(np.int64)
    noises = [_noise(float(gain * white), side, delta) for gain, white in different.T]
    scales = [np.exp(gain * states.seen - 0.5 * gain**2 * chain.seen_variance) / chain.bins for gain in different[0]]
    if side is Side.UPPER:
        widths = different[0] * different[1] / WHITE_NODES
        levels = [Levels.upper(scale, float(width)) for scale, width in zip(scales, widths, strict=True)]
    else:
        levels = [Levels(scale) for scale in scales]
    parts = []
    for first in range(0, count, AT_ONCE):
        steps = []
        for noise, scale in zip(noises, levels, strict=True):
            deadline.tick()
            found = step_transforms(scale.places, noise.support, noise.mass, damping, pace, first, AT_ONCE)
            steps.append(scale.between(found))
        deadline.tick()
        both = chain_transforms(*edges, states.start, states.end, np.array(steps), kinds)
        parts.append(both[:AT_ONCE] + 1j * both[AT_ONCE:])
    values = np.concatenate(parts)
    totals, means = states.end.copy(), np.zeros(states.end.size)
    for place in range(chain.bins - 1, -1, -1):
        if place < chain.bins - 1:
            totals, means = mixed_numbers(*edges, totals), mixed_numbers(*edges, means)
        noise, scale = noises[kinds[place]], scales[kinds[place]]
        mass = float(noise.mass.sum())
        means = means * mass + totals * scale * noise.mean()
        totals = totals * mass
    total, mean = float(states.start @ totals), float(states.start @ means)
    each = 2.0 * float(np.diff(states.starts).max()) + 2.0 * max(noise.size for noise in noises) + 4.0 * AT_ONCE + 64.0
    sum_error = 2.0 * UNIT_ROUNDOFF * (chain.bins * each + states.end.size)
    error = sum_error * float(values[0].real) + total * (
        16.0 * UNIT_ROUNDOFF * count * pace / damping + 1e-26 * chain.bins
    )
    exponent = float(np.max(np.abs(states.seen))) * float(chain.gains.max()) + chain.seen_variance + 64.0
    mass_error = chain.bins * (max(noise.mass_error for noise in noises) + 64.0 * exponent * UNIT_ROUNDOFF)
    place_error = max(noise.place_error for noise in noises) + 16.0 * exponent * UNIT_ROUNDOFF
    transform = Transform(
        values=values,
        damping=damping,
        pace=pace,
        smoothing=smoothing,
        largest=largest,
        total=total,
        mean=mean,
        error=error,
        sum_error=sum_error,
    )
    return transform, mass_error, place_error


def _noise(deviation: float, side: Side, delta: float) -> Law:
    """The law of ``exp(deviation e - deviation^2 / 2)``, e standard normal."""
    if deviation == 0.0:
        return Law(np.array([1.0]), np.array([1.0]), 0.0, side, 0.0, 0.0)
    return gaussian_law(1.0 / deviation, 1.0, side, Resolution(WHITE_NODES, delta * 1e9))


@dataclass(frozen=True)
class ChainProfiles:
    """Both directions of the profile of a chain, by as many transforms as are asked for.

    Attributes:
        side: UPPER is at least the truth, LOWER at most.
        delta: what is far below it is bounded loosely.
        epsilon: where the bounds have to be good.
        alone: whether they need not be good elsewhere.
    """

    chain: HiddenChain
    side: Side
    delta: float
    epsilon: float
    alone: bool
    deadline: Deadline
    _states: list[States] = field(default_factory=list)
    _known: dict[int, tuple[Transform, float, float]] = field(default_factory=dict)

    def profiles(self) -> dict[Direction, Callable[[float], float]]:
        """One for each direction; the first transform is computed here."""
        self._at(0)
        return {direction: partial(self.delta_at, direction=direction) for direction in Direction}

    def delta_at(self, epsilon: float, direction: Direction) -> float:
        """delta at an epsilon. Beyond what the transforms serve upper bounds are constant, and lower ones 0."""
        upper = self.side is Side.UPPER
        found, mass_error, place_error = self._serving(epsilon)
        moved = place_error + 8.0 * UNIT_ROUNDOFF
        slack = LATTICE_ERROR + mass_error + moved
        if not slack < 0.5:
            return 1.0 if upper else 0.0
        threshold = exp(min(epsilon, MAX_EPSILON))
        threshold = threshold * (1.0 - moved) if upper else threshold / (1.0 - moved)
        if threshold > found.largest:
            if not upper:
                return 0.0
            threshold = found.largest
        if direction is Direction.REMOVE:
            value = found.call(threshold, self.side)
        else:
            value = threshold * found.put(1.0 / threshold, self.side)
        value = (value + self._states[0].lost) / (1.0 - slack) + UNDERFLOW if upper else value * (1.0 - slack)
        return min(max(float(value), 0.0), 1.0)

    def _serving(self, epsilon: float) -> tuple[Transform, float, float]:
        """The coarsest transform that suits an epsilon; a larger one where those do not reach delta."""
        ratio = exp(min(epsilon, MAX_EPSILON))
        wanted = 2.0 * scale_of(epsilon, self._spread)[0]
        level = 0
        while not self.alone and ratio < self._scale(level + 1)[1] and self._scale(level)[0] > wanted:
            level += 1
        while ratio > self._scale(level)[1] and level > -MOST_LARGER:
            found = self._at(level)[0]
            if found.call(found.largest, self.side) <= self.delta:
                break
            level -= 1
        return self._at(level)

    def _scale(self, level: int) -> tuple[float, float]:
        distance = max(exp(self.epsilon) - 1.0, self._spread)
        distance *= FINER ** -float(level) if level > 0 else LARGER ** -float(level)
        return scale_of(float(np.log1p(distance)), self._spread)

    def _at(self, level: int) -> tuple[Transform, float, float]:
        if level not in self._known:
            if not self._states:
                self._states.append(states_of(self.chain, LOST_SHARE * self.delta))
            scale = self._scale(level)
            self._known[level] = _transform(self.chain, self._states[0], self.side, self.delta, *scale, self.deadline)
        return self._known[level]

    @cached_property
    def _spread(self) -> float:
        return spread_of(self.chain)
