"""Real clusters on this machine: the same bits as in one process, also when workers are killed in mid-run."""

import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import closing
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from joblib import Parallel, delayed

import hockeystick as hs
from hockeystick.cli.common import emit
from hockeystick.cli.sampling import Places
from hockeystick.errors import InvalidInputError
from hockeystick.execution import executor
from hockeystick.execution.base import ChunkExecutor
from hockeystick.execution.cluster import ATTEMPTS, QUEUE, Batch, Cluster, ClusterExecutor, compute
from hockeystick.execution.work import ExecutionError, settle
from hockeystick.monte_carlo.runs import in_this_process
from hockeystick.samples import KERNELS, Chunk
from hockeystick.sweep import Sweep, certifier, run_sweep
from hockeystick.types import Direction

REMOVE = Direction.REMOVE
PATIENCE = 60.0
STREAMS = [0, 1, 2, 3, 4, 5, 6, 7, 9, 12]


@pytest.fixture(scope="module")
def dask_address(proposals: ModuleType) -> Iterator[str]:
    """A scheduler and two worker processes, which their nannies start again when they die."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",  # any port: the scheduler serves HTTP at that of the dashboard even without one
        silence_logs=50,
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def ray_started(proposals: ModuleType) -> Iterator[None]:
    """Two processes of a Ray of our own."""
    pytest.importorskip("ray")
    with executor("ray", workers=2):
        yield


@pytest.fixture(params=["dask", "ray"])
def cluster(request: pytest.FixtureRequest) -> Iterator[ChunkExecutor]:
    address = request.getfixturevalue("dask_address") if request.param == "dask" else None
    if request.param == "ray":
        request.getfixturevalue("ray_started")  # and left running by what is opened here
    with executor(request.param, address=address) as spread:
        yield spread


def check_all(proposals: ModuleType, spread: ChunkExecutor, proposal: Any, streams: list[int]) -> None:
    """Every stream comes once, with the statistics that this process computes with a proposal that does not kill it."""
    run = proposals.a_run()
    harmless = proposals.GaussianProposal(direction=REMOVE, ballast=proposal.ballast)
    wanted = {chunk.stream: chunk for chunk in in_this_process(harmless, run, streams)}
    chunks = list(spread(proposal, run, streams))
    assert sorted(chunk.stream for chunk in chunks) == sorted(streams)
    assert all(proposals.same(chunk, wanted[chunk.stream]) for chunk in chunks)


def test_the_statistics_are_those_of_one_process_bit_for_bit(proposals, cluster):
    check_all(proposals, cluster, proposals.GaussianProposal(direction=REMOVE, ballast=proposals.ballast()), STREAMS)


def test_a_sweep_has_the_same_certificates_on_a_cluster(cluster, tmp_path):
    plan = {
        "noise_multiplier": 1.0,
        "data": {"num_examples": 100, "batch_size": 10, "epochs": 1},
        "sampler": {"kind": "deterministic"},
        "target": {"delta": 1e-5},
    }
    cells = Sweep(plan, {"noise_multiplier": [1.0, 2.0, 4.0], "sampler.kind": ["deterministic", "poisson"]}).cells()
    records = [
        run_sweep(cells, tmp_path / name, certify_cell=certifier(method="direct"), executor=spread)
        for name, spread in (("alone", None), ("spread", cluster))
    ]
    alone, spread = ([record.model_dump(mode="json", exclude={"seconds"}) for record in some] for some in records)
    assert alone == spread


@pytest.mark.parametrize(("cluster", "kills"), [("dask", 2), ("ray", 1)], indirect=["cluster"])
def test_killed_workers_lose_nothing_and_count_nothing_twice(proposals, cluster, tmp_path, kills):
    """Two at about the same time are all that Dask has: every copy of the proposal is lost with them."""
    lives = proposals.lives(tmp_path, kills)
    check_all(
        proposals,
        cluster,
        proposals.DeadlyProposal(direction=REMOVE, ballast=proposals.ballast(), lives=lives),
        STREAMS,
    )
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_commands_keep_stdout_for_results_when_workers_are_killed(proposals, request, tmp_path, capsys, backend):
    """Ray prints there that it has lost a worker."""
    address = request.getfixturevalue("dask_address") if backend == "dask" else None
    if backend == "ray":
        request.getfixturevalue("ray_started")
    deadly = proposals.DeadlyProposal(direction=REMOVE, ballast=proposals.ballast(), lives=proposals.lives(tmp_path, 1))
    with Places(backend, address).executor() as spread:
        check_all(proposals, spread, deadly, STREAMS)
        time.sleep(0.5)  # for what is said about it
    emit("a result")
    assert capsys.readouterr().out == "a result\n"


def test_a_proposal_is_shipped_once_and_not_with_every_chunk(proposals, cluster):
    """Once more for a second call with another proposal, and not for one with the same."""
    proposal = proposals.CountedProposal(direction=REMOVE, ballast=proposals.ballast())
    proposals.PICKLED.clear()
    check_all(proposals, cluster, proposal, STREAMS)
    check_all(proposals, cluster, proposal, [100, 101, 102])
    assert len(proposals.PICKLED) == 1
    check_all(proposals, cluster, proposals.CountedProposal(direction=REMOVE, ballast=proposals.ballast()), STREAMS)
    assert len(proposals.PICKLED) == 2


def test_what_is_left_can_be_cancelled_and_the_cluster_used_again(proposals, cluster):
    slow = proposals.SlowProposal(direction=REMOVE, ballast=proposals.ballast(), seconds=0.1)
    with closing(cluster(slow, proposals.a_run(chunk_size=4096), itertools.count())) as chunks:
        numbers = [next(chunks).stream for _ in range(3)]
    assert len(set(numbers)) == 3
    check_all(proposals, cluster, proposals.GaussianProposal(direction=REMOVE, ballast=proposals.ballast()), STREAMS)


def test_an_error_in_a_worker_is_that_of_the_caller(proposals, cluster):
    with pytest.raises(FloatingPointError, match="nothing to draw"):
        list(
            cluster(proposals.BrokenProposal(direction=REMOVE, ballast=proposals.ballast()), proposals.a_run(), STREAMS)
        )


def test_calls_are_made_by_workers_and_can_be_abandoned(cluster):
    assert cluster.submit(os.getpid).result(PATIENCE) != os.getpid()
    with pytest.raises(ValueError, match="invalid literal"):
        cluster.submit(partial(int, "x")).result(PATIENCE)
    jobs = [cluster.submit(partial(time.sleep, 1.0)) for _ in range(6)]
    cluster.abandon()
    assert all(job.cancelled() for job in jobs[2:])
    assert cluster.submit(os.getpid).result(PATIENCE) != os.getpid()


CELLS = [
    hs.Mechanism(sampler=sampler, noise_multiplier=sigma)
    for sigma in (0.9, 1.7)
    for sampler in (
        hs.Poisson(sampling_prob=0.02, steps=60),
        hs.RandomAllocation(bins=20, epochs=2),
        hs.Deterministic(bins=5, epochs=4),
    )
]


def test_plans_have_the_same_certificates_to_the_byte_wherever_they_are_certified(cluster: ChunkExecutor) -> None:
    """By this process, by processes of joblib, and by the workers of clusters: cells of a grid may go anywhere."""
    calls = [partial(hs.certify, cell, delta=1e-6) for cell in CELLS]
    here = [call().model_dump_json() for call in calls]
    there = [job.result(PATIENCE).model_dump_json() for job in [cluster.submit(call) for call in calls]]
    beside = [certificate.model_dump_json() for certificate in Parallel(n_jobs=2)(delayed(call)() for call in calls)]
    assert here == there == beside


def test_what_ray_has_been_handed_is_never_cancelled(proposals, ray_started, monkeypatch):
    """Its driver, this process, may be aborted by a check of its own when a task ends while it is being cancelled."""
    withdrawn: list[object] = []
    monkeypatch.setattr("ray.cancel", lambda *arguments, **options: withdrawn.append(arguments))
    slow = proposals.SlowProposal(direction=REMOVE, ballast=proposals.ballast(), seconds=0.01)
    with executor("ray") as spread:
        with closing(spread(slow, proposals.a_run(chunk_size=4096), itertools.count())) as chunks:
            next(chunks)
        jobs = [spread.submit(partial(time.sleep, 0.1)) for _ in range(6)]
        spread.abandon()
        assert all(job.cancelled() for job in jobs[2:])
        assert spread.submit(os.getpid).result(PATIENCE) != os.getpid()
    assert withdrawn == []


def test_kernels_of_another_version_are_refused(proposals, cluster):
    proposal = proposals.GaussianProposal(direction=REMOVE, ballast=proposals.ballast())
    with pytest.raises(ExecutionError, match="install the same version"):
        list(cluster(proposal, proposals.a_run(kernels=KERNELS + 1), STREAMS))


class FailingCluster(Cluster):
    """Computes in this process; loses all work of the first ``failing`` shipments, later every fourth chunk."""

    lost = (BrokenPipeError,)

    def __init__(self, failing: int) -> None:
        self.failing = failing
        self.shipments = 0
        self.started = 0
        self.closed = False

    def width(self) -> int:
        return 1

    def ship(self, proposal: Any) -> Any:
        self.shipments += 1
        return proposal

    def start(self, batch: Batch, shipped: Any, job: "Future[list[Chunk]]") -> Callable[[], None]:
        self.started += 1
        fails = self.shipments <= self.failing or self.started % 4 == 0

        def result() -> list[Chunk]:
            if fails:
                raise BrokenPipeError("gone")
            return compute(batch, shipped)

        settle(job, result)
        return lambda: None

    def close(self) -> None:
        self.closed = True


def test_after_a_breakdown_what_is_missing_is_computed_again(proposals):
    cluster = FailingCluster(ATTEMPTS - 1)
    with ClusterExecutor(cluster, None) as spread:
        check_all(proposals, spread, proposals.GaussianProposal(direction=REMOVE, ballast=proposals.ballast()), STREAMS)
    assert cluster.shipments > ATTEMPTS
    assert cluster.closed


def test_a_cluster_that_gets_nothing_done_is_given_up(proposals):
    cluster = FailingCluster(ATTEMPTS)
    proposal = proposals.GaussianProposal(direction=REMOVE, ballast=proposals.ballast())
    with pytest.raises(ExecutionError, match=rf"lost its work {ATTEMPTS} times in a row \('gone'\)"):
        list(ClusterExecutor(cluster, None)(proposal, proposals.a_run(), STREAMS))
    assert cluster.shipments == ATTEMPTS


class IdleCluster(FailingCluster):
    """Settles its first job and no other."""

    def __init__(self) -> None:
        super().__init__(0)
        self.cancelled = 0

    def width(self) -> int:
        return 64

    def cancel(self) -> None:
        self.cancelled += 1

    def start(self, batch: Batch, shipped: Any, job: "Future[list[Chunk]]") -> Callable[[], None]:
        if self.started == 0:
            super().start(batch, shipped, job)
        self.started += 1
        return self.cancel


class ClosedCluster(FailingCluster):
    """Takes no work."""

    def start(self, batch: Batch, shipped: Any, job: "Future[list[Chunk]]") -> Callable[[], None]:
        raise RuntimeError("closed")


class SlowCluster(FailingCluster):
    """Settles calls when it is told to."""

    def __init__(self) -> None:
        super().__init__(0)
        self.begun: list[tuple[Batch, Future[list[Any]]]] = []

    def width(self) -> int:
        return 2

    def start(self, batch: Batch, shipped: Any, job: "Future[list[Any]]") -> Callable[[], None]:
        self.begun.append((batch, job))
        return lambda: None

    def end(self, number: int) -> None:
        batch, job = self.begun[number]
        settle(job, partial(compute, batch, None))


def test_calls_wait_here_for_a_free_worker_and_those_that_are_abandoned_never_begin():
    cluster = SlowCluster()
    with ClusterExecutor(cluster, None) as spread:
        jobs = [spread.submit(partial(int, str(number))) for number in range(6)]
        assert len(cluster.begun) == 2
        jobs[2].cancel()
        cluster.end(1)
        assert (len(cluster.begun), jobs[1].result(), jobs[0].done()) == (3, 1, False)
        cluster.end(2)
        assert jobs[3].result() == 3
        spread.abandon()
        assert all(job.cancelled() for job in (jobs[0], *jobs[4:]))
        last = spread.submit(partial(int, "7"))
        for number in (0, 3, 4):
            assert not last.done()
            cluster.end(number)
        assert (len(cluster.begun), last.result()) == (5, 7)


def test_a_call_that_a_cluster_does_not_take_is_said_to():
    with ClusterExecutor(ClosedCluster(0), None) as spread, pytest.raises(ExecutionError, match="takes no more work"):
        spread.submit(os.getpid).result()


def test_a_thousand_calls_that_wait_for_a_cluster_that_closes_are_all_said_not_to_be_taken(monkeypatch):
    cluster = SlowCluster()
    with ClusterExecutor(cluster, 1) as spread:
        jobs = [spread.submit(partial(int, str(number))) for number in range(1001)]
        monkeypatch.setattr(cluster, "start", ClosedCluster(0).start)
        cluster.end(0)
        assert jobs[0].result(PATIENCE) == 0
        assert {str(job.exception(PATIENCE)) for job in jobs[1:]} == {"The cluster takes no more work: 'closed'."}


def test_who_waits_for_calls_is_told_that_they_were_cancelled():
    cluster = SlowCluster()
    with ClusterExecutor(cluster, None) as spread:
        jobs = [spread.submit(partial(int, str(number))) for number in range(6)]
        jobs[2].cancel()
        cluster.end(0)
        spread.abandon()
        cluster.end(1)
        cluster.end(2)
        assert wait(jobs, timeout=PATIENCE).not_done == set()


def test_closing_cancels_all_that_is_handed_out_and_hands_out_no_more(proposals):
    cluster = IdleCluster()
    proposal = proposals.GaussianProposal(direction=REMOVE, ballast=proposals.ballast())
    with closing(ClusterExecutor(cluster, None)(proposal, proposals.a_run(), itertools.count())) as chunks:
        next(chunks)
        handed_out = cluster.started
    assert QUEUE * 64 <= handed_out <= QUEUE * 64 + 2
    assert cluster.started == handed_out
    assert cluster.cancelled >= QUEUE * 64 - 1


def test_a_cluster_that_takes_no_work_is_said_to(proposals):
    proposal = proposals.GaussianProposal(direction=REMOVE, ballast=proposals.ballast())
    with pytest.raises(ExecutionError, match="takes no more work: 'closed'"):
        list(ClusterExecutor(ClosedCluster(0), None)(proposal, proposals.a_run(), STREAMS))


@pytest.mark.parametrize(
    "address", ["", "nonsense", "tcp://127.0.0.1:99999", "ftp://127.0.0.1:8786", "127.0.0.1:{free}"]
)
@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_an_address_that_does_not_answer_is_one_sentence(request, monkeypatch, backend, address):
    pytest.importorskip("distributed" if backend == "dask" else "ray")
    if backend == "ray":
        monkeypatch.setattr("ray.is_initialized", lambda: False)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        address = address or "nonsense"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # taken, and nothing listens
        place = address.format(free=unused.getsockname()[1])
        with pytest.raises(InvalidInputError) as refused:
            executor(backend, address=place)
    assert str(refused.value).endswith(f"Got {place!r} instead, which does not answer.")


def test_a_chunk_that_kills_its_workers_is_given_up_with_advice(proposals, dask_address, tmp_path):
    """Dask would try it on several workers, here on one alone; comes last, because it leaves the cluster so."""
    from distributed import Client

    with Client(dask_address, set_as_default=False) as client:
        client.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0))
    lives = proposals.lives(tmp_path, 1)
    proposal = proposals.DeadlyProposal(direction=REMOVE, ballast=proposals.ballast(), lives=lives)
    with executor("dask", address=dask_address) as spread, pytest.raises(ExecutionError) as given_up:
        list(spread(proposal, proposals.a_run(), STREAMS))
    assert str(given_up.value) == "A task killed several Dask workers; they may need more memory."
