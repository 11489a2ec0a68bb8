"""Steps of solvers on a device: kernels make them, and the solver itself decides the few columns that they flag."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hockeystick.noise.chacha import TILE
from hockeystick.noise.devices import kernels
from hockeystick.noise.devices.columns import Tensors, solve_again
from hockeystick.noise.draws import Draws
from hockeystick.noise.exact.solvers import FAR, TWO_ROUNDOFFS, Feedback, Sums
from hockeystick.noise.normals import NormalSource, inverse_distribution_table
from hockeystick.noise.recent_rows import MovingAverage, Substitution
from hockeystick.noise.solver import StreamingSolver

LANES = 128
"""Blocks of a program, a multiple of 64: as many as its threads."""
UNFUSED = {"enable_fp_fusion": False}
"""The kernels say themselves which products are added in one rounding."""
ROOM = 1 << 16
"""Lanes that can be flagged without another try."""
STRETCH = 1 << 23
"""Columns whose sums are made at a time where nothing is kept: they stay in the cache of a large device."""
ERROR = 2e-14
"""Proved error of a number in standard deviations, beside half the width of its cell, which the kernels add."""


class Kernels:
    """The kernels for one source of numbers, with what they share.

    Args:
        source: seeded.
        device: of torch.
    """

    def __init__(self, source: NormalSource, device: Any) -> None:
        key = np.asarray(source.state()["key"]).astype("<u8").view("<u4").astype(np.uint32)
        self.device = device
        self._key = torch.from_numpy(key).to(device)
        self._table = torch.from_numpy(inverse_distribution_table()).to(device)
        self._room(ROOM)

    def _room(self, columns: int) -> None:
        self._capacity = columns
        self._flags = torch.zeros(columns + 1, dtype=torch.int64, device=self.device)

    def given(self, array: NDArray[Any]) -> Any:
        """An array as a tensor of the device."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def flagged(self, *launches: Callable[[], object]) -> list[int]:
        """Run kernels; the columns that any of them flagged, in order. They run again where these were too many."""
        while True:
            self._flags[0] = 0
            with torch.cuda.device_of(self._flags):  # Triton runs kernels on the current device
                for launch in launches:
                    launch()
            flags = int(self._flags[0])
            if flags <= self._capacity:
                return sorted(
                    {
                        (lane >> 8) + 64 * j
                        for lane in self._flags[1 : flags + 1].tolist()
                        for j in range(8)
                        if lane >> j & 1
                    }
                )
            self._room(2 * flags)

    def draw(
        self, kernel: Any, target: Any, tensors: Sequence[Any], whole: Sequence[int], draws: Draws, row: int
    ) -> None:
        """Run a kernel that makes the numbers of a row of z, for all columns of ``target``.

        Args:
            target: shape (..., columns).
            tensors, whole: what it takes besides, in its order.
        """
        for start, begin, count in draws.runs(0, target.shape[-1]):
            tile, skipped = divmod(row * draws.width + start, TILE)
            programs = -(-(skipped + count) // (8 * LANES))
            place = (tile, skipped - begin, begin, begin + count)
            kernel[(programs,)](
                target,
                self._key,
                self._table,
                *tensors,
                self._flags,
                *whole,
                *place,
                self._capacity,
                LANES=LANES,
                **UNFUSED,
            )

    def combine(self, out: Any, ring: Any, place: int, weights: Any, doubts: Any) -> None:
        """Weighted sums of rows of a ring, as the kernel of that name; rounded where there are bounds on errors."""
        rows, width = ring.shape
        rounded = doubts is not None
        kernels.combine[(-(-width // 1024),)](
            *(out, ring, weights, doubts if rounded else weights, self._flags, rows, place, width, len(weights)),
            *(self._capacity,),
            ROUNDED=rounded,
            LANES=1024,
            **UNFUSED,
        )


def normals(out: Any, source: NormalSource, first: int = 0, scale: float = 1.0) -> None:
    """Overwrite a vector with ``scale`` times the numbers from position ``first`` on: as ``NormalSource.fill``.

    Args:
        out: float32 or float64, on a device of the kernels.
        source: seeded.
    """
    made, draws = Kernels(source, out.device), Draws(source, scale, len(out), [(first, first + len(out))])
    scales = made.given(np.array([scale, inf]))
    columns = made.flagged(partial(made.draw, kernels.normals, out, (scales,), (), draws, 0))
    if columns:
        again = np.empty((1, len(columns)), np.float32 if out.dtype == torch.float32 else np.float64)
        draws.at(columns)(again, 0, 0)
        out[columns] = made.given(again[0])


def substitute(made: Kernels, solver: Substitution, arrays: Tensors, draws: Draws, first: int, count: int) -> None:
    """Forward substitution in the ring."""
    ring = arrays["ring"]
    weights, over = (made.given(array) for array in solver.weights(first, count))
    scales = made.given(np.array([draws.scale]))
    for b in range(count):
        place = first % len(ring) + b
        whole = (*ring.shape[:1], place, ring.shape[1], weights.shape[1])
        tensors = (scales, weights[b], over[b:])
        columns = made.flagged(partial(made.draw, kernels.substitute, ring, tensors, whole, draws, first + b))
        solve_again(solver, arrays, draws, first + b, columns)


def feed_back(made: Kernels, solver: Feedback, arrays: Tensors, draws: Draws, first: int, count: int) -> None:
    """Feedback in whole numbers."""
    ring, step = arrays["ring"], solver.coefficients(first, count)
    spread = draws.scale * step.over
    doubts = ERROR * spread + 4.0 * TWO_ROUNDOFFS
    inverse = 1.0 / step.units[:, 0]
    numbers = made.given(np.stack([np.full(count, draws.scale), step.over, inverse, doubts, spread], axis=1))
    units = made.given(step.units.astype(np.int32) if step.units.max() < 2**31 else step.units)
    for b in range(count):
        place = first % len(ring) + b
        whole = (len(ring), place, ring.shape[1], units.shape[1])
        tensors = (numbers[b], units[b])
        columns = made.flagged(partial(made.draw, kernels.feed_back, ring, tensors, whole, draws, first + b))
        solve_again(solver, arrays, draws, first + b, columns)


def average(made: Kernels, solver: MovingAverage | Sums, arrays: Tensors, draws: Draws, first: int, count: int) -> None:
    """Sums for a banded inverse: rows of z in the ring, and their weighted sums, rounded where they are to be."""
    ring, output = arrays["ring"], arrays["output"]
    weights, doubts = _given(made, solver, first, count)
    scales = made.given(np.array([draws.scale, end_of(solver, draws)]))
    for b in range(count):
        place = first % len(ring) + b
        columns = made.flagged(
            partial(made.draw, kernels.normals, ring[place], (scales,), (), draws, first + b),
            partial(made.combine, output[b], ring, place, weights[b], None if doubts is None else doubts[b:]),
        )
        solve_again(solver, arrays, draws, first + b, columns, output[b])


def replay(made: Kernels, solver: MovingAverage | Sums, draws: Draws, step: int, out: Any) -> None:
    """The sums of a step for a banded inverse, from nothing that is kept."""
    weights, doubts = _given(made, solver, step, 1)
    scales = made.given(np.array([draws.scale, end_of(solver, draws)]))
    lags = range(min(weights.shape[1], step + 1))
    for start in range(0, len(out), STRETCH):
        part, some = out[start : start + STRETCH], draws.moved(start)
        total = part if doubts is None else torch.empty(part.shape, dtype=torch.float64, device=part.device)
        launches: list[Callable[[], object]] = [total.zero_]
        for lag in lags:
            tensors = (scales, weights[0, lag:])
            launches.append(partial(made.draw, kernels.accumulate, total, tensors, (), some, step - lag))
        if doubts is not None:
            launches.append(partial(made.combine, part, total[None], 0, torch.ones_like(weights[0, :1]), doubts))
        columns = made.flagged(*launches)
        if columns:
            alone = solver.resized(len(columns)).only(step, some.at(columns))
            part[columns] = made.given(alone)


def _given(made: Kernels, solver: MovingAverage | Sums, first: int, count: int) -> tuple[Any, Any]:
    """The weights of these steps, and bounds on the errors of their sums where they are to be rounded."""
    weights, doubts = solver.weights(first, count)
    return made.given(weights), None if doubts is None else made.given(doubts)


def end_of(solver: StreamingSolver, draws: Draws) -> float:
    """Beyond which a number needs more bits than the first 63."""
    return FAR * draws.scale if isinstance(solver, Sums) else inf


STEPS: Mapping[type[StreamingSolver], Callable[..., None]] = {
    Feedback: feed_back,
    MovingAverage: average,
    Substitution: substitute,
    Sums: average,
}
"""What makes a block of steps of a solver."""
