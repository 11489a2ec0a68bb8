"""One contestant on one workload, in a process of its own: ``python -m benchmarks.case CONTESTANT WORKLOAD REPEATS``.

Prints one JSON line after every run, so that whoever stops the process still has what was measured before. The first
run warms up (compilation, caches on disk) and is reported apart; the library's ``functools`` caches are emptied
before every run.
"""

import functools
import gc
import json
import os
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from importlib import import_module
from resource import RUSAGE_SELF, getrusage
from time import perf_counter

from benchmarks.contestants import CONTESTANTS, NotApplicableError
from benchmarks.workloads import WORKLOADS

LONG = 30.0
"""Seconds of measured runs after which no further repeat is started."""


def peak_memory_mb() -> float:
    """Largest resident size of this process so far, in MB of 2^20 bytes."""
    peak = getrusage(RUSAGE_SELF).ru_maxrss  # kilobytes on Linux, bytes on macOS
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def forget(package: str) -> None:
    """Empty the ``functools`` caches of a package: a repeat must do the work again.

    Types alone are asked: ``isinstance`` would ask an object for its class, which warns of some of torch's.
    """
    for cached in [candidate for candidate in gc.get_objects() if type(candidate) is functools._lru_cache_wrapper]:
        if cached.__module__.partition(".")[0] == package:
            cached.cache_clear()


def main(contestant_name: str, workload_name: str, repeats: int) -> None:
    """Run, and print a line for every run."""
    contestant, workload = CONTESTANTS[contestant_name], WORKLOADS[workload_name]
    lines, sys.stdout = sys.stdout, sys.stderr  # peers print

    def report(**values: object) -> None:
        print(json.dumps(values), file=lines, flush=True)

    module = import_module(f"benchmarks.answers.{contestant.module}")
    baseline = peak_memory_mb()
    seconds: list[float] = []
    for run in range(repeats + 1):
        forget(contestant.package)
        started = perf_counter()
        try:
            with redirect_stdout(sys.stderr):
                answer = module.answer(workload, **contestant.options)
        except NotApplicableError as error:
            report(status=f"not applicable: {error}")
            return
        except Exception as error:
            first_line = (str(error).splitlines() or [""])[0]
            report(status=f"{type(error).__name__}: {first_line}"[:200])
            return
        took = perf_counter() - started
        if run > 0:
            seconds.append(took)
        report(
            status="ok" if seconds else "only the warm-up finished",
            **asdict(answer),
            seconds=min(seconds, default=None),
            runs=len(seconds),
            first_seconds=took if run == 0 else None,
            peak_mb=peak_memory_mb(),
            baseline_mb=baseline,
        )
        if sum(seconds) > LONG:
            return


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
