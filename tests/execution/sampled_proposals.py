"""Proposals that workers in other processes can import; drawn with numpy, so that nothing is compiled."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.samples import Chunk, Node, Run
from hockeystick.types import Direction, Side

SHIFT = 1.5


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianProposal(Proposal):
    """Unweighted samples of the loss of N(SHIFT, 1) against N(0, 1), with a matrix product on the way."""

    name = "gaussian"

    ballast: Array
    """Square, as large as a test wants; the samples depend on it through a product."""

    @property
    def cost(self) -> float:
        return 1e-7

    def weight_bound(self, epsilon: float) -> float:
        return 1.0

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        log_weights[:] = 0.0
        normals = rng.standard_normal((losses.size, len(self.ballast))) @ self.ballast
        losses[:] = SHIFT * (normals[:, 0] + 0.5 * SHIFT)


@dataclass(frozen=True, kw_only=True, eq=False)
class DeadlyProposal(GaussianProposal):
    """Kills the process that it is used in, as often as there are lives: files in a folder that all can see."""

    lives: str

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        for life in sorted(Path(self.lives).glob("life-*")):
            try:
                life.unlink()
            except FileNotFoundError:  # another process lost it first
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        super().draw(rng, log_weights, losses)


@dataclass(frozen=True, kw_only=True, eq=False)
class SlowProposal(GaussianProposal):
    """Takes its time for every block."""

    seconds: float

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        time.sleep(self.seconds)
        super().draw(rng, log_weights, losses)


PICKLED: list[int] = []
"""Process numbers, one for every time that a counted proposal left this process."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CountedProposal(GaussianProposal):
    """Counts how often it is pickled."""

    def __getstate__(self) -> dict[str, object]:
        PICKLED.append(os.getpid())
        return dict(self.__dict__)


@dataclass(frozen=True, kw_only=True, eq=False)
class BrokenProposal(GaussianProposal):
    """Cannot be drawn from."""

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        raise FloatingPointError("nothing to draw")


def ballast(size: int = 4) -> Array:
    """A rotation, so that the first column of the product is a normal number."""
    square, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((size, size)))
    return square


def lives(folder: Path, count: int) -> str:
    """A folder with so many lives."""
    for life in range(count):
        (folder / f"life-{life}").touch()
    return str(folder)


def a_run(*, chunk_size: int = 10_000, kernels: int | None = None) -> Run:
    """A run with nodes on both sides."""
    nodes = tuple(
        Node(side=side, epsilon=epsilon, theta=0.5, weight_bound=1.0, failure=1e-3)
        for side in Side
        for epsilon in (0.5, 2.0)
    )
    run = Run(
        subject="test",
        direction=Direction.REMOVE,
        proposal="gaussian",
        parameters={},
        nodes=nodes,
        chunk_size=chunk_size,
        seed=7,
    )
    return run if kernels is None else run.model_copy(update={"kernels": kernels})


def same(chunk: Chunk, other: Chunk) -> bool:
    """Whether two chunks are the same bit for bit."""
    arrays = ("sums", "logs", "cells", "counts")
    return (
        (chunk.stream, chunk.samples, chunk.largest) == (other.stream, other.samples, other.largest)
        and all(np.array_equal(getattr(chunk, name), getattr(other, name)) for name in arrays)
        and all(getattr(chunk, name).dtype == getattr(other, name).dtype for name in arrays)
    )
