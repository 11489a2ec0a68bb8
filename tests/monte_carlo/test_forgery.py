"""Forged evidence: values that no samples have are refused, and too few possible ones to be found do not move a bound.

Nothing here is random beyond fixed seeds: the chance to miss a forgery is computed, not tried.
"""

from dataclasses import replace
from math import comb
from pathlib import Path

import numpy as np
import pytest

from hockeystick import Question
from hockeystick.errors import EvidenceError, InvalidInputError, VerificationError
from hockeystick.evidence import EvidenceStore
from hockeystick.evidence import store as store_module
from hockeystick.monte_carlo.forgery import MISSED, MOVED, redraws
from hockeystick.monte_carlo.statistics import Tally
from hockeystick.samples import Array, Chunk, MemoryLedger, Node, Run
from hockeystick.types import Direction, Side

QUESTION = Question(epsilon=1.0)


def run_of(theta: float, bound: float, chunk_size: int) -> Run:
    nodes = tuple(
        Node(side=side, epsilon=1.0, theta=theta / bound, weight_bound=bound, failure=1e-6)
        for side in (Side.UPPER, Side.LOWER)
    )
    return Run(
        subject="forged",
        direction=Direction.REMOVE,
        proposal="naive",
        parameters={},
        nodes=nodes,
        chunk_size=chunk_size,
        seed=1,
    )


def chunk_of(run: Run, stream: int, values: Array) -> Chunk:
    """The statistics of these values of Y."""
    theta = run.nodes[0].theta
    return Chunk(
        stream=stream,
        samples=values.size,
        sums=np.full(2, values.sum()),
        logs=np.array([np.log1p(-theta * values).sum(), np.log1p(theta * values).sum()]),
        largest=float(values.max(initial=0.0)) / run.nodes[0].weight_bound,
        cells=np.empty((0, 2), dtype=np.int32),
        counts=np.empty(0, dtype=np.int64),
    )


def tally_of(run: Run, chunks: list[Chunk]) -> Tally:
    tally = Tally.empty(run)
    for chunk in chunks:
        tally.add(chunk)
    return tally


LAWS = {
    "even": lambda rng, size: rng.uniform(0.0, 0.02, size),
    "rare": lambda rng, size: (rng.random(size) < 0.01).astype(np.float64),
    "very rare": lambda rng, size: (rng.random(size) < 3e-4).astype(np.float64),
    "heavy": lambda rng, size: np.minimum(rng.pareto(1.2, size) * 1e-3, 1.0),
}


@pytest.mark.parametrize(("count", "chunk_size"), [(2000, 1), (800, 64), (200, 512), (40, 4096), (5, 4096)])
@pytest.mark.parametrize("law", LAWS)
def test_forgeries_that_move_a_bound_are_found(law: str, count: int, chunk_size: int) -> None:
    """The best a forger can do: replace the chunks that hurt most, by zeros above and by all there is to gain below."""
    rng, run = np.random.default_rng(5), run_of(0.05, 1.0, chunk_size)
    honest = [chunk_of(run, stream, LAWS[law](rng, chunk_size)) for stream in range(count)]
    truth = tally_of(run, honest)
    for place, side in enumerate((Side.UPPER, Side.LOWER)):
        worst = np.argsort([chunk.logs[place] for chunk in honest])
        forgery = chunk_of(run, 0, np.zeros(chunk_size) if side is Side.UPPER else np.ones(chunk_size))
        for forged in sorted({1, 5, count // 60, count // 20, count // 5} - {0}):
            if forged >= count:
                continue
            chunks = list(honest)
            for stream in worst[:forged]:
                chunks[stream] = replace(forgery, stream=int(stream))
            claimed = tally_of(run, chunks)
            better, true = claimed.node_bound(place), truth.node_bound(place)
            moved = true / better - 1.0 if side is Side.UPPER else better / true - 1.0 if true > 0.0 else 1.0
            if moved <= MOVED or better <= 0.0:
                continue
            drawn = redraws(claimed, chunks, QUESTION, 0.0)
            assert comb(count - forged, drawn) * round(1.0 / MISSED) <= comb(count, drawn)


def test_many_even_chunks_need_few_draws() -> None:
    rng, run = np.random.default_rng(6), run_of(0.05, 1.0, 2048)
    chunks = [chunk_of(run, stream, LAWS["rare"](rng, 2048)) for stream in range(3000)]
    assert 100 < redraws(tally_of(run, chunks), chunks, QUESTION, 0.0) < 400


RUN = run_of(0.3, 1.0, 1000)
HONEST = chunk_of(RUN, 0, np.random.default_rng(7).uniform(0.0, 1.0, 1000))
IMPOSSIBLE = {
    "logs above zero": replace(HONEST, logs=np.array([1.0, HONEST.logs[1]])),
    "logs below those of M": replace(HONEST, logs=np.array([1000 * np.log1p(-0.301), HONEST.logs[1]])),
    "a lower log below zero": replace(HONEST, logs=np.array([HONEST.logs[0], -1.0])),
    "a lower log above that of M": replace(HONEST, logs=np.array([HONEST.logs[0], 1e5])),
    "negative sums": replace(HONEST, sums=np.array([-1.0, HONEST.sums[1]])),
    "sums above M": replace(HONEST, sums=np.array([1001.0, HONEST.sums[1]])),
    "logs without values": replace(HONEST, sums=np.zeros(2)),
    "values without logs": replace(HONEST, logs=np.zeros(2)),
    "more than the concave logarithm allows": replace(HONEST, logs=HONEST.logs * np.array([1.2, 1.0])),
    "less than it allows": replace(HONEST, logs=HONEST.logs * np.array([0.9, 1.0])),
    "not a number": replace(HONEST, logs=np.array([np.nan, HONEST.logs[1]])),
    "infinite": replace(HONEST, logs=np.array([HONEST.logs[0], np.inf])),
    "a negative largest value": replace(HONEST, largest=-0.1),
    "a largest value above M": replace(HONEST, largest=1.1),
}


@pytest.mark.parametrize("forgery", IMPOSSIBLE)
def test_values_that_no_samples_have_are_refused(forgery: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunk, path = IMPOSSIBLE[forgery], tmp_path / "x.sqlite"
    with EvidenceStore.open(path) as store:
        with pytest.raises(InvalidInputError, match="not one of the run"):
            store.add(RUN, chunk)
        with monkeypatch.context() as blind:
            blind.setattr(store_module, "misfit", lambda run, chunk: None)
            store.add(RUN, chunk)
        for read in (store.check, lambda: list(store.chunks(RUN))):
            with pytest.raises(EvidenceError, match="is damaged"):
                read()
    with EvidenceStore.open(tmp_path / "y.sqlite") as target, pytest.raises(EvidenceError, match="is damaged"):
        target.merge(path)
    with pytest.raises(InvalidInputError, match="not one of the run"):
        MemoryLedger().add(RUN, chunk)
    with pytest.raises(VerificationError, match="not one of the run"):
        Tally.empty(RUN).add(chunk)


def test_values_that_samples_have_are_kept() -> None:
    rng = np.random.default_rng(8)
    for theta in (1e-12, 0.3, 0.9):
        run = run_of(theta, 2.0, 500)
        for values in (np.zeros(500), np.full(500, 2.0), rng.uniform(0.0, 2.0, 500), rng.random(500) ** 40):
            MemoryLedger().add(run, chunk_of(run, 0, values))
