"""Lower bounds for k-of-t allocation by additive statistics of the outputs.

A sum over the steps has one law whatever the k steps were, which can be computed: that of the outputs themselves, and
in one epoch ``S = sum_j h(y_j)`` for an integer-valued h near the log-likelihood ratio of Poisson sampling at rate k/t.
Each profile is the larger of the two bounds.

Proofs: docs/theory/allocation.md. Errs downward: a sum is a post-processing, rounding is carried in the law's errors,
and what the ends of a sum leave out is counted. Cost: a few direct convolutions, up to some seconds at a million steps;
beyond ``MOST_STEPS`` steps only the first bound is used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.law import MAX_RATIO, UNIT_ROUNDOFF, Array, Law, lower_law
from hockeystick.laws.operations import Tick, power
from hockeystick.laws.profile import law_delta
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

MOST_STEPS = 1_000_000
REACH = 9.0
"""Thresholds of h cover this many standard deviations around both centres; the outer levels take the rest."""
MOST_LEVELS = 1500
FINEST, COARSEST, SUM_LEVELS = 8.0, 0.75, 400.0
"""Levels of h for one standard deviation of it; fewer for many steps, so that sums keep to some 400 per deviation."""
NEGLIGIBLE = 1e-40
"""Relative to the smallest delta; ends of a sum below it in every row are cut off and counted as missing."""
SMALLEST_MASS = 1e-120
MISSING_SHARE = 1e-10
"""Cells that may lack more than this share of a mass are left out."""
CELLS = 1500
LEVEL_ERROR = 2e-13
"""Relative rounding of the mass of one level: quadrature or ndtr, see docs/theory/laws.md, "Rounding"."""
POINTS, WEIGHTS = np.polynomial.legendre.leggauss(12)


def _interval_masses(z: Array, shift: float) -> Array:
    """Masses of (-inf, z_0), [z_0, z_1), ..., [z_last, inf) under N(shift, 1), relative error below LEVEL_ERROR.

    Short intervals by quadrature of the density, long ones by ndtr in the nearer tail: no cancellation in either.
    """
    from scipy.special import ndtr

    x = z - shift
    left, right = x[:-1], x[1:]
    half = 0.5 * np.diff(z)
    inner = 0.5 * (left + right)[:, None] + half[:, None] * POINTS
    by_quadrature = half * (np.exp(-0.5 * inner * inner) @ WEIGHTS) * 0.3989422804014327
    by_tail = np.where(left > 0.0, ndtr(-left) - ndtr(-right), ndtr(right) - ndtr(left))
    masses: Array = np.concatenate([[ndtr(x[0])], np.where(half < 0.25, by_quadrature, by_tail), [ndtr(-x[-1])]])
    return masses


def score_masses(pair: AveragedSteps) -> Array:
    """Masses of the levels of h: shape (2, levels), unvisited (q) and visited (p)."""
    rate = pair.participations / pair.bins
    mu = 1.0 / pair.visit_noise

    def score(z: Array) -> Array:
        value: Array = np.log1p(rate * np.expm1(np.minimum(mu * z - 0.5 * mu * mu, 600.0)))
        return value

    z = np.linspace(-REACH, REACH + mu, 40_000)
    values = score(z)
    density = np.exp(-0.5 * z * z) + rate * np.exp(-0.5 * (z - mu) ** 2)
    density /= density.sum()
    deviation = sqrt(float(density @ (values - float(density @ values)) ** 2))
    per_deviation = min(max(SUM_LEVELS / sqrt(pair.bins), COARSEST), FINEST)
    levels = min(int((values[-1] - values[0]) * per_deviation / deviation) + 2, MOST_LEVELS)
    thresholds = np.interp(np.linspace(values[0], values[-1], levels + 1)[1:-1], values, z)
    thresholds = thresholds[np.concatenate([[True], np.diff(thresholds) > 1e-9])]
    return np.stack([_interval_masses(thresholds, 0.0), _interval_masses(thresholds, mu)])


@dataclass(frozen=True)
class Sums:
    """Masses of a sum, one row for each law of its terms, and what they leave out.

    A mass is at most the truth (1 + error), and at least the truth (1 - error) minus the row's ``missing``.
    """

    masses: Array
    error: float
    missing: Array

    def plus(self, other: "Sums", negligible: float) -> "Sums":
        """The sum of independent sums, row by row: products of non-negative numbers, added directly."""
        masses = np.stack([np.convolve(x, y) for x, y in zip(self.masses, other.masses, strict=True)])
        used = np.flatnonzero((masses > negligible).any(axis=0))
        kept = masses[:, used[0] : used[-1] + 1]
        outside = masses[:, : used[0]].sum(axis=1) + masses[:, used[-1] + 1 :].sum(axis=1)
        terms = min(self.masses.shape[1], other.masses.shape[1]) + 2
        error = self.error + other.error + terms * UNIT_ROUNDOFF
        return Sums(kept, error, self.missing + other.missing + outside + SMALLEST_MASS * SMALLEST_MASS)

    def times(self, count: int, negligible: float, tick: Tick) -> "Sums":
        """The sum of ``count`` >= 1 independent copies, by repeated doubling."""
        result, square = None, self
        while True:
            tick()
            if count & 1:
                result = square if result is None else result.plus(square, negligible)
            count >>= 1
            if count == 0 and result is not None:
                return result
            square = square.plus(square, negligible)


def additive_law(pair: AveragedSteps, settings: Settings) -> Law:
    """The lower law of S in one epoch, from the ratios of its cells."""
    tick = settings.deadline.tick
    negligible = max(settings.resolution.smallest_delta * NEGLIGIBLE, SMALLEST_MASS)
    masses = score_masses(pair)
    sums = Sums(masses, LEVEL_ERROR, np.zeros(2)).times(pair.participations, negligible, tick)
    rest = pair.bins - pair.participations
    if rest > 0:
        others = Sums(masses[:1], LEVEL_ERROR, np.zeros(1)).times(rest, negligible, tick)
        tick()
        sums = sums.plus(
            Sums(np.repeat(others.masses, 2, axis=0), others.error, np.repeat(others.missing, 2)), negligible
        )
    width = -(-sums.masses.shape[1] // CELLS)
    cells = np.add.reduceat(sums.masses, np.arange(0, sums.masses.shape[1], width), axis=1)
    missing_share = sums.missing[:, None] / np.maximum(cells, SMALLEST_MASS)
    good = (missing_share < MISSING_SHARE).all(axis=0) & (cells[1] < cells[0] * MAX_RATIO)
    q, p = cells[:, good]
    order = np.argsort(p / q)
    error = sums.error + 2.0 * MISSING_SHARE + (width + CELLS + 8) * UNIT_ROUNDOFF
    return lower_law(q[order], p[order], error, 2.0 * error)


def _profile(pair: AveragedSteps, law: Law | None, direction: Direction) -> Profile:
    sensitivity = pair.participations * sqrt(pair.epochs / pair.bins) * (1.0 - 4 * UNIT_ROUNDOFF)

    def profile(epsilon: float) -> float:
        of_outputs = gaussian_delta(pair.visit_noise, sensitivity, epsilon, Side.LOWER)
        return max(of_outputs, 0.0 if law is None else law_delta(law, epsilon, direction))

    return profile


def _laws(pair: AveragedSteps, side: Side, settings: Settings) -> Sequence[Law]:
    """The law of all epochs, where there are not too many steps."""
    if pair.bins > MOST_STEPS or pair.batches_are_public:
        return ()
    return [power(additive_law(pair, settings), pair.epochs, settings.resolution, tick=settings.deadline.tick)]


def _analyse(pair: AveragedSteps, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    law = next(iter(_laws(pair, side, settings)), None)
    return {direction: _profile(pair, law, direction) for direction in Direction}


def _cost(pair: AveragedSteps) -> float:
    """A sum has some 30 deviations that matter; a handful of convolutions of that length, at 1e9 products a second."""
    deviation = min(max(SUM_LEVELS, COARSEST * sqrt(pair.bins)), FINEST * sqrt(pair.bins))
    return 0.05 + (5e-9 * (30.0 * deviation) ** 2 if pair.bins <= MOST_STEPS else 0.0) + 0.03 * log(pair.epochs)


ACCOUNTANT = Accountant(
    name="projection",
    summary="what sums over the steps reveal of a random allocation; for several participations",
    sides=(Side.LOWER,),
    errs="downward: a sum is a post-processing, its masses are exact to a rounding that the law carries",
    reference="post-processing; docs/theory/allocation.md",
    analyses={AveragedSteps: _analyse},
    laws={AveragedSteps: _laws},
    cost=_cost,
)
