"""All backends, one line each. A cluster's package is imported only when its backend is used."""

from collections.abc import Callable
from importlib.util import find_spec

from hockeystick.errors import InvalidInputError, install
from hockeystick.execution.base import ChunkExecutor
from hockeystick.misspelt import one_of

MAX_WORKERS = 1 << 14

Factory = Callable[[int | None, str | None], ChunkExecutor]
"""Makes an executor from an optional number of workers and an optional address."""


def _local(workers: int | None, address: str | None) -> ChunkExecutor:
    from hockeystick.execution.local import LocalExecutor

    return LocalExecutor(workers, address)


def _dask(workers: int | None, address: str | None) -> ChunkExecutor:
    if address is None:
        raise InvalidInputError(
            "The 'address' field is missing; a Dask cluster is named by its scheduler, such as tcp://10.0.0.1:8786."
        )
    _needs("dask", "distributed")
    from hockeystick.execution.cluster import ClusterExecutor
    from hockeystick.execution.dask_cluster import DaskCluster

    return ClusterExecutor(DaskCluster(address), workers)


def _ray(workers: int | None, address: str | None) -> ChunkExecutor:
    _needs("ray", "ray")
    from hockeystick.execution.cluster import ClusterExecutor
    from hockeystick.execution.ray_cluster import RayCluster

    return ClusterExecutor(RayCluster(address, workers), workers)


BACKENDS: dict[str, Factory] = {
    "local": _local,
    "dask": _dask,
    "ray": _ray,
}


def executor(backend: str = "local", workers: int | None = None, address: str | None = None) -> ChunkExecutor:
    """An executor for Monte Carlo accountants; use it with ``with``, or close it.

    Args:
        backend: ``local`` for threads of this process, ``dask`` or ``ray`` for a cluster.
        workers: chunks at a time; by default one per processor.
        address: of the cluster; required for ``dask``. Without it ``ray`` starts processes on this machine.

    Raises: InvalidInputError in one sentence for an unknown backend, a package that is not installed, or an address
    that does not answer.
    """
    one_of("backend", backend, BACKENDS)
    if workers is not None and not 1 <= workers <= MAX_WORKERS:
        raise InvalidInputError(f"The 'workers' field must be from 1 to {MAX_WORKERS}. Got {workers} instead.")
    return BACKENDS[backend](workers, address)


def _needs(extra: str, module: str) -> None:
    if find_spec(module) is None:
        raise InvalidInputError(
            f"The backend {extra!r} needs the package {module!r}, which is not installed; {install(extra)}."
        )
