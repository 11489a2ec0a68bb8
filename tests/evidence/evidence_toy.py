"""A toy proposal, runs of it, and as a script: a process that forks children which fill stores and can be killed.

Every line on stdin is the JSON of the arguments of one of FILLERS; the answers are the child's number, when it has
started, and its exit code, negative for a signal.
"""

import json
import os
import sqlite3
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from hockeystick.evidence import EvidenceStore
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.runs import run_chunk
from hockeystick.samples import Chunk, Node, Run
from hockeystick.types import Direction, Side


@dataclass(frozen=True, kw_only=True, eq=False)
class Toy(Proposal):
    """Normal losses, independent weights below 1."""

    name: ClassVar[str] = "toy"
    chosen: ClassVar[tuple[str, ...]] = ("mean",)
    mean: float = 0.5

    @property
    def cost(self) -> float:
        return 1e-7

    def weight_bound(self, epsilon: float) -> float:
        return 1.0

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        log_weights[:] = -np.abs(rng.standard_normal(log_weights.size))
        losses[:] = self.mean + rng.standard_normal(losses.size)


def toy_run(seed: int = 7, chunk_size: int = 256, subject: str = "toy") -> Run:
    places = ((Side.UPPER, 0.5), (Side.UPPER, 1.0), (Side.LOWER, 1.0))
    return Run(
        subject=subject,
        direction=Direction.REMOVE,
        proposal=Toy.name,
        parameters=Toy(direction=Direction.REMOVE).parameters,
        nodes=tuple(
            Node(side=side, epsilon=epsilon, theta=0.3, weight_bound=1.0 + 1e-6, failure=1e-3)
            for side, epsilon in places
        ),
        chunk_size=chunk_size,
        seed=seed,
    )


TOY = Toy(direction=Direction.REMOVE)


@cache
def toy_chunk(run_seed: int, stream: int, chunk_size: int = 256) -> Chunk:
    return run_chunk(TOY, toy_run(run_seed, chunk_size), stream)


def fill(path: str, seed: int, streams: Iterable[int]) -> None:
    """What a driver does: draw what is not there yet and keep it."""
    run = toy_run(seed)
    with EvidenceStore.open(path) as store:
        present = store.streams(run)
        for stream in streams:
            if stream not in present:
                store.add(run, run_chunk(TOY, run, stream))


def fill_streams(path: str, seed: int, first: int, end: int, step: int = 1) -> None:
    fill(path, seed, range(first, end, step))


def merge(path: str, source: str) -> None:
    with EvidenceStore.open(path) as store:
        store.merge(source)


def prune(path: str) -> None:
    with EvidenceStore.open(path) as store:
        store.prune(keep=[])


FILLERS = {"fill": fill_streams, "merge": merge, "prune": prune}


def content(path: str | Path) -> dict[str, list[tuple]]:
    """Everything in a store, read without our own code, in an order of its own."""
    connection = sqlite3.connect(path)
    try:
        return {
            "runs": connection.execute("SELECT * FROM runs ORDER BY key").fetchall(),
            "chunks": connection.execute("SELECT * FROM chunks ORDER BY run, stream").fetchall(),
            "seeds": connection.execute("SELECT * FROM seeds ORDER BY seed").fetchall(),
        }
    finally:
        connection.close()


def main() -> None:
    toy_chunk(0, 0)  # the kernels are compiled, or loaded, once for all children
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            FILLERS[name](*arguments)
            os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
