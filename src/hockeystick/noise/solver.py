"""The base class of streaming solvers: ``x = C^{-1} z`` in the order of the steps, a block of steps at a time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hockeystick.errors import InvalidInputError

Reals = NDArray[np.floating[Any]]
Dtype = type[np.float32] | type[np.float64]
Layout = dict[str, tuple[int, Dtype]]
"""The rows and the type of every array that is kept between steps."""
Fill = Callable[[Reals, int], None]
"""Overwrites an array of shape (m, d) with m rows of z, of which the first has the given number."""

CHUNK = 1024
"""Coordinates that the kernels take through a whole block of steps: their part of the state stays in the cache."""
MAX_BYTES = 8 * 2**30


class StreamingSolver(ABC):
    """The left inverse of one strategy matrix, applied to z of shape (rows, size) as its rows come.

    Linear and deterministic: it draws nothing. Results do not depend on how the steps are grouped into blocks.

    Args:
        steps: n.
        block: steps that are solved at a time; reading the state once for several steps saves memory traffic.
        size: d, numbers in a row.
        layout: what is kept between steps.
        max_bytes: refuse, with InvalidInputError, to keep more than that.

    Attributes:
        arrays: all that is kept between steps, by name.
        step: steps solved so far.
        block_steps: steps in the last block.
    """

    def __init__(self, *, steps: int, block: int, size: int, layout: Layout, max_bytes: int = MAX_BYTES) -> None:
        needed = sum(rows * size * np.dtype(dtype).itemsize for rows, dtype in layout.values())
        if needed > max_bytes:
            rows = sum(rows for rows, _ in layout.values())
            raise InvalidInputError(
                f"The noise of this strategy keeps {rows} arrays of the size of the parameters, {needed:.3g} bytes; "
                f"the 'max_bytes' parameter must be at least that. Got {max_bytes} instead."
            )
        self.steps = steps
        self.block = block
        self.step = 0
        self.block_steps = 0
        self.arrays: dict[str, Reals] = {name: np.zeros((rows, size), dtype) for name, (rows, dtype) in layout.items()}

    def advance(self, fill: Fill) -> Reals:
        """Solve the next block; returns :meth:`solved`.

        Args:
            fill: is called with arrays to overwrite with rows of z: with every row that matters, once, in order.

        Raises: InvalidInputError after the last step.
        """
        if self.step == self.steps:
            raise InvalidInputError(f"All {self.steps} planned steps were solved; there is no row after the last one.")
        count = min(self.block, self.steps - self.step)
        self._solve(self.step, count, fill)
        self.step += count
        self.block_steps = count
        return self.solved()

    def solved(self) -> Reals:
        """The rows of x of the last block, shape (block_steps, size): a view, good until the next block."""
        return self._view(self.step - self.block_steps, self.block_steps)

    @abstractmethod
    def _solve(self, first: int, count: int, fill: Fill) -> None:
        """Solve the steps first, ..., first + count - 1."""

    @abstractmethod
    def _view(self, first: int, count: int) -> Reals:
        """Their rows of x."""

    @property
    def nbytes(self) -> int:
        """Bytes kept between steps."""
        return sum(array.nbytes for array in self.arrays.values())

    def state(self) -> dict[str, Any]:
        """A copy of all that is kept between steps, as arrays and integers."""
        return {
            "solved": self.step,
            "block_steps": self.block_steps,
            **{name: array.copy() for name, array in self.arrays.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state` of a solver of the same kind, size and type."""
        for name, array in self.arrays.items():
            saved = np.asarray(state[name])
            if saved.shape != array.shape or saved.dtype != array.dtype:
                raise InvalidInputError(
                    f"The {name!r} entry of a noise state must have shape {array.shape} and type {array.dtype}. "
                    f"Got {saved.shape} and {saved.dtype} instead."
                )
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
