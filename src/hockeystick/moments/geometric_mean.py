"""The add direction of a mixture of bins from below its likelihood ratio: a mean is at least the geometric mean.

Not an accountant but a step of some: :func:`geometric_mean_profile`. Its bound is exact for one bin, close where the
exponents of the bins hardly differ (long memory, much noise), and loose where they do (C near I, little noise).

**Statement.** With the pair's ``X = (1/b) sum_i exp(L_i)``, ``L_i = u_i - G_ii / (2 s^2)``, ``u ~ N(0, G / s^2)``, the
inequality of the means gives ``X >= Y = exp((1/b) sum_i L_i)``, and ``x -> (1 - e^eps x)_+`` does not increase, so

    delta_add(eps) = E (1 - e^eps X)_+ <= E (1 - e^eps Y)_+.

``log Y`` is normal with mean ``-m``, ``m = sum_i G_ii / (2 b s^2)``, and variance ``v = sum_ij G_ij / (b^2 s^2)``.
Write ``Y = e^(-k) W`` with ``k = m - v/2`` and W log-normal of mean 1. By Cauchy-Schwarz ``|mean of m_i|^2`` is at most
the mean of ``|m_i|^2``, so k >= 0. W is the likelihood ratio of ``N(mu, 1)`` against ``N(0, 1)``, ``mu = sqrt(v)``, so
with ``e = eps - k`` and h the profile of that Gaussian

    E (1 - e^eps Y)_+ = E (1 - e^e W)_+ = h(e)                            for e >= 0,
                                        = (1 - e^e) + e^e h(-e)           for e < 0,

the second line because ``(1 - c w)_+ = 1 - c w + c (w - 1/c)_+`` and E W = 1. No two terms are subtracted.

**Rounding.** The right-hand side does not decrease in k at fixed v (Y falls), nor in v at fixed k (W is then replaced
by a mean-preserving spread), although it is not monotone in v at fixed m. So k and v, not m and v, are rounded up.

Reference: the inequality is that of schuchardt-kalinin-2026 for the Renyi divergence of the add direction; here it
bounds the profile itself.
"""

from math import exp, expm1, sqrt

from hockeystick.bounds import SMALLEST_UPPER, Profile
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.types import Side


def geometric_mean_profile(gram: Array, rounding: float, noise_multiplier: float) -> Profile:
    """An upper bound of the add direction's profile, ``E (1 - e^eps Y)_+`` for the geometric mean Y.

    Formal guarantee: at least the true add profile for every epsilon >= 0; rounding, also that of G, is bounded and
    moves the result up. Never below ``SMALLEST_UPPER``, never above 1.

    Args:
        gram: G, shape (bins, bins), non-negative.
        rounding: proved relative error of its entries.
        noise_multiplier: s.

    Cost: O(bins^2) once, O(1) for each epsilon.
    """
    variance, drift = _variance_and_drift(gram, rounding, noise_multiplier)
    spread = sqrt(variance) * (1.0 + 2 * UNIT_ROUNDOFF)

    def profile(epsilon: float) -> float:
        shifted = epsilon - drift - 2 * UNIT_ROUNDOFF * (epsilon + drift)
        if shifted >= 0.0:
            value = gaussian_delta(1.0, spread, shifted, Side.UPPER)
        else:
            value = exp(shifted) * gaussian_delta(1.0, spread, -shifted, Side.UPPER) - expm1(shifted)
        return min(max(value * (1.0 + 16 * UNIT_ROUNDOFF), SMALLEST_UPPER), 1.0)

    return profile


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
