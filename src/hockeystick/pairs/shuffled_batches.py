"""Shuffled batches: one permutation of the data in every epoch."""

from dataclasses import dataclass

from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.samplers import Shuffle


@dataclass(frozen=True, kw_only=True)
class ShuffledBatches(DominatingPair):
    """DP-SGD on the batches of a fresh random permutation in every epoch.

    No dominating pair is known (chua-2024 conjecture one). What is known: revealing the permutations gives an upper
    bound, the pair (P_S, Q_S) of chua-2024, eq. (1) and (2), is attained by one dataset and gives a lower bound.

    Attributes:
        batch_size: examples in every batch, exactly.
        bins: batches in an epoch.
        epochs: number of epochs.
    """

    batch_size: int
    bins: int
    epochs: int = 1

    @property
    def full_sensitivity(self) -> float:
        """sqrt(epochs): once in every epoch."""
        return float(self.epochs**0.5)

    @property
    def batches_are_public(self) -> bool:
        """True when there is a single batch."""
        return self.bins == 1


def from_shuffle(mechanism: Mechanism) -> ShuffledBatches:
    """Pair of a mechanism that permutes the data afresh in every epoch."""
    sampler = require(mechanism.sampler, Shuffle)
    return ShuffledBatches(
        noise_multiplier=mechanism.sigma, batch_size=sampler.batch_size, bins=sampler.bins, epochs=sampler.epochs
    )
