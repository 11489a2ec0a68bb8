"""What samplers that pass over the data in epochs share."""

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from hockeystick.samplers.base import BatchSampler
from hockeystick.samplers.promises import Batch, Promises, expect
from hockeystick.spec import Count


class EpochPromises(Promises):
    """Every example takes part a fixed number of times in each epoch, at steps of the scheme's choice.

    None may take part more often in an epoch, and at its end all that the scheme includes did.
    """

    meanings: ClassVar[Mapping[str, str]] = {
        **Promises.meanings,
        "participations_an_epoch": "Every example took part as often in every epoch as the sampler says.",
    }

    def begin(self) -> None:
        super().begin()
        self.count = np.zeros(self.num_examples, dtype=np.int32)

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

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        self.count[batch] += 1
        expect(bool(np.all(self.count[batch] <= self.participations)), "participations_an_epoch")
        if (step + 1) % self.sampler.bins == 0:
            expect(int(self.count.sum()) == self.participations * self.included, "participations_an_epoch")
            self.count[:] = 0


class EpochSampler(BatchSampler):
    """A sampler of ``epochs`` passes over the data, of ``bins`` steps each.

    Fields:
        bins: batches in one epoch.
        epochs: passes over the data.
    """

    PROMISES: ClassVar[type[Promises]] = EpochPromises

    bins: Count
    epochs: Count = 1

    @property
    def steps(self) -> int:
        """The number of batches of the whole run."""
        return self.bins * self.epochs

    @property
    def rate(self) -> float:
        """One batch of each epoch."""
        return 1.0 / self.bins

    @property
    def most_participations(self) -> int:
        """One in each epoch."""
        return self.epochs

    def prefix(self, steps: int) -> Self | None:
        """The same scheme with fewer epochs, after whole ones."""
        if steps % self.bins:
            return None
        return self.parse(self.model_dump() | {"epochs": steps // self.bins})
