"""Where chunks are kept while a bound is made, and how their computation is spread."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from hockeystick.accountants.monte_carlo.run import Chunk, Run, run_chunk
from hockeystick.accountants.monte_carlo.tilt import Tilt


class Ledger(Protocol):
    """Keeps the chunks of runs. One transaction a chunk; a chunk that is there already is not counted twice."""

    def chunks(self, run: Run) -> Sequence[Chunk]:
        """The stored chunks of a run in the order of their streams: the longest prefix 0, 1, ... without a gap."""

    def streams(self, run: Run) -> frozenset[int]:
        """The streams that are stored, behind gaps too."""

    def add(self, run: Run, chunk: Chunk) -> None:
        """Keep one chunk; durable when this returns."""


class MemoryLedger:
    """Keeps chunks for as long as the process lives."""

    def __init__(self) -> None:
        self._chunks: dict[str, dict[int, Chunk]] = {}

    def chunks(self, run: Run) -> Sequence[Chunk]:
        """The prefix of streams without a gap."""
        kept = self._chunks.get(run.key, {})
        prefix: list[Chunk] = []
        while len(prefix) in kept:
            prefix.append(kept[len(prefix)])
        return prefix

    def streams(self, run: Run) -> frozenset[int]:
        """All streams that are kept."""
        return frozenset(self._chunks.get(run.key, {}))

    def add(self, run: Run, chunk: Chunk) -> None:
        """Keep one chunk; the first one of a stream stays."""
        self._chunks.setdefault(run.key, {}).setdefault(chunk.stream, chunk)


Executor = Callable[[Tilt, Run, Iterable[int]], Iterator[Chunk]]
"""Computes ``run_chunk(tilt, run, stream)`` for some streams and yields the chunks as they are done, in any order."""


def in_this_process(tilt: Tilt, run: Run, streams: Iterable[int]) -> Iterator[Chunk]:
    """One chunk after the other."""
    for stream in streams:
        yield run_chunk(tilt, run, stream)
