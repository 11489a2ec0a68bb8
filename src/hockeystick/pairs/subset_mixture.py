"""Correlated noise under Poisson sampling: a mixture of Gaussians over all subsets of the steps."""

from dataclasses import dataclass
from functools import lru_cache

from hockeystick.mechanism import Mechanism
from hockeystick.pairs import independent_steps
from hockeystick.pairs.band import band_of
from hockeystick.pairs.base import DominatingPair
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.base import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class SubsetMixture(DominatingPair):
    """``P = E_S N(C 1_S, sigma^2 I)`` against ``Q = N(0, sigma^2 I)``; add swaps them.

    S holds every step independently with probability p. The pair dominates the mechanism with adaptively chosen
    gradients, as C is causal and non-negative, and is attained by constant ones (docs/theory/monte-carlo/subsets.md;
    choquette-choo-2024, Lemma 4.5), so bounds on both sides of the pair are bounds on the mechanism.

    Attributes:
        matrix: C, with n columns.
        sampling_prob: p in (0, 1].
    """

    matrix: StrategyMatrix
    sampling_prob: float

    @property
    def groups(self) -> int:
        """One: an example may take part in every step."""
        return 1

    @property
    def columns(self) -> Array:
        """``columns[i, d] = C[i + d, i]``, shape (steps, bands), of a square C. Do not write."""
        return band_of(self.matrix)

    @property
    def full_sensitivity(self) -> float:
        """``|C 1|``: the example may be in every batch."""
        return _norm_of_all(self.matrix)

    @property
    def sensitivity_error(self) -> float:
        """That of a sum of squares of sums of entries."""
        return 4.0 * self.matrix.rounding

    @property
    def batches_are_public(self) -> bool:
        """True without subsampling."""
        return self.sampling_prob == 1.0


@lru_cache(maxsize=4)
def _norm_of_all(matrix: StrategyMatrix) -> float:
    return float(matrix.bin_norms(1)[0])


def from_poisson(mechanism: Mechanism) -> SubsetMixture:
    """Poisson batches, with any strategy matrix; the batches, and what truncation costs, are those of DP-SGD."""
    uncorrelated = independent_steps.from_poisson(mechanism)
    return SubsetMixture(
        noise_multiplier=uncorrelated.noise_multiplier,
        matrix=mechanism.matrix,
        sampling_prob=uncorrelated.sampling_prob,
        slack=uncorrelated.slack,
    )
