"""Plans that leave the sampler open: data and target are all that a recommendation needs."""

from typing import Self

from pydantic import Field, model_validator

from hockeystick.errors import InvalidInputError
from hockeystick.plan import Plan
from hockeystick.samplers import PoissonOptions, SamplerOptions


class OpenPlan(Plan):
    """A plan whose sampler may be missing.

    >>> OpenPlan.parse({"data": {"num_examples": 60000, "batch_size": 200, "epochs": 10}}).names_sampler
    False
    """

    sampler: SamplerOptions = Field(default_factory=PoissonOptions, discriminator="kind")

    @model_validator(mode="after")
    def _strategies_have_a_sampler(self) -> Self:
        if "strategy" in self.model_fields_set and not self.names_sampler:
            raise InvalidInputError(
                "The 'sampler' field is missing; a plan that names a strategy has to name a sampler too"
            )
        return self

    @property
    def names_sampler(self) -> bool:
        """Whether the sampler was given."""
        return "sampler" in self.model_fields_set

    def closed(self) -> Plan:
        """The same as an ordinary plan, with Poisson batches where no sampler was given."""
        return Plan.parse(self.model_dump(mode="json", by_alias=True, exclude_none=True))
