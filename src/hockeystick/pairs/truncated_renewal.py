"""Correlated noise under truncated b-min-sep subsampling: two mixtures, given how many others were taken."""

from dataclasses import dataclass
from math import exp, inf, log, log1p

import numpy as np

from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.independent_steps import BINOMIAL_TAIL_ROUNDING, SMALLEST_SLACK
from hockeystick.pairs.renewal_mixture import RenewalMixture, largest_norm
from hockeystick.pairs.visits import first_available
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.band import band_of
from hockeystick.strategies.matrix.base import Array

LARGEST_EXPONENT = 700.0
"""exp of more is beyond the doubles; what it multiplies then costs everything anyway."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TruncatedRenewal(DominatingPair):
    """``P = E N(C x, sigma^2 I)`` against ``Q = E N(-C y, sigma^2 I)``, r released in both; add swaps them.

    ``r_t`` counts the examples, other than the one whose privacy is at stake, that are taken at step t: independent
    of that example, and of the same law under P and Q. Where it is taken and ``r_t < B``, ``x_t = 1`` and ``y_t = 0``.
    Where it is taken and ``r_t >= B``, it survives with probability ``B / (r_t + 1)``, and then ``x_t = 2`` and
    ``y_t = 1``; everything else is 0. The 1 in y is an example that was pushed out of the batch, and the 2 in x is
    that one together with the example itself.

    The pair dominates the mechanism with adaptively chosen gradients under zero-out adjacency
    (docs/theory/monte-carlo/truncated.md; dong-ganesh-2026, Appendix D), as C is causal and non-negative. It is not
    attained: it bounds the mechanism from above and not from below.

    Attributes:
        matrix: C, with n columns.
        min_sep: b.
        participation_prob: q, the chance of an available example to be taken at a step.
        warm_start: whether the first steps are in the stationary state; otherwise all examples start available.
        truncated_batch_size: B, the largest batch that is passed on.
        num_examples: N, all examples, the one at stake included.
    """

    matrix: StrategyMatrix
    min_sep: int
    participation_prob: float
    warm_start: bool
    truncated_batch_size: int
    num_examples: int

    @property
    def columns(self) -> Array:
        """``columns[i, d] = C[i + d, i]``, shape (steps, bands), of a square C. Do not write."""
        return band_of(self.matrix)

    @property
    def availability(self) -> Array:
        """Probability that an example is available, at each step; shape (n,). Survival has no part in it."""
        from hockeystick.pairs.renewal_kernels import availability

        first = first_available(self.min_sep, self.participation_prob, self.warm_start)
        return availability(self.matrix.steps, self.min_sep, self.participation_prob, first)

    @property
    def full_sensitivity(self) -> float:
        """The longest sum of columns that are at least b apart.

        With the batches known, truncation included, the others contribute the same to both runs, and the example
        contributes at most once in every b steps.
        """
        return largest_norm(self.matrix, self.min_sep)

    @property
    def sensitivity_error(self) -> float:
        """The relative rounding of the sums behind the sensitivity."""
        return 8.0 * self.matrix.rounding

    @property
    def without_cuts(self) -> RenewalMixture:
        """The pair of the run without a cap; what cuts can change is added to its profiles (:func:`cuts`)."""
        return RenewalMixture(
            noise_multiplier=self.noise_multiplier,
            matrix=self.matrix,
            min_sep=self.min_sep,
            participation_prob=self.participation_prob,
            warm_start=self.warm_start,
            attained=False,
        )


def cuts(pair: TruncatedRenewal) -> tuple[float, float]:
    """What cut batches can change: at least the two numbers, rounded up. O(steps).

    The chance that the example is ever taken at a full step, one at which as many others are taken as a batch holds:
    the others are independent of it and of one another, so each step is a product of two probabilities, and they are
    added over the steps. And the expected number of full steps times ``q (1 - q)^-b``, the odds of a run that takes
    part at a step and waits against one that stays away for as long; infinite for q = 1.
    """
    from scipy.stats import binom

    prob = pair.participation_prob
    taken = np.minimum(prob * pair.availability * (1.0 + BINOMIAL_TAIL_ROUNDING), 1.0)
    full = np.asarray(binom.sf(pair.truncated_batch_size - 1, pair.num_examples - 1, taken))
    odds = exp(min(log(prob) - pair.min_sep * log1p(-prob), LARGEST_EXPONENT)) if prob < 1.0 else inf
    chance = float(taken @ full) * (1.0 + BINOMIAL_TAIL_ROUNDING)
    expected = odds * max(float(full.sum()), SMALLEST_SLACK) * (1.0 + 2.0 * BINOMIAL_TAIL_ROUNDING)
    return min(max(chance, SMALLEST_SLACK), 1.0), expected
