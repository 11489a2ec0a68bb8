"""What samplers with batches of one size share: what becomes of the examples that fill no whole batch."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import model_validator

from hockeystick.errors import InvalidInputError
from hockeystick.samplers.data import Remainder, SchemeOptions
from hockeystick.samplers.epochs import EpochPromises, EpochSampler
from hockeystick.samplers.promises import Batch, Promises, expect
from hockeystick.spec import Examples, Extended


class DealtPromises(EpochPromises):
    """Every batch of an epoch has the same size, but for the short one that a remainder makes."""

    meanings: ClassVar[Mapping[str, str]] = {
        **EpochPromises.meanings,
        "batch_size": "All batches had the sizes that the sampler says.",
    }

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


class DealtSampler(Extended, EpochSampler):
    """A sampler whose batches have one size, but perhaps for a remainder.

    Fields:
        remainder: "drop" leaves the examples that fill no whole batch out of the epoch; "short" makes them its last
            batch, one of the ``bins``. None where the size divides the number of examples.
        num_examples: size of the dataset; given with ``remainder``, and only then.
    """

    PROMISES: ClassVar[type[Promises]] = DealtPromises

    LATER: ClassVar[frozenset[str]] = frozenset({"remainder", "num_examples"})

    remainder: Remainder | None = None
    num_examples: Examples | None = None

    @property
    @abstractmethod
    def whole_batch(self) -> int | None:
        """Examples in every whole batch; None where that follows from the number of examples alone."""

    @property
    def full_batches(self) -> int:
        """Whole batches in one epoch."""
        return self.bins - (self.remainder == "short")

    @property
    def rest(self) -> int:
        """How many examples of each epoch are in no whole batch."""
        if self.remainder is None:
            return 0
        assert self.num_examples is not None  # checked below
        assert self.whole_batch is not None
        return self.num_examples - self.whole_batch * self.full_batches

    @property
    def rate(self) -> float:
        """One batch of each epoch, unless the example is left out."""
        if self.remainder == "drop" and self.num_examples is not None and self.whole_batch is not None:
            return self.whole_batch / self.num_examples
        return 1.0 / self.bins

    @model_validator(mode="after")
    def _remainder_is_described(self) -> Self:
        if self.remainder is None:
            if self.num_examples is not None:
                raise InvalidInputError("The 'num_examples' field must be left out without 'remainder'")
            return self
        if self.num_examples is None:
            raise InvalidInputError("The 'num_examples' field has to be given with 'remainder'")
        if self.whole_batch is None:
            raise InvalidInputError("The 'batch_size' field has to be given with 'remainder'")
        if self.full_batches < 1:
            raise InvalidInputError("The 'bins' field must be at least 2 with remainder = 'short'. Got 1 instead")
        if self.rest < 1 or (self.remainder == "short" and self.rest >= self.whole_batch):
            less = f", and less than batch_size * bins = {self.whole_batch * self.bins}"
            raise InvalidInputError(
                f"The 'num_examples' field must be above the {self.whole_batch * self.full_batches} examples of the "
                f"whole batches{less if self.remainder == 'short' else ''}. Got {self.num_examples} instead"
            )
        return self

    def _starts(self, num_examples: int, batch_size: int) -> range:
        """Where the batches of an epoch begin in the order of its examples."""
        return range(0, min(num_examples, self.bins * batch_size), batch_size)


class DealtOptions(Extended, SchemeOptions):
    """What the ``[sampler]`` table of a plan says where batches have one size."""

    LATER: ClassVar[frozenset[str]] = frozenset({"remainder"})

    remainder: Remainder | None = None
