"""Every structure of strategy matrix has a streaming solver, and it agrees with the matrix."""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest
from solver_tools import left_inverse

import hockeystick.strategies.matrix as structures
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.noise import SOLVERS, streaming_solver
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.strategies.matrix.base import StrategyMatrix
from hockeystick.strategies.matrix.buffered import BufferedToeplitzMatrix
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.inverse_toeplitz import InverseToeplitzMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix

STEPS = 24


def decreasing(count):
    return 1.3 / np.arange(1.0, count + 1.0)


def triangular(bands):
    """Different entries everywhere in the bands."""
    entries = np.random.default_rng(1).random((STEPS, STEPS)) / (2.0 * bands) + np.eye(STEPS)
    return np.tril(entries) - np.tril(entries, -bands)


def band_of(entries, bands):
    """Entry [i, d] is entries[i + d, i], or zero below the matrix."""
    return np.array([[entries[i + d, i] if i + d < STEPS else 0.0 for d in range(bands)] for i in range(STEPS)])


EXAMPLES: dict[str, StrategyMatrix] = {
    "identity": ToeplitzMatrix(np.ones(1), STEPS),
    "toeplitz": ToeplitzMatrix(decreasing(6), STEPS),
    "full toeplitz": ToeplitzMatrix(decreasing(STEPS), STEPS),
    "inverse toeplitz": InverseToeplitzMatrix(np.array([0.8, -0.3, -0.2, -0.1, -0.05]), STEPS),
    "inverse toeplitz of one band": InverseToeplitzMatrix(np.array([0.5]), STEPS),
    "banded": BandedMatrix(band_of(triangular(6), 6)),
    "banded with one band": BandedMatrix(band_of(triangular(1), 1)),
    "banded with all bands": BandedMatrix(band_of(triangular(STEPS), STEPS)),
    "buffered": BufferedToeplitzMatrix(np.array([0.2, 0.1, 0.05]), np.array([0.5, 0.9, 1.0]), STEPS, diagonal=0.7),
    "dense": DenseMatrix(triangular(STEPS)),
    "dense with few bands": DenseMatrix(triangular(6)),
    "tree": TreeMatrix(32, STEPS),
    "trees": TreeMatrix(4, STEPS - 1),
    "trees of one leaf": TreeMatrix(1, STEPS),
}


def test_every_structure_has_a_solver_and_an_example():
    for module in pkgutil.iter_modules(structures.__path__):
        structure = importlib.import_module(f"{structures.__name__}.{module.name}")
        for _, member in inspect.getmembers(structure, inspect.isclass):
            if issubclass(member, StrategyMatrix) and not inspect.isabstract(member):
                assert member in SOLVERS, f"noise/registry.py has no line for {member.__name__}"
                assert member in {type(example) for example in EXAMPLES.values()}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize(("dtype", "block"), [(np.float32, None), (np.float64, None), (np.float64, 1), (np.float64, 5)])
def test_the_solver_is_the_left_inverse_of_the_matrix(name, dtype, block):
    """All entries, against the matrix's own solve, against C itself, and the size of the state."""
    matrix = EXAMPLES[name]
    solver = streaming_solver(matrix, size=matrix.rows, dtype=dtype, block=block)
    inverse = left_inverse(solver, matrix.rows)
    tolerance = 100.0 * np.finfo(dtype).eps
    np.testing.assert_allclose(inverse, matrix.solve(np.eye(matrix.rows)), rtol=0.0, atol=tolerance)
    np.testing.assert_allclose(inverse @ matrix.materialize(), np.eye(matrix.steps), rtol=0.0, atol=10.0 * tolerance)
    assert solver.nbytes == sum(array.nbytes for array in solver.arrays.values())


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_solver_continues_from_its_state(name):
    matrix = EXAMPLES[name]
    z = np.random.default_rng(0).standard_normal((matrix.rows, 9)).astype(np.float32)

    def rows_of_z(out, row, column):
        out[...] = z[row : row + len(out), column : column + out.shape[1]]

    solver = streaming_solver(matrix, size=9, dtype=np.float32)
    while solver.step < matrix.steps // 2:
        solver.advance(rows_of_z)
    again = streaming_solver(matrix, size=9, dtype=np.float32)
    again.restore(solver.state())
    np.testing.assert_array_equal(again.solved(), solver.solved())
    while solver.step < matrix.steps:
        np.testing.assert_array_equal(again.advance(rows_of_z), solver.advance(rows_of_z))
    assert again.step == matrix.steps


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("block", [None, 1, 5])
def test_a_row_by_itself_has_the_bits_of_the_row_in_order(name, block):
    """From zeros, by no more steps than it depends on, which every row is asked for in turn."""
    matrix = EXAMPLES[name]
    z = np.random.default_rng(0).standard_normal((matrix.rows, 9)).astype(np.float32)
    read: list[int] = []

    def rows_of_z(out, row, column):
        read.extend(range(row, row + len(out)))
        out[...] = z[row : row + len(out), column : column + out.shape[1]]

    solver = streaming_solver(matrix, size=9, dtype=np.float32)
    alone = streaming_solver(matrix, size=9, dtype=np.float32, block=block)
    needed = matrix.solve(np.eye(matrix.rows)) != 0.0
    for step in range(matrix.steps):
        if solver.step == step:
            row = iter(solver.advance(rows_of_z).copy())
        read.clear()
        np.testing.assert_array_equal(alone.only(step, rows_of_z), next(row))
        assert set(np.flatnonzero(needed[step])) <= set(read)
        assert alone.reach(step) <= step


@pytest.mark.parametrize("name", EXAMPLES)
def test_columns_by_themselves_have_the_same_bits(name):
    matrix = EXAMPLES[name]
    z = np.random.default_rng(0).standard_normal((matrix.rows, 70)).astype(np.float32)

    def rows(first, last):
        solver = streaming_solver(matrix, size=last - first, dtype=np.float32)
        solved = []

        def rows_of_z(out, row, column):
            out[...] = z[row : row + len(out), first + column : first + column + out.shape[1]]

        while solver.step < matrix.steps:
            solved += [row.copy() for row in solver.advance(rows_of_z)]
        return np.array(solved)

    whole = rows(0, 70)
    for first, last in ((0, 1), (1, 6), (6, 69), (69, 70)):
        np.testing.assert_array_equal(rows(first, last), whole[:, first:last])


def test_an_interrupted_block_is_not_continued():
    """Buffers are brought up to date in place: to solve a block again, or its rest, would make other noise."""
    solver = streaming_solver(EXAMPLES["buffered"], size=3, dtype=np.float32)

    def interrupted(out, row, column):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solver.advance(interrupted)
    with pytest.raises(InvalidInputError, match="interrupted within a step"):
        solver.advance(lambda out, row, column: None)


def test_an_unknown_structure_is_named():
    class Mystery(ToeplitzMatrix):
        pass

    with pytest.raises(UnsupportedError, match="Mystery"):
        streaming_solver(Mystery(np.ones(2), 5), size=1, dtype=np.float64)


def test_digests_tell_all_matrices_apart():
    """Different structures, numbers of steps, and any bit of any number that defines them."""
    others = [
        ToeplitzMatrix(np.ones(1), STEPS + 1),
        ToeplitzMatrix(np.nextafter(decreasing(6), 2.0), STEPS),
        BufferedToeplitzMatrix(
            np.array([0.2, 0.1, 0.05]), np.array([0.5, 0.9, 1.0]), STEPS, diagonal=np.nextafter(0.7, 1)
        ),
        DenseMatrix(np.nextafter(triangular(6), 2.0) * (triangular(6) > 0)),
        TreeMatrix(8, STEPS),
    ]
    digests = [matrix.digest for matrix in [*EXAMPLES.values(), *others]]
    assert len(set(digests)) == len(digests)
    assert DenseMatrix(triangular(6).copy(order="F")).digest == EXAMPLES["dense with few bands"].digest
