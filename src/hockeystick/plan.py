"""Plan: what a user knows of a run (data, batch size, epochs, target), and the Mechanism that follows from it."""

import json as json_module
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from hockeystick.calls import called
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.files import json_object, parse_toml, read_small_file
from hockeystick.mechanism import Mechanism, UnitOwner
from hockeystick.samplers import Data, SamplerOptions
from hockeystick.samplers.base import BatchSampler
from hockeystick.samplers.dealt import DealtSampler
from hockeystick.samplers.epochs import EpochSampler
from hockeystick.spec import LARGEST_EPSILON, NoiseMultiplier, Spec, identified
from hockeystick.strategies import Identity, Strategy

SCHEMA = "hockeystick-plan/1"
Epsilon = Annotated[float, Field(gt=0.0, le=LARGEST_EPSILON)]
Delta = Annotated[float, Field(ge=1e-30, lt=1.0)]
MAX_PLAN_BYTES = 1 << 20


class Target(Spec):
    """The ``[target]`` table: what the run should guarantee."""

    epsilon: Epsilon | None = None
    delta: Delta | None = None


class MechanismOptions(Spec):
    """The ``[mechanism]`` table: the noise, where it is known."""

    noise_multiplier: NoiseMultiplier | None = None


class NoiseOptions(Spec):
    """The ``[noise]`` table: how the noise is made.

    Attributes:
        exact: in whole numbers, so that the certificate covers the bits that a run adds.
    """

    exact: bool = False


@dataclass(frozen=True, kw_only=True)
class PlanNumbers:
    """What follows from a plan.

    Attributes:
        num_examples: size of the dataset.
        asked_batch: the expected batch that the plan asks for.
        expected_batch: the expected batch of the run, ``rate * num_examples``, before any truncation.
        rate: chance of one example to be in one batch, on average over the steps.
        steps: batches in the run.
        participations: expected number of batches that one example is in, ``rate * steps``.
        epochs, bins: passes over the data and batches in each, where batches are drawn by epochs.
        remainder, rest: what becomes of the examples that fill no whole batch, and how many there are in an epoch.
    """

    num_examples: int
    asked_batch: float
    expected_batch: float
    rate: float
    steps: int
    participations: float
    epochs: int | None
    bins: int | None
    remainder: str | None
    rest: int


class Plan(UnitOwner):
    """A training run in the user's terms.

    >>> plan = Plan.parse({
    ...     "data": {"num_examples": 60000, "batch_size": 200, "epochs": 10},
    ...     "sampler": {"kind": "poisson"},
    ...     "noise_multiplier": 1.0,
    ... })
    >>> plan.mechanism().sampler.steps
    3000

    Attributes:
        data: sizes and length of the run.
        strategy: the matrix C, ``identity`` by default.
        sampler: how batches are formed; rates and bins follow from ``data``.
        target: epsilon and delta, for the commands that need them.
        noise_multiplier: at top level or in ``[mechanism]``, not in both.
        unit: whose contribution is hidden, an example by default.
        noise: how the noise is made.
    """

    UNUSUAL: ClassVar[tuple[str, ...]] = ("unit", "noise")

    data: Data
    strategy: Strategy = Field(default_factory=Identity)
    sampler: SamplerOptions = Field(discriminator="kind")
    target: Target = Field(default_factory=Target)
    mechanism_options: MechanismOptions = Field(default_factory=MechanismOptions, alias="mechanism")
    noise_multiplier: NoiseMultiplier | None = None
    noise: NoiseOptions = Field(default_factory=NoiseOptions)

    @model_validator(mode="after")
    def _one_noise_multiplier(self) -> Self:
        if self.noise_multiplier is not None and self.mechanism_options.noise_multiplier is not None:
            raise InvalidInputError("The 'noise_multiplier' field must be given once, at top level or in [mechanism]")
        return self

    @model_validator(mode="after")
    def _users_have_examples(self) -> Self:
        if self.unit.examples > self.data.num_examples:
            raise InvalidInputError(
                f"The 'unit.examples_per_user' field must be at most num_examples = {self.data.num_examples}. "
                f"Got {self.unit.examples} instead"
            )
        return self

    @classmethod
    @called('hs.Plan.load("plan.toml")')
    def load(cls, path: str | Path) -> Self:
        """Read a plan from a TOML or JSON file (by its suffix; TOML for any other).

        Raises: InvalidInputError in one sentence for a file that cannot be read or is not a valid plan.
        """
        name = f"plan {shortened(str(path))}"
        raw = read_small_file(path, name, MAX_PLAN_BYTES)
        if not raw.strip():
            raise InvalidInputError(f"The {name} is empty; it needs at least [data] and [sampler].")
        if Path(path).suffix.lower() == ".json":
            _check_is_one_plan(json_object(raw), path)
            return cls.parse_json(raw, name)
        values = parse_toml(raw, name)
        _check_is_one_plan(values, path)
        return cls.parse(values)

    def file_text(self, *, json: bool = False) -> str:
        """The plan as a TOML file, or as a JSON file, from which :meth:`load` reads the same plan.

        >>> plan = Plan.parse({
        ...     "data": {"num_examples": 9, "batch_size": 3, "steps": 2}, "sampler": {"kind": "poisson"}
        ... })
        >>> print(plan.file_text().splitlines()[0])
        [data]
        """
        import tomli_w

        values = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        values = {name: value for name, value in values.items() if value != {}}
        return json_module.dumps(values, indent=2) + "\n" if json else tomli_w.dumps(values)

    def numbers(self) -> PlanNumbers:
        """What follows from the plan: the expected batch, the rate, steps and epochs.

        >>> plan = Plan.parse({
        ...     "data": {"num_examples": 60000, "batch_size": 256, "epochs": 15},
        ...     "sampler": {"kind": "balls_in_bins"},
        ... })
        >>> plan.numbers().bins, round(plan.numbers().expected_batch, 2)
        (234, 256.41)

        Raises: InvalidInputError when the data do not suit the sampler.
        """
        sampler, count = self.sampler.sampler(self.data), self.data.num_examples
        return PlanNumbers(
            num_examples=count,
            asked_batch=self.data.expected_batch,
            expected_batch=sampler.rate * count,
            rate=sampler.rate,
            steps=sampler.steps,
            participations=sampler.rate * sampler.steps,
            epochs=sampler.epochs if isinstance(sampler, EpochSampler) else None,
            bins=sampler.bins if isinstance(sampler, EpochSampler) else None,
            remainder=sampler.remainder if isinstance(sampler, DealtSampler) else None,
            rest=sampler.rest if isinstance(sampler, DealtSampler) else 0,
        )

    def mechanism(self, noise_multiplier: float | None = None) -> Mechanism:
        """The mechanism of this plan; an argument overrides the plan's noise multiplier, None keeps it.

        Raises: InvalidInputError when the data do not suit the sampler.
        """
        given = self.noise_multiplier or self.mechanism_options.noise_multiplier
        return Mechanism(
            strategy=self.strategy,
            sampler=self.sampler.sampler(self.data),
            noise_multiplier=given if noise_multiplier is None else noise_multiplier,
            unit=self.unit,
            exact=self.noise.exact,
        )


def split(plan: Plan | Mechanism, name: str = "mechanism") -> tuple[Mechanism, Target]:
    """The mechanism and the target of a plan; of a mechanism itself and no target.

    >>> import hockeystick as hs
    >>> split(hs.Mechanism(sampler=hs.Deterministic(bins=10)))[1]
    Target(epsilon=None, delta=None)

    Args:
        plan: a Plan or a Mechanism.
        name: of the argument, for the error.

    Raises: InvalidInputError for anything else.
    """
    if isinstance(plan, Plan):
        return plan.mechanism(), plan.target
    if not isinstance(plan, Mechanism):
        raise InvalidInputError(
            f"The {name!r} argument must be a Mechanism or a Plan. Got {shortened(plan)} instead{instead_of(plan)}."
        )
    return plan, Target()


def instead_of(given: object) -> str:
    """What to give in place of a path, a dictionary, a sampler, a certificate, or a claim that follows from several."""
    if isinstance(given, str | Path):
        return "; hs.Plan.load reads a file"
    if isinstance(given, dict):
        return "; hs.Plan.parse makes a plan of a dictionary"
    if isinstance(given, BatchSampler):
        return "; hs.Mechanism(sampler=...) makes one of a sampler"
    if hasattr(given, "certificates"):
        return "; give the 'mechanism' of one of its 'certificates', or bound all runs again by hs.compose"
    return "; give its 'mechanism'" if hasattr(given, "mechanism") else ""


_OTHER_FILES = {
    "format": "is a certificate, not a plan; 'hockeystick show' and 'hockeystick verify' read it, and "
    "'hockeystick report' draws its curves",
    "phase": "has several runs, in [[phase]] tables; 'hockeystick compose' bounds them together",
    "grid": "has a [grid] table; 'hockeystick sweep' certifies every combination",
}
"""Fields that show what a file is that is given in place of a plan."""


def _check_is_one_plan(values: dict[str, Any], path: str | Path) -> None:
    """Raises InvalidInputError for a file of another kind, which says what reads it."""
    for field, what in _OTHER_FILES.items():
        if field in values:
            raise InvalidInputError(f"The file {shortened(str(path))} {what}.")


def json_schema() -> dict[str, Any]:
    """The JSON schema of plan files; its identifier says the version, which plan files do not."""
    return identified(Plan.model_json_schema(), SCHEMA)
