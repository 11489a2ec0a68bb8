"""What a worker does: compute one chunk on one thread, unless it was cancelled; and how the outcome is handed on."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from hockeystick.errors import HockeystickError
from hockeystick.samples import KERNELS, Chunk, Run

if TYPE_CHECKING:
    from hockeystick.monte_carlo.proposals import Proposal


class ExecutionError(HockeystickError):
    """Workers were lost, or cannot compute this run (exit code 1)."""

    exit_code = 1


@dataclass(frozen=True)
class Task:
    """One chunk to compute. The proposal is passed separately: it is the same for all chunks and may be large."""

    run: Run
    stream: int

    def __call__(self, proposal: "Proposal", check: Callable[[], None] = lambda: None) -> Chunk:
        """Compute the chunk, with ``check`` before each block of samples.

        Raises: ExecutionError if this worker has another version of the kernels than the run.
        """
        from hockeystick.monte_carlo.runs import run_chunk

        if self.run.kernels != KERNELS:
            raise ExecutionError(
                f"The run needs version {self.run.kernels} of the sampling kernels, and a worker has version "
                f"{KERNELS}; install the same version of hockeystick everywhere."
            )
        with one_blas_thread():
            return run_chunk(proposal, self.run, self.stream, check)


class _OneBlasThread:
    """Keeps matrix products on the calling thread while any chunk is computed in this process.

    A product spread over all cores would compete with the other chunks, and may round differently. The limit holds
    for the whole process: the first chunk sets it, the last one restores it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limit: threadpool_limits | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._limit = threadpool_limits(limits=1, user_api="blas")
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0 and self._limit is not None:
                    self._limit.restore_original_limits()


one_blas_thread = _OneBlasThread()


class Cancelled(Exception):
    """The chunk is no longer wanted."""


class Stop:
    """Cancels the chunks that threads of this process are computing, and waits for the threads."""

    def __init__(self) -> None:
        self._stopped = False
        self._running = 0
        self._idle = threading.Condition()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Wraps the work on one chunk."""
        with self._idle:
            self._running += 1
        try:
            self.check()
            yield
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def check(self) -> None:
        """Raise Cancelled when the work is no longer wanted."""
        if self._stopped:
            raise Cancelled

    def stop(self) -> None:
        """Cancel, and return once every thread has noticed: within the time of one block of samples."""
        self._stopped = True
        with self._idle:
            self._idle.wait_for(lambda: self._running == 0)


def settle(job: "Future[Any]", result: Callable[[], Any]) -> None:
    """Set the result or the exception of a job, unless it was cancelled."""
    if not job.set_running_or_notify_cancel():
        return
    try:
        value = result()
    except BaseException as error:
        job.set_exception(error)
    else:
        job.set_result(value)
