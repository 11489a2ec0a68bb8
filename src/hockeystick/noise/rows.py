"""Where the rows live that later steps of a noise stream need: in memory, in a mapped file, or nowhere.

The noise has the same bits everywhere, and a checkpoint may be continued with its rows elsewhere.
"""

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hockeystick.calls import made_by
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.noise.columns import over_columns
from hockeystick.noise.draws import Draws
from hockeystick.noise.solver import Allocate, Layout, Reals, StreamingSolver, bytes_of, zeros
from hockeystick.spec import expect_kind, real_number

MakeSolver = Callable[[int, Allocate], StreamingSolver]
"""A new solver, from the numbers in a row and what makes its arrays."""
MAX_BYTES = 8 * 2**30


class Held(ABC):
    """What a stream has of its rows between steps."""

    nbytes: int

    @abstractmethod
    def row(self, step: int, fill: Draws, out: Reals | None) -> Reals:
        """The row of x of this step, shape (d,); steps come in order.

        Args:
            out: is overwritten with it and returned; None for an array that is good, and must not be written to, until
                the next call.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """A copy of what is kept."""

    @abstractmethod
    def restore(self, step: int, fill: Draws, state: Mapping[str, Any]) -> None:
        """Continue before this step from a state, of rows that were held in any way."""


class Rows(ABC):
    """A place for rows."""

    @abstractmethod
    def hold(self, make: MakeSolver, size: int) -> Held:
        """Hold the rows of a solver with rows of ``size`` numbers; raises InvalidInputError where there is no room."""


@made_by("hs.noise.Memory(max_bytes=2**33)")
class Memory(Rows):
    """The rows are arrays in the memory of the process.

    Args:
        max_bytes: refuse to keep more than that.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        real_number("max_bytes", max_bytes)
        self.max_bytes = max_bytes

    def hold(self, make: MakeSolver, size: int) -> Held:
        return Kept(make(size, self._allocate))

    def _allocate(self, layout: Layout, size: int) -> dict[str, Reals]:
        needed = bytes_of(layout, size)
        if needed > self.max_bytes:
            rows = sum(rows for rows, _ in layout.values())
            raise InvalidInputError(
                f"The noise of this strategy keeps {rows} arrays of the size of the parameters, {needed:.3g} bytes; "
                f"the 'max_bytes' parameter must be at least that. Got {self.max_bytes} instead."
            )
        return zeros(layout, size)


@made_by('hs.noise.MappedFile("/var/tmp")')
class MappedFile(Rows):
    """The rows are in a file that is mapped into memory; the system moves them between disk and memory as it sees fit.

    The file has no name and only this process can read it. The disk gets the room back when the stream is gone or the
    process ends, however it ends. A step reads all rows and writes one, so a fast local disk is needed.
    Nothing is erased: the rows are as secret as the noise, so use an encrypted disk where others may read it raw.

    A state holds a copy of the rows in another such file, which takes as much room while the state exists; reading a
    saved state back needs as much memory.

    Args:
        folder: on the disk to use.

    Raises: InvalidInputError, when a stream is made or its state is taken, where the folder has less room than needed.
    """

    def __init__(self, folder: str | Path) -> None:
        expect_kind("folder", folder, (str, Path), "text or a path", optional=False)
        self.folder = Path(folder)

    def hold(self, make: MakeSolver, size: int) -> Held:
        return Kept(make(size, self._allocate), self._allocate)

    def _allocate(self, layout: Layout, size: int) -> dict[str, Reals]:
        needed = bytes_of(layout, size)
        arrays, offset = zeros(layout, 0), 0
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:  # the mappings keep it open
                file.truncate(needed)
                if needed and hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, needed)  # rather than a crash when the disk is full
                for label, (rows, dtype) in layout.items():
                    if rows:
                        mapping = np.memmap(file, dtype, "r+", offset=offset, shape=(rows, size))
                        arrays[label] = mapping.view(np.ndarray)
                    offset += arrays[label].nbytes
        except OSError as error:
            raise InvalidInputError(
                f"The folder {shortened(str(self.folder))} must be one with room for a file of {needed:.3g} bytes: "
                f"{error.strerror}."
            ) from None
        return arrays


class Replay(Rows):
    """Nothing is kept: each step makes the rows of z that it depends on again, from the key and their positions.

    Cost: the noise of step t, counted from 0, needs min(t + 1, p) rows of z where ``C^{-1}`` has p bands, and up to a
    quarter of p more, as it begins with a whole block of steps; 1 row for the identity; for a tree, about log2(n) / 2
    on average over n steps. Any other C with bands or buffers has a full inverse: t + 1 rows, (n + 1) / 2 on average.
    There the steps between are solved again as well. ``hockeystick.noise.cost`` counts. While it works,
    each thread has the rows of 8,192 columns.
    """

    def hold(self, make: MakeSolver, size: int) -> Held:
        return Replayed(make(1, zeros), size)


class Kept(Held):
    """The arrays of a solver, and what makes those of its states."""

    def __init__(self, solver: StreamingSolver, allocate: Allocate = zeros) -> None:
        self.solver = solver
        self.allocate = allocate
        self.nbytes = solver.nbytes

    def row(self, step: int, fill: Draws, out: Reals | None) -> Reals:
        if step == self.solver.step:
            self.solver.advance(fill)
        solved: Reals = self.solver.solved()[step - self.solver.step]  # counted from the end of the block
        if out is None:
            return solved
        out[...] = solved
        return out

    def state(self) -> dict[str, Any]:
        return self.solver.state(self.allocate)

    def restore(self, step: int, fill: Draws, state: Mapping[str, Any]) -> None:
        if state:
            self.solver.restore(state)
        else:
            while self.solver.step < step:
                self.solver.advance(fill)
        check_in_block(step, self.solver)


def check_in_block(step: int, solver: StreamingSolver) -> None:
    """Raise InvalidInputError unless the row of this step is in the solver's last block, or is the next one."""
    if not solver.step - solver.block_steps <= step <= solver.step:
        raise InvalidInputError("The 'step' entry of a noise state must be a step of the last block it holds.")


class Replayed(Held):
    """A solver for each stretch of columns of each step."""

    nbytes = 0

    def __init__(self, solver: StreamingSolver, size: int) -> None:
        self.solver = solver
        self.size = size

    def row(self, step: int, fill: Draws, out: Reals | None) -> Reals:
        row = np.empty(self.size, self.solver.solved().dtype) if out is None else out

        def work(start: int, stop: int) -> None:
            alone = self.solver.resized(stop - start)
            row[start:stop] = alone.only(step, fill.moved(start))

        over_columns(work, self.size)
        return row

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, step: int, fill: Draws, state: Mapping[str, Any]) -> None:
        del step, fill, state
