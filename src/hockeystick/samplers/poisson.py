"""Every step includes every example by its own coin flip."""

from collections.abc import Iterator
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from hockeystick.errors import InvalidInputError
from hockeystick.samplers.base import Batch, BatchSampler, Data, SchemeOptions
from hockeystick.samplers.bernoulli import bernoulli_successes
from hockeystick.spec import Count, Probability
from hockeystick.types import Adjacency


class Poisson(BatchSampler):
    """Poisson subsampling, optionally with a cap on the batch size.

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
    truncated_batch_size: Count | None = None
    num_examples: Count | None = None

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

    @property
    def requirement(self) -> str:
        """What the run has to do."""
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

    def _check_num_examples(self, num_examples: int) -> None:
        if self.num_examples is not None and num_examples != self.num_examples:
            raise InvalidInputError(
                f"The 'num_examples' argument must be the sampler's num_examples = {self.num_examples}. "
                f"Got {num_examples} instead."
            )

    def _draw(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        cap = self.truncated_batch_size
        for _ in range(self.steps):
            batch = bernoulli_successes(num_examples, self.sampling_prob, rng)
            if cap is not None and batch.size > cap:
                batch = np.sort(rng.choice(batch, size=cap, replace=False, shuffle=False))
            yield batch


class PoissonOptions(SchemeOptions):
    """The ``[sampler]`` table of a plan with Poisson subsampling."""

    kind: Literal["poisson"] = "poisson"
    truncated_batch_size: Count | None = None

    def sampler(self, data: Data) -> Poisson:
        """The sampler for these data, of rate batch_size / num_examples."""
        return Poisson(
            sampling_prob=data.sampling_prob,
            steps=data.total_steps(self.kind),
            truncated_batch_size=self.truncated_batch_size,
            num_examples=None if self.truncated_batch_size is None else data.num_examples,
        )
