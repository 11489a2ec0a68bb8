"""Where chunks are kept while a bound is made, and how their computation is spread."""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.runs import Chunk, Run, run_chunk


class Ledger(Protocol):
    """Keeps the chunks of runs. One transaction a chunk; a chunk that is there already is not counted twice."""

    def chunks(self, run: Run, first: int = 0) -> Iterator[Chunk]:
        """The stored chunks of a run in the order of their streams, from ``first`` up to the first gap."""

    def streams(self, run: Run) -> frozenset[int]:
        """The streams that are stored, behind gaps too."""

    def add(self, run: Run, chunk: Chunk) -> None:
        """Keep one chunk; durable when this returns."""

    def seed(self, subject: str) -> int | None:
        """The seed of the first run about this pair, or None when there is none yet."""


class MemoryLedger:
    """Keeps the statistics of chunks, without their cells, for as long as the process lives."""

    def __init__(self) -> None:
        self._chunks: dict[str, dict[int, Chunk]] = {}
        self._seeds: dict[str, int] = {}

    def chunks(self, run: Run, first: int = 0) -> Iterator[Chunk]:
        """The streams from ``first`` up to the first gap."""
        kept = self._chunks.get(run.key, {})
        while first in kept:
            yield kept[first]
            first += 1

    def streams(self, run: Run) -> frozenset[int]:
        """All streams that are kept."""
        return frozenset(self._chunks.get(run.key, {}))

    def add(self, run: Run, chunk: Chunk) -> None:
        """Keep one chunk; the first one of a stream stays."""
        bare = replace(chunk, cells=chunk.cells[:0], counts=chunk.counts[:0])
        self._chunks.setdefault(run.key, {}).setdefault(chunk.stream, bare)
        self._seeds.setdefault(run.subject, run.seed)

    def seed(self, subject: str) -> int | None:
        """The seed of the first run about this pair."""
        return self._seeds.get(subject)


Executor = Callable[[Proposal, Run, Iterable[int]], Generator[Chunk]]
"""Computes ``run_chunk(proposal, run, stream)`` for some streams and yields the chunks as they are done, in any order.
Closing the generator gives up what is not done."""


def in_this_process(proposal: Proposal, run: Run, streams: Iterable[int]) -> Generator[Chunk]:
    """One chunk after the other."""
    for stream in streams:
        yield run_chunk(proposal, run, stream)
