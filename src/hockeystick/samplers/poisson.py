"""Every step includes every example by its own coin flip."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from hockeystick.samplers.bernoulli import bernoulli_successes
from hockeystick.samplers.data import Data, SchemeOptions
from hockeystick.samplers.promises import Batch
from hockeystick.samplers.truncation import TruncatedSampler
from hockeystick.spec import Count, Probability


class Poisson(TruncatedSampler):
    """Poisson subsampling, optionally with a cap on the batch size.

    >>> import numpy as np
    >>> sampler = Poisson(sampling_prob=0.1, steps=4)
    >>> [batch.size for batch in sampler.batches(1000, np.random.default_rng(0))]
    [91, 89, 100, 109]

    Formal guarantee of batches: the events "example i is in batch t" are independent over all i and t, each of
    probability ``sampling_prob``. With ``truncated_batch_size`` = B, a batch of more than B examples is then
    replaced by a uniformly random subset of exactly B of its examples, independently at every step; examples
    are no longer independent, and a certificate pays for the truncation.

    Fields:
        sampling_prob: chance of each example to be in each batch.
        steps: batches in the run.
        truncated_batch_size: largest batch that is passed on; None for no cap.
        num_examples: size of the dataset; needed with ``truncated_batch_size`` (the chance that a batch is cut
            depends on it), and checked by ``batches`` where it is given.

    Memory and time: O(batch) for each batch.

    Raises: InvalidInputError at construction when ``truncated_batch_size`` comes without ``num_examples`` or
    exceeds it; from ``batches`` when the number of examples is not the declared one.

    Reference: Chua et al. (2024), "How Private are DP-SGD Implementations?", Algorithm 4; Feldman and Shenfeld
    (2025), "Privacy amplification by random allocation", Definition 2.9.
    """

    kind: Literal["poisson"] = "poisson"
    sampling_prob: Probability
    steps: Count

    @property
    def most_participations(self) -> int:
        """One in every step."""
        return self.steps

    @property
    def independent_rate(self) -> float:
        """The rate after truncation: every step flips its coins, and cuts its batch, afresh."""
        return self._kept(self.sampling_prob)

    @property
    def requirement(self) -> str:
        """One sentence: what the run has to do."""
        draw = (
            f"Draw every one of {self.steps} batch(es) by including each of the examples independently with "
            f"probability {self.sampling_prob!r}, afresh at every step"
        )
        if self.truncated_batch_size is None:
            return f"{draw}."
        return (
            f"{draw}, and keep a uniformly random {self.truncated_batch_size} of the {self.num_examples} examples "
            f"whenever more are included."
        )

    def _draw(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        for _ in range(self.steps):
            yield self._truncated(bernoulli_successes(num_examples, self.sampling_prob, rng), rng)


class PoissonOptions(SchemeOptions):
    """The ``[sampler]`` table of a plan with Poisson subsampling."""

    kind: Literal["poisson"] = "poisson"
    truncated_batch_size: Count | None = None

    def sampler(self, data: Data) -> Poisson:
        """The sampler for these data, of rate batch_size / num_examples."""
        return Poisson(
            sampling_prob=float(data.rate),
            steps=data.total_steps(self.kind),
            truncated_batch_size=self.truncated_batch_size,
            num_examples=None if self.truncated_batch_size is None else data.num_examples,
        )
