"""Columns of rows on a device that its arithmetic does not decide.

A number far in the tail takes more words, and a whole number may be in doubt. Such a column is solved again by the
solver itself, from the rows of that column: whatever decides in memory decides here, and no other column crosses to the
host.
"""

from collections.abc import Mapping
from typing import Any

import torch

from hockeystick.noise.draws import Draws
from hockeystick.noise.solver import StreamingSolver

Tensors = Mapping[str, torch.Tensor]
"""The arrays of a solver, as tensors of a device."""


def solve_again(
    solver: StreamingSolver, arrays: Tensors, draws: Draws, step: int, columns: list[int], output: Any = None
) -> None:
    """Solve a step again in some columns, and write it where it belongs.

    Args:
        arrays: the rows before the step are there.
        columns: in ascending order.
        output: the row of x, shape (d,), where it is not that of the ring.
    """
    if not columns:
        return
    alone, ring = solver.resized(len(columns)), arrays["ring"]
    alone.arrays["ring"][...] = ring[:, columns].cpu().numpy()
    row, place = alone.again(step, draws.at(columns)), step % len(ring)
    ring[place, columns] = torch.from_numpy(alone.arrays["ring"][place]).to(ring.device)
    if output is not None:
        output[columns] = torch.from_numpy(row).to(ring.device)
