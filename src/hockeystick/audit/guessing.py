"""How many right guesses about secret coins privacy allows: chances for counts, and the epsilons that they reject.

Engine: counts in, bounds out. Every coin decided whether one canary was in the data. Statements and proofs:
docs/theory/audits.md, "Canaries".
"""

from collections.abc import Callable
from functools import cache, cached_property
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln, log_ndtr, ndtr, xlog1py, xlogy

from hockeystick.attacks.numbers import gaussian_profile
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.types import Side

Array = NDArray[np.float64]

POINTS = 33
"""Epsilons, or mus, that are tested before the largest rejected one is refined."""
REFINEMENTS = 16
LEVELS = 256
"""Epsilons of a Gaussian's profile that are tried."""
LARGEST_MU = 20.0
QUANTILES: Array = np.concatenate([np.logspace(-12, -2, 61), np.linspace(0.015, 1.0, 198)])
"""Ends of the intervals over which the tail of a threshold is summed from above."""


class Guesses:
    """One count of right guesses, and how likely so many are under a claim.

    Args:
        canaries: all coins, guessed or not.
        guessed: how many were guessed; a number that depends on no coin.
        right: how many of those guesses were right.
        independent: whether the outputs about one canary tell nothing about another one's coin.
    """

    def __init__(self, canaries: int, guessed: int, right: int, *, independent: bool) -> None:
        self.canaries = canaries
        self.guessed = guessed
        self.right = right
        self.independent = independent

    def chances(self, epsilons: Array, delta: float) -> Array:
        """The chance, at most, of so many right guesses if the run is (epsilon, delta)-DP, for each epsilon."""
        if self.independent:
            return np.array([self._independent(float(epsilon), delta) for epsilon in epsilons])
        tails, weights = self._tails(epsilons)
        return np.minimum(tails + delta * weights, 1.0)

    def gaussian_chances(self, mus: Array) -> Array:
        """The chance, at most, of so many right guesses if the run is mu-GDP, for each mu."""
        if self.independent:
            return np.array([self._independent_gaussian(float(mu)) for mu in mus])
        epsilons, tails, weights = self._levels
        deltas = gaussian_profile(mus[:, None], epsilons[None, :]) * (1.0 + 1e-9)
        chances: Array = np.minimum((tails[None, :] + deltas * weights[None, :]).min(axis=1), 1.0)
        return chances

    @cached_property
    def _levels(self) -> tuple[Array, Array, Array]:
        """Epsilons of a profile, with what :meth:`_tails` says of them."""
        epsilons = np.linspace(0.0, largest_epsilon(self.guessed, 0.5), LEVELS)
        return epsilons, *self._tails(epsilons)

    @cached_property
    def _exceeded(self) -> Array:
        """Lower ends of intervals for the chance to exceed the largest statistic that was not guessed."""
        from scipy.stats import beta

        ends = beta.ppf(QUANTILES[:-1], self.guessed + 1, self.canaries - self.guessed)
        return np.concatenate([[0.0], ends])

    def _tails(self, epsilons: Array) -> tuple[Array, Array]:
        """The chance of so many right guesses under pure DP, for each epsilon, and how it rises with delta."""
        from scipy.stats import binom

        probs = expit(epsilons)
        tails = np.asarray(binom.sf(self.right - 1, self.guessed, probs))
        slots = np.array([_mean_of_largest(self.guessed, float(prob)) for prob in probs])
        return tails, self.canaries * expit(-epsilons) * slots

    def _independent(self, epsilon: float, delta: float) -> float:
        """A number of coins, binomial, are seen; the other guesses are right with chance ``e^eps / (1 + e^eps)``."""
        from scipy.stats import binom

        most = min(self.guessed, int(binom.isf(1e-13, self.canaries, delta)) + 1)
        seen = np.arange(most + 1)
        tails = binom.sf(self.right - seen - 1, self.guessed - seen, expit(epsilon))
        total = float(binom.pmf(seen, self.canaries, delta) @ tails)
        return min(total + float(binom.sf(most, self.canaries, delta)), 1.0)

    def _independent_gaussian(self, mu: float) -> float:
        """The best so many of all guesses: those above the largest statistic ``|x|`` that was not guessed.

        Of that statistic, the chance u to be exceeded by one canary is a Beta variable. Above it guesses are right
        independently with a probability that falls in u, and is read at the lower end of every interval of u.
        """
        from scipy.stats import binom

        if self.guessed == self.canaries:
            return float(binom.sf(self.right - 1, self.guessed, ndtr(0.5 * mu)))
        probs = _right_above(mu, self._exceeded)
        masses = np.diff(QUANTILES, prepend=0.0)
        return min(float(masses @ binom.sf(self.right - 1, self.guessed, probs)), 1.0)


def largest_epsilon(guessed: int, level: float) -> float:
    """The largest epsilon that so many guesses, all of them right, reject under pure DP."""
    return max(log(level) / guessed - log(-np.expm1(log(level) / guessed)), 1e-3)


def largest_rejected(chances: Callable[[Array], Array], level: float, top: float) -> float | None:
    """The largest value up to ``top`` that was found rejected; None if none was.

    Privacy at one value is privacy at all larger ones, so a value is rejected by any larger one that is.
    """
    tried = np.linspace(0.0, top, POINTS)
    rejected = np.flatnonzero(chances(tried) <= level)
    if not rejected.size:
        return None
    low = float(tried[rejected[-1]])
    high = float(tried[min(rejected[-1] + 1, POINTS - 1)])
    for _ in range(REFINEMENTS):
        middle = 0.5 * (low + high)
        if chances(np.array([middle]))[0] <= level:
            low = middle
        else:
            high = middle
    return low


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon at delta of mu-GDP, rounded down."""
    if mu <= 0.0 or gaussian_delta(1.0, mu, 0.0, Side.LOWER) <= delta:
        return 0.0
    low, high = 0.0, 0.5 * mu * mu + mu * (10.0 - 2.0 * log(delta)) + 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if gaussian_delta(1.0, mu, middle, Side.LOWER) > delta:
            low = middle
        else:
            high = middle
    return low


@cache
def covering_mu(epsilon: float, delta: float) -> float:
    """A mu whose epsilon at delta is at least this, and hardly more."""
    low, high = 0.0, 1.0
    while gaussian_epsilon(high, delta) <= epsilon:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if gaussian_epsilon(middle, delta) > epsilon else (middle, high)
    return high


def _mean_of_largest(guessed: int, prob: float) -> float:
    """The mean over k < guessed of the largest probability of a binomial variable of k trials."""
    k = np.arange(guessed, dtype=np.float64)
    mode = np.minimum(np.floor((k + 1.0) * prob), k)
    logs = gammaln(k + 1) - gammaln(mode + 1) - gammaln(k - mode + 1) + xlogy(mode, prob) + xlog1py(k - mode, -prob)
    return min(float(np.exp(logs).mean()) * (1.0 + 1e-9), 1.0)


def _right_above(mu: float, exceeded: Array) -> Array:
    """P(right | |x| > t) for the t that is exceeded with these probabilities, ``x ~ N(S mu / 2, 1)``; not below it."""
    low, high = np.zeros_like(exceeded), np.full_like(exceeded, 0.5 * mu + 40.0)
    for _ in range(60):  # the bracket's upper end has the larger t, and the larger chance
        middle = 0.5 * (low + high)
        above = ndtr(0.5 * mu - middle) + ndtr(-0.5 * mu - middle) > exceeded
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    gap = log_ndtr(-0.5 * mu - high) - log_ndtr(0.5 * mu - high)
    return np.asarray(np.minimum(expit(-gap) * (1.0 + 1e-12), 1.0))
