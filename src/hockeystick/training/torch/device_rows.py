"""Rows of a noise stream on a device of torch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.noise.columns import over_columns
from hockeystick.noise.recent_rows import RecentRows, Substitution
from hockeystick.noise.rows import Held, MakeSolver, Rows, check_in_block
from hockeystick.noise.solver import Fill, Reals, zeros


class OnDevice(Rows):
    """The rows are on a device of torch, which also combines them; the processor draws the random numbers.

    For strategies with bands, or whose inverse has them: the others keep few rows, or too many. The rows solve for the
    noise in the same order of operations as in memory, with the same bits where the device adds products in one
    rounding, as CUDA devices and the usual processors do.

    >>> import hockeystick as hs
    >>> mechanism = hs.Mechanism(
    ...     strategy=hs.BandedSquareRoot(bands=3),
    ...     sampler=hs.Poisson(sampling_prob=0.1, steps=5),
    ...     noise_multiplier=1.0,
    ... )
    >>> here, there = (
    ...     hs.training.Run(mechanism, num_examples=9, shape=4, rng=np.random.default_rng(0), rows=rows)
    ...     for rows in (None, OnDevice("cpu"))
    ... )
    >>> all(np.array_equal(here.noise(batch), there.noise(batch)) for batch in here.batches())
    True

    Args:
        device: as torch names it, ``"cuda"`` say.

    Raises: UnsupportedError, when a stream is made, for a strategy without bands.
    """

    def __init__(self, device: Any) -> None:
        self.device = torch.device(device)

    def hold(self, make: MakeSolver, size: int) -> Held:
        solver = make(1, zeros)
        if not isinstance(solver, RecentRows):
            raise UnsupportedError(
                "Rows on a device are for strategies with bands; the rows of this one have to be in memory or a file."
            )
        return _DeviceRows(solver, size, self.device)


class _DeviceRows(Held):
    """The arrays of a solver as tensors, and its steps in torch."""

    def __init__(self, solver: RecentRows, size: int, device: torch.device) -> None:
        self.solver = solver
        self.size = size
        self.arrays: dict[str, torch.Tensor] = {}
        for name, (rows, dtype) in solver.layout.items():
            self.arrays[name] = torch.from_numpy(np.zeros((rows, 0), dtype)).new_zeros((rows, size), device=device)
        self.nbytes = sum(tensor.nbytes for tensor in self.arrays.values())
        ring = self.arrays["ring"]
        self._drawn = torch.empty(size, dtype=ring.dtype, pin_memory=device.type == "cuda")
        self._whole = True

    def row(self, step: int, fill: Fill, out: Reals | None) -> Any:
        if step == self.solver.step:
            self._advance(fill)
        solver = self.solver
        kept = self.arrays["ring" if isinstance(solver, Substitution) else "output"]
        first = solver.step - solver.block_steps
        place = first % len(kept) if isinstance(solver, Substitution) else 0
        row = kept[place + step - first]
        if out is None:
            return row
        out[...] = row.cpu().numpy()
        return out

    def _advance(self, fill: Fill) -> None:
        """The next block, in the order of operations of :mod:`hockeystick.noise.recent_rows`."""
        if not self._whole:
            raise InvalidInputError("The noise was interrupted within a step; continue from a checkpoint.")
        self._whole = False
        solver, ring = self.solver, self.arrays["ring"]
        first, count = solver.step, min(solver.block, solver.steps - solver.step)
        weights, scales = solver.weights(first, count)
        for b in range(count):
            place = first % len(ring) + b
            self._draw(first + b, fill, ring[place])
            if scales is None:
                row = self.arrays["output"][b]
                torch.mul(ring[place], float(weights[b, 0]), out=row)
            else:
                row = ring[place]
            for j in range(1, weights.shape[1]):
                row.add_(ring[(place - j) % len(ring)], alpha=float(weights[b, j]))
            if scales is not None:
                row.mul_(float(scales[b]))
        solver.step, solver.block_steps = first + count, count
        self._whole = True

    def _draw(self, step: int, fill: Fill, row: torch.Tensor) -> None:
        drawn = self._drawn.numpy()[None, :]
        over_columns(lambda start, stop: fill(drawn[:, start:stop], step, start), self.size)
        row.copy_(self._drawn)

    def state(self) -> dict[str, Any]:
        kept = {name: tensor.cpu().numpy().copy() for name, tensor in self.arrays.items()}
        return {"solved": self.solver.step, "block_steps": self.solver.block_steps, **kept}

    def restore(self, step: int, fill: Fill, state: Mapping[str, Any]) -> None:
        if state:
            checked = self.solver.resized(self.size)
            checked.restore(state)
            for name, array in checked.arrays.items():
                self.arrays[name].copy_(torch.from_numpy(array))
            self.solver.step, self.solver.block_steps = checked.step, checked.block_steps
        while not state and self.solver.step < step:
            self._advance(fill)
        check_in_block(step, self.solver)
