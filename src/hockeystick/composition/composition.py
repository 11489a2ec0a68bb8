"""The composed claim: several runs, one (epsilon, delta)."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hockeystick.composition.claims import DerivedClaim, unit_of
from hockeystick.composition.runs import RunMethods
from hockeystick.errors import InvalidInputError
from hockeystick.mechanism import Mechanism

Place = Annotated[int, Field(ge=0, le=10**6)]
Number = Annotated[int, Field(ge=1, le=10**6)]
MOST_RUNS = 10_000


class Composition(DerivedClaim):
    """A certified (epsilon, delta) for several runs together, each with a certificate that is embedded whole.

    Attributes:
        runs: for each run the place of its certificate in ``certificates``.
        together: sets of runs, by their numbers from 1 on: the data of one example are in the runs of one of these
            sets at most. One set of all runs for the same data, a set for each run for disjoint parts.
        methods: how each certificate entered, in the order of ``certificates``.
    """

    what: ClassVar[str] = "composition"

    format: Literal["hockeystick-composition/2", "hockeystick-composition/1"] = "hockeystick-composition/2"
    runs: Annotated[tuple[Place, ...], Field(min_length=1, max_length=MOST_RUNS)]
    together: Annotated[tuple[tuple[Number, ...], ...], Field(min_length=1, max_length=MOST_RUNS)]
    methods: tuple[RunMethods, ...]

    @model_validator(mode="after")
    def _places(self) -> Self:
        if set(self.runs) != set(range(len(self.certificates))):
            raise InvalidInputError("The 'runs' field must name every certificate by its place, and no other")
        check_together(self.together, len(self.runs))
        return self

    @property
    def relation(self) -> str:
        """ "same data", "disjoint parts" or "overlapping parts"."""
        if len(self.together) == 1:
            return "same data"
        return "disjoint parts" if all(len(group) == 1 for group in self.together) else "overlapping parts"

    @property
    def subject(self) -> str:
        """What is private, and the verb."""
        return f"All {len(self.runs)} runs together, on {self.relation.replace('same', 'the same')}, are"

    def __str__(self) -> str:
        lines = [*self.headline(), f"  runs              {self.about}"]
        for place, certificate in enumerate(self.certificates):
            methods, copies = self.methods[place], self.runs.count(place)
            times = f"{copies} x " if copies > 1 else ""
            below = f", lower bound by {methods.lower}" if methods.lower else ""
            how = f"upper bound from the {methods.route.value} of {', '.join(methods.upper)}{below}"
            lines.append(f"    - {times}{described(certificate.mechanism)}: {how}")
        return "\n".join(lines + self.foundations())

    @property
    def about(self) -> str:
        """How many runs, and on which data."""
        if self.relation != "overlapping parts":
            return f"{len(self.runs)}, on {self.relation.replace('same', 'the same')}"
        groups = ", ".join("+".join(str(run) for run in group) for group in self.together)
        who = "an example is" if unit_of(self.certificates[0]) == "example" else "all examples of a user are"
        return f"{len(self.runs)}, on overlapping parts: {who} in the runs of one of {groups} at most"


def described(mechanism: Mechanism) -> str:
    """A mechanism in a few words."""
    sampler = mechanism.sampler
    named = f"{mechanism.strategy.kind} with {sampler.kind}"
    steps = "1 step" if sampler.steps == 1 else f"{sampler.steps} steps"
    return f"{named}, {steps}, noise multiplier {mechanism.sigma:g}"


def check_together(together: tuple[tuple[int, ...], ...], runs: int) -> None:
    """Raises InvalidInputError unless these are sets of the runs 1 to ``runs`` that name each run."""
    for group in together:
        if not group or len(set(group)) != len(group) or not all(1 <= run <= runs for run in group):
            named = ", ".join(str(run) for run in group)
            raise InvalidInputError(
                f"Each set of runs in 'data' must name runs from 1 to {runs}, each once. Got [{named}] instead."
            )
    missing = set(range(1, runs + 1)) - {run for group in together for run in group}
    if missing:
        raise InvalidInputError(f"The sets of runs in 'data' must name every run. Run {min(missing)} is in none.")
