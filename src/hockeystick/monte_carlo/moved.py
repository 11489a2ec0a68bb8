"""Add: outputs of Q that are moved away from the mean of P (docs/theory/monte-carlo/subsets.md)."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.proposals import Plain, rounded
from hockeystick.monte_carlo.weighing import lose
from hockeystick.monte_carlo.weight_bounds import bounded_exp, log_factor
from hockeystick.types import Direction, Side

MAX_BETA = 1e4
BETAS = np.array([rounded(beta) for beta in np.geomspace(1e-2, 1e3, 501)])
"""Strengths that are tried."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Moved(Plain):
    """``y ~ N(-beta C E x, sigma^2 I)``; ``g = |C E x|^2 / sigma^2``, ``A = E |C x|^2 / sigma^2``.

    By Jensen's inequality ``log X >= <C E x, y> / sigma^2 - A / 2``, which proves M.

    Attributes:
        beta: > 0.
    """

    chosen: ClassVar[tuple[str, ...]] = ("beta",)
    directions: ClassVar[tuple[Direction, ...]] = (Direction.ADD,)
    largest_beta: ClassVar[float] = MAX_BETA
    beta: float

    @property
    @abstractmethod
    def moments(self) -> tuple[float, float]:
        """g and A."""

    @property
    def proved(self) -> bool:
        return 0.0 < self.beta <= self.largest_beta and super().proved

    def weight_bound(self, epsilon: float) -> float:
        """``exp(-beta (epsilon - A/2) + beta^2 g / 2) beta^beta / (beta + 1)^(beta + 1)``."""
        return bounded_exp(log_largest_add(self.moments, self.beta, epsilon))

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        """Where X is only bounded from below, the larger of two bounds on it; a lower bound takes X as it is."""
        drawn, (squared_mean, mean_square) = self.outputs(rng, losses.size, self.beta), self.moments
        with np.errstate(invalid="ignore"):
            proving = drawn[:, 1] - 0.5 * mean_square
            losses[:] = -(drawn[:, 0] if Side.LOWER in self.sides else np.fmax(drawn[:, 0], proving))
            log_weights[:] = self.beta * drawn[:, 1] + 0.5 * self.beta**2 * squared_mean
            lose(log_weights, losses)


@dataclass(frozen=True, kw_only=True, eq=False)
class MovedBelow(Moved):
    """Upper bounds alone: outputs have a lower bound on the ratio, and the samples fall with it."""

    @property
    def sides(self) -> tuple[Side, ...]:
        return (Side.UPPER,)


def log_largest_add(moments: tuple[float, float], beta: float, epsilon: float) -> float:
    """log M, from g and A."""
    squared_mean, mean_square = moments
    return -beta * (epsilon - 0.5 * mean_square) + 0.5 * beta**2 * squared_mean + log_factor(beta)


def best_beta(moments: tuple[float, float], epsilon: float) -> float:
    """That with the smallest M."""
    return float(min(BETAS, key=lambda beta: log_largest_add(moments, float(beta), epsilon)))
