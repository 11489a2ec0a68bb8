"""What a plan says of the data and of the length of a run, and the base class of its samplers' options."""

from abc import abstractmethod
from fractions import Fraction
from math import isqrt
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from hockeystick.errors import InvalidInputError
from hockeystick.samplers.base import MAX_STEPS, BatchSampler
from hockeystick.spec import Count, Examples, Extended, Positive, Spec

Remainder = Literal["drop", "short"]
"""What becomes of the examples that fill no whole batch: left out, or used as a last, shorter batch."""
Rate = Annotated[float, Field(ge=1e-18, le=1.0)]
"""A sampling rate in a plan: as small as the smallest batch of the largest dataset makes it."""
WHOLE = Fraction(1, 10**9)
"""Relative distance from a whole number that the rounding of a rate may make."""


class FixedBatches(NamedTuple):
    """Batches of one size: ``bins`` in an epoch, the last one shorter for ``remainder`` = "short"."""

    batch_size: int
    bins: int
    remainder: Remainder | None


class Data(Extended):
    """The ``[data]`` table of a plan: the dataset, the expected batch and the length of the run.

    Exactly one of ``batch_size``, ``batches_per_epoch`` and ``sampling_prob`` is given, and at least one of ``epochs``
    and ``steps``; given together, these have to agree.

    Fields:
        num_examples: size of the dataset.
        batch_size: expected number of examples in a batch, any positive number.
        batches_per_epoch: batches in one pass over the data; the rate is one over it.
        sampling_prob: rate: the chance of one example to be in one batch, over the whole run.
        epochs: passes over the data; may be a fraction where batches are drawn step by step.
        steps: batches in the run.
    """

    LATER: ClassVar[frozenset[str]] = frozenset({"batches_per_epoch", "sampling_prob"})

    num_examples: Examples
    batch_size: Positive | None = None
    batches_per_epoch: Count | None = None
    sampling_prob: Rate | None = None
    epochs: Positive | None = None
    steps: Count | None = None

    @model_validator(mode="after")
    def _says_what_is_needed(self) -> Self:
        given = [name for name in ("batch_size", "batches_per_epoch", "sampling_prob") if getattr(self, name)]
        if not given:
            raise InvalidInputError(
                "The 'data.batch_size' field has to be given, or 'data.batches_per_epoch' or 'data.sampling_prob'"
            )
        if len(given) > 1:
            raise InvalidInputError(
                f"The 'data.{given[1]}' field must be left out where 'data.{given[0]}' is given, from which it follows"
            )
        if self.epochs is None and self.steps is None:
            raise InvalidInputError("The 'data.epochs' field or the 'data.steps' field has to be given")
        if self.rate > 1:
            raise InvalidInputError(
                f"The 'data.batch_size' field must be at most num_examples = {self.num_examples}. "
                f"Got {self.batch_size} instead; data.batch_size = {self.num_examples} would do"
            )
        return self

    @property
    def rate(self) -> Fraction:
        """The chance of one example to be in one batch: ``batch_size / num_examples``, exactly."""
        if self.sampling_prob is not None:
            return Fraction(self.sampling_prob)
        if self.batches_per_epoch is not None:
            return Fraction(1, self.batches_per_epoch)
        return Fraction(self.batch_size or 0) / self.num_examples  # one of the three is always given

    @property
    def expected_batch(self) -> float:
        """The expected number of examples in a batch, ``rate * num_examples``."""
        return float(self.rate * self.num_examples)

    def at_most_every(self, kind: str, field: str, value: int) -> None:
        """Refuse a distance of ``value`` steps between two batches of an example where the rate is higher.

        Raises: InvalidInputError naming the sampler's field and the largest value that would do.
        """
        most = int(1 / self.rate)
        if value > most:
            raise InvalidInputError(
                f"The 'sampler.{field}' field must be at most num_examples / batch_size = {float(1 / self.rate):.10g} "
                f"for kind = {kind!r}. Got {value} instead; sampler.{field} = {most} would do."
            )

    def total_steps(self, kind: str) -> int:
        """The number of steps: as given, or ``epochs / rate`` to the nearest whole number.

        Raises: InvalidInputError when that is no number of steps, or not the one that is given.
        """
        if self.epochs is None:
            return self.steps or 0  # one of the two is always given
        made = Fraction(self.epochs) / self.rate
        nearest = min(max(round(made), 1), MAX_STEPS)
        if not Fraction(1, 2) <= made < MAX_STEPS + Fraction(1, 2):
            raise InvalidInputError(
                f"The 'data.epochs' field must make from 1 to {MAX_STEPS} steps for kind = {kind!r}. "
                f"Got {self.epochs} epochs of {float(1 / self.rate):.10g} steps instead; "
                f"data.steps = {nearest} in place of data.epochs would do."
            )
        if self.steps is not None and abs(self.steps - made) >= 1:
            raise _disagree(self.epochs, float(made), self.steps, nearest)
        return nearest if self.steps is None else self.steps

    def bins(self, kind: str) -> int:
        """The number of batches of one epoch: as given, or ``num_examples / batch_size`` to the nearest whole number.

        Raises: InvalidInputError for more than a sampler takes.
        """
        bins = round(1 / self.rate)
        if bins > MAX_STEPS:
            size = -(-self.num_examples // MAX_STEPS)
            raise InvalidInputError(
                f"The 'data.{self._given}' field must make at most {MAX_STEPS} batches of an epoch for kind = "
                f"{kind!r}. Got {getattr(self, self._given)!r} instead; {self._with_batch_size(size)} would do."
            )
        return bins

    def whole_epochs(self, kind: str, bins: int) -> int:
        """The number of epochs of ``bins`` steps: as given, or ``steps / bins``.

        Raises: InvalidInputError when it is no whole number, or the run too long.
        """
        if self.epochs is None:
            return self._epochs_of_steps(kind, bins)
        if self.epochs != int(self.epochs):
            below = int(self.epochs)
            would_do = f"{below} or {below + 1}" if below else "1"
            raise InvalidInputError(
                f"The 'data.epochs' field must be a whole number for kind = {kind!r}. Got {self.epochs} instead; "
                f"data.epochs = {would_do} would do."
            )
        epochs = int(self.epochs)
        if epochs * bins > MAX_STEPS:
            raise InvalidInputError(
                f"The 'data.epochs' field must keep the run at or below {MAX_STEPS} steps. Got {epochs} epochs of "
                f"{bins} steps instead; data.epochs = {MAX_STEPS // bins} would do."
            )
        if self.steps is not None and self.steps != epochs * bins:
            raise _disagree(epochs, epochs * bins, self.steps, epochs * bins)
        return epochs

    def _epochs_of_steps(self, kind: str, bins: int) -> int:
        steps = self.steps or 0  # one of the two is always given
        if steps % bins:
            near = (steps // bins * bins, -(-steps // bins) * bins)
            would_do = " or ".join(str(number) for number in near if 0 < number <= MAX_STEPS)
            raise InvalidInputError(
                f"The 'data.steps' field must be a multiple of the {bins} steps of an epoch for kind = {kind!r}. "
                f"Got {steps} instead; data.steps = {would_do} would do."
            )
        return steps // bins

    def fixed_batches(self, kind: str, remainder: Remainder | None) -> FixedBatches:
        """The batches of an epoch where all of them have one size.

        Where the size does not divide the number of examples, ``remainder`` says what becomes of the rest; where it
        does, ``remainder`` changes nothing.

        Raises: InvalidInputError, naming sizes that would do, when the size is no whole number, or does not divide the
        number of examples and nothing is said of the rest.
        """
        count = self.num_examples
        if self.batches_per_epoch is not None:
            return self._of_given_number(kind, self.batches_per_epoch, remainder)
        exact = self.rate * count
        size = round(exact)
        if size < 1 or abs(exact - size) > WHOLE * size:
            whole = max(size, 1)
            near = f"{whole}" if remainder or count % whole == 0 else self._divisors_near(exact)
            raise self.not_whole(kind, near)
        if count % size == 0:
            return FixedBatches(size, count // size, None)
        if remainder is None:
            raise InvalidInputError(
                f"The 'data.{self._given}' field must divide num_examples = {count} for kind = {kind!r} unless "
                f"'sampler.remainder' is given. Got {size} instead; "
                f"{self._with_batch_size(self._divisors_near(exact))} would do, and so would "
                f"sampler.remainder = 'drop' or 'short'."
            )
        return FixedBatches(size, count // size + (remainder == "short"), remainder)

    def not_whole(self, kind: str, would_do: str) -> InvalidInputError:
        """The refusal of batches that hold no whole number of examples; ``would_do`` names sizes that do."""
        return InvalidInputError(
            f"The 'data.{self._given}' field must make batches of a whole number of examples for kind = {kind!r}. "
            f"Got {self.expected_batch:.10g} examples instead; {self._with_batch_size(would_do)} would do."
        )

    def _of_given_number(self, kind: str, bins: int, remainder: Remainder | None) -> FixedBatches:
        count = self.num_examples
        if bins > count:
            raise InvalidInputError(
                f"The 'data.batches_per_epoch' field must be at most num_examples = {count} for kind = {kind!r}. "
                f"Got {bins} instead; data.batches_per_epoch = {count} would do."
            )
        if count % bins == 0:
            return FixedBatches(count // bins, bins, None)
        shorter = -(-count // bins)
        if remainder == "drop":
            return FixedBatches(count // bins, bins, remainder)
        if remainder == "short" and shorter * (bins - 1) < count:
            return FixedBatches(shorter, bins, remainder)
        number = -(-count // shorter)  # of batches of that size, the last one shorter or not
        would_do = f"data.batches_per_epoch = {number}" if remainder or count % number == 0 else None
        drop = "sampler.remainder = 'drop'"
        raise InvalidInputError(
            f"The 'data.batches_per_epoch' field must cut num_examples = {count} in batches of one size for kind = "
            f"{kind!r}{' but for a shorter last one' if remainder else ''}. Got {bins} instead; "
            f"{f'{drop} would do' if would_do is None else f'{would_do} would do, and so would {drop}'}."
        )

    @property
    def _given(self) -> str:
        """The field that the rate was given by."""
        if self.batch_size is not None:
            return "batch_size"
        return "batches_per_epoch" if self.sampling_prob is None else "sampling_prob"

    def _with_batch_size(self, size: object) -> str:
        """The proposal of a batch size, in place of what was given."""
        return f"data.batch_size = {size}" + ("" if self.batch_size else f" in place of data.{self._given}")

    def _divisors_near(self, size: Fraction) -> str:
        """The divisors of num_examples next to a size that is not one of them."""
        small = [d for d in range(1, isqrt(self.num_examples) + 1) if self.num_examples % d == 0]
        divisors = {*small, *(self.num_examples // d for d in small)}
        below, above = [d for d in divisors if d < size], [d for d in divisors if d > size]
        return " or ".join(str(divisor) for divisor in ([max(below)] if below else []) + [min(above)])


def _disagree(epochs: object, made: float, steps: int, nearest: int) -> InvalidInputError:
    return InvalidInputError(
        f"The 'data.steps' field must agree with epochs = {epochs}, which makes {made:.10g} steps. "
        f"Got {steps} instead; data.steps = {nearest} would do."
    )


class SchemeOptions(Spec):
    """What a user writes in the ``[sampler]`` table of a plan; the data determine the rest."""

    @abstractmethod
    def sampler(self, data: Data) -> BatchSampler:
        """The sampler of this scheme for these data.

        Raises: InvalidInputError when the data do not suit the scheme.
        """
