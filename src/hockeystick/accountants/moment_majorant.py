"""Moment majorants: two-sided bounds of correlated noise under balls-in-bins from exact moments of the mixture.

A polynomial above (below) the hockey stick is found by linear programming and proved by a certificate of its own; its
expectation needs only moments. Those of high order cost time, so several *relaxations* of the pair are tried, each with
the orders that the effort allows. Each is a bound by itself, and the best at the delta that is asked for are kept.

Proofs: ``docs/theory/moment-majorants/``.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from hockeystick.accountants import examples
from hockeystick.accountants.base import Accountant
from hockeystick.accountants.comparison import comparison_profiles
from hockeystick.bounds import Profile, falling
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.laws.profile import MAX_EPSILON, smallest_epsilon
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.moments.exact import ExactGram, ExactMoments

HIGHEST_DEGREE = 12
LOWEST_DEGREE = 2
FIRST_SHARE, WHOLE_SHARE, STRIPS_SHARE, LIFTED_SHARE, COARSE_SHARE = 0.05, 1.0, 0.4, 0.6, 0.2
OWN_SHARE = 0.4
"""Shares of the effort for the moments of one relaxation."""
LEAST_OWN_DEGREE = 4
"""Classes of the pair's own bins are as good as this order allows, or are not tried."""
RESIDUES = (2, 3, 4, 6)
"""Numbers of classes that are tried, in this order, where they reach higher orders than what was tried before."""
CLOSE_ENVELOPE = 1.02
"""An envelope that raises the mean of the diagonal by a larger factor is not used."""
STRIPS = 24
STRIPS_FROM = 1.1
"""Strips are tried where the mean of all u has at least this many times the variance of the common factor."""
LOWEST_STRIP_DEGREE, HIGHEST_STRIP_DEGREE = 3, 6
OUTSIDE_STRIPS = 1e-4
"""Largest content of the two outermost strips, relative to delta."""
SELECTION = 1e-3
"""Relative accuracy in epsilon of the choice among relaxations."""
SETTLED = 0.99
"""Higher orders are not worth their time where a relaxation's own lower delta is this much of the upper one."""


_KNOWN: "deque[tuple[ExactGram, int, ExactMoments]]" = deque(maxlen=8)
"""Gram matrices, degrees and their moments."""

Profiles = Callable[[Direction, Side], Profile]
"""A relaxation's profiles, once its moments are computed."""


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A mixture, or a mixture of mixtures, that bounds the pair.

    Attributes:
        whole: whether it is the mixture of the Gram matrix itself, so that its own other side says how sharp it is.
        degree: highest order of its moments.
        prepare: computes the moments.
    """

    whole: bool
    degree: int
    prepare: Callable[[Deadline], Profiles]


def moments_cost(gram: "ExactGram", degree: int) -> float:
    """Rough seconds of :func:`exact_moments`."""
    from hockeystick.moments.recheck import recheck_cost
    from hockeystick.moments.ring import ring_cost

    return ring_cost(gram, degree) + recheck_cost(gram, degree)


def exact_moments(gram: "ExactGram", degree: int, deadline: Deadline) -> "ExactMoments":
    """Moments of the mixture without its common factor, computed twice: with 30 digits and, to check, in doubles.

    The last few are kept: the whole profile of a mechanism needs those that its epsilon at one delta needed.

    Raises: UnsupportedError where the two disagree, or where the moments leave the range of doubles.
    """
    for other, highest, known in tuple(_KNOWN):
        if highest == degree and _same(other, gram):
            return known
    from hockeystick.moments.common_factor import without_common
    from hockeystick.moments.recheck import recheck
    from hockeystick.moments.ring import ring_moments

    moments = ring_moments(gram, degree, deadline=deadline)
    recheck(gram, moments, deadline=deadline)
    reduced = without_common(moments, gram)
    _KNOWN.append((gram, degree, reduced))
    return reduced


def _same(gram: "ExactGram", other: "ExactGram") -> bool:
    """Whether two Gram matrices are the same, entry by entry."""
    return (gram.scale, gram.common) == (other.scale, other.common) and np.array_equal(gram.entries, other.entries)


def relaxations(gram: "ExactGram", side: Side, delta: float, effort: float) -> Iterator[Relaxation]:
    """The pair itself, with few moments, with many, and on strips; then for upper bounds larger ones.

    They are the pair with its few small bins lifted, which has a larger common factor, and coarser ones of higher
    orders: the circulant envelope, where it is close, and classes of bins. Lower envelopes lose too much, and classes
    are a relaxation, of which a lower bound says nothing.
    """
    from hockeystick.moments.exact_gram import circulant, lifted, residue_classes

    best = 0
    for share in (FIRST_SHARE, WHOLE_SHARE):
        relaxation = _affordable(share * effort, [(1.0, gram)])
        if relaxation is not None and relaxation.degree > best:
            best = relaxation.degree
            yield relaxation
    strips = _affordable_strips(gram, delta, STRIPS_SHARE * effort)
    if strips is not None:
        yield strips
    if side is Side.LOWER:
        return
    higher = None if gram.is_circulant else lifted(gram)
    relaxation = None if higher is None else _affordable(LIFTED_SHARE * effort, [(1.0, higher)])
    if relaxation is not None:
        yield replace(relaxation, whole=False)
    envelope = None if gram.is_circulant else circulant(gram, side)
    close = envelope is not None and float(envelope.entries[0, 0]) <= CLOSE_ENVELOPE * float(
        gram.entries.diagonal().mean()
    )
    base = envelope if envelope is not None and close else gram
    for m in RESIDUES if base is gram else (1, *RESIDUES):  # classes of an envelope are mostly alike, and cheap
        if 2 * m > base.bins:
            break
        relaxation = _affordable(COARSE_SHARE * effort, residue_classes(base, m))
        if relaxation is not None and relaxation.degree > best:
            best = relaxation.degree
            yield replace(relaxation, whole=False)


def own_classes(gram: "ExactGram", highest: int, effort: float) -> Relaxation | None:
    """Classes of the pair's own bins, the fewest that are affordable, with moments up to at most this order.

    They tell nearly as much of the add direction as the pair itself, whose next even order may cost a hundred times as
    much. None where none is affordable.
    """
    from hockeystick.moments.exact_gram import residue_classes

    for m in RESIDUES:
        if 2 * m > gram.bins:
            return None
        relaxation = _affordable(OWN_SHARE * effort, residue_classes(gram, m), highest)
        if relaxation is not None and relaxation.degree >= LEAST_OWN_DEGREE:
            return replace(relaxation, whole=False)
    return None


def _affordable(
    seconds: float, parts: "Sequence[tuple[float, ExactGram]]", highest: int = HIGHEST_DEGREE
) -> Relaxation | None:
    for degree in range(highest, LOWEST_DEGREE - 1, -1):
        if sum(moments_cost(gram, degree) for _, gram in parts) <= seconds:
            return Relaxation(True, degree, partial(_mixed, parts, degree))
    return None


def _mixed(parts: "Sequence[tuple[float, ExactGram]]", degree: int, deadline: Deadline) -> Profiles:
    """The weighted sums of the profiles of all parts, rounded to the side."""
    from hockeystick.moments.floor import floor_of
    from hockeystick.moments.majorant.majorant import majorant_profile

    known = [(weight, gram.variance, exact_moments(gram, degree, deadline), floor_of(gram)) for weight, gram in parts]
    degrees = range(LOWEST_DEGREE, degree + 1)
    rounding = 4 * len(parts) * UNIT_ROUNDOFF

    def profiles(direction: Direction, side: Side) -> Profile:
        each = [
            (
                weight,
                majorant_profile(moments, variance, direction, side, degrees=degrees, floor=floor, deadline=deadline),
            )
            for weight, variance, moments, floor in known
        ]
        factor = 1.0 + rounding if side is Side.UPPER else 1.0 - rounding
        return lambda epsilon: factor * sum(weight * profile(epsilon) for weight, profile in each)

    return profiles


def _affordable_strips(gram: "ExactGram", delta: float, seconds: float) -> Relaxation | None:
    from hockeystick.moments.strips import strip_cost

    if float(gram.entries.mean()) <= STRIPS_FROM * gram.common:  # what all bins follow is split off already
        return None
    for degree in range(HIGHEST_STRIP_DEGREE, LOWEST_STRIP_DEGREE - 1, -1):
        if strip_cost(gram, degree, STRIPS) <= seconds:
            return Relaxation(True, degree, partial(_on_strips, gram, degree, delta))
    return None


def _on_strips(gram: "ExactGram", degree: int, delta: float, deadline: Deadline) -> Profiles:
    from hockeystick.moments.majorant.ranges import strip_profile
    from hockeystick.moments.strips import strip_edges, strip_moments

    edges = strip_edges(gram, OUTSIDE_STRIPS * delta, STRIPS)
    moments = strip_moments(gram, degree, edges, deadline=deadline)
    degrees = range(LOWEST_DEGREE, degree + 1)
    return lambda direction, side: strip_profile(
        moments, direction, side, degrees=degrees, delta=delta, deadline=deadline
    )


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


def _profiles(pair: BinMixture, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    from hockeystick.moments.exact_gram import proved_gram

    delta, deadline = settings.resolution.smallest_delta, settings.deadline
    gram = proved_gram(pair.gram, pair.rounding, pair.noise_multiplier, side)
    remove, add = _Best(side, delta), _Best(side, delta)
    compared = cache(lambda: comparison_profiles(pair, side, settings)[Direction.ADD])
    asked = False  # whether classes of its own bins were, about the add direction
    for relaxation in relaxations(gram, side, delta, settings.effort):
        profiles = relaxation.prepare(deadline)
        remove.offer(profiles(Direction.REMOVE, side))
        add.offer(profiles(Direction.ADD, side), near=remove.epsilon)
        if not (relaxation.whole and _is_settled(profiles, remove.epsilon)):
            continue
        if side is Side.UPPER and add.epsilon > remove.epsilon and not asked:
            asked, classes = True, own_classes(gram, relaxation.degree + 1, settings.effort)
            if classes is not None:
                add.offer(classes.prepare(deadline)(Direction.ADD, side))
        if side is Side.UPPER and add.epsilon > remove.epsilon:
            add.offer(compared())
        if side is Side.LOWER or (add.epsilon <= remove.epsilon and _confirm(settings, remove, add)):
            break
    if remove.profile is None or add.profile is None:
        raise UnsupportedError("No moments of this Gram matrix are affordable.")
    if side is Side.UPPER and add.epsilon > remove.epsilon:
        add.offer(compared())
    # programmes may fail at an epsilon far from where delta is
    return {
        Direction.REMOVE: falling(remove.profile, min(remove.epsilon, MAX_EPSILON), side),
        Direction.ADD: falling(add.profile, min(add.epsilon, MAX_EPSILON), side),
    }


def _confirm(settings: Settings, remove: _Best, add: _Best) -> bool:
    """Whether these profiles confirm the epsilon that is claimed, if any is."""
    if settings.claimed is None or remove.profile is None or add.profile is None:
        return True
    return max(remove.profile(settings.claimed), add.profile(settings.claimed)) <= remove.delta


def _is_settled(profiles: Profiles, epsilon: float) -> bool:
    """Whether a relaxation's own two sides almost meet, so that higher orders of it are not worth their time."""
    upper, lower = (profiles(Direction.REMOVE, side)(epsilon) for side in Side)
    return lower >= SETTLED * upper


ACCOUNTANT = Accountant(
    name="moment_majorant",
    summary="polynomials around the hockey stick, expected by exact moments of the bins' mixture",
    sides=(Side.UPPER, Side.LOWER),
    errs="to the asked side: polynomials above or below the hockey stick, moments of a larger or smaller covariance",
    reference="docs/theory/moment-majorants/programme.md",
    analyses={BinMixture: _profiles},
    refusal=lambda pair, side: pair.too_large,
    cost=lambda pair: 1.0 + 1e-9 * pair.bins**3,
    example=examples.bins,
    plans_effort=True,
)
