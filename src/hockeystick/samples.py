"""The plain data of Monte Carlo runs: what is drawn, which statistics are kept, and where.

Nothing here draws or imports a kernel, so that settings, stores and executors can name these types.
"""

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from secrets import randbits
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hockeystick.errors import InvalidInputError
from hockeystick.mechanism import Mechanism
from hockeystick.spec import Spec
from hockeystick.types import Direction, Side

Array = NDArray[np.float64]

KERNELS = 2
"""Version of everything that turns a seed into statistics; raise it when any kernel draws or rounds differently."""
LARGEST_CHUNK = 1 << 20

REFUTED = 1e-6
"""A value this much above its proved largest one, relatively, is no rounding error."""
ROOM, TINY = 1e-8, 1e-290
"""Relative and absolute room for the rounding of the sums of a chunk."""
SEED_BITS = 64
"""Random bits of a fresh seed."""

Seed = Annotated[int, Field(ge=0, lt=1 << 128)]


def fresh_seed() -> int:
    """A seed from the system's entropy."""
    return randbits(SEED_BITS)


class Node(Spec):
    """One statistic of a run: ``sum log(1 -+ theta Y(epsilon))``, for an upper or a lower bound on the mean of Y.

    Attributes:
        side: which bound on the mean this is for.
        epsilon: where the profile is bounded. The samples are read at ``epsilon`` moved by the proposal's loss error to
            the safe side.
        theta: the fraction that is bet; below 1 / weight_bound for an upper bound.
        weight_bound: M of the proposal at this epsilon, with room for rounding.
        failure: the probability with which the bound may fail.
    """

    side: Side
    epsilon: Annotated[float, Field(ge=0.0, le=700.0)]
    theta: Annotated[float, Field(gt=0.0)]
    weight_bound: Annotated[float, Field(gt=0.0)]
    failure: Annotated[float, Field(gt=0.0, lt=1.0)]


class Run(Spec):
    """Everything that determines the samples and the statistics, and so the key that evidence is stored under.

    Attributes:
        subject: fingerprint of the pair (:func:`hockeystick.monte_carlo.runs.fingerprint`).
        direction, proposal, parameters: which samples.
        nodes: which statistics; frozen before the first chunk.
        chunk_size: samples in one chunk.
        seed: of all streams; nothing else moves their random bits.
        kernels: :data:`KERNELS` when the run was made.
    """

    subject: str
    direction: Direction
    proposal: str
    parameters: dict[str, float]
    nodes: Annotated[tuple[Node, ...], Field(min_length=1)]
    chunk_size: Annotated[int, Field(ge=1, le=LARGEST_CHUNK)]
    seed: Seed
    kernels: int = KERNELS

    @property
    def key(self) -> str:
        """SHA-256 of the canonical JSON."""
        content = self.model_dump(mode="json")
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """The statistics of the samples of one stream. Chunks of a run are added in the order of their streams.

    Attributes:
        stream: number of the chunk, from 0.
        samples: how many were drawn, always the run's chunk size.
        sums: ``sum Y`` for each node, shape (nodes,).
        logs: ``sum log(1 - theta Y)`` for upper nodes, ``sum log(1 + theta Y)`` for lower ones, shape (nodes,).
        largest: the largest ``Y / M`` seen; above 1 would refute the proof of M.
        cells: which cells of (log-weight, loss) were hit, shape (k, 2), int32: the floor of CELL times each.
            Samples with a loss of at most 0 are in no cell.
        counts: how often, shape (k,), int64.
    """

    stream: int
    samples: int
    sums: Array
    logs: Array
    largest: float
    cells: NDArray[np.int32]
    counts: NDArray[np.int64]


def misfit(run: Run, chunk: Chunk) -> str | None:
    """Why a chunk cannot be one of this run, in half a sentence; None when it can.

    ``log(1 -+ theta y)`` is concave, so given ``sum Y`` of N samples in [0, M] the sum of logs lies between the chord,
    ``(sum Y / M) log(1 -+ theta M)``, and Jensen's bound, ``N log(1 -+ theta sum Y / N)``: no other sample gives them.
    """
    nodes, hit = (len(run.nodes),), chunk.counts.size
    if chunk.samples != run.chunk_size:
        return f"it has {chunk.samples} samples and the run's chunks have {run.chunk_size}"
    if chunk.sums.shape != nodes or chunk.logs.shape != nodes:
        return f"it does not have one statistic for each of the run's {nodes[0]} nodes"
    counted = bool(((chunk.counts >= 1) & (chunk.counts <= chunk.samples)).all())
    if chunk.cells.shape != (hit, 2) or not counted or int(chunk.counts.sum()) > chunk.samples:
        return "its cells do not have one count each, at least 1 and together at most the number of samples"
    if not (np.isfinite(chunk.sums).all() and np.isfinite(chunk.logs).all() and 0.0 <= chunk.largest < np.inf):
        return "its statistics are not finite"
    if chunk.largest > 1.0 + REFUTED:
        return (
            f"it has a value {chunk.largest:g} times its proved largest one, so the samples of the proposal "
            f"{run.proposal!r} prove nothing; please report it"
        )
    bounds = np.array([node.weight_bound for node in run.nodes])
    bets = np.array([-node.theta if node.side is Side.UPPER else node.theta for node in run.nodes])
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        chord = chunk.sums / bounds * np.log1p(np.maximum(bets * bounds, -1.0))
        middle = chunk.samples * np.log1p(np.maximum(bets * chunk.sums / chunk.samples, -1.0))
    possible = (chunk.sums >= 0.0) & (chunk.sums <= chunk.samples * bounds * (1.0 + ROOM))
    possible &= (chunk.logs >= chord - ROOM * np.abs(chord) - TINY) & (chunk.logs <= middle + ROOM * abs(middle) + TINY)
    return None if possible.all() else "no samples have its sums and logs"


class Ledger(Protocol):
    """Keeps the chunks of runs, one transaction each; a chunk that is already there is not counted twice."""

    def chunks(self, run: Run, first: int = 0) -> Iterator[Chunk]:
        """The stored chunks of a run in the order of their streams, from ``first`` up to the first gap."""

    def streams(self, run: Run) -> frozenset[int]:
        """The streams that are stored, behind gaps too."""

    def add(self, run: Run, chunk: Chunk) -> None:
        """Keep one chunk; durable when this returns."""

    def seed(self, chosen: int | None = None) -> int:
        """The seed to draw with: ``chosen``, else the first one of this ledger, else a fresh one. Kept durably."""

    def pinned(self, mechanism: Mechanism) -> Mechanism:
        """The mechanism with the matrix that this ledger's chunks are about, or will be. Kept durably."""


class MemoryLedger:
    """Keeps the statistics of chunks, without their cells, in memory."""

    def __init__(self) -> None:
        self._chunks: dict[str, dict[int, Chunk]] = {}
        self._seed: int | None = None

    def chunks(self, run: Run, first: int = 0) -> Iterator[Chunk]:
        """The streams from ``first`` up to the first gap."""
        kept = self._chunks.get(run.key, {})
        while first in kept:
            yield kept[first]
            first += 1

    def streams(self, run: Run) -> frozenset[int]:
        """All streams that are stored."""
        return frozenset(self._chunks.get(run.key, {}))

    def add(self, run: Run, chunk: Chunk) -> None:
        """Keep one chunk; the first one of a stream stays. Raises InvalidInputError for one that cannot be."""
        reason = misfit(run, chunk)
        if reason is not None:
            raise InvalidInputError(f"The chunk {chunk.stream} is not one of the run {run.key[:12]}: {reason}.")
        bare = replace(chunk, cells=chunk.cells[:0], counts=chunk.counts[:0])
        self._chunks.setdefault(run.key, {}).setdefault(chunk.stream, bare)

    def seed(self, chosen: int | None = None) -> int:
        """The chosen seed, else the one that was asked for first, else a fresh one."""
        if self._seed is None:
            self._seed = fresh_seed() if chosen is None else chosen
        return self._seed if chosen is None else chosen

    def pinned(self, mechanism: Mechanism) -> Mechanism:
        """The mechanism with the matrix that is found here."""
        return mechanism.pinned()


Executor = Callable[[Any, Run, Iterable[int]], Generator[Chunk]]
"""Computes the chunks of a proposal's run for some streams and yields each when it is done, in any order. Closing the
generator cancels pending work."""
