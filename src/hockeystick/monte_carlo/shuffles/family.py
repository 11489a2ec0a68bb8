"""Proposals for the pair (P_S, Q_S) of shuffled batches, for lower bounds (docs/theory/monte-carlo/subsets.md)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.moved import BETAS, MAX_BETA, Moved, best_beta
from hockeystick.monte_carlo.proposals import Family, Naive, Plain, Proposal, rounded
from hockeystick.monte_carlo.shuffles.kernels import Move, draw_epochs
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL, largest_of_power
from hockeystick.pairs.shuffled_batches import ShuffledBatches
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction, Side

WITH, WITHOUT = 2.0, 1.0
"""Shift of the batch that holds the example, under P_S and Q_S."""
SECONDS_PER_BIN = 2.5e-8


@dataclass(frozen=True, kw_only=True, eq=False)
class _ShuffleProposal(Plain):
    """What the proposals share: each epoch is drawn afresh from Gaussians with one shifted coordinate.

    The pair is attained by one dataset, and whether another is worse is not known: the mean of Y is a lower bound.

    Attributes:
        pair: T = ``bins`` and E = ``epochs``; the batch size does not matter.
    """

    pair: ShuffledBatches

    @property
    def strength(self) -> float:
        """How far coordinates are moved: beta; 0 for the naive proposal."""
        return float(self.parameters.get("beta", 0.0))

    @property
    def sides(self) -> tuple[Side, ...]:
        """Lower bounds alone."""
        return (Side.LOWER,)

    @property
    def cost(self) -> float:
        """A normal and two exponentials for each batch."""
        return SECONDS_PER_BIN * self.pair.bins * self.pair.epochs

    @property
    def loss_error(self) -> float:
        """First-order bound: sums of T positive terms, and exponents, in every epoch (subsets.md, Rounding)."""
        sigma = self.pair.noise_multiplier
        exponent = (2.0 + self.strength) * ((2.0 + self.strength) / sigma + FARTHEST_NORMAL) / sigma
        exponents = (16.0 + self.pair.epochs) * (1.0 + self.strength) * exponent
        roundings = 3.0 * (self.pair.bins + 8.0) + exponents + 8.0 * self.pair.epochs
        return float(max(1e-9, 2.0 * UNIT_ROUNDOFF * self.pair.epochs * roundings))

    def outputs(self, rng: np.random.Generator, samples: int, beta: float | None) -> Array:
        """The mean of P_S is that of Q_S and ``1 / T``."""
        drawn = self._draw(rng, samples, WITH if beta is None else WITHOUT, (beta or 0.0) / self.pair.bins)
        return np.stack([drawn[:, 0], drawn[:, 2] - moments_of(self.pair)[0]], axis=1)

    def _draw(
        self, rng: np.random.Generator, samples: int, shift: float, drift: float = 0.0, share: float = 0.0
    ) -> Array:
        """``log P_S / Q_S``, the log-ratio of the mixture with farther shifts, and ``mean(u)``, summed over epochs."""
        drawn = np.empty((samples, 3))
        sigma, epochs = self.pair.noise_multiplier, self.pair.epochs
        draw_epochs(rng, sigma, self.pair.bins, epochs, Move(drift, shift, self.strength, share), drawn)
        drawn[:, 0] -= epochs * (WITH**2 - WITHOUT**2) / (2.0 * sigma**2)
        return drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class NaiveShuffle(Naive, _ShuffleProposal):
    """The pair itself."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FartherShuffle(_ShuffleProposal):
    """Remove: every epoch from P_S or, with probability ``share``, from ``(1/T) sum_t N((2 + beta) e_t, sigma^2 I)``.

    The weight of an epoch with loss l is at most ``h(l) = 1 / (1 - share + share e^{beta l - c})``,
    ``c = beta (beta + 1) / (2 sigma^2)``.

    Attributes:
        beta: > 0.
        share: in (0, 1].
    """

    name: ClassVar[str] = "farther"
    chosen: ClassVar[tuple[str, ...]] = ("beta", "share")
    directions: ClassVar[tuple[Direction, ...]] = (Direction.REMOVE,)
    beta: float
    share: float

    @property
    def proved(self) -> bool:
        return 0.0 < self.beta <= MAX_BETA and 0.0 < self.share <= 1.0

    def weight_bound(self, epsilon: float) -> float:
        """``h(epsilon / E)^E s^s / (s + 1)^(s + 1)``, s the slope of ``-log h`` at ``epsilon / E``."""
        beta, variance = self.beta, self.pair.noise_multiplier**2
        return largest_of_power(epsilon, beta, beta * (beta + 1.0) / (2.0 * variance), self.share, self.pair.epochs)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        drawn = self._draw(rng, losses.size, WITH, share=self.share)
        log_weights[:] = -drawn[:, 1]
        losses[:] = drawn[:, 0]


@dataclass(frozen=True, kw_only=True, eq=False)
class LowerShuffle(Moved, _ShuffleProposal):
    """Add: every epoch from Q_S moved by ``-(beta / T) 1``."""

    name: ClassVar[str] = "lower"

    @property
    def moments(self) -> tuple[float, float]:
        return moments_of(self.pair)


def moments_of(pair: ShuffledBatches) -> tuple[float, float]:
    """g, the square of what P_S has more than Q_S on the average, and A, for which Jensen's inequality proves M."""
    scale = pair.epochs / pair.noise_multiplier**2
    return scale / pair.bins, scale * (3.0 - 2.0 / pair.bins)


def propose(pair: ShuffledBatches, direction: Direction, epsilon: float) -> Sequence[Proposal]:
    """One proposal, and the naive one.

    M does not matter for the validity of lower bounds, the variance does. For remove, a large loss comes from one
    epoch, so one epoch in a run is moved, as far as is best for a single epoch.
    """
    naive = NaiveShuffle(direction=direction, pair=pair)
    if direction is Direction.REMOVE:
        single = replace(pair, epochs=1)
        trials = (FartherShuffle(direction=direction, pair=single, beta=float(beta), share=1.0) for beta in BETAS)
        beta = min(trials, key=lambda proposal: proposal.weight_bound(epsilon)).beta
        return (
            FartherShuffle(direction=direction, pair=pair, beta=beta, share=rounded(1.0 / pair.epochs)),
            naive,
        )
    tilted = LowerShuffle(direction=direction, pair=pair, beta=best_beta(moments_of(pair), epsilon))
    return (tilted, naive) if tilted.weight_bound(epsilon) < 1.0 else (naive,)


FAMILY = Family(
    pair=ShuffledBatches,
    kinds=(NaiveShuffle, FartherShuffle, LowerShuffle),
    propose=propose,
    fingerprint=lambda pair: (pair.bins, pair.epochs),  # the batch size does not matter
    refusal=lambda pair, side: (
        "the pair of shuffled batches is attained by one dataset and bounds the mechanism from below only"
        if side is Side.UPPER
        else None
    ),
)
