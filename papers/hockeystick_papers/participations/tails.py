"""Upper bounds, in high probability, on the chance that the example took part in a step, given the earlier outputs.

Given the outputs of the rows before a block and *all other* participations, the log odds of taking part in step j are
at most

    logit p + (<y, c_j> - |c_j|^2 / 2) / sigma^2,      c_j the column's part in the earlier rows,

because the inner products ``G_jj' = <c_j, c_j'>`` are non-negative. With ``W = <y, c_j>``,

    P(W >= t) <= min(1, 1 / (u sqrt(2 pi))) exp(-u t / s + u^2 / 2) prod_j' (1 - p + p e^(u G_jj' / s))        remove
    Q(W >= t) <= min(1, 1 / (u sqrt(2 pi))) exp(-u t / s + u^2 / 2),           s = sigma |c_j|                 add

for every u > 0. The step itself is exact, the others enter by sum, sum of squares and largest of their inner products.

Proofs: docs/theory/subsets/mmcc.md. Source: choquette-choo-2024, Algorithm 2, whose halves for the noise and for the
inner products are replaced by one bound for their sum.
"""

from dataclasses import dataclass, replace
from math import log, log1p, sqrt

import numpy as np

from hockeystick.laws.law import Array
from hockeystick.types import Direction
from hockeystick_papers.participations import tail_kernels
from hockeystick_papers.participations.tail_kernels import ROOT_TWO_PI, Indices

NEWTON_STEPS = 30
SMALLEST_CHANCE = 1e-300
"""Chances below this are raised to it: what underflows to 0 would be too small."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """The different blocks of rows of C, each with its non-zero columns: all that the bounds depend on.

    Attributes:
        starts: shape (blocks + 1,); the pairs of block k are ``starts[k]..starts[k + 1] - 1``, newest column first.
        copies: shape (blocks,), how many blocks of C are equal to this one.
        norm: shape (pairs,), norm of the column's part in the block.
        own: squared norm of its part in the earlier rows.
        total, square, largest: sum, sum of squares and largest of the inner products of that part with the other
            columns' parts in the earlier rows.
        error: proved relative error of all these numbers.
        informed: how many pairs of a block of C and a column have ``norm > 0`` and ``own > 0``.
        steps: columns of C that the example may take part in.
    """

    starts: Indices
    copies: Indices
    norm: Array
    own: Array
    total: Array
    square: Array
    largest: Array
    error: float
    informed: int
    steps: int

    @property
    def count(self) -> int:
        """Number of different blocks."""
        return int(self.copies.size)

    @property
    def numbers(self) -> tuple[Array | Indices, ...]:
        """All that the bounds depend on."""
        return self.starts, self.copies, self.norm, self.own, self.total, self.square, self.largest

    def restricted(self, which: Indices, copies: Indices) -> "Blocks":
        """Some of the blocks, with other multiplicities; ``informed`` stays. For ranking only."""
        pairs = np.concatenate([np.arange(self.starts[k], self.starts[k + 1]) for k in which])
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[which])])
        per_pair = {name: getattr(self, name)[pairs] for name in ("norm", "own", "total", "square", "largest")}
        return replace(self, starts=starts, copies=copies, **per_pair)


def participation_bounds(
    blocks: Blocks, noise_multiplier: float, prob: float, spent: float, direction: Direction
) -> Array:
    """Upper bounds on the chance of a participation, given the outputs before the block and all other participations.

    Args:
        prob: p in (0, 1].
        spent: failure probability of all pairs together, in (0, 1); not used when no pair is informed.

    Formal guarantee: the event that an entry of the result, shape (pairs,), is too small for one of the blocks of C has
        at most the probability ``spent``, under P for remove and under Q for add. Pairs that no earlier row informs
        about have p itself.

    Cost: O(pairs).
    """
    bounds = np.full(blocks.norm.size, prob)
    informed = blocks.own > 0.0
    if prob == 1.0 or not informed.any():
        return bounds
    variance = noise_multiplier**2
    log_budget = (log(blocks.informed) - log(spent)) * (1.0 + 1e-14)
    quantile = _quantile(log_budget)
    own = blocks.own[informed] / variance
    error = blocks.error + 1e-15
    if direction is Direction.ADD:
        raised = tail_kernels.log_odds_without(own, error, log_budget, quantile)
    else:
        earlier = tail_kernels.Earlier(
            own=own,
            total=blocks.total[informed] / variance,
            square=blocks.square[informed] / variance**2,
            largest=blocks.largest[informed] / variance,
        )
        raised = tail_kernels.log_odds_with(earlier, error, log_budget, quantile, prob, _largest_curvature(prob))
    before = log(prob) - log1p(-prob)
    log_odds = before + raised + 1e-14 * (abs(before) + np.abs(raised))
    with np.errstate(over="ignore"):
        bounds[informed] = np.clip((1.0 + 1e-14) / (1.0 + np.exp(-log_odds)), SMALLEST_CHANCE, 1.0)
    return bounds


def _quantile(log_budget: float) -> float:
    """The u > 0 at which ``e^(-u^2/2) / (u sqrt(2 pi))`` is about the budget: the best tilt under Q; any is valid."""
    quantile = 1.0
    for _ in range(NEWTON_STEPS):
        quantile = sqrt(max(2.0 * (log_budget - log(quantile * ROOT_TWO_PI)), 0.25))
    return quantile


def _largest_curvature(prob: float) -> float:
    """At least ``(log(1 - p + p e^y) - p y) / y^2`` for every y > 0.

    Up to ``y_0 = logit(1 - p)`` the quotient grows; from there on the logarithm grows by at most 1 for each unit of y,
    which leaves the largest value of ``(a + (1 - p) (y - y_0)) / y^2``.
    """
    if prob >= 0.5:
        return 0.5 * prob * (1.0 - prob)
    half = log1p(-prob) - log(prob)
    if half < 1e-2:
        return 0.125
    above = log(2.0) + log1p(-prob) - prob * half
    place = max(2.0 * (half - above / (1.0 - prob)), half)
    return min((above + (1.0 - prob) * (place - half)) / place**2 * (1.0 + 1e-10), 0.125)
