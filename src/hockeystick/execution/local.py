"""Chunks on threads of this process: the kernels release the interpreter lock, so nothing is copied or started."""

from collections.abc import Generator, Sequence
from contextlib import suppress

from joblib import Parallel, cpu_count, delayed

from hockeystick.errors import InvalidInputError
from hockeystick.execution.base import ChunkExecutor
from hockeystick.execution.work import Stop, StoppableProposal, Task
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.samples import Chunk, Run


class LocalExecutor(ChunkExecutor):
    """Threads, as many as processors that this process may use, or a given number."""

    def __init__(self, workers: int | None, address: str | None) -> None:
        if address is not None:
            raise InvalidInputError("The 'address' field is for clusters; leave it out for the backend 'local'.")
        self._workers = workers or cpu_count()  # heeds the process's affinity and its container's share

    @property
    def workers(self) -> int:
        return self._workers

    def _compute(self, proposal: Proposal, run: Run, streams: Sequence[int]) -> Generator[Chunk, None, None]:
        wanted = Stop()
        stoppable = StoppableProposal(direction=proposal.direction, proposal=proposal, wanted=wanted)

        def chunk(stream: int) -> Chunk:
            with wanted.running():
                return Task(run, stream)(stoppable)

        parallel = Parallel(n_jobs=self.workers, backend="threading", return_as="generator_unordered")
        results = parallel(delayed(chunk)(stream) for stream in streams)
        try:
            for result in results:  # noqa: UP028 (joblib warns when its generator is closed early)
                yield result
        finally:
            wanted.stop()
            with suppress(Exception):  # of chunks that nobody wants any more
                for _ in results:
                    pass
