"""What a worker does: one chunk, on one thread, and not at all when it was cancelled."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from hockeystick.errors import HockeystickError
from hockeystick.monte_carlo.proposals import Array, Proposal
from hockeystick.monte_carlo.runs import run_chunk
from hockeystick.samples import KERNELS, Chunk, Run
from hockeystick.types import Side


class ExecutionError(HockeystickError):
    """Workers are lost, or do not suit this run (exit code 1)."""

    exit_code = 1


@dataclass(frozen=True)
class Task:
    """One chunk to compute; the proposal comes separately, because it is the same for all chunks and may be large."""

    run: Run
    stream: int

    def __call__(self, proposal: Proposal) -> Chunk:
        """The chunk.

        Raises: ExecutionError when this worker's kernels are not those that the run was made for.
        """
        if self.run.kernels != KERNELS:
            raise ExecutionError(
                f"The run needs version {self.run.kernels} of the sampling kernels, and a worker has version "
                f"{KERNELS}; install the same version of hockeystick everywhere."
            )
        with one_blas_thread():
            return run_chunk(proposal, self.run, self.stream)


class _OneBlasThread:
    """Keeps matrix products on the thread that calls them, while any chunk is computed in this process.

    A product spread over all cores would fight with the other chunks for them, and may round differently. The limit
    is one for the whole process: the first chunk sets it, the last one takes it back.
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
    """Nobody wants the chunk any more."""


class Stop:
    """Cancels the chunks that the threads of this process work on, and waits until none is left."""

    def __init__(self) -> None:
        self._stopped = False
        self._running = 0
        self._idle = threading.Condition()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around the work on one chunk."""
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
        """Cancel, and return when every thread has noticed: within the time of one block of samples."""
        self._stopped = True
        with self._idle:
            self._idle.wait_for(lambda: self._running == 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class StoppableProposal(Proposal):
    """A proposal that draws the same samples, and looks before each block whether they are wanted."""

    proposal: Proposal
    wanted: Stop

    name = "stoppable"

    @property
    def parameters(self) -> dict[str, float]:
        return self.proposal.parameters

    @property
    def cost(self) -> float:
        return self.proposal.cost

    @property
    def sides(self) -> tuple[Side, ...]:
        return self.proposal.sides

    @property
    def loss_error(self) -> float:
        return self.proposal.loss_error

    def weight_bound(self, epsilon: float) -> float:
        return self.proposal.weight_bound(epsilon)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        self.wanted.check()
        self.proposal.draw(rng, log_weights, losses)
