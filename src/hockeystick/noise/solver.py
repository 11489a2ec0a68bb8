"""The base class of streaming solvers: ``x = C^{-1} z`` in the order of the steps, a block of steps at a time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hockeystick.errors import InvalidInputError
from hockeystick.noise.columns import over_columns

Reals = NDArray[Any]
"""Rows of float32 or float64 numbers; of exact noise, of whole numbers, int32."""
Dtype = type[np.float32] | type[np.float64] | type[np.int32]
Layout = dict[str, tuple[int, Dtype]]
"""The rows and the type of every array that is kept between steps."""
Fill = Callable[[Reals, int, int], None]
"""Overwrites an array of shape (m, k) with k columns of m rows of z; the first row and column have these numbers."""
Work = Callable[[int, int], None]
"""What is done to the columns start, ..., stop - 1. Nothing passes between columns."""
Allocate = Callable[[Layout, int], dict[str, Reals]]
"""Makes the arrays of a layout, for rows of so many numbers, filled with zeros."""

CHUNK = 1024
"""Coordinates that the kernels take through a whole block of steps: their part of the state stays in the cache."""


def zeros(layout: Layout, size: int) -> dict[str, Reals]:
    """The arrays of a layout in memory."""
    return {name: np.zeros((rows, size), dtype) for name, (rows, dtype) in layout.items()}


def bytes_of(layout: Layout, size: int) -> int:
    """The bytes of these arrays."""
    return sum(rows * size * np.dtype(dtype).itemsize for rows, dtype in layout.values())


class StreamingSolver(ABC):
    """The left inverse of one strategy matrix, applied to z of shape (rows, size) as its rows come.

    Linear and deterministic: it draws nothing. Results do not depend on how the steps are grouped into blocks, nor on
    which columns of the rows are solved together or by which thread.

    Args:
        steps: n.
        block: steps that are solved at a time; reading the state once for several steps saves memory traffic.
        size: d, numbers in a row.
        layout: what is kept between steps.
        allocate: makes the arrays that are kept.

    Attributes:
        layout, arrays: what is kept between steps, by name.
        step: steps solved so far.
        block_steps: steps in the last block.
    """

    def __init__(self, *, steps: int, block: int, size: int, layout: Layout, allocate: Allocate = zeros) -> None:
        self.steps = steps
        self.block = block
        self.size = size
        self.step = 0
        self.block_steps = 0
        self.layout = layout
        self.arrays = allocate(layout, size)
        self._whole = True

    def advance(self, fill: Fill) -> Reals:
        """Solve the next block; returns :meth:`solved`.

        Args:
            fill: is called with arrays to overwrite with columns of rows of z, by several threads.

        Raises: InvalidInputError after the last step, and after a block that was interrupted.
        """
        if self.step == self.steps:
            raise InvalidInputError(f"All {self.steps} planned steps were solved; there is no row after the last one.")
        if not self._whole:
            raise InvalidInputError("The noise was interrupted within a step; continue from a checkpoint.")
        count = min(self.block, self.steps - self.step)
        self._whole = False
        over_columns(self._block(self.step, count, fill), self.size)
        self._whole = True
        self.step += count
        self.block_steps = count
        return self.solved()

    def resized(self, size: int) -> Self:
        """A solver of the same matrix with rows of another size, at its first step, in memory."""
        other = copy(self)
        other.size, other.step, other.block_steps = size, 0, 0
        other.arrays = zeros(self.layout, size)
        return other

    def reach(self, step: int) -> int:
        """The first step whose rows of z the row ``step`` of x depends on."""
        del step
        return 0

    def only(self, step: int, fill: Fill) -> Reals:
        """The row of x of one step from zeros, by the steps that it depends on: the same bits as in the order of steps.

        The solver is left at the step after; what it keeps is of no use to any other step.
        """
        for array in self.arrays.values():
            array[...] = 0.0
        first = self.reach(step) // self.block * self.block
        while first <= step:
            count = min(self.block, step + 1 - first)
            self._block(first, count, fill)(0, self.size)
            first += count
        row: Reals = self._view(first - count, count)[-1]
        return row

    def again(self, step: int, fill: Fill) -> Reals:
        """Solve a step from the rows that are kept, which are those before it; returns its row of x, shape (size,)."""
        self._block(step, 1, fill)(0, self.size)
        row: Reals = self._view(step, 1)[0]
        return row

    def solved(self) -> Reals:
        """The rows of x of the last block, shape (block_steps, size): a view, good until the next block."""
        return self._view(self.step - self.block_steps, self.block_steps)

    @abstractmethod
    def _block(self, first: int, count: int, fill: Fill) -> Work:
        """How to solve the steps first, ..., first + count - 1."""

    @abstractmethod
    def _view(self, first: int, count: int) -> Reals:
        """Their rows of x."""

    @property
    def nbytes(self) -> int:
        """Bytes kept between steps."""
        return sum(array.nbytes for array in self.arrays.values())

    def state(self, allocate: Allocate = zeros) -> dict[str, Any]:
        """A copy of all that is kept between steps, as integers and arrays, which ``allocate`` makes."""
        copies = allocate(self.layout, self.size)
        for name, array in self.arrays.items():
            copies[name][...] = array
        return {"solved": self.step, "block_steps": self.block_steps, **copies}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state` of a solver of the same kind, size and type."""
        for name, array in self.arrays.items():
            saved = np.asarray(state[name])
            if saved.shape != array.shape or saved.dtype != array.dtype:
                raise InvalidInputError(
                    f"The {name!r} entry of a noise state must have shape {array.shape} and type {array.dtype}. "
                    f"Got {saved.shape} and {saved.dtype} instead."
                )
            if saved.size and not (np.isfinite(saved.min()) and np.isfinite(saved.max())):  # without an array of bools
                raise InvalidInputError(f"The {name!r} entry of a noise state must have only finite numbers.")
            array[...] = saved
        self.step, self.block_steps = int(state["solved"]), int(state["block_steps"])
        ends_a_block = self.step % self.block == 0 or self.step == self.steps
        last_block = (self.step - 1) % self.block + 1 if self.step else 0
        if not (0 <= self.step <= self.steps and ends_a_block and self.block_steps == last_block):
            raise InvalidInputError(
                f"The 'solved' and 'block_steps' entries of a noise state must be the end and the length of a block of "
                f"{self.block} of the {self.steps} steps. Got {self.step} and {self.block_steps} instead."
            )


def block_for(kept: int) -> int:
    """How many steps to solve at a time where ``kept`` rows are read for each: a quarter more memory, at most 16."""
    return max(1, min(-(-kept // 4), 16))


def ring_rows(kept: int, block: int) -> int:
    """Rows of a ring that keeps ``kept`` rows and takes in ``block`` more, which never wrap around its end."""
    return (-(-kept // block) + 1) * block
