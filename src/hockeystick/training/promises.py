"""What each sampler promises about its batches, checked as they are used, and the public numbers that follow from it.

A scheme is registered by one line in ``PROMISES``.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from hockeystick.errors import UnsupportedError
from hockeystick.samplers import (
    Attribution,
    BallsInBins,
    BatchSampler,
    BMinSep,
    CyclicPoisson,
    Deterministic,
    MultiAttribution,
    Poisson,
    RandomAllocation,
    Sampler,
    Shuffle,
)
from hockeystick.samplers.base import Batch

SLACK = 0.01
"""How far a sum may be above the clipping norms of its examples: far more than float32 rounds, less than a fault."""


class BrokenPromiseError(Exception):
    """A batch that its sampler would not have made; ``promise`` names what was promised."""

    def __init__(self, promise: str) -> None:
        super().__init__(promise)
        self.promise = promise


class Promises:
    """The promises of one sampler over one run. They are told of the batches in order, each once, and keep no secrets
    but the participations so far.

    Args:
        sampler: of the class that the promises are about.
        num_examples: size of the dataset.
        attribution: of examples to users, where the sampler has one.

    Attributes:
        names: what :meth:`check` looks at.
    """

    names: ClassVar[tuple[str, ...]] = ("distinct_examples",)

    def __init__(self, sampler: Any, num_examples: int, attribution: Attribution | None = None) -> None:
        del attribution  # only one scheme has one
        self.sampler = sampler
        self.num_examples = num_examples

    @property
    def expected_batch_size(self) -> float:
        """The public number to divide the noisy sums by. It never depends on the batches."""
        return float(self.sampler.rate * self.num_examples)

    @property
    def epoch_length(self) -> Fraction:
        """The steps after which as many examples are expected to have been used as there are: at least 1."""
        exact = Fraction(self.num_examples / self.expected_batch_size).limit_denominator(10**6)
        return max(Fraction(1), exact)  # a fraction of small numbers, and not what a rate was rounded to

    @property
    def steps_per_epoch(self) -> int:
        """The same in whole steps, and no more than there are."""
        return min(int(self.sampler.steps), round(self.epoch_length))

    def prefix(self, steps: int) -> Sampler | None:
        """The sampler whose runs are the first ``steps`` steps of this one's, or None where no sampler's are."""
        shorter: Sampler = type(self.sampler).parse(self.sampler.model_dump() | {"steps": steps})
        return shorter

    def check(self, step: int, batch: Batch) -> None:
        """Look at the batch of a step; raises BrokenPromiseError."""
        inside = batch.size == 0 or (batch[0] >= 0 and batch[-1] < self.num_examples)
        expect(inside and bool(np.all(np.diff(batch) > 0)), "distinct_examples")


class PoissonPromises(Promises):
    """A truncated batch has at most the largest size; untruncated coins promise nothing that can be seen."""

    names: ClassVar[tuple[str, ...]] = (*Promises.names, "truncated_batch_size")

    @property
    def expected_batch_size(self) -> float:
        """The rate times examples; at most the largest size."""
        return min(super().expected_batch_size, self.sampler.truncated_batch_size or np.inf)

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        cap = self.sampler.truncated_batch_size
        expect(cap is None or batch.size <= cap, "truncated_batch_size")


class BMinSepPromises(PoissonPromises):
    """Nobody takes part twice within ``min_sep`` steps."""

    names = (*PoissonPromises.names, "min_separation")

    def __init__(self, sampler: Any, num_examples: int, attribution: Attribution | None = None) -> None:
        super().__init__(sampler, num_examples, attribution)
        self.last = np.full(num_examples, -sampler.min_sep, dtype=np.int64)

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        expect(bool(np.all(step - self.last[batch] >= self.sampler.min_sep)), "min_separation")
        self.last[batch] = step


class MultiAttributionPromises(Promises):
    """No user, or with exclusion by example no example, takes part twice within ``min_sep`` steps."""

    names = (*Promises.names, "min_separation")

    def __init__(self, sampler: Any, num_examples: int, attribution: Attribution | None = None) -> None:
        super().__init__(sampler, num_examples, attribution)
        own = np.arange(num_examples)
        self.graph = attribution or Attribution.from_pairs(own, own)
        if sampler.exclusion == "example":
            self.graph = Attribution.from_pairs(own, own)
        self.last = np.full(self.graph.num_users, -sampler.min_sep, dtype=np.int64)

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        users = self.graph.of_examples(batch)[0]
        expect(bool(np.all(step - self.last[users] >= self.sampler.min_sep)), "min_separation")
        self.last[users] = step


class CyclicPoissonPromises(Promises):
    """Every example has one group, and takes part at its group's turns alone."""

    names = (*Promises.names, "one_group_an_example")

    def __init__(self, sampler: Any, num_examples: int, attribution: Attribution | None = None) -> None:
        super().__init__(sampler, num_examples, attribution)
        equal = sampler.partition == "equal"
        self.group = np.arange(num_examples) % sampler.groups if equal else np.full(num_examples, -1)

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        turn = step % self.sampler.groups
        known = self.group[batch]
        expect(bool(np.all((known == turn) | (known == -1))), "one_group_an_example")
        self.group[batch] = turn


class EpochPromises(Promises):
    """Every example takes part a fixed number of times in each epoch, at steps of the scheme's choice.

    None may take part more often in an epoch, and at its end all that the scheme includes did.
    """

    names = (*Promises.names, "participations_an_epoch")

    def __init__(self, sampler: Any, num_examples: int, attribution: Attribution | None = None) -> None:
        super().__init__(sampler, num_examples, attribution)
        self.count = np.zeros(num_examples, dtype=np.int32)

    @property
    def participations(self) -> int:
        """How often each example takes part in an epoch."""
        return 1

    @property
    def included(self) -> int:
        """How many examples take part in an epoch: all of them, unless the scheme leaves some out."""
        return self.num_examples

    @property
    def expected_batch_size(self) -> float:
        """Participations of all examples in an epoch, over its steps."""
        return self.participations * self.included / float(self.sampler.bins)

    @property
    def epoch_length(self) -> Fraction:
        """The steps of one epoch of the scheme."""
        return Fraction(int(self.sampler.bins))

    def prefix(self, steps: int) -> Sampler | None:
        """The same scheme with fewer epochs, after whole ones."""
        if steps % self.sampler.bins:
            return None
        epochs = steps // self.sampler.bins
        shorter: Sampler = type(self.sampler).parse(self.sampler.model_dump() | {"epochs": epochs})
        return shorter

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        self.count[batch] += 1
        expect(bool(np.all(self.count[batch] <= self.participations)), "participations_an_epoch")
        if (step + 1) % self.sampler.bins == 0:
            expect(int(self.count.sum()) == self.participations * self.included, "participations_an_epoch")
            self.count[:] = 0


class FixedSizePromises(EpochPromises):
    """Every batch of an epoch has the same size, but for the short one that a remainder makes."""

    names = (*EpochPromises.names, "batch_size")

    @property
    def included(self) -> int:
        """All examples, but those that a remainder drops."""
        dropped = int(self.sampler.rest) if self.sampler.remainder == "drop" else 0
        return self.num_examples - dropped

    @property
    def whole_batch(self) -> int:
        """Examples in a whole batch."""
        return int(self.sampler.whole_batch or self.num_examples // self.sampler.bins)

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        whole = step % self.sampler.bins < self.sampler.full_batches
        expect(batch.size == (self.whole_batch if whole else self.sampler.rest), "batch_size")


class DeterministicPromises(FixedSizePromises):
    """The batches are consecutive examples."""

    names = (*FixedSizePromises.names, "fixed_batches")

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        first = (step % self.sampler.bins) * self.whole_batch
        expect(bool(np.array_equal(batch, np.arange(first, first + batch.size))), "fixed_batches")


class BallsInBinsPromises(EpochPromises):
    """Every example has one bin for the whole run."""

    names = (*EpochPromises.names, "one_bin_an_example")

    def __init__(self, sampler: Any, num_examples: int, attribution: Attribution | None = None) -> None:
        super().__init__(sampler, num_examples, attribution)
        self.bin = np.full(num_examples, -1, dtype=np.int64)

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        turn = step % self.sampler.bins
        known = self.bin[batch]
        expect(bool(np.all((known == turn) | (known == -1))), "one_bin_an_example")
        self.bin[batch] = turn


class RandomAllocationPromises(EpochPromises):
    """Every example takes part in exactly k of the t steps of every epoch."""

    @property
    def participations(self) -> int:
        """The k of k out of t."""
        return int(self.sampler.participations)


PROMISES: Mapping[type[BatchSampler], type[Promises]] = {
    BMinSep: BMinSepPromises,
    BallsInBins: BallsInBinsPromises,
    CyclicPoisson: CyclicPoissonPromises,
    Deterministic: DeterministicPromises,
    MultiAttribution: MultiAttributionPromises,
    Poisson: PoissonPromises,
    RandomAllocation: RandomAllocationPromises,
    Shuffle: FixedSizePromises,
}
"""The promises of each sampler."""


def promises_of(sampler: BatchSampler, num_examples: int, attribution: Attribution | None = None) -> Promises:
    """The promises of this sampler for a dataset of this size; raises UnsupportedError where nobody wrote them down."""
    found = PROMISES.get(type(sampler))
    if found is None:
        raise UnsupportedError(f"There is no record of runs with a sampler of kind {sampler.kind!r}.")
    return found(sampler, num_examples, attribution)


def expect(kept: bool, promise: str) -> None:
    """Raise BrokenPromiseError unless the promise was kept."""
    if not kept:
        raise BrokenPromiseError(promise)
