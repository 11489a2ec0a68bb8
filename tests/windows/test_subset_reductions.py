"""Poisson and cyclic Poisson sampling of columns that do not overlap: a composition of subsampled Gaussians."""

from collections.abc import Sequence
from fractions import Fraction
from math import exp
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from hockeystick import Direction, Resolution, Side
from hockeystick.accountants import direct, gaussian
from hockeystick.bounds import Bound
from hockeystick.errors import UnsupportedError
from hockeystick.laws.gaussian import ROUNDING
from hockeystick.laws.law import Law
from hockeystick.laws.profile import law_profiles
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix
from hockeystick.windows import orthogonal_columns
from hockeystick.windows.orthogonal_columns import in_blocks, norms_by_group, worst_groups

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)
WORK = Settings(resolution=Resolution(48, 1e-12))


def bound(pair: DominatingPair, side: Side, work: Settings = WORK) -> Bound:
    return direct.ACCOUNTANT.bound(pair, side, work)


def assert_equal_bounds(pair: DominatingPair, other: DominatingPair) -> None:
    """The same laws; what is bounded without a law is between their sides, but for what a closed form charges."""
    for side in Side:
        ours, theirs = bound(pair, side), law_profiles(*direct.ACCOUNTANT.laws_of(other, side, WORK))
        for direction in Direction:
            for epsilon in EPSILONS:
                expected = theirs[direction](epsilon)
                assert ours.profiles[direction](epsilon) == pytest.approx(expected, rel=1e-9, abs=1e-14)
        for epsilon in EPSILONS:
            known, value = bound(other, side).delta(epsilon), ours.delta(epsilon)
            charged = 1e-14 + 2.0 * ROUNDING * value
            assert known <= value + charged if side is Side.UPPER else known >= value - charged


def diagonal(values: Sequence[float]) -> BandedMatrix:
    return BandedMatrix(np.array(values)[:, None])


def cyclic(matrix: BandedMatrix | ToeplitzMatrix | TreeMatrix, groups: int, q: float, sigma: float) -> SubsetMixture:
    return SubsetMixture(noise_multiplier=sigma, matrix=matrix, groups=groups, sampling_prob=q)


# Special cases that are known ----------------------------------------------------------------------------------------


def test_the_identity_is_poisson_sampling() -> None:
    pair = SubsetMixture(noise_multiplier=0.9, matrix=diagonal([1.0] * 20), sampling_prob=0.1)
    assert_equal_bounds(pair, IndependentSteps(noise_multiplier=0.9, sampling_prob=0.1, steps=20))
    assert_equal_bounds(
        cyclic(diagonal([1.0] * 20), 3, 0.1, 0.9), IndependentSteps(noise_multiplier=0.9, sampling_prob=0.1, steps=7)
    )


@pytest.mark.parametrize(("bands", "groups", "steps"), [(3, 3, 24), (2, 5, 50), (4, 4, 4)])
def test_a_toeplitz_matrix_is_dp_sgd_with_fewer_steps_if_the_groups_divide_the_run(
    bands: int, groups: int, steps: int
) -> None:
    column = np.array([1.0, 0.7, 0.4, 0.3])[:bands]
    matrix = ToeplitzMatrix(column / np.sqrt(float(column @ column)), steps)
    expected = IndependentSteps(noise_multiplier=1.1, sampling_prob=0.2, steps=steps // groups)
    assert_equal_bounds(cyclic(matrix, groups, 0.2, 1.1), expected)


def test_a_last_opportunity_that_is_cut_is_cheaper_than_a_whole_one() -> None:
    matrix = ToeplitzMatrix(np.full(3, 1.0 / np.sqrt(3.0)), 13)  # columns 0, 3, ..., 12 of which the last has one row
    cut = cyclic(matrix, 3, 0.2, 1.1)
    four, five = (IndependentSteps(noise_multiplier=1.1, sampling_prob=0.2, steps=count) for count in (4, 5))
    assert bound(four, Side.UPPER).delta(0.5) < bound(cut, Side.LOWER).delta(0.5)
    assert bound(cut, Side.UPPER).delta(0.5) < bound(five, Side.LOWER).delta(0.5)
    assert worst_groups(norms_by_group(matrix, 3), Side.UPPER).shape == (1, 5)


@pytest.mark.parametrize("groups", [4, 7])
def test_without_subsampling_it_is_the_gaussian(groups: int) -> None:
    pair = cyclic(TreeMatrix(4, 22), groups, 1.0, 3.0)
    above, below = bound(pair, Side.UPPER), bound(pair, Side.LOWER)
    for epsilon in EPSILONS:
        truth_above = gaussian.ACCOUNTANT.bound(pair, Side.UPPER).delta(epsilon)
        truth_below = gaussian.ACCOUNTANT.bound(pair, Side.LOWER).delta(epsilon)
        assert below.delta(epsilon) <= truth_above
        assert above.delta(epsilon) >= truth_below
        assert above.delta(epsilon) <= 1.005 * below.delta(epsilon) + 1e-12


# Different norms, against an integral ---------------------------------------------------------------------------------


def thinned(norm: float, q: float, threshold: np.ndarray, direction: Direction) -> np.ndarray:
    """``E (1 - q + q X - k)_+`` (remove) or ``E (k - 1 + q - q X)_+`` (add) for one Gaussian; closed form."""
    at = np.maximum((threshold - 1.0 + q) / q, 1e-300)
    place = np.log(at) / norm + 0.5 * norm
    if direction is Direction.REMOVE:
        inside = q * (ndtr(norm - place) - at * ndtr(-place))
        return np.where(threshold > 1.0 - q, inside, 1.0 - threshold)
    inside = q * (at * ndtr(place) - ndtr(place - norm))
    return np.where(threshold > 1.0 - q, inside, 0.0)


def composed(norms: Sequence[float], q: float, epsilon: float, direction: Direction) -> float:
    """The profile of one or two independent thinned Gaussians, norms in units of the noise: an integral over the first.

    With ``c = e^eps`` remove is ``E A h(c/A)``, and add is ``c E A h(1/(c A))`` with the other h.
    """
    c = exp(epsilon)
    if len(norms) == 1:
        threshold = np.array([c if direction is Direction.REMOVE else 1.0 / c])
        return float(thinned(norms[0], q, threshold, direction)[0]) * (1.0 if direction is Direction.REMOVE else c)
    y = np.linspace(-12.0, 12.0 + norms[0], 6001)
    mass = np.exp(-0.5 * y * y) / np.sqrt(2.0 * np.pi) * (y[1] - y[0])
    first = 1.0 - q + q * np.exp(norms[0] * (y - 0.5 * norms[0]))
    if direction is Direction.REMOVE:
        return float(mass @ (first * thinned(norms[1], q, c / first, direction)))
    return c * float(mass @ (first * thinned(norms[1], q, 1.0 / (c * first), direction)))


def test_the_worst_of_two_groups_that_neither_dominates() -> None:
    """Columns 0 and 2 have norms 1.2 and 1.1, column 1 has 1.5: one chance counts more at large epsilon."""
    sigma, q = 1.3, 0.3
    pair = cyclic(diagonal([1.2, 1.5, 1.1]), 2, q, sigma)
    above, below = bound(pair, Side.UPPER), bound(pair, Side.LOWER)
    winners = set()
    for direction in Direction:
        for epsilon in (0.05, 0.2, 0.5, 1.0, 2.0, 3.0):
            groups = ([1.2 / sigma, 1.1 / sigma], [1.5 / sigma])
            exact = [composed(norms, q, epsilon, direction) for norms in groups]
            winners.add(int(np.argmax(exact)))
            truth = max(exact)
            low, high = below.profiles[direction](epsilon), above.profiles[direction](epsilon)
            assert low <= truth * (1.0 + 1e-11) + 1e-14
            assert high >= truth * (1.0 - 1e-11)
            assert high - low <= 3e-3 * truth + 1e-12
    assert winners == {0, 1}


def test_a_banded_matrix_with_columns_of_its_own_against_the_integral() -> None:
    band = np.array([[1.0, 0.5], [0.8, 0.9], [0.7, 0.3], [1.4, 0.0]])
    pair = cyclic(BandedMatrix(band), 2, 0.2, 1.5)
    norms = np.sqrt((band**2).sum(axis=1)) / 1.5
    for epsilon in (0.1, 0.7, 1.5):
        for direction in Direction:
            truth = max(composed(norms[group::2].tolist(), 0.2, epsilon, direction) for group in range(2))
            low, high = (bound(pair, side).profiles[direction](epsilon) for side in (Side.LOWER, Side.UPPER))
            assert low <= truth * (1.0 + 1e-11) + 1e-14
            assert high >= truth * (1.0 - 1e-11)
            assert high - low <= 3e-3 * truth + 1e-12


@pytest.mark.parametrize("side", Side)
def test_norms_are_rounded_to_their_side_from_exact_squares(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """The squared norms of columns of doubles are rational: no rounding may end on the wrong side of them."""
    given: list[np.ndarray] = []
    real = orthogonal_columns.group_laws

    def seen(norms: np.ndarray, *rest: Any) -> list[Law]:
        given.append(norms)
        return real(norms, *rest)

    monkeypatch.setattr(orthogonal_columns, "group_laws", seen)
    rng = np.random.default_rng(41)
    for _ in range(10):
        band = rng.random((6, 3)) + 0.1
        band[5, 1:] = band[4, 2] = 0.0
        bound(cyclic(BandedMatrix(band), 3, 0.3, 2.0), side, Settings(resolution=Resolution(8, 1e-3)))
        squares = [sum(Fraction(entry) ** 2 for entry in column) for column in band.tolist()]
        for group, norms in enumerate(given.pop().tolist()):
            for norm, square in zip(norms, sorted(squares[group::3], reverse=True), strict=True):
                low, high = (square, Fraction(norm) ** 2) if side is Side.UPPER else (Fraction(norm) ** 2, square)
                assert low <= high <= low * (1 + Fraction(1, 10**12))


# Levels and groups ----------------------------------------------------------------------------------------------------

NORMS = st.lists(st.lists(st.floats(0.01, 3.0), min_size=1, max_size=6), min_size=1, max_size=5)


@settings(max_examples=60)
@given(NORMS, st.sampled_from(list(Side)), st.sampled_from([1, 3, 200]))
def test_rows_stand_for_all_groups_on_their_side(rows: list[list[float]], side: Side, budget: int) -> None:
    width = max(map(len, rows))
    norms = np.array([sorted(row, reverse=True) + [0.0] * (width - len(row)) for row in rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orthogonal_columns, "MOST_COMPOSITIONS", max(budget, width.bit_length() * 2))
        worst = worst_groups(norms, side)
    worst = np.hstack([worst, np.zeros((worst.shape[0], width - worst.shape[1]))])
    small, large = (norms, worst) if side is Side.UPPER else (worst, norms)
    for row in small:
        assert any(bool(np.all(row <= other)) for other in large)
    if budget == 200:  # nothing is lost: the largest sum is still there
        assert float(worst.sum(axis=1).max()) == pytest.approx(float(norms.sum(axis=1).max()), rel=1e-9)


def test_norms_are_those_of_the_columns_of_each_group() -> None:
    matrix = TreeMatrix(4, 11)
    dense = matrix.materialize()
    expected = np.zeros((5, 3))
    for group in range(5):
        norms = sorted((float(np.linalg.norm(dense[:, t])) for t in range(group, 11, 5)), reverse=True)
        expected[group, : len(norms)] = norms
    np.testing.assert_allclose(norms_by_group(matrix, 5), expected, rtol=1e-12)
    assert norms_by_group(matrix, 20).shape == (11, 1)


def test_the_first_group_is_the_worst_of_a_toeplitz_matrix() -> None:
    matrix = ToeplitzMatrix(np.linspace(1.0, 0.1, 100), 1037)
    norms = norms_by_group(matrix, 100)
    worst = worst_groups(norms, Side.UPPER)
    np.testing.assert_allclose(worst, norms[:1], rtol=1e-10)
    assert np.unique(worst).size == 2


def test_one_row_stands_for_groups_that_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    norms = np.array([[2.0, 2.0, 2.0], [3.0, 1.0, 1.0]])
    assert {tuple(row) for row in worst_groups(norms, Side.UPPER).tolist()} == {(2.0, 2.0, 2.0), (3.0, 1.0, 1.0)}
    monkeypatch.setattr(orthogonal_columns, "MOST_COMPOSITIONS", 3)
    assert worst_groups(norms, Side.UPPER).tolist() == [[3.0, 2.0, 2.0]]
    assert worst_groups(norms, Side.LOWER).tolist() == [[2.0, 2.0, 2.0]]


def test_blocks_of_neighbours() -> None:
    row = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    assert in_blocks(row, 2, Side.UPPER).tolist() == [5.0, 5.0, 3.0, 3.0, 1.0]
    assert in_blocks(row, 2, Side.LOWER).tolist() == [4.0, 4.0, 2.0, 2.0, 1.0]
    assert in_blocks(row, 1, Side.LOWER).tolist() == row.tolist()


def test_too_many_norms_to_compose_still_bracket(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    pair = cyclic(diagonal(rng.uniform(0.9, 1.1, 24).tolist()), 2, 0.2, 1.5)
    exact = {side: bound(pair, side).delta(0.5) for side in Side}
    monkeypatch.setattr(orthogonal_columns, "MOST_COMPOSITIONS", 10)
    assert exact[Side.UPPER] < bound(pair, Side.UPPER).delta(0.5) < 1.2 * exact[Side.UPPER]
    assert exact[Side.LOWER] > bound(pair, Side.LOWER).delta(0.5) > 0.8 * exact[Side.LOWER]


# What is refused ------------------------------------------------------------------------------------------------------


def test_columns_that_overlap_are_refused() -> None:
    matrix = ToeplitzMatrix(np.array([1.0, 0.5, 0.2]), 9)
    poisson = SubsetMixture(noise_multiplier=1.0, matrix=matrix, sampling_prob=0.1)
    for pair, groups in ((poisson, 1), (cyclic(matrix, 2, 0.1, 1.0), 2)):
        for side in Side:
            with pytest.raises(UnsupportedError, match=rf"overlap, as C has 3 bands for {groups} group"):
                bound(pair, side)
    assert direct.ACCOUNTANT.why_not(cyclic(matrix, 3, 0.1, 1.0), Side.UPPER) is None
