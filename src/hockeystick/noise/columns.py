"""Work on the columns of an array, a stretch at a time, on all cores."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

STRETCH = 1 << 13
"""Columns that are taken through all work on a block of rows at once: their new rows stay in the cache."""
LEAST = 4
"""Stretches for which a thread is worth its start."""


def over_columns(work: Callable[[int, int], None], size: int) -> None:
    """Call ``work(start, stop)`` for stretches that cover the columns 0, ..., size - 1, on several threads.

    The stretches do not depend on the number of threads, so results that depend on the columns alone do not either.
    """
    starts = range(0, size, STRETCH)
    workers = min(threads(), -(-len(starts) // LEAST))
    if workers <= 1:
        for start in starts:
            work(start, min(start + STRETCH, size))
        return

    def every(first: int) -> None:
        for start in starts[first::workers]:
            work(start, min(start + STRETCH, size))

    # New threads each time cost some 0.1 ms, and a process that was forked would wait for old ones for ever.
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(every, range(workers)))


def threads() -> int:
    """As many as ``OMP_NUM_THREADS`` says, as for torch and numpy, or as there are cores for this process."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
