"""What all executors share: streams are taken in windows, and workers are held until the executor is closed."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import Self

from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.samples import Chunk, Run

LOOK_AHEAD = 32
"""Chunks for each worker that are taken on at a time. joblib computes on while nobody takes the results, so this is
also how many can wait in memory; some tens of kilobytes each."""


class ChunkExecutor(ABC):
    """An ``Executor`` of the Monte Carlo accountants that can be closed, and used with ``with``.

    Every requested stream comes exactly once, in any order, or the iteration raises. To close the iteration before
    its end, by an exception in the consumer or by Ctrl-C, cancels what is left.
    """

    def __call__(self, proposal: Proposal, run: Run, streams: Iterable[int]) -> Generator[Chunk, None, None]:
        """Chunks of a run as they are done."""
        ahead = iter(streams)
        while window := list(dict.fromkeys(islice(ahead, LOOK_AHEAD * self.workers))):
            yield from self._compute(proposal, run, window)

    @property
    @abstractmethod
    def workers(self) -> int:
        """Chunks that can be computed at the same time."""

    @abstractmethod
    def _compute(self, proposal: Proposal, run: Run, streams: Sequence[int]) -> Generator[Chunk, None, None]:
        """Every one of some different streams exactly once; a ``finally`` clause cancels what is left."""

    def close(self) -> None:  # noqa: B027 (threads need none)
        """Let the workers go."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
