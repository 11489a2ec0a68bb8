"""Closed forms for one Gaussian against its shift: the profile of Balle and Wang (2018, Theorem 8)."""

from math import exp, expm1, log

from hockeystick.types import Side

ROUNDING = 1e-12
"""Relative rounding that both sides allow for; see ``gaussian_delta``."""


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
    from scipy.special import log_ndtr

    if sensitivity == 0.0:
        return 0.0
    epsilon = float(epsilon)  # arithmetic with a single would be rounded like one
    mu = sensitivity / noise_multiplier
    log_a = float(log_ndtr(0.5 * mu - epsilon / mu))
    log_b = float(log_ndtr(-0.5 * mu - epsilon / mu))
    magnitude = 1.0 + epsilon + abs(log_a) + abs(log_b) + (0.5 * mu + epsilon / mu) ** 2
    rounding = ROUNDING * 1e-2 * magnitude
    sign = 1.0 if side is Side.UPPER else -1.0
    gap = min(epsilon + log_b - log_a - sign * rounding, 0.0)
    if gap == 0.0:
        return 0.0
    log_delta = log_a + log(-expm1(gap)) + sign * (rounding + ROUNDING)
    return exp(min(log_delta, 0.0))
