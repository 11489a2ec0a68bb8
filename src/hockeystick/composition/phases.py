"""Phases: a plan file whose runs follow one another on the same data, with noise, rates and samplers of their own."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hockeystick.calls import called, made_by
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.files import parse_toml, read_small_file
from hockeystick.mechanism import Mechanism
from hockeystick.plan import MAX_PLAN_BYTES, Plan, Target

MOST_PHASES = 1000


@made_by('hs.Phases.load("plan.toml")')
@dataclass(frozen=True)
class Phases:
    """The runs of a plan with ``[[phase]]`` tables, and its target.

    >>> phases = Phases.parse({
    ...     "data": {"num_examples": 1000, "batch_size": 100},
    ...     "phase": [
    ...         {"data": {"epochs": 2}, "sampler": {"kind": "poisson"}, "noise_multiplier": 1.0},
    ...         {"data": {"epochs": 1}, "sampler": {"kind": "balls_in_bins"}, "noise_multiplier": 2.0},
    ...     ],
    ... })
    >>> [mechanism.sampler.steps for mechanism in phases.mechanisms()]
    [20, 10]

    Attributes:
        plans: one plan for each phase, in the order of the file.
        target: the ``[target]`` table.
    """

    plans: tuple[Plan, ...]
    target: Target

    @classmethod
    @called('hs.Phases.load("plan.toml")')
    def load(cls, path: str | Path) -> "Phases":
        """Read a TOML file; one without ``[[phase]]`` tables is a plan of one phase.

        Raises: InvalidInputError in one sentence for a file that cannot be read or is not a valid plan.
        """
        name = f"plan {shortened(str(path))}"
        return cls.parse(parse_toml(read_small_file(path, name, MAX_PLAN_BYTES), name))

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> "Phases":
        """The phases of plain data: each is a plan whose ``data`` adds to, or goes over, the shared ``[data]`` table.

        Raises: InvalidInputError naming the phase and the field.
        """
        if not isinstance(values, Mapping) or "phase" not in values:
            plan = Plan.parse(values)
            return cls((plan,), plan.target)
        tables, shared = values["phase"], values.get("data", {})
        if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
            raise InvalidInputError(f"The 'phase' field must be [[phase]] tables. Got {shortened(tables)} instead.")
        if not 1 <= len(tables) <= MOST_PHASES:
            raise InvalidInputError(
                f"The 'phase' field must have 1 to {MOST_PHASES} tables. Got {len(tables)} instead."
            )
        unknown = next((name for name in values if name not in ("phase", "data", "target")), None)
        if unknown is not None:
            raise InvalidInputError(
                f"The {unknown!r} field is not known beside [[phase]] tables; write it in each of them."
            )
        if not isinstance(shared, Mapping):
            raise InvalidInputError(f"The 'data' field must be a table of fields. Got {shortened(shared)} instead.")
        plans = tuple(_plan(number, table, shared) for number, table in enumerate(tables, start=1))
        return cls(plans, Target.parse(values.get("target", {})))

    def mechanisms(self) -> list[Mechanism]:
        """The mechanism of each phase, all with their noise multipliers.

        Raises: InvalidInputError naming a phase that has none, or whose data do not suit its sampler.
        """
        mechanisms = []
        for number, plan in enumerate(self.plans, start=1):
            try:
                mechanism = plan.mechanism()
                mechanisms.append(mechanism.with_noise(mechanism.sigma))
            except InvalidInputError as error:
                raise InvalidInputError(_in_phase(number, error) if len(self.plans) > 1 else str(error)) from None
        return mechanisms


def _plan(number: int, table: Mapping[str, Any], shared: Mapping[str, Any]) -> Plan:
    own = table.get("data", {})
    if not isinstance(own, Mapping):
        raise InvalidInputError(f"Phase {number}: The 'data' field must be a table. Got {shortened(own)} instead.")
    if "target" in table:
        raise InvalidInputError(f"Phase {number}: The 'target' table must be at top level; it is that of all phases.")
    try:
        return Plan.parse({**table, "data": {**shared, **own}})
    except InvalidInputError as error:
        raise InvalidInputError(_in_phase(number, error)) from None


def _in_phase(number: int, error: InvalidInputError) -> str:
    return f"Phase {number}: {error}"
