"""Closed rings against products of all steps as matrices, and each inequality that their traces rest on."""

import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences import moving_averages_ring as module
from hockeystick.sequences.moving_averages import MovingAverages
from hockeystick.sequences.moving_averages_ring import Run
from hockeystick.sequences.moving_averages_transform import (
    Group,
    Prepared,
    _shortened,
    _step,
    _traced,
    _vain,
    averages_profiles,
    prepared,
)
from hockeystick.sequences.white_noise import noise_table
from hockeystick.types import Direction, Side
from tests.sequences.test_hidden_chain import EPSILONS, truth

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
    found = np.zeros((windows.start.size,) * 2, COMPLEX)
    for s in range(windows.start.size):
        for j in range(windows.counts[s]):
            t = windows.begins[s] + j
            values = [
                complex(*tables[kind, :, first[s] + j]) for kind, first in zip(group.kinds, group.first, strict=True)
            ]
            found[s, t] = windows.chances[t] * np.prod(values)
    root = np.sqrt(windows.start)
    return found * root[:, None] / root


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("frequency", [0.0, 2.0, 20.0, 200.0])
def test_traces_are_those_of_all_steps(depth: int, frequency: float) -> None:
    """At most some hundred states: every product around the ring, as a matrix."""
    given = prepared(ring(depth), 1e-3, Deadline())
    tables = tables_of(given, frequency)
    product = np.eye(given.windows.start.size, dtype=COMPLEX)
    for group in given.groups:
        product = product @ np.linalg.matrix_power(matrix(given, group, tables), group.length)
    found, error = _traced(given, tables, 1e-9, Deadline())
    assert abs(found - np.trace(product)) <= error
    assert error <= (2e-4 if depth == 2 else 3e-2)


@pytest.mark.parametrize("frequency", [0.0, 2.0, 20.0, 200.0])
def test_norms_are_bounds(frequency: float) -> None:
    """Singular values of a block as a matrix; neither bound is far from what it bounds."""
    given = prepared(ring(3, other=False), 1e-3, Deadline())
    tables, group = tables_of(given, frequency), given.groups[-1]
    block = np.linalg.matrix_power(matrix(given, group, tables), 2)
    values = np.linalg.svd(block, compute_uv=False)
    squared = float((values**2).sum())
    squares = np.zeros_like(tables)
    squares[:, 0] = (tables**2).sum(axis=1)
    ones = np.vstack([np.ones(given.windows.start.size), np.zeros(given.windows.start.size)])
    plain = Run(given.windows, _step(given, group, squares, Deadline()), 12, 0.0)
    assert float(plain.block(ones)[0] @ given.windows.start) == pytest.approx(squared, rel=1e-9)
    run = Run(given.windows, _step(given, group, tables, Deadline()), 12, squared)
    tried = module._tried(run, run.block(ones))
    assert tried is not None
    assert (tried.squares <= values[: tried.squares.size] ** 2 + 1e-9).all()
    both, mixed = module._exterior(run.squared + tried.slack, tried.squares)
    exact = np.sqrt(0.5 * (squared**2 - (values**4).sum()))
    assert exact - 1e-9 <= both
    assert values[0] * values[1] - 1e-9 <= mixed <= both
    assert mixed <= max(4.0 * values[0] * values[1], 2e-4)
    assert module._size(run, tried) >= abs(np.trace(np.linalg.matrix_power(block, 6)))


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
    for same in (1, 1, 4):
        weights = np.tile(rng.integers(5, 25, (same, 2)), (4 // same, 1))
        chain = MovingAverages(1, weights, rng.uniform(0.006, 0.036), np.full(4, rng.uniform(0.4, 0.9)), True)
        exact = truth(chain.products, POINTS_OF_FOUR)
        error = 1e-9 + 3e-5 * exact  # of the trapezoidal rule
        for side in Side:
            found = averages_profiles(chain, side, 1e-4, 0.8, True, Deadline()).profiles()
            values = np.array([[found[direction](at) for at in EPSILONS] for direction in Direction])
            assert ((values >= exact - error) if side is Side.UPPER else (values <= exact + error)).all()
            if same > 1:  # one bin after the other is too short for a block that forgets
                continue
            assert (np.abs(values[0, 2:4] - exact[0, 2:4]) <= 0.03 * exact[0, 2:4] + 8e-4).all()


def uneven(depth: int = 2) -> MovingAverages:
    """12 bins, each with weights and white noise of its own."""
    rng = np.random.default_rng(5)
    weights = np.tile([60, 40, 20][:depth], (12, 1)) + rng.integers(-8, 9, (12, depth))
    return MovingAverages(1, weights, 0.012, rng.uniform(0.65, 0.75, 12), True)


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("frequency", [0.0, 2.0, 20.0, 200.0])
def test_traces_of_steps_that_differ(depth: int, frequency: float) -> None:
    """Every product around the ring, as a matrix; the norms of blocks that the bound takes are no less than theirs."""
    given = prepared(uneven(depth), 1e-3, Deadline())
    tables = tables_of(given, frequency)
    steps = [matrix(given, group, tables) for group in given.groups]
    exact = np.trace(np.linalg.multi_dot(steps))
    found, error = _traced(given, tables, 1e-9, Deadline())
    assert abs(found - exact) <= error
    assert error <= (2e-4 if depth == 2 else 3e-2)


def test_a_ring_that_forgets_too_little_is_given_up_at_once() -> None:
    """12 bins of three bands that all differ: what is left of the errors of all traces is far above delta.

    A handful of frequencies shows it; the bounds that are left are trivial, and say that they are.
    """
    for side in Side:
        found = averages_profiles(uneven(3), side, 1e-7, 1.0, True, Deadline())
        assert found.vain
        assert all(found.delta_at(0.5, direction) == (side is Side.UPPER) for direction in Direction)
    assert not averages_profiles(uneven(2), Side.UPPER, 1e-1, 1.0, True, Deadline()).vain
    seen: list[int] = []

    def error_at(f: int) -> float:
        seen.append(f)
        return 1e-9 if f < 90 else 0.0

    assert _vain(error_at, np.ones(100), 1e-8)
    assert len(seen) == 2
    assert not _vain(lambda _: 1e-12, np.ones(100), 1e-8)


@pytest.mark.parametrize("frequency", [0.0, 2.0, 20.0])
def test_traces_of_blocks_are_bounded_at_every_number_of_blocks(frequency: float) -> None:
    """Two blocks of a ring of twelve bins: little is forgotten, and the bound is of the order of the error."""
    given = prepared(uneven(), 1e-3, Deadline())
    tables = tables_of(given, frequency)
    exact = np.trace(np.linalg.multi_dot([matrix(given, group, tables) for group in given.groups]))
    for tolerance in (1.0, 1e-2, 1e-4):
        found, error = _traced(given, tables, tolerance, Deadline())
        assert abs(found - exact) <= error <= max(0.6 * tolerance, 2e-4)


def test_groups_are_taken_from_the_end() -> None:
    """However they are joined to runs."""
    own = np.zeros(1, dtype=np.int64)
    groups = [Group(own, own[None], length) for length in (1, 4, 2)]
    found = [[group.length for group in _shortened(groups, count)] for count in range(7)]
    assert found == [[1, 4, 2], [1, 4, 1], [1, 4], [1, 3], [1, 2], [1, 1], [1]]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [0.0, 1e-200, 1e-60, 1e-30])
@pytest.mark.parametrize("depth", [2, 3])
def test_traces_of_next_to_nothing(depth: int, size: float) -> None:
    """What underflows is scaled by nothing: the trace is 0 and its error next to nothing."""
    given = prepared(ring(depth, other=False), 1e-3, Deadline())
    tables = np.zeros((1, 2, given.scales.shape[1]))
    tables[:, 0] = size
    found, error = _traced(given, tables, 1e-9, Deadline())
    assert abs(found) <= error <= 1e-50


@pytest.mark.parametrize(("bins", "period"), [(7, 1), (14, 2)])
def test_a_ring_has_room_for_the_windows_that_see_one_innovation_and_a_stretch_beside_them(bins, period) -> None:
    """2 d - 1 windows see it and d - 1 more groups lie between, as the charge for what is left out supposes."""
    weights = np.tile([60, 40, 20], (bins, 1))
    assert prepared(MovingAverages(period, weights, 0.012, np.full(bins, 0.7), True), 1e-2, Deadline()).mean > 0.99
    short = MovingAverages(period, weights[period:], 0.012, np.full(bins - period, 0.7), True)
    with pytest.raises(ValueError, match="at least 3 d - 2 groups"):
        prepared(short, 1e-2, Deadline())
