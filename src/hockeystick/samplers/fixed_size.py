"""Batches of exactly one size: fresh ones at every step, or cohorts that a few steps share."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from hockeystick.errors import InvalidInputError
from hockeystick.samplers.base import BatchSampler
from hockeystick.samplers.data import WHOLE, Data, SchemeOptions
from hockeystick.samplers.promises import Batch, Promises, expect
from hockeystick.spec import Count, Examples
from hockeystick.types import Adjacency


class FixedSizePromises(Promises):
    """Every batch has the same size, and the steps of a cohort have the same batch."""

    meanings: ClassVar[Mapping[str, str]] = {
        **Promises.meanings,
        "batch_size": "All batches had the size that the sampler says.",
        "same_cohort": "All steps of a cohort had the same examples.",
    }

    @property
    def whole_batch(self) -> int:
        """Examples in every batch."""
        return int(self.sampler.batch_size)

    def begin(self) -> None:
        super().begin()
        self.cohort: Batch = np.zeros(0, dtype=np.int64)

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        expect(batch.size == self.sampler.batch_size, "batch_size")
        if step % self.sampler.cohort_steps == 0:
            self.cohort = batch.copy()
        expect(bool(np.array_equal(batch, self.cohort)), "same_cohort")


class FixedSize(BatchSampler):
    """Every batch is a uniformly random set of ``batch_size`` of the examples, drawn without replacement.

    Formal guarantee of batches: the sets of different cohorts are independent, each uniform over all sets of that size;
    the ``cohort_steps`` steps of a cohort use the same set, and the last cohort may have fewer steps.

    >>> import numpy as np
    >>> sampler = FixedSize(batch_size=100, num_examples=1000, steps=4)
    >>> [batch.size for batch in sampler.batches(1000, np.random.default_rng(0))]
    [100, 100, 100, 100]

    Fields:
        batch_size: m, examples in every batch.
        num_examples: N, the size of the dataset, which is public.
        steps: number of batches.
        cohort_steps: steps that use a batch before the next one is drawn: 1 for fresh batches.

    Memory and time: O(num_examples) for each cohort.

    Raises: InvalidInputError at construction for batches larger than the dataset; from ``batches`` when the number of
    examples is not the declared one.

    Reference: Balle, Barthe and Gaboardi (2018), "Privacy Amplification by Subsampling", Theorem 11.
    """

    PROMISES: ClassVar[type[Promises]] = FixedSizePromises

    kind: Literal["fixed_size"] = "fixed_size"
    batch_size: Examples
    num_examples: Examples
    steps: Count
    cohort_steps: Count = 1

    @property
    def rate(self) -> float:
        """The share of the examples in a batch."""
        return self.batch_size / self.num_examples

    @property
    def independent_rate(self) -> float | None:
        """The rate, where every batch is drawn afresh."""
        return self.rate if self.cohort_steps == 1 else None

    @property
    def most_participations(self) -> int:
        """One in every step."""
        return self.steps

    @property
    def holds_for(self) -> tuple[Adjacency, ...]:
        """Zero-out: adding an example would change the public size of the dataset."""
        return (Adjacency.ZERO_OUT,)

    @property
    def requirement(self) -> str:
        """One sentence: what the run has to do."""
        draw = f"Draw exactly {self.batch_size} of the {self.num_examples} examples, uniformly without replacement"
        if self.cohort_steps == 1:
            return f"{draw}, afresh for every one of {self.steps} step(s)."
        return f"{draw}, use them in {self.cohort_steps} steps, draw again, and so on, for {self.steps} step(s) in all."

    @model_validator(mode="after")
    def _batches_fit(self) -> Self:
        if self.batch_size > self.num_examples:
            raise InvalidInputError(
                f"The 'batch_size' field must be at most num_examples = {self.num_examples}. "
                f"Got {self.batch_size} instead"
            )
        return self

    def _draw(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        for step in range(self.steps):
            if step % self.cohort_steps == 0:
                cohort = np.sort(rng.choice(num_examples, size=self.batch_size, replace=False, shuffle=False))
            yield cohort.copy()


class FixedSizeOptions(SchemeOptions):
    """The ``[sampler]`` table of a plan with batches of exactly one size."""

    kind: Literal["fixed_size"] = "fixed_size"
    cohort_steps: Count = 1

    def sampler(self, data: Data) -> FixedSize:
        """The sampler for these data; the batch size need not divide the number of examples.

        Raises: InvalidInputError, naming the nearest size that would do, when the batch size is no whole number.
        """
        exact = data.rate * data.num_examples
        size = max(round(exact), 1)
        if abs(exact - size) > WHOLE * size:
            raise data.not_whole(self.kind, f"{size}")
        return FixedSize(
            batch_size=size,
            num_examples=data.num_examples,
            steps=data.total_steps(self.kind),
            cohort_steps=self.cohort_steps,
        )
