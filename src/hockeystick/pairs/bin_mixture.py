"""Correlated noise under balls-in-bins: a mixture of Gaussians whose means are the bins' columns of C."""

from dataclasses import dataclass
from functools import lru_cache

from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.samplers import BallsInBins
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.base import Array

MAX_BINS = 8192
"""The Gram matrix of more bins would take more than half a gigabyte."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BinMixture(DominatingPair):
    """``P = (1/b) sum_i N(m_i, sigma^2 I)`` against ``Q = N(0, sigma^2 I)``; add swaps them.

    ``m_i = sum_j C[:, i + j b]`` collects the columns of the steps in which bin i is read. The pair dominates the
    mechanism with adaptively chosen gradients, as C is causal and non-negative, and is attained by constant ones
    (docs/theory/comparison.md; schuchardt-kalinin-2026, Lemma 2.8), so bounds on both sides of the pair are bounds
    on the mechanism.

    With ``y ~ Q`` the likelihood ratio is ``X = (1/b) sum_i exp(u_i - G_ii / (2 sigma^2))``, ``u ~ N(0, G / sigma^2)``:
    everything depends on the Gram matrix G and sigma alone.

    Attributes:
        matrix: C.
        bins: b, the number of equally likely means.
    """

    matrix: StrategyMatrix
    bins: int

    @property
    def epochs(self) -> int:
        """k, how often a bin is read."""
        return self.matrix.steps // self.bins

    @property
    def gram(self) -> Array:
        """``G_ij = <m_i, m_j>``, shape (bins, bins), symmetric, each entry within :attr:`rounding`. Do not write."""
        return _gram(self.matrix, self.bins)

    @property
    def rounding(self) -> float:
        """Proved relative error of the entries of :attr:`gram` and :meth:`means`."""
        return 4.0 * self.matrix.rounding

    @property
    def too_large(self) -> str | None:
        """The reason not to form :attr:`gram`, or None."""
        return None if self.bins <= MAX_BINS else f"it needs all inner products of more than {MAX_BINS} bins"

    def means(self) -> Array:
        """The means m_i as columns, shape (rows, bins). Do not write."""
        return _means(self.matrix, self.bins)

    @property
    def full_sensitivity(self) -> float:
        """``max_i |m_i|``: the bin is known."""
        return _largest_norm(self.matrix, self.bins)

    @property
    def sensitivity_error(self) -> float:
        """The relative error of the Gram matrix."""
        return self.rounding

    @property
    def batches_are_public(self) -> bool:
        """True when there is a single bin."""
        return self.bins == 1


@lru_cache(maxsize=4)
def _largest_norm(matrix: StrategyMatrix, bins: int) -> float:
    return float(matrix.bin_norms(bins).max())


@lru_cache(maxsize=4)
def _gram(matrix: StrategyMatrix, bins: int) -> Array:
    gram = matrix.bin_gram(bins)
    gram.flags.writeable = False
    return gram


@lru_cache(maxsize=2)
def _means(matrix: StrategyMatrix, bins: int) -> Array:
    means = matrix.bin_means(bins)
    means.flags.writeable = False
    return means


def from_balls_in_bins(mechanism: Mechanism) -> BinMixture:
    """Pair of a mechanism that replays the same bins in every epoch, with any strategy matrix."""
    sampler = require(mechanism.sampler, BallsInBins)
    return BinMixture(noise_multiplier=mechanism.sigma, matrix=mechanism.matrix, bins=sampler.bins)
