"""The add direction of a mixture of bins from below its likelihood ratio: a mean is at least the geometric mean.

With the pair's ``X = (1/b) sum_i exp(L_i)`` let ``Y = exp((1/b) sum_i L_i) <= X``. It is ``e^(-k) W`` with k >= 0 and W
the likelihood ratio of ``N(mu, 1)`` against ``N(0, 1)``, ``mu^2 = v = sum_ij G_ij / (b^2 s^2)``,
``k = sum_i G_ii / (2 b s^2) - v / 2``. With ``e = eps - k`` and h the profile of that Gaussian

    delta_add(eps) <= E (1 - e^eps Y)_+ = h(e)                       for e >= 0,
                                        = (1 - e^e) + e^e h(-e)      for e < 0,

which does not decrease in k at fixed v nor in v at fixed k: both are rounded up.

Proofs: ``docs/theory/moments-to-profiles.md``. The inequality is that of schuchardt-kalinin-2026 for the Renyi
divergence of the add direction; here it bounds the profile itself.
"""

from math import exp, expm1, sqrt

from hockeystick.bounds import SMALLEST_UPPER, Profile
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.types import Side


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
