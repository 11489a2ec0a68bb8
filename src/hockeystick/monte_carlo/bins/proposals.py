"""Proposals for a mixture of bins: nothing, balls thrown one after the other, and noise against the mean.

With ``K = G / sigma^2`` and any A with ``K = A A^T`` the pair is ``P = (1/b) sum_i N(A_i, I)`` against ``Q = N(0, I)``,
A_i the rows of A: both likelihood ratios are functions of ``u = A z`` alone. All proposals move z by a combination of
rows. Proofs of every statement: docs/theory/monte-carlo/bins.md.
"""

from dataclasses import dataclass, fields
from functools import cached_property
from math import inf, log, log1p, sqrt
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg.lapack import dpstrf

from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.monte_carlo.arrays import Array, Integers
from hockeystick.monte_carlo.bins.kernels import BallLaws, Means, draw_balls, draw_outputs
from hockeystick.monte_carlo.moved import Moved
from hockeystick.monte_carlo.proposals import Naive, Plain
from hockeystick.monte_carlo.weight_bounds import bounded_exp, falling, log_power_bound
from hockeystick.types import Direction

HIGHEST_ORDER = 128
"""Most balls in a tuple; their cost is linear in it."""
LARGEST_EXPONENT = 600.0
"""Weights of tuples stay below e to this, within the range of doubles."""
LARGEST_BETA = 1e6
REACH = 40.0
"""Standard deviations beyond which a normal variable is not followed: with probability below e^-790."""
MATCH = 1e-12
"""Relative difference of K and A A^T that is charged as a change of scale, what is beyond it as a common shift."""
SECONDS_PER_NORMAL = 8e-9
SECONDS_PER_EXPONENTIAL = 6e-9
SECONDS_PER_ENTRY = 1e-10
"""Of the factor, in the product with normals."""
SECONDS_PER_CHOICE = 1.1e-9
"""For one ball and one bin."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BinSpace:
    """K, a factor of it, and how far the pair of the factor may be from the true one.

    The sampled pair is the one whose means are the rows of :attr:`factor`, exactly. In pickles only the fields travel.

    Attributes:
        scaled: K as computed, shape (b, b), non-negative.
        factor: A, shape (b, d).
        rounding: the true K is within this relative error of ``scaled``.
    """

    scaled: Array
    factor: Array
    rounding: float

    @classmethod
    def of(cls, scaled: Array, rounding: float) -> Self:
        """With the Cholesky factor, or the pivoted one where K is singular. O(b^3), once."""
        factor: Array
        try:
            factor = np.asarray(np.linalg.cholesky(scaled), dtype=np.float64)
        except np.linalg.LinAlgError:
            lower, pivots, rank, _ = dpstrf(scaled, lower=1)
            factor = np.empty((scaled.shape[0], rank))
            factor[pivots - 1] = np.tril(lower)[:, :rank]
        return cls(scaled=np.ascontiguousarray(scaled), factor=np.ascontiguousarray(factor), rounding=rounding)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def bins(self) -> int:
        """b."""
        return int(self.scaled.shape[0])

    @cached_property
    def largest(self) -> float:
        """The largest entry of K, which is on the diagonal, rounding included."""
        return float(max(self.scaled.max(), 2.0 * self.half.max())) * (1.0 + self.rounding + 1e-9)

    @cached_property
    def spans(self) -> Integers:
        """First column that is not zero and the one after the last, for every row of the factor."""
        used = self.factor != 0.0
        width = self.factor.shape[1]
        first = np.where(used.any(axis=1), used.argmax(axis=1), 0)
        end = np.where(used.any(axis=1), width - used[:, ::-1].argmax(axis=1), 0)
        return np.ascontiguousarray(np.stack([first, end], axis=1).astype(np.int64))

    @cached_property
    def half(self) -> Array:
        """Half the squared lengths of the rows of the factor, shape (b,)."""
        return np.asarray(0.5 * (self.factor**2).sum(axis=1))

    @property
    def means(self) -> Means:
        """What kernels need of the rows."""
        return Means(self.factor, self.spans, self.half)

    @cached_property
    def middle(self) -> Array:
        """Mean of the rows of the factor, shape (d,)."""
        return np.asarray(self.factor.mean(axis=0))

    @property
    def moments(self) -> tuple[float, float]:
        """g, the square of that mean, and A, the mean of the squared lengths of the rows."""
        return float(self.middle @ self.middle), 2.0 * float(self.half.mean())

    @cached_property
    def growth(self) -> Array:
        """``exp(K)``."""
        return np.exp(self.scaled)

    @cached_property
    def _log_growths(self) -> dict[int, float]:
        return {}

    def log_growth(self, count: int) -> float:
        """``max_i log mean_j exp(count K_ij)``. O(b^2), once for every count."""
        if count not in self._log_growths:
            self._log_growths[count] = float(np.log(np.exp(count * self.scaled).mean(axis=1)).max())
        return self._log_growths[count]

    @cached_property
    def _mismatch(self) -> Array:
        """Bound of ``|K - A A^T|``, entry by entry, rounding of this very product included."""
        product = self.factor @ self.factor.T
        sizes = np.abs(self.factor) @ np.abs(self.factor).T
        return np.asarray(np.abs(product - self.scaled) + (2 * self.bins + 8) * UNIT_ROUNDOFF * sizes)

    @cached_property
    def tables_error(self) -> float:
        """Bound of the entries of ``|K - A A^T|``."""
        return float(self._mismatch.max())

    @cached_property
    def pair_error(self) -> float:
        """t with ``e^-t delta~(eps + t) - e^-700 <= delta(eps) <= e^t delta~(eps - t) + e^-700`` for both directions.

        delta~ is the profile of the sampled pair, delta that of the true one.
        """
        relative = self.rounding + MATCH
        absolute = float(np.maximum(self._mismatch - MATCH * self.scaled, 0.0).max())
        return relative * (REACH * sqrt(self.largest) + 4.0 * self.largest) + REACH * sqrt(absolute) + 4.0 * absolute

    def loss_error(self, moves: float) -> float:
        """Bound on the error of losses and log-weights when z is moved by at most ``moves`` rows."""
        length: float = sqrt(self.factor.shape[1]) + REACH + moves * sqrt(self.largest)
        operations: float = self.bins + self.factor.shape[1] + 4.0 * moves + 64.0
        loss = operations * UNIT_ROUNDOFF * (sqrt(self.largest) * length + (moves + 1.0) * self.largest + 1.0)
        return 1e-9 + self.pair_error + 4.0 * (moves + 1.0) * loss + moves**2 * self.tables_error

    @property
    def cost(self) -> float:
        """Seconds for one sample of u and the loss, roughly."""
        entries = float((self.spans[:, 1] - self.spans[:, 0]).sum())
        normals: float = SECONDS_PER_NORMAL * self.factor.shape[1] + SECONDS_PER_EXPONENTIAL * self.bins
        return normals + SECONDS_PER_ENTRY * entries


@dataclass(frozen=True, kw_only=True, eq=False)
class BinProposal(Plain):
    """What the proposals share."""

    space: BinSpace

    @property
    def cost(self) -> float:
        return self.space.cost

    def outputs(self, rng: np.random.Generator, samples: int, beta: float | None) -> Array:
        space, drawn = self.space, np.empty((samples, 2))
        draw_outputs(rng, space.means, beta is None, space.middle, beta or 0.0, drawn)
        return drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class NaiveBins(Naive, BinProposal):
    """The pair itself: y from P for remove, from Q for add."""

    @property
    def loss_error(self) -> float:
        return self.space.loss_error(1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Balls(BinProposal):
    """Remove: z moved by the rows of ``order`` bins, each chosen with regard to those before it.

    Ball k goes to bin j with probability proportional to ``exp(sum_(l<k) K[i_l, j])``; N_k is the mean of these
    numbers over j and ``V = prod_k N_k``. With probability ``share`` the balls fall around a common centre instead:
    independently, in proportion to ``exp((order - 1) K[c, j])``, c uniform. With D the likelihood of the tuple under
    this law relative to uniform balls and ``S = sum_(l<k) K[i_l, i_k]``,

        ``w = e^(-(order - 1) L) / ((1 - share) / V + share D e^-S)``.

    Attributes:
        order: balls, 2 to ``HIGHEST_ORDER``.
        share: in [0, 1).
    """

    name: ClassVar[str] = "balls"
    chosen: ClassVar[tuple[str, ...]] = ("order", "share")
    directions: ClassVar[tuple[Direction, ...]] = (Direction.REMOVE,)

    order: int
    share: float

    @property
    def proved(self) -> bool:
        return 2 <= self.order <= highest_order(self.space) and 0.0 <= self.share < 1.0

    @property
    def cost(self) -> float:
        passes = 2.0 if self.share else 1.0
        return self.space.cost + passes * SECONDS_PER_CHOICE * self.order * self.space.bins

    @property
    def loss_error(self) -> float:
        return self.space.loss_error(float(self.order))

    @cached_property
    def focused(self) -> Array:
        """Rows: laws of balls around each centre, before normalisation."""
        scaled = self.space.scaled
        return np.asarray(np.exp((self.order - 1) * (scaled - scaled.max())))

    @cached_property
    def spread(self) -> Array:
        """What normalises them: bins over their sums."""
        return np.asarray(self.space.bins / self.focused.sum(axis=1))

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def weight_bound(self, epsilon: float) -> float:
        """``prod_(k<a) max_i mean_j e^(k K_ij) * e^(-(a-1) eps) (a-1)^(a-1) / a^a / (1 - share)``."""
        room = (self.order + 3) * self.loss_error
        return bounded_exp(log_balls_bound(self.space, self.order, epsilon) - log1p(-self.share) + room)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        space = self.space
        balls = BallLaws(space.growth, self.focused, self.spread)
        draw_balls(rng, space.means, balls, self.order, self.share, log_weights, losses)


@dataclass(frozen=True, kw_only=True, eq=False)
class AgainstMean(Moved, BinProposal):
    """Add: z moved by ``-beta`` times the mean of the rows."""

    name: ClassVar[str] = "against_mean"
    largest_beta: ClassVar[float] = LARGEST_BETA

    @property
    def loss_error(self) -> float:
        return self.space.loss_error(max(self.beta, 1.0))

    @property
    def moments(self) -> tuple[float, float]:
        return self.space.moments

    def weight_bound(self, epsilon: float) -> float:
        """With room for the difference to the true pair."""
        return super().weight_bound(epsilon) * bounded_exp((self.beta + 3.0) * self.loss_error)


def log_balls_bound(space: BinSpace, order: int, epsilon: float) -> float:
    """Log of the bound of :class:`Balls` without concentrated tuples, up to rounding."""
    return log_power_bound(order, sum(space.log_growth(k) for k in range(1, order)), epsilon)


def best_order(space: BinSpace, epsilon: float) -> int | None:
    """The order with the smallest bound; None if 2 is too much already."""
    orders = range(2, highest_order(space) + 1)
    _, best = min(falling(lambda order: log_balls_bound(space, order, epsilon), orders), default=(inf, None))
    return best


def highest_order(space: BinSpace) -> int:
    """The largest number of balls whose weights stay within the range of doubles; below 2 if there is none."""
    order = HIGHEST_ORDER
    while order >= 2 and order * (order * space.largest + log(space.bins)) > LARGEST_EXPONENT:
        order -= 1
    return order


def best_beta(space: BinSpace, epsilon: float) -> float:
    """Where the bound of :class:`AgainstMean` is smallest; it is log-convex in beta. Bisection."""
    square, energy = space.moments
    low, high = 1e-6, LARGEST_BETA
    while high > low * (1.0 + 1e-9):
        beta = sqrt(low * high)
        slope = 0.5 * energy - epsilon + beta * square + log(beta) - log1p(beta)
        low, high = (beta, high) if slope < 0.0 else (low, beta)
    return low
