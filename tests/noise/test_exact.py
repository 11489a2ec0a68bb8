"""Exact noise: the very integers that its theorem is about, where it can be continued, and what it refuses."""

from fractions import Fraction

import numpy as np
import pytest

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.mechanism import Mechanism
from hockeystick.noise import MappedFile, NoiseStream, Replay, stream
from hockeystick.noise.draws import Draws
from hockeystick.noise.exact import solvers
from hockeystick.noise.exact.grid import LARGEST_KEPT, Grid, grid_of
from hockeystick.noise.exact.lazily import LazyNormal, rounded
from hockeystick.noise.normals import MASK, NormalSource, SeededSource
from hockeystick.noise.registry import EXACT, SOLVERS, exact_solver
from hockeystick.samplers import BallsInBins
from hockeystick.strategies import (
    BandedInverse,
    BandedInverseSquareRoot,
    BandedSquareRoot,
    BandedToeplitz,
    BinaryTree,
    BufferedToeplitz,
    ColumnNormalizedBanded,
    Identity,
    SquareRoot,
    TreeRestart,
)
from hockeystick.strategies.matrix.buffered import BufferedToeplitzMatrix
from hockeystick.strategies.matrix.dyadic import dyadic, growth_of
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix

STEPS = 24
SIGMA = 1.7
STRATEGIES = {
    "identity": Identity(),
    "bands": BandedSquareRoot(bands=5),
    "optimised": BandedToeplitz(bands=4),
    "every column its own": ColumnNormalizedBanded(bands=4),
    "all rows": SquareRoot(),
    "bands of the inverse": BandedInverseSquareRoot(bands=4),
    "optimised inverse": BandedInverse(bands=3),
    "tree": BinaryTree(),
    "trees": TreeRestart(height=3),
}
every_strategy = pytest.mark.parametrize("name", STRATEGIES)


def mechanism(strategy, *, steps=STEPS, sigma=SIGMA, exact=True) -> Mechanism:
    return Mechanism(strategy=strategy, sampler=BallsInBins(bins=steps), noise_multiplier=sigma, exact=exact)


def rng(seed=0):
    return np.random.default_rng(seed)


def rows(noise: NoiseStream):
    return np.array(list(noise))


class Planted(NormalSource):
    """A source with given words of level 0 at some positions, and of later levels."""

    kind = "planted"

    def __init__(self, words, later=()):
        self.inner = SeededSource(np.arange(4, dtype=np.uint64))
        self.planted, self.later = words, dict(later)

    def words(self, first, count, level=0):
        drawn = self.inner.words(first, count, level).copy()
        planted = self.planted if level == 0 else self.later.get(level, {})
        for position, word in planted.items():
            if first <= position < first + count:
                drawn[position - first] = word
        return drawn

    def state(self):
        raise NotImplementedError

    @classmethod
    def from_state(cls, state):
        raise NotImplementedError


def solved(source, matrix, grid, width, block=None):
    """All rows of a solver of these draws."""
    draws = Draws(source, grid.scale, width, [(0, width)])
    solver = exact_solver(matrix, grid=grid, size=width, block=block)
    rounded = []
    while solver.step < solver.steps:
        rounded += [row.copy() for row in solver.advance(draws)]
    return np.array(rounded)


def expected(source, matrix, grid, width, columns):
    """The same by Arb and fractions, for some columns, shape (steps, columns)."""
    from exact_tools import feedback, sums

    if type(matrix).__name__ in ("InverseToeplitzMatrix", "TreeMatrix"):
        weights = matrix.solve(np.eye(matrix.rows))
        by_column = [sums(source, weights, grid.scale, width, column) for column in columns]
    else:
        by_column = [feedback(source, matrix, grid.scale, width, matrix.steps, column) for column in columns]
    return np.array(by_column, dtype=float).T


@every_strategy
def test_the_integers_are_those_of_the_theorem(name):
    """Against Arb's enclosures of the same bits and fractions: no integer differs, and Arb leaves none open."""
    pytest.importorskip("flint")
    run, width = mechanism(STRATEGIES[name]), 12
    noise = rows(stream(run, width, rng=rng(7), exact=True))
    grid = grid_of(run.matrix, SIGMA, width)
    source = SeededSource.from_generator(rng(7))
    np.testing.assert_array_equal(noise, expected(source, run.matrix, grid, width, range(width)))
    assert noise.dtype == np.int32


@pytest.mark.parametrize("name", ["identity", "bands", "bands of the inverse", "tree"])
def test_numbers_in_the_tail_are_rounded_like_all_others(name):
    """Words below 2**41, of every size, and zero: their cells are wider than the error that the sums allow for."""
    pytest.importorskip("flint")
    run, width = mechanism(STRATEGIES[name], steps=8), 44
    tails = [0, 1, 2, *(1 << bits for bits in range(2, 42)), 2**41 - 1]
    draw = np.random.default_rng(5)
    for rounds in range(3):
        planted = {
            int(row) * width + column: tails[column] + (int(draw.integers(tails[column])) if column > 2 else 0)
            | (int(draw.integers(2)) << 63)
            for column, row in enumerate(draw.integers(run.matrix.rows, size=width))
        }
        source, grid = Planted(planted), grid_of(run.matrix, SIGMA, width)
        noise = solved(source, run.matrix, grid, width)
        np.testing.assert_array_equal(noise, expected(source, run.matrix, grid, width, range(width)), f"{rounds}")


def test_the_middle_of_a_wide_cell_would_be_another_integer(monkeypatch):
    """What the test above would see of a solver that takes numbers far in the tail as they come."""
    matrix, width = Identity().matrix(1), 40
    source = Planted({column: (1 << 21) + 977 * column for column in range(width)})
    grid = grid_of(matrix, SIGMA, width)
    right = solved(source, matrix, grid, width)
    monkeypatch.setattr(solvers, "sharpen", lambda *given: None)
    assert 0 < np.count_nonzero(solved(source, matrix, grid, width) != right) < width


@every_strategy
def test_what_is_in_doubt_is_decided_alike(name, monkeypatch):
    """With a thousand times the error allowed for, a tenth of all numbers is in doubt, and none changes."""
    run, width = mechanism(STRATEGIES[name]), 40
    sure = rows(stream(run, width, rng=rng(3)))
    asked = []

    def decide(terms, constant):
        asked.append(constant)
        return rounded(terms, constant)

    monkeypatch.setattr(solvers, "rounded", decide)
    monkeypatch.setattr(solvers, "ERROR", 3e-8)
    np.testing.assert_array_equal(rows(stream(run, width, rng=rng(3))), sure)
    assert len(asked) > 0.02 * sure.size


@every_strategy
def test_numbers_as_wrong_as_they_may_be_change_nothing(name, monkeypatch):
    """All moved by nine tenths of an error of .05 grid steps: first guesses are wrong, and what is given is not."""
    run, width = mechanism(STRATEGIES[name]), 40
    right = rows(stream(run, width, rng=rng(5)))
    scale = grid_of(run.matrix, SIGMA, width).scale
    monkeypatch.setattr(solvers, "ERROR", 0.05 / scale)
    sharpen = solvers.sharpen

    def moved(draws, z, first, start):
        sharpen(draws, z, first, start)
        z += 0.045 * (2.0 * ((np.arange(z.size).reshape(z.shape) + first) % 2) - 1.0)

    monkeypatch.setattr(solvers, "sharpen", moved)
    np.testing.assert_array_equal(rows(stream(run, width, rng=rng(5))), right)


def test_sums_in_whole_numbers_agree_with_those_in_float64(monkeypatch):
    """Where every sum of float64 is in doubt, all are made in whole numbers, and none is left open."""
    run, width = mechanism(SquareRoot()), 400
    right = rows(stream(run, width, rng=rng(6)))
    plain = solvers.Feedback.coefficients

    def doubtful(self, first, count):
        step = plain(self, first, count)
        return step._replace(rough=np.full_like(step.rough, 0.5))

    monkeypatch.setattr(solvers.Feedback, "coefficients", doubtful)
    monkeypatch.setattr(solvers, "rounded", lambda *given: pytest.fail("none is in doubt"))
    np.testing.assert_array_equal(rows(stream(run, width, rng=rng(6))), right)


def test_a_sum_of_large_numbers_is_in_doubt():
    """An inverse that grows makes sums of millions: float64 then errs by more than a number does, and allows for it.

    The numbers themselves are taken to be without error, so only what the sums allow for keeps them from being wrong.
    """
    matrix = ToeplitzMatrix(np.round(np.r_[1.0, np.full(60, 0.015)] * 2**24) / 2**24, 61)
    grid = Grid(20, 2.0**20, 2**30)
    solver = exact_solver(matrix, grid=grid, size=1)
    assert isinstance(solver, solvers.Feedback)
    step = solver.coefficients(40, 4)
    largest = 37.0 * grid.scale + 0.015 * 40 * grid.limit
    assert (step.rough >= 40 * 2.0**-53 * largest).all()
    assert (step.fine < step.rough / 20.0).all()
    assert (step.fine > solvers.ERROR * grid.scale).all()


def test_a_sum_is_decided_by_as_many_bits_as_it_takes():
    """A constant beside the whole number that the first 63 bits leave open, on either side of the number's own bits."""
    number = LazyNormal(SeededSource(np.arange(4, dtype=np.uint64)), 3)
    ends = number.enclosure(1)
    for other in (ends[0] - Fraction(1, 2**125), ends[1] + Fraction(1, 2**125)):
        assert rounded([(Fraction(1), number)], -other) == (0 if other < ends[0] else -1)


@every_strategy
def test_rows_elsewhere_parts_and_blocks_have_the_same_integers(name, tmp_path):
    run, width = mechanism(STRATEGIES[name]), 9_000
    whole = rows(stream(run, width, rng=rng(1)))
    some = slice(8_000, 8_400)
    part = ((8_000, 8_100), (8_100, 8_400))
    for place in (None, Replay(), MappedFile(tmp_path)):
        noise = rows(stream(run, width, rng=rng(1), rows=place, part=part))
        np.testing.assert_array_equal(noise, whole[:, some], str(place))
    grid = grid_of(run.matrix, SIGMA, 50)
    source = SeededSource.from_generator(rng(2))
    np.testing.assert_array_equal(
        solved(source, run.matrix, grid, 50, block=1), solved(source, run.matrix, grid, 50, block=7)
    )


@every_strategy
def test_it_continues_from_a_state(name):
    run, width = mechanism(STRATEGIES[name]), 33
    whole = rows(stream(run, width, rng=rng(4)))
    for step in (0, 1, 7, STEPS):
        noise = stream(run, width, rng=rng(4))
        for _ in range(step):
            noise.next()
        again = NoiseStream.from_state(run, noise.state())
        assert (again.step, again.grid) == (step, noise.grid)
        np.testing.assert_array_equal(rows(again).reshape(-1, width), whole[step:])


def test_states_that_do_not_fit_are_refused():
    run = mechanism(STRATEGIES["bands"])
    noise = stream(run, 5, rng=rng())
    noise.next()
    state = noise.state()
    with pytest.raises(InvalidInputError, match="'grid' entry of a noise state must be 20"):
        NoiseStream.from_state(run, state | {"grid": 19})
    with pytest.raises(InvalidInputError, match="another mechanism"):
        NoiseStream.from_state(run.model_copy(update={"exact": False}), state)
    with pytest.raises(InvalidInputError, match=r"'ring' entry .* must have only numbers from"):
        NoiseStream.from_state(run, state | {"solver_ring": np.full_like(state["solver_ring"], -(2**31))})


@pytest.mark.parametrize("name", ["bands", "bands of the inverse", "tree"])
def test_the_matrix_makes_the_noise_white(name):
    """C times the integers is z within half a step of each; six standard deviations, as for floats: below 1e-7.

    A tree has more rows than steps, so its own inverse of z is compared.
    """
    run, width = mechanism(STRATEGIES[name], steps=40), 5_000
    noise = stream(run, width, rng=rng(1))
    grid, v = noise.grid, rows(noise).astype(float)
    plain = rows(stream(run.model_copy(update={"exact": False}), width, rng=rng(1), dtype=np.float64))
    assert np.abs(v.mean()) < 6.0 * np.sqrt((plain**2).mean() / plain.size) / grid
    if name == "tree":
        assert np.abs(v * grid - plain).max() <= grid * 0.5000001
        return
    white = run.matrix.dot(v) * grid / SIGMA
    assert abs(np.mean(white**2) - 1.0) < 6.0 * np.sqrt(2.0 / white.size)
    for lag in range(1, 9):
        products = white[lag:] * white[:-lag]
        assert abs(products.mean()) < 6.0 / np.sqrt(products.size)


def largest_step(v, z, matrix):
    """How far ``C v`` is from z, in grid steps over the diagonal: at most 1/2, and far more for a number off by one."""
    return float((np.abs(matrix.dot(v.astype(np.float64)) - z) / matrix.diagonal_entries[:, None]).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["identity", "optimised"])
def test_no_number_of_two_million_is_off_by_one(name):
    """Against SciPy's quantile of the words' 63 bits, in float64: wrong by 1e-8 grid steps, so 1e-6 is left for it.

    A planted step in one of a million numbers is seen: it stands out by half a step or more.
    """
    from scipy.special import ndtri

    steps, width = 10, 200_000
    run = mechanism(STRATEGIES[name], steps=steps)
    grid, source = grid_of(run.matrix, SIGMA, width), SeededSource.from_generator(rng(12))
    words = source.words(0, steps * width)
    bits = (words & np.uint64(MASK)).astype(np.float64) + 0.5
    z = ndtri(bits * 2.0**-64) * np.where(words >> np.uint64(63), 1.0, -1.0) * grid.scale
    v, z = rows(stream(run, width, rng=rng(12))), z.reshape(steps, width)
    assert largest_step(v, z, run.matrix) <= 0.5 + 1e-6
    v[[2, 7], [31, 199_991]] += 1
    assert largest_step(v, z, run.matrix) > 0.9


@every_strategy
def test_entries_are_multiples_of_two_to_the_minus_24(name):
    """Of C, or of its inverse; within half a unit of those of the strategy, and nothing else about it changes."""
    run = mechanism(STRATEGIES[name])
    plain = run.model_copy(update={"exact": False}).matrix
    for attribute in run.matrix.defined_by:
        exact = np.asarray(getattr(run.matrix, attribute), dtype=float)
        assert np.array_equal(np.round(exact * 2.0**24), exact * 2.0**24)
        assert np.abs(exact - np.resize(getattr(plain, attribute), exact.shape)).max() <= 2.0**-25
    assert type(run.matrix) is type(plain)
    assert run.matrix.bands == plain.bands
    assert run.matrix.max_column_norm == pytest.approx(plain.max_column_norm, rel=1e-6)
    assert SOLVERS.keys() - EXACT.keys() == {BufferedToeplitzMatrix}


def test_no_number_is_larger_than_the_grid_says():
    """The limit holds for z at its largest, with the signs that add up: 37 standard deviations."""
    for strategy in (BandedSquareRoot(bands=5), SquareRoot(), BandedInverseSquareRoot(bands=4)):
        matrix = mechanism(strategy).matrix
        grid = grid_of(matrix, SIGMA, 1000)
        inverse = matrix.solve(np.eye(STEPS))
        worst = 37.0 * grid.scale * np.abs(inverse).sum(axis=1).max()
        assert worst <= grid.limit <= LARGEST_KEPT
        assert growth_of(matrix) == pytest.approx(np.abs(inverse).sum(axis=1).max())


@pytest.mark.parametrize(
    ("sigma", "width", "exponent"), [(1.0, 10, 20), (0.5, 10, 21), (1.0, 10**9, 22), (100.0, 4, 14)]
)
def test_the_grid_suits_noise_and_size(sigma, width, exponent):
    """A power of two, at most 2^-20 noise multipliers and .01 over the square root of the size."""
    grid = grid_of(Identity().matrix(5), sigma, width)
    assert (grid.exponent, grid.scale) == (exponent, sigma * 2.0**exponent)
    assert grid.step <= max(sigma * 2.0**-20, 0.01 / np.sqrt(width))


def test_the_scale_of_a_matrix_changes_nothing():
    """A fiftieth of C with a fiftieth of the noise is the same mechanism, and has the same numbers."""
    plain = ToeplitzMatrix(np.array([1.0, 0.5, 0.25]), 9)
    small = ToeplitzMatrix(plain.coefficients / 32.0, 9)
    source = SeededSource.from_generator(rng(9))
    rounded = [
        solved(source, matrix, grid_of(matrix, sigma, 8), 8) for matrix, sigma in ((plain, 2.0), (small, 2.0 / 32.0))
    ]
    np.testing.assert_array_equal(*rounded)


@pytest.mark.parametrize("strategy", [BinaryTree(), TreeRestart(height=12)])
def test_tall_trees_have_exact_noise(strategy):
    run = mechanism(strategy, steps=4096)
    noise = stream(run, 2, rng=rng(1))
    plain = stream(run.model_copy(update={"exact": False}), 2, rng=rng(1), dtype=np.float64)
    assert max(np.abs(a * noise.grid - b).max() for a, b in zip(noise, plain, strict=True)) < 0.5001 * noise.grid


def test_large_noise_has_a_coarser_grid():
    grid = grid_of(Identity().matrix(5), 1e5, 10**8)
    assert grid.scale * 37.0 < 2**31
    assert grid.scale > 2**24


def test_what_cannot_be_exact_is_refused():
    with pytest.raises(InvalidInputError, match="True only for a mechanism with exact=True"):
        stream(mechanism(Identity(), exact=False), 3, rng=rng(), exact=True)
    with pytest.raises(InvalidInputError, match="must be True, or left out"):
        stream(mechanism(Identity()), 3, rng=rng(), exact=False)
    with pytest.raises(InvalidInputError, match=r"'dtype' parameter must be int32, or left out.*float64"):
        stream(mechanism(Identity()), 3, rng=rng(), dtype=np.float64)
    with pytest.raises(UnsupportedError, match="sum of decaying powers"):
        _ = mechanism(BufferedToeplitz(buffers=2)).matrix
    with pytest.raises(InvalidInputError, match=r"rows .* must sum to at most 3.*64 bits"):
        dyadic(ToeplitzMatrix(np.full(8000, 1.0), 8000))
    for entry, steps in ((1.5, 40), (1.0625, 25)):  # sums of 2e7 and of 57
        with pytest.raises(InvalidInputError, match=r"inverse whose rows sum to at most 54\.8"):
            dyadic(ToeplitzMatrix(np.array([1.0, entry]), steps))


def test_a_matrix_that_is_not_the_accounted_one_is_refused():
    """Entries that are no multiples of 2^-24: of a C that differs from an exact mechanism's by 1e-9."""
    matrix = mechanism(BandedSquareRoot(bands=5)).matrix
    assert isinstance(matrix, ToeplitzMatrix)
    other = ToeplitzMatrix(matrix.coefficients + np.array([0.0, 1e-9, 0.0, 0.0, 0.0]), STEPS)
    with pytest.raises(InvalidInputError, match=r"multiples of 2\^-24; those of this ToeplitzMatrix are not"):
        exact_solver(other, grid=grid_of(matrix, SIGMA, 4), size=4)


def test_a_lazy_number_is_enclosed_ever_closer():
    for position in range(50):
        number = LazyNormal(SeededSource(np.arange(4, dtype=np.uint64)), position)
        ends = [number.enclosure(level) for level in range(4)]
        for (low, high), (lower, higher) in zip(ends[1:], ends, strict=False):
            assert low <= high
            assert (high - low) * 2**60 < higher - lower
            assert low <= higher
            assert lower <= high
        assert float(ends[0][0]) <= number.nearly() <= float(ends[0][1]) or number.nearly() == float(ends[0][0])
    assert LazyNormal(Planted({0: 0}), 0).enclosure(0) is None
    far = LazyNormal(Planted({0: 1 << 63}, later={1: {0: 5}}), 0)
    assert -13.1 < far.nearly() < -12.5
    assert MASK == 2**63 - 1
    assert Grid(20, 1.0, 1).step == 2.0**-20
