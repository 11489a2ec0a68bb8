"""How large the moments of a Poisson step are at high frequencies, by a path of integration that is moved.

On the line ``Im z = d``, ``0 < theta = mu d < pi``, the ratio ``X(z) = X(x) (1 - w + w e^(i theta))`` has an argument
between 0 and theta, which rises with x, the real part of z, as w does. With the tilted density p of x (see
:mod:`.poisson_moments`) that makes, for every t >= 0,

    |M(c + it) / M(c)| <= e^(d^2 / 2) int p(x) |1 - w + w e^(i theta)|^c e^(-t arg(1 - w + w e^(i theta))) dx.

Proof: docs/theory/contours.md, "Where the line may end".
"""

from math import cos, exp, inf, log, sin, sqrt
from typing import NamedTuple

import numpy as np

from hockeystick.bracketing import close_bracket
from hockeystick.laws.law import Array

CLEARANCE, MOST_TURN, TURN_OF_PUTS = 0.85, 1.1, 4.0
"""The distance d is at most the first number times the one at which ``e^(-d^2 / 2)`` is the size that is sought, theta
at most the second number, and where c < 0 the third one over the root of -c. They decide about tightness alone."""
NEGLIGIBLE = 1e-20
"""A cell with a smaller share counts as if nothing on it turned."""
ROUNDING = 1e-6
"""Far above the error of the sum of densities (ERROR_OF_LOGS) and the rounding of shares and angles, relative."""
SMALLEST = 1e-300
"""Added to what does not turn, so that the bound has a logarithm."""
LEAST, MOST = 1e-3, 1e15
"""Frequencies between which an end is sought."""
WIDTH = 0.02
"""Relative distance from the least frequency that the bound allows."""
FARTHER = 4.0
"""By how much frequencies fall until one is too low."""


class MovedPath(NamedTuple):
    """The bound ``sum_k shares_k e^(-t angles_k) + rest`` on ``|M(c + it) / M(c)|`` for every frequency t >= 0.

    Attributes:
        shares: shape (n,), at least what the cells of x contribute at t = 0.
        angles: shape (n,), at most the arguments on them.
        rest: what is counted as if it did not turn.
    """

    shares: Array
    angles: Array
    rest: float

    def log_bound(self, frequency: float) -> float:
        """The logarithm of the bound, which falls with the frequency."""
        return log(float(self.shares @ np.exp(-frequency * self.angles)) + self.rest)

    def settled(self, log_size: float, at_most: float = inf) -> float:
        """A frequency from which on the bound is at most ``e^log_size``; infinite where there is none up to at_most."""
        high = min(at_most, MOST)
        at_high = self.log_bound(high) - log_size
        if at_high > 0.0:
            return inf
        low, at_low = high, at_high
        while at_low <= 0.0:
            if low <= LEAST:
                return low
            high, at_high = low, at_low
            low = high / FARTHER
            at_low = self.log_bound(low) - log_size

        def excess(log_frequency: float) -> float:
            return self.log_bound(exp(log_frequency)) - log_size

        # Somewhat farther than where it was evaluated, as logarithms are rounded.
        _, log_high = close_bracket(excess, (log(low), at_low), (log(high), at_high), WIDTH)
        return exp(log_high) * (1.0 + 1e-12)


def moved_path(c: float, mu: float, needed: float, z: Array, logs: Array, weights: Array) -> MovedPath:
    """The bound for a distance d that serves a size of about ``e^-needed``.

    Args:
        c, mu: the real part of the order, and one over the noise multiplier.
        needed: affects tightness alone.
        z: equidistant places from one end of the nodes to the other one or beyond, shape (n,), so close that sums over
            them have the error of :meth:`PoissonMoments.log_moments`.
        logs, weights: ``log X`` and w at each of them, shape (n,).

    Which side it errs on: upward. Beyond the ends the density falls by at least ``e^-REACH`` for each unit, and REACH
    is above 7. Between places h apart the logarithm of the density is at most its chord plus ``curvature h^2 / 8``; the
    chord's exponential is convex, so at most that of both ends on average. Arguments count as those of the lower end.
    ``v = |1 - w + w e^(i theta)|^2`` is convex in w: it is at most that of an end, and at least that of an end unless w
    passes 1/2, where it is least.
    """
    spacing = float(z[1] - z[0])
    turn = min(CLEARANCE * mu * sqrt(2.0 * needed), MOST_TURN, TURN_OF_PUTS / sqrt(-c) if c < 0.0 else inf)
    exponents = c * logs - 0.5 * z * z
    densities = np.exp(exponents - exponents.max())
    curvature = 1.0 if c >= 0.0 else 1.0 - 0.25 * c * mu * mu
    factor = exp(0.5 * (turn / mu) ** 2 + curvature * spacing**2 / 8.0) * (1.0 + ROUNDING) / float(densities.sum())
    shares = (0.5 * factor) * (densities[1:] + densities[:-1])
    outside = factor * float(densities[0] + densities[-1]) / (7.0 * spacing)
    lower, upper, least = weights[:-1], weights[1:], cos(0.5 * turn) ** 2
    at_places = 1.0 - (2.0 - 2.0 * cos(turn)) * weights * (1.0 - weights)
    if c >= 0.0:
        squares = np.maximum(at_places[:-1], at_places[1:])
    else:
        squares = np.where((lower < 0.5) & (upper > 0.5), least, np.minimum(at_places[:-1], at_places[1:]))
        outside *= least ** (0.5 * c)
    shares *= squares ** (0.5 * c)
    turned = shares > NEGLIGIBLE
    angles = np.arctan2(sin(turn) * lower[turned], 1.0 - (1.0 - cos(turn)) * lower[turned]) * (1.0 - ROUNDING)
    return MovedPath(shares[turned], angles, outside + float(shares[~turned].sum()) + SMALLEST)
