"""A fresh permutation of the data in every epoch, cut in batches."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.samplers.base import Batch, Data, SchemeOptions
from hockeystick.samplers.epochs import EpochSampler
from hockeystick.spec import Count
from hockeystick.types import Adjacency


class Shuffle(EpochSampler):
    """A uniformly random permutation of the data in each epoch, cut in batches of one size.

    >>> import numpy as np
    >>> sampler = Shuffle(batch_size=4, bins=3)
    >>> [batch.size for batch in sampler.batches(12, np.random.default_rng(0))]
    [4, 4, 4]

    Formal guarantee of batches: in every epoch, afresh and independently of the other epochs, the ordered
    partition of the examples in ``bins`` batches of exactly ``batch_size`` is uniform over all such partitions.
    Different examples are *not* independent.

    Fields:
        batch_size: examples in every batch.
        bins: batches in one epoch; ``batch_size * bins`` must be the number of examples.
        epochs: passes over the data.

    Memory and time: O(num_examples) memory and O(num_examples) time for each epoch, plus sorting each batch.

    Raises: InvalidInputError at construction when ``bins * epochs`` exceeds 10**9; from ``batches`` when
    ``num_examples`` is not ``batch_size * bins``.

    Reference: Chua et al. (2024), "How Private are DP-SGD Implementations?", Algorithm 3.
    """

    kind: Literal["shuffle"] = "shuffle"
    batch_size: Count

    @property
    def holds_for(self) -> tuple[Adjacency, ...]:
        """Zero-out only: the batches have a fixed size, so taking an example away changes the others' batches."""
        return (Adjacency.ZERO_OUT,)

    @property
    def requirement(self) -> str:
        """One sentence: what the run has to do."""
        return (
            f"Permute the examples uniformly at random, afresh in every one of {self.epochs} epoch(s), and cut each "
            f"permutation in {self.bins} consecutive batches of exactly {self.batch_size} examples."
        )

    def _check_num_examples(self, num_examples: int) -> None:
        if num_examples != self.batch_size * self.bins:
            raise InvalidInputError(
                f"The 'num_examples' argument must be batch_size * bins = {self.batch_size * self.bins} "
                f"for kind = {self.kind!r}. Got {num_examples} instead."
            )

    def _draw(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        order = np.arange(num_examples, dtype=np.int32)
        for _ in range(self.epochs):
            rng.shuffle(order)
            for first in range(0, num_examples, self.batch_size):
                yield np.sort(order[first : first + self.batch_size]).astype(np.int64)


class ShuffleOptions(SchemeOptions):
    """The ``[sampler]`` table of a plan that shuffles."""

    kind: Literal["shuffle"] = "shuffle"

    def sampler(self, data: Data) -> Shuffle:
        """The sampler for these data; the batch size must divide the number of examples."""
        bins = data.bins(self.kind)
        return Shuffle(batch_size=data.batch_size, bins=bins, epochs=data.whole_epochs(self.kind))
