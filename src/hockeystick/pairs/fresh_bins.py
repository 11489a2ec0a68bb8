"""Correlated noise under random allocation: bins are drawn anew in every epoch."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hockeystick.errors import UnsupportedError
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.pairs.visits import Visits, one_in
from hockeystick.samplers import RandomAllocation
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.base import BLOCK

MOST_STEPS = 2048
"""Up to so many steps columns of different epochs are compared; beyond, their lengths are added."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FreshBins(DominatingPair):
    """``P = E N(C 1_S, sigma^2 I)`` against ``Q = N(0, sigma^2 I)``, S one uniform step of each epoch; add swaps them.

    The steps of different epochs are independent. The pair dominates the mechanism with adaptively chosen gradients, as
    C is causal and non-negative, and is attained by constant ones (docs/theory/fresh-bins.md).

    Attributes:
        matrix: C.
        bins: b, the steps of an epoch.
    """

    matrix: StrategyMatrix
    bins: int

    @property
    def epochs(self) -> int:
        """How often bins are drawn."""
        return self.matrix.steps // self.bins

    @property
    def visits(self) -> Visits:
        """When an example takes part."""
        return one_in(self.bins)

    @property
    def full_sensitivity(self) -> float:
        """At least ``max_S |C 1_S|``, and that with a single bin: the steps of the example are known."""
        return _largest_norm(self.matrix, self.bins)

    @property
    def sensitivity_error(self) -> float:
        """Relative rounding of a sum of inner products, or of lengths."""
        return 4.0 * self.matrix.rounding

    @property
    def batches_are_public(self) -> bool:
        """True when there is a single bin."""
        return self.bins == 1


@lru_cache(maxsize=4)
def _largest_norm(matrix: StrategyMatrix, bins: int) -> float:
    """From the largest inner products of columns of two epochs each. O(steps^2 rows) up to MOST_STEPS steps."""
    if bins == 1:
        return float(matrix.bin_norms(1)[0])
    if matrix.steps > MOST_STEPS:
        return float(matrix.column_norms.reshape(-1, bins).max(axis=1).sum())
    columns = np.hstack(
        [matrix.columns(np.arange(first, min(first + BLOCK, matrix.steps))) for first in range(0, matrix.steps, BLOCK)]
    )
    products = columns.T @ columns
    epochs = matrix.steps // bins
    largest = products.reshape(epochs, bins, epochs, bins).max(axis=(1, 3))
    largest[np.arange(epochs), np.arange(epochs)] = products.diagonal().reshape(epochs, bins).max(axis=1)
    return float(np.sqrt(largest.sum()))


def from_random_allocation(mechanism: Mechanism) -> FreshBins | BinMixture:
    """One visit in each epoch, with any strategy matrix; a single epoch is that of balls in bins.

    Raises: UnsupportedError for several visits in an epoch.
    """
    sampler = require(mechanism.sampler, RandomAllocation)
    if sampler.participations > 1:
        raise UnsupportedError(
            f"The 'sampler.participations' field must be 1 for random allocation with the strategy "
            f"{mechanism.strategy.kind!r}, as several visits in an epoch have not been analysed with correlated noise. "
            f"Got {sampler.participations} instead."
        )
    pair = BinMixture if sampler.epochs == 1 else FreshBins
    return pair(noise_multiplier=mechanism.sigma, matrix=mechanism.matrix, bins=sampler.bins)
