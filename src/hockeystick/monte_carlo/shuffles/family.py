"""Proposals for the pair (P_S, Q_S) of shuffled batches, for lower bounds (docs/theory/monte-carlo/subsets.md)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hockeystick.monte_carlo.moved import BETAS
from hockeystick.monte_carlo.proposals import Array, Family, Naive, Proposal, rounded
from hockeystick.monte_carlo.shuffles.kernels import Move, draw_epochs
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL, bounded_exp, largest_of_power, log_factor
from hockeystick.pairs.shuffled_batches import ShuffledBatches
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction, Side

WITH, WITHOUT = 2.0, 1.0
"""Shift of the batch that holds the example, under P_S and Q_S."""
SECONDS_PER_BIN = 2.5e-8
MAX_STRENGTH = 1e4
"""Largest strength that is taken from outside."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _ShuffleProposal(Proposal):
    """What the proposals share: each epoch is drawn afresh from Gaussians with one shifted coordinate.

    The pair is attained by one dataset, and whether another is worse is not known: the mean of Y is a lower bound.

    Attributes:
        pair: T = ``bins`` and E = ``epochs``; the batch size does not matter.
        beta: how far coordinates are moved; 0 for the naive proposal.
    """

    pair: ShuffledBatches
    beta: float = 0.0

    @property
    def proved(self) -> bool:
        """Only the naive proposal moves nothing."""
        return not self.chosen or 0.0 < self.beta <= MAX_STRENGTH

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
        exponent = (2.0 + self.beta) * ((2.0 + self.beta) / sigma + FARTHEST_NORMAL) / sigma
        exponents = (16.0 + self.pair.epochs) * (1.0 + self.beta) * exponent
        roundings = 3.0 * (self.pair.bins + 8.0) + exponents + 8.0 * self.pair.epochs
        return float(max(1e-9, 2.0 * UNIT_ROUNDOFF * self.pair.epochs * roundings))

    def _draw(self, rng: np.random.Generator, samples: int, shift: float, drift: float, share: float) -> Array:
        """``log P_S / Q_S``, the log-ratio of the mixture with farther shifts, and ``mean(u)``, summed over epochs."""
        drawn = np.empty((samples, 3))
        sigma, epochs = self.pair.noise_multiplier, self.pair.epochs
        draw_epochs(rng, sigma, self.pair.bins, epochs, Move(drift, shift, self.beta, share), drawn)
        drawn[:, 0] -= epochs * (WITH**2 - WITHOUT**2) / (2.0 * sigma**2)
        return drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class NaiveShuffle(Naive, _ShuffleProposal):
    """The pair itself."""

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        remove = self.direction is Direction.REMOVE
        log_ratios = self._draw(rng, losses.size, WITH if remove else WITHOUT, 0.0, 0.0)[:, 0]
        log_weights[:] = 0.0
        losses[:] = log_ratios if remove else -log_ratios


@dataclass(frozen=True, kw_only=True, eq=False)
class FartherShuffle(_ShuffleProposal):
    """Remove: every epoch from P_S or, with probability ``share``, from ``(1/T) sum_t N((2 + beta) e_t, sigma^2 I)``.

    The weight of an epoch with loss l is at most ``h(l) = 1 / (1 - share + share e^{beta l - c})``,
    ``c = beta (beta + 1) / (2 sigma^2)``.

    Attributes:
        share: in (0, 1].
    """

    name: ClassVar[str] = "farther"
    chosen: ClassVar[tuple[str, ...]] = ("beta", "share")
    directions: ClassVar[tuple[Direction, ...]] = (Direction.REMOVE,)
    share: float

    @property
    def proved(self) -> bool:
        return super().proved and 0.0 < self.share <= 1.0

    def weight_bound(self, epsilon: float) -> float:
        """``h(epsilon / E)^E s^s / (s + 1)^(s + 1)``, s the slope of ``-log h`` at ``epsilon / E``."""
        beta, variance = self.beta, self.pair.noise_multiplier**2
        return largest_of_power(epsilon, beta, beta * (beta + 1.0) / (2.0 * variance), self.share, self.pair.epochs)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        drawn = self._draw(rng, losses.size, WITH, 0.0, self.share)
        log_weights[:] = -drawn[:, 1]
        losses[:] = drawn[:, 0]


@dataclass(frozen=True, kw_only=True, eq=False)
class LowerShuffle(_ShuffleProposal):
    """Add: every epoch from Q_S moved by ``-(beta / T) 1``."""

    name: ClassVar[str] = "lower"
    chosen: ClassVar[tuple[str, ...]] = ("beta",)
    directions: ClassVar[tuple[Direction, ...]] = (Direction.ADD,)

    def weight_bound(self, epsilon: float) -> float:
        """``exp(-beta (epsilon - 3 E / (2 sigma^2)) + E beta (beta - 2) / (2 T sigma^2))`` times the usual factor."""
        return bounded_exp(log_largest_lower(self.pair, self.beta, epsilon))

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        """The weight is ``exp(beta mean(u) + beta (beta - 2) / (2 T sigma^2))`` for each epoch."""
        pair, beta = self.pair, self.beta
        drawn = self._draw(rng, losses.size, WITHOUT, beta / pair.bins, 0.0)
        constant = beta * (beta - 2.0) / (2.0 * pair.bins * pair.noise_multiplier**2)
        log_weights[:] = pair.epochs * constant + beta * drawn[:, 2]
        losses[:] = -drawn[:, 0]


def log_largest_lower(pair: ShuffledBatches, beta: float, epsilon: float) -> float:
    """log M of the proposal for add."""
    slope = 1.5 + (0.5 * beta - 1.0) / pair.bins
    return beta * (pair.epochs * slope / pair.noise_multiplier**2 - epsilon) + log_factor(beta)


def propose(pair: ShuffledBatches, direction: Direction, epsilon: float) -> Sequence[Proposal]:
    """One proposal, and the naive one.

    M does not matter for the validity of lower bounds, the variance does. For remove, a large loss comes from one
    epoch, so one epoch in a run is moved, as far as is best for a single epoch.
    """
    naive = NaiveShuffle(direction=direction, pair=pair)
    if direction is Direction.REMOVE:
        one = replace(pair, epochs=1)
        trials = (FartherShuffle(direction=direction, pair=one, beta=float(beta), share=1.0) for beta in BETAS)
        beta = min(trials, key=lambda proposal: proposal.weight_bound(epsilon)).beta
        return (
            FartherShuffle(direction=direction, pair=pair, beta=beta, share=rounded(1.0 / pair.epochs)),
            naive,
        )
    beta = float(min(BETAS, key=lambda beta: log_largest_lower(pair, float(beta), epsilon)))
    tilted = LowerShuffle(direction=direction, pair=pair, beta=beta)
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
