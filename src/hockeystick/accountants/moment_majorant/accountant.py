"""Moment majorants: two-sided bounds of correlated noise under balls-in-bins from exact moments of the mixture.

The common log-normal factor of all bins is split off, which makes the payoff smooth; a polynomial above (below) the
payoff is found by linear programming and proved by a certificate of its own; its expectation needs only the moments of
the rest, which are computed in extended precision for a Gram matrix that is positive semidefinite for certain.

Moments of high order cost time, so several *reductions* of the pair are tried, each with the orders that the effort
allows: the Gram matrix itself; its circulant envelope; for upper bounds also its classes of bins modulo m, when the
adversary is told the residue. Each is a bound by itself, and the best ones at the delta that is asked for are kept.

Proofs: ``docs/theory/moment-majorants/``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hockeystick.accountants.base import Accountant, Settings
from hockeystick.accountants.comparison import comparison_profiles
from hockeystick.accountants.moment_majorant.base import ExactGram, ExactMoments
from hockeystick.accountants.moment_majorant.common_factor import without_common
from hockeystick.accountants.moment_majorant.enumeration import enumerated_moments, enumeration_cost
from hockeystick.accountants.moment_majorant.exact_gram import circulant, lowered_gram, raised_gram, residue_classes
from hockeystick.accountants.moment_majorant.majorant import majorant_profile
from hockeystick.accountants.moment_majorant.payoff import LARGEST_EPSILON
from hockeystick.accountants.moment_majorant.recheck import recheck, recheck_cost
from hockeystick.accountants.moment_majorant.ring import ring_cost, ring_moments
from hockeystick.bounds import Profile
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.types import Direction, Side
from hockeystick.watch import Watch

HIGHEST_DEGREE = 12
LOWEST_DEGREE = 2
RESIDUES = (2, 3, 4, 6, 8, 12, 16)
"""Classes that are tried, fewest first."""
SELECTION = 1e-3
"""Relative accuracy in epsilon of the choice among reductions."""


@dataclass(frozen=True, eq=False)
class Reduction:
    """A mixture of mixtures that bounds the pair, with the highest order of moments that is worth its time.

    Attributes:
        parts: weight and Gram matrix of each; the weights add up to 1.
        degree: highest order.
        seconds: estimate for the moments of all parts.
    """

    parts: Sequence[tuple[float, ExactGram]]
    degree: int
    seconds: float


def moments_cost(gram: ExactGram, degree: int) -> float:
    """Rough seconds of :func:`exact_moments`."""
    return min(ring_cost(gram, degree), enumeration_cost(gram, degree)) + recheck_cost(gram, degree)


def exact_moments(gram: ExactGram, degree: int, watch: Watch) -> ExactMoments:
    """Moments of the mixture without its common factor, computed twice: in extended precision and, to check, in doubles.

    Raises: UnsupportedError where the two disagree, or where the moments leave the range of doubles.
    """
    faster = ring_moments if ring_cost(gram, degree) < enumeration_cost(gram, degree) else enumerated_moments
    moments = faster(gram, degree, watch=watch)
    recheck(gram, moments, watch=watch)
    return without_common(moments, gram)


def reductions(gram: ExactGram, side: Side, effort: float) -> Iterator[Reduction]:
    """The pair itself, then coarser ones as long as they reach a higher order."""
    best = 0
    candidates: list[Sequence[tuple[float, ExactGram]]] = [[(1.0, gram)]]
    envelope = None if gram.is_circulant else circulant(gram, side)
    if envelope is not None:
        candidates.append([(1.0, envelope)])
    if side is Side.UPPER:
        candidates += [residue_classes(gram, m) for m in RESIDUES if 2 * m <= gram.bins]
    for parts in candidates:
        found = _affordable(parts, effort)
        if found is not None and found.degree > best:
            best = found.degree
            yield found


def _affordable(parts: Sequence[tuple[float, ExactGram]], seconds: float) -> Reduction | None:
    for degree in range(HIGHEST_DEGREE, LOWEST_DEGREE - 1, -1):
        cost = sum(moments_cost(gram, degree) for _, gram in parts)
        if cost <= seconds:
            return Reduction(parts, degree, cost)
    return None


@dataclass
class _Best:
    """The best profile of one direction at the delta that is asked for, and its epsilon there."""

    side: Side
    delta: float
    profile: Profile | None = None
    epsilon: float = 0.0

    def offer(self, profile: Profile) -> None:
        """Take the profile if it is better."""
        if self.profile is not None:
            there = profile(self.epsilon)
            if there >= self.delta if self.side is Side.UPPER else there <= self.delta:
                return
        self.profile = profile
        self.epsilon = smallest_epsilon(profile, self.delta, self.side, tolerance=SELECTION)


def _profiles(pair: BinMixture, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    delta, watch = settings.resolution.smallest_delta, settings.watch
    gram = raised_gram(pair) if side is Side.UPPER else lowered_gram(pair)
    best = {direction: _Best(side, delta) for direction in Direction}
    if side is Side.UPPER:
        best[Direction.ADD].offer(comparison_profiles(pair, side, settings)[Direction.ADD])
    for reduction in reductions(gram, side, settings.effort):
        moments = [exact_moments(part, reduction.degree, watch) for _, part in reduction.parts]
        for direction in (Direction.REMOVE, Direction.ADD):
            best[direction].offer(_mixed(reduction, moments, direction, side, watch))
    return {direction: found.profile for direction, found in best.items() if found.profile is not None}


def _mixed(
    reduction: Reduction, moments: Sequence[ExactMoments], direction: Direction, side: Side, watch: Watch
) -> Profile:
    """The weighted sum of the profiles of all parts, rounded to the side."""
    parts = [
        (
            weight,
            majorant_profile(
                known, part.scale * part.common, direction, side, degrees=range(LOWEST_DEGREE, reduction.degree + 1), watch=watch
            ),
        )
        for (weight, part), known in zip(reduction.parts, moments, strict=True)
    ]
    rounding = 4 * len(parts) * UNIT_ROUNDOFF
    factor, trivial = (1.0 + rounding, 1.0) if side is Side.UPPER else (1.0 - rounding, 0.0)

    def profile(epsilon: float) -> float:
        if epsilon > LARGEST_EPSILON:
            return trivial
        return factor * sum(weight * part(epsilon) for weight, part in parts)

    return profile


def _cost(pair: BinMixture) -> float:
    return 1.0 + 1e-9 * pair.bins**3


def _warm_up() -> None:
    matrix = BandedMatrix(np.linspace(1.0, 2.0, 27).reshape(9, 3))
    pair = BinMixture(noise_multiplier=3.0, matrix=matrix, bins=9)
    for side in Side:
        ACCOUNTANT.bound(pair, side, Settings(Resolution(8, 1e-2), effort=1e-2)).epsilon(1e-2)


ACCOUNTANT = Accountant(
    name="moment_majorant",
    summary="polynomials around the payoff, expected by exact moments of the bins' mixture; two-sided",
    sides=(Side.UPPER, Side.LOWER),
    errs="upper polynomials are proved above the payoff and lower ones below; moments belong to a covariance on that side",
    reference="docs/theory/moment-majorants/programme.md",
    analyses={BinMixture: _profiles},
    refusal=lambda pair, side: pair.too_large,
    cost=_cost,
    warm_up=_warm_up,
    plans_effort=True,
)
