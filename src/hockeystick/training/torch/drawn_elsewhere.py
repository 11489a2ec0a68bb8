"""Steps of solvers on tensors of a device, where the processor draws the numbers and copies them there.

In the order of operations of :mod:`hockeystick.noise.recent_rows`, and with the whole numbers of
:mod:`hockeystick.noise.exact`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from hockeystick.noise.columns import over_columns
from hockeystick.noise.devices.columns import Tensors, solve_again
from hockeystick.noise.draws import Draws
from hockeystick.noise.exact.solvers import Feedback, Sums, sharpen
from hockeystick.noise.recent_rows import MovingAverage, Substitution
from hockeystick.noise.solver import StreamingSolver


def _draw(draws: Draws, step: int, row: torch.Tensor, *, sharp: bool = False) -> None:
    """Overwrite a row on a device with a row of z, of the precision that whole numbers need where that is asked for."""
    drawn = torch.empty(row.shape, dtype=row.dtype, pin_memory=row.is_cuda)
    numbers = drawn.numpy()[None]

    def work(start: int, stop: int) -> None:
        draws(numbers[:, start:stop], step, start)
        if sharp:
            sharpen(draws, numbers[:, start:stop], step, start)

    over_columns(work, len(row))
    row.copy_(drawn)


def substitute(solver: Substitution, arrays: Tensors, draws: Draws, first: int, count: int) -> None:
    """Forward substitution in the ring."""
    ring = arrays["ring"]
    weights, scales = solver.weights(first, count)
    for b in range(count):
        place = first % len(ring) + b
        row = ring[place]
        _draw(draws, first + b, row)
        for j in range(1, weights.shape[1]):
            row.add_(ring[(place - j) % len(ring)], alpha=float(weights[b, j]))
        row.mul_(float(scales[b]))


def average(solver: MovingAverage, arrays: Tensors, draws: Draws, first: int, count: int) -> None:
    """Weighted sums of rows of z."""
    ring, weights = arrays["ring"], solver.weights(first, count)[0]
    for b in range(count):
        place = first % len(ring) + b
        _draw(draws, first + b, ring[place])
        _sum(ring, place, weights[b], arrays["output"][b])


def feed_back(solver: Feedback, arrays: Tensors, draws: Draws, first: int, count: int) -> None:
    """Feedback in whole numbers, with all sums over the past in whole numbers."""
    ring, step = arrays["ring"], solver.coefficients(first, count)
    z = torch.empty(ring.shape[1], dtype=torch.float64, device=ring.device)
    for b in range(count):
        place, diagonal = first % len(ring) + b, int(step.units[b, 0])
        _draw(draws, first + b, z, sharp=True)
        past = torch.zeros(z.shape, dtype=torch.int64, device=z.device)
        for j in range(1, step.units.shape[1]):
            past.add_(ring[(place - j) % len(ring)].long(), alpha=int(step.units[b, j]))
        whole = torch.div(past, diagonal, rounding_mode="floor")
        shifted = z * float(step.over[b]) - (past - whole * diagonal).double() / diagonal + 0.5
        ring[place] = (shifted.floor().long() - whole).int()
        solve_again(solver, arrays, draws, first + b, _doubtful(shifted, step.fine[b]))


def sums(solver: Sums, arrays: Tensors, draws: Draws, first: int, count: int) -> None:
    """Weighted sums of rows of z, rounded."""
    ring, (weights, doubts) = arrays["ring"], solver.weights(first, count)
    total = torch.empty(ring.shape[1], dtype=ring.dtype, device=ring.device)
    for b in range(count):
        place = first % len(ring) + b
        _draw(draws, first + b, ring[place], sharp=True)
        _sum(ring, place, weights[b], total)
        total += 0.5
        arrays["output"][b] = total.floor().int()
        solve_again(solver, arrays, draws, first + b, _doubtful(total, doubts[b]), arrays["output"][b])


def _sum(ring: torch.Tensor, place: int, weights: Any, out: torch.Tensor) -> None:
    torch.mul(ring[place], float(weights[0]), out=out)
    for j in range(1, len(weights)):
        out.add_(ring[(place - j) % len(ring)], alpha=float(weights[j]))


def _doubtful(shifted: torch.Tensor, doubt: np.floating[Any]) -> list[int]:
    """The columns of numbers that a whole number is within this bound of."""
    columns: list[int] = ((shifted - shifted.floor() - 0.5).abs() > 0.5 - float(doubt)).nonzero()[:, 0].tolist()
    return columns


STEPS: Mapping[type[StreamingSolver], Callable[..., None]] = {
    Feedback: feed_back,
    MovingAverage: average,
    Substitution: substitute,
    Sums: sums,
}
"""What makes a block of steps of a solver."""
