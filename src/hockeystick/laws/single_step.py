"""Both sides of the profile of a single Poisson step, in closed form.

The ratio is ``X = 1 - q + q Y`` with ``Y = exp(mu z - mu^2 / 2)`` under Q, so that

    delta(eps) = q E (Y - k)_+,        k = 1 + (e^eps - 1) / q         remove
    delta(eps) = e^eps q E (k - Y)_+,  k = 1 - (1 - e^-eps) / q        add, and 0 where k <= 0

are calls and puts of Y, which are profiles of a Gaussian: ``E (Y - k)_+ = delta_mu(log k)`` and, as both directions of
that are equal, ``E (k - Y)_+ = k delta_mu(-log k)``. Strikes are moved outwards by more than they are rounded.
"""

from math import exp, expm1, inf, log, log1p

import numpy as np

from hockeystick.laws.answers import Sides
from hockeystick.laws.gaussian import SMALLEST, gaussian_deltas
from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.types import Direction, Side

MOVED = 32.0 * UNIT_ROUNDOFF
"""More than strikes, their logarithms and products with delta are rounded by."""


def single_step(sampling_prob: float, noise_multiplier: float, epsilon: float, direction: Direction) -> Sides:
    """Both bounds on delta at an epsilon from 0 to 700, relatively as close as those of the Gaussian.

    Args:
        sampling_prob: in (0, 1].
        noise_multiplier: > 0.

    >>> lower, upper = single_step(0.5, 1.0, 0.0, Direction.REMOVE)
    >>> round(lower, 9), round(upper, 9)  # half of the Gaussian's 2 Phi(1/2) - 1
    (0.191462461, 0.191462461)
    """
    mu, far = 1.0 / noise_multiplier, inf
    if direction is Direction.REMOVE:
        least = most = sampling_prob
        log_strike = _log_call_strike(epsilon, sampling_prob)
        far, near = log_strike * (1.0 + MOVED), log_strike * (1.0 - MOVED)
    else:
        # Off by a few roundings of two summands, neither of which is larger than 1 where the strike is positive.
        strike, factor = 1.0 + expm1(-epsilon) / sampling_prob, exp(epsilon) * sampling_prob
        low, high = strike - MOVED, min(strike + MOVED, 1.0)
        if high <= 0.0:
            return Sides(0.0, 0.0)
        least, most, near = factor * max(low, 0.0), factor * high, -log(high) * (1.0 - MOVED)
        if low > 0.0:
            far = -log(low) * (1.0 + MOVED)
    lower = 0.0 if far == inf else float(gaussian_deltas(mu, np.array([far]), Side.LOWER)[0])
    upper = float(gaussian_deltas(mu, np.array([near]), Side.UPPER)[0])
    lower, upper = least * lower * (1.0 - MOVED), most * upper * (1.0 + MOVED)
    return Sides(max(lower - SMALLEST, 0.0), min(upper + SMALLEST, 1.0))


def _log_call_strike(epsilon: float, rate: float) -> float:
    """``log(1 + (e^epsilon - 1) / rate)``, within a few roundings, also where no double is as large."""
    if epsilon <= 1.0:
        above = expm1(epsilon) / rate
        return log1p(above) if above < inf else log(expm1(epsilon)) - log(rate)
    return epsilon - log(rate) + log1p((rate - 1.0) * exp(-epsilon))
