"""The base of all executors: streams are taken in blocks, and workers are held until the executor is closed."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from hockeystick.samples import Chunk, Run

if TYPE_CHECKING:
    from joblib import Parallel

    from hockeystick.monte_carlo.proposals import Proposal

LOOK_AHEAD = 32
"""Chunks per worker that are started at a time. joblib goes on computing while nobody takes the results, so this many
can also wait in memory, at some tens of kilobytes each."""


class ChunkExecutor(ABC):
    """An ``Executor`` of the Monte Carlo accountants that can be closed, and used with ``with``; it also takes calls.

    Every requested stream comes exactly once, in any order, or the iteration raises. Closing the iteration early, by
    an exception in the consumer or by Ctrl-C, cancels pending work.
    """

    def __call__(self, proposal: "Proposal", run: Run, streams: Iterable[int]) -> Generator[Chunk, None, None]:
        """Yield the chunks of a run as they finish."""
        ahead = iter(streams)
        while block := list(dict.fromkeys(islice(ahead, LOOK_AHEAD * self.workers))):
            yield from self._compute(proposal, run, block)

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many chunks can be computed at the same time."""

    @abstractmethod
    def _compute(self, proposal: "Proposal", run: Run, streams: Sequence[int]) -> Generator[Chunk, None, None]:
        """Yield the chunk of each of these distinct streams once; a ``finally`` clause cancels pending work."""

    @abstractmethod
    def submit(self, call: Callable[[], Any]) -> "Future[Any]":
        """Start a call that can be pickled, in another process where there are several workers.

        The result can be pickled too. A call that was lost with its worker ends in an ExecutionError.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Cancel the calls that are not done; one that a cluster has begun may run to its end there."""

    def close(self) -> None:
        """Release the workers."""
        self.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def as_they_finish(
    parallel: "Parallel", calls: Iterable[Any], stop: Callable[[], None]
) -> Generator[Chunk, None, None]:
    """The chunks of joblib's unordered generator; ``stop`` ends what is still computed when nobody wants more."""
    results = parallel(calls)
    try:
        for chunk in results:  # noqa: UP028 (joblib warns when its generator is closed early)
            yield chunk
    finally:
        stop()
        with suppress(Exception):  # of chunks that nobody wants any more
            for _ in results:
                pass
