"""What samplers that pass over the data in epochs share."""

from hockeystick.samplers.base import BatchSampler
from hockeystick.spec import Count


class EpochSampler(BatchSampler):
    """A sampler of ``epochs`` passes over the data, of ``bins`` steps each.

    Fields:
        bins: batches in one epoch.
        epochs: passes over the data.
    """

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
