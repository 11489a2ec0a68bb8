"""Fixed batches in a fixed order."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.samplers.base import Batch, Data, SchemeOptions
from hockeystick.samplers.epochs import EpochSampler
from hockeystick.types import Adjacency


class Deterministic(EpochSampler):
    """The same disjoint batches, in the same order, in every epoch.

    >>> import numpy as np
    >>> sampler = Deterministic(bins=3, epochs=2)
    >>> [batch.size for batch in sampler.batches(12, np.random.default_rng(0))]
    [4, 4, 4, 4, 4, 4]

    Formal guarantee of batches: nothing is random. With B = num_examples / bins, example i is in batch i // B of
    every epoch and in no other, so each example takes part ``epochs`` times, ``bins`` steps apart.

    Fields:
        bins: batches in one epoch; must divide the number of examples.
        epochs: passes over the data.

    Memory and time: O(B) for each batch.

    Raises: InvalidInputError at construction when ``bins * epochs`` exceeds 10**9; from ``batches`` when ``bins``
    does not divide ``num_examples``.

    Reference: Chua et al. (2024), "How Private are DP-SGD Implementations?", Algorithm 2.
    """

    kind: Literal["deterministic"] = "deterministic"

    @property
    def holds_for(self) -> tuple[Adjacency, ...]:
        """Zero-out only: taking an example away would move later examples to other batches."""
        return (Adjacency.ZERO_OUT,)

    @property
    def requirement(self) -> str:
        """One sentence: what the run has to do."""
        return (
            f"Cut the examples, in an order that does not depend on their content, in {self.bins} disjoint batches "
            f"of equal size, and visit these same batches in the same order in every one of {self.epochs} epoch(s)."
        )

    def _check_num_examples(self, num_examples: int) -> None:
        if num_examples % self.bins:
            raise InvalidInputError(
                f"The 'num_examples' argument must be a multiple of bins = {self.bins} for kind = {self.kind!r}. "
                f"Got {num_examples} instead."
            )

    def _draw(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        del rng  # nothing is random
        batch_size = num_examples // self.bins
        for _ in range(self.epochs):
            for first in range(0, num_examples, batch_size):
                yield np.arange(first, first + batch_size, dtype=np.int64)


class DeterministicOptions(SchemeOptions):
    """The ``[sampler]`` table of a plan with fixed batches."""

    kind: Literal["deterministic"] = "deterministic"

    def sampler(self, data: Data) -> Deterministic:
        """The sampler for these data; the batch size must divide the number of examples."""
        return Deterministic(bins=data.bins(self.kind), epochs=data.whole_epochs(self.kind))
