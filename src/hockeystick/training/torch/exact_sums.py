"""The integers of :mod:`hockeystick.training.exact_sums` from tensors, where these are: the same ones on every device.

Per-sample gradients on a CPU are read where they are, by the kernels for arrays. Elsewhere every step is one operation
on all numbers, in float64 or in whole numbers, so there is no sum whose order a device could choose.
"""

from collections.abc import Sequence

import numpy as np
import torch

from hockeystick.errors import UnsupportedError
from hockeystick.training import exact_sums
from hockeystick.training.exact_sums import CAP, LANES, RUN, lowered, margin, width_of

PIECE = 1 << 22
"""Numbers in float64 that are in memory at a time, as far as one example allows."""
Tensors = Sequence[torch.Tensor]


def add_clipped(rows: Tensors, totals: Tensors, scale: float, steps: int) -> None:
    """Add to ``totals`` the integers of every example, which have norm at most ``steps`` over all tensors together.

    Args:
        rows: of any floating type, shapes (examples, ...); at least one tensor.
        totals: of int64, contiguous, with as many numbers as an example has, on the devices of the rows.
        scale: what gradients that are not clipped are multiplied by.
        steps: K of these tensors.

    Raises: UnsupportedError for a device without float64.
    """
    if not len(rows[0]):
        return
    flat = [row.detach().reshape(len(row), -1) for row in rows]
    if all(row.device.type == "cpu" for row in flat):
        arrays = [as_array(row) for row in flat]
        exact_sums.add_clipped(arrays, [total.view(-1).numpy() for total in totals], scale, steps)
        return
    squares = squared_norms(flat[0])
    for row in flat[1:]:
        squares = squares + squared_norms(row).to(squares.device)
    numbers = sum(row.shape[1] for row in flat)
    add_scaled(flat, [total.view(-1) for total in totals], factors(squares, numbers, scale, steps), steps)


def as_array(row: torch.Tensor) -> np.ndarray:
    """The same numbers, in float32 if their type is narrower."""
    kept = row if row.dtype in (torch.float32, torch.float64) else row.float()
    return kept.contiguous().numpy()


def squared_norms(rows: torch.Tensor) -> torch.Tensor:
    """As :func:`hockeystick.training.exact_sums.squared_norms`, with the same bits."""
    if rows.device.type == "mps":
        raise UnsupportedError("Exact sums need float64, which devices of type 'mps' do not have; train on the CPU.")
    examples, numbers = rows.shape
    width, whole = min(LANES, width_of(numbers)), numbers // RUN
    total = _lanes(rows[:, None, whole * RUN :], width)[:, 0]
    if whole:
        runs = [*_lanes(rows[:, : whole * RUN].reshape(examples, whole, RUN), width).unbind(1), total]
        total = runs[0]
        for lanes in runs[1:]:
            total = total + lanes
    while width > 1:
        width //= 2
        total = total[:, :width] + total[:, width:]
    return total[:, 0]


def _lanes(runs: torch.Tensor, width: int) -> torch.Tensor:
    """The sums of the squares of runs in their lanes; shapes (examples, runs, numbers) and (examples, runs, lanes)."""
    lanes = torch.zeros(*runs.shape[:2], width, dtype=torch.float64, device=runs.device)
    for start in range(0, runs.shape[2], width):
        piece = runs[:, :, start : start + width].double()
        lanes[:, :, : piece.shape[2]] += piece * piece
    return lanes


def factors(squares: torch.Tensor, numbers: int, scale: float, steps: int) -> torch.Tensor:
    """As :func:`hockeystick.training.exact_sums.factors`, with the same bits."""
    longest = (float(steps) / squares.sqrt()) * margin(numbers)
    return torch.where(squares.isfinite(), longest.clamp(max=scale), 0.0)


def add_scaled(rows: Tensors, totals: Tensors, scales: torch.Tensor, steps: int) -> torch.Tensor:
    """As :func:`hockeystick.training.exact_sums.add_scaled`, with the same integers."""
    taken = scales.clone()
    squares = _added(rows, totals, taken, steps, 1)
    for share in lowered():  # by the proof none is needed, with the factors of this module
        over = squares > steps * steps
        if not bool(over.any()):
            break
        again = [row[over.to(row.device)] for row in rows]
        _added(again, totals, taken[over], steps, -1)
        taken[over] *= share
        squares[over] = _added(again, totals, taken[over], steps, 1)
    return taken


def add_within(
    rows: torch.Tensor, total: torch.Tensor, scales: torch.Tensor, steps: int, left: torch.Tensor
) -> torch.Tensor:
    """As :func:`hockeystick.training.exact_sums.add_within`, with the same integers."""
    squares = _added([rows], [total], scales, steps, 1)
    over = squares > left
    if bool(over.any()):
        _added([rows[over]], [total], scales[over], steps, -1)
    return torch.where(over, left, left - squares)


def _added(rows: Tensors, totals: Tensors, scales: torch.Tensor, steps: int, sign: int) -> torch.Tensor:
    """Add the integers, or take them away; the sum of their squares for every example, or ``2^61`` if it is larger.

    The sum of squares in float64 says whether the one in 64 bits is the true one, and not a remainder.
    """
    exact = torch.zeros(len(scales), dtype=torch.int64, device=scales.device)
    rounded = torch.zeros_like(scales)
    for row, total in zip(rows, totals, strict=True):
        scale = scales.to(row.device)[:, None]
        wide = max(1, PIECE // len(row))
        for start in range(0, row.shape[1], wide):
            product = row[:, start : start + wide].double() * scale
            # What is no number counts as zero: 0 times infinity, and gradients that a second pass made worse.
            whole = product.clamp(-float(steps), float(steps)).nan_to_num(0.0).trunc().long()
            total[start : start + wide] += sign * whole.sum(dim=0)
            squares = whole * whole
            exact += squares.sum(dim=1).to(exact.device)
            rounded += squares.double().sum(dim=1).to(rounded.device)
    return torch.where(rounded > 2.0 * steps * steps, int(CAP), exact)
