"""Faults planted in what a bound rests on: each one is rejected, for real mechanisms, by the check that it should meet.

A polynomial on the wrong side, a claim that is too good, a moment that is off, a covariance that is none, a common
factor that is too large. What is not tampered with passes in the same test, so that no check can pass by refusing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest

from hockeystick.accountants.moment_majorant import exact_moments
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import Array
from hockeystick.moments.cells import cell_moments, standard_edges, whole_moments
from hockeystick.moments.exact import ExactGram, ExactMoments
from hockeystick.moments.exact_gram import circulant, proved_gram, proved_semidefinite, residue_classes
from hockeystick.moments.majorant.base import Polynomial
from hockeystick.moments.majorant.hockey_stick import SplitHockeyStick
from hockeystick.moments.majorant.programme import propose
from hockeystick.moments.majorant.proof import expectation, proves, repair_needed, repaired
from hockeystick.moments.majorant.ranges import least_ratio
from hockeystick.moments.recheck import recheck
from hockeystick.moments.ring import ring_moments
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.strategies import BandedSquareRoot, Identity
from hockeystick.types import Direction, Side

SIDES = (Side.UPPER, Side.LOWER)
FAULT = 1e-6


@lru_cache(maxsize=16)
def pair_of_strategy(bands: int, bins: int, epochs: int, sigma: float) -> BinMixture:
    """Banded square root; one band is C = I."""
    strategy = Identity() if bands == 1 else BandedSquareRoot(bands=bands)
    return BinMixture(noise_multiplier=sigma, matrix=strategy.matrix(bins * epochs), bins=bins)


@lru_cache(maxsize=16)
def gram_of(pair: BinMixture, side: Side) -> ExactGram:
    return proved_gram(pair.gram, pair.rounding, pair.noise_multiplier, side)


# A polynomial on the wrong side, and a claim that does not follow.


@dataclass(frozen=True, eq=False)
class Found:
    """An optimum that was repaired and proved, as an accountant uses it, and the bound that follows."""

    hockey_stick: SplitHockeyStick
    side: Side
    polynomial: Polynomial
    points: Array
    moments: ExactMoments

    @property
    def bound(self) -> float:
        return expectation(self.polynomial, self.moments, self.side)

    def moved(self, by: float) -> Polynomial:
        """The polynomial plus a constant."""
        first, *others = self.polynomial.exact
        return Polynomial.rounded(self.polynomial.centre, [first + Fraction(by), *others])


MECHANISMS = {
    "bsr-4": (4, 100, 1, 2.0, 8),
    "bsr-4 in ten epochs": (4, 20, 10, 8.0, 6),
    "bsr-64": (64, 100, 1, 5.0, 4),
    "identity": (1, 50, 1, 1.5, 10),
}
"""Bands, bins, epochs, noise multiplier and the order of the moments."""


@lru_cache(maxsize=8)
def known(name: str, side: Side) -> tuple[ExactGram, ExactMoments]:
    bands, bins, epochs, sigma, degree = MECHANISMS[name]
    gram = gram_of(pair_of_strategy(bands, bins, epochs, sigma), side)
    if bands > 1:  # envelopes have the cheaper moments, and are exact matrices of their own
        gram = circulant(gram, side) or gram
    return gram, exact_moments(gram, degree, Deadline())


def optimum_of(name: str, direction: Direction, side: Side, epsilon: float) -> Found:
    gram, moments = known(name, side)
    hockey_stick = SplitHockeyStick(direction, epsilon, gram.scale * gram.common)
    candidate = propose(moments, hockey_stick, side, degree=moments.degree)
    assert candidate is not None
    eta = repair_needed(candidate.polynomial, candidate.repair, hockey_stick, side, candidate.points)
    polynomial = repaired(candidate.polynomial, candidate.repair, eta, side)
    result = Found(hockey_stick, side, polynomial, candidate.points, moments)
    assert proves(polynomial, hockey_stick, side, candidate.points)
    assert result.bound == pytest.approx(candidate.value, rel=1e-3)
    return result


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("name", MECHANISMS)
def test_optima_moved_by_a_thousandth_of_delta_are_rejected(
    name: str, direction: Direction, side: Side, epsilon: float
) -> None:
    optimum = optimum_of(name, direction, side, epsilon)
    bound = optimum.bound
    assert proves(optimum.polynomial, optimum.hockey_stick, side, optimum.points)
    assert bound > 1e-12, "a bound of nothing would test nothing"
    wrong = -1e-3 * bound if side is Side.UPPER else 1e-3 * bound
    assert proves(optimum.moved(-wrong), optimum.hockey_stick, side, optimum.points)
    assert not proves(optimum.moved(wrong), optimum.hockey_stick, side, optimum.points)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("direction", list(Direction))
def test_polynomials_of_another_hockey_stick_are_rejected(direction: Direction, side: Side) -> None:
    """An epsilon, or a common factor, that is off in the direction that flatters."""
    optimum = optimum_of("bsr-4", direction, side, 0.3)
    hockey_stick, sign = optimum.hockey_stick, 1.0 if side is Side.UPPER else -1.0
    flattered = (
        SplitHockeyStick(direction, hockey_stick.epsilon - sign * 1e-3, hockey_stick.variance),
        SplitHockeyStick(direction, hockey_stick.epsilon, hockey_stick.variance * (1.0 + sign * 1e-2)),
    )
    for other in flattered:
        assert not proves(optimum.polynomial, other, side, optimum.points)


@pytest.mark.parametrize("place", [3, 4, 5])
@pytest.mark.parametrize("side", SIDES)
def test_optima_on_cells_moved_by_a_thousandth_are_rejected(side: Side, place: int) -> None:
    """There ``x p(x)`` has to be on its side of F from a start on; p is moved."""
    gram = envelope_of(pair_of_strategy(4, 20, 2, 2.0), side)
    cells = cell_moments(gram, 4, standard_edges(gram, np.linspace(-1.0, 3.0, 6)), deadline=Deadline())
    start = least_ratio(float(cells.edges[place - 1]), cells.variance, gram.bins)
    moments, hockey_stick = cells.moments[place], SplitHockeyStick(Direction.REMOVE, 0.5, gram.scale * gram.common)
    candidate = propose(moments, hockey_stick, side, degree=4, start=start, divided=True)
    assert candidate is not None
    assert candidate.value > 1e-6
    assert candidate.points[0] <= start
    eta = repair_needed(candidate.polynomial, candidate.repair, hockey_stick, side, candidate.points)
    polynomial = repaired(candidate.polynomial, candidate.repair, eta, side)
    wrong = (-1e-3 if side is Side.UPPER else 1e-3) * candidate.value / float(moments.values[0])
    assert proves(polynomial, hockey_stick, side, candidate.points)
    assert proves(plus_line(polynomial, -wrong), hockey_stick, side, candidate.points)
    assert not proves(plus_line(polynomial, wrong), hockey_stick, side, candidate.points)


def plus_line(polynomial: Polynomial, slope: float) -> Polynomial:
    """The polynomial plus ``slope x``."""
    first, second, *others = polynomial.exact
    changed = [first + Fraction(slope) * Fraction(polynomial.centre), second + Fraction(slope), *others]
    return Polynomial.rounded(polynomial.centre, changed)


# A moment that is off.


def cells_of(gram: ExactGram) -> ExactMoments:
    cells = cell_moments(gram, 4, standard_edges(gram, np.linspace(-3.0, 4.0, 6)), deadline=Deadline())
    return whole_moments(cells, gram)


def the_class(gram: ExactGram) -> ExactGram:
    return residue_classes(gram, 3)[0][1]


MOMENTS: dict[str, Callable[[], tuple[ExactGram, ExactMoments]]] = {
    "line": lambda: with_moments(gram_of(pair_of_strategy(64, 30, 3, 5.0), Side.UPPER), ring_moments, 5),
    "line of a class": lambda: with_moments(
        the_class(gram_of(pair_of_strategy(64, 90, 1, 5.0), Side.UPPER)), ring_moments, 6
    ),
    "wide ring, circulant": lambda: with_moments(
        envelope_of(pair_of_strategy(64, 30, 3, 5.0), Side.UPPER), ring_moments, 6
    ),
    "ring": lambda: with_moments(gram_of(pair_of_strategy(4, 40, 1, 2.0), Side.LOWER), ring_moments, 8),
    "ring, circulant": lambda: with_moments(envelope_of(pair_of_strategy(4, 100, 2, 3.0), Side.UPPER), ring_moments, 8),
    "identity": lambda: with_moments(gram_of(pair_of_strategy(1, 100, 1, 2.0), Side.UPPER), ring_moments, 12),
    "cells": lambda: with_own(gram_of(pair_of_strategy(4, 20, 1, 2.0), Side.UPPER), cells_of),
    "cells, circulant": lambda: with_own(envelope_of(pair_of_strategy(4, 100, 1, 2.0), Side.UPPER), cells_of),
}


def with_moments(gram: ExactGram, way: Callable[..., ExactMoments], largest: int) -> tuple[ExactGram, ExactMoments]:
    return gram, way(gram, largest, deadline=Deadline())


def with_own(gram: ExactGram, way: Callable[[ExactGram], ExactMoments]) -> tuple[ExactGram, ExactMoments]:
    return gram, way(gram)


def envelope_of(pair: BinMixture, side: Side) -> ExactGram:
    envelope = circulant(gram_of(pair, side), side)
    assert envelope is not None
    return envelope


@pytest.mark.parametrize("way", MOMENTS)
def test_moments_that_are_off_by_a_millionth_are_rejected(way: str) -> None:
    gram, moments = MOMENTS[way]()
    recheck(gram, moments, deadline=Deadline())
    for order in range(moments.degree + 1):
        for factor in (1 + Fraction(1, 10**6), 1 - Fraction(1, 10**6)):
            values = list(moments.values)
            values[order] *= factor
            with pytest.raises(UnsupportedError, match=f"order {order} disagree"):
                recheck(gram, ExactMoments(values=tuple(values), error=moments.error), deadline=Deadline())


def test_moments_of_another_covariance_are_rejected() -> None:
    """One pair of entries, or the scale, off by a thousandth."""
    gram = gram_of(pair_of_strategy(4, 20, 1, 2.0), Side.UPPER)
    moments = ring_moments(gram, 5, deadline=Deadline())
    entries = gram.entries.copy()
    entries[3, 4] = entries[4, 3] = entries[3, 4] * 1.001
    for other in (
        ExactGram(entries=entries, scale=gram.scale, common=0.0),
        ExactGram(entries=gram.entries, scale=gram.scale * 1.001, common=0.0),
    ):
        with pytest.raises(UnsupportedError, match="disagree"):
            recheck(other, moments, deadline=Deadline())


# A covariance that is none, and a common factor that is too large.

MATRICES = [(4, 100, 1), (4, 20, 10), (64, 100, 1), (64, 30, 3), (1, 50, 1)]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("bands", "bins", "epochs"), MATRICES)
def test_matrices_with_a_negative_eigenvalue_are_rejected(bands: int, bins: int, epochs: int, side: Side) -> None:
    """The smallest one is moved to -1e-9 times the largest, and, as a check of the test, to +1e-6 times."""
    entries = gram_of(pair_of_strategy(bands, bins, epochs, 1.0), side).entries
    assert proved_semidefinite(entries)
    values, vectors = np.linalg.eigh(entries)
    along = np.outer(vectors[:, 0], vectors[:, 0])
    for smallest, accepted in ((-1e-9 * values[-1], False), (1e-6 * values[-1], True)):
        moved = entries + (smallest - values[0]) * along
        moved = np.maximum(moved, moved.T)
        assert np.linalg.eigvalsh(moved)[0] == pytest.approx(smallest, rel=1e-3)
        assert proved_semidefinite(moved) is accepted


@pytest.mark.parametrize("bins", [3, 20, 100])
def test_one_entry_that_is_raised_or_lowered_is_rejected(bins: int) -> None:
    """Alike bins with a share of 1e-7 of their own: changed by more than that, a pair is no covariance any more."""
    entries = np.ones((bins, bins)) + 1e-7 * np.eye(bins)
    assert proved_semidefinite(entries)
    for change in (2e-7, -4e-7):
        tampered = entries.copy()
        tampered[0, 1] = tampered[1, 0] = 1.0 + change
        assert np.linalg.eigvalsh(tampered)[0] < 0.0
        assert not proved_semidefinite(tampered)
    for change in (1e-8, -1e-8):
        tampered = entries.copy()
        tampered[0, 1] = 1.0 + change  # one side of the diagonal only
        assert not proved_semidefinite(tampered)
    tampered = entries.copy()
    tampered[-1, -1] -= 3e-7
    assert not proved_semidefinite(tampered)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("bands", "bins", "epochs"), MATRICES)
def test_common_factors_that_are_a_millionth_too_large_are_rejected(
    bands: int, bins: int, epochs: int, side: Side
) -> None:
    gram = gram_of(pair_of_strategy(bands, bins, epochs, 1.0), side)
    assert gram.common > 0.0
    assert proved_semidefinite(gram.entries - gram.common)
    assert not proved_semidefinite(gram.entries - gram.common * (1.0 + FAULT))
    envelope = circulant(gram, side)
    if envelope is not None and envelope.common > 0.0:
        assert not proved_semidefinite(envelope.entries - envelope.common * (1.0 + FAULT))
