"""Chunks that are drawn again: honest ones pass, also from a machine that rounds differently, others do not."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from evidence_toy import TOY, Toy, toy_chunk, toy_run

from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, UnsupportedError, VerificationError
from hockeystick.evidence import EvidenceStore, recheck, redraw
from hockeystick.evidence.checking import same_cells
from hockeystick.monte_carlo import families
from hockeystick.monte_carlo.proposals import Family
from hockeystick.monte_carlo.runs import BLOCK, fingerprint, run_chunk
from hockeystick.pairs.base import DominatingPair
from hockeystick.samples import Chunk, Node, Run
from hockeystick.types import Direction, Side

RUN = toy_run()
COUNT = 6
Change = Callable[[Chunk], Chunk]


def checked(path: Path, change: Change, run: Run = RUN, proposal: Toy = TOY, how_many: int = COUNT, seed: int = 0):
    """Check a store in which one chunk was changed before it was stored."""
    with EvidenceStore.open(path / "x.sqlite") as store:
        for stream in range(COUNT):
            chunk = toy_chunk(7, stream)
            store.add(run, change(chunk) if stream == 4 else chunk)
        return recheck(store, run, proposal, how_many, np.random.default_rng(seed))


def shifted(chunk: Chunk, column: int, by: int, count: int = 40) -> Chunk:
    """Some samples moved to other cells."""
    cells = np.repeat(chunk.cells, chunk.counts, axis=0)
    cells[:count, column] += by
    distinct, counts = np.unique(cells, axis=0, return_counts=True)
    return replace(chunk, cells=distinct.astype(np.int32), counts=counts)


def without_first_cells(chunk: Chunk) -> Chunk:
    """Samples with the smallest positive losses, as if they had fallen to 0."""
    kept = chunk.cells[:, 1] > 0
    assert not kept.all()
    return replace(chunk, cells=chunk.cells[kept], counts=chunk.counts[kept])


def test_honest_chunks_pass(tmp_path: Path) -> None:
    redrawn = checked(tmp_path, lambda chunk: chunk)
    assert (redrawn.key, redrawn.streams, redrawn.exact) == (RUN.key, tuple(range(COUNT)), COUNT)


@pytest.mark.parametrize(
    "change",
    [
        lambda chunk: replace(chunk, sums=chunk.sums * (1.0 + 1e-8), logs=chunk.logs * (1.0 - 1e-8)),
        lambda chunk: replace(chunk, largest=chunk.largest * (1.0 + 1e-9)),
        lambda chunk: shifted(chunk, 0, 1),
        lambda chunk: shifted(chunk, 1, 1),
        lambda chunk: shifted(shifted(chunk, 0, -1), 1, 1),
        without_first_cells,
    ],
)
def test_another_machine_may_round_differently(tmp_path: Path, change: Change) -> None:
    assert checked(tmp_path, change).exact >= COUNT - 1


@pytest.mark.parametrize(
    "change",
    [
        lambda chunk: replace(chunk, sums=chunk.sums * (1.0 + 1e-4)),
        lambda chunk: replace(chunk, sums=chunk.sums * np.array([1.0, 1.0, 0.999])),
        lambda chunk: replace(chunk, logs=chunk.logs * np.array([1.0, 1.001, 1.0])),
        lambda chunk: replace(chunk, largest=0.5 * chunk.largest),
        lambda chunk: shifted(chunk, 0, 3),
        lambda chunk: shifted(chunk, 0, -3),
        lambda chunk: shifted(chunk, 1, 3),
        lambda chunk: replace(chunk, cells=chunk.cells[:-9], counts=chunk.counts[:-9]),
        lambda chunk: replace(chunk, cells=chunk.cells[:0], counts=chunk.counts[:0]),
        lambda chunk: replace(toy_chunk(8, 4), stream=4),
    ],
)
def test_what_was_not_drawn_is_found(tmp_path: Path, change: Change) -> None:
    with pytest.raises(VerificationError, match=f"chunk 4 of run {RUN.key[:12]} "):
        checked(tmp_path, change)


def test_which_chunks_are_drawn_is_random(tmp_path: Path) -> None:
    with EvidenceStore.open(tmp_path / "x.sqlite") as store:
        for stream in (0, 1, 2, 5, 9):
            store.add(RUN, toy_chunk(7, stream))
        chosen = {recheck(store, RUN, TOY, 2, np.random.default_rng(seed)).streams for seed in range(30)}
        assert all(len(streams) == 2 and set(streams) <= {0, 1, 2, 5, 9} for streams in chosen)
        assert len(chosen) > 5  # of 10; all of this is seeded
        deadline = Deadline()
        assert recheck(store, RUN, TOY, 99, np.random.default_rng(0), deadline).streams == (0, 1, 2, 5, 9)
        assert deadline.ticks == 5
        with pytest.raises(BudgetExceededError):
            recheck(store, RUN, TOY, 99, np.random.default_rng(0), Deadline(seconds=0.0))
        assert recheck(store, toy_run(8), TOY, 2, np.random.default_rng(0)).streams == ()


def node(**changes: object) -> Node:
    return RUN.nodes[0].model_copy(update=changes)


@dataclass(frozen=True, kw_only=True, eq=False)
class UpperToy(Toy):
    """One that bounds one side alone."""

    @property
    def sides(self) -> tuple[Side, ...]:
        return (Side.UPPER,)


@pytest.mark.parametrize(
    ("run", "proposal", "says"),
    [
        (RUN.model_copy(update={"kernels": 0}), TOY, "'kernels' field of the run .* says 0"),
        (RUN, Toy(direction=Direction.ADD), "proposal that its pair does not give"),
        (RUN, Toy(direction=Direction.REMOVE, mean=0.6), "proposal that its pair does not give"),
        (RUN.model_copy(update={"nodes": (node(weight_bound=0.9),)}), TOY, "weight_bound"),
        (RUN.model_copy(update={"nodes": (node(theta=1.0),)}), TOY, "theta"),
        (RUN, UpperToy(direction=Direction.REMOVE), "lower"),
    ],
)
def test_runs_that_prove_nothing(tmp_path: Path, run: Run, proposal: Toy, says: str) -> None:
    with EvidenceStore.open(tmp_path / "x.sqlite") as store:
        store.add(run, run_chunk(TOY, run, 0))
        with pytest.raises(VerificationError, match=says):
            recheck(store, run, proposal, 1, np.random.default_rng(0))


def test_cells_may_move_by_one_but_not_further() -> None:
    """Against the definition: single samples, where a move by one cell is all that is allowed."""

    def single(weight: int, loss: int) -> Chunk:
        return replace(toy_chunk(7, 0), cells=np.array([[weight, loss]], dtype=np.int32), counts=np.array([1]))

    for weight in range(-3, 4):
        for loss in range(4):
            near = abs(weight) <= 1 and abs(loss - 2) <= 1
            assert same_cells(single(0, 2), single(weight, loss)) == near
            assert same_cells(single(weight, loss), single(0, 2)) == near


@dataclass(frozen=True, kw_only=True)
class ToyPair(DominatingPair):
    """What the toy is about."""

    @property
    def full_sensitivity(self) -> float:
        return 1.0


def test_from_a_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family(
        pair=ToyPair,
        kinds=(Toy,),
        propose=lambda pair, direction, epsilon: (),
        fingerprint=lambda pair: (1.0,),
        make=lambda pair, kind, **values: kind(**values),
    )
    pair = ToyPair(noise_multiplier=1.0)
    run = toy_run(subject=fingerprint(family, pair))
    with EvidenceStore.open(tmp_path / "x.sqlite") as store:
        with pytest.raises(UnsupportedError, match="ToyPair"):
            redraw(store, pair, [run], 1, np.random.default_rng(0))
        monkeypatch.setitem(families.FAMILIES, ToyPair, lambda: family)
        store.add(run, run_chunk(TOY, run, 0))
        (redrawn,) = redraw(store, pair, [run], 1, np.random.default_rng(0))
        assert redrawn.streams == (0,)
        with pytest.raises(VerificationError, match="another mechanism"):
            redraw(store, ToyPair(noise_multiplier=2.0), [run], 1, np.random.default_rng(0))
        with pytest.raises(VerificationError, match="drawn again: The 'proposal' field must be 'toy' with mean"):
            redraw(store, pair, [run.model_copy(update={"proposal": "x"})], 1, np.random.default_rng(0))


def test_chunks_of_several_blocks(tmp_path: Path) -> None:
    run = toy_run(chunk_size=BLOCK + 100)
    with EvidenceStore.open(tmp_path / "x.sqlite") as store:
        store.add(run, run_chunk(TOY, run, 0))
        assert recheck(store, run, TOY, 1, np.random.default_rng(0)).exact == 1
