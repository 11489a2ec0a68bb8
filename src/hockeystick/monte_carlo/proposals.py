"""What is sampled: proposals (ways to draw weighted samples of the privacy loss) and the families that know them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hockeystick.bounds import Profile
from hockeystick.pairs.base import DominatingPair
from hockeystick.types import Direction, Side

Array = NDArray[np.float64]


def rounded(parameter: float) -> float:
    """A parameter to three significant digits, as all that are proposed have them.

    A finer one hardly makes a better proposal, but gives whoever wants another bound from the same seed more to try.
    """
    return float(f"{parameter:.2e}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposal(ABC):
    """A distribution R to draw from, for one direction of one pair.

    Every sample comes with the privacy loss ``l`` of its output in this direction (``log X`` for remove, ``-log X``
    for add) and a log-weight ``log w``, such that with ``Y(epsilon) = w (1 - e^(epsilon - l))_+``

        ``E_R Y(epsilon) = delta(epsilon)`` of this direction, and ``0 <= Y(epsilon) <= weight_bound(epsilon)`` always.

    Both are proved in docs/theory/monte-carlo; a bound is only as good as ``weight_bound``. Where ``sides`` has one
    side alone, the expectation is a bound of that side instead of the value.

    A proposal is picklable and depends on the pair, on ``parameters`` and on nothing else, so that anyone can draw its
    samples again.

    Attributes:
        direction: whose profile is sampled.
    """

    name: ClassVar[str]
    """How evidence calls it."""

    direction: Direction

    @property
    @abstractmethod
    def parameters(self) -> dict[str, float]:
        """What the family needs beside the pair, the direction and the name to build the same proposal again.

        Where the family proposes it, each is :func:`rounded`.
        """

    @property
    @abstractmethod
    def cost(self) -> float:
        """Rough seconds for one sample on one core; chooses among proposals and the size of chunks."""

    @property
    def sides(self) -> tuple[Side, ...]:
        """On which sides the mean of Y bounds the profile."""
        return (Side.UPPER, Side.LOWER)

    @property
    def loss_error(self) -> float:
        """Bound on the absolute rounding error of the losses and log-weights of the kernel, and of log M.

        Log-weights are relative to the law that is drawn in floating point, where tables are rounded.
        """
        return 1e-9

    def read_at(self, side: Side, epsilon: float) -> float:
        """Where M is needed for a bound at epsilon: samples for upper bounds are read at a smaller one."""
        return max(epsilon - self.loss_error, 0.0) if side is Side.UPPER else epsilon

    def drawn_bound(self, side: Side, epsilon: float) -> float:
        """M for the law that is drawn: rounding moves log M and the log-weights by ``loss_error`` each."""
        return self.weight_bound(self.read_at(side, epsilon)) * exp(2.0 * self.loss_error)

    @abstractmethod
    def weight_bound(self, epsilon: float) -> float:
        """M: proved upper bound on Y(epsilon); finite or infinite, never below the truth."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        """Fill both arrays (same length) with independent samples.

        Releases the interpreter lock (``nogil`` kernels), keeps no more than a few megabytes, and uses ``rng`` alone.
        """


@dataclass(frozen=True, kw_only=True)
class Family:
    """All proposals for one type of pair.

    Attributes:
        pair: the type.
        propose: proposals for a direction and an epsilon, the most promising first (smallest cost times M), and the
            naive one (w = 1, M = 1) last. Deterministic: no sampling, no clock.
        build: the proposal with this name and these parameters, for verification and for other machines; raises
            InvalidInputError for what propose would not give.
        fingerprint: numbers that determine the pair (Gram matrix, columns, rates ...): arrays and scalars, hashed
            bit by bit.
        known_upper: a closed-form upper bound on one direction, or None; it may spare its sampling.
        refusal: why a pair of this type cannot be sampled for a side, or None.
    """

    pair: type[DominatingPair]
    propose: Callable[[Any, Direction, float], Sequence[Proposal]]
    build: Callable[[Any, Direction, str, Mapping[str, float]], Proposal]
    fingerprint: Callable[[Any], Sequence[Any]]
    known_upper: Callable[[Any, Direction], Profile | None] = lambda pair, direction: None
    refusal: Callable[[Any, Side], str | None] = lambda pair, side: None
