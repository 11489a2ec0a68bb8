"""Mechanism: strategy + sampler + noise multiplier. Frozen, public information only; knows nothing of accountants."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from hockeystick.calls import called
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.samplers import Sampler
from hockeystick.spec import Count, NoiseMultiplier, Spec
from hockeystick.strategies import Identity, Strategy, StrategyMatrix, companion
from hockeystick.types import Adjacency


class Unit(Spec):
    """The ``[unit]`` table: whose contribution a guarantee hides.

    >>> Unit(kind="user", examples_per_user=3).examples
    3

    Attributes:
        kind: "example", or "user" for all the examples of one user together.
        examples_per_user: k, the most examples that one user may have; given for users and for them alone.
        neighbours: what happens to the unit: "zero_out", its gradients become 0, or "replace", it becomes any other.

    Raises: InvalidInputError when ``examples_per_user`` is missing for users, or given for examples.
    """

    kind: Literal["example", "user"] = "example"
    examples_per_user: Count | None = None
    neighbours: Literal["zero_out", "replace"] = "zero_out"

    @field_validator("neighbours", mode="before")
    @classmethod
    def _not_the_word_of_certificates(cls, value: object) -> object:
        """Certificates name a third relation, ``add_remove``, which follows from ``zero_out`` and cannot be chosen."""
        if value == Adjacency.ADD_REMOVE.value:
            raise InvalidInputError(
                "The 'neighbours' field must be 'zero_out' or 'replace'. Got 'add_remove' instead; a certificate for "
                "zero_out says where it also holds for add_remove"
            )
        return value

    @model_validator(mode="after")
    def _users_have_a_size(self) -> Self:
        if self.kind == "user" and self.examples_per_user is None:
            raise InvalidInputError("The 'examples_per_user' field has to be given for kind = 'user'")
        if self.kind == "example" and self.examples_per_user is not None:
            raise InvalidInputError(
                f"The 'examples_per_user' field is for kind = 'user' only. Got {self.examples_per_user} instead"
            )
        return self

    @property
    def examples(self) -> int:
        """The most examples that one unit holds."""
        return self.examples_per_user or 1

    @property
    def described(self) -> str:
        """The unit in a few words."""
        return "example" if self.kind == "example" else f"user with at most {self.examples} example(s)"

    @property
    def requirement(self) -> str | None:
        """What a certificate says about the unit; None where it is an example that becomes a ghost."""
        if self == Unit():
            return None
        users = f"Let no user have more than {self.examples} example(s): the claim is about all examples of one user"
        who = f"{users} together" if self.kind == "user" else "The claim is about one example"
        ghosts = "becoming ghosts of zero gradient" if self.kind == "user" else "becoming a ghost of zero gradient"
        what = ghosts if self.neighbours == "zero_out" else "being replaced by any others, of the same number"
        return f"{who} {what}."

    @property
    def references(self) -> tuple[str, ...]:
        """Where the analysis of this unit is proved."""
        return () if self == Unit() else ("docs/theory/units.md",)


class UnitOwner(Spec):
    """What has a ``unit``. Fields of ``UNUSUAL`` are left out of written descriptions where they have their default.

    So a description that was written before there was such a field is still written in the same way.
    """

    UNUSUAL: ClassVar[tuple[str, ...]] = ("unit",)

    unit: Unit = Field(default_factory=Unit)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values in some fields, which are checked as the constructor checks them.

        Raises: InvalidInputError for a name that is no field, and for a value that does not suit it or the others.
        """
        copied = super().model_copy(update=update, deep=deep)
        if not update:
            return copied
        given = {field.alias or name: getattr(copied, name) for name, field in type(self).model_fields.items()}
        checked = type(self).parse(given)
        return super().model_copy(update={name: getattr(checked, name) for name in update}, deep=deep)

    @model_serializer(mode="wrap")
    def _without_what_is_usual(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = write(self)
        for name in self.UNUSUAL:
            if getattr(self, name) == type(self).model_fields[name].get_default(call_default_factory=True):
                content.pop(name, None)
        return content


class Mechanism(UnitOwner):
    """What is run: ``C x + z`` with batches from a sampler and ``z ~ N(0, noise_multiplier^2 I)``.

    >>> import hockeystick as hs
    >>> run = Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=1.0)
    >>> run.with_noise(2.0).sigma
    2.0

    Attributes:
        strategy: the matrix C; ``Identity()`` is plain DP-SGD.
        sampler: how the batches are drawn.
        noise_multiplier: standard deviation of z in units of the clipping norm, not divided by the sensitivity of C;
            None until it is calibrated.
        unit: whose contribution is hidden: an example, or a user with several of them. Batches and noise stay the same.
        exact: the noise is made in whole numbers (``hockeystick.noise.stream``), whose law is exactly the one that is
            accounted for. The entries of C, or of its inverse where that has the bands, are then multiples of 2^-24.
            Left out of written descriptions where it is False.
    """

    UNUSUAL: ClassVar[tuple[str, ...]] = ("unit", "exact")
    OBJECTS: ClassVar[Mapping[str, str]] = {
        "sampler": "a sampler, such as hs.Poisson(sampling_prob=0.01, steps=1000)",
        "strategy": "a strategy, such as hs.BandedSquareRoot(bands=4)",
    }

    strategy: Strategy = Field(default_factory=Identity)
    sampler: Sampler = Field(discriminator="kind")
    noise_multiplier: NoiseMultiplier | None = None
    exact: bool = False

    @model_validator(mode="after")
    def _strategy_suits_the_steps(self) -> Self:
        self.strategy.check_all(self.sampler.steps)
        return self

    @property
    def matrix(self) -> StrategyMatrix:
        """C for the steps of the sampler; an optimised strategy is optimised on first use."""
        return self.strategy.matrix(self.sampler.steps, exact=self.exact)

    @property
    def sigma(self) -> float:
        """The noise multiplier; raises InvalidInputError if there is none yet."""
        if self.noise_multiplier is None:
            raise InvalidInputError(
                "The 'noise_multiplier' field is missing; give it, or calibrate the mechanism for a target epsilon."
            )
        return self.noise_multiplier

    @called("run.with_noise(1.0)")
    def with_noise(self, noise_multiplier: float) -> "Mechanism":
        """The same mechanism with this noise multiplier."""
        return Mechanism(
            strategy=self.strategy,
            sampler=self.sampler,
            noise_multiplier=noise_multiplier,
            unit=self.unit,
            exact=self.exact,
        )

    def pinned(self) -> "Mechanism":
        """The same mechanism with all that determines it: the digests of files, and the numbers of an optimised C.

        >>> import hockeystick as hs
        >>> run = Mechanism(strategy=hs.BandedToeplitz(bands=2), sampler=hs.Deterministic(bins=8))
        >>> len(run.pinned().strategy.held.coefficients)
        2
        """
        return self.model_copy(update={"strategy": self.strategy.pinned(self.sampler.steps)})

    @property
    def _strategy_table(self) -> NDArray[np.float64]:
        """The numbers of the strategy, as its digest has them, before any rounding of exact noise."""
        return self.strategy.matrix(self.sampler.steps).table

    def write_companion(self, claim: str | Path) -> None:
        """Write the file of C, where its numbers do not fit into a claim, into the folder of the claim.

        Raises: InvalidInputError when the place cannot be written.
        """
        digest = self.strategy.companion
        if digest is not None:
            companion.write_beside(claim, digest, self._strategy_table)

    def companion_file(self) -> tuple[str, bytes] | None:
        """Name and content of the file of C, where its numbers do not fit into a claim; None elsewhere."""
        digest = self.strategy.companion
        return None if digest is None else (companion.file_name(digest), companion.content_of(self._strategy_table))

    def look_for_companion(self, claim: str | Path) -> None:
        """Look for the file of C in the folder of a claim about this mechanism; it is read when C is needed."""
        if self.strategy.companion is not None:
            companion.look_beside(claim, self.strategy.companion)

    def held_state(self) -> dict[str, Any]:
        """The strategy and the numbers of an optimised C, as text and an array; nothing for any other strategy."""
        if not self.strategy.optimised:
            return {}
        pinned = self.pinned()
        table = np.zeros(0) if pinned.strategy.companion is None else pinned._strategy_table
        return {"strategy": pinned.strategy.model_dump_json(), "table": table}

    def with_held_state(self, state: Mapping[str, Any]) -> "Mechanism":
        """The same mechanism, with the C of :meth:`held_state` where it leaves C to an optimiser.

        So a state resumes with the matrix that it was saved with, whatever the optimiser finds on this machine.

        Raises: KeyError for a state without these entries; InvalidInputError for a strategy that cannot be read.
        """
        if not self.strategy.optimised or self.strategy.unheld() != self.strategy:
            return self
        content = self.model_dump(mode="json") | {"strategy": json.loads(str(state["strategy"]))}
        held = Mechanism.parse_json(json.dumps(content), "strategy of the state")
        if not held.is_of(self):
            return self
        if held.strategy.companion is not None:
            companion.keep(held.strategy.companion, np.array(state["table"], dtype=np.float64))
        return held

    def is_of(self, planned: "Mechanism") -> bool:
        """Whether this pinned mechanism is the planned one.

        Where the plan leaves C to an optimiser, the optimum of any machine is the planned one.
        """
        strategy = planned.strategy.pinned()
        mine = self.strategy if strategy.unheld() != strategy else self.strategy.unheld()
        return self.model_copy(update={"strategy": mine}) == planned.model_copy(update={"strategy": strategy})


def expect_mechanism(given: object) -> None:
    """Raise InvalidInputError for an argument that is no Mechanism, and say where a plan or a claim has one."""
    if not isinstance(given, Mechanism):
        own = getattr(given, "mechanism", None)
        hint = "" if own is None else f"; give its mechanism{'()' * callable(own)}"
        raise InvalidInputError(f"The 'mechanism' argument must be a Mechanism. Got {shortened(given)} instead{hint}.")
