"""The chance of every example to be in a batch, given all that came before: what a sampler's claim says step by step.

The coins of a run are taken in an order: batch after batch, and within a batch by the index of the example. Each class
gives the conditional probability of every coin given the coins before it, which determines the joint distribution of
all batches. A scheme is registered by one line in ``CHANCES``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hockeystick.errors import UnsupportedError
from hockeystick.samplers import (
    BallsInBins,
    BatchSampler,
    BMinSep,
    CyclicPoisson,
    Deterministic,
    FixedSize,
    Poisson,
    RandomAllocation,
    Shuffle,
)

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Chances(ABC):
    """The conditional chances of one run.

    Args:
        sampler: of the class that they are about.
        num_examples: size of the dataset.

    Attributes:
        period: steps after which something that is periodic in this scheme comes back; at least 1.
    """

    def __init__(self, sampler: Any, num_examples: int) -> None:
        self.sampler = sampler
        self.size = num_examples
        self.period = self._period()

    def _period(self) -> int:
        return int(self.sampler.bins)

    @abstractmethod
    def advance(self, step: int, present: Flags) -> Array:
        """The chance of each example to be in the batch of this step, and then the next step's turn.

        Args:
            step: from 0, in order.
            present: who was in it, shape (num_examples,). The chance of example i depends on ``present[:i]`` alone.
        """


class PoissonChances(Chances):
    """The same coin for all."""

    def _period(self) -> int:
        return int(max(1, round(1.0 / self.sampler.sampling_prob)))

    def advance(self, step: int, present: Flags) -> Array:
        return np.full(self.size, self.sampler.sampling_prob)


class BMinSepChances(Chances):
    """A coin for the available. Of an example that was never taken, availability has a posterior probability.

    In a warm start it is available from step u on with probability w_u. Not taken so far, it is available at step t
    with weight ``a_t = (1 - q) a_(t-1) + w_t``, and will be later with weight ``sum_(u > t) w_u``.
    """

    def __init__(self, sampler: BMinSep, num_examples: int) -> None:
        super().__init__(sampler, num_examples)
        self.last = np.full(num_examples, -1, dtype=np.int64)
        prob = sampler.participation_prob
        self.first = np.ones(1)
        if sampler.warm_start:
            self.first = np.full(sampler.min_sep, prob)
            self.first[0] = 1.0
            self.first /= self.first.sum()
        self.available = 0.0

    def _period(self) -> int:
        return int(self.sampler.min_sep)

    def advance(self, step: int, present: Flags) -> Array:
        prob = self.sampler.participation_prob
        self.available = (1.0 - prob) * self.available + (self.first[step] if step < self.first.size else 0.0)
        later = float(self.first[step + 1 :].sum())
        unseen = prob * self.available / (self.available + later) if self.available > 0.0 else 0.0
        seen = np.where(step - self.last >= self.sampler.min_sep, prob, 0.0)
        chances = np.where(self.last < 0, unseen, seen)
        self.last[present] = step
        return chances


class CyclicPoissonChances(Chances):
    """A coin for the group whose turn it is. A group that is secret has a posterior until the example is first seen."""

    def __init__(self, sampler: CyclicPoisson, num_examples: int) -> None:
        super().__init__(sampler, num_examples)
        secret = sampler.partition == "independent"
        self.group = np.full(num_examples, -1) if secret else np.arange(num_examples) % sampler.groups
        self.weights = np.ones(sampler.groups)

    def _period(self) -> int:
        return int(self.sampler.groups)

    def advance(self, step: int, present: Flags) -> Array:
        turn, prob = step % self.sampler.groups, self.sampler.sampling_prob
        total = float(self.weights.sum())
        unseen = prob * self.weights[turn] / total if total > 0.0 else 0.0
        chances = np.where(self.group == turn, prob, np.where(self.group < 0, unseen, 0.0))
        self.weights[turn] *= 1.0 - prob
        self.group[present] = turn
        return chances


class BallsInBinsChances(Chances):
    """One of the bins that are left in the first epoch; after it, nothing is random."""

    def __init__(self, sampler: BallsInBins, num_examples: int) -> None:
        super().__init__(sampler, num_examples)
        self.bin = np.full(num_examples, -1, dtype=np.int64)

    def advance(self, step: int, present: Flags) -> Array:
        turn = step % self.sampler.bins
        unseen = 1.0 / (self.sampler.bins - step) if step < self.sampler.bins else 0.0
        chances = np.where(self.bin < 0, unseen, (self.bin == turn).astype(np.float64))
        self.bin[present] = turn
        return chances


class RandomAllocationChances(Chances):
    """The picks that an example has left in the epoch, over the steps that are left."""

    def advance(self, step: int, present: Flags) -> Array:
        place = step % self.sampler.bins
        if place == 0:
            self.left = np.full(self.size, self.sampler.participations, dtype=np.int64)
        chances: Array = np.clip(self.left / (self.sampler.bins - place), 0.0, 1.0)
        self.left[present] -= 1
        return chances


class ShuffleChances(Chances):
    """The places that are left in the batch, over the examples that are left to fill them."""

    def advance(self, step: int, present: Flags) -> Array:
        sampler = self.sampler
        place = step % sampler.bins
        if place == 0:
            self.unused = np.ones(self.size, dtype=np.bool_)
        size = sampler.whole_batch if place < sampler.full_batches else sampler.rest
        places = size - before(present)
        candidates = int(self.unused.sum()) - before(self.unused)
        chances = np.where(self.unused, np.clip(places / np.maximum(candidates, 1), 0.0, 1.0), 0.0)
        self.unused &= ~present
        return chances


class FixedSizeChances(Chances):
    """The places that are left in a cohort, over the examples that are left to fill them."""

    def _period(self) -> int:
        return int(self.sampler.cohort_steps)

    def advance(self, step: int, present: Flags) -> Array:
        if step % self.sampler.cohort_steps == 0:
            self.cohort = present.copy()
            places = self.sampler.batch_size - before(present)
            candidates = self.size - np.arange(self.size)
            chances: Array = np.clip(places / candidates, 0.0, 1.0)
            return chances
        return self.cohort.astype(np.float64)


class DeterministicChances(Chances):
    """Nothing is random: what the scheme promises is checked elsewhere."""

    def advance(self, step: int, present: Flags) -> Array:
        return present.astype(np.float64)


def before(values: NDArray[Any]) -> Array:
    """The sum of the entries before each one."""
    sums = np.cumsum(values, dtype=np.float64)
    return np.concatenate([[0.0], sums[:-1]])


CHANCES: Mapping[type[BatchSampler], type[Chances]] = {
    BMinSep: BMinSepChances,
    BallsInBins: BallsInBinsChances,
    CyclicPoisson: CyclicPoissonChances,
    Deterministic: DeterministicChances,
    FixedSize: FixedSizeChances,
    Poisson: PoissonChances,
    RandomAllocation: RandomAllocationChances,
    Shuffle: ShuffleChances,
}
"""The chances of each sampler."""


def check_supported(sampler: BatchSampler) -> None:
    """Raise UnsupportedError, with the reason, where the chances of a sampler are not known."""
    if type(sampler) not in CHANCES:
        raise UnsupportedError(
            f"The sampler {sampler.kind!r} cannot be audited: its batches do not show which examples it excluded."
        )
    if getattr(sampler, "truncated_batch_size", None) is not None:
        raise UnsupportedError(
            f"The sampler {sampler.kind!r} with 'truncated_batch_size' cannot be audited: its batches do not show "
            "which examples were cut off. Audit the batches before they are cut, against the sampler without it, or "
            "the parts 'noise' and 'mechanism' alone."
        )


def chances_of(sampler: BatchSampler, num_examples: int) -> Chances:
    """The chances of one run; raises UnsupportedError where they are not known."""
    check_supported(sampler)
    return CHANCES[type(sampler)](sampler, num_examples)
