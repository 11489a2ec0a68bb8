"""Threads compute the same bits as the calling process, one at a time or all at once, and go when nobody waits."""

import _thread
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from hockeystick.errors import InvalidInputError
from hockeystick.execution import executor
from hockeystick.execution.base import LOOK_AHEAD
from hockeystick.execution.local import _without_interruptions
from hockeystick.execution.work import ExecutionError, one_blas_thread
from hockeystick.monte_carlo.runs import in_this_process
from hockeystick.samples import KERNELS
from hockeystick.types import Direction

REMOVE = Direction.REMOVE


def pool_threads() -> int:
    """Threads of joblib's pools and of this test, apart from those that were there when the suite started."""
    return sum("Thread-" in thread.name or "worker" in thread.name.lower() for thread in threading.enumerate())


def wait_for_threads(most: int, patience: float = 10.0) -> int:
    """How many there are once there are no more than ``most``; threads take a moment to end after their last task."""
    end = time.monotonic() + patience
    while pool_threads() > most and time.monotonic() < end:
        time.sleep(0.01)
    return pool_threads()


@pytest.mark.parametrize("workers", [1, 2, 5, None])
def test_the_statistics_are_those_of_one_process_bit_for_bit(proposals, workers):
    proposal, run = proposals.GaussianProposal(direction=REMOVE, ballast=proposals.ballast()), proposals.a_run()
    streams = [0, 1, 2, 3, 7, 8, 11]
    wanted = {chunk.stream: chunk for chunk in in_this_process(proposal, run, streams)}
    with executor(workers=workers) as spread:
        chunks = list(spread(proposal, run, streams))
    assert sorted(chunk.stream for chunk in chunks) == streams
    assert all(proposals.same(chunk, wanted[chunk.stream]) for chunk in chunks)


def test_different_streams_differ(proposals):
    """The comparison above can fail."""
    proposal, run = proposals.GaussianProposal(direction=REMOVE, ballast=proposals.ballast()), proposals.a_run()
    first, second = in_this_process(proposal, run, [0, 1])
    assert not proposals.same(first, replace(second, stream=0))


def test_no_streams_are_no_work(proposals):
    assert list(executor(workers=2)(None, proposals.a_run(), [])) == []


def test_chunks_are_computed_at_the_same_time(proposals):
    """Two tasks wait for each other, which one thread alone would do for ever."""
    meeting = threading.Barrier(2, timeout=30.0)

    class Meeting(proposals.GaussianProposal):  # type: ignore[name-defined]
        def draw(self, rng, log_weights, losses):
            meeting.wait()
            super().draw(rng, log_weights, losses)

    proposal = Meeting(direction=REMOVE, ballast=proposals.ballast())
    chunks = list(executor(workers=2)(proposal, proposals.a_run(chunk_size=10), [0, 1]))
    assert sorted(chunk.stream for chunk in chunks) == [0, 1]


def test_streams_without_end_are_taken_in_windows_and_no_thread_is_left(proposals):
    before = pool_threads()
    taken, seen = 0, []

    class Looking(proposals.GaussianProposal):  # type: ignore[name-defined]
        def draw(self, rng, log_weights, losses):
            seen.append(pool_threads())  # joblib may end its threads as soon as nothing is left to compute
            super().draw(rng, log_weights, losses)

    def endless():
        nonlocal taken
        for stream in itertools.count():
            taken += 1
            yield stream

    proposal = Looking(direction=REMOVE, ballast=proposals.ballast())
    with closing(executor(workers=2)(proposal, proposals.a_run(chunk_size=10), endless())) as chunks:
        numbers = [next(chunks).stream for _ in range(3 * LOOK_AHEAD)]
    assert max(seen) > before
    assert len(set(numbers)) == len(numbers)
    assert taken == 4 * LOOK_AHEAD
    assert wait_for_threads(before) <= before


@pytest.mark.parametrize("workers", [1, 2])
def test_closing_cancels_what_is_left(proposals, workers):
    """All of it would take 2.5 seconds or more; some blocks are drawn."""
    before = pool_threads()
    drawn = []

    class Counting(proposals.SlowProposal):  # type: ignore[name-defined]
        def draw(self, rng, log_weights, losses):
            drawn.append(threading.get_ident())
            super().draw(rng, log_weights, losses)

    proposal = Counting(direction=REMOVE, ballast=proposals.ballast(), seconds=0.05)
    chunks = executor(workers=workers)(proposal, proposals.a_run(chunk_size=4096), range(100))
    next(chunks)
    chunks.close()
    assert wait_for_threads(before) <= before
    assert len(drawn) < 50


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interruption_cancels_between_two_blocks(proposals, workers):
    """A chunk of 400 blocks of 50 milliseconds would take 20 seconds."""
    before = pool_threads()
    drawn = []

    class Interrupting(proposals.SlowProposal):  # type: ignore[name-defined]
        def draw(self, rng, log_weights, losses):
            drawn.append(threading.get_ident())
            if len(drawn) == 8:
                _thread.interrupt_main()
            super().draw(rng, log_weights, losses)

    proposal = Interrupting(direction=REMOVE, ballast=proposals.ballast(), seconds=0.05)
    with pytest.raises(KeyboardInterrupt):
        list(executor(workers=workers)(proposal, proposals.a_run(chunk_size=256 * 4096), range(50)))
    assert wait_for_threads(before) <= before
    assert len(drawn) < 200


def test_an_error_in_the_consumer_cancels(proposals):
    before = pool_threads()
    proposal = proposals.SlowProposal(direction=REMOVE, ballast=proposals.ballast(), seconds=0.01)

    def consume():
        with closing(executor(workers=2)(proposal, proposals.a_run(chunk_size=4096), range(1000))) as chunks:
            for chunk in chunks:
                raise ZeroDivisionError(chunk.stream)

    with pytest.raises(ZeroDivisionError):
        consume()
    assert wait_for_threads(before) <= before


def test_an_error_in_a_worker_is_that_of_the_caller(proposals):
    before = pool_threads()
    proposal = proposals.BrokenProposal(direction=REMOVE, ballast=proposals.ballast())
    with pytest.raises(FloatingPointError, match="nothing to draw"):
        list(executor(workers=2)(proposal, proposals.a_run(), range(5)))
    assert wait_for_threads(before) <= before


def test_kernels_of_another_version_are_refused(proposals):
    proposal = proposals.GaussianProposal(direction=REMOVE, ballast=proposals.ballast())
    with pytest.raises(ExecutionError, match="install the same version"):
        list(executor(workers=2)(proposal, proposals.a_run(kernels=KERNELS + 1), range(2)))


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_matrix_products_stay_on_their_thread_until_the_last_chunk_is_done():
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread():
            with one_blas_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == {2}


CTRL_C = """
import os, signal, sys, threading
sys.path.insert(0, {here!r})
from sampled_proposals import SlowProposal, a_run, ballast
from hockeystick.execution import executor
from hockeystick.types import Direction
proposal = SlowProposal(direction=Direction.REMOVE, ballast=ballast(), seconds=0.05)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    list(executor(workers=2)(proposal, a_run(chunk_size=4096 * 256), range(10)))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_the_process():
    """The chunks would take 500 seconds each; threads that went on would keep the process alive for as long."""
    code = CTRL_C.format(here=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"backend": "slurm"}, "The 'backend' field must be one of local, dask, ray. Got 'slurm' instead."),
        ({"workers": 0}, "The 'workers' field must be from 1 to 16384. Got 0 instead."),
        ({"workers": 10**9}, "The 'workers' field must be from 1 to 16384. Got 1000000000 instead."),
        ({"address": "tcp://here:1"}, "The 'address' field is for clusters; leave it out for the backend 'local'."),
        ({"backend": "dask"}, "The 'address' field is missing; a Dask cluster is named by its scheduler"),
    ],
)
def test_bad_input_is_one_sentence(arguments, says):
    with pytest.raises(InvalidInputError) as refused:
        executor(**arguments)
    assert str(refused.value).startswith(says)
    assert str(refused.value).count(".") <= 5


@pytest.mark.parametrize(("backend", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_a_package_that_is_not_installed_names_its_extra(monkeypatch, backend, module):
    monkeypatch.setattr("hockeystick.execution.registry.find_spec", lambda name: None if name == module else 1)
    with pytest.raises(InvalidInputError, match=rf"pip install '\.\[{backend}\]' in your clone"):
        executor(backend, address="tcp://127.0.0.1:1")


def test_a_local_executor_loads_no_cluster():
    code = (
        "import hockeystick.execution as e, sys\n"
        "e.executor()\n"
        "print(sorted({'dask', 'distributed', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_one_worker_makes_calls_here_and_several_elsewhere() -> None:
    with executor(workers=1) as alone, executor(workers=2) as several:
        assert alone.submit(os.getpid).result() == os.getpid()
        assert several.submit(os.getpid).result(60) != os.getpid()
        with pytest.raises(ValueError, match="invalid literal"):
            several.submit(partial(int, "x")).result(60)


def test_a_process_that_dies_is_said_to() -> None:
    with executor(workers=2) as spread, pytest.raises(ExecutionError, match="ended before its work was done"):
        spread.submit(partial(os._exit, 3)).result(60)


def test_abandoned_calls_end_with_their_processes() -> None:
    with executor(workers=2) as spread:
        started = time.monotonic()
        jobs = [spread.submit(partial(time.sleep, 300)) for _ in range(3)]
        spread.abandon()
        assert all(job.done() for job in jobs)
        assert time.monotonic() - started < 100
        assert spread.submit(os.getpid).result(60) != os.getpid()  # new processes


@pytest.mark.parametrize("elsewhere", [False, True], ids=["this thread", "another thread"])
def test_an_interruption_while_processes_start_comes_when_they_have(elsewhere: bool) -> None:
    """A thread that does not block interruptions may get it, and Python would still raise it in this one."""
    ready, done, events = threading.Event(), threading.Event(), []

    def interrupt() -> None:
        ready.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        done.set()

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt), _without_interruptions():  # noqa: PT012
        if elsewhere:
            ready.set()
            done.wait()
        else:
            signal.raise_signal(signal.SIGINT)
        events.append("started")
    assert events == ["started"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
