"""Streaming solvers beside dense linear algebra: every entry of the left inverse, in blocks of any length."""

import numpy as np
import pytest
from solver_tools import left_inverse, push

from hockeystick.errors import InvalidInputError
from hockeystick.noise.buffers import Buffers
from hockeystick.noise.recent_rows import MovingAverage, Substitution
from hockeystick.noise.solver import CHUNK, block_for, ring_rows
from hockeystick.noise.tree import TreeAggregation

DTYPES = [np.float32, np.float64]
BLOCKS = [None, 1, 3, 16]
STEPS = 23


def lower_triangular(steps, bands, seed=0):
    """A well-conditioned matrix with positive entries in its bands and a diagonal from 1 to 2."""
    rng = np.random.default_rng(seed)
    entries = np.tril(rng.random((steps, steps))) / (4.0 * bands)
    entries[np.subtract.outer(np.arange(steps), np.arange(steps)) >= bands] = 0.0
    return entries + np.diag(1.0 + rng.random(steps))


def coefficients_of(entries, bands):
    """Entry [b, j] of the result for (first, count) is entries[first + b, first + b - j], or zero."""

    def coefficients(first, count):
        banded = np.zeros((count, bands))
        for b in range(count):
            for j in range(min(bands, first + b + 1)):
                banded[b, j] = entries[first + b, first + b - j]
        return banded

    return coefficients


def toeplitz(column):
    steps = len(column)
    return np.array([[column[t - i] if t >= i else 0.0 for i in range(steps)] for t in range(steps)])


def tree_nodes(steps, leaves):
    """Rows of C for trees of so many leaves: each node sums its leaves, in the order in which nodes are completed."""
    rows = []
    for step in range(steps):
        start = step - step % leaves
        width = 1
        while (step + 1 - start) % width == 0 and width <= leaves:
            row = np.zeros(steps)
            row[step + 1 - width : step + 1] = 1.0
            rows.append(row)
            width *= 2
    return np.array(rows)


def prefix_by_decomposition(steps, leaves, nodes):
    """Which nodes a prefix is summed from: whole trees, then the largest node that fits, again and again."""
    place = {(int(row.argmax()), int(row.sum())): index for index, row in enumerate(nodes)}
    prefixes = np.zeros((steps, len(nodes)))
    for step in range(steps):
        start, end = 0, step + 1
        while start < end:
            room = min(end - start, leaves)
            width = 1 << (room.bit_length() - 1)
            prefixes[step, place[start, width]] = 1.0
            start += width
    return prefixes


def tolerance(dtype):
    """Forward error: some dozens of roundings, inverses with a condition of about 2."""
    return 60.0 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("bands", [1, 2, 4, 5, 6, 9, STEPS])
def test_substitution_inverts(bands, block, dtype):
    entries = lower_triangular(STEPS, bands)
    solver = Substitution(
        coefficients_of(entries, bands), steps=STEPS, bands=bands, size=STEPS, dtype=dtype, block=block
    )
    np.testing.assert_allclose(left_inverse(solver, STEPS), np.linalg.inv(entries), rtol=0.0, atol=tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("bands", [1, 2, 5, 8, STEPS])
def test_a_moving_average_multiplies(bands, block, dtype):
    entries = lower_triangular(STEPS, bands) * np.where(np.arange(STEPS) % 2, -1.0, 1.0)
    solver = MovingAverage(
        coefficients_of(entries, bands), steps=STEPS, bands=bands, size=STEPS, dtype=dtype, block=block
    )
    np.testing.assert_allclose(left_inverse(solver, STEPS), entries, rtol=0.0, atol=tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("buffers", [1, 2, 4])
def test_buffers_invert(buffers, block, dtype):
    diagonal, scales, decays = 1.25, np.linspace(0.1, 0.4, buffers) / buffers, np.linspace(0.3, 0.99, buffers)
    column = diagonal * np.array([1.0, *(float(scales @ decays ** (t - 1)) for t in range(1, STEPS))])
    solver = Buffers(scales=scales, decays=decays, diagonal=diagonal, steps=STEPS, size=STEPS, dtype=dtype, block=block)
    inverse = left_inverse(solver, STEPS)
    np.testing.assert_allclose(inverse, np.linalg.inv(toeplitz(column)), rtol=0.0, atol=tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("steps", "leaves"), [(1, 1), (5, 1), (8, 8), (13, 4), (16, 2), (11, 16), (23, 23), (9, 8)])
def test_trees_sum_the_nodes_of_a_prefix(steps, leaves, dtype):
    nodes = tree_nodes(steps, leaves)
    solver = TreeAggregation(leaves=leaves, steps=steps, size=len(nodes), dtype=dtype)
    inverse = left_inverse(solver, len(nodes))
    prefixes = prefix_by_decomposition(steps, leaves, nodes)
    np.testing.assert_array_equal(np.cumsum(inverse, axis=0), prefixes)
    np.testing.assert_array_equal(inverse @ nodes, np.eye(steps))
    assert len(solver.arrays["nodes"]) <= np.log2(steps) + 1.0


def many(kind, size, dtype, block):
    """A solver of each kind over several chunks of coordinates and an odd rest."""
    bands = 7
    coefficients = coefficients_of(lower_triangular(STEPS, bands), bands)
    options = {"steps": STEPS, "size": size, "dtype": dtype, "block": block}
    if kind == "substitution":
        return Substitution(coefficients, bands=bands, **options)
    if kind == "average":
        return MovingAverage(coefficients, bands=bands, **options)
    return Buffers(scales=np.array([0.3, 0.2]), decays=np.array([0.5, 0.9]), diagonal=1.5, **options)


@pytest.mark.parametrize("kind", ["substitution", "average", "buffers"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_and_chunks_change_no_bit(kind, dtype):
    size = 2 * CHUNK + 13
    z = np.random.default_rng(3).standard_normal((STEPS, size)).astype(dtype)

    def run(block, columns):
        solver = many(kind, columns.stop - columns.start, dtype, block)

        def rows_of_z(out, row, column):
            out[...] = z[row : row + len(out), columns][:, column : column + out.shape[1]]

        rows = []
        while solver.step < STEPS:
            rows += [row.copy() for row in solver.advance(rows_of_z)]
        return np.array(rows)

    whole = run(None, slice(0, size))
    for block in (1, 5, 16):
        np.testing.assert_array_equal(run(block, slice(0, size)), whole)
    inner = slice(CHUNK - 5, CHUNK + 30)
    np.testing.assert_array_equal(run(None, inner), whole[:, inner])


@pytest.mark.parametrize("kind", ["substitution", "average", "buffers"])
def test_a_block_of_one_is_one_step(kind):
    z = np.random.default_rng(4).standard_normal((STEPS, 5))
    pushed = many(kind, 5, np.float64, 1)
    inverse = left_inverse(many(kind, STEPS, np.float64, None), STEPS)
    solved = np.array([push(pushed, row, step) for step, row in enumerate(z)])
    np.testing.assert_allclose(solved, inverse @ z, rtol=0.0, atol=1e-13)
    with pytest.raises(InvalidInputError, match="All 23 planned steps"):
        push(pushed, z[0], STEPS)


def test_a_tree_asks_for_nodes_that_a_step_completes():
    nodes = tree_nodes(6, 4)
    z = np.random.default_rng(5).standard_normal((len(nodes), 3))
    solver = TreeAggregation(leaves=4, steps=6, size=3, dtype=np.float64)
    inverse = left_inverse(TreeAggregation(leaves=4, steps=6, size=len(nodes), dtype=np.float64), len(nodes))
    ends = [*(solver.row(step) for step in range(1, 6)), len(nodes)]
    solved = [push(solver, z[solver.row(step) : end], solver.row(step)) for step, end in enumerate(ends)]
    np.testing.assert_allclose(solved, inverse @ z, rtol=0.0, atol=1e-13)


def test_the_rounding_of_substitution_is_small_backwards():
    """(C + E) x = z with |E| <= (p + 2) u C: the residual of each step against what the bound allows, in float32.

    An ill-conditioned C (sums of all gradients so far) makes x itself uncertain by much more.
    """
    steps, size = 60, 200
    entries = np.tril(np.ones((steps, steps)))
    z = np.random.default_rng(6).standard_normal((steps, size)).astype(np.float32)
    solver = Substitution(
        coefficients_of(entries, steps), steps=steps, bands=steps, size=size, dtype=np.float32, block=1
    )
    x = np.array([push(solver, row, step) for step, row in enumerate(z)], dtype=np.float64)
    allowed = (steps + 2) * 2.0**-24 * (entries @ np.abs(x))
    assert np.all(np.abs(entries @ x - z) <= 1.01 * allowed)


def test_the_rounding_of_buffers_does_not_add_up():
    """Single precision with decays near 1 and many steps: C x gives z back to two roundings of each x."""
    steps, size = 3000, 20
    scales, decays = np.array([0.02, 0.2]), np.array([0.99999, 0.9])
    z = np.random.default_rng(7).standard_normal((steps, size)).astype(np.float32)
    solver = Buffers(scales=scales, decays=decays, diagonal=1.25, steps=steps, size=size, dtype=np.float32, block=1)
    x = np.array([push(solver, row, step) for step, row in enumerate(z)], dtype=np.float64)
    column = 1.25 * np.array([1.0, *(float(scales @ decays ** (t - 1)) for t in range(1, steps))])
    again = np.array([column[t::-1] @ x[: t + 1] for t in range(steps)])
    past = np.array([column[t::-1] @ np.abs(x[: t + 1]) for t in range(steps)])
    assert np.all(np.abs(again - z) <= 2.0 * 2.0**-24 * 1.25 * np.abs(x) + (2 * steps + 6) * 2.0**-53 * past)


@pytest.mark.parametrize("kept", [0, 1, 2, 5, 31, 63, 64, 500])
def test_rings_keep_enough_and_not_much_more(kept):
    block = block_for(kept)
    rows = ring_rows(kept, block)
    assert rows % block == 0
    assert kept + block <= rows < kept + 2 * block
    assert 1 <= block <= 16
