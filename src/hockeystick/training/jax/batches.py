"""The batches of a run as JAX Privacy selects them."""

from collections.abc import Iterator
from typing import Any

from jax_privacy.batch_selection import BatchSelectionStrategy

from hockeystick.calls import made_by
from hockeystick.errors import InvalidInputError
from hockeystick.samplers.promises import Batch
from hockeystick.training.run import Run


@made_by("hs.jax.BatchSampler(run)")
class BatchSampler(BatchSelectionStrategy):
    """The batches of a run as a ``BatchSelectionStrategy``: ascending indices, some batches without any.

    >>> import hockeystick as hs
    >>> mechanism = hs.Mechanism(sampler=hs.Deterministic(bins=2, epochs=1), noise_multiplier=1.0)
    >>> sampler = BatchSampler(hs.training.Run(mechanism, num_examples=4, shape=1))
    >>> [batch.tolist() for batch in sampler.batch_iterator(4)]
    [[0, 1], [2, 3]]

    Args:
        run: takes the steps elsewhere.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.delivered: int | None = None
        """The step of the batch that was given out last."""

    def batch_iterator(self, num_examples: int, rng: Any = None) -> Iterator[Batch]:
        """The batches of all steps, from the first on, as JAX Privacy asks: after a resume, skip those of ``run.step``.

        ``run.batches()`` starts at the next step instead.

        Args:
            num_examples: size of the dataset, the run's.
            rng: not used; the run has the seed.

        Raises: InvalidInputError for another number of examples.
        """
        del rng
        if num_examples != self.run.num_examples:
            raise InvalidInputError(
                f"The 'num_examples' argument must be the plan's {self.run.num_examples}. Got {num_examples} instead."
            )
        return self._deliver()

    def _deliver(self) -> Iterator[Batch]:
        for step, batch in enumerate(self.run.all_batches()):
            self.delivered = step
            yield batch

    def check_in_step(self) -> None:
        """Raise InvalidInputError if batches are given out that were used already."""
        if self.delivered is not None and self.delivered < self.run.step and self.run.remaining:
            raise InvalidInputError(
                f"The last batch that was drawn here is that of step {self.delivered}, but the next step of the run is "
                f"{self.run.step}; skip the batches of the steps that were taken."
            )
