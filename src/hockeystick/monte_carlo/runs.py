"""One run: which samples are drawn, in numbered chunks, and the statistics that its bounds are made of."""

import hashlib
from collections.abc import Callable, Generator, Iterable, Sequence
from math import exp

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.monte_carlo.arrays import Array, Integers
from hockeystick.monte_carlo.proposals import Family, Proposal
from hockeystick.pairs.base import DominatingPair
from hockeystick.samples import Chunk, Run
from hockeystick.types import Side

BLOCK = 4096
"""Samples whose weights and losses are held at a time."""
CELL = 16
"""Cells of the stored counts per unit of log-weight, and of loss."""
CELL_LIMIT = 1 << 15
MARGIN = 1e-6
"""Relative room for rounding above a proposal's proved largest value."""
SECONDS_PER_SAMPLE, SECONDS_PER_VALUE = 3e-7, 8e-9
"""What a sample takes beside its steps, and what its value at a node takes (python -m benchmarks.work)."""


def fingerprint(family: Family, pair: DominatingPair) -> str:
    """SHA-256 over the type of the pair, its noise and what else determines it, every bit of its arrays included.

    The same matrix has the same fingerprint on every machine: a family gives numbers that follow from the matrix by
    arithmetic that rounds in the same way everywhere, or the digest of the matrix.
    """
    digest = hashlib.sha256(f"{type(pair).__name__} {pair.noise_multiplier!r}".encode())
    for part in family.fingerprint(pair):
        array = np.asarray(part)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def generator(seed: int, purpose: str) -> np.random.Generator:
    """A generator that follows from the seed and the purpose alone; independent for different ones."""
    digest = hashlib.sha256(f"{purpose}, {seed}".encode()).digest()
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(int.from_bytes(digest))))


def stream_generator(run: Run, stream: int) -> np.random.Generator:
    """The generator of one chunk. Runs with the same seed share it, however else they differ."""
    return generator(run.seed, f"stream {stream}")


def run_chunk(proposal: Proposal, run: Run, stream: int, check: Callable[[], None] = lambda: None) -> Chunk:
    """Draw the samples of one stream and reduce them. The same on every call; O(BLOCK) memory.

    ``check`` runs before each block and may raise, to end work that nobody wants any more.
    """
    rng = stream_generator(run, stream)
    nodes = run.nodes
    error = proposal.loss_error
    moved = [node.epsilon + (-error if node.side is Side.UPPER else error) for node in nodes]
    # Weights are multiplied by this to cover their own rounding.
    scales = np.array([exp(error if node.side is Side.UPPER else -error) for node in nodes])
    signed = np.array([-node.theta if node.side is Side.UPPER else node.theta for node in nodes])
    caps = np.array([node.weight_bound for node in nodes])
    sums, logs = np.zeros(len(nodes)), np.zeros(len(nodes))
    largest, blocks = 0.0, []
    for first in range(0, run.chunk_size, BLOCK):
        check()
        size = min(BLOCK, run.chunk_size - first)
        log_weights, losses = np.empty(size), np.empty(size)
        proposal.draw(rng, log_weights, losses)
        largest = max(largest, _reduce(log_weights, losses, np.array(moved), scales, signed, caps, sums, logs))
        blocks.append(_cells(log_weights, losses))
    merged, inverse = np.unique(np.concatenate([cells for cells, _ in blocks]), return_inverse=True)
    counts = np.bincount(inverse, np.concatenate([count for _, count in blocks]), minlength=merged.size)
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


def seconds_per_sample(proposal: Proposal, epsilons: Sequence[float], losses: Array) -> float:
    """Rough seconds of one core for a sample of a run: to draw it, and to add its value to every node below its loss.

    For pairs of a few steps that is more than what the proposal alone takes. Statistics have a value at the nodes whose
    epsilon is below the loss, and nowhere else.

    Args:
        epsilons: of the nodes.
        losses: of samples of the proposal, as of its pilot; those that are not numbers have no value here.
    """
    nodes = np.sort(np.asarray(epsilons, dtype=np.float64))
    values = np.searchsorted(nodes, losses[~np.isnan(losses)]).sum() / losses.size
    return float(proposal.cost + SECONDS_PER_SAMPLE + SECONDS_PER_VALUE * values)


def in_this_process(proposal: Proposal, run: Run, streams: Iterable[int]) -> Generator[Chunk]:
    """An executor that computes one chunk after the other."""
    for stream in streams:
        yield run_chunk(proposal, run, stream)


@kernel
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


def _cells(log_weights: Array, losses: Array) -> tuple[Integers, Integers]:
    """The cells that were hit, as single numbers, and how often."""
    lost = np.isnan(losses) | np.isnan(log_weights)
    kept = (losses > 0.0) | lost
    weight = np.where(lost[kept], np.inf, log_weights[kept])  # what cannot be told has the largest weight and loss
    loss = np.where(lost[kept], np.inf, losses[kept])
    rows = np.clip(np.floor(CELL * weight), -CELL_LIMIT, CELL_LIMIT - 1).astype(np.int64) + CELL_LIMIT
    columns = np.clip(np.floor(CELL * loss), -CELL_LIMIT, CELL_LIMIT - 1).astype(np.int64) + CELL_LIMIT
    cells, counts = np.unique(rows * (2 * CELL_LIMIT) + columns, return_counts=True)
    return cells, counts
