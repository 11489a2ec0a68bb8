"""Chunks on a Ray cluster, or on a Ray of one's own on this machine (extra ``ray``)."""

import os
from concurrent.futures import Future
from functools import partial
from typing import Any

import ray
from ray.exceptions import NodeDiedError, ObjectLostError, RaySystemError, WorkerCrashedError

from hockeystick.execution.cluster import Addresses, Batch, Cancel, Cluster, compute, settle
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.samples import Chunk

ADDRESSES = Addresses("Ray cluster", "auto or ray://10.0.0.1:10001", ("", "ray"))
LOCAL = "local"
_PRINTER: Any = ray._private.worker


class RayCluster(Cluster):
    """The cluster at an address, in ``RAY_ADDRESS``, or else one of our own with some processes on this machine.

    A Ray that the program has started or joined before is used as it is, and left running.
    """

    lost = (WorkerCrashedError, NodeDiedError, ObjectLostError, RaySystemError)

    def __init__(self, address: str | None, workers: int | None) -> None:
        self._ours = not ray.is_initialized()
        if self._ours:
            _connect(address or os.environ.get("RAY_ADDRESS") or LOCAL, workers)
        self._compute = ray.remote(compute).options(num_cpus=1, max_retries=3)  # that is for lost workers
        self._print = _say_on_stderr() if self._ours else None

    def width(self) -> int:
        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def ship(self, proposal: Proposal) -> Any:
        """Into the object store; workers of one node share its copy."""
        return ray.put(proposal)

    def start(self, batch: Batch, shipped: Any, job: "Future[list[Chunk]]") -> Cancel:
        reference = self._compute.remote(batch, shipped)
        reference.future().add_done_callback(lambda done: settle(job, done.result))
        return partial(ray.cancel, reference)

    def close(self) -> None:
        if self._ours:
            ray.shutdown()
            _PRINTER.print_to_stdstream = self._print


def _connect(address: str, workers: int | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == LOCAL:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # who only wants a bound does not want to report it
        ray.init(address=LOCAL, num_cpus=workers, include_dashboard=False, **quiet)
        return
    if address != "auto":
        ADDRESSES.check(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError):
        raise ADDRESSES.wrong(address) from None


def _say_on_stderr() -> Any:
    """What Ray says of lost workers it prints on stdout, where results go. Returns what printed before."""
    before = _PRINTER.print_to_stdstream

    def printed(data: dict[str, Any], **options: Any) -> None:
        before(data | {"is_err": True}, **options)

    _PRINTER.print_to_stdstream = printed
    return before
