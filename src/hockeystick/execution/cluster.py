"""Chunks on the workers of a cluster, through joblib's interface for backends of others.

The backends for Dask and Ray that those projects and joblib ship do not do: the one waits for ever once the cluster
gives up on a task, the other cannot yield results as they come and starts new processes for every call.
"""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from joblib import Parallel, delayed
from joblib.parallel import ParallelBackendBase

from hockeystick.errors import InvalidInputError, shortened
from hockeystick.execution.base import ChunkExecutor
from hockeystick.execution.work import Cancelled, ExecutionError, Task
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.samples import Chunk, Run

ATTEMPTS = 3
"""How often in a row the work on what is missing may break down without a single new chunk."""
QUEUE = 2
"""Chunks that are handed out for each worker, so that none waits for the next one."""

ANSWER_SECONDS = 5
"""How long an address may take to accept a connection."""

Batch = Callable[[], Sequence[Task]]
"""What joblib hands out: it makes the tasks where it is called."""
Cancel = Callable[[], object]


class Cluster(ABC):
    """Worker processes, here or elsewhere."""

    lost: ClassVar[tuple[type[BaseException], ...]]
    """What is raised for work that got lost with its worker, and may be done again."""

    @abstractmethod
    def width(self) -> int:
        """Processors there are now, at least 1; waits for a while for the first. Raises ExecutionError without any."""

    @abstractmethod
    def ship(self, proposal: Proposal) -> Any:
        """Give the proposal to the cluster, once for each worker; the answer stands for it in :meth:`start`."""

    @abstractmethod
    def start(self, batch: Batch, shipped: Any, job: "Future[list[Chunk]]") -> Cancel:
        """Have ``compute(batch, proposal)`` done by a worker, and settle ``job`` with it."""

    @abstractmethod
    def close(self) -> None:
        """Leave the cluster, and stop it where it was started for this."""


@dataclass(frozen=True)
class Addresses:
    """What addresses of one kind of cluster look like.

    Attributes:
        whose: what answers there.
        example: an address, for errors.
        schemes: what may stand before ``://``; empty for an address without it.
    """

    whose: str
    example: str
    schemes: tuple[str, ...]

    def check(self, address: str) -> None:
        """Refuse an address where nothing listens; the clusters' own packages say it late and at length."""
        try:
            place = urlsplit(address if "://" in address else f"//{address}")
            if place.scheme not in self.schemes or not place.hostname or not place.port:
                raise ValueError
            socket.create_connection((place.hostname, place.port), timeout=ANSWER_SECONDS).close()
        except (OSError, ValueError):
            raise self.wrong(address) from None

    def wrong(self, address: str) -> InvalidInputError:
        """What to say of an address that does not answer as it should."""
        return InvalidInputError(
            f"The 'address' field must be that of a running {self.whose}, such as {self.example}. "
            f"Got {shortened(address)} instead, which does not answer."
        )


def compute(batch: Batch, proposal: Proposal) -> list[Chunk]:
    """What a worker runs."""
    return [task(proposal) for task in batch()]


def settle(job: "Future[list[Chunk]]", result: Callable[[], list[Chunk]]) -> None:
    """Give a job its result or its failure, unless it was cancelled."""
    if not job.set_running_or_notify_cancel():
        return
    try:
        value = result()
    except BaseException as error:
        job.set_exception(error)
    else:
        job.set_result(value)


class ClusterExecutor(ChunkExecutor):
    """Chunks on a cluster. What got lost with a worker is computed again; results are told apart by their streams."""

    def __init__(self, cluster: Cluster, workers: int | None) -> None:
        self._cluster = cluster
        self._most = workers
        self._shipped: tuple[Proposal, Any] | None = None

    @property
    def workers(self) -> int:
        return self._most or self._cluster.width()

    def close(self) -> None:
        self._shipped = None
        self._cluster.close()

    def _compute(self, proposal: Proposal, run: Run, streams: Sequence[int]) -> Generator[Chunk, None, None]:
        missing = dict.fromkeys(streams)
        breakdowns = 0
        while missing:
            backend = _JoblibBackend(self._cluster, self._ship(proposal), self._most)
            before = len(missing)
            for chunk in _spread(backend, run, list(missing)):
                del missing[chunk.stream]
                yield chunk
            breakdowns = breakdowns + 1 if len(missing) == before else 0
            if breakdowns == ATTEMPTS:
                raise ExecutionError(
                    f"The cluster lost its work {ATTEMPTS} times in a row ({shortened(str(backend.failure))}); "
                    f"look at the memory and the logs of its workers."
                ) from backend.failure
            if missing:
                self._shipped = None  # the copies may be lost too

    def _ship(self, proposal: Proposal) -> Any:
        """What stands for the proposal on the cluster; the proposal of the last call is there already."""
        if self._shipped is None or self._shipped[0] is not proposal:
            self._shipped = (proposal, self._cluster.ship(proposal))
        return self._shipped[1]


def _spread(backend: "_JoblibBackend", run: Run, streams: Sequence[int]) -> Generator[Chunk, None, None]:
    """Chunks as they are done, without those that got lost."""
    parallel = Parallel(
        n_jobs=-1, backend=backend, return_as="generator_unordered", batch_size=1, pre_dispatch=backend.handed_out
    )
    results = parallel(delayed(Task)(run, stream) for stream in streams)
    try:
        for chunk in results:  # noqa: UP028 (joblib warns when its generator is closed early)
            yield chunk
    finally:
        backend.abort_everything()
        with suppress(Exception):  # of chunks that nobody wants any more
            for _ in results:
                pass


class _JoblibBackend(ParallelBackendBase):  # type: ignore[misc]
    """Hands the batches of one call of joblib's ``Parallel`` to a cluster, with the proposal that is there already."""

    supports_retrieve_callback = True

    def __init__(self, cluster: Cluster, shipped: Any, most: int | None) -> None:
        super().__init__(nesting_level=0)
        self._cluster, self._shipped = cluster, shipped
        self.handed_out = most or QUEUE * cluster.width()
        self.failure: BaseException | None = None
        self._cancels: dict[Future[list[Chunk]], Cancel] = {}
        self._stopped = False

    def effective_n_jobs(self, n_jobs: int) -> int:
        return max(self.handed_out, 2)  # with 1 joblib would compute in this process

    def submit(self, func: Batch, callback: Callable[["Future[list[Chunk]]"], object]) -> "Future[list[Chunk]]":
        """Never raises: joblib calls this from threads where nobody would notice. The job fails instead."""
        job: Future[list[Chunk]] = Future()
        try:
            self._cancels[job] = self._cluster.start(func, self._shipped, job)
        except Exception as error:
            job.set_exception(ExecutionError(f"The cluster takes no more work: {shortened(str(error))}."))
        if self._stopped:
            job.cancel()
        job.add_done_callback(lambda done: self._cancels.pop(done, None))
        job.add_done_callback(callback)
        return job

    def retrieve_result_callback(self, out: "Future[list[Chunk]]") -> list[Chunk]:
        """The chunks of a batch: none when they got lost, so that joblib goes on with the others."""
        if self._stopped:
            raise Cancelled
        try:
            return out.result()
        except self._cluster.lost as failure:
            self.failure = failure
            return []

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what is handed out, here and on the cluster; what a worker is in the middle of may run to its end."""
        self._stopped = True
        for job, cancel in list(self._cancels.items()):
            job.cancel()
            with suppress(Exception):  # the cluster may be gone
                cancel()
