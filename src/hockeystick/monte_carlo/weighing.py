"""From the densities at outputs to weights: what the proposals that mix two densities or more share.

A proposal draws each output from one of some densities, by their shares, and weighs it by that of the mixture, whatever
it was drawn from. Densities are relative to Q.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log1p
from typing import ClassVar

import numpy as np

from hockeystick.monte_carlo.arrays import Array, Flags
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.weight_bounds import ENDLESS, bounded_exp, log_power_bound
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction, Side

TILTED_SHARE, BELOW_SHARE = 0.8, 0.9
"""How often outputs are those of the density that proves M (upper bounds), and not those of P (lower bounds)."""
OTHER_SHARE = 1 / 64
"""How often a sample stands for histories that are left out."""


def weigh(log_ratios: Array, densities: Sequence[tuple[float, Array]], log_weights: Array, losses: Array) -> None:
    """Weights and losses of outputs from a mixture of densities.

    Args:
        log_ratios: logs of X or of what stands for it, shape (samples,), as all arrays.
        densities: the share of each, and its logarithms; a share of 0 is left out.
    """
    mixed: Array = np.full(log_ratios.size, -np.inf)
    with np.errstate(invalid="ignore"):  # what leaves the range of doubles is not a number, and counts as M
        for share, logs in densities:
            if share > 0.0:
                mixed = np.logaddexp(mixed, log(share) + logs)
        losses[:] = log_ratios
        log_weights[:] = log_ratios - mixed
        lose(log_weights, losses)


def lose(log_weights: Array, losses: Array) -> None:
    """Not a number is what has no finite weight and loss."""
    lost = ~(np.isfinite(log_weights) & np.isfinite(losses))
    log_weights[lost] = np.nan
    losses[lost] = np.nan


@dataclass(frozen=True, kw_only=True, eq=False)
class UpperBounds(Proposal):
    """Remove, upper bounds: outputs whose density dominates a power of a bound on X, mixed with others.

    Histories with many participations are left out; the chance of them is added by samples of their own.

    Attributes:
        order: a >= 2, the power that the density dominates.
    """

    directions: ClassVar[tuple[Direction, ...]] = (Direction.REMOVE,)
    order: int

    @property
    @abstractmethod
    def log_norm(self) -> float:
        """log Z: the density is at least the power over Z."""

    @property
    @abstractmethod
    def left_out(self) -> float:
        """What left-out histories and outputs add to any profile, at most."""

    @abstractmethod
    def drawn(self, rng: np.random.Generator, samples: int) -> Array:
        """Logs of an estimate of X, of the dominating density and of the other one, shape (samples, 3)."""

    @property
    def sides(self) -> tuple[Side, ...]:
        """The chance of histories that are left out is added, and the profile is convex in the ratio."""
        return (Side.UPPER,)

    def weight_bound(self, epsilon: float) -> float:
        """The bound of :func:`log_largest`, and what stands for the rest."""
        largest = log_largest(self.order, self.log_norm, epsilon, self._others)
        rest = 1.001 * bounded_exp(self._log_rest) if self._others else 0.0
        return max(bounded_exp(largest + 1e-12), rest)

    @property
    def _others(self) -> float:
        """How often a sample stands for what is left out."""
        return OTHER_SHARE if self.left_out else 0.0

    @property
    def _log_rest(self) -> float:
        """log of the weight of these samples."""
        return log(self.left_out) - log(OTHER_SHARE)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        rest = rng.random(losses.size) < OTHER_SHARE if self._others else None
        drawn = self.drawn(rng, losses.size)
        densities = (TILTED_SHARE, drawn[:, 1]), (1.0 - TILTED_SHARE, drawn[:, 2])
        weigh(drawn[:, 0], densities, log_weights, losses)
        if rest is not None:
            stand_for_others(rest, self._log_rest, log_weights, losses)


def log_largest(order: int, log_norm: float, epsilon: float, others: float = OTHER_SHARE) -> float:
    """log M, but for what stands for the rest: ``Z e^(-(a-1) epsilon) (a-1)^(a-1) / a^a`` over the share.

    Args:
        others: how often a sample stands for what is left out.
    """
    return log_power_bound(order, log_norm, epsilon) - (log(TILTED_SHARE) + log1p(-others))


@dataclass(frozen=True, kw_only=True, eq=False)
class LowerBounds(Proposal):
    """Remove, lower bounds: a mixture of P and of another density; ratios are bounded from below."""

    directions: ClassVar[tuple[Direction, ...]] = (Direction.REMOVE,)

    @abstractmethod
    def drawn(self, rng: np.random.Generator, samples: int) -> Array:
        """Logs of a lower bound on X, of the density of P or of such a bound, and of the other; (samples, 3)."""

    @property
    def sides(self) -> tuple[Side, ...]:
        """The ratio is bounded from below, and the samples grow with it."""
        return (Side.LOWER,)

    def weight_bound(self, epsilon: float) -> float:
        """The share of P bounds it; a lower bound does not use it."""
        return 1.0 / (1.0 - BELOW_SHARE) * (1.0 + 8.0 * UNIT_ROUNDOFF)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        drawn = self.drawn(rng, losses.size)
        weigh(drawn[:, 0], ((1.0 - BELOW_SHARE, drawn[:, 1]), (BELOW_SHARE, drawn[:, 2])), log_weights, losses)


def stand_for_others(rest: Flags, log_rest: float, log_weights: Array, losses: Array) -> None:
    """Let some samples stand for what is left out, with the weight ``e^log_rest``; the others are fewer."""
    log_weights -= log1p(-OTHER_SHARE)
    log_weights[rest] = log_rest
    losses[rest] = ENDLESS
