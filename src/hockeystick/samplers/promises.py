"""What a sampler promises about its batches, checked as they are used, and the public numbers that follow from it."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hockeystick.samplers.attribution import Attribution

Batch = NDArray[np.int64]
"""Indices of the examples of one batch: distinct, ascending, each from 0 to num_examples - 1."""


class BrokenPromiseError(Exception):
    """A batch that its sampler would not have made; ``promise`` names what was promised."""

    def __init__(self, promise: str) -> None:
        super().__init__(promise)
        self.promise = promise


class Promises:
    """The promises of one sampler over one run. They are told of the batches in order, each once, and keep no secrets
    but the participations so far.

    A scheme with promises of its own has a subclass beside it, and names it in ``PROMISES``.

    Args:
        sampler: of the class that the promises are about.
        num_examples: size of the dataset.
        attribution: of examples to users, where the sampler has one.

    Attributes:
        meanings: what :meth:`check` looks at, by its name: a sentence that is true of a run which kept the promise.
    """

    meanings: ClassVar[Mapping[str, str]] = {"distinct_examples": "No batch had an example twice."}

    def __init__(self, sampler: Any, num_examples: int, attribution: Attribution | None = None) -> None:
        self.sampler = sampler
        self.num_examples = num_examples
        self.attribution = attribution
        self.begin()

    def begin(self) -> None:
        """Set what is remembered of the batches, before the first one."""

    @property
    def made(self) -> tuple[str, ...]:
        """The promises, by name, that the sampler of this run makes; its scheme may have more."""
        return tuple(self.meanings)

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

    def check(self, step: int, batch: Batch) -> None:
        """Look at the batch of a step; raises BrokenPromiseError."""
        inside = batch.size == 0 or (batch[0] >= 0 and batch[-1] < self.num_examples)
        expect(inside and bool(np.all(np.diff(batch) > 0)), "distinct_examples")


def expect(kept: bool, promise: str) -> None:
    """Raise BrokenPromiseError unless the promise was kept."""
    if not kept:
        raise BrokenPromiseError(promise)
