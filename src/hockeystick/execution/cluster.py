"""Chunks on the workers of a cluster, through a joblib backend of our own; and calls, one by one.

The Dask and Ray backends that ship with joblib and Ray do not serve: the first waits forever once the cluster gives up
on a task; the second cannot yield results as they finish, and starts new processes on every call.
"""

import socket
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlsplit

from joblib import Parallel, delayed
from joblib.parallel import ParallelBackendBase

from hockeystick.errors import InvalidInputError, shortened
from hockeystick.execution.base import ChunkExecutor, as_they_finish
from hockeystick.execution.work import Cancelled, ExecutionError, Task, settle
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.samples import Chunk, Run

ATTEMPTS = 3
"""Consecutive breakdowns without a single new chunk after which the work is given up."""
QUEUE = 2
"""Chunks in flight per worker, so that no worker waits for its next one."""

ANSWER_SECONDS = 5
"""Time allowed for an address to accept a connection."""

Batch = Callable[[], Sequence[Callable[[Any], Any]]]
"""What joblib submits: a callable that returns its tasks on the worker."""
Cancel = Callable[[], object]


def run_to_its_end() -> None:
    """Withdraws nothing: work that a cluster has begun runs to its end there."""


class Cluster(ABC):
    """Worker processes, here or elsewhere."""

    lost: ClassVar[tuple[type[BaseException], ...]]
    """Raised for work that was lost with its worker and can be retried."""

    @abstractmethod
    def width(self) -> int:
        """Number of available processors, at least 1; waits a while for the first, then raises ExecutionError."""

    @abstractmethod
    def ship(self, proposal: Proposal) -> Any:
        """Send the proposal to the cluster once per worker; returns a reference to pass to :meth:`start`."""

    @abstractmethod
    def start(self, batch: Batch, shipped: Any, job: "Future[list[Any]]") -> Cancel:
        """Run ``compute(batch, proposal)`` on a worker and settle ``job`` with its outcome.

        Returns what withdraws the work, as far as the cluster can do that without harm.
        """

    @abstractmethod
    def close(self) -> None:
        """Disconnect from the cluster, and stop it if it was started here."""


@dataclass(frozen=True)
class Addresses:
    """The form of the addresses of one kind of cluster.

    Attributes:
        whose: what answers there.
        example: an address, for errors.
        schemes: allowed prefixes before ``://``; the empty string for none.
    """

    whose: str
    example: str
    schemes: tuple[str, ...]

    def check(self, address: str) -> None:
        """Refuse an address where nothing listens; the clusters' own packages report it late and at length."""
        try:
            place = urlsplit(address if "://" in address else f"//{address}")
            if place.scheme not in self.schemes or not place.hostname or not place.port:
                raise ValueError
            socket.create_connection((place.hostname, place.port), timeout=ANSWER_SECONDS).close()
        except (OSError, ValueError):
            raise self.wrong(address) from None

    def wrong(self, address: str) -> InvalidInputError:
        """The error for an address that does not answer."""
        return InvalidInputError(
            f"The 'address' field must be that of a running {self.whose}, such as {self.example}. "
            f"Got {shortened(address)} instead, which does not answer."
        )


def compute(batch: Batch, proposal: Proposal | None) -> list[Any]:
    """The function that a worker runs."""
    return [task(proposal) for task in batch()]


@dataclass(frozen=True)
class OneCall:
    """A batch of one call, which needs no proposal."""

    call: Callable[[], Any]

    def __call__(self) -> Sequence[Callable[[Any], Any]]:
        return [lambda proposal: self.call()]


class ClusterExecutor(ChunkExecutor):
    """Computes chunks on a cluster. Chunks lost with a worker are computed again; each is identified by its stream.

    Calls wait here until a worker is free, as a cluster may be unable to give back what it has been handed.
    """

    def __init__(self, cluster: Cluster, workers: int | None) -> None:
        self._cluster = cluster
        self._most = workers
        self._shipped: tuple[Proposal, Any] | None = None
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._begun: dict[Future[Any], Cancel] = {}
        self._slots = 0

    @property
    def workers(self) -> int:
        return self._most or self._cluster.width()

    def close(self) -> None:
        super().close()
        self._shipped = None
        self._cluster.close()

    def submit(self, call: Callable[[], Any]) -> "Future[Any]":
        job: Future[Any] = Future()
        workers = self.workers
        with self._lock:
            self._waiting.append((call, job))
            self._slots = workers
        self._begin()
        return job

    def _begin(self) -> None:
        """Hand waiting calls to free workers; called again, in the cluster's threads, when a call has ended."""
        while True:
            with self._lock:
                if not self._waiting or len(self._begun) >= self._slots:
                    return
                call, job = self._waiting.popleft()
                withdrawn = job.cancelled()
                if not withdrawn:
                    self._begun[job] = run_to_its_end
            if withdrawn:
                job.set_running_or_notify_cancel()  # for those who wait for it
                continue
            inside: Future[list[Any]] = Future()
            try:
                cancel = self._cluster.start(OneCall(call), None, inside)
            except Exception as error:
                inside.set_exception(_takes_no_more(error))
            else:
                with self._lock:
                    self._begun[job] = cancel
            if inside.done():  # a callback would call this again from within, once for each call that waits
                self._end(job, inside)
            else:
                inside.add_done_callback(partial(self._ended, job))

    def _ended(self, job: "Future[Any]", inside: "Future[list[Any]]") -> None:
        self._end(job, inside)
        self._begin()

    def _end(self, job: "Future[Any]", inside: "Future[list[Any]]") -> None:
        with self._lock:
            del self._begun[job]
        settle(job, partial(self._result, inside))

    def _result(self, inside: "Future[list[Any]]") -> Any:
        try:
            return inside.result()[0]
        except self._cluster.lost as error:  # the cluster has tried again itself
            raise ExecutionError(
                f"The cluster lost its work ({shortened(str(error))}); look at the memory and the logs of its workers."
            ) from error

    def abandon(self) -> None:
        with self._lock:
            waiting, begun = [job for _, job in self._waiting], dict(self._begun)
            self._waiting.clear()
        for job in (*waiting, *begun):
            job.cancel()
        for job in waiting:
            job.set_running_or_notify_cancel()  # for those who wait for it
        for cancel in begun.values():
            with suppress(Exception):  # the cluster may be gone
                cancel()

    def _compute(self, proposal: Proposal, run: Run, streams: Sequence[int]) -> Generator[Chunk, None, None]:
        missing = dict.fromkeys(streams)
        breakdowns = 0
        while missing:
            backend = _JoblibBackend(self._cluster, self._ship(proposal), self._most)
            before = len(missing)
            parallel = Parallel(
                n_jobs=-1,
                backend=backend,
                return_as="generator_unordered",
                batch_size=1,
                pre_dispatch=backend.handed_out,
            )
            calls = (delayed(Task)(run, stream) for stream in list(missing))
            for chunk in as_they_finish(parallel, calls, backend.abort_everything):
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
        """The reference to the proposal on the cluster; the proposal of the last call is kept there."""
        if self._shipped is None or self._shipped[0] is not proposal:
            self._shipped = (proposal, self._cluster.ship(proposal))
        return self._shipped[1]


def _takes_no_more(error: Exception) -> ExecutionError:
    return ExecutionError(f"The cluster takes no more work: {shortened(str(error))}.")


class _JoblibBackend(ParallelBackendBase):  # type: ignore[misc]
    """Submits the batches of one ``joblib.Parallel`` call to a cluster that already holds the proposal."""

    supports_retrieve_callback = True

    def __init__(self, cluster: Cluster, shipped: Any, most: int | None) -> None:
        super().__init__(nesting_level=0)
        self._cluster, self._shipped = cluster, shipped
        self.handed_out = most or QUEUE * cluster.width()
        self.failure: BaseException | None = None
        self._cancels: dict[Future[list[Any]], Cancel] = {}
        self._stopped = False

    def effective_n_jobs(self, n_jobs: int) -> int:
        return max(self.handed_out, 2)  # with 1 joblib would compute in this process

    def submit(self, func: Batch, callback: Callable[["Future[list[Any]]"], object]) -> "Future[list[Any]]":
        """Submit a batch. Never raises, as joblib's threads swallow exceptions: the job fails instead."""
        job: Future[list[Any]] = Future()
        try:
            self._cancels[job] = self._cluster.start(func, self._shipped, job)
        except Exception as error:
            job.set_exception(_takes_no_more(error))
        if self._stopped:
            job.cancel()
        job.add_done_callback(lambda done: self._cancels.pop(done, None))
        job.add_done_callback(callback)
        return job

    def retrieve_result_callback(self, out: "Future[list[Any]]") -> list[Chunk]:
        """The chunks of a batch; none if they were lost, so that joblib goes on with the others."""
        if self._stopped:
            raise Cancelled
        try:
            return out.result()
        except self._cluster.lost as failure:
            self.failure = failure
            return []

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel pending work here and on the cluster; a chunk that a worker has begun may run to its end."""
        self._stopped = True
        for job, cancel in list(self._cancels.items()):
            job.cancel()
            with suppress(Exception):  # the cluster may be gone
                cancel()
