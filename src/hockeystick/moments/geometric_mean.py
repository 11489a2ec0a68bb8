"""The add direction of a mixture of bins from below its likelihood ratio: a mean is at least the geometric mean.

With the pair's ``X = (1/b) sum_i exp(L_i)`` let ``Y = exp((1/b) sum_i L_i) <= X``. It is ``e^(-k) W`` with k >= 0 and W
the likelihood ratio of ``N(mu, 1)`` against ``N(0, 1)``, ``mu^2 = v = sum_ij G_ij / (b^2 s^2)``,
``k = sum_i G_ii / (2 b s^2) - v / 2``. With ``e = eps - k`` and h the profile of that Gaussian

    delta_add(eps) <= E (1 - e^eps Y)_+ = h(e)                       for e >= 0,
                                        = (1 - e^e) + e^e h(-e)      for e < 0,

which does not decrease in k at fixed v nor in v at fixed k: both are rounded up.

Where an example takes part in no step with the chance x0, only the rest is bounded by its geometric mean:
``X >= x0 + (1 - x0) Y``.

Proofs: ``docs/theory/moments-to-profiles.md``, and ``docs/theory/monte-carlo/renewal.md`` for the last. The first
inequality is that of schuchardt-kalinin-2026 for the Renyi divergence of the add direction; here it bounds the profile
itself.
"""

from math import exp, expm1, log, sqrt

from hockeystick.bounds import SMALLEST_UPPER, Profile
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.types import Side

ROOM = 1e-12
"""Room for the rounding of a handful of exponentials and logarithms, relative to their arguments."""


def geometric_mean_profile(gram: Array, rounding: float, noise_multiplier: float) -> Profile:
    """An upper bound of the add direction's profile, ``E (1 - e^eps Y)_+`` for the geometric mean Y.

    Formal guarantee: at least the true add profile for every epsilon >= 0, rounding included, also that of G.

    Args:
        gram: G, shape (bins, bins), non-negative.
        rounding: proved relative error of its entries.
        noise_multiplier: s.

    Cost: O(bins^2) once, O(1) for each epsilon.
    """
    variance, drift = _variance_and_drift(gram, rounding, noise_multiplier)
    spread = sqrt(variance) * (1.0 + 2 * UNIT_ROUNDOFF)

    def profile(epsilon: float) -> float:
        value = _delta(spread, epsilon - drift - 2 * UNIT_ROUNDOFF * (epsilon + drift))
        return min(max(value * (1.0 + 16 * UNIT_ROUNDOFF), SMALLEST_UPPER), 1.0)

    return profile


def active_profile(variance: float, drift: float, log_active: float, log_idle: float) -> Profile:
    """An upper bound of the add direction's profile, where the ratio is at least x0 > 0.

    Formal guarantee: at least the true add profile for every epsilon >= 0, rounding included. With ``e = eps +
    log(1 - x0) - log(1 - e^eps x0) - k`` it is ``(1 - e^eps x0) E (1 - e^e W)_+``, and no more than ``SMALLEST_UPPER``
    for ``e^eps x0 >= 1``. Exact for a single step.

    Args:
        variance, drift: at least v and k of the mean ratio of an example that takes part.
        log_active: log(1 - x0).
        log_idle: at most log x0.

    Cost: O(1) for each epsilon.
    """
    spread = sqrt(variance) * (1.0 + 2 * UNIT_ROUNDOFF)

    def profile(epsilon: float) -> float:
        reach = epsilon + log_idle - ROOM * (epsilon - log_idle)
        if reach >= 0.0:
            return SMALLEST_UPPER
        below = -expm1(reach)
        exponent = epsilon + log_active - log(below) - drift
        value = _delta(spread, exponent - ROOM * (1.0 + epsilon + abs(log_active) + abs(log(below)) + drift))
        return min(max(below * value * (1.0 + ROOM), SMALLEST_UPPER), 1.0)

    return profile


def _delta(spread: float, shifted: float) -> float:
    """h, or what it is for e < 0, at an e that is rounded down."""
    if shifted >= 0.0:
        return gaussian_delta(1.0, spread, shifted, Side.UPPER)
    return exp(shifted) * gaussian_delta(1.0, spread, -shifted, Side.UPPER) - expm1(shifted)


def _variance_and_drift(gram: Array, rounding: float, noise_multiplier: float) -> tuple[float, float]:
    """v and ``k = m - v/2`` of the module's statement, each at least the true one.

    All entries of G are non-negative, so sums keep their relative error and one rounding for each addition.
    """
    bins, precision = len(gram), noise_multiplier**-2
    error = (rounding + (2 * bins + 16) * UNIT_ROUNDOFF) * (1.0 + 4 * UNIT_ROUNDOFF)
    mean = float(gram.diagonal().sum()) * precision / (2 * bins)
    variance = float(gram.sum(axis=1).sum()) * precision / bins**2
    drift = mean * (1.0 + error) - 0.5 * variance * (1.0 - error)
    return variance * (1.0 + 2.0 * error), max(drift + 4 * UNIT_ROUNDOFF * mean, 0.0)
