"""The base classes of samplers and of their options in plans, and the data that a plan starts from."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from hockeystick.errors import InvalidInputError
from hockeystick.spec import Count, Spec
from hockeystick.types import Adjacency

Batch = NDArray[np.int64]
"""Indices of the examples of one batch: distinct, ascending, each from 0 to num_examples - 1."""

MAX_STEPS = 10**9
"""The longest run that a sampler describes."""
MAX_EXAMPLES = 10**9
"""The largest dataset that a sampler draws from."""


class BatchSampler(Spec):
    """How the batches of a run are formed. Every field is public information.

    A scheme is one final class in one file. It says in its docstring which joint distribution ``batches``
    guarantees; certificates are about that distribution. The draws are exact up to the rounding of
    double-precision arithmetic, for an ideal generator: numpy's generators are not cryptographic.
    """

    kind: str
    """The name of the scheme in plans and certificates."""

    if TYPE_CHECKING:  # a field of some schemes and a property of others

        @property
        def steps(self) -> int:
            """The number of batches of the whole run."""

    @property
    @abstractmethod
    def holds_for(self) -> tuple[Adjacency, ...]:
        """The notions of neighbouring datasets that a certificate for this scheme covers."""

    @property
    @abstractmethod
    def requirement(self) -> str:
        """One sentence that tells what the run has to do for a certificate to be about it."""

    def batches(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Draw the batches of one run: exactly ``steps`` index arrays, in the order of the steps.

        Formal guarantee: the class's docstring states the joint distribution of all the batches.

        Assumptions: nothing else draws from ``rng`` in between if the run is to be repeated from a seed
        (the draws happen as the iteration proceeds). One call is one run: stopping early and calling again
        starts another run, which the certificate is not about.

        Shapes and units: each batch is a fresh, sorted array of distinct ``int64`` indices; it may be empty
        where the scheme makes the size random.

        Raises: InvalidInputError at the call when ``num_examples`` does not suit the scheme or ``rng`` is not
        a ``numpy.random.Generator``.
        """
        count = _checked_count(num_examples)
        _check_generator(rng)
        self._check_num_examples(count)
        return self._draw(count, rng)

    def _check_num_examples(self, num_examples: int) -> None:
        """Refuse a dataset size that does not suit the fields; most schemes take any."""

    @abstractmethod
    def _draw(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield the batches of one run; the arguments have been checked."""

    @model_validator(mode="after")
    def _at_most_max_steps(self) -> Self:
        if self.steps > MAX_STEPS:
            raise InvalidInputError(
                f"The 'epochs' field must keep the run at or below {MAX_STEPS} steps. Got {self.steps} steps instead"
            )
        return self


def _checked_count(num_examples: object) -> int:
    if isinstance(num_examples, bool) or not isinstance(num_examples, int | np.integer):
        raise InvalidInputError(f"The 'num_examples' argument must be a whole number. Got {num_examples!r} instead.")
    if not 1 <= num_examples <= MAX_EXAMPLES:
        raise InvalidInputError(
            f"The 'num_examples' argument must be from 1 to {MAX_EXAMPLES}. Got {int(num_examples)} instead."
        )
    return int(num_examples)


def _check_generator(rng: object) -> None:
    if not isinstance(rng, np.random.Generator):
        raise InvalidInputError(
            "The 'rng' argument must be a numpy.random.Generator such as numpy.random.default_rng(seed). "
            f"Got an object of type {type(rng).__name__!r} instead."
        )


class Data(Spec):
    """The ``[data]`` table of a plan: the dataset, the (expected) batch size and the length of the run.

    At least one of ``epochs`` and ``steps`` has to be given; given together they have to agree.
    """

    num_examples: Count
    batch_size: Count
    epochs: Count | None = None
    steps: Count | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.batch_size > self.num_examples:
            raise InvalidInputError(
                f"The 'data.batch_size' field must be at most num_examples = {self.num_examples}. "
                f"Got {self.batch_size} instead"
            )
        if self.epochs is None:
            if self.steps is None:
                raise InvalidInputError("The 'data.epochs' field or the 'data.steps' field has to be given")
            return self
        # The fields bound this product by 10**18, and Python's integers are exact anyway.
        participations = self.epochs * self.num_examples
        if participations > MAX_STEPS * self.batch_size:
            raise InvalidInputError(
                f"The 'data.epochs' field must keep the run at or below {MAX_STEPS} steps. "
                f"Got {self.epochs} epochs of {self.num_examples / self.batch_size:.10g} steps instead"
            )
        if self.steps is not None and abs(self.steps * self.batch_size - participations) >= self.batch_size:
            raise InvalidInputError(
                f"The 'data.steps' field must agree with epochs = {self.epochs}, which makes "
                f"{participations / self.batch_size:.10g} steps. Got {self.steps} instead"
            )
        return self

    @property
    def sampling_prob(self) -> float:
        """The chance of one example to be in one batch, ``batch_size / num_examples``."""
        return self.batch_size / self.num_examples

    def bins(self, kind: str) -> int:
        """The number of batches of one epoch, ``num_examples / batch_size``.

        Raises: InvalidInputError, naming the sampler's ``kind`` and the nearest sizes that would do, when the
        batch size does not divide the number of examples.
        """
        if self.num_examples % self.batch_size:
            raise InvalidInputError(
                f"The 'data.batch_size' field must divide num_examples = {self.num_examples} for kind = {kind!r}. "
                f"Got {self.batch_size} instead; {self._batch_sizes_that_would_do()}."
            )
        return self.num_examples // self.batch_size

    def whole_epochs(self, kind: str) -> int:
        """The number of epochs: as given, or ``steps / bins``.

        Raises: InvalidInputError when the batch size does not divide the data, or the steps are not whole epochs.
        """
        bins = self.bins(kind)
        steps = self.total_steps(kind)
        if steps % bins:
            below, above = steps // bins * bins, -(-steps // bins) * bins
            would_do = f"{below} and {above}" if below else f"{above}"
            raise InvalidInputError(
                f"The 'data.steps' field must be a multiple of the {bins} steps of an epoch for kind = {kind!r}. "
                f"Got {steps} instead; {would_do} would do."
            )
        return steps // bins

    def total_steps(self, kind: str) -> int:
        """The number of steps: as given, or ``epochs * num_examples / batch_size``.

        Raises: InvalidInputError when that is not a whole number.
        """
        if self.steps is not None:
            return self.steps
        participations = (self.epochs or 0) * self.num_examples  # one of the two is always given
        if participations % self.batch_size:
            raise InvalidInputError(
                f"The 'data.batch_size' field must divide epochs * num_examples = {participations} for kind = {kind!r} "
                f"unless 'data.steps' is given. Got {self.batch_size} instead; {self._batch_sizes_that_would_do()}."
            )
        return participations // self.batch_size

    def _batch_sizes_that_would_do(self) -> str:
        """The divisors of num_examples next to the batch size, which is not one of them."""
        small = [d for d in range(1, int(self.num_examples**0.5) + 2) if self.num_examples % d == 0]
        divisors = {*small, *(self.num_examples // d for d in small)}
        below = max(d for d in divisors if d < self.batch_size)
        above = min(d for d in divisors if d > self.batch_size)
        return f"{below} and {above} would do"


class SchemeOptions(Spec):
    """What a user writes in the ``[sampler]`` table of a plan; the data determine the rest."""

    @abstractmethod
    def sampler(self, data: Data) -> BatchSampler:
        """The sampler of this scheme for these data.

        Raises: InvalidInputError when the data do not suit the scheme.
        """
