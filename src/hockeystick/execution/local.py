"""Chunks on threads of this process, as their kernels release the interpreter lock; calls in processes."""

import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from queue import Empty
from threading import current_thread, main_thread
from typing import Any

from joblib import Parallel, cpu_count, delayed
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import BrokenProcessPool

from hockeystick.errors import InvalidInputError
from hockeystick.execution.base import ChunkExecutor, as_they_finish
from hockeystick.execution.work import ExecutionError, Stop, Task, settle
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.samples import Chunk, Run


class LocalExecutor(ChunkExecutor):
    """Computes chunks on threads and calls in processes: a given number, or one per processor that may be used.

    With one worker a call is made at once, in this process.
    """

    def __init__(self, workers: int | None, address: str | None) -> None:
        if address is not None:
            raise InvalidInputError("The 'address' field is for clusters; leave it out for the backend 'local'.")
        self._workers = workers or cpu_count()  # heeds the process's affinity and its container's share
        self._processes: ProcessPoolExecutor | None = None

    @property
    def workers(self) -> int:
        return self._workers

    @property
    def threads(self) -> int:
        """Threads of this process for what is drawn beside the chunks."""
        return self._workers

    def _compute(self, proposal: Proposal, run: Run, streams: Sequence[int]) -> Generator[Chunk, None, None]:
        wanted = Stop()

        def chunk(stream: int) -> Chunk:
            with wanted.running():
                return Task(run, stream)(proposal, wanted.check)

        parallel = Parallel(n_jobs=self.workers, backend="threading", return_as="generator_unordered")
        return as_they_finish(parallel, (delayed(chunk)(stream) for stream in streams), wanted.stop)

    def submit(self, call: Callable[[], Any]) -> "Future[Any]":
        job: Future[Any] = Future()
        if self._workers == 1:
            settle(job, call)
            return job
        if self._processes is None:
            self._processes = ProcessPoolExecutor(self._workers)
        with _without_interruptions():
            inside: Future[Any] = self._processes.submit(call)
        inside.add_done_callback(lambda done: settle(job, partial(_result, done)))
        return job

    def abandon(self) -> None:
        if self._processes is not None:
            with suppress(Empty):  # loky fails on calls that it has not yet handed out when it is shut down
                while True:
                    self._processes._work_ids.get_nowait()
            self._processes.shutdown(kill_workers=True)
            self._processes = None


def _result(done: "Future[Any]") -> Any:
    try:
        return done.result()
    except BrokenProcessPool as error:
        raise ExecutionError(
            "A worker process ended before its work was done, perhaps for lack of memory; use fewer workers."
        ) from error


@contextmanager
def _without_interruptions() -> Iterator[None]:
    """For starting processes, which inherit it: Ctrl-C is for this process, which ends them.

    An interruption that comes meanwhile, and may be handled by any thread, is repeated at the end: it would leave
    processes behind that were half started.
    """
    resource_tracker.ensure_running()  # started later, by loky, it would let interruptions in again
    came: list[int] = []
    handler = None
    if current_thread() is main_thread():
        handler = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # what was pending comes here
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)
