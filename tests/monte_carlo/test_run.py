"""Runs: the same bits from the same key, and statistics that say what the samples were."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, floor, inf, log1p, nan

import numpy as np
import pytest
from toy_gaussian import GaussianProposal, exact_delta, node, run_of

from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError, VerificationError
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.estimation import _nodes
from hockeystick.monte_carlo.pilots import Pilots
from hockeystick.monte_carlo.proposals import Family
from hockeystick.monte_carlo.runs import (
    BLOCK,
    CELL,
    CELL_LIMIT,
    SECONDS_PER_SAMPLE,
    SECONDS_PER_VALUE,
    fingerprint,
    run_chunk,
    seconds_per_sample,
    stream_generator,
)
from hockeystick.monte_carlo.statistics import Tally
from hockeystick.monte_carlo.verification import check_run
from hockeystick.pairs.base import DominatingPair
from hockeystick.samples import Node, Run
from hockeystick.types import Direction, Side

PROPOSAL = GaussianProposal(shift=1.0, centre=2.0)
NODES = (
    node(PROPOSAL, Side.UPPER, 1.0),
    node(PROPOSAL, Side.LOWER, 1.0, 3.0),
    node(PROPOSAL, Side.UPPER, 2.5),
    node(PROPOSAL, Side.LOWER, 0.0),
)
RUN = run_of(PROPOSAL, NODES, chunk_size=BLOCK + 905, seed=2**100 + 7)


@dataclass(frozen=True, kw_only=True, eq=False)
class Scripted(GaussianProposal):
    """Gives out what it was told, again and again."""

    weights: tuple[float, ...]
    losses: tuple[float, ...]

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        log_weights[:] = self.weights
        losses[:] = self.losses


def drawn(run: Run, stream: int) -> tuple[Array, Array]:
    """The samples of one stream, block by block as the run draws them."""
    rng = stream_generator(run, stream)
    weights, losses = np.empty(run.chunk_size), np.empty(run.chunk_size)
    for first in range(0, run.chunk_size, BLOCK):
        PROPOSAL.draw(rng, weights[first : first + BLOCK], losses[first : first + BLOCK])
    return weights, losses


def value(log_weight: float, loss: float, this_node: Node, error: float = 1e-9) -> float:
    """Y of one sample at one node, moved to the node's side."""
    sign = 1 if this_node.side is Side.UPPER else -1
    return min(
        exp(log_weight + sign * error) * max(1 - exp(this_node.epsilon - sign * error - loss), 0.0),
        this_node.weight_bound,
    )


def test_chunk_is_the_same_on_every_call() -> None:
    first, second = run_chunk(PROPOSAL, RUN, 3), run_chunk(GaussianProposal(shift=1.0, centre=2.0), RUN, 3)
    assert (first.stream, first.samples, first.largest) == (second.stream, second.samples, second.largest)
    for name in ("sums", "logs", "cells", "counts"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()


def test_streams_and_seeds_draw_different_samples() -> None:
    other_seed = run_of(PROPOSAL, NODES, chunk_size=BLOCK + 905, seed=8)
    sums = [run_chunk(PROPOSAL, run, s).sums[0] for run in (RUN, other_seed) for s in (0, 1, 2**32)]
    assert len(set(sums)) == len(sums)


def test_nothing_but_the_seed_gives_fresh_samples() -> None:
    """Else whoever dislikes a bound moves a fraction, or the noise, by 1e-9 and draws again under the same seed."""
    expected = stream_generator(RUN, 5).random(4).tobytes()
    for name in CHANGES:
        changed = RUN.model_copy(update={name: CHANGES[name]})
        same = stream_generator(changed, 5).random(4).tobytes() == expected
        assert same == (name != "seed"), name


def test_statistics_are_those_of_the_samples() -> None:
    chunk = run_chunk(PROPOSAL, RUN, 0)
    weights, losses = drawn(RUN, 0)
    assert chunk.samples == RUN.chunk_size
    for j, this_node in enumerate(NODES):
        values = [value(weight, loss, this_node) for weight, loss in zip(weights, losses, strict=True)]
        sign = -1 if this_node.side is Side.UPPER else 1
        assert chunk.sums[j] == pytest.approx(sum(values), rel=1e-9)
        assert chunk.logs[j] == pytest.approx(sum(log1p(sign * this_node.theta * v) for v in values), rel=1e-9)
    largest = max(
        value(w, x, this_node, 0.0) / this_node.weight_bound
        for w, x in zip(weights, losses, strict=True)
        for this_node in NODES
    )
    assert chunk.largest == pytest.approx(largest, rel=1e-8)
    assert 0.5 < chunk.largest <= 1.0


def test_cells_count_the_samples_with_a_positive_loss() -> None:
    chunk = run_chunk(PROPOSAL, RUN, 0)
    expected: dict[tuple[int, int], int] = {}
    for weight, loss in zip(*drawn(RUN, 0), strict=True):
        if loss > 0:
            cell = floor(CELL * weight), floor(CELL * loss)
            expected[cell] = expected.get(cell, 0) + 1
    counted = {(int(row), int(column)): int(n) for (row, column), n in zip(chunk.cells, chunk.counts, strict=True)}
    assert counted == expected
    assert chunk.cells.dtype == np.int32
    assert chunk.counts.dtype == np.int64
    assert 0 < chunk.counts.sum() < RUN.chunk_size


def test_a_sample_is_planned_by_the_values_that_nodes_add() -> None:
    """Each sample alone adds a value at the nodes below its loss, and that is how many are counted."""
    epsilons = [0.0, 0.5, 0.5, 1.0, 2.0, 3.0]
    losses = (-1.0, 0.2, 0.7, 1.4, 2.0, 2.5, 9.0)
    added = 0
    for loss in losses:
        alone = Scripted(shift=1.0, centre=2.0, weights=(0.0,), losses=(loss,))
        run = run_of(alone, tuple(node(alone, Side.LOWER, epsilon) for epsilon in epsilons), chunk_size=1)
        added += int(np.count_nonzero(run_chunk(alone, run, 0).sums))
    assert added == 0 + 1 + 3 + 4 + 4 + 5 + 6
    planned = seconds_per_sample(PROPOSAL, epsilons, np.array([*losses, nan]))
    values = (planned - PROPOSAL.cost - SECONDS_PER_SAMPLE) / SECONDS_PER_VALUE
    assert values == pytest.approx(added / (len(losses) + 1))


def test_values_are_moved_to_the_side_of_their_bound() -> None:
    proposal = GaussianProposal(shift=1.0, centre=2.0, error=0.1)
    exact = run_chunk(GaussianProposal(shift=1.0, centre=2.0, error=0.0), RUN, 0)
    moved = run_chunk(proposal, RUN, 0)
    upper = np.array([this_node.side is Side.UPPER for this_node in NODES])
    assert (moved.sums[upper] > exact.sums[upper]).all()
    assert (moved.sums[~upper] < exact.sums[~upper]).all()
    weights, losses = drawn(RUN, 0)
    for j, this_node in enumerate(NODES):
        values = [value(weight, loss, this_node, 0.1) for weight, loss in zip(weights, losses, strict=True)]
        assert moved.sums[j] == pytest.approx(sum(values), rel=1e-9)
        assert max(values) <= this_node.weight_bound


def test_what_is_not_a_number_counts_as_the_worst_on_either_side() -> None:
    weights, losses = (nan, 0.0, nan, -1.0), (5.0, nan, nan, 3.0)
    proposal = Scripted(shift=1.0, centre=2.0, weights=weights, losses=losses)
    chunk = run_chunk(proposal, run_of(PROPOSAL, NODES, chunk_size=4), 0)
    for j, this_node in enumerate(NODES):
        known = value(-1.0, 3.0, this_node)
        if this_node.side is Side.UPPER:
            assert chunk.sums[j] == pytest.approx(known + 3 * this_node.weight_bound)
            assert chunk.logs[j] == pytest.approx(
                log1p(-this_node.theta * known) + 3 * log1p(-this_node.theta * this_node.weight_bound)
            )
        else:
            assert chunk.sums[j] == pytest.approx(known)
            assert chunk.logs[j] == pytest.approx(log1p(this_node.theta * known))
    assert chunk.cells.tolist() == [[-CELL, 3 * CELL], [CELL_LIMIT - 1, CELL_LIMIT - 1]]
    assert chunk.counts.tolist() == [1, 3]


def test_extreme_samples_stay_in_the_outermost_cells() -> None:
    weights, losses = (1e6, -1e6, -inf, 0.0, 0.0, 0.0), (1e6, 1e-30, 2.0, inf, 0.0, -inf)
    proposal = Scripted(shift=1.0, centre=2.0, weights=weights, losses=losses)
    chunk = run_chunk(proposal, run_of(PROPOSAL, NODES, chunk_size=6), 0)
    edge = CELL_LIMIT - 1
    assert chunk.cells.tolist() == [[-CELL_LIMIT, 0], [-CELL_LIMIT, 2 * CELL], [0, edge], [edge, edge]]
    assert chunk.counts.tolist() == [1, 1, 1, 1]
    assert np.isfinite(chunk.logs).all()
    assert (chunk.sums <= 6 * np.array([this_node.weight_bound for this_node in NODES])).all()


def test_a_value_above_its_proved_largest_shows() -> None:
    wrong = NODES[0].model_copy(update={"weight_bound": NODES[0].weight_bound / 3, "theta": NODES[0].theta})
    chunk = run_chunk(PROPOSAL, run_of(PROPOSAL, (wrong,), chunk_size=20_000), 0)
    assert chunk.largest > 2.5


def test_a_run_leaves_room_for_the_rounding_of_what_is_drawn() -> None:
    """Tables are rounded, so the law that is drawn has weights above M: by the loss error, beside that of log M."""
    rough = GaussianProposal(shift=1.0, centre=2.0, error=0.01)
    for side in Side:
        read = 1.0 - 0.01 if side is Side.UPPER else 1.0
        needed = rough.weight_bound(read) * exp(2 * 0.01)
        pilot = Pilots(1, Deadline()).draw(rough, "test")
        made = list(_nodes(pilot, side, 1.0, 1e4, 1e-6))
        assert all(this_node.weight_bound >= needed for this_node in made)
        check_run(run_of(rough, tuple(made)), rough)
        tight = made[0].model_copy(update={"weight_bound": rough.weight_bound(read) * (1 + 1e-6)})
        with pytest.raises(VerificationError, match="'weight_bound' field"):
            check_run(run_of(rough, (tight,)), rough)


@pytest.mark.parametrize("threads", [1, 3])
def test_pilots_are_the_same_side_by_side(threads: int) -> None:
    ticks: list[int] = []
    pilots = Pilots(7, Deadline(on_tick=ticks.append), threads)
    proposals = [GaussianProposal(shift=1.0, centre=centre) for centre in (0.5, 1.0, 2.0, 3.0)]
    drawn = pilots.draw_each([(proposal, f"place {place}") for place, proposal in enumerate(proposals)])
    assert len(ticks) == len(proposals)
    for place, (proposal, pilot) in enumerate(zip(proposals, drawn, strict=True)):
        alone = Pilots(7, Deadline()).draw(proposal, f"place {place}")
        assert pilot.proposal is proposal
        assert np.array_equal(pilot.losses, alone.losses)
        assert pilot.mean(1.0) == float(alone.values(1.0).mean())
        assert pilot.effective(1.0) == float(alone.values(1.0).sum()) ** 2 / float(
            alone.values(1.0) @ alone.values(1.0)
        )


def test_mean_is_the_profile() -> None:
    # The standard error of the mean is known from M: at most sqrt(M delta / N). Six of them: once in 10^9.
    for proposal in (GaussianProposal(shift=0.5, centre=0.5), GaussianProposal(shift=0.5, centre=3.0)):
        nodes = tuple(node(proposal, side, epsilon) for epsilon in (0.0, 0.7, 1.2) for side in Side)
        chunk = run_chunk(proposal, run_of(proposal, nodes, chunk_size=200_000), 0)
        for this_node, total in zip(nodes, chunk.sums, strict=True):
            delta = exact_delta(0.5, this_node.epsilon)
            assert abs(total / 200_000 - delta) < 6 * (this_node.weight_bound * delta / 200_000) ** 0.5 + 1e-8


def test_a_tally_adds_in_the_order_of_the_streams() -> None:
    chunks = [run_chunk(PROPOSAL, RUN, stream) for stream in range(3)]
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 0, 2, 1]):
        tally = Tally.empty(RUN)
        for place in order:
            tally.add(chunks[place])
        assert tally.samples == 3 * RUN.chunk_size
        assert tally.sums.tobytes() == ((chunks[0].sums + chunks[1].sums) + chunks[2].sums).tobytes()
        assert tally.logs.tobytes() == ((chunks[0].logs + chunks[1].logs) + chunks[2].logs).tobytes()
    gap = Tally.empty(RUN)
    gap.add(chunks[0])
    gap.add(chunks[2])
    assert gap.chunks == 1


CHANGES: dict[str, object] = {
    "subject": "another",
    "direction": Direction.ADD,
    "proposal": "another",
    "parameters": {"shift": 1.0, "centre": np.nextafter(2.0, 3.0)},
    "nodes": (NODES[0],),
    "chunk_size": BLOCK,
    "seed": 3,
    "kernels": 10**6,
}
NODE_CHANGES: dict[str, object] = {
    "side": Side.LOWER,
    "epsilon": np.nextafter(1.0, 2.0),
    "theta": 0.1,
    "weight_bound": 0.9,
    "failure": 0.04,
}


def test_key_follows_from_all_fields() -> None:
    assert set(CHANGES) == set(Run.model_fields)
    assert set(NODE_CHANGES) == set(Node.model_fields)
    base = run_of(PROPOSAL, NODES)
    keys = {base.key}
    keys |= {base.model_copy(update={name: change}).key for name, change in CHANGES.items()}
    for name, change in NODE_CHANGES.items():
        first = NODES[0].model_copy(update={name: change})
        keys.add(base.model_copy(update={"nodes": (first, *NODES[1:])}).key)
    keys.add(base.model_copy(update={"nodes": NODES[::-1]}).key)
    assert len(keys) == 2 + len(CHANGES) + len(NODE_CHANGES)


def test_key_survives_storage_and_the_order_of_parameters() -> None:
    assert Run.parse_json(RUN.model_dump_json()).key == RUN.key
    assert Run.parse_json(RUN.model_dump_json()) == RUN
    assert RUN.model_copy(update={"parameters": {"centre": 2.0, "shift": 1.0}}).key == RUN.key


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("epsilon", -0.1), ("epsilon", 701.0), ("theta", 0.0), ("weight_bound", inf), ("failure", 1.0), ("failure", nan)],
)
def test_node_refuses(name: str, wrong: float) -> None:
    with pytest.raises(InvalidInputError, match=name):
        Node(**{**NODES[0].model_dump(), name: wrong})


@pytest.mark.parametrize(("name", "wrong"), [("chunk_size", 0), ("seed", -1), ("seed", 2**128)])
def test_run_refuses(name: str, wrong: int) -> None:
    with pytest.raises(InvalidInputError, match=name):
        Run.parse({**RUN.model_dump(), name: wrong})


@dataclass(frozen=True, kw_only=True)
class ToyPair(DominatingPair):
    matrix: Array
    count: int = 3

    @property
    def full_sensitivity(self) -> float:
        return 1.0


class AnotherToyPair(ToyPair):
    pass


FAMILY = Family(pair=ToyPair, kinds=(), propose=lambda *_: (), fingerprint=lambda pair: (pair.matrix, pair.count))
MATRIX = np.array([[1.0, 0.25], [0.25, 1.0]])
Change = Callable[[], DominatingPair]


@pytest.mark.parametrize(
    "change",
    [
        lambda: ToyPair(noise_multiplier=np.nextafter(2.0, 3.0), matrix=MATRIX),
        lambda: ToyPair(noise_multiplier=2.0, matrix=MATRIX * (1.0 + 3e-8)),
        lambda: ToyPair(noise_multiplier=2.0, matrix=np.nextafter(MATRIX, 2.0)),
        lambda: ToyPair(noise_multiplier=2.0, matrix=MATRIX.reshape(-1)),
        lambda: ToyPair(noise_multiplier=2.0, matrix=MATRIX[:, :1]),
        lambda: ToyPair(noise_multiplier=2.0, matrix=np.asfortranarray([[1.0, 0.25], [0.0, 1.0]])),
        lambda: ToyPair(noise_multiplier=2.0, matrix=MATRIX, count=4),
        lambda: AnotherToyPair(noise_multiplier=2.0, matrix=MATRIX),
    ],
)
def test_fingerprint_tells_pairs_apart(change: Change) -> None:
    assert fingerprint(FAMILY, change()) != fingerprint(FAMILY, ToyPair(noise_multiplier=2.0, matrix=MATRIX))


def test_fingerprint_ignores_the_layout_of_arrays() -> None:
    base = fingerprint(FAMILY, ToyPair(noise_multiplier=2.0, matrix=MATRIX))
    assert base == fingerprint(FAMILY, ToyPair(noise_multiplier=2.0, matrix=np.asfortranarray(MATRIX)))
