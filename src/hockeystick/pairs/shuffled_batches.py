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


@dataclass(frozen=True, kw_only=True)
class ShuffledWithRemainder(DominatingPair):
    """The same where the batch size does not divide the number of examples: the rest is dropped, or a short batch.

    No dominating pair is known. Revealing the permutations gives an upper bound, as an example is in at most one batch
    of an epoch; one pair of datasets gives a lower bound (docs/theory/samplers.md).

    Attributes:
        full_batches: whole batches in an epoch.
        bins: all batches in an epoch; one more than those where the rest is a short batch.
        rest_prob: chance of an example to be in no whole batch of an epoch, above 0 and below 1.
        epochs: number of epochs.
    """

    full_batches: int
    bins: int
    rest_prob: float
    epochs: int = 1

    @property
    def full_sensitivity(self) -> float:
        """sqrt(epochs): at most once in every epoch."""
        return float(self.epochs**0.5)


def from_shuffle(mechanism: Mechanism) -> ShuffledBatches | ShuffledWithRemainder:
    """Pair of a mechanism that permutes the data afresh in every epoch."""
    sampler = require(mechanism.sampler, Shuffle)
    if sampler.remainder is not None and sampler.num_examples is not None:
        return ShuffledWithRemainder(
            noise_multiplier=mechanism.sigma,
            full_batches=sampler.full_batches,
            bins=sampler.bins,
            rest_prob=sampler.rest / sampler.num_examples,
            epochs=sampler.epochs,
        )
    return ShuffledBatches(
        noise_multiplier=mechanism.sigma, batch_size=sampler.batch_size, bins=sampler.bins, epochs=sampler.epochs
    )
