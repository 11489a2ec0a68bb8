"""Moment majorants on cells, for low noise: a polynomial for each range of the drawn bin's own Gaussian.

For the remove direction, with the common factor split off and ``h(x) = F(x) / x <= 1``,

    delta = E F(Y) = (1/b) sum_i E_i h(Y) = sum over cells A of (1/b) sum_i E_i[h(Y); u_i in A],

where E_i is the law in which bin i was drawn. On a cell ``u_i >= w`` and so ``Y >= x0 = e^(w - T_ii / 2) / b``: a
polynomial p has to satisfy ``x p(x) >= F(x)`` (UPPER) or ``<= F(x)`` (LOWER) only from x0 on, and its expectation on
the cell needs the moments of :mod:`.cell_moments`. Where the noise is low, a single polynomial has to cover the heavy
tail that the drawn bin causes; on a cell that tail is gone.

Where the Gram matrix itself is too expensive its circulant envelope on the safe side replaces it. For upper bounds the
residue of the bin modulo m may also be revealed; the classes are narrower and are averaged.

Proofs: ``docs/theory/moment-majorants/cells.md``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil, exp, fsum, inf, isfinite, isnan, nextafter

import numpy as np
from scipy.special import ndtri

from hockeystick.accountants.base import Accountant
from hockeystick.accountants.comparison import comparison_profiles
from hockeystick.bounds import SMALLEST_UPPER, Profile
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.moments.cells import CellMoments, cell_cost, cell_moments, standard_edges, whole_moments
from hockeystick.moments.double_double import rational
from hockeystick.moments.exact import ExactGram, ExactMoments
from hockeystick.moments.exact_gram import circulant, lowered_gram, raised_gram, residue_classes
from hockeystick.moments.majorant.base import HockeyStick, Polynomial
from hockeystick.moments.majorant.hockey_stick import LARGEST_EPSILON, SplitHockeyStick
from hockeystick.moments.majorant.programme import Candidate, propose
from hockeystick.moments.majorant.proof import expectation, proves, repair_needed, repaired
from hockeystick.moments.recheck import recheck, recheck_cost
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.types import Direction, Side

DEGREES = (4, 6, 8, 10, 12)
"""Highest orders that are considered."""
RESIDUES = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32)
REDUCTIONS = 3
"""At most so many are tried, those with the fewest classes first."""
MOMENTS_SHARE = 0.35
"""Of the effort, for the moments; the rest is for programmes and proofs."""
CELL_WIDTH = 0.2
"""In standard deviations, where the drawn bin alone may reach the threshold."""
FINE_BELOW = 3.0
"""Cells are that narrow from so far below the quantile of delta on."""
OUTSIDE = 1e-3
"""What both outermost cells may hold, relative to delta: they get the trivial bound."""
FIRST_DEGREE = 4
"""Of the programme that finds out whether a cell matters."""
CLOSE = 1e-3
"""So near, relatively, to the optimum of its own programme a bound is not improved by lower degrees."""
NEGLIGIBLE = 3e-5
"""Relative to delta: no more is resolved on a cell."""
SELECTION = 1e-3
"""Relative accuracy in epsilon of the choice among reductions."""


@dataclass(frozen=True, eq=False)
class Reduction:
    """A mixture of mixtures that bounds the pair on the asked side.

    Attributes:
        parts: weight and Gram matrix of each; the weights add up to 1.
        degree: highest order of the moments.
    """

    parts: Sequence[tuple[float, ExactGram]]
    degree: int


def cells_delta(
    cells: CellMoments,
    bins: int,
    hockey_stick: HockeyStick,
    side: Side,
    degrees: Sequence[int],
    smallest: float,
    deadline: Deadline,
) -> float:
    """``E F(Y)`` for the remove direction's hockey stick, from moments on cells; never below (UPPER) or above (LOWER).

    The outermost cells count with their mass (UPPER) or not at all (LOWER).

    Args:
        cells: of a mixture of ``bins`` bins.
        hockey_stick: F, with ``F(x) <= x``.
        degrees: to choose from for each cell, each at most the highest order.
        smallest: a delta that is negligible.

    Cost: some milliseconds for each cell.
    """
    values = []
    for place, moments in enumerate(cells.moments):
        trivial = mass_above(moments) if side is Side.UPPER else 0.0
        if 0 < place < len(cells.moments) - 1:
            deadline.tick()
            start = least_ratio(float(cells.edges[place - 1]), cells.variance, bins)
            values.append(_cell_bound(moments, hockey_stick, side, degrees, start, smallest, trivial))
        else:
            values.append(trivial)
    return fsum(values) * (1.0 + 4 * UNIT_ROUNDOFF if side is Side.UPPER else 1.0 - 4 * UNIT_ROUNDOFF)


def mass_above(moments: ExactMoments) -> float:
    """At least the mass of the cell."""
    return nextafter(float(moments.values[0] * (1 + moments.error)), inf)


def least_ratio(edge: float, variance: Fraction, bins: int) -> float:
    """x0: at most ``e^(edge - variance / 2) / bins``."""
    exponent = nextafter(float(Fraction(edge) - variance / 2), -inf)
    return exp(exponent) * (1.0 - 16 * UNIT_ROUNDOFF) / bins


def _cell_bound(
    moments: ExactMoments,
    hockey_stick: HockeyStick,
    side: Side,
    degrees: Sequence[int],
    start: float,
    smallest: float,
    trivial: float,
) -> float:
    """The best proved bound on the mean of ``E_i[h(Y); A]`` among the degrees, from the highest down.

    A cell whose upper bound of low degree is negligible gets that one (UPPER) or 0 (LOWER).
    """

    def proposed(degree: int, side: Side) -> Candidate | None:
        return propose(moments, hockey_stick, side, degree=degree, start=start, divided=True, target=smallest)

    better = min if side is Side.UPPER else max
    first = proposed(min(degrees, key=lambda degree: abs(degree - FIRST_DEGREE)), Side.UPPER)
    if first is not None and first.value <= smallest:
        if side is Side.LOWER:
            return trivial
        bound = proved_on_cell(first, moments, hockey_stick, side, start)
        if bound <= 2.0 * smallest:
            return bound
    best = trivial
    for degree in sorted(degrees, reverse=True):
        candidate = proposed(degree, side)
        if candidate is None:
            continue
        best = better(best, proved_on_cell(candidate, moments, hockey_stick, side, start))
        if abs(best - candidate.value) <= CLOSE * abs(candidate.value) + smallest:
            break
    return best


def proved_on_cell(
    candidate: Candidate, moments: ExactMoments, hockey_stick: HockeyStick, side: Side, start: float
) -> float:
    """``E_0[P(Y) / Y; A]`` for the repaired candidate P, once it is proved; else infinite, to the useless side."""
    useless = inf if side is Side.UPPER else -inf
    points = candidate.points
    if not 0.0 < points[0] <= start:
        return useless
    eta = repair_needed(candidate.polynomial, candidate.repair, hockey_stick, side, points)
    if not isfinite(eta):
        return useless
    polynomial = repaired(candidate.polynomial, candidate.repair, eta, side)
    if not proves(polynomial, hockey_stick, side, points):
        return useless
    value = divided_expectation(polynomial, moments, start, side)
    return useless if isnan(value) else value


def divided_expectation(polynomial: Polynomial, moments: ExactMoments, start: float, side: Side) -> float:
    """``E P(Y) / Y`` on a cell with ``Y >= start``, rounded to the side.

    It is ``sum_(k>0) a_k M_(k-1) + a_0 E[1 / Y]`` with raw coefficients, of which ``a_0 = P(0)`` is a rounding error:
    its factor is only known to lie between 0 and ``M_0 / start``, and both ends are allowed for.
    """
    most = moments.values[0] / Fraction(start)
    value = expectation(polynomial, ExactMoments(values=(most, *moments.values), error=moments.error), side)
    at_zero, minus = Fraction(0), -Fraction(polynomial.centre)
    for high, low in zip(polynomial.high[::-1], polynomial.low[::-1], strict=True):
        at_zero = at_zero * minus + rational(float(high), float(low))
    unknown = nextafter(float(abs(at_zero) * most * (1 + moments.error)), inf)
    return nextafter(value + unknown, inf) if side is Side.UPPER else nextafter(value - unknown, -inf)


def cell_edges(gram: ExactGram, delta: float) -> Array:
    """Where cells end: wide ones in the bulk, narrow ones around the quantile of ``delta``, none far outside."""
    outer, inner = -float(ndtri(0.5 * OUTSIDE * delta)), -float(ndtri(delta)) - FINE_BELOW
    fine = np.linspace(inner, outer, ceil((outer - inner) / CELL_WIDTH) + 1)
    bulk = np.array([-1.0, 1.0])
    return standard_edges(gram, np.concatenate([[-outer], bulk[bulk < inner - CELL_WIDTH], fine]))


def reductions(gram: ExactGram, side: Side, delta: float, effort: float) -> Iterator[Reduction]:
    """The matrix itself, its circulant envelope and, for upper bounds, classes modulo m, each with its highest order.

    Coarser ones only as long as they reach a higher order at what they may cost.
    """
    if gram.bins == 1:
        return
    best = found = 0
    for parts in _candidates(gram, side):
        cells = cell_edges(parts[0][1], delta).size + 1
        affordable = [a for a in DEGREES if a > best and _moments_cost(parts, a, cells) <= MOMENTS_SHARE * effort]
        if affordable and found < REDUCTIONS:
            best, found = affordable[-1], found + 1
            yield Reduction(parts, best)


def _candidates(gram: ExactGram, side: Side) -> Iterator[Sequence[tuple[float, ExactGram]]]:
    """Mixtures of mixtures that bound the one of ``gram``, the finest first."""
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


def _moments_cost(parts: Sequence[tuple[float, ExactGram]], degree: int, cells: int) -> float:
    return sum(cell_cost(gram, degree, cells) + recheck_cost(gram, degree + 1) for _, gram in parts)


def reduction_profile(reduction: Reduction, side: Side, delta: float, deadline: Deadline) -> Profile:
    """The remove direction's delta as a function of epsilon: the mean over the parts, whose moments are computed here.

    The moments of all cells together are those of the whole mixture and are checked against a second computation.
    """
    parts = []
    for weight, gram in reduction.parts:
        cells = cell_moments(gram, reduction.degree, cell_edges(gram, delta), deadline=deadline)
        recheck(gram, whole_moments(cells, gram), deadline=deadline)
        parts.append((weight, gram, cells))
    degrees = range(2, reduction.degree + 1, 2)
    rounding = (4 * len(parts) + 4) * UNIT_ROUNDOFF

    @cache
    def profile(epsilon: float) -> float:
        if epsilon > LARGEST_EPSILON and side is Side.LOWER:
            return 0.0
        total = 0.0
        for weight, gram, cells in parts:
            hockey_stick = SplitHockeyStick(Direction.REMOVE, min(epsilon, LARGEST_EPSILON), gram.scale * gram.common)
            total += weight * cells_delta(cells, gram.bins, hockey_stick, side, degrees, NEGLIGIBLE * delta, deadline)
        if side is Side.LOWER:
            return max(total * (1.0 - rounding), 0.0)
        return min(max(total * (1.0 + rounding), SMALLEST_UPPER), 1.0)

    return profile


def _profiles(pair: BinMixture, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    delta, deadline = settings.resolution.smallest_delta, settings.deadline
    gram = raised_gram(pair) if side is Side.UPPER else lowered_gram(pair)
    found = [reduction_profile(one, side, delta, deadline) for one in reductions(gram, side, delta, settings.effort)]
    if not found:
        raise UnsupportedError("No moments on cells of this Gram matrix are affordable.")
    best = _best(found, delta, side)
    if side is Side.LOWER:
        return {Direction.REMOVE: best}
    return {Direction.REMOVE: best, Direction.ADD: comparison_profiles(pair, side, settings)[Direction.ADD]}


def _best(profiles: Sequence[Profile], delta: float, side: Side) -> Profile:
    """The profile with the best epsilon at ``delta``; each is looked at once where the best so far ends."""
    best = profiles[0]
    for profile in profiles[1:]:
        epsilon = min(smallest_epsilon(best, delta, side, tolerance=SELECTION), LARGEST_EPSILON)
        if profile(epsilon) < delta if side is Side.UPPER else profile(epsilon) > delta:
            best = profile
    return best


def _refusal(pair: BinMixture, side: Side) -> str | None:
    return "there is a single bin" if pair.bins == 1 else pair.too_large


def _cost(pair: BinMixture) -> float:
    return 8.0 + 2e-9 * pair.bins**3


def _warm_up() -> None:
    matrix = BandedMatrix(np.linspace(1.0, 2.0, 18).reshape(9, 2))
    pair = BinMixture(noise_multiplier=3.0, matrix=matrix, bins=9)
    for side in Side:
        ACCOUNTANT.bound(pair, side, Settings(Resolution(8, 1e-2), effort=0.1)).delta(1.0)


ACCOUNTANT = Accountant(
    name="moment_majorant_cells",
    summary="polynomials on ranges of the drawn bin's own Gaussian, from exact moments there; for low noise, two-sided",
    sides=(Side.UPPER, Side.LOWER),
    errs="polynomials are proved on their side of the hockey stick; moments belong to a covariance on that side",
    reference="docs/theory/moment-majorants/cells.md",
    analyses={BinMixture: _profiles},
    refusal=_refusal,
    cost=_cost,
    warm_up=_warm_up,
    plans_effort=True,
)
