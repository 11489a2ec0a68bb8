"""The claims on running time and memory of Algorithm 1: O(b p a^(2p)) time, O(a^p + b p) memory, timed.

Exponents are slopes of least-squares lines through logarithms. One band is timed with our compiled recursion, which for
one band is the paper's; two bands and the memory with the loop of Algorithm 1, repaired.
"""

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from hockeystick.moments.bands import banded_moments
from hockeystick.reproduction.papers import Check, Output

from .printed_renyi import algorithm_1

REPEATS = 3
"""The fastest of so many runs counts."""
SLACK = 0.3
"""By how much a measured exponent may exceed the claimed one: the largest sizes are still small."""


def gram(bins: int, bands: int) -> Any:
    """A cyclically banded Gram matrix, over sigma squared."""
    gap = np.abs(np.subtract.outer(np.arange(bins), np.arange(bins)))
    ring = np.minimum(gap, bins - gap)
    return np.where(ring < bands, 0.1 / (1.0 + ring), 0.0)


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one run."""
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def peak(work: Callable[[], object]) -> float:
    """The most bytes that a run has at a time."""
    tracemalloc.start()
    try:
        work()
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def cost(output: Output, *, small: bool = False) -> None:
    """A table of seconds and bytes, and the exponents beside the claimed ones.

    Args:
        small: smaller sizes.
    """
    orders = (200, 400, 800) if small else (250, 500, 1000, 2000)
    bins = (100, 200, 400) if small else (100, 200, 400, 800)
    wide = (6, 8, 12) if small else (8, 12, 16, 24)
    held = (100, 200, 400) if small else (100, 200, 400, 800)
    banded_moments(gram(10, 1), 1, 10)  # compiles
    runs: list[tuple[str, int, int, int, Callable[[], object], Callable[[Callable[[], object]], float], float]] = [
        *(("seconds over a", 1, 100, a, lambda a=a: banded_moments(gram(100, 1), 1, a), seconds, 2.0) for a in orders),
        *(("seconds over b", 1, b, 500, lambda b=b: banded_moments(gram(b, 1), 1, 500), seconds, 1.0) for b in bins),
        *(("seconds over a", 2, 6, a, lambda a=a: algorithm_1(gram(6, 2), 2, a), seconds, 4.0) for a in wide),
        *(("bytes over a", 1, 4, a, lambda a=a: algorithm_1(gram(4, 1), 1, a), peak, 1.0) for a in held),
        *(("bytes over a", 2, 5, a, lambda a=a: algorithm_1(gram(5, 2), 2, a), peak, 2.0) for a in wide),
    ]
    rows: list[list[Any]] = []
    groups: dict[tuple[str, int, float], list[tuple[int, float]]] = {}
    for what, bands, count, order, work, measure, claimed in runs:
        output.deadline.tick()
        value = measure(work)
        rows.append([what, bands, count, order, f"{value:.6g}"])
        groups.setdefault((what, bands, claimed), []).append((count if what.endswith("b") else order, value))
    output.table("cost", ["what", "bands", "b", "largest_order", "value"], rows)
    checks = []
    for (what, bands, claimed), points in groups.items():
        sizes, values = np.log(np.array(points)).T
        slope = float(np.polyfit(sizes, values, 1)[0])
        note = ", ".join(f"{value:.3g} at {size}" for size, value in points)
        checks.append(Check(f"exponent of {what}, p={bands}", "<=", claimed, slope, slope <= claimed + SLACK, note))
    output.checks("cost-verdicts", checks)
