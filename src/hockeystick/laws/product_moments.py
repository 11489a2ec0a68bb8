"""Moments of the likelihood ratio of many different Poisson steps, as those of one step that is their geometric mean.

With ``n_i`` steps whose moments are ``M_i`` and N steps in all, ``prod_i M_i(s)^n_i = M(s)^N`` for
``M = (prod_i M_i^n_i)^(1 / N)``. So the :class:`~hockeystick.laws.contours.Profiles` of N equal steps with these
moments bound the composition. Proof: docs/theory/contours.md, "Different steps".
"""

from collections.abc import Sequence
from functools import cached_property, partial
from math import exp, fsum, inf, log
from typing import NamedTuple, Protocol

import numpy as np

from hockeystick.laws.contours import LEAST_NOISE, LEAST_RATE, MOST_RATE
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.poisson_moments import OCTAVE, Line, PoissonMoments
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.types import Direction, Side

NEAR_ZERO = 0.5
"""A ratio is taken as 0 where its error is more than this share of its size."""
SMALLEST = 1e-300
EXCESS = 12.0
"""About how much larger a bound by moments is than the delta that it bounds."""


class Part(NamedTuple):
    """Equal steps of a composition."""

    moments: PoissonMoments
    steps: int

    @property
    def in_reach(self) -> bool:
        """Whether contours are for such steps."""
        rate, noise = self.moments.sampling_prob, self.moments.noise_multiplier
        return noise >= LEAST_NOISE and LEAST_RATE <= rate <= MOST_RATE


class ProductMoments:
    """The geometric mean of the moments of some steps.

    Args:
        parts: at least one, all of them in reach, with at least one step each.
    """

    heeds_limits = False

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        self.steps = sum(part.steps for part in self.parts)
        self.sampling_prob = max(part.moments.sampling_prob for part in self.parts)
        self.noise_multiplier = min(part.moments.noise_multiplier for part in self.parts)

    @property
    def mu(self) -> float:
        """The mu of the step with the least noise, which limits the orders."""
        return 1.0 / self.noise_multiplier

    @cached_property
    def log_least(self) -> float:
        """The mean of the least logarithms of all steps."""
        return fsum(part.steps * part.moments.log_least for part in self.parts) / self.steps

    def log_moments(self, orders: Array) -> Array:
        """log M at real orders: shape (n,), within ERROR_OF_LOGS, as a mean of numbers that are."""
        total = np.zeros(orders.size)
        for moments, steps in self.parts:
            total += steps * moments.log_moments(orders)
        return total / self.steps

    def size(self, c: float, frequency: float) -> float:
        """How many nodes a line up to this frequency takes for a part, on average."""
        return sum(part.moments.size(c, frequency) for part in self.parts) / len(self.parts)

    def line(self, c: float, step: float, count: int) -> Line:
        """The moments at ``count`` frequencies 0, step, 2 step, ...; see :meth:`PoissonMoments.line`.

        An N-th root of a product is known as well as the mean of the logarithms of its factors. Where a factor may be 0
        the mean is taken as next to 0, with the largest size that it may have as its error.
        """
        log_moment = log_error = 0.0
        logs, changes, sizes = np.zeros(count, complex), np.zeros(count), np.zeros(count)
        lost, most = np.zeros(count, dtype=bool), np.zeros(count)
        for moments, steps in self.parts:
            line = moments.line(c, step, count)
            share = steps / self.steps
            log_moment += share * line.log_moment
            log_error += share * (line.log_error + 4.0 * UNIT_ROUNDOFF * abs(line.log_moment))
            size = np.maximum(np.abs(line.ratios), SMALLEST)
            relative = line.errors / size
            vague = relative > NEAR_ZERO
            lost |= vague
            known = np.where(vague, 1.0, line.ratios)
            part = np.log(known)
            logs += share * part
            # log(1 - x) moves by at most x / (1 - x); a complex logarithm is rounded by some units of its size
            changes += share * np.where(vague, 0.0, relative / (1.0 - np.minimum(relative, NEAR_ZERO)))
            sizes += share * np.abs(part)
            most += share * np.log(np.minimum(size + line.errors, 1.0))
        rounding = (len(self.parts) + 16.0) * UNIT_ROUNDOFF
        ratios = np.where(lost, SMALLEST, np.exp(logs))
        errors = np.abs(ratios) * np.expm1(changes + rounding * (sizes + 1.0)) * (1.0 + 1e-9)
        errors = np.where(lost, np.exp(most + rounding * (np.abs(most) + 1.0)) + SMALLEST, errors)
        log_error += rounding * abs(log_moment)
        return Line(log_moment, log_error * (1.0 + 1e-9), ratios, errors)

    def settled_frequency(self, c: float, steps: float, log_size: float, at_most: float = inf) -> float:
        """A frequency T such that ``|M(c + it) / M(c)|^steps <= e^log_size`` for every ``t >= T``; infinite at worst.

        Each part has the bounds of :meth:`PoissonMoments.settled_frequency`, and their logarithms add up. Parts beyond
        the first that suffice are not looked at: no ratio is above 1. It is sought whether or not it is at most
        ``at_most``.
        """
        cells = [part.moments.cells(c) for part in self.parts]
        shares = np.array([part.steps for part in self.parts]) * (steps / self.steps)
        variations = np.log([float(cell.variations[0]) for cell in cells])
        # The least frequency at which total variations suffice: the sum falls with its logarithm, piece by piece.
        order = np.argsort(variations)
        weights, weighted = np.cumsum(shares[order]), np.cumsum(shares[order] * variations[order])
        log_frequency = float(np.min((weighted - log_size) / weights))
        if not log_frequency < 600.0:
            return inf
        settled = exp(log_frequency) * (1.0 + 1e-9)
        while True:
            frequency = settled / OCTAVE
            fallen = 0.0
            for share, variation, cell in zip(shares, variations, cells, strict=True):
                by_variation = variation - log(frequency)
                by_slabs = cell.drop(frequency, settled)
                fallen += share * min(by_variation, float(np.log1p(-min(by_slabs, 1.0 - 1e-9))), 0.0)
                if fallen * (1.0 - 1e-9) <= log_size:
                    break
            if fallen * (1.0 - 1e-9) > log_size:
                return settled
            settled = frequency


class HasMoments(Protocol):
    """A profile that is bounded from above by moments."""

    def by_moments(self, epsilon: float, direction: Direction) -> float: ...


def near_by_moments(profiles: HasMoments, delta: float) -> float | None:
    """About the epsilon at which profiles reach a delta, from moments alone; a guess, which affects speed only."""
    upper = partial(profiles.by_moments, direction=Direction.REMOVE)
    near = smallest_epsilon(upper, min(EXCESS * delta, 0.5), Side.UPPER, tolerance=1e-2)
    return near if 0.0 < near < inf else None
