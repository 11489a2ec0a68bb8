"""About the epsilon of a mechanism, from those of others that differ from it in their noise alone."""

from bisect import bisect_left, insort
from math import sqrt

from hockeystick.bracketing import steepness_at
from hockeystick.mechanism import Mechanism

NEAREST = 3
"""Noise multipliers on either side that are looked at."""
FAR = 1.5
"""Noise multipliers that are farther apart, as a factor, say nothing about each other."""


class ExpectedEpsilons:
    """Guesses of epsilons at one delta: they prove nothing, and decide about the time that searches take alone.

    >>> import hockeystick as hs
    >>> one, two, three, four = (
    ...     hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=10), noise_multiplier=sigma)
    ...     for sigma in (1.0, 1.1, 1.2, 1.3)
    ... )
    >>> expected = ExpectedEpsilons()
    >>> expected.learn(one, 2.0)
    >>> expected.of(two)
    >>> expected.learn(two, 2.0 / 1.1)
    >>> round(expected.of(three), 6)
    1.666667
    """

    def __init__(self) -> None:
        self._known: dict[Mechanism, dict[float, float]] = {}
        self._noises: dict[Mechanism, list[float]] = {}

    def learn(self, mechanism: Mechanism, epsilon: float) -> None:
        """Remember the epsilon of a mechanism."""
        alike = mechanism.with_noise(1.0)
        known = self._known.setdefault(alike, {})
        if epsilon > 0.0 and mechanism.sigma not in known:
            known[mechanism.sigma] = epsilon
            insort(self._noises.setdefault(alike, []), mechanism.sigma)

    def of(self, mechanism: Mechanism) -> float | None:
        """About the epsilon of a mechanism; None where fewer than two others tell, or they make no sense."""
        alike, noise = mechanism.with_noise(1.0), mechanism.sigma
        noises = self._noises.get(alike, [])
        place = bisect_left(noises, noise)
        near = [at for at in noises[max(place - NEAREST, 0) : place + NEAREST] if 1.0 / FAR <= at / noise <= FAR]
        known = {at: self._known[alike][at] for at in near}
        if len(known) < 2:
            return None
        nearest = min(known, key=lambda at: abs(at - noise))
        slope = steepness_at(known, sqrt(nearest * noise))
        return None if slope is None else known[nearest] * (nearest / noise) ** slope
