"""In every epoch each example picks k of the steps."""

from collections.abc import Iterator
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from hockeystick.errors import InvalidInputError
from hockeystick.samplers.data import Data, SchemeOptions
from hockeystick.samplers.epochs import EpochPromises, EpochSampler
from hockeystick.samplers.grouping import draw_bins, group_by_bin
from hockeystick.samplers.promises import Batch, Promises
from hockeystick.spec import Count
from hockeystick.types import Adjacency


class RandomAllocationPromises(EpochPromises):
    """Every example takes part in exactly k of the t steps of every epoch."""

    @property
    def participations(self) -> int:
        """The k of k out of t."""
        return int(self.sampler.participations)


class RandomAllocation(EpochSampler):
    """Random allocation: k of the t steps of each epoch, drawn by each example for itself.

    >>> import numpy as np
    >>> sampler = RandomAllocation(bins=4, participations=2)
    >>> [batch.size for batch in sampler.batches(1000, np.random.default_rng(0))]
    [497, 516, 485, 502]

    Formal guarantee of batches: in every epoch of ``bins`` steps each example takes part in a uniformly random
    set of ``participations`` distinct steps. The sets are independent over all examples and all epochs. The batch
    sizes are random, ``participations * num_examples / bins`` on average.

    Fields:
        bins: steps t in one epoch.
        participations: distinct steps k that each example picks in each epoch; at most ``bins``.
        epochs: rounds of picking.

    Memory and time: O(num_examples + bins) memory (for k > 1 in expectation, and closely concentrated), whatever
    k is; O(k * num_examples + bins) time for each epoch, plus sorting each batch for k > 1.

    Raises: InvalidInputError at construction when ``participations`` exceeds ``bins``, or ``bins * epochs``
    exceeds 10**9.

    Reference: Feldman and Shenfeld (2025), "Privacy amplification by random allocation", Definition 2.11.
    """

    PROMISES: ClassVar[type[Promises]] = RandomAllocationPromises

    kind: Literal["random_allocation"] = "random_allocation"
    participations: Count = 1

    @model_validator(mode="after")
    def _picks_fit_in_epoch(self) -> Self:
        if self.participations > self.bins:
            raise InvalidInputError(
                f"The 'participations' field must be at most bins = {self.bins}. Got {self.participations} instead"
            )
        return self

    @property
    def rate(self) -> float:
        """As many batches of each epoch as the example picks."""
        return self.participations / self.bins

    @property
    def most_participations(self) -> int:
        """As many as the example picks in each epoch."""
        return self.participations * self.epochs

    @property
    def holds_for(self) -> tuple[Adjacency, ...]:
        """Both: an example's steps are drawn independently of the others, so removing it is zeroing it out."""
        return (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE)

    @property
    def requirement(self) -> str:
        """One sentence: what the run has to do."""
        return (
            f"In every one of {self.epochs} epoch(s) of {self.bins} steps, let each example independently take part in "
            f"exactly {self.participations} distinct step(s) chosen uniformly at random, afresh in every epoch."
        )

    def _draw(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        for _ in range(self.epochs):
            if self.participations == 1:
                order, starts = group_by_bin(draw_bins(self.bins, num_examples, rng), self.bins)
                for b in range(self.bins):
                    yield order[starts[b] : starts[b + 1]].astype(np.int64)
            else:
                yield from self._several_picks(num_examples, rng)

    def _several_picks(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        """One epoch of k > 1 picks for each example.

        Only the next pick of each example and the number of picks after it are kept. The epoch is cut in about k
        stretches of steps: in each one the examples whose next pick is due advance until it is due no longer, so
        a stretch holds about one pick of each example.
        """
        bins = self.bins
        after = np.full(num_examples, self.participations, dtype=np.int32)
        due_at = np.zeros(num_examples, dtype=np.int32)
        _advance(np.arange(num_examples), due_at, after, bins, rng)
        stretch = -(-bins // self.participations)
        for first in range(0, bins, stretch):
            end = min(first + stretch, bins)
            examples: list[NDArray[np.int32]] = []
            offsets: list[NDArray[np.uint32]] = []
            due = np.flatnonzero(due_at < end)
            while due.size:
                examples.append(due.astype(np.int32))
                offsets.append((due_at[due] - first).astype(np.uint32))
                due_at[due] += 1
                _advance(due, due_at, after, bins, rng)
                due = due[due_at[due] < end]
            yield from _batches_of_stretch(examples, offsets, end - first)


def _advance(
    who: NDArray[np.intp], due_at: NDArray[np.int32], after: NDArray[np.int32], bins: int, rng: np.random.Generator
) -> None:
    """Move ``due_at`` of these examples to their next pick among the steps due_at, ..., bins - 1, or to ``bins``.

    ``after`` counts the picks still to come and goes down by one for each that is drawn. With r picks to come
    among m steps, the m - r other steps are spread over the r + 1 gaps around the picks uniformly over all
    compositions: a Dirichlet(1, ..., 1) mixture of multinomials, so the first gap is binomial with m - r trials
    and a probability drawn from Beta(1, r).
    """
    going = after[who] > 0
    due_at[who[~going]] = bins
    who = who[going]
    to_come = after[who]
    others = bins - due_at[who] - to_come
    prob = -np.expm1(-rng.standard_exponential(who.size) / to_come)  # Beta(1, to_come)
    due_at[who] += rng.binomial(others, prob).astype(np.int32)
    after[who] = to_come - 1


def _batches_of_stretch(
    examples: list[NDArray[np.int32]], offsets: list[NDArray[np.uint32]], length: int
) -> Iterator[Batch]:
    """Sort the picks of one stretch of steps into its batches."""
    if not examples:
        examples, offsets = [np.empty(0, np.int32)], [np.empty(0, np.uint32)]
    joined = np.concatenate(examples)
    step = np.concatenate(offsets)
    order, starts = group_by_bin(step.astype(np.uint16) if length <= 2**16 else step, length)
    joined = joined[order]
    for b in range(length):
        yield np.sort(joined[starts[b] : starts[b + 1]]).astype(np.int64)


class RandomAllocationOptions(SchemeOptions):
    """The ``[sampler]`` table of a plan with random allocation."""

    kind: Literal["random_allocation"] = "random_allocation"
    participations: Count = 1

    def sampler(self, data: Data) -> RandomAllocation:
        """The sampler for these data: the nearest whole number of steps to num_examples / batch_size in each epoch.

        With ``participations`` = k the expected batch is therefore k times the plan's batch size.

        Raises: InvalidInputError when ``participations`` exceeds the steps of an epoch.
        """
        bins = data.bins(self.kind)
        if self.participations > bins:
            raise InvalidInputError(
                f"The 'sampler.participations' field must be at most the {bins} steps of an epoch. "
                f"Got {self.participations} instead; sampler.participations = {bins} would do."
            )
        epochs = data.whole_epochs(self.kind, bins)
        return RandomAllocation(bins=bins, participations=self.participations, epochs=epochs)
