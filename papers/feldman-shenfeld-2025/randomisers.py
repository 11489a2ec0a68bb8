"""The paper's bounds for any randomiser R, through its dominating pair; Laplace noise and randomised response.

Everything follows from the law of one step's likelihood ratio (docs/theory/laws.md): Theorem 3.2, Theorem 4.1,
Theorem 4.6 and the direct method, in both directions. ``Gaussian`` is here to compare with the accountants.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import cosh, exp, expm1, inf, log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

import hockeystick as hs
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.law import UNIT_ROUNDOFF, Law
from hockeystick.laws.operations import average, power, thin, unthin
from hockeystick.laws.profile import law_delta, smallest_epsilon

Array = NDArray[np.float64]
UPPER = hs.Side.UPPER
BAD_EVENT_SHARES = (0.01, 0.03, 0.1, 0.3, 0.5)
"""Of the target delta, tried for the bad event of Theorem 3.2."""
MOMENT_ROUNDING = 1e-10
"""More than what the sums over orders below 300 round to in log M."""
CELLS = 1024
"""Of a law of Laplace noise."""


class Randomiser(ABC):
    """A pair (R(*), R(bottom)), as the law of its likelihood ratio X under R(bottom)."""

    @property
    @abstractmethod
    def name(self) -> str:
        """In legends and tables."""

    @abstractmethod
    def law(self, side: hs.Side, resolution: hs.Resolution) -> Law:
        """The law of X, a spread or a contraction."""

    @abstractmethod
    def log_moment(self, orders: Array) -> Array:
        """``log E X^r`` for orders r >= 0 other than 1/2."""

    @property
    def log_largest(self) -> float:
        """``eps0``, so that X and 1/X are at most ``e^eps0``; infinity where there is none."""
        return inf


@dataclass(frozen=True)
class RandomisedResponse(Randomiser):
    """One bit, told truly with odds : 1. X is ``odds`` with Q-probability 1 / (1 + odds), else 1 / odds."""

    odds: float

    @property
    def name(self) -> str:
        return f"randomised response, {self.odds:g} : 1"

    @property
    def log_largest(self) -> float:
        return log(self.odds) * (1.0 + 1e-15)

    def law(self, side: hs.Side, resolution: hs.Resolution) -> Law:
        rare = 1.0 / (1.0 + self.odds)
        support, mass = np.array([1.0 / self.odds, self.odds]), np.array([1.0 - rare, rare])
        return Law(support, mass, 0.0, side, 8 * UNIT_ROUNDOFF, 2 * UNIT_ROUNDOFF)

    def log_moment(self, orders: Array) -> Array:
        rise = log(self.odds)
        return np.asarray(np.logaddexp(orders * rise, (1.0 - orders) * rise) - log1p(self.odds))


@dataclass(frozen=True)
class Laplace(Randomiser):
    """Laplace noise of this scale on a sum to which the element adds 1.

    ``log X = (|y| - |y - 1|) / scale``: an atom at either end, and between them, with ``a = 1 / scale`` and y in
    [0, 1], ``X = e^(a (2 y - 1))`` with Q-density ``a e^(-a y) / 2``. A cell of width h has the Q-mass m, the
    barycentre at its geometric middle, and the share ``1 / (1 + e^(a h))`` of m at the right end of the spread.
    """

    scale: float

    @property
    def name(self) -> str:
        return f"Laplace noise of scale {self.scale:g}"

    @property
    def log_largest(self) -> float:
        return 1.0 / self.scale * (1.0 + 1e-15)

    def law(self, side: hs.Side, resolution: hs.Resolution) -> Law:
        a = 1.0 / self.scale
        places = np.linspace(0.0, 1.0, CELLS + 1)
        width = a / CELLS
        cells = 0.5 * np.exp(-a * places[:-1]) * -expm1(-width)
        ends = 0.5, 0.5 * exp(-a)  # Q-masses of y <= 0 and of y >= 1
        place_error, mass_error = 16.0 * (1.0 + a) * UNIT_ROUNDOFF, (64.0 + 16.0 * a + CELLS) * UNIT_ROUNDOFF
        if side is UPPER:
            ratios, mass = np.exp(a * (2.0 * places - 1.0)), np.zeros(CELLS + 1)
            right = cells / (1.0 + exp(width))
            mass[1:] += right
            mass[:-1] += cells - right
            mass[0] += ends[0]
            mass[-1] += ends[1]
        else:
            middles = a * (places[:-1] + places[1:] - 1.0)
            ratios = np.exp(np.concatenate([[-a], middles, [a]]))
            mass = np.concatenate([[ends[0]], cells, [ends[1]]])
        return Law(ratios, mass, 0.0, side, mass_error, place_error)

    def log_moment(self, orders: Array) -> Array:
        a, r = 1.0 / self.scale, orders
        shares = np.stack([r, r - 1.0]) / (2.0 * r - 1.0)
        return np.asarray(logsumexp(np.stack([(r - 1.0) * a, -r * a]), axis=0, b=shares))


@dataclass(frozen=True)
class Gaussian(Randomiser):
    """Gaussian noise."""

    sigma: float

    @property
    def name(self) -> str:
        return f"Gaussian noise of {self.sigma:g}"

    def law(self, side: hs.Side, resolution: hs.Resolution) -> Law:
        return gaussian_law(self.sigma, 1.0, side, resolution)

    def log_moment(self, orders: Array) -> Array:
        return 0.5 * orders * (orders - 1.0) / self.sigma**2


# --- bounds on epsilon ------------------------------------------------------------------------------------------------


def epsilon_of(law: Law, delta: float) -> float:
    """The worse direction's."""
    return smallest_epsilon(
        lambda epsilon: max(law_delta(law, epsilon, direction) for direction in hs.Direction), delta, law.side
    )


def direct(randomiser: Randomiser, steps: int, side: hs.Side, resolution: hs.Resolution) -> Law:
    """The law of 1-of-``steps`` allocation: Lemma D.1, by convolutions instead of samples."""
    return average(randomiser.law(side, resolution), steps, resolution)


def poisson(randomiser: Randomiser, steps: int, rate: float, side: hs.Side, resolution: hs.Resolution) -> Law:
    """The law of Poisson sampling."""
    return power(thin(randomiser.law(side, resolution), rate), steps, resolution)


def decomposition(randomiser: Randomiser, steps: int, resolution: hs.Resolution) -> Law:
    """Theorem 4.1 at rate 1/t, for the law instead of the worse profile, so that add is covered as well."""
    rate = 1.0 / steps
    return unthin(poisson(randomiser, steps, rate, UPPER, resolution), -expm1(steps * log1p(-rate)))


def theorem_epsilon(randomiser: Randomiser, steps: int, delta: float, resolution: hs.Resolution) -> float:
    """Theorem 3.2 with (eps0, delta0, delta') chosen well; the local epsilon where the theorem says nothing.

    The proof of docs/theory/allocation.md needs of the ratios only that ``E (X - e^eps0)_+ <= delta0`` and covers both
    directions. With delta0 = 0 the ratios are bounded by ``e^eps0`` themselves.
    """
    step = randomiser.law(UPPER, resolution)
    epsilon = epsilon_of(step, delta / 2.0) if randomiser.log_largest == inf else randomiser.log_largest
    tried: list[tuple[float, float]] = []
    for share in BAD_EVENT_SHARES:
        bad_event, delta0, eps0 = share * delta, 0.0, randomiser.log_largest
        if eps0 == inf:
            bad_event, delta0 = 0.5 * share * delta, 0.5 * share * delta / steps
            eps0 = smallest_epsilon(lambda at: law_delta(step, at, hs.Direction.REMOVE), delta0, UPPER)
        gamma = cosh(min(eps0, 300.0)) * sqrt(2.0 / steps * log(1.0 / bad_event))
        if gamma < 1.0:
            tried.append((1.0 / (steps * (1.0 - gamma)) * (1.0 + 1e-12), delta - bad_event - steps * delta0))
    for rate, left in tried:
        if rate < 1.0:
            epsilon = min(
                epsilon, epsilon_of(poisson(randomiser, steps, rate, UPPER, resolution), left * (1.0 - 1e-12))
            )
    return epsilon


# --- Theorem 4.6 ------------------------------------------------------------------------------------------------------


def log_average_moments(randomiser: Randomiser, steps: int, largest: int) -> Array:
    """``log E ((X_1 + ... + X_t) / t)^r`` for r = 0 to ``largest``: the coefficients of a power of one series.

    The paper's sum over partitions says the same and has exponentially many terms. Here every term is positive, so
    that each of the additions and doublings rounds relatively.
    """
    orders = np.arange(largest + 1.0)
    factorial = gammaln(orders + 1.0)
    step = randomiser.log_moment(orders) - factorial
    total, doubled, left = None, step, steps
    while left:
        if left & 1:
            total = doubled if total is None else _product(total, doubled)
        left >>= 1
        if left:
            doubled = _product(doubled, doubled)
    assert total is not None
    return np.asarray(total + factorial - orders * log(steps))


def _product(a: Array, b: Array) -> Array:
    """Coefficients of the product of two series, all in logarithms."""
    return np.array([logsumexp(a[: i + 1] + b[i::-1]) for i in range(a.size)])


def renyi_epsilon(randomiser: Randomiser, steps: int, delta: float, largest: int, resolution: hs.Resolution) -> float:
    """Lemma 2.4 at the best integer order from 2 to ``largest``: Theorem 4.6 for remove, the upper law for add.

    The paper has no moments of the add direction. ``x^(1-a)`` is convex, so an upper law bounds ``E X^(1-a)``.
    """
    orders = np.arange(2.0, largest + 1.0)
    remove = log_average_moments(randomiser, steps, largest)[2:] + MOMENT_ROUNDING
    add = _log_negative_moments(direct(randomiser, steps, UPPER, resolution), orders - 1.0)
    return max(_best_order(orders, moments, delta)[0] for moments in (remove, add))


def _log_negative_moments(law: Law, orders: Array) -> Array:
    if law.floor <= 0.0:
        return np.full(orders.size, inf)
    with np.errstate(divide="ignore"):
        log_moments = logsumexp(np.log(law.mass) - orders[:, None] * np.log(law.support), axis=1)
    moved = 1.0 - law.place_error * orders
    return np.asarray(log_moments - log1p(-law.mass_error) - np.log(moved) + MOMENT_ROUNDING)


def epsilons_of_orders(orders: Array, log_moments: Array, delta: float) -> Array:
    """epsilon from each order by itself (Lemma 2.4)."""
    return np.asarray(
        (log_moments - log(delta) - np.log(orders - 1.0) + orders * np.log1p(-1.0 / orders)) / (orders - 1.0)
    )


def _best_order(orders: Array, log_moments: Array, delta: float) -> tuple[float, float]:
    epsilons = epsilons_of_orders(orders, log_moments, delta)
    place = int(np.argmin(epsilons))
    return max(float(epsilons[place]), 0.0), float(orders[place])


METHODS: dict[str, Callable[[Randomiser, int, float, hs.Resolution], float]] = {
    "local": lambda randomiser, steps, delta, resolution: epsilon_of(randomiser.law(UPPER, resolution), delta),
    "theorem_3_2": theorem_epsilon,
    "decomposition": lambda randomiser, steps, delta, resolution: epsilon_of(
        decomposition(randomiser, steps, resolution), delta
    ),
    "renyi_2_to_60": lambda randomiser, steps, delta, resolution: renyi_epsilon(
        randomiser, steps, delta, 60, resolution
    ),
    "poisson": lambda randomiser, steps, delta, resolution: epsilon_of(
        poisson(randomiser, steps, 1.0 / steps, UPPER, resolution), delta
    ),
    "direct_upper": lambda randomiser, steps, delta, resolution: epsilon_of(
        direct(randomiser, steps, UPPER, resolution), delta
    ),
    "direct_lower": lambda randomiser, steps, delta, resolution: epsilon_of(
        direct(randomiser, steps, hs.Side.LOWER, resolution), delta
    ),
}
"""Curves of the figure, by the name of their column. All but ``poisson`` are about 1-of-t allocation."""
