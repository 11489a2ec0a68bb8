"""Both sides of the profile of one epoch of random allocation far out, where one of its ratios is nearly the whole sum.

With ``S = Y_1 + ... + Y_t``, independent ``Y = exp(mu z - mu^2 / 2)``, ``z ~ N(0, 1)`` under Q, and ``k = t x``, for x
well above 1,

    o(x) = E (S / t - x)_+ = E (S - k)_+ / t.

Ratios above a threshold b, a small share of k, are large. With one of them ``E (S - k)_+`` is about t calls of Y at k
less the mean of the others: the calls are a closed form, and Taylor's second order bounds the rest on either side. Two
large ratios are an integral, which is bounded cell by cell; none, or more than two, are bounded roughly.
Proof: docs/theory/contours.md, "One large ratio". Cost: O(1) for each place.
"""

from math import e, pi, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.gaussian import gaussian_deltas
from hockeystick.laws.law import Array
from hockeystick.laws.normal import log_ndtr
from hockeystick.types import Side

LARGE = 1.0 / 12.0
"""The threshold of large ratios, as a share of k."""
NEAR = 0.25
"""Share of k up to which the sum of the others is counted as near its mean."""
SPARE = 1.0 / 64.0
"""Share of k that the sum of the others may be above its mean, beside two large ratios, before more is charged."""
PACE = 0.01
"""Places whose logarithms, divided by it, have the same whole part share a threshold."""
CELLS = 10
"""Cells of the smaller one of two large ratios."""
LEAST_PLACE, MOST_PLACE = 8.0, 2.0**60
"""Places in between are answered: the proof needs x > 1 / NEAR, and all numbers are doubles."""
MARGIN, ROUNDING = 1e-9, 1e-12
"""Far above the relative rounding of sums of positive numbers, and above that of places, means and variances."""
UNDERFLOW = 1e-290
"""Above all that is lost below the smallest doubles."""


class Shared(NamedTuple):
    """What places with the same threshold have in common: arrays of the same shape.

    Attributes:
        threshold: b.
        none_of_others: the probability that no other ratio is large.
        mean, variance, squares: of the others if none of them is large: the mean and the variance of their sum, this up
            to ``ROUNDING`` times the sum of their expected squares, and that sum.
        lower, upper: bounds on what other numbers of large ratios than one add to o.
    """

    threshold: Array
    none_of_others: Array
    mean: Array
    variance: Array
    squares: Array
    lower: Array
    upper: Array


class OneLargeRatio:
    """Bounds on o at places far above 1.

    Args:
        mu: one over the noise multiplier of a visit, between 1e-2 and 4.
        bins: t, from 2 to a million.

    >>> lower, upper = OneLargeRatio(2.5, 1000).out_of_the_money(np.array([2000.0]))
    >>> bool(lower[0] <= upper[0] <= 1.00001 * lower[0])
    True
    """

    def __init__(self, mu: float, bins: int) -> None:
        self.mu, self.bins = mu, float(bins)

    def out_of_the_money(self, places: Array) -> tuple[Array, Array]:
        """Lower and upper bounds on o at places of shape (n,), between ``LEAST_PLACE`` and ``MOST_PLACE``."""
        numbers, group = np.unique(np.floor(np.log(places) / PACE), return_inverse=True)
        shared = Shared(*(values[group] for values in self._shared(numbers)))
        return self._lower(self.bins * places, shared), self._upper(self.bins * places, shared)

    def _upper(self, k: Array, shared: Shared) -> Array:
        """By the second derivative of a call of Y in the sum of the others, which grows with it."""
        rare = _beyond(NEAR * k - shared.mean, shared.threshold, shared.squares)
        calls = gaussian_deltas(self.mu, np.log((k - shared.mean) * (1.0 - ROUNDING)), Side.UPPER)
        variance = shared.variance + ROUNDING * shared.squares
        calls += 0.5 * (variance * self._density((1.0 - NEAR) * k) + rare * self._density(shared.threshold))
        return np.minimum((calls * shared.none_of_others + shared.upper) * (1.0 + MARGIN) + UNDERFLOW, 1.0)

    def _lower(self, k: Array, shared: Shared) -> Array:
        """As above, with the least second derivative, where there are no others."""
        rare = _beyond(k - shared.threshold - shared.mean, shared.threshold, shared.squares)
        calls = gaussian_deltas(self.mu, np.log((k - shared.mean) * (1.0 + ROUNDING)), Side.LOWER)
        variance = shared.variance - ROUNDING * shared.squares - rare
        calls += 0.5 * np.maximum(variance, 0.0) * self._density(k)
        lower: Array = (calls * shared.none_of_others + shared.lower) * (1.0 - MARGIN) - UNDERFLOW
        return np.maximum(lower, 0.0)

    def _shared(self, numbers: Array) -> Shared:
        """For places between ``e^(PACE number)`` and ``e^(PACE (number + 1))``."""
        t, (least, most) = self.bins, (self.bins * np.exp(PACE * (numbers + end)) for end in (0.0, 1.0))
        least, most = least * (1.0 - ROUNDING), most * (1.0 + ROUNDING)
        threshold = LARGE * least
        large, of_large = self._above(threshold)
        other, square = (values / (1.0 - large) for values in self._up_to(threshold))
        variance = square - other**2
        # None is large: a moment of the sum of all.
        scale, distance = t * square / threshold**2, (least - t * other) / threshold
        power = np.log1p(distance / scale)
        upper = np.exp(scale * (np.expm1(power) - power) - power * distance) * threshold / (e * power * t)
        # Two: the others are at most their mean and some more, or this is charged; from below they are their mean.
        spare, no_other = SPARE * least, np.exp((t - 2.0) * np.log1p(-large))
        charged = 0.5 * (t - 1.0) * large**2 * (t - 2.0) * (variance + ROUNDING * square) / (4.0 * spare)
        below, above = self._two(least - (t - 2.0) * other - spare, most - (t - 2.0) * other, threshold)
        upper += no_other * (above + charged)
        # More: whatever the sum is.
        upper += 0.5 * (t * large) ** 2 * (of_large + t * large / 3.0)
        lower = no_other * below
        count = t - 1.0
        return Shared(
            threshold=threshold,
            none_of_others=np.exp(count * np.log1p(-large)),
            mean=count * other,
            variance=count * variance,
            squares=count * square,
            lower=lower,
            upper=upper,
        )

    def _two(self, near: Array, far: Array, threshold: Array) -> tuple[Array, Array]:
        """A lower bound on ``(t - 1) / 2`` times ``E (Y_1 + Y_2 - far)_+`` over ratios above the threshold, and an
        upper one for the nearer strike, at each of some places.

        One of them is up to half of the nearer strike, or both are above that.
        """
        steps = np.linspace(0.0, 1.0, CELLS + 1)
        places = threshold[:, None] * np.exp(np.multiply.outer(np.log(0.5 * near / threshold), steps))
        masses, means = self._above(places)
        in_cells, of_cells = masses[:, :-1] - masses[:, 1:], means[:, :-1] - means[:, 1:]
        middles = np.divide(of_cells, in_cells, out=places[:, :-1].copy(), where=in_cells > 0.0)
        mass, mean = masses[:, -1], means[:, -1]
        # Calls are convex, so in a cell they are below their chords
        calls = gaussian_deltas(self.mu, np.log((near[:, None] - places) * (1.0 - ROUNDING)), Side.UPPER)
        shares = np.clip((middles - places[:, :-1]) / np.diff(places) + MARGIN, 0.0, 1.0)
        smaller = (in_cells * ((1.0 - shares) * calls[:, :-1] + shares * calls[:, 1:])).sum(axis=1)
        both = mass * (mean * (1.0 + MARGIN) - 0.5 * near * mass)
        upper: Array = (self.bins - 1.0) * (smaller + np.maximum(both, 0.0))
        # and above the call at the mean.
        middles = np.clip(middles * (1.0 - MARGIN), places[:, :-1], places[:, 1:])
        calls = gaussian_deltas(self.mu, np.log((far[:, None] - middles) * (1.0 + ROUNDING)), Side.LOWER)
        both = mass * (mean * (1.0 - MARGIN) - 0.5 * far * mass)
        lower: Array = (self.bins - 1.0) * ((in_cells * calls).sum(axis=1) + np.maximum(both, 0.0))
        return lower, upper

    def _above(self, places: NDArray[np.float64]) -> tuple[Array, Array]:
        """``Q(Y > y)`` and ``E[Y; Y > y]``."""
        z = np.log(places) / self.mu
        return _ndtr(-z - 0.5 * self.mu), _ndtr(0.5 * self.mu - z)

    def _up_to(self, places: Array) -> tuple[Array, Array]:
        """``E[Y; Y <= y]`` and ``E[Y^2; Y <= y]``."""
        z = np.log(places) / self.mu
        return _ndtr(z - 0.5 * self.mu), np.exp(self.mu**2) * _ndtr(z - 1.5 * self.mu)

    def _density(self, places: Array) -> Array:
        """The density of Y."""
        z = np.log(places) / self.mu + 0.5 * self.mu
        density: Array = np.exp(-0.5 * z * z) / (places * self.mu * sqrt(2.0 * pi))
        return density


def _ndtr(x: Array) -> Array:
    """The normal distribution function without SciPy, relatively off by at most 5e-13 above 1e-300."""
    return np.asarray(np.exp(log_ndtr(x)), dtype=np.float64)


def _beyond(distance: Array, largest: Array, squares: Array) -> Array:
    """Bounds ``E[W^2; W > distance]`` for a sum W of independent ratios up to ``largest``, less their means.

    Args:
        squares: the sum of their expected squares.
    """
    scale = squares / largest**2
    power = np.maximum(np.log1p(distance / (largest * scale)), 2.0 * largest / distance)
    exponents = scale * (np.expm1(power) - power) - power * distance / largest
    bound: Array = distance**2 * np.exp(exponents)
    return bound
