"""Chunks on threads of this process: the kernels release the interpreter lock, so no processes are needed."""

from collections.abc import Generator, Sequence

from joblib import Parallel, cpu_count, delayed

from hockeystick.errors import InvalidInputError
from hockeystick.execution.base import ChunkExecutor, as_they_finish
from hockeystick.execution.work import Stop, Task
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.samples import Chunk, Run


class LocalExecutor(ChunkExecutor):
    """Computes chunks on threads: a given number, or one per processor that this process may use."""

    def __init__(self, workers: int | None, address: str | None) -> None:
        if address is not None:
            raise InvalidInputError("The 'address' field is for clusters; leave it out for the backend 'local'.")
        self._workers = workers or cpu_count()  # heeds the process's affinity and its container's share

    @property
    def workers(self) -> int:
        return self._workers

    def _compute(self, proposal: Proposal, run: Run, streams: Sequence[int]) -> Generator[Chunk, None, None]:
        wanted = Stop()

        def chunk(stream: int) -> Chunk:
            with wanted.running():
                return Task(run, stream)(proposal, wanted.check)

        parallel = Parallel(n_jobs=self.workers, backend="threading", return_as="generator_unordered")
        return as_they_finish(parallel, (delayed(chunk)(stream) for stream in streams), wanted.stop)
