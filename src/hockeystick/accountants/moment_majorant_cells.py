"""Moment majorants on cells, for low noise: a polynomial for each range of the drawn bin's own Gaussian.

Where the Gram matrix itself is too expensive its circulant envelope on the safe side replaces it. For upper bounds the
residue of the bin modulo m may also be revealed; the classes are narrower and are averaged.

Method: :mod:`..moments.majorant.ranges`. Proofs: ``docs/theory/moment-majorants/cells.md``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from hockeystick.accountants import examples
from hockeystick.accountants.base import Accountant
from hockeystick.accountants.comparison import comparison_profiles
from hockeystick.bounds import SMALLEST_UPPER, Profile
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.moments.exact import ExactGram

DEGREES = (4, 6, 8, 10, 12)
"""Highest orders that are considered."""
RESIDUES = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32)
MOST_MIXTURES = 3
"""Most mixtures that are tried, those with the fewest classes first."""
MOMENTS_SHARE = 0.35
"""Share of the effort for the moments; the rest is for programmes and proofs."""
CELL_WIDTH = 0.2
"""Width of cells in standard deviations, where the drawn bin alone may reach the threshold."""
FINE_BELOW = 3.0
"""How far below the quantile of delta, in standard deviations, the narrow cells begin."""
OUTSIDE = 1e-3
"""Largest content of the two outermost cells, relative to delta; they get the trivial bound."""
SELECTION = 1e-3
"""Relative accuracy in epsilon of the choice among mixtures."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """A weighted mean of mixtures that bounds the pair on the asked side.

    Attributes:
        parts: weight and Gram matrix of each; the weights add up to 1.
        degree: highest order of the moments.
    """

    parts: "Sequence[tuple[float, ExactGram]]"
    degree: int


def cell_edges(gram: "ExactGram", delta: float) -> Array:
    """Where cells end: wide ones in the bulk, narrow ones around the quantile of ``delta``, none far outside."""
    from scipy.special import ndtri

    from hockeystick.moments.cells import standard_edges

    outer, inner = -float(ndtri(0.5 * OUTSIDE * delta)), -float(ndtri(delta)) - FINE_BELOW
    fine = np.linspace(inner, outer, ceil((outer - inner) / CELL_WIDTH) + 1)
    bulk = np.array([-1.0, 1.0])
    return standard_edges(gram, np.concatenate([[-outer], bulk[bulk < inner - CELL_WIDTH], fine]))


def mixtures(gram: "ExactGram", side: Side, delta: float, effort: float) -> Iterator[Mixture]:
    """The matrix itself, its circulant envelope and, for upper bounds, classes modulo m, each with its highest order.

    Coarser ones only as long as they reach a higher order at what they may cost.
    """
    if gram.bins == 1:
        return
    best = count = 0
    for parts in _candidates(gram, side):
        cells = cell_edges(parts[0][1], delta).size + 1
        affordable = [a for a in DEGREES if a > best and _moments_cost(parts, a, cells) <= MOMENTS_SHARE * effort]
        if affordable and count < MOST_MIXTURES:
            best, count = affordable[-1], count + 1
            yield Mixture(parts, best)


def _candidates(gram: "ExactGram", side: Side) -> "Iterator[Sequence[tuple[float, ExactGram]]]":
    """Mixtures of mixtures that bound the one of ``gram``, the finest first."""
    from hockeystick.moments.exact_gram import circulant, residue_classes

    yield [(1.0, gram)]
    envelope = circulant(gram, side)
    if envelope is not None:
        yield [(1.0, envelope)]
    for m in RESIDUES if side is Side.UPPER else ():
        if 3 * m > gram.bins:
            return
        yield residue_classes(gram, m)
        if envelope is not None:
            parts = [(weight, circulant(part, side)) for weight, part in residue_classes(envelope, m)]
            kept = [(weight, part) for weight, part in parts if part is not None]
            if len(kept) == len(parts):
                yield kept


def _moments_cost(parts: "Sequence[tuple[float, ExactGram]]", degree: int, cells: int) -> float:
    from hockeystick.moments.cells import cell_cost
    from hockeystick.moments.recheck import recheck_cost

    return sum(cell_cost(gram, degree, cells) + recheck_cost(gram, degree + 1) for _, gram in parts)


def mixture_profile(mixture: Mixture, side: Side, delta: float, deadline: Deadline) -> Profile:
    """The remove direction's delta as a function of epsilon: the mean over the parts, whose moments are computed here.

    The moments of all cells together are those of the whole mixture and are checked against a second computation.
    """
    from hockeystick.moments.cells import cell_moments, whole_moments
    from hockeystick.moments.majorant.hockey_stick import SplitHockeyStick
    from hockeystick.moments.majorant.majorant import profile_from
    from hockeystick.moments.majorant.ranges import NEGLIGIBLE_ON_CELLS, cells_delta
    from hockeystick.moments.recheck import recheck

    parts = []
    for weight, gram in mixture.parts:
        cells = cell_moments(gram, mixture.degree, cell_edges(gram, delta), deadline=deadline)
        recheck(gram, whole_moments(cells, gram), deadline=deadline)
        parts.append((weight, gram, cells))
    degrees = range(2, mixture.degree + 1, 2)
    rounding = (4 * len(parts) + 4) * UNIT_ROUNDOFF

    def bound(epsilon: float) -> float:
        total = 0.0
        for weight, gram, cells in parts:
            hockey_stick = SplitHockeyStick(Direction.REMOVE, epsilon, gram.scale * gram.common)
            smallest = NEGLIGIBLE_ON_CELLS * delta
            total += weight * cells_delta(cells, gram.bins, hockey_stick, side, degrees, smallest, deadline)
        if side is Side.LOWER:
            return max(total * (1.0 - rounding), 0.0)
        return min(max(total * (1.0 + rounding), SMALLEST_UPPER), 1.0)

    return profile_from(bound, side)


def _profiles(pair: BinMixture, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    from hockeystick.moments.exact_gram import proved_gram

    delta, deadline = settings.resolution.smallest_delta, settings.deadline
    gram = proved_gram(pair.gram, pair.rounding, pair.noise_multiplier, side)
    affordable = mixtures(gram, side, delta, settings.effort)
    profiles = [mixture_profile(mixture, side, delta, deadline) for mixture in affordable]
    if not profiles:
        raise UnsupportedError("No moments on cells of this Gram matrix are affordable.")
    best = _best(profiles, delta, side)
    if side is Side.LOWER:
        return {Direction.REMOVE: best}
    return {Direction.REMOVE: best, Direction.ADD: comparison_profiles(pair, side, settings)[Direction.ADD]}


def _best(profiles: Sequence[Profile], delta: float, side: Side) -> Profile:
    """The profile with the best epsilon at ``delta``; each is looked at once where the best so far ends."""
    from hockeystick.moments.majorant.hockey_stick import LARGEST_EPSILON

    best = profiles[0]
    for profile in profiles[1:]:
        epsilon = min(smallest_epsilon(best, delta, side, tolerance=SELECTION), LARGEST_EPSILON)
        if profile(epsilon) < delta if side is Side.UPPER else profile(epsilon) > delta:
            best = profile
    return best


ACCOUNTANT = Accountant(
    name="moment_majorant_cells",
    summary="polynomials on ranges of the drawn bin's own Gaussian, from exact moments there; for low noise",
    sides=(Side.UPPER, Side.LOWER),
    errs="to the asked side: polynomials above or below the hockey stick, moments of a larger or smaller covariance",
    reference="docs/theory/moment-majorants/cells.md",
    analyses={BinMixture: _profiles},
    refusal=lambda pair, side: "there is a single bin" if pair.bins == 1 else pair.too_large,
    cost=lambda pair: 8.0 - 0.035 * max(86 - pair.bins, 0) + 2e-9 * pair.bins**3,  # python -m benchmarks.work
    example=partial(examples.bins, bands=2),
    example_effort=0.1,
    plans_effort=True,
)
