"""Closed rings against products of all steps as matrices, and each inequality that their traces rest on."""

from typing import Any

import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences import moving_averages_ring, moving_averages_transform
from hockeystick.sequences.moving_averages import MovingAverages
from hockeystick.sequences.moving_averages_transform import (
    Group,
    Prepared,
    _adjoint,
    _shortened,
    _traced,
    _vain,
    averages_profiles,
    prepared,
)
from hockeystick.sequences.white_noise import noise_table
from hockeystick.types import Direction, Side
from tests.sequences.sequences_oracle import EPSILONS, truth

COMPLEX = np.complex128
POINTS_OF_FOUR = np.linspace(-8.0, 9.0, 171)


def ring(depth: int = 2, other: bool = True) -> MovingAverages:
    """12 bins of two or three bands; two bins differ from the others."""
    weights = np.tile([60, 40, 20][:depth], (12, 1))
    whites = np.full(12, 0.7)
    if other:
        weights[4, 0], weights[5, 1], whites[5] = 50, -10, 0.8
    return MovingAverages(1, weights, 0.012, whites, True)


def tables_of(given: Prepared, frequency: float) -> Array:
    noises = [given.nodes[kind.nodes].noise for kind in given.kinds]
    parts = [
        noise_table(scales, noise.nodes, noise.weights, 0.3, np.array([frequency, 1.0, 1.0]))[0]
        for scales, noise in zip(given.scales, noises, strict=True)
    ]
    return np.stack(parts)


def matrix(given: Prepared, group: Group, tables: Array) -> Array:
    """A step as a matrix, entry by entry, in the basis in which the weighted norm is the plain one."""
    windows = given.windows
    transitions = np.zeros((windows.start.size,) * 2, COMPLEX)
    for s in range(windows.start.size):
        for j in range(windows.counts[s]):
            t = windows.begins[s] + j
            values = [
                complex(*tables[kind, :, first[s] + j]) for kind, first in zip(group.kinds, group.first, strict=True)
            ]
            transitions[s, t] = windows.chances[t] * np.prod(values)
    root = np.sqrt(windows.start)
    return transitions * root[:, None] / root


def uneven(depth: int = 2, period: int = 1) -> MovingAverages:
    """12 groups of bins, each bin with weights and white noise of its own."""
    rng, bins = np.random.default_rng(5), 12 * period
    weights = np.tile([60, 40, 20][:depth], (bins, 1)) + rng.integers(-8, 9, (bins, depth))
    return MovingAverages(period, weights, 0.012, rng.uniform(0.65, 0.75, bins), True)


CHAINS = pytest.mark.parametrize("chain", [ring(2), ring(3), uneven(2), uneven(3), uneven(2, 2)])


@CHAINS
@pytest.mark.parametrize("frequency", [0.0, 2.0, 20.0, 200.0])
def test_traces_are_those_of_all_steps(chain: MovingAverages, frequency: float) -> None:
    """At most some hundred states: every product around the ring, as a matrix, for every tolerance."""
    given = prepared(chain, 1e-3, Deadline())
    tables = tables_of(given, frequency)
    product = np.eye(given.windows.start.size, dtype=COMPLEX)
    for group in given.groups:
        product = product @ np.linalg.matrix_power(matrix(given, group, tables), group.length)
    for tolerance in (1.0, 1e-2, 1e-4, 1e-9):
        traced, error = _traced(given, tables, tolerance, Deadline())
        assert abs(traced - np.trace(product)) <= error
    assert error <= (1e-9 if chain.depth == 2 else 1e-5)


@pytest.mark.parametrize("period", [1, 2])
@pytest.mark.parametrize("frequency", [0.0, 20.0])
def test_adjoints_are_those_of_steps(frequency: float, period: int) -> None:
    """Entry by entry, as matrices."""
    given = prepared(uneven(3, period), 1e-3, Deadline())
    tables, group, start = tables_of(given, frequency), given.groups[3], given.windows.start
    values = np.random.default_rng(0).standard_normal((2, start.size))
    root = np.sqrt(start)
    exact = matrix(given, group, tables).conj().T @ (root * (values[0] + 1j * values[1])) / root
    adjoint = _adjoint(given, group, tables, Deadline())(values)
    assert adjoint[0] + 1j * adjoint[1] == pytest.approx(exact, rel=1e-9, abs=1e-9 * np.abs(exact).max())


@pytest.mark.parametrize("chain", [uneven(2), uneven(3), uneven(2, 2)])
@pytest.mark.parametrize("frequency", [0.0, 20.0, 200.0])
def test_what_blocks_leave_beside_one_function(chain: MovingAverages, frequency: float) -> None:
    """Of two blocks, the product of the norms of two matrices; the bound is next to nothing above it."""
    given = prepared(chain, 1e-3, Deadline())
    tables, depth = tables_of(given, frequency), chain.depth - 1
    groups = [group for group in given.groups for _ in range(group.length)]
    values = np.sqrt(given.windows.start).astype(COMPLEX)
    exact = 1.0
    for first in (len(groups) - depth, len(groups) - 2 * depth):
        block = np.linalg.multi_dot(
            [np.eye(values.size), *(matrix(given, group, tables) for group in groups[first : first + depth])]
        )
        values = block @ values
        values /= np.linalg.norm(values)
        exact *= np.linalg.norm(block - np.outer(values, values.conj() @ block))
    traced = _traced(given, tables, 1e3, Deadline())[1]  # which two blocks serve
    assert exact - 1e-12 <= traced <= 1.00001 * exact + 1e-7


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("frequency", [2.0, 60.0, 200.0])
def test_alike_blocks_need_few_adjoints(depth: int, frequency: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a ring: no less than the product of the norms of their matrices, and hardly more.

    What functions that have not settled may add is a tenth here, so that a bound that leaves it out is seen.
    """
    monkeypatch.setattr(moving_averages_ring, "SETTLED", 1.1)
    given, taken = prepared(ring(depth, other=False), 1e-3, Deadline()), [0]

    def counted(*arguments: Any) -> Any:
        step = _adjoint(*arguments)

        def adjoint(values: np.ndarray) -> np.ndarray:
            taken[0] += 1
            return step(values)

        return adjoint

    monkeypatch.setattr(moving_averages_transform, "_adjoint", counted)
    tables, (group,) = tables_of(given, frequency), given.groups
    error = _traced(given, tables, 0.0, Deadline())[1]
    block = np.linalg.matrix_power(matrix(given, group, tables), depth - 1)
    values, blocks = np.sqrt(given.windows.start).astype(COMPLEX), group.length // (depth - 1)
    exact = 1.0
    for _ in range(blocks):
        values = block @ values
        values /= np.linalg.norm(values)
        exact *= np.linalg.norm(block - np.outer(values, values.conj() @ block))
    assert exact - 1e-12 <= error <= 1.05**blocks * exact + 1e-9
    assert depth - 1 <= taken[0] <= blocks * (depth - 1) // 2


@pytest.mark.parametrize("delta", [1e-2, 1.0, 30.0])
def test_what_is_kept_on_a_ring(delta: float) -> None:
    """Mass and mean of the windows that are kept, by matrices; far more is left out than is reasonable."""
    given = prepared(ring(), delta, Deadline())
    ones = np.zeros((len(given.scales), 2, given.scales.shape[1]))
    ones[:, 0] = 1.0
    steps = [matrix(given, group, ones) for group in given.groups for _ in range(group.length)]
    means = [
        matrix(given, group, np.stack([given.scales, 0.0 * given.scales], axis=1))
        for group in given.groups
        for _ in range(group.length)
    ]
    assert abs(given.total - np.trace(np.linalg.multi_dot(steps)).real) <= given.total_error + 1e-12
    mean = sum(np.trace(np.linalg.multi_dot([*steps[:i], means[i], *steps[i + 1 :]])).real for i in range(12))
    assert given.mean <= mean + 1e-12
    assert 1.0 - given.mean <= 3.0 * (1.0 - min(mean, given.total)) + 1e-12
    if delta == 30.0:
        assert mean < 0.999


def test_small_rings_against_quadrature() -> None:
    """Both sides, both directions, four bins, alike or not; wide smoothing, as only the side matters."""
    rng = np.random.default_rng(3)
    for same in (1, 4):
        weights = np.tile(rng.integers(5, 25, (same, 2)), (4 // same, 1))
        chain = MovingAverages(1, weights, rng.uniform(0.006, 0.036), np.full(4, rng.uniform(0.4, 0.9)), True)
        exact = truth(chain.products, POINTS_OF_FOUR)
        error = 1e-9 + 3e-5 * exact  # of the trapezoidal rule
        for side in Side:
            by_direction = averages_profiles(chain, side, 1e-4, 0.8, True, Deadline()).profiles()
            values = np.array([[by_direction[direction](at) for at in EPSILONS] for direction in Direction])
            assert ((values >= exact - error) if side is Side.UPPER else (values <= exact + error)).all()
            if same > 1:  # one bin after the other is too short for a block that forgets
                continue
            assert (np.abs(values[0, 2:4] - exact[0, 2:4]) <= 0.03 * exact[0, 2:4] + 8e-4).all()


def test_a_ring_that_forgets_too_little_is_given_up_at_once() -> None:
    """12 bins of three bands that all differ: what is left of the errors of all traces is far above delta.

    A handful of frequencies shows it; the bounds that are left are trivial, and say that they are.
    """
    for side in Side:
        profiles = averages_profiles(uneven(3), side, 1e-7, 1.0, True, Deadline())
        assert profiles.vain
        assert all(profiles.delta_at(0.5, direction) == (side is Side.UPPER) for direction in Direction)
    assert not averages_profiles(uneven(2), Side.UPPER, 1e-1, 1.0, True, Deadline()).vain
    seen: list[int] = []

    def error_at(f: int) -> float:
        seen.append(f)
        return 1e-9 if f < 90 else 0.0

    assert _vain(error_at, np.ones(100), 1e-8)
    assert len(seen) == 2
    assert not _vain(lambda _: 1e-12, np.ones(100), 1e-8)


def test_groups_are_taken_from_the_end() -> None:
    """However they are joined to runs."""
    own = np.zeros(1, dtype=np.int64)
    groups = [Group(own, own[None], length) for length in (1, 4, 2)]
    lengths = [[group.length for group in _shortened(groups, count)] for count in range(7)]
    assert lengths == [[1, 4, 2], [1, 4, 1], [1, 4], [1, 3], [1, 2], [1, 1], [1]]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [0.0, 1e-200, 1e-60, 1e-30])
@pytest.mark.parametrize("depth", [2, 3])
def test_traces_of_next_to_nothing(depth: int, size: float) -> None:
    """What underflows is scaled by nothing: the trace is 0 and its error next to nothing."""
    given = prepared(ring(depth, other=False), 1e-3, Deadline())
    tables = np.zeros((1, 2, given.scales.shape[1]))
    tables[:, 0] = size
    traced, error = _traced(given, tables, 1e-9, Deadline())
    assert abs(traced) <= error <= 1e-9


@pytest.mark.parametrize(("bins", "period"), [(7, 1), (14, 2)])
def test_a_ring_has_room_for_the_windows_that_see_one_innovation_and_a_stretch_beside_them(bins, period) -> None:
    """2 d - 1 windows see it and d - 1 more groups lie between, as the charge for what is left out supposes."""
    weights = np.tile([60, 40, 20], (bins, 1))
    assert prepared(MovingAverages(period, weights, 0.012, np.full(bins, 0.7), True), 1e-2, Deadline()).mean > 0.99
    short = MovingAverages(period, weights[period:], 0.012, np.full(bins - period, 0.7), True)
    with pytest.raises(ValueError, match="at least 3 d - 2 groups"):
        prepared(short, 1e-2, Deadline())
