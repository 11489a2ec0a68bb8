"""Fixed batches in a fixed order."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from hockeystick.errors import InvalidInputError
from hockeystick.samplers.data import Data
from hockeystick.samplers.dealt import DealtOptions, DealtPromises, DealtSampler
from hockeystick.samplers.promises import Batch, Promises, expect
from hockeystick.spec import Examples
from hockeystick.types import Adjacency


class DeterministicPromises(DealtPromises):
    """The batches are consecutive examples."""

    meanings: ClassVar[Mapping[str, str]] = {
        **DealtPromises.meanings,
        "fixed_batches": "The batches were the fixed ones.",
    }

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        first = (step % self.sampler.bins) * self.whole_batch
        expect(bool(np.array_equal(batch, np.arange(first, first + batch.size))), "fixed_batches")


class Deterministic(DealtSampler):
    """The same disjoint batches, in the same order, in every epoch.

    >>> import numpy as np
    >>> sampler = Deterministic(bins=3, epochs=2)
    >>> [batch.size for batch in sampler.batches(12, np.random.default_rng(0))]
    [4, 4, 4, 4, 4, 4]

    Formal guarantee of batches: nothing is random. With B = num_examples / bins, example i is in batch i // B of
    every epoch and in no other, so each example takes part ``epochs`` times, ``bins`` steps apart. With ``remainder``
    the batches have B = ``batch_size`` examples. With "drop" the examples from ``bins * batch_size`` on take part in
    nothing; with "short" they are fewer than B and the last of the ``bins`` batches.

    Fields:
        bins: batches in one epoch; must divide the number of examples where there is no ``remainder``.
        epochs: passes over the data.
        remainder: None, "drop" or "short".
        batch_size, num_examples: given with ``remainder``, and only then.

    Memory and time: O(B) for each batch.

    Raises: InvalidInputError at construction when ``bins * epochs`` exceeds 10**9; from ``batches`` when ``bins``
    does not divide ``num_examples``, or this is not the declared one.

    Reference: Chua et al. (2024), "How Private are DP-SGD Implementations?", Algorithm 2.
    """

    LATER: ClassVar[frozenset[str]] = DealtSampler.LATER | {"batch_size"}

    PROMISES: ClassVar[type[Promises]] = DeterministicPromises

    kind: Literal["deterministic"] = "deterministic"
    batch_size: Examples | None = None

    @model_validator(mode="after")
    def _size_goes_with_remainder(self) -> Self:
        if self.remainder is None and self.batch_size is not None:
            raise InvalidInputError("The 'batch_size' field must be left out without 'remainder'")
        return self

    @property
    def whole_batch(self) -> int | None:
        """Examples in every whole batch, where there is a remainder."""
        return self.batch_size

    @property
    def mean_participations(self) -> float:
        """One in each epoch, of an example that is not left out."""
        return float(self.epochs)

    @property
    def batches_are_public(self) -> bool:
        """Yes: they follow from the order of the examples."""
        return True

    @property
    def holds_for(self) -> tuple[Adjacency, ...]:
        """Zero-out only: taking an example away would move later examples to other batches."""
        return (Adjacency.ZERO_OUT,)

    @property
    def requirement(self) -> str:
        """One sentence: what the run has to do."""
        sizes = "of equal size"
        if self.remainder == "drop":
            sizes = f"of exactly {self.batch_size} examples, never use the other {self.rest} example(s)"
        elif self.remainder == "short":
            sizes = f"of exactly {self.batch_size} examples but for the last one, of {self.rest}"
        return (
            f"Cut the examples, in an order that does not depend on their content, in {self.bins} disjoint batches "
            f"{sizes}, and visit these same batches in the same order in every one of {self.epochs} epoch(s)."
        )

    def _check_num_examples(self, num_examples: int) -> None:
        if self.remainder is None and num_examples % self.bins:
            raise InvalidInputError(
                f"The 'num_examples' argument must be a multiple of bins = {self.bins} for kind = {self.kind!r}. "
                f"Got {num_examples} instead."
            )

    def _draw(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        del rng  # nothing is random
        size = self.batch_size or num_examples // self.bins
        for _ in range(self.epochs):
            for first in self._starts(num_examples, size):
                yield np.arange(first, min(first + size, num_examples), dtype=np.int64)


class DeterministicOptions(DealtOptions):
    """The ``[sampler]`` table of a plan with fixed batches."""

    kind: Literal["deterministic"] = "deterministic"

    def sampler(self, data: Data) -> Deterministic:
        """The sampler for these data; ``remainder`` is about a batch size that does not divide their number."""
        size, bins, remainder = data.fixed_batches(self.kind, self.remainder)
        epochs = data.whole_epochs(self.kind, bins)
        if remainder is None:
            return Deterministic(bins=bins, epochs=epochs)
        return Deterministic(
            bins=bins, epochs=epochs, remainder=remainder, batch_size=size, num_examples=data.num_examples
        )
