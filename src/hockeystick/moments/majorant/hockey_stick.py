"""The hockey stick of a hockey-stick divergence after a log-normal factor is integrated out, with proved rounding.

Where the likelihood ratio is ``L Y`` with L log-normal of mean 1 and log-variance v, independent of Y, the two
directions are expectations of ``F(Y)`` with

    F(x) = E (L x - K)_+    (remove),        F(x) = E (1 - K L x)_+    (add),        K = e^eps.

With ``a = x, b = K`` (remove) or ``a = K x, b = 1`` (add), ``t = ln(a / b)`` and ``mu = sqrt(v)`` both are

    F(x) = (a - b)_+ or (b - a)_+, plus min(a, b) g(|t|),
    g(s) = Phi(e) - e^s Phi(e - mu) = phi(e) (R(e) - R(e - mu)),    e = mu/2 - s/mu,    R = Phi / phi.

Proofs, and the bounds on rounding used here: ``docs/theory/moment-majorants/proof.md``.
"""

from dataclasses import dataclass
from math import exp, inf, nextafter, pi, sqrt

import numpy as np
from scipy.special import erfcx

from hockeystick.errors import InvalidInputError
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.types import Direction

ERFCX_ERROR = 1e-14
"""Assumed relative error of scipy's ``erfcx`` at doubles z >= 0; ``2 u z^2`` more at z in [-12, 0). Tested."""
ELEMENTARY_ERROR = 4.0 * UNIT_ROUNDOFF
"""Assumed relative error of ``exp`` and ``log`` of libm and numpy (2 units in the last place)."""
FARTHEST = 36.0
"""Beyond so many standard deviations (a mass of 1e-283) arguments of Phi are cut, towards the safe side."""
UNDERFLOW = 1e-300
"""More than a product can lose at the end of the range of doubles."""
LARGEST_VARIANCE = 1000.0
SMALLEST_VARIANCE = 1e-100
"""Smaller ones count as this or as 0, whichever is safe."""
LARGEST_EPSILON = 300.0


@dataclass(frozen=True)
class SplitHockeyStick:
    """F of the module's head, as :class:`hockeystick.moments.majorant.base.HockeyStick` asks.

    F is convex on [0, oo) with slopes in [0, 1] (remove) or [-K, 0] (add), and grows with v.

    Attributes:
        direction: which of the two.
        epsilon: of K = e^epsilon, taken exactly as the double says, in [0, ``LARGEST_EPSILON``].
        variance: v in [0, ``LARGEST_VARIANCE``]; 0 where there is no common factor.
        variance_error: proved relative error of ``variance`` below 1/2; the default covers a product of two doubles.

    Raises: InvalidInputError for values outside those ranges.
    """

    direction: Direction
    epsilon: float
    variance: float
    variance_error: float = 2.0 * UNIT_ROUNDOFF

    def __post_init__(self) -> None:
        if not 0.0 <= self.epsilon <= LARGEST_EPSILON:
            raise InvalidInputError(f"epsilon is {self.epsilon!r}, but it must lie in [0, {LARGEST_EPSILON}].")
        if not 0.0 <= self.variance <= LARGEST_VARIANCE:
            raise InvalidInputError(f"variance is {self.variance!r}, but it must lie in [0, {LARGEST_VARIANCE}].")
        if not 0.0 <= self.variance_error < 0.5:
            raise InvalidInputError(f"variance_error is {self.variance_error!r}, but it must lie in [0, 0.5).")

    def value(self, x: Array) -> Array:
        """F(x) for x >= 0 of any shape, relative error about 1e-15 / mu; not a bound."""
        strike = exp(self.epsilon)
        mu = sqrt(self.variance)
        if self.direction is Direction.REMOVE:
            intrinsic, base = np.maximum(x - strike, 0.0), np.minimum(x, strike)
        else:
            intrinsic, base = np.maximum(1.0 - strike * x, 0.0), np.minimum(strike * x, 1.0)
        if mu == 0.0:
            return intrinsic
        argument = _threshold(np.abs(self._log_moneyness(x)[0]), mu)
        return intrinsic + base * _density(argument) * (_ratio(argument) - _ratio(argument - mu))

    def above(self, x: Array) -> Array:
        """Proved to be at least F(x), for x >= 0 of any shape.

        Beyond F by at most some ``1e-13 min(a, b) Phi(e)`` and the effect of the error of v; exact at x = 0.
        """
        low, high = self._strike()
        if self.direction is Direction.REMOVE:
            intrinsic, base = np.maximum(x - low, 0.0), np.minimum(x, high)
        else:
            below = low * x * (1.0 - 2.0 * UNIT_ROUNDOFF)
            intrinsic, base = np.maximum(1.0 - below, 0.0), np.minimum(high * x * (1.0 + 2.0 * UNIT_ROUNDOFF), 1.0)
        mu = self._largest_deviation()
        time_value = np.zeros_like(x)
        if mu > 0.0:
            log_moneyness, error = self._log_moneyness(x)
            distance = np.maximum(np.abs(log_moneyness) - error, 0.0)
            time_value = base * _time_value_above(distance, mu) + np.where(x > 0.0, UNDERFLOW, 0.0)
        total = (intrinsic + time_value) * (1.0 + 8.0 * UNIT_ROUNDOFF)
        return np.minimum(total, x if self.direction is Direction.REMOVE else 1.0)

    def line_below(self, x: Array) -> tuple[Array, Array]:
        """Intercepts and slopes of lines that are proved to be at most F on [0, oo), tangent at x but for rounding.

        Whatever e the rounding leaves belongs to a valid line, infinite ones included; mu may be too small.
        """
        mu = self._smallest_deviation()
        log_moneyness, _ = self._log_moneyness(x)
        depth = log_moneyness if self.direction is Direction.REMOVE else -log_moneyness
        at_zero = -inf if self.direction is Direction.REMOVE else inf
        if mu > 0.0:
            argument = np.where(x > 0.0, depth / mu + 0.5 * mu, at_zero)
        else:
            argument = np.where((depth > 0.0) | ((x == 0.0) & (at_zero > 0.0)), inf, -inf)
        always, never = argument > FARTHEST, argument < -FARTHEST
        argument = np.clip(argument, -FARTHEST, FARTHEST)
        gain = _normal(argument, -1.0)
        loss = _normal(argument - mu + 2.0 * UNIT_ROUNDOFF * (np.abs(argument) + mu), 1.0)
        gain = np.where(always, 1.0, np.where(never, 0.0, gain))
        loss = np.where(always, 1.0, np.where(never, 0.0, loss))
        cost = self._strike()[1] * loss * (1.0 + 2.0 * UNIT_ROUNDOFF)
        return (-cost, gain) if self.direction is Direction.REMOVE else (gain, -cost)

    def line_beyond(self, x: float) -> tuple[float, float]:
        """Intercept and slope of a line proved to be at least F on [x, oo): slopes of F are at most 1, or 0 for add."""
        height = float(self.above(np.array([x]))[0])
        if self.direction is Direction.REMOVE:
            return nextafter(height - x, inf), 1.0
        return height, 0.0

    def _strike(self) -> tuple[float, float]:
        """K from below and from above."""
        strike = exp(self.epsilon)
        return strike * (1.0 - 2.0 * ELEMENTARY_ERROR), strike * (1.0 + 2.0 * ELEMENTARY_ERROR)

    def _log_moneyness(self, x: Array) -> tuple[Array, Array]:
        """t = ln(a / b) and its error. At x = 0 a large negative number stands for -oo."""
        logarithm = np.log(np.maximum(x, 5e-324))
        shift = -self.epsilon if self.direction is Direction.REMOVE else self.epsilon
        return logarithm + shift, 2.0 * ELEMENTARY_ERROR * (np.abs(logarithm) + abs(shift))

    def _largest_deviation(self) -> float:
        if self.variance == 0.0:
            return 0.0
        largest = max(self.variance * (1.0 + self.variance_error), SMALLEST_VARIANCE)
        return sqrt(largest * (1.0 + 4.0 * UNIT_ROUNDOFF)) * (1.0 + 2.0 * UNIT_ROUNDOFF)

    def _smallest_deviation(self) -> float:
        smallest = self.variance * (1.0 - self.variance_error)
        if smallest < SMALLEST_VARIANCE:
            return 0.0
        return sqrt(smallest * (1.0 - 4.0 * UNIT_ROUNDOFF)) * (1.0 - 2.0 * UNIT_ROUNDOFF)


def _threshold(distance: Array, mu: float) -> Array:
    """``e = mu/2 - s/mu``, not below ``-FARTHEST``."""
    return np.maximum(0.5 * mu - distance / mu, -FARTHEST)


def _time_value_above(distance: Array, mu: float) -> Array:
    """At least g(s) for s = ``distance`` >= 0: g falls with s and so grows with e, which is rounded upwards."""
    distance = np.minimum(distance, mu * (0.5 * mu + 2.0 * FARTHEST))
    argument = _threshold(distance, mu) + 4.0 * UNIT_ROUNDOFF * (distance / mu + mu)
    ratio = _ratio(argument)
    difference = ratio - _ratio(argument - mu)
    return _density(argument) * (difference + _rounding(argument) * ratio)


def _normal(d: Array, sign: float) -> Array:
    """Phi(d) from above (sign 1) or below (sign -1), for d cut to ``FARTHEST``: 1 minus the smaller tail, or that."""
    d = np.clip(d, -FARTHEST, FARTHEST)
    rounding = np.where(d > 0.0, -sign, sign) * _rounding(d)
    tail = _density(d) * _ratio(-np.abs(d)) * (1.0 + rounding)
    return np.where(d > 0.0, 1.0 - tail, tail) * (1.0 + sign * 4.0 * UNIT_ROUNDOFF)


def _rounding(d: Array) -> Array:
    """Bound on the relative errors of phi(d), R(d) and R(d - mu) together, for -36 <= d <= mu/2 + 1 <= 17."""
    return 2.0 * ERFCX_ERROR + (24.0 + 5.0 * d * d) * UNIT_ROUNDOFF


def _density(d: Array) -> Array:
    return np.exp(-0.5 * d * d) * (1.0 / sqrt(2.0 * pi))


def _ratio(d: Array) -> Array:
    """``Phi(d) / phi(d)``."""
    return sqrt(0.5 * pi) * erfcx(d * -sqrt(0.5))
