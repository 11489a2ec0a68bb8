"""A fresh permutation of the data in every epoch, cut into batches."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.samplers.data import Data
from hockeystick.samplers.dealt import DealtOptions, DealtSampler
from hockeystick.samplers.promises import Batch
from hockeystick.spec import Examples
from hockeystick.types import Adjacency


class Shuffle(DealtSampler):
    """A uniformly random permutation of the data in each epoch, cut into batches of one size.

    >>> import numpy as np
    >>> sampler = Shuffle(batch_size=4, bins=3)
    >>> [batch.size for batch in sampler.batches(12, np.random.default_rng(0))]
    [4, 4, 4]

    Formal guarantee of batches: in every epoch, afresh and independently of the other epochs, the ordered
    partition of the examples in ``bins`` batches of exactly ``batch_size`` is uniform over all such partitions.
    Different examples are *not* independent. With ``remainder`` = "drop" the batches hold ``batch_size * bins`` of the
    examples and the others, a uniformly random set, are left out of the epoch; with "short" they are its last batch,
    which has fewer than ``batch_size`` examples and is one of the ``bins``. Either way the ordered partition, with that
    part, is uniform over all such ones.

    Fields:
        batch_size: examples in every batch, but for a short one.
        bins: batches in one epoch; without ``remainder``, ``batch_size * bins`` must be the number of examples.
        epochs: passes over the data.
        remainder: None, "drop" or "short".
        num_examples: given with ``remainder``, and only then.

    Memory and time: O(num_examples) memory and O(num_examples) time for each epoch, plus sorting each batch.

    Raises: InvalidInputError at construction when ``bins * epochs`` exceeds 10**9; from ``batches`` when
    ``num_examples`` is not ``batch_size * bins``, or with ``remainder`` not the declared one.

    Reference: Chua et al. (2024), "How Private are DP-SGD Implementations?", Algorithm 3.
    """

    kind: Literal["shuffle"] = "shuffle"
    batch_size: Examples

    @property
    def whole_batch(self) -> int:
        """Examples in every whole batch."""
        return self.batch_size

    @property
    def holds_for(self) -> tuple[Adjacency, ...]:
        """Zero-out only: the batches have a fixed size, so taking an example away changes the others' batches."""
        return (Adjacency.ZERO_OUT,)

    @property
    def requirement(self) -> str:
        """One sentence: what the run has to do."""
        return (
            f"Permute the examples uniformly at random, afresh in every one of {self.epochs} epoch(s), and cut each "
            f"permutation in {self.bins} consecutive batches of exactly {self.batch_size} examples{self._end}."
        )

    @property
    def _end(self) -> str:
        if self.remainder is None:
            return ""
        if self.remainder == "drop":
            return f", leaving the last {self.rest} example(s) of it out of the epoch"
        return f" but for the last one, of {self.rest}, which gets the noise of a whole batch"

    def _check_num_examples(self, num_examples: int) -> None:
        if self.remainder is None and num_examples != self.batch_size * self.bins:
            raise InvalidInputError(
                f"The 'num_examples' argument must be batch_size * bins = {self.batch_size * self.bins} "
                f"for kind = {self.kind!r}. Got {num_examples} instead."
            )

    def _draw(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        order = np.arange(num_examples, dtype=np.int32)
        for _ in range(self.epochs):
            rng.shuffle(order)
            for first in self._starts(num_examples, self.batch_size):
                yield np.sort(order[first : first + self.batch_size]).astype(np.int64)


class ShuffleOptions(DealtOptions):
    """The ``[sampler]`` table of a plan that shuffles."""

    kind: Literal["shuffle"] = "shuffle"

    def sampler(self, data: Data) -> Shuffle:
        """The sampler for these data; ``remainder`` is about a batch size that does not divide their number."""
        size, bins, remainder = data.fixed_batches(self.kind, self.remainder)
        return Shuffle(
            batch_size=size,
            bins=bins,
            epochs=data.whole_epochs(self.kind, bins),
            remainder=remainder,
            num_examples=None if remainder is None else data.num_examples,
        )
