"""The rows as if they were independent: ``p`` in place of the bounds on the chances. That is not a bound."""

from dataclasses import dataclass
from math import exp, inf, log, pi, sqrt

import numpy as np
from scipy.integrate import quad
from scipy.special import ndtr

import hockeystick as hs
from hockeystick.accountants.registry import accountant
from hockeystick.certification.schedule import DELTA_NODES, EPSILON_NODES
from hockeystick.laws.law import Law, point_mass_at_one
from hockeystick.laws.mixtures import product_mixture_law
from hockeystick.laws.operations import compose
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.reproduction.curves import PLOT_NODES
from hockeystick.reproduction.papers import Output

from .runs import DELTA, LOWER, UPPER, epsilon_of, poisson

# --- as the noise grows -----------------------------------------------------------------------------------------------

STEPS, RATE = 64, 1.0 / 16.0
"""Of the limit; not in the paper."""


@dataclass(frozen=True)
class Limit:
    """Bounds on epsilon at one sigma, and the epsilon of independent rows, which is none."""

    sigma: float
    mmcc: float
    lower: float
    independent: float


def limit(sigma: float, output: Output, steps: int = STEPS, rate: float = RATE) -> Limit:
    """The square-root strategy with Poisson sampling."""
    mechanism = poisson(hs.SquareRoot(), rate, steps, sigma)
    return Limit(
        sigma,
        epsilon_of(mechanism, "mmcc", UPPER, output),
        epsilon_of(mechanism, "linear_statistic", LOWER, output),
        independent_epsilon(sigma, output, steps, rate),
    )


def independent_epsilon(sigma: float, output: Output, steps: int, rate: float) -> float:
    """epsilon of the composition of the rows as product mixtures, each with its own coins; rounded up. Computed once.

    Row i of a Toeplitz C has the first i + 1 coefficients as sensitivities, so no two rows are equal.
    """
    key = f"independent rows {sigma!r} {steps} {rate!r}"
    return float(output.kept.value(key, lambda: _epsilon_of_law(independent_law(sigma, output, steps, rate))))


def independent_law(sigma: float, output: Output, steps: int, rate: float) -> Law:
    """The upper law of that composition."""
    resolution = hs.Resolution(PLOT_NODES, DELTA)
    column = hs.SquareRoot().matrix(steps).toeplitz_column
    whole = point_mass_at_one(UPPER)
    for row in range(steps):
        output.deadline.tick()
        law = product_mixture_law(np.full(row + 1, rate), column[: row + 1], sigma, UPPER, resolution)
        whole = compose(whole, law, resolution, tick=output.deadline.tick)
    return whole


def _epsilon_of_law(law: Law) -> float:
    def delta_at(epsilon: float) -> float:
        return max(law_delta(law, epsilon, direction) for direction in hs.Direction)

    return smallest_epsilon(delta_at, DELTA, law.side)


# --- two steps --------------------------------------------------------------------------------------------------------

ENTRY, HALF = 1.0, 0.5
"""C = [[1, 0], [1, 1]], sampled with probability 1/2, at sigma = 1."""


def exact_delta(epsilon: float, direction: hs.Direction) -> float:
    """delta of the two dependent rows, by quadrature over the first output.

    Given y1 the likelihood ratio is 1/4 of ``1 + (1 + A) u + (A / e) u^2``, with ``A = exp(y1 - 1/2)`` and
    ``u = exp(y2 - 1/2)``. It rises in y2, so the event is a half-line, on which each power of u is a normal probability
    times its expectation: 1, 1 and e. The quadrature's own error estimate is below 1e-9.
    """
    removal = direction is hs.Direction.REMOVE
    level = exp(epsilon) if removal else exp(-epsilon)
    sign = 1.0 if removal else -1.0

    def inner(first: float) -> float:
        shift = exp(first - 0.5)
        means = np.array([1.0, 1.0 + shift, shift]) / 4.0
        missing = level - 0.25
        square, linear = means[2] / exp(1.0), means[1]
        # The positive root, without cancellation; the ratio is above 1/4 everywhere.
        root = 2.0 * missing / (linear + sqrt(linear**2 + 4.0 * square * missing)) if missing > 0.0 else 0.0
        cut = 0.5 + log(root) if root > 0.0 else -inf
        inside = ndtr(sign * (np.arange(3.0) - cut))
        excess = sign * (float(means @ inside) - level * float(inside[0]))
        return (excess if removal else excess / level) * exp(-0.5 * first * first) / sqrt(2.0 * pi)

    value, error = quad(inner, -12.0, 14.0, epsabs=1e-12, epsrel=1e-11, limit=400, points=(-2.0, 0.0, 2.0))
    if error > 1e-9:
        raise ArithmeticError("The quadrature did not converge.")
    return float(value)


def independent_pair() -> hs.MixtureSteps:
    """The two rows with coins of their own: sensitivities 0 or 1, and 0, 1 or 2."""
    first = hs.MixtureStep((HALF, HALF), (0.0, ENTRY))
    second = hs.MixtureStep((HALF**2, 2.0 * HALF**2, HALF**2), (0.0, ENTRY, 2.0 * ENTRY))
    return hs.MixtureSteps(noise_multiplier=1.0, steps=(first, second))


def independent_delta(epsilon: float, direction: hs.Direction) -> tuple[float, float]:
    """Bounds on delta of the independent rows, from below and from above."""
    low, high = (
        accountant("direct")
        .bound(independent_pair(), side, hs.Settings(hs.Resolution(DELTA_NODES, 1e-2)))
        .profiles[direction](epsilon)
        for side in (LOWER, UPPER)
    )
    return low, high


# --- the last iterate -------------------------------------------------------------------------------------------------


def last_iterate_epsilon(direction: hs.Direction) -> tuple[float, float]:
    """Bounds on epsilon in one direction: n = 128, p = 1/128, sigma = 1, delta = 1e-6."""
    pair = hs.last_iterate(sampling_prob=1.0 / 128.0, steps=128, noise_multiplier=1.0)
    settings = hs.Settings(hs.Resolution(2 * EPSILON_NODES, DELTA))
    low, high = (
        smallest_epsilon(accountant("direct").bound(pair, side, settings).profiles[direction], DELTA, side)
        for side in (LOWER, UPPER)
    )
    return low, high
