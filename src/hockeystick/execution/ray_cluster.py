"""Chunks on a Ray cluster, or on a private Ray instance on this machine (extra ``ray``)."""

import os
from concurrent.futures import Future
from typing import Any

import ray
from ray.exceptions import NodeDiedError, ObjectLostError, RaySystemError, WorkerCrashedError

from hockeystick.execution.cluster import Addresses, Batch, Cancel, Cluster, compute, run_to_its_end
from hockeystick.execution.work import settle
from hockeystick.monte_carlo.proposals import Proposal

ADDRESSES = Addresses("Ray cluster", "auto or ray://10.0.0.1:10001", ("", "ray"))
LOCAL = "local"


class RayCluster(Cluster):
    """The cluster at an address, else the one named by ``RAY_ADDRESS``, else a private one on this machine.

    A Ray instance that the program has already started or joined is used as it is, and left running.

    Nothing that Ray has been handed is cancelled, as this process would be at risk (ADR 0005).
    """

    lost = (WorkerCrashedError, NodeDiedError, ObjectLostError, RaySystemError)

    def __init__(self, address: str | None, workers: int | None) -> None:
        self._ours = not ray.is_initialized()
        if self._ours:
            _connect(address or os.environ.get("RAY_ADDRESS") or LOCAL, workers)
        self._compute = ray.remote(compute).options(num_cpus=1, max_retries=3)  # for lost workers

    def width(self) -> int:
        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def ship(self, proposal: Proposal) -> Any:
        """Put it into the object store; the workers of a node share one copy."""
        return ray.put(proposal)

    def start(self, batch: Batch, shipped: Any, job: "Future[list[Any]]") -> Cancel:
        reference = self._compute.remote(batch, shipped)
        reference.future().add_done_callback(lambda done: settle(job, done.result))
        return run_to_its_end

    def close(self) -> None:
        if self._ours:
            ray.shutdown()


def _connect(address: str, workers: int | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == LOCAL:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # computing a bound should not send usage statistics
        ray.init(address=LOCAL, num_cpus=workers, include_dashboard=False, **quiet)
        return
    if address != "auto":
        ADDRESSES.check(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError):
        raise ADDRESSES.wrong(address) from None
