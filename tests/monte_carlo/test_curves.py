"""Curves between nodes, and other epsilons from the stored counts, against a profile that is known."""

import pickle
from dataclasses import replace
from itertools import pairwise
from math import exp, inf, nan

import numpy as np
import pytest
from scipy.stats import binom
from toy_gaussian import GaussianProposal, exact_delta, node, run_of

from hockeystick.errors import InvalidInputError
from hockeystick.monte_carlo.confidence import betting_lower, betting_upper
from hockeystick.monte_carlo.curves import counts_bound, lower_curve, upper_curve
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.runs import CELL, CELL_LIMIT, run_chunk, stream_generator
from hockeystick.samples import Chunk
from hockeystick.types import Side

GRID = np.array([0.3, 0.5, 1.0, 2.0, 4.0])
SIDE = pytest.mark.parametrize("side", Side)


def profile(epsilons: np.ndarray) -> np.ndarray:
    return np.array([exact_delta(1.0, float(epsilon)) for epsilon in epsilons])


def test_exact_nodes_give_a_curve_on_either_side_of_the_profile() -> None:
    upper, lower = upper_curve(GRID, profile(GRID)), lower_curve(GRID, profile(GRID))
    for epsilon in np.linspace(0.0, 5.0, 301):
        assert lower(epsilon) <= exact_delta(1.0, epsilon) * (1 + 1e-9) <= upper(epsilon) * (1 + 2e-9)


def test_curves_go_through_their_nodes_and_do_not_increase() -> None:
    values = profile(GRID)
    upper, lower = upper_curve(GRID, values), lower_curve(GRID, values)
    for epsilon, value in zip(GRID, values, strict=True):
        assert value <= upper(epsilon) <= value * (1 + 1e-12)
        assert lower(epsilon) == value
    places = np.sort(np.concatenate([np.linspace(0.0, 5.0, 501), GRID, np.nextafter(GRID, 9), np.nextafter(GRID, 0)]))
    for curve in (upper, lower):
        found = [curve(float(place)) for place in places]
        assert all(right <= left * (1 + 1e-12) for left, right in pairwise(found))


def test_upper_curve_is_linear_in_the_exponential() -> None:
    curve = upper_curve([1.0, 2.0], [0.4, 0.1])
    t = (np.exp(1.0) + np.exp(2.0)) / 2
    assert curve(float(np.log(t))) == pytest.approx(0.25, rel=1e-12)
    assert curve(float(np.log(np.exp(1.0) / 2))) == pytest.approx(0.7, rel=1e-12)  # half-way to delta = 1 at t = 0
    assert curve(2.5) == pytest.approx(0.1, rel=1e-12)


def test_lower_curve_steps() -> None:
    curve = lower_curve([1.0, 2.0, 3.0], [0.3, 0.1, 0.2])
    assert [curve(epsilon) for epsilon in (0.0, 1.0, 1.0001, 2.0, 3.0, 3.0001)] == [0.3, 0.3, 0.2, 0.2, 0.2, 0.0]


def test_a_later_node_that_is_larger_does_not_raise_the_upper_curve() -> None:
    curve = upper_curve([1.0, 2.0, 3.0], [0.3, 0.9, 0.1])
    assert curve(2.0) == pytest.approx(0.3, rel=1e-12)
    assert curve(2.9) <= 0.3 * (1 + 1e-12)
    assert upper_curve([1.0], [3.0])(0.5) == pytest.approx(1.0, rel=1e-12)


def test_steep_chords_do_not_lose_the_smaller_end() -> None:
    curve = upper_curve([1.0, 700.0], [0.5, 1e-290])
    assert 1e-290 <= curve(700.0) <= 1.1e-290
    assert curve(float(np.nextafter(700.0, 0.0))) >= 1e-290 + 0.5 * 1e-14


def test_curves_are_picklable() -> None:
    for curve in (upper_curve(GRID, profile(GRID)), lower_curve(GRID, profile(GRID))):
        assert pickle.loads(pickle.dumps(curve))(0.7) == curve(0.7)


@pytest.mark.parametrize(
    ("epsilons", "bounds"),
    [
        ([], []),
        ([1.0, 1.0], [0.1, 0.1]),
        ([2.0, 1.0], [0.1, 0.1]),
        ([-1.0], [0.1]),
        ([701.0], [0.1]),
        ([1.0], [0.1, 0.2]),
        ([1.0], [-0.1]),
        ([1.0], [nan]),
        ([nan], [0.1]),
    ],
)
def test_curves_refuse(epsilons: list[float], bounds: list[float]) -> None:
    for curve in (upper_curve, lower_curve):
        with pytest.raises(InvalidInputError, match="curve"):
            curve(epsilons, bounds)


# Another epsilon from the counts.

PROPOSAL = GaussianProposal(shift=1.0, centre=2.5)


def sampled(proposal: Proposal, side: Side, epsilon: float, *, size: int, chunks: int, share: float) -> tuple:
    run = run_of(proposal, (node(proposal, side, epsilon, share=share),), chunk_size=size)
    return run, [run_chunk(proposal, run, stream) for stream in range(chunks)]


@SIDE
@pytest.mark.parametrize("epsilon", [0.0, 1.3, 2.0, 2.71, 3.4])
def test_counts_are_looser_than_the_samples_by_the_width_of_a_cell(side: Side, epsilon: float) -> None:
    run, chunks = sampled(PROPOSAL, side, 2.0, size=20_000, chunks=3, share=0.02)
    largest = PROPOSAL.weight_bound(epsilon) * (1 + 1e-6)
    direct = run_of(PROPOSAL, (node(PROPOSAL, side, epsilon, share=0.02),), chunk_size=20_000)
    # The same samples read at this epsilon: nothing but the nodes differs, so the stream has to be forced.
    weights, losses = [], []
    for stream in range(3):
        rng = stream_generator(run, stream)
        for first in range(0, 20_000, 4096):
            size = min(4096, 20_000 - first)
            log_weights, loss = np.empty(size), np.empty(size)
            PROPOSAL.draw(rng, log_weights, loss)
            weights.append(log_weights)
            losses.append(loss)
    theta = direct.nodes[0].theta
    values = np.exp(np.concatenate(weights)) * np.maximum(1 - np.exp(epsilon - np.concatenate(losses)), 0.0)
    found = counts_bound(run, chunks, epsilon, side, largest, 0.01, loss_error=PROPOSAL.loss_error)
    if side is Side.UPPER:
        exact = betting_upper(60_000, float(np.log1p(-theta * values).sum()), theta, 0.01)
        assert exact_delta(1.0, epsilon) < exact < found < exact * 1.35
    else:
        exact = betting_lower(60_000, float(np.log1p(theta * values).sum()), theta, 0.01)
        assert exact * 0.7 < found < exact < exact_delta(1.0, epsilon)


def hand_made(cells: list[tuple[int, int]], counts: list[int], samples: int) -> Chunk:
    return Chunk(
        stream=0,
        samples=samples,
        sums=np.zeros(1),
        logs=np.zeros(1),
        largest=0.0,
        cells=np.array(cells, dtype=np.int32).reshape(-1, 2),
        counts=np.array(counts, dtype=np.int64),
    )


@SIDE
@pytest.mark.parametrize("misplaced", [True, False])
def test_every_sample_of_a_cell_is_covered(side: Side, misplaced: bool) -> None:
    """Random samples in their cell, or just beyond the edge from which rounding moved them into it."""
    rng = np.random.default_rng(3)
    error = 1e-3
    run = run_of(PROPOSAL, (node(PROPOSAL, side, 1.0),))
    theta = run.nodes[0].theta * run.nodes[0].weight_bound
    for _ in range(300):
        cell = int(rng.integers(-9 * CELL, -6 * CELL)), int(rng.integers(CELL, 3 * CELL))
        place = (
            rng.random(2) if not misplaced else 1 + 0.9 * error * CELL if side is Side.UPPER else -0.9 * error * CELL
        )
        log_weight, loss = (np.array(cell) + place) / CELL
        epsilon = rng.uniform(0.1, 2)
        value = exp(log_weight) * max(1 - exp(epsilon - loss), 0.0)
        found = counts_bound(run, [hand_made([cell], [7], 10)], epsilon, side, 1.0, 0.9999, loss_error=error)
        if side is Side.UPPER:
            assert found >= betting_upper(10, 7 * float(np.log1p(-theta * value)), theta, 0.9999) * (1 - 1e-12)
        else:
            assert found <= betting_lower(10, 7 * float(np.log1p(theta * value)), theta, 0.9999) * (1 + 1e-12)


def test_outermost_cells_are_unbounded() -> None:
    edge = CELL_LIMIT - 1
    upper = run_of(PROPOSAL, (node(PROPOSAL, Side.UPPER, 1.0),))
    lower = run_of(PROPOSAL, (node(PROPOSAL, Side.LOWER, 1.0, share=50.0),))
    largest = 0.01
    top = hand_made([(edge, edge)], [100], 100)
    everything = betting_upper(100, 100 * float(np.log1p(-0.3)), 0.3 / largest, 0.05)
    assert counts_bound(upper, [top], 1.0, Side.UPPER, largest, 0.05, loss_error=1e-9) == pytest.approx(everything)
    assert counts_bound(lower, [top], 1.0, Side.LOWER, largest, 0.05, loss_error=1e-9) == 0.0
    low_weight = hand_made([(-CELL_LIMIT, 50)], [100], 100)
    assert counts_bound(lower, [low_weight], 1.0, Side.LOWER, largest, 0.05, loss_error=1e-9) == 0.0
    nothing = betting_upper(100, 0.0, 0.3 / largest, 0.05)
    assert counts_bound(upper, [low_weight], 1.0, Side.UPPER, largest, 0.05, loss_error=1e-9) == pytest.approx(nothing)


def test_samples_outside_the_cells_count_when_their_rounding_could() -> None:
    run = run_of(PROPOSAL, (node(PROPOSAL, Side.UPPER, 0.5),))
    chunk = hand_made([], [], 50)
    careful = counts_bound(run, [chunk], 0.0, Side.UPPER, 1.0, 0.05, loss_error=1e-9)
    usual = counts_bound(run, [chunk], 1e-6, Side.UPPER, 1.0, 0.05, loss_error=1e-9)
    assert usual == pytest.approx(betting_upper(50, 0.0, 0.3, 0.05))
    assert careful == pytest.approx(min(betting_upper(50, 50 * float(np.log1p(-0.3)), 0.3, 0.05), 1.0))


def test_a_side_without_a_node_is_refused() -> None:
    run = run_of(PROPOSAL, (node(PROPOSAL, Side.UPPER, 0.5),))
    with pytest.raises(InvalidInputError, match="lower"):
        counts_bound(run, [hand_made([], [], 5)], 1.0, Side.LOWER, 1.0, 0.05, loss_error=1e-9)


def test_counts_cover_at_the_worst_moment() -> None:
    """At most the 1e-6 quantile of misses in 2,000 runs; the cells are watched after every chunk."""
    proposal = GaussianProposal(shift=0.5, centre=2.0)
    delta, largest = exact_delta(0.5, 1.0), proposal.weight_bound(1.0) * (1 + 1e-6)
    misses = dict.fromkeys(Side, 0)
    for seed in range(2000):
        run = run_of(proposal, tuple(node(proposal, side, 0.9, share=0.2) for side in Side), chunk_size=60, seed=seed)
        chunks = [run_chunk(proposal, run, stream) for stream in range(2)]
        for side in Side:
            looks = [
                counts_bound(run, chunks[:n], 1.0, side, largest, 0.05, loss_error=proposal.loss_error) for n in (1, 2)
            ]
            misses[side] += min(looks) < delta if side is Side.UPPER else max(looks) > delta
    assert max(misses.values()) <= binom.isf(1e-6, 2000, 0.05)


def test_cells_in_the_wrong_order_would_show() -> None:
    """Swapping weight and loss, or an edge for the other, moves the bound to the wrong side."""
    run, chunks = sampled(PROPOSAL, Side.UPPER, 2.0, size=20_000, chunks=1, share=0.02)
    samples, logs = sum(chunk.samples for chunk in chunks), sum(float(chunk.logs[0]) for chunk in chunks)
    honest = betting_upper(samples, logs, run.nodes[0].theta, 0.05)
    largest = run.nodes[0].weight_bound
    down = [replace(chunks[0], cells=chunks[0].cells - 1)]
    assert counts_bound(run, down, 2.0, Side.UPPER, largest, 0.05, loss_error=1e-9) < honest
    assert counts_bound(run, chunks, 2.0, Side.UPPER, largest, 0.05, loss_error=1e-9) > honest
    assert counts_bound(run, chunks, 2.0, Side.UPPER, largest, 0.05, loss_error=1e-9) < inf
