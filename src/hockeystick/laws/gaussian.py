"""Closed forms for one Gaussian against its shift: the profile of Balle and Wang (2018, Theorem 8)."""

import numpy as np

from hockeystick.laws.law import Array
from hockeystick.laws.normal import log_ndtr, ndtri
from hockeystick.types import Side, as_side

ROUNDING = 1e-12
"""Relative rounding that both sides allow for; see ``gaussian_delta``."""
TURNS = 4
"""Rounds of a guess, which is within some percent after them."""
SMALLEST = 2.0**-1074
"""The smallest double, by which numbers that small are rounded; chains of users multiply deltas by up to e^700."""


def gaussian_delta(noise_multiplier: float, sensitivity: float, epsilon: float, side: Side) -> float:
    """delta(epsilon) of ``N(sensitivity, sigma^2)`` against ``N(0, sigma^2)``; both directions are equal.

    ``delta = Phi(a) - e^eps Phi(b)``, ``a = mu/2 - eps/mu``, ``b = -mu/2 - eps/mu``, ``mu = sensitivity / sigma``.
    Evaluated as ``Phi(a) (1 - e^r)`` with ``r = eps + log Phi(b) - log Phi(a) < 0``; the rounding of r is bounded and
    moves the result to the asked side.

    Args:
        noise_multiplier: sigma > 0, in clipping norms.
        sensitivity: in clipping norms, >= 0.
        epsilon: >= 0.
        side: UPPER is at least the exact value, LOWER at most.
    """
    if sensitivity == 0.0:
        return 0.0
    epsilon = float(epsilon)  # arithmetic with a single would be rounded like one
    return float(gaussian_deltas(sensitivity / noise_multiplier, np.array([epsilon]), side)[0])


def gaussian_deltas(mu: float, epsilons: Array, side: Side) -> Array:
    """As :func:`gaussian_delta`, for ``mu = sensitivity / sigma > 0`` and many epsilons: shape (n,)."""
    log_a = log_ndtr(0.5 * mu - epsilons / mu)
    log_b = log_ndtr(-0.5 * mu - epsilons / mu)
    magnitude = 1.0 + epsilons + np.abs(log_a) + np.abs(log_b) + (0.5 * mu + epsilons / mu) ** 2
    rounding = ROUNDING * 1e-2 * magnitude
    side = as_side(side)
    sign = 1.0 if side is Side.UPPER else -1.0
    gap = np.minimum(epsilons + log_b - log_a - sign * rounding, 0.0)
    with np.errstate(divide="ignore"):  # no gap at all is a delta of 0
        log_deltas = log_a + np.log(-np.expm1(gap)) + sign * (rounding + ROUNDING)
    deltas: Array = np.exp(np.minimum(log_deltas, 0.0))
    moved: Array = np.maximum(deltas + sign * SMALLEST, 0.0)
    return moved


def about_epsilon(mu: float, delta: float) -> float:
    """About the epsilon at which this Gaussian's delta is ``delta``, a guess that proves nothing, and 0 for none.

    With ``u = eps / mu - mu / 2``, delta is about ``Phi(-u) mu / (u + mu)`` where u is above 0.

    >>> round(about_epsilon(1.0, 1e-5), 1)
    4.4
    """
    u = 0.0
    for _ in range(TURNS):
        u = max(-float(ndtri(min(delta * (u + mu) / mu, 0.5))), 0.0) if mu > 0.0 else 0.0
    return mu * (u + 0.5 * mu)
