"""Exact Gram matrices: sides and definiteness in rational arithmetic, common factors against 60 digits."""

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from unittest import mock

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.moments import exact_gram as module
from hockeystick.moments.exact import ExactGram
from hockeystick.moments.exact_gram import circulant, lifted, proved_gram, proved_semidefinite, residue_classes
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.strategies import BandedSquareRoot, BandedToeplitz, BinaryTree, BufferedToeplitz, Identity, SquareRoot
from hockeystick.types import Side

Array = np.ndarray
SIDES = [Side.UPPER, Side.LOWER]


@dataclass(frozen=True, eq=False)
class GivenGram:
    """As much of a strategy matrix as a pair's Gram matrix asks for."""

    gram: Array
    rounding: float = 1e-13 / 4
    steps: int = 1

    def bin_gram(self, bins: int) -> Array:
        assert bins == len(self.gram)
        return self.gram.copy()


def given_pair(gram: Array, sigma: float = 1.0, rounding: float = 1e-13) -> BinMixture:
    return BinMixture(noise_multiplier=sigma, matrix=GivenGram(gram, rounding / 4), bins=len(gram))  # type: ignore[arg-type]


@lru_cache(maxsize=64)
def strategy_pair(strategy: object, bins: int, epochs: int, sigma: float = 3.0) -> BinMixture:
    return BinMixture(noise_multiplier=sigma, matrix=strategy.matrix(bins * epochs), bins=bins)  # type: ignore[attr-defined]


def beside(pair: BinMixture, side: Side) -> ExactGram:
    return proved_gram(pair.gram, pair.rounding, pair.noise_multiplier, side)


def raised(pair: BinMixture) -> ExactGram:
    return beside(pair, Side.UPPER)


def lowered(pair: BinMixture) -> ExactGram:
    return beside(pair, Side.LOWER)


def exactly_semidefinite(matrix: list[list[Fraction]]) -> bool:
    """Symmetric elimination in rational numbers."""
    matrix = [row[:] for row in matrix]
    for i in range(len(matrix)):
        pivot = matrix[i][i]
        if pivot < 0 or (pivot == 0 and any(matrix[i][j] != 0 for j in range(i, len(matrix)))):
            return False
        for j in range(i + 1, len(matrix)):
            if pivot:
                factor = matrix[j][i] / pivot
                for k in range(i, len(matrix)):
                    matrix[j][k] -= factor * matrix[i][k]
    return True


def rational(matrix: Array, less: float = 0.0) -> list[list[Fraction]]:
    return [[Fraction(float(x)) - Fraction(less) for x in row] for row in matrix]


def require_sound(gram: ExactGram, exact: bool = True) -> None:
    """Everything that an ExactGram promises of itself."""
    assert np.isfinite(gram.entries).all()
    assert (gram.entries >= 0.0).all()
    assert (gram.entries == gram.entries.T).all()
    assert not gram.entries.flags.writeable
    assert gram.scale > 0.0
    assert gram.common >= 0.0
    if exact:
        assert exactly_semidefinite(rational(gram.entries))
        assert exactly_semidefinite(rational(gram.entries, gram.common))


def best_common(entries: Array) -> mp.mpf:
    """1 / (1^T H^-1 1) for these doubles."""
    with mp.workdps(60):
        bins = len(entries)
        return 1 / sum(mp.cholesky_solve(mp.matrix(entries.tolist()), mp.ones(bins, 1)))


def square_root_gram(bands: int, bins: int, epochs: int) -> list[list[Fraction]]:
    """The true Gram matrix of the banded square root, whose coefficients C(2j, j) / 4^j are rational."""
    taps = [Fraction(math.comb(2 * j, j), 4**j) for j in range(bands)]
    steps = bins * epochs
    means = [[Fraction(0)] * steps for _ in range(bins)]
    for step in range(steps):
        for j, tap in enumerate(taps[: steps - step]):
            means[step % bins][step + j] += tap
    return [[sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0)) for y in means] for x in means]


@pytest.mark.parametrize(("bands", "bins", "epochs"), [(4, 5, 1), (4, 9, 2), (3, 10, 1), (12, 6, 3)])
@pytest.mark.parametrize("sigma", [0.7, 3.0])
def test_both_sides_of_the_true_rational_matrix(bands: int, bins: int, epochs: int, sigma: float) -> None:
    pair = strategy_pair(BandedSquareRoot(bands=bands), bins, epochs, sigma)
    truth = square_root_gram(bands, bins, epochs)
    for side, sign in ((Side.UPPER, 1), (Side.LOWER, -1)):
        gram = beside(pair, side)
        require_sound(gram)
        for i in range(bins):
            for j in range(bins):
                value, true = Fraction(gram.scale) * Fraction(gram.entries[i, j]), truth[i][j] / Fraction(sigma) ** 2
                assert sign * (value - true) >= 0
                assert abs(value - true) <= true * Fraction(1, 10**8)
    assert raised(pair).common > 0.0


@settings(max_examples=60)
@given(
    st.integers(1, 6).flatmap(
        lambda bins: st.lists(
            st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e3)), min_size=bins, max_size=bins),
            min_size=1,
            max_size=7,
        )
    ),
    st.floats(0.01, 100.0),
    st.sampled_from([1e-15, 1e-12, 1e-9]),
)
def test_sides_for_any_means(means: list[list[float]], sigma: float, rounding: float) -> None:
    """Few rows make singular matrices, zeros unused bins; the margins are exact rationals."""
    table = np.array(means)
    gram = table.T @ table
    gram = np.maximum(gram, gram.T)
    pair = given_pair(gram, sigma, rounding)
    margin, square = Fraction(rounding), Fraction(sigma) ** 2
    for side in SIDES:
        ring = beside(pair, side)
        require_sound(ring)
        for value, known in zip(ring.entries.ravel().tolist(), gram.ravel().tolist(), strict=True):
            scaled, exact = Fraction(ring.scale) * Fraction(value), Fraction(known) / square
            if side is Side.UPPER:
                assert scaled >= exact / (1 - margin)
            else:
                assert scaled <= exact / (1 + margin)
            assert (value == 0.0) == (known == 0.0)
            assert abs(scaled - exact) <= exact * (60 * margin + Fraction(1, 10**11))
        ratio = ring.scale * sigma * sigma
        assert abs(ratio - 1.0) < 1e-14


CASES = [
    (BandedSquareRoot(bands=4), 10, 10),
    (BandedSquareRoot(bands=4), 100, 1),
    (BandedSquareRoot(bands=64), 10, 10),
    (BandedSquareRoot(bands=64), 100, 1),
    (BandedSquareRoot(bands=64), 300, 10),
    (BandedToeplitz(bands=64), 100, 1),
    (BandedToeplitz(bands=64), 100, 3),
    (SquareRoot(), 10, 1),
    (SquareRoot(), 100, 10),
    (BufferedToeplitz(buffers=3), 10, 10),
    (BufferedToeplitz(buffers=3), 300, 1),
    (BinaryTree(), 10, 1),
    (BinaryTree(), 100, 10),
]


@pytest.mark.parametrize(("strategy", "bins", "epochs"), CASES)
def test_library_strategies_have_good_common_factors(strategy: object, bins: int, epochs: int) -> None:
    pair = strategy_pair(strategy, bins, epochs)
    best = 1.0 / np.linalg.solve(pair.gram, np.ones(bins)).sum()
    for side in SIDES:
        gram = beside(pair, side)
        require_sound(gram, exact=bins <= 10)
        assert gram.common == pytest.approx(best, rel=1e-7)
        assert ((gram.entries == 0.0) == (pair.gram == 0.0)).all()
        assert np.abs(gram.entries - pair.gram).max() <= 2e-8 * pair.gram.max()


@pytest.mark.parametrize("width", [5.0, 20.0, 200.0])
def test_nearly_singular_matrices_have_good_common_factors(width: float) -> None:
    """A smooth kernel of 50 bins has most eigenvalues below rounding."""
    place = np.arange(50.0)
    gram = np.exp(-((place[:, None] - place[None, :]) ** 2) / (2.0 * width**2))
    pair = given_pair(gram)
    for side in SIDES:
        ring = beside(pair, side)
        require_sound(ring, exact=False)
        best = best_common(ring.entries)
        assert ring.common <= best
        assert ring.common >= 0.99 * best


@pytest.mark.parametrize("bins", [1, 2, 7])
def test_equal_bins_are_all_common_factor(bins: int) -> None:
    gram = raised(given_pair(np.full((bins, bins), 3.0)))
    require_sound(gram)
    assert gram.common == pytest.approx(3.0, rel=1e-9)


def test_identity_and_caching_over_sigma() -> None:
    pair = strategy_pair(Identity(), 6, 2, 2.0)
    gram = raised(pair)
    assert gram.reach == 0
    assert gram.is_circulant
    assert gram.common == pytest.approx(2.0 / 6.0, rel=1e-9)
    other = raised(BinMixture(noise_multiplier=5.0, matrix=pair.matrix, bins=6))
    assert other.entries is gram.entries
    assert other.scale < gram.scale


@pytest.mark.parametrize("sigma", [1e-3, 0.1, 1.0 / 3.0, math.pi, 4.0, 1e5])
def test_scale_is_rounded_to_its_side(sigma: float) -> None:
    pair = strategy_pair(Identity(), 3, 1, sigma)
    high, low = raised(pair).scale, lowered(pair).scale
    assert Fraction(low) * Fraction(sigma) ** 2 <= 1 <= Fraction(high) * Fraction(sigma) ** 2
    assert high <= math.nextafter(low, math.inf)


def test_refusals() -> None:
    with pytest.raises(UnsupportedError, match="must be known to"):
        raised(given_pair(np.eye(3), rounding=1e-3))
    with pytest.raises(UnsupportedError, match="proved positive semidefinite"):
        raised(given_pair(np.array([[1.0, 1.5], [1.5, 1.0]])))
    for sigma in (1e-170, 1e200):
        with pytest.raises(UnsupportedError, match="out of the range"):
            lowered(given_pair(np.eye(2), sigma))
    gram = raised(given_pair(np.eye(3)))
    for m in (0, 4):
        with pytest.raises(InvalidInputError, match="'m' argument"):
            residue_classes(gram, m)


def planted(bins: int, smallest: float, seed: int) -> Array:
    """Random rotation of given eigenvalues, symmetric to the bit."""
    random = np.random.default_rng(seed)
    rotation = np.linalg.qr(random.standard_normal((bins, bins)))[0]
    values = np.concatenate([[smallest], random.uniform(0.5, 2.0, bins - 1)])
    matrix = (rotation * values) @ rotation.T
    result: Array = 0.5 * (matrix + matrix.T)
    return result


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bins", [2, 5, 20, 80])
def test_proof_of_definiteness(bins: int, seed: int) -> None:
    assert proved_semidefinite(planted(bins, 1e-9, seed))
    for smallest in (-1e-13, -1e-9, -1e-2):
        matrix = planted(bins, smallest, seed)
        assert not proved_semidefinite(matrix)
        # unevenly scaled, where an absolute margin would not do
        scales = np.ldexp(1.0, np.random.default_rng(seed).integers(-300, 40, bins))
        assert not proved_semidefinite(matrix * scales * scales[:, None])
    scales = np.ldexp(1.0, np.random.default_rng(seed).integers(-300, 40, bins))
    assert proved_semidefinite(planted(bins, 1e-9, seed) * scales * scales[:, None])


@settings(max_examples=400)
@given(st.integers(2, 4), st.data())
def test_never_accepts_an_indefinite_matrix(bins: int, data: st.DataObject) -> None:
    """Singular integer matrices with entries moved by some ulps, decided in rationals.

    The check of the residual must hold by itself, without the shift that usually makes the factorisation fail.
    """

    def table(most: int, rows: int) -> Array:
        row = st.lists(st.integers(-most, most), min_size=bins, max_size=bins)
        return np.array(data.draw(st.lists(row, min_size=rows, max_size=rows)), dtype=float)

    means, steps = table(3, data.draw(st.integers(1, 4))), table(60, bins)
    size = data.draw(st.sampled_from([0.0, 2.0**-52, 2.0**-48, 2.0**-44, 2.0**-40]))
    matrix = (means.T @ means) * (1.0 + size * (steps + steps.T))
    shift = data.draw(st.sampled_from([None, 0.0, 2.0**-52, 2.0**-50]))
    with nullcontext() if shift is None else mock.patch.object(module, "_shift", return_value=shift):
        accepted = proved_semidefinite(matrix)
    if accepted:
        assert exactly_semidefinite(rational(matrix))


def test_a_wrong_factor_proves_nothing() -> None:
    """Whatever the factorisation returns, the residual decides."""
    matrix = planted(6, -1e-6, 1)
    for factor in (np.eye(6), 0.0 * np.eye(6), np.linalg.cholesky(matrix + 2e-6 * np.eye(6))):
        with mock.patch.object(np.linalg, "cholesky", lambda _, factor=factor: factor):
            assert not proved_semidefinite(matrix)


def test_proof_for_all_matrices_near_one() -> None:
    matrix = planted(20, 1e-8, 3)
    assert module.proved_semidefinite(matrix, 2.0**-53)
    assert not module.proved_semidefinite(matrix, 1e-8)


def test_a_wrong_common_factor_is_not_taken() -> None:
    """Whatever the solver returns, v_0 is proved."""
    matrix = planted(6, 0.5, 2)
    assert module._common(matrix) > 0.0
    for factor in (0.99, 0.5):
        wrong = mock.patch.object(module, "solve_triangular", lambda a, b, lower, f=factor: f * np.linalg.solve(a, b))
        with wrong:
            assert module._common(matrix) == 0.0


def test_definiteness_of_odd_matrices() -> None:
    above = 1.0 + 2.0**-52
    assert not proved_semidefinite(np.array([[1.0, above], [above, 1.0]]))
    assert not proved_semidefinite(np.array([[1.0, 0.5], [0.25, 1.0]]))
    assert not proved_semidefinite(np.array([[1.0, math.nan], [math.nan, 1.0]]))
    assert not proved_semidefinite(np.array([[0.0, 1e-300], [1e-300, 1.0]]))
    assert not proved_semidefinite(np.array([[1e-300, 1.0], [1.0, 1e-300]]))
    assert not proved_semidefinite(np.array([[-1.0]]))
    assert proved_semidefinite(np.zeros((2, 2)))
    assert proved_semidefinite(np.diag([1.0, 0.0, 1e-200]))


def require_envelope(gram: ExactGram, envelope: ExactGram, side: Side) -> None:
    require_sound(envelope, exact=gram.bins <= 12)
    assert envelope.is_circulant
    assert envelope.scale == gram.scale
    difference = envelope.entries - gram.entries
    assert ((difference if side is Side.UPPER else -difference) >= 0.0).all()
    assert envelope.reach <= gram.reach


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("bands", "bins", "epochs"), [(4, 10, 10), (4, 9, 1), (12, 12, 5), (64, 100, 10)])
def test_circulant_envelope(bands: int, bins: int, epochs: int, side: Side) -> None:
    gram = beside(strategy_pair(BandedSquareRoot(bands=min(bands, bins * epochs)), bins, epochs), side)
    envelope = circulant(gram, side)
    assert envelope is not None
    assert not gram.is_circulant
    require_envelope(gram, envelope, side)
    assert envelope.common > 0.0
    assert circulant(envelope, side) is envelope
    rescaled = circulant(replace(gram, scale=0.5), side)
    assert rescaled is not None
    assert rescaled.entries is envelope.entries
    assert rescaled.scale == 0.5


@pytest.mark.parametrize(("link", "possible"), [(0.55, True), (0.95, False)])
def test_upper_envelope_is_repaired_or_refused(link: float, possible: bool) -> None:
    """Pairs of bins that share much: on the ring every bin gets two such neighbours, which 1 on the diagonal cannot."""
    entries = np.kron(np.eye(4), np.array([[1.0, link], [link, 1.0]]))
    gram = ExactGram(entries=entries, scale=1.0, common=0.0)
    envelope = circulant(gram, Side.UPPER)
    assert (envelope is not None) == possible
    if envelope is not None:
        require_envelope(gram, envelope, Side.UPPER)
        assert 1.0 < envelope.entries[0, 0] < 1.2
        assert envelope.entries[0, 1] == link


@pytest.mark.parametrize(("smallest", "possible"), [(0.9, True), (0.6, False)])
def test_lower_envelope_is_repaired_or_refused(smallest: float, possible: bool) -> None:
    """Neighbours share half of 1, which is all that a ring of equal bins can; one bin is smaller than the others."""
    entries = np.eye(8) + 0.5 * (np.roll(np.eye(8), 1, axis=0) + np.roll(np.eye(8), -1, axis=0))
    entries[0, 0] = smallest
    gram = ExactGram(entries=entries, scale=1.0, common=0.0)
    envelope = circulant(gram, Side.LOWER)
    assert (envelope is not None) == possible
    if envelope is not None:
        require_envelope(gram, envelope, Side.LOWER)
        assert envelope.entries[0, 0] == smallest
        assert 0.4 < envelope.entries[0, 1] < 0.5


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=2, max_size=8), st.sampled_from(SIDES))
def test_circulant_envelope_of_any_matrix(means: list[list[int]], side: Side) -> None:
    table = np.array(means, dtype=float)
    gram = beside(given_pair(table.T @ table), side)
    envelope = circulant(gram, side)
    if envelope is not None:
        require_envelope(gram, envelope, side)


@pytest.mark.parametrize(("bands", "bins", "epochs"), [(4, 40, 1), (4, 40, 3), (9, 100, 1), (2, 9, 1)])
def test_lifted_bins_are_above_their_own_and_not_above_the_largest(bands: int, bins: int, epochs: int) -> None:
    gram = raised(strategy_pair(BandedSquareRoot(bands=bands), bins, epochs))
    higher = lifted(gram)
    assert higher is not None
    require_sound(higher, exact=bins < 10)
    assert higher.scale == gram.scale
    assert (higher.entries >= gram.entries).all()
    place = np.arange(bins)
    for distance in range(bins // 2 + 1):
        largest = gram.entries[place, place - distance].max()
        assert (higher.entries[place, place - distance] <= largest * (1.0 + 1e-12)).all()
    assert higher.common > 1.001 * gram.common
    assert higher.reach == gram.reach
    assert epochs > 1 or higher.span == gram.span  # nothing new passes the seam


def test_bins_that_all_differ_are_not_lifted() -> None:
    place = np.arange(30)
    distance = np.abs(np.subtract.outer(place, place))
    entries = np.where(distance == 1, 0.3 + 0.002 * (place[:, None] + place), np.eye(30))
    assert lifted(ExactGram(entries=entries, scale=1.0, common=0.0)) is None


def test_lifting_that_makes_a_matrix_indefinite_is_refused() -> None:
    """Each second bin is linked to the next as closely as it can be; three in a row cannot."""
    entries = np.kron(np.eye(6), np.array([[1.0, 0.999], [0.999, 1.0]]))
    gram = ExactGram(entries=entries, scale=1.0, common=0.0)
    with mock.patch.object(module, "ALIKE", 1e9):
        assert lifted(gram) is None


@pytest.mark.parametrize(("bins", "m"), [(12, 2), (12, 5), (10, 10), (12, 1)])
def test_residue_classes(bins: int, m: int) -> None:
    gram = raised(strategy_pair(BandedSquareRoot(bands=4), bins, 3))
    classes = residue_classes(gram, m)
    assert math.fsum(weight for weight, _ in classes) == pytest.approx(1.0, abs=1e-15)
    wanted = [gram.entries[r::m, r::m] for r in range(m)]
    for weight, part in classes:
        require_sound(part)
        assert part.scale == gram.scale
        assert part.common >= gram.common
        matching = [x for x in wanted if x.shape == part.entries.shape and (x == part.entries).all()]
        assert weight == pytest.approx(len(matching) * part.bins / bins, rel=1e-15)


def test_equal_residue_classes_are_merged() -> None:
    envelope = circulant(raised(strategy_pair(BandedSquareRoot(bands=4), 12, 3)), Side.UPPER)
    assert envelope is not None
    ((weight, part),) = residue_classes(envelope, 3)
    assert weight == 1.0
    assert part.bins == 4
    assert part.is_circulant
