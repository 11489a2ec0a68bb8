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
from math import isfinite

import numpy as np

from hockeystick.accountants.base import Accountant, Settings
from hockeystick.accountants.comparison import comparison_profiles
from hockeystick.accountants.moment_majorant.base import ExactGram, ExactMoments
from hockeystick.accountants.moment_majorant.common_factor import without_common
from hockeystick.accountants.moment_majorant.enumeration import enumerated_moments, enumeration_cost
from hockeystick.accountants.moment_majorant.exact_gram import circulant, lowered_gram, raised_gram, residue_classes
from hockeystick.accountants.moment_majorant.floor import floor_of
from hockeystick.accountants.moment_majorant.majorant import majorant_profile
from hockeystick.accountants.moment_majorant.recheck import recheck, recheck_cost
from hockeystick.accountants.moment_majorant.ring import ring_cost, ring_moments
from hockeystick.bounds import Profile
from hockeystick.errors import UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.types import Direction, Side
from hockeystick.watch import Watch

HIGHEST_DEGREE = 12
LOWEST_DEGREE = 2
FIRST_SHARE, WHOLE_SHARE, ENVELOPE_SHARE, CLASSES_SHARE = 0.05, 0.6, 0.2, 0.1
"""Of the effort, for the moments of one reduction."""
RESIDUES = (2, 3, 4, 6)
"""Classes that are tried, fewest first."""
SELECTION = 1e-3
"""Relative accuracy in epsilon of the choice among reductions."""
SETTLED = 0.99
"""Where a reduction's own lower delta is that much of the upper one, higher orders are not worth their time."""


@dataclass(frozen=True, eq=False)
class Reduction:
    """A mixture of mixtures that bounds the pair, with the highest order of moments that is worth its time.

    Attributes:
        parts: weight and Gram matrix of each; the weights add up to 1.
        degree: highest order.
    """

    parts: Sequence[tuple[float, ExactGram]]
    degree: int


def moments_cost(gram: ExactGram, degree: int) -> float:
    """Rough seconds of :func:`exact_moments`."""
    return min(ring_cost(gram, degree), enumeration_cost(gram, degree)) + recheck_cost(gram, degree)


def exact_moments(gram: ExactGram, degree: int, watch: Watch) -> ExactMoments:
    """Moments of the mixture without its common factor, computed twice: with 30 digits and, to check, in doubles.

    Raises: UnsupportedError where the two disagree, or where the moments leave the range of doubles.
    """
    faster = ring_moments if ring_cost(gram, degree) < enumeration_cost(gram, degree) else enumerated_moments
    moments = faster(gram, degree, watch=watch)
    recheck(gram, moments, watch=watch)
    return without_common(moments, gram)


def reductions(gram: ExactGram, side: Side, effort: float) -> Iterator[Reduction]:
    """The pair itself, with few moments and with many, then for upper bounds coarser ones that reach higher orders.

    Lower envelopes lose too much, and classes are a relaxation, of which a lower bound says nothing.
    """
    best = 0
    candidates: list[tuple[float, Sequence[tuple[float, ExactGram]]]] = [
        (FIRST_SHARE, [(1.0, gram)]),
        (WHOLE_SHARE, [(1.0, gram)]),
    ]
    if side is Side.UPPER:
        envelope = None if gram.is_circulant else circulant(gram, side)
        if envelope is not None:
            candidates.append((ENVELOPE_SHARE, [(1.0, envelope)]))
        candidates += [(CLASSES_SHARE, residue_classes(gram, m)) for m in RESIDUES if 2 * m <= gram.bins]
    for share, parts in candidates:
        found = _affordable(parts, share * effort)
        if found is not None and found.degree > best:
            best = found.degree
            yield found


def _affordable(parts: Sequence[tuple[float, ExactGram]], seconds: float) -> Reduction | None:
    for degree in range(HIGHEST_DEGREE, LOWEST_DEGREE - 1, -1):
        if sum(moments_cost(gram, degree) for _, gram in parts) <= seconds:
            return Reduction(parts, degree)
    return None


@dataclass
class _Best:
    """The best profile of one direction at the delta that is asked for, and its epsilon there."""

    side: Side
    delta: float
    profile: Profile | None = None
    epsilon: float = 0.0

    def offer(self, profile: Profile, near: float | None = None) -> None:
        """Take the profile if it is better; its epsilon may be near to one that is known."""
        if self.profile is not None and isfinite(self.epsilon):
            there = profile(self.epsilon)
            if there >= self.delta if self.side is Side.UPPER else there <= self.delta:
                return
            near = self.epsilon
        near = near if near and isfinite(near) else None
        self.profile = profile
        self.epsilon = smallest_epsilon(profile, self.delta, self.side, tolerance=SELECTION, near=near)


@dataclass(frozen=True, eq=False)
class _Part:
    """One mixture of a reduction, with what its programmes need; see :func:`.majorant.majorant_profile`."""

    weight: float
    moments: ExactMoments
    variance: float
    floor: float

    def profile(self, direction: Direction, side: Side, watch: Watch) -> Profile:
        degrees = range(LOWEST_DEGREE, self.moments.degree + 1)
        return majorant_profile(
            self.moments, self.variance, direction, side, degrees=degrees, floor=self.floor, watch=watch
        )


def _profiles(pair: BinMixture, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    delta, watch = settings.resolution.smallest_delta, settings.watch
    gram = raised_gram(pair) if side is Side.UPPER else lowered_gram(pair)
    remove, add = _Best(side, delta), _Best(side, delta)
    for reduction in reductions(gram, side, settings.effort):
        parts = [
            _Part(weight, exact_moments(part, reduction.degree, watch), part.variance, floor_of(part))
            for weight, part in reduction.parts
        ]
        remove.offer(_mixed(parts, Direction.REMOVE, side, watch))
        add.offer(_mixed(parts, Direction.ADD, side, watch), near=remove.epsilon)
        if len(parts) == 1 and _is_settled(parts, remove.epsilon, watch):
            break
    if remove.profile is None or add.profile is None:
        raise UnsupportedError("No moments of this Gram matrix are affordable.")
    if side is Side.UPPER and add.epsilon > remove.epsilon:
        add.offer(comparison_profiles(pair, side, settings)[Direction.ADD])
    return {Direction.REMOVE: remove.profile, Direction.ADD: add.profile}


def _is_settled(parts: Sequence[_Part], epsilon: float, watch: Watch) -> bool:
    """Whether a reduction's own two sides almost meet, so that higher orders of it are not worth their time."""
    upper, lower = (_mixed(parts, Direction.REMOVE, side, watch)(epsilon) for side in Side)
    return lower >= SETTLED * upper


def _mixed(parts: Sequence[_Part], direction: Direction, side: Side, watch: Watch) -> Profile:
    """The weighted sum of the profiles of all parts, rounded to the side."""
    profiles = [(part.weight, part.profile(direction, side, watch)) for part in parts]
    rounding = 4 * len(parts) * UNIT_ROUNDOFF
    factor = 1.0 + rounding if side is Side.UPPER else 1.0 - rounding
    return lambda epsilon: factor * sum(weight * profile(epsilon) for weight, profile in profiles)


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
    errs="the polynomial is proved on that side of the payoff, its moments belong to a covariance on that side",
    reference="docs/theory/moment-majorants/programme.md",
    analyses={BinMixture: _profiles},
    refusal=lambda pair, side: pair.too_large,
    cost=_cost,
    warm_up=_warm_up,
    plans_effort=True,
)
