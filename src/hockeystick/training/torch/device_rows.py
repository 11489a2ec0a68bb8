"""Rows of a noise stream on a device of torch."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from hockeystick.calls import made_by
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.noise.devices.choice import reason_against
from hockeystick.noise.draws import Draws
from hockeystick.noise.exact.solvers import Sums
from hockeystick.noise.normals import KeyedSource, NormalSource, SeededSource
from hockeystick.noise.recent_rows import MovingAverage
from hockeystick.noise.rows import MAX_BYTES, Held, MakeSolver, Memory, Replayed, Rows, check_in_block
from hockeystick.noise.solver import Reals, StreamingSolver, bytes_of, zeros
from hockeystick.training.torch import drawn_elsewhere


@made_by('hs.torch.OnDevice("cuda")')
class OnDevice(Rows):
    """The rows are on a device of torch, which combines them, and draws the random numbers where it can.

    It can on CUDA devices where Triton is installed (it comes with torch for CUDA), for a source that is seeded. Then
    neither numbers nor rows cross to the host. Otherwise the processor draws the numbers, as for secure noise;
    :meth:`reason` says why. For strategies with bands, or whose inverse has them: the others keep few rows, or many.

    Guarantee: of an exact mechanism, the same whole numbers as in memory. Of another one, the same order of operations,
    and the same bits where the device adds products in one rounding, as CUDA devices and the usual processors do.

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
        replay: keep nothing, and make the rows of z that a step depends on again, as ``hockeystick.noise.Replay``: for
            strategies whose inverse has few bands.

    Raises: UnsupportedError, when a stream is made, for a strategy without bands, and for ``replay`` where its inverse
    has none.
    """

    def __init__(self, device: Any, *, replay: bool = False) -> None:
        self.device = torch.device(device)
        self.replay = replay

    def reason(self, source: str = "seeded") -> str | None:
        """Why the processor draws the numbers of a source of this kind; None where the device does.

        >>> OnDevice("cpu").reason("keyed")
        'There are kernels for the numbers of a seeded source alone; those of a keyed one are AES.'
        """
        return reason_against(self.device.type, source)

    def hold(self, make: MakeSolver, size: int) -> Held:
        solver = make(1, zeros)
        if self.replay and not isinstance(solver, MovingAverage | Sums):
            raise UnsupportedError(
                "Replay on a device is for strategies whose inverse has bands; keep the rows of this one, there or "
                "elsewhere."
            )
        if type(solver) not in drawn_elsewhere.STEPS:
            raise UnsupportedError(
                "Rows on a device are for strategies with bands; the rows of this one have to be in memory or a file."
            )
        return _DeviceReplay(solver, size, self.device) if self.replay else _DeviceRows(solver, size, self.device)


class Nearby(Rows):
    """On a device where kernels make the noise there and it has room for the rows; otherwise in memory.

    Args:
        device: of the parameters.
        secure: whether the source is keyed.
        max_bytes: refuse to keep more than that between steps.
    """

    def __init__(self, device: Any, *, secure: bool = False, max_bytes: int = MAX_BYTES) -> None:
        self.device = torch.device(device)
        self.secure = secure
        self.max_bytes = max_bytes

    def hold(self, make: MakeSolver, size: int) -> Held:
        there, solver = OnDevice(self.device), make(1, zeros)
        drawn_there = there.reason(KeyedSource.kind if self.secure else SeededSource.kind) is None
        fits = bytes_of(solver.layout, size) <= self.max_bytes
        if drawn_there and fits and type(solver) in drawn_elsewhere.STEPS:
            return there.hold(make, size)
        return Memory(self.max_bytes).hold(make, size)


def placed(tensors: Iterable[torch.Tensor], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a run whose rows are on the CUDA device of its parameters, unless ``rows`` says where they are."""
    devices = {tensor.device for tensor in tensors}
    if options.get("rows") is not None or {device.type for device in devices} != {"cuda"} or len(devices) > 1:
        return dict(options)
    known = {name: options[name] for name in ("secure", "max_bytes") if name in options}
    return dict(options) | {"rows": Nearby(devices.pop(), **known)}


class _OnDevice(Held):
    """A solver of one column, and the kernels for the source that it was used with last."""

    def __init__(self, solver: StreamingSolver, size: int, device: torch.device) -> None:
        self.solver = solver
        self.size = size
        self.device = device
        self._source: NormalSource | None = None
        self._kernels: Any = None

    def kernels(self, source: NormalSource) -> Any:
        """The kernels; None where the processor has to draw."""
        if source is not self._source:
            self._source = source
            if reason_against(self.device.type, source.kind) is None:
                from hockeystick.noise.devices.steps import Kernels

                self._kernels = Kernels(source, self.device)
            else:
                self._kernels = None
        return self._kernels


class _DeviceRows(_OnDevice):
    """The arrays of a solver as tensors, and its steps on them."""

    def __init__(self, solver: StreamingSolver, size: int, device: torch.device) -> None:
        super().__init__(solver, size, device)
        self.arrays: dict[str, torch.Tensor] = {}
        for name, (rows, dtype) in solver.layout.items():
            self.arrays[name] = torch.from_numpy(np.zeros((rows, 0), dtype)).new_zeros((rows, size), device=device)
        self.nbytes = sum(tensor.nbytes for tensor in self.arrays.values())
        self._whole = True

    def row(self, step: int, fill: Draws, out: Reals | None) -> Any:
        if step == self.solver.step:
            self._advance(fill)
        first = self.solver.step - self.solver.block_steps
        kept = self.arrays.get("output", self.arrays["ring"])
        place = 0 if "output" in self.arrays else first % len(kept)
        return _copied(kept[place + step - first], out)

    def _advance(self, draws: Draws) -> None:
        """The next block, in the order of operations of the solver."""
        if not self._whole:
            raise InvalidInputError("The noise was interrupted within a step; continue from a checkpoint.")
        self._whole = False
        solver, kernels = self.solver, self.kernels(draws.source)
        first, count = solver.step, min(solver.block, solver.steps - solver.step)
        if kernels is None:
            drawn_elsewhere.STEPS[type(solver)](solver, self.arrays, draws, first, count)
        else:
            from hockeystick.noise.devices.steps import STEPS

            STEPS[type(solver)](kernels, solver, self.arrays, draws, first, count)
        solver.step, solver.block_steps = first + count, count
        self._whole = True

    def state(self) -> dict[str, Any]:
        kept = {name: tensor.cpu().numpy().copy() for name, tensor in self.arrays.items()}
        return {"solved": self.solver.step, "block_steps": self.solver.block_steps, **kept}

    def restore(self, step: int, fill: Draws, state: Mapping[str, Any]) -> None:
        if state:
            checked = self.solver.resized(self.size)
            checked.restore(state)
            for name, array in checked.arrays.items():
                self.arrays[name].copy_(torch.from_numpy(array))
            self.solver.step, self.solver.block_steps = checked.step, checked.block_steps
        while not state and self.solver.step < step:
            self._advance(fill)
        check_in_block(step, self.solver)


class _DeviceReplay(_OnDevice):
    """Nothing but a solver of one column."""

    nbytes = 0
    solver: MovingAverage | Sums

    def row(self, step: int, fill: Draws, out: Reals | None) -> Any:
        kernels = self.kernels(fill.source)
        if kernels is None:
            drawn = Replayed(self.solver, self.size).row(step, fill, out)
            return torch.from_numpy(drawn).to(self.device) if out is None else out
        from hockeystick.noise.devices.steps import replay

        dtype = torch.from_numpy(self.solver.solved()).dtype
        row = torch.empty(self.size, dtype=dtype, device=self.device)
        replay(kernels, self.solver, fill, step, row)
        return _copied(row, out)

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, step: int, fill: Draws, state: Mapping[str, Any]) -> None:
        del step, fill, state


def _copied(row: torch.Tensor, out: Reals | None) -> Any:
    """The row, in the array where there is one."""
    if out is None:
        return row
    out[...] = row.cpu().numpy()
    return out
