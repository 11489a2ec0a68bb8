"""The base class of samplers."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from pydantic import model_validator

from hockeystick.calls import called
from hockeystick.errors import InvalidInputError
from hockeystick.samplers.attribution import Attribution
from hockeystick.samplers.promises import Batch, Promises
from hockeystick.spec import Spec, checked_count
from hockeystick.types import Adjacency

MAX_STEPS = 10**9
"""The longest run that a sampler describes."""


class BatchSampler(Spec):
    """How the batches of a run are formed. Every field is public information.

    A scheme is one final class in one file. It says in its docstring which joint distribution ``batches``
    guarantees; certificates are about that distribution. The draws are exact up to the rounding of
    double-precision arithmetic, for an ideal generator: numpy's generators are not cryptographic.
    """

    PROMISES: ClassVar[type[Promises]] = Promises
    """What a recorded run checks of every batch."""

    kind: str
    """The name of the scheme in plans and certificates."""

    if TYPE_CHECKING:  # a field of some schemes and a property of others

        @property
        def steps(self) -> int:
            """The number of batches of the whole run."""

    @property
    @abstractmethod
    def rate(self) -> float:
        """The chance of one example to be in one batch, on average over the steps and before any truncation."""

    @property
    @abstractmethod
    def most_participations(self) -> int:
        """The most batches of the run that one example can be in."""

    @property
    def mean_participations(self) -> float:
        """The mean number of batches that an example is in, or less; of the example that is in the most of them."""
        return self.steps * self.rate

    @property
    def independent_rate(self) -> float | None:
        """The chance of one example at every step, or less, where its steps are independent of one another; or None."""
        return None

    @property
    def rate_when_available(self) -> float | None:
        """The chance of one example at the steps where it may take part, if it may not at all of them; or None."""
        return None

    @property
    def participation_chances(self) -> Mapping[int, float] | None:
        """The chance of each number of batches that one example is in, each within a relative 1e-12; or None.

        Only where the steps of an example are independent of those of all others. Bounds of a scheme without a pair of
        its own are amplified by it.
        """
        return None

    @property
    def batches_are_public(self) -> bool:
        """Whether everybody knows the batches."""
        return False

    @property
    @abstractmethod
    def holds_for(self) -> tuple[Adjacency, ...]:
        """The notions of neighbouring datasets that a certificate for this scheme covers."""

    @property
    @abstractmethod
    def requirement(self) -> str:
        """One sentence that tells what the run has to do for a certificate to be about it."""

    @called("sampler.batches(num_examples=50_000, rng=np.random.default_rng())")
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
        count = self.check_num_examples(num_examples)
        _check_generator(rng)
        return self._draw(count, rng)

    def check_num_examples(self, num_examples: int) -> int:
        """The dataset size, which suits the scheme; raises InvalidInputError where it does not."""
        count, declared = checked_count("num_examples", num_examples), getattr(self, "num_examples", None)
        if declared is not None and count != declared:
            raise InvalidInputError(
                f"The 'num_examples' argument must be the sampler's num_examples = {declared}. Got {count} instead."
            )
        self._check_num_examples(count)
        return count

    def _check_num_examples(self, num_examples: int) -> None:
        """Refuse a dataset size that does not suit the fields, beside a declared one; most schemes take any."""

    def promises(self, num_examples: int, attribution: Attribution | None = None) -> Promises:
        """The promises about the batches of one run, to be checked one after the other."""
        return self.PROMISES(self, num_examples, attribution)

    def prefix(self, steps: int) -> Self | None:
        """The sampler whose runs are the first ``steps`` steps of this one's, or None where no sampler's are."""
        return self.parse(self.model_dump() | {"steps": steps})

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


def _check_generator(rng: object) -> None:
    if not isinstance(rng, np.random.Generator):
        raise InvalidInputError(
            "The 'rng' argument must be a numpy.random.Generator such as numpy.random.default_rng(seed). "
            f"Got an object of type {type(rng).__name__!r} instead."
        )
