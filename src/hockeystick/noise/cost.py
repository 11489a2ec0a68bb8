"""What the noise of a strategy costs: memory, counted, and time, measured on this machine."""

import time
from dataclasses import dataclass

import numpy as np

from hockeystick.noise.columns import threads
from hockeystick.noise.normals import SeededSource
from hockeystick.noise.registry import streaming_solver
from hockeystick.noise.solver import Dtype, Reals, bytes_of
from hockeystick.strategies.matrix.base import StrategyMatrix

SAMPLE_BYTES = 1 << 28
"""Most that the measurement keeps: more than caches hold, so that it sees the speed of the memory."""
STEPS = 16
"""Steps that are measured, at least."""
TYPES: dict[str, Dtype] = {"float32": np.float32, "float64": np.float64}


@dataclass(frozen=True, kw_only=True)
class NoiseCost:
    """Memory and time of the noise of one run.

    Attributes:
        parameters: numbers in a step's noise.
        bytes: kept between steps, for each type; the same in memory as in a mapped file. Counted, exact.
        replay_rows: how many rows of random numbers :class:`~hockeystick.noise.rows.Replay` makes for a step, on
            average over the steps. Counted, exact.
        seconds: of a step in float32 with rows in memory, in the middle of the run. Measured here and now on
            ``measured`` numbers with ``threads`` threads, and scaled up in proportion: another machine, other load and
            rows that leave the cache or the memory change it.
    """

    parameters: int
    bytes: dict[str, int]
    replay_rows: float
    seconds: float
    measured: int
    threads: int


def noise_cost(matrix: StrategyMatrix, parameters: int) -> NoiseCost:
    """Count and measure, in a second or two.

    >>> from hockeystick.strategies import BandedSquareRoot
    >>> cost = noise_cost(BandedSquareRoot(bands=32).matrix(100), 1000)
    >>> cost.bytes, cost.replay_rows
    ({'float32': 160000, 'float64': 320000}, 50.5)

    Raises: UnsupportedError and InvalidInputError as :func:`~hockeystick.noise.registry.streaming_solver`.
    """
    solver = streaming_solver(matrix, size=1, dtype=np.float32)
    layouts = {name: streaming_solver(matrix, size=1, dtype=dtype).layout for name, dtype in TYPES.items()}
    first = [solver.reach(step) // solver.block * solver.block for step in range(matrix.steps)]
    measured = max(1, min(parameters, SAMPLE_BYTES // bytes_of(solver.layout, 1)))
    return NoiseCost(
        parameters=parameters,
        bytes={name: bytes_of(layout, parameters) for name, layout in layouts.items()},
        replay_rows=(sum(range(1, matrix.steps + 1)) - sum(first)) / matrix.steps,
        seconds=_seconds(matrix, measured) * parameters / measured,
        measured=measured,
        threads=threads(),
    )


def _seconds(matrix: StrategyMatrix, size: int) -> float:
    """The time of a step, from some blocks in the middle of the run."""
    solver = streaming_solver(matrix, size=size, dtype=np.float32)
    source, out = SeededSource(np.zeros(4, np.uint64)), np.empty(size, np.float32)

    def fill(rows: Reals, first: int, column: int) -> None:
        for row, values in enumerate(rows):
            source.fill(values, (first + row) * size + column)

    for array in solver.arrays.values():
        array[...] = 1.0  # or the memory would not be there

    def block() -> int:
        solver.step = matrix.steps // 2 // solver.block * solver.block
        for row in solver.advance(fill):
            out[...] = row
        return solver.block_steps

    block()  # compiles, on first use
    start, steps = time.perf_counter(), 0
    while steps < STEPS:
        steps += block()
    return (time.perf_counter() - start) / steps
