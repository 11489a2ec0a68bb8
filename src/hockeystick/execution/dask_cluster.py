"""Chunks on a Dask cluster (extra ``dask``)."""

from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, cast

from distributed import Client, KilledWorker
from distributed import Future as DaskFuture
from distributed.comm import CommClosedError

from hockeystick.execution.cluster import Addresses, Batch, Cancel, Cluster, compute
from hockeystick.execution.work import ExecutionError, settle
from hockeystick.monte_carlo.proposals import Proposal

ADDRESSES = Addresses("Dask scheduler", "tcp://10.0.0.1:8786", ("", "tcp", "tls", "ws", "wss"))
CONNECT_SECONDS = 10
WORKER_SECONDS = 120
"""Time allowed for the scheduler to answer, and for the first worker to appear."""


class DaskCluster(Cluster):
    """The workers of the scheduler at an address such as ``tcp://10.0.0.1:8786``.

    Not through ``Client.get_executor()``, whose futures may never be done (docs/adr/0005-execution-over-joblib.md).
    """

    lost = (CancelledError, CommClosedError, TimeoutError)

    def __init__(self, address: str) -> None:
        ADDRESSES.check(address)
        try:
            self._client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError):
            raise ADDRESSES.wrong(address) from None

    def width(self) -> int:
        if not self._client.ncores():
            try:
                self._client.wait_for_workers(1, timeout=WORKER_SECONDS)
            except TimeoutError:
                raise ExecutionError(f"The Dask cluster has no worker after {WORKER_SECONDS} seconds.") from None
        return max(1, int(sum(self._client.ncores().values())))

    def ship(self, proposal: Proposal) -> Any:
        """Send a copy to every worker; workers that join later fetch it once from another."""
        return self._client.scatter(proposal, broadcast=True, hash=False)

    def start(self, batch: Batch, shipped: Any, job: "Future[list[Any]]") -> Cancel:
        future: DaskFuture = self._client.submit(compute, batch, shipped, pure=False)
        future.add_done_callback(lambda done: settle(job, partial(_result, done)))
        return partial(future.cancel, force=True)

    def close(self) -> None:
        self._client.close()


def _result(done: DaskFuture) -> list[Any]:
    try:
        return cast(list[Any], done.result())
    except KilledWorker as error:  # Dask has retried on several workers
        raise ExecutionError("A task killed several Dask workers; they may need more memory.") from error
