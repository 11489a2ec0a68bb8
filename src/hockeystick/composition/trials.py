"""How many trials are made: laws of a number that has nothing to do with the data."""

from math import exp, expm1, log
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from hockeystick.errors import InvalidInputError
from hockeystick.laws.law import Array
from hockeystick.misspelt import one_of
from hockeystick.spec import Count, Spec, real_number

ROUNDED_UP = 1.0 + 1e-12
LOGARITHMIC = 1e-200
"""Shapes below this size have the mean and the law of shape 0, to 1e-198; quotients of smaller doubles lose bits."""
DISTRIBUTIONS = ("fixed", "poisson", "geometric", "logarithmic")


class FixedTrials(Spec):
    """Exactly ``count`` trials.

    >>> FixedTrials(count=3).draw(np.random.default_rng(0))
    3
    """

    kind: Literal["fixed"] = "fixed"
    count: Count

    @property
    def mean(self) -> float:
        """The expected number of trials, rounded up."""
        return float(self.count)

    @property
    def none(self) -> float:
        """The probability that no trial is made, rounded up."""
        return 0.0

    def survival(self, beaten: Array) -> Array:
        """``g'(1 - p) / g'(1)`` with g the generating function ``x^count``."""
        if self.count == 1:
            return np.ones_like(beaten)
        with np.errstate(divide="ignore"):  # not a power of 1 - p, whose rounding would grow with the count
            value: Array = np.exp((self.count - 1) * np.log1p(-beaten))
        return value

    def draw(self, rng: np.random.Generator) -> int:
        """The number of trials."""
        return self.count

    def __str__(self) -> str:
        return f"{self.count} trial(s)"


class PoissonTrials(Spec):
    """A Poisson number of trials; where it is 0, nothing is released (Papernot and Steinke 2022, section 3.3).

    >>> PoissonTrials(mean=10.0).draw(np.random.default_rng(0)) >= 0
    True
    """

    kind: Literal["poisson"] = "poisson"
    mean: Annotated[float, Field(gt=0.0, le=1e4)]

    @property
    def law(self) -> str:
        """The distribution of the number, in words."""
        return f"a Poisson distribution with mean {self.mean:g}"

    @property
    def none(self) -> float:
        """The probability that no trial is made, rounded up."""
        return exp(-self.mean) * ROUNDED_UP

    def survival(self, beaten: Array) -> Array:
        """``g'(1 - p) / g'(1)`` with g the generating function ``e^(mean (x - 1))``."""
        value: Array = np.exp(-self.mean * beaten)
        return value

    def draw(self, rng: np.random.Generator) -> int:
        """The number of trials."""
        return int(rng.poisson(self.mean))

    def __str__(self) -> str:
        return f"a Poisson number of trials of mean {self.mean:g}"


class NegativeBinomialTrials(Spec):
    """A truncated negative binomial number of trials, 1 or more (Papernot and Steinke 2022, Definition 1).

    ``Pr[K = k]`` is in proportion to ``(1 - gamma)^k prod_(l < k) (l + shape) / (l + 1)``. Shape 1 is the geometric law
    of Liu and Talwar (2019), shape 0 the logarithmic one.

    >>> geometric = NegativeBinomialTrials(shape=1.0, gamma=0.1)
    >>> round(geometric.mean, 6)
    10.0
    """

    kind: Literal["negative_binomial"] = "negative_binomial"
    shape: Annotated[float, Field(gt=-1.0, le=100.0)]
    gamma: Annotated[float, Field(ge=1e-6, lt=1.0)]

    @property
    def mean(self) -> float:
        """The expected number of trials, rounded up."""
        return negative_binomial_mean(self.shape, self.gamma) * ROUNDED_UP

    @property
    def law(self) -> str:
        """The distribution of the number, in words."""
        return f"a {self._name} distribution with mean {self.mean:.6g}"

    @property
    def none(self) -> float:
        """The probability that no trial is made: 0, as the law is truncated."""
        return 0.0

    def survival(self, beaten: Array) -> Array:
        """``g'(1 - p) / g'(1) = (1 + (1 / gamma - 1) p)^-(shape + 1)``."""
        value: Array = (1.0 + ((1.0 - self.gamma) / self.gamma) * beaten) ** -(self.shape + 1.0)
        return value

    def draw(self, rng: np.random.Generator) -> int:
        """The number of trials; O(number) time where ``gamma^-shape`` is at most e^30, by inversion."""
        exponent = -self.shape * log(self.gamma)
        if exponent > 30.0:  # the zero that is cut off has a chance of e^-exponent
            while not (drawn := int(rng.negative_binomial(self.shape, self.gamma))):
                pass
            return drawn
        scale = -log(self.gamma) if abs(self.shape) < LOGARITHMIC else expm1(exponent) / self.shape
        left, count = float(rng.random()), 1
        probability = (1.0 - self.gamma) / scale
        while left >= probability > 0.0:
            left -= probability
            probability *= (1.0 - self.gamma) * (count + self.shape) / (count + 1.0)
            count += 1
        return count

    @property
    def _name(self) -> str:
        return {0.0: "logarithmic", 1.0: "geometric"}.get(self.shape, f"negative binomial (shape {self.shape:g})")

    def __str__(self) -> str:
        return f"a {self._name} number of trials of mean {self.mean:.6g}"


Trials = Annotated[FixedTrials | PoissonTrials | NegativeBinomialTrials, Field(discriminator="kind")]


def negative_binomial_mean(shape: float, gamma: float) -> float:
    """The mean of the truncated negative binomial law."""
    if abs(shape) < LOGARITHMIC:
        return (1.0 / gamma - 1.0) / log(1.0 / gamma)
    return shape * (1.0 - gamma) / (gamma * -expm1(shape * log(gamma)))


def trials_of(trials: float, distribution: str) -> FixedTrials | PoissonTrials | NegativeBinomialTrials:
    """The law of this name with this mean.

    Args:
        trials: the number of trials, or its mean: above 1 for "geometric" and "logarithmic".
        distribution: "fixed", "poisson", "geometric" or "logarithmic".

    Raises: InvalidInputError for a name that is not known, or a number that does not suit it.
    """
    from scipy.optimize import brentq

    mean = real_number("trials", trials)
    one_of("distribution", distribution, DISTRIBUTIONS, "argument")
    random = distribution in ("geometric", "logarithmic")
    if not (1.0 if random else 0.0) < mean <= 1e4:
        least = "above 1" if random else "above 0"
        raise InvalidInputError(f"The 'trials' argument must be {least} and at most 10000. Got {trials!r} instead.")
    if distribution == "poisson":
        return PoissonTrials(mean=mean)
    if distribution == "fixed":
        if mean != int(mean):
            raise InvalidInputError(f"The 'trials' argument must be a whole number. Got {trials!r} instead.")
        return FixedTrials(count=int(mean))
    if distribution == "geometric":
        return NegativeBinomialTrials(shape=1.0, gamma=1.0 / mean)
    gamma = brentq(lambda at: negative_binomial_mean(0.0, at) - mean, 1e-6, 1.0 - 1e-15, xtol=1e-15)
    return NegativeBinomialTrials(shape=0.0, gamma=float(gamma))
