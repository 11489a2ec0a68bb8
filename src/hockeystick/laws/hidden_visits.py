"""About the delta of many steps of which an example is in a few, hidden ones, by closed forms.

These are guesses for searches to begin at: they prove nothing, and decide about nothing but the number of evaluations.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import exp, expm1, log1p, sqrt

from hockeystick.laws.normal import log_ndtr

FAR = 500.0
"""An exponent whose exponential is a double."""
LEAST_MU = 1e-100
HALVINGS = 30
"""Halvings of the octaves between the smallest epsilon and the largest, which give a guess to a ten millionth."""
SMALLEST_EPSILON = 1e-6
RATHER_SMALL = 1.015
"""The larger one of two deltas is most often about so much of epsilon too small."""


@dataclass(frozen=True)
class HiddenVisits:
    """``steps`` steps, in each of which an example is with the chance ``rate``, unseen.

    Attributes:
        mu: the sensitivity of a visit over the noise.
    """

    rate: float
    steps: float
    mu: float

    def delta(self, epsilon: float) -> float:
        """Rather too little: the larger one of the deltas of two mechanisms.

        A single step that betrays the example, times the steps that may; and a Gaussian with the variance that all
        steps have together (the central limit).
        """
        strike = log1p(expm1(min(epsilon, FAR)) / self.rate)
        all_steps = self.rate * sqrt(self.steps * expm1(min(self.mu * self.mu, FAR)))
        return max(self.steps * self.rate * _delta(self.mu, strike), _delta(all_steps, epsilon))

    def epsilon(self, delta: float) -> float:
        """About the epsilon at this delta, from ``SMALLEST_EPSILON`` to ``FAR``."""
        return _epsilon(self, delta)


@lru_cache(maxsize=64)
def _epsilon(visits: HiddenVisits, delta: float) -> float:
    """Remembered, as both sides and both directions ask."""
    least, most = SMALLEST_EPSILON, FAR
    for _ in range(HALVINGS):
        middle = sqrt(least * most)
        least, most = (middle, most) if visits.delta(middle) > delta else (least, middle)
    return RATHER_SMALL * most


def _delta(mu: float, epsilon: float) -> float:
    """About the delta of a Gaussian mechanism; 0 where mu is next to nothing."""
    if mu < LEAST_MU:
        return 0.0
    high, low = (float(log_ndtr(sign * 0.5 * mu - epsilon / mu)) for sign in (1.0, -1.0))
    return -exp(high) * expm1(min(epsilon + low - high, 0.0))
