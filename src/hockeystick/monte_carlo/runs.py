"""One run: which samples are drawn, in numbered chunks, and the statistics that its bounds are made of."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Annotated

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import Field

from hockeystick.monte_carlo.proposals import Array, Family, Proposal
from hockeystick.pairs.base import DominatingPair
from hockeystick.spec import Spec
from hockeystick.types import Direction, Side

KERNELS = 1
"""Version of everything that turns a seed into statistics; raise it when any kernel draws or rounds differently."""
BLOCK = 4096
"""Samples whose weights and losses are held at a time."""
LARGEST_CHUNK = 1 << 20
CELL = 16
"""Cells of the stored counts per unit of log-weight, and of loss."""
CELL_LIMIT = 1 << 15
MARGIN = 1e-6
"""Relative room for rounding above a proposal's proved largest value."""

Seed = Annotated[int, Field(ge=0, lt=1 << 128)]


class Node(Spec):
    """One statistic of a run: ``sum log(1 -+ theta Y(epsilon))``, for an upper or a lower bound on the mean of Y.

    Attributes:
        side: which bound on the mean this is for.
        epsilon: where the profile is bounded. The samples are read at ``epsilon`` moved by the proposal's loss error to
            the safe side.
        theta: the fraction that is bet; below 1 / largest for an upper bound.
        largest: M of the proposal at this epsilon, with room for rounding.
        failure: the probability with which the bound may fail.
    """

    side: Side
    epsilon: Annotated[float, Field(ge=0.0, le=700.0)]
    theta: Annotated[float, Field(gt=0.0)]
    largest: Annotated[float, Field(gt=0.0)]
    failure: Annotated[float, Field(gt=0.0, lt=1.0)]


class Run(Spec):
    """Everything that determines the samples and the statistics, and so the key that evidence is stored under.

    Attributes:
        subject: fingerprint of the pair (:func:`fingerprint`).
        direction, proposal, parameters: which samples.
        nodes: which statistics; frozen before the first chunk.
        chunk_size: samples in one chunk.
        seed: with the key, the seed of all streams.
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


def fingerprint(family: Family, pair: DominatingPair) -> str:
    """SHA-256 over the type of the pair, its noise and what else determines it, arrays in single precision."""
    digest = hashlib.sha256(f"{type(pair).__name__} {pair.noise_multiplier!r}".encode())
    for part in family.fingerprint(pair):
        array = np.asarray(part)
        single = array.astype(np.float32) if array.dtype.kind == "f" and array.ndim else array
        digest.update(f"{array.dtype.kind}{array.shape}".encode())
        digest.update(np.ascontiguousarray(single).tobytes())
    return digest.hexdigest()


def stream_generator(run: Run, stream: int) -> np.random.Generator:
    """The generator of one chunk: independent for different runs, seeds and streams."""
    words = (run.seed, int(run.key, 16), stream)
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(words)))


def run_chunk(proposal: Proposal, run: Run, stream: int) -> Chunk:
    """Draw the samples of one stream and reduce them. The same on every call; O(BLOCK) memory."""
    rng = stream_generator(run, stream)
    nodes = run.nodes
    moved = [
        node.epsilon + (-proposal.loss_error if node.side is Side.UPPER else proposal.loss_error) for node in nodes
    ]
    # Weights are multiplied by this to cover their own rounding.
    scales = np.array([exp(proposal.loss_error if node.side is Side.UPPER else -proposal.loss_error) for node in nodes])
    signed = np.array([-node.theta if node.side is Side.UPPER else node.theta for node in nodes])
    caps = np.array([node.largest for node in nodes])
    sums, logs = np.zeros(len(nodes)), np.zeros(len(nodes))
    largest, found = 0.0, []
    for first in range(0, run.chunk_size, BLOCK):
        size = min(BLOCK, run.chunk_size - first)
        log_weights, losses = np.empty(size), np.empty(size)
        proposal.draw(rng, log_weights, losses)
        largest = max(largest, _reduce(log_weights, losses, np.array(moved), scales, signed, caps, sums, logs))
        found.append(_cells(log_weights, losses))
    merged, inverse = np.unique(np.concatenate([cells for cells, _ in found]), return_inverse=True)
    counts = np.bincount(inverse, np.concatenate([count for _, count in found]), minlength=merged.size)
    cells = np.stack([merged // (2 * CELL_LIMIT) - CELL_LIMIT, merged % (2 * CELL_LIMIT) - CELL_LIMIT], axis=1)
    return Chunk(
        stream=stream,
        samples=run.chunk_size,
        sums=sums,
        logs=logs,
        largest=largest,
        cells=cells.astype(np.int32),
        counts=counts.astype(np.int64),
    )


def total(chunks: Sequence[Chunk]) -> tuple[int, Array, Array]:
    """Samples, sums and logs of chunks that are in the order of their streams, from 0 and without a gap."""
    assert [chunk.stream for chunk in chunks] == list(range(len(chunks)))
    sums = np.zeros_like(chunks[0].sums)
    logs = np.zeros_like(chunks[0].logs)
    for chunk in chunks:
        sums += chunk.sums
        logs += chunk.logs
    return sum(chunk.samples for chunk in chunks), sums, logs


@njit(cache=True, nogil=True)
def _reduce(
    log_weights: Array,
    losses: Array,
    epsilons: Array,
    scales: Array,
    signed: Array,
    caps: Array,
    sums: Array,
    logs: Array,
) -> float:
    """Add Y and log(1 + signed Y) of every sample to each node; return the largest Y / M. O(samples x nodes)."""
    worst = 0.0
    factors = np.exp(epsilons)
    lowest = epsilons.min()
    for i in range(losses.size):
        loss, log_weight = losses[i], log_weights[i]
        if np.isnan(loss) or np.isnan(log_weight):  # counts as the worst on either side
            for j in range(epsilons.size):
                if signed[j] < 0.0:
                    sums[j] += caps[j]
                    logs[j] += np.log1p(signed[j] * caps[j])
            continue
        if loss <= lowest:
            continue
        weight, ratio = np.exp(log_weight), np.exp(-loss)
        for j in range(epsilons.size):
            if loss > epsilons[j]:
                value = weight * (1.0 - factors[j] * ratio)
                worst = max(worst, value / caps[j])
                value = min(value * scales[j], caps[j])
                sums[j] += value
                logs[j] += np.log1p(signed[j] * value)
    return worst


def _cells(log_weights: Array, losses: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The cells that were hit, as single numbers, and how often."""
    lost = np.isnan(losses) | np.isnan(log_weights)
    kept = (losses > 0.0) | lost
    weight = np.where(lost[kept], np.inf, log_weights[kept])  # what cannot be told has the largest weight and loss
    loss = np.where(lost[kept], np.inf, losses[kept])
    rows = np.clip(np.floor(CELL * weight), -CELL_LIMIT, CELL_LIMIT - 1).astype(np.int64) + CELL_LIMIT
    columns = np.clip(np.floor(CELL * loss), -CELL_LIMIT, CELL_LIMIT - 1).astype(np.int64) + CELL_LIMIT
    cells, counts = np.unique(rows * (2 * CELL_LIMIT) + columns, return_counts=True)
    return cells, counts
