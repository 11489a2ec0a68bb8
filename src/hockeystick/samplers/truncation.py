"""What samplers with independent examples share: an optional cap on the batch size."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from pydantic import model_validator

from hockeystick.errors import InvalidInputError
from hockeystick.samplers.base import BatchSampler
from hockeystick.samplers.promises import Batch, Promises, expect
from hockeystick.spec import Count, Examples, Probability
from hockeystick.types import Adjacency

ROUNDING = 1e-9
"""More than the relative rounding of the distribution function of a binomial number."""


class TruncatedPromises(Promises):
    """A truncated batch has at most the largest size; untruncated coins promise nothing that can be seen."""

    meanings: ClassVar[Mapping[str, str]] = {
        **Promises.meanings,
        "truncated_batch_size": "No batch was larger than the largest size.",
    }

    @property
    def made(self) -> tuple[str, ...]:
        """Without a largest size there is none to promise."""
        capped = self.sampler.truncated_batch_size is not None
        return tuple(name for name in super().made if capped or name != "truncated_batch_size")

    @property
    def expected_batch_size(self) -> float:
        """The rate times examples; at most the largest size."""
        return min(super().expected_batch_size, self.sampler.truncated_batch_size or np.inf)

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        cap = self.sampler.truncated_batch_size
        expect(cap is None or batch.size <= cap, "truncated_batch_size")


class TruncatedSampler(BatchSampler):
    """A sampler whose examples are independent, unless batches are cut to ``truncated_batch_size`` of them.

    Fields:
        truncated_batch_size: largest batch that is passed on; None for no cap.
        num_examples: size of the dataset; needed with ``truncated_batch_size``, as the chance that a batch is cut
            depends on it, and checked by ``batches`` where it is given.
    """

    PROMISES: ClassVar[type[Promises]] = TruncatedPromises

    if TYPE_CHECKING:  # declared by each scheme, beside its other rates
        sampling_prob: Probability

    truncated_batch_size: Count | None = None
    num_examples: Examples | None = None

    @property
    def rate(self) -> float:
        """The long-run rate, before truncation."""
        return self.sampling_prob

    @property
    def mean_participations(self) -> float:
        """As many as are left after truncation."""
        return self.steps * self._kept(self.sampling_prob)

    def _kept(self, rate: float) -> float:
        """The chance of one example at one step after truncation, or less, where K ~ Bin(N, rate) examples are drawn.

        All examples are alike, so it is ``E[min(K, B)] / N``, and ``E[K; K <= B] = N rate P(Bin(N - 1, rate) < B)``.
        """
        cap, size = self.truncated_batch_size, self.num_examples
        if cap is None or size is None:
            return rate
        from scipy.stats import binom

        whole = rate * binom.cdf(cap - 1, size - 1, rate)
        cut = cap / size * binom.sf(cap, size, rate)
        return float(whole + cut) * (1.0 - ROUNDING)

    @model_validator(mode="after")
    def _truncation_is_described(self) -> Self:
        if self.truncated_batch_size is None:
            return self
        if self.num_examples is None:
            raise InvalidInputError("The 'num_examples' field has to be given with 'truncated_batch_size'")
        if self.truncated_batch_size > self.num_examples:
            raise InvalidInputError(
                f"The 'truncated_batch_size' field must be at most num_examples = {self.num_examples}. "
                f"Got {self.truncated_batch_size} instead"
            )
        return self

    @property
    def holds_for(self) -> tuple[Adjacency, ...]:
        """Both without truncation, where examples are independent; zero-out only with it."""
        if self.truncated_batch_size is None:
            return (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE)
        return (Adjacency.ZERO_OUT,)

    def _truncated(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """The batch, or a uniformly random subset of the largest size that is allowed."""
        cap = self.truncated_batch_size
        if cap is None or batch.size <= cap:
            return batch
        return np.sort(rng.choice(batch, size=cap, replace=False, shuffle=False))
