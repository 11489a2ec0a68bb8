"""Independent steps, each of them a mixture of Gaussians: the building block beyond one example in one step."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import fsum, sqrt

from hockeystick.by_name import by_name
from hockeystick.calls import made_by
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.pairs.base import DominatingPair
from hockeystick.spec import checked_count, real_number

SUM_ERROR = 1e-9
"""How far a caller's probabilities may be from summing to 1."""
ROUNDING = 1e-15
"""Relative rounding of the sum of squares, for each step."""


@made_by("hs.MixtureStep(probabilities=(0.9, 0.1), sensitivities=(0.0, 1.0))")
@dataclass(frozen=True)
class MixtureStep:
    """``sum_k probabilities[k] N(sensitivities[k], sigma^2)`` against ``N(0, sigma^2)``, ``count`` independent times.

    Attributes:
        probabilities: non-negative, sum 1 up to ``probability_error`` and a rounding of 1e-9, which is divided out.
        sensitivities: of the same length, in clipping norms, non-negative.
        count: number of copies, at least 1.
        probability_error: proved bound on the relative error of each probability, charged to both sides.

    Raises: InvalidInputError when the fields do not fit together.
    """

    probabilities: tuple[float, ...]
    sensitivities: tuple[float, ...]
    count: int = 1
    probability_error: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "probabilities", _numbers("probabilities", self.probabilities))
        object.__setattr__(self, "sensitivities", _numbers("sensitivities", self.sensitivities))
        if len(self.probabilities) != len(self.sensitivities):
            raise InvalidInputError(
                f"The 'sensitivities' field must have one entry for each of the {len(self.probabilities)} "
                f"probabilities. Got {len(self.sensitivities)} instead."
            )
        total = fsum(self.probabilities)
        if abs(total - 1.0) > SUM_ERROR:
            raise InvalidInputError(f"The 'probabilities' field must sum to 1. Got a sum of {total!r} instead.")
        object.__setattr__(self, "count", checked_count("count", self.count, noun="field"))
        object.__setattr__(self, "probability_error", real_number("probability_error", self.probability_error))
        if not 0.0 <= self.probability_error < 1e-3:
            raise InvalidInputError(
                f"The 'probability_error' field must be from 0 to below 1e-3. Got {self.probability_error!r} instead."
            )

    @property
    def largest(self) -> float:
        """The largest sensitivity that occurs."""
        return max(s for p, s in zip(self.probabilities, self.sensitivities, strict=True) if p > 0.0)

    @property
    def is_public(self) -> bool:
        """Whether nothing about the sensitivity is random."""
        return len({s for p, s in zip(self.probabilities, self.sensitivities, strict=True) if p > 0.0}) == 1


@by_name
@dataclass(frozen=True, kw_only=True)
class MixtureSteps(DominatingPair):
    """The steps one after the other, all with this noise, and independent of each other.

    Dominates adaptive compositions of mechanisms of which each, whatever came before, is dominated by its step.

    Attributes:
        steps: at least one.

    Raises: InvalidInputError when there is no step, or no noise.
    """

    steps: tuple[MixtureStep, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.steps, tuple) or not all(isinstance(step, MixtureStep) for step in self.steps):
            raise InvalidInputError(
                f"The 'steps' field must be a tuple of hs.MixtureStep objects. Got {shortened(self.steps)} instead."
            )
        if not self.steps:
            raise InvalidInputError("The 'steps' field must have at least one step. Got none instead.")
        for name in ("noise_multiplier", "slack"):  # float32 of NumPy's would round all that is computed with them
            object.__setattr__(self, name, real_number(name, getattr(self, name)))
        if not 0.0 < self.noise_multiplier < float("inf"):
            raise InvalidInputError(
                f"The 'noise_multiplier' field must be positive and finite. Got {self.noise_multiplier!r} instead."
            )
        if not 0.0 <= self.slack <= 1.0:
            raise InvalidInputError(f"The 'slack' field must be from 0 to 1. Got {self.slack!r} instead.")

    @property
    def distinct_steps(self) -> dict[MixtureStep, int]:
        """Every step that occurs, with a count of 1, and how often it does; in their order."""
        counts = Counter[MixtureStep]()
        for step in self.steps:
            counts[replace(step, count=1)] += step.count
        return dict(counts)

    @property
    def full_sensitivity(self) -> float:
        """The root of the sum of the squared largest sensitivities: the worst may happen in every step."""
        return sqrt(fsum(step.count * step.largest**2 for step in self.steps))

    @property
    def excess(self) -> float:
        """How far the sensitivities may be above those of the mechanism, relatively, which lower bounds leave out."""
        return 0.0

    @property
    def sensitivity_error(self) -> float:
        """The relative rounding of a sum of squares."""
        return ROUNDING * (4.0 + len(self.steps))

    @property
    def batches_are_public(self) -> bool:
        """True when no sensitivity is random."""
        return all(step.is_public for step in self.steps)


def _numbers(name: str, values: object) -> tuple[float, ...]:
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise InvalidInputError(f"The {name!r} field must hold numbers. Got {shortened(values)} instead.")
    numbers = tuple(real_number(name, value) for value in values)
    if not numbers or not all(0.0 <= value < float("inf") for value in numbers):
        raise InvalidInputError(f"The {name!r} field must hold finite non-negative numbers. Got {values!r} instead.")
    return numbers
