"""What certificates of every format share."""

import json
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from hockeystick.bounds import Question
from hockeystick.calls import called
from hockeystick.certificate.parts import Accuracy, Bits, Bounded, CutOff, ForeignNoise, Interval, Methods
from hockeystick.certificate.text import exact, generator_text, interval_text, number
from hockeystick.claim import MonteCarloClaim, Statement
from hockeystick.errors import InvalidInputError
from hockeystick.files import write_atomically
from hockeystick.mechanism import Mechanism
from hockeystick.notebook import preformatted
from hockeystick.spec import Sealed
from hockeystick.types import Adjacency, Kind

FORMATS_WITHOUT_MATRICES = ("hockeystick-certificate/1", "hockeystick-certificate/2")
"""Their certificates of optimised strategies hold a digest alone, which only the machine that issued them may find."""


class CertificateBase(Sealed):
    """The part of a claim that is recomputed by accountants, and the seal.

    One of ``epsilon`` and ``delta`` was given and is a number, the other was bounded and is an interval; its upper
    end is the guarantee, and the lower end says how far from the truth it can be.
    """

    format: str
    mechanism: Mechanism
    adjacency: Adjacency
    also_holds_for: tuple[Adjacency, ...]
    epsilon: Bounded | Interval
    delta: Bounded | Interval
    method: Methods
    references: tuple[str, ...]
    kind: Kind
    confidence: Annotated[float, Field(gt=0.0, le=1.0)]
    sensitivity: float
    monte_carlo: MonteCarloClaim | None = None
    strategy_digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    digest: str = ""

    if TYPE_CHECKING:  # fields of one format and properties of the other

        @property
        def requirements(self) -> tuple[str, ...]:
            """What the run must do for the claim to be about it."""

        @property
        def accuracy(self) -> Accuracy:
            """Settings with which the numbers are found again."""

        @property
        def cut_off(self) -> tuple[CutOff, ...]:
            """Methods that there was no time for."""

        @property
        def generator(self) -> ForeignNoise | None:
            """Whose normal numbers the noise is made of, where they are not hockeystick's."""

        @property
        def bits(self) -> Bits | None:
            """What is proved of the bits of a run with exact noise."""

        @property
        def hockeystick_version(self) -> str:
            """The version that issued it."""

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        if isinstance(self.epsilon, Interval) == isinstance(self.delta, Interval):
            raise InvalidInputError("The 'epsilon' and 'delta' fields must be one number and one interval")
        if self.mechanism.noise_multiplier is None:
            raise InvalidInputError("The 'mechanism.noise_multiplier' field is missing and has to be given")
        return self

    @model_validator(mode="after")
    def _holds_matrices_since_format_3(self) -> Self:
        strategy = self.mechanism.strategy
        if strategy.optimised and (strategy.unheld() == strategy) != (self.format in FORMATS_WITHOUT_MATRICES):
            raise InvalidInputError(
                f"The 'mechanism.strategy.held' field must be given from format 3 on, and not before. "
                f"Got format = {self.format!r} instead"
            )
        return self

    @model_validator(mode="after")
    def _is_exact_since_format_3(self) -> Self:
        if self.mechanism.exact and self.format in FORMATS_WITHOUT_MATRICES:
            raise InvalidInputError(
                f"The 'mechanism.exact' field must be left out before format 3. Got format = {self.format!r} instead"
            )
        return self

    @property
    def bounds(self) -> Interval:
        """The interval that was computed."""
        return self.epsilon if isinstance(self.epsilon, Interval) else self._delta_interval()

    def _delta_interval(self) -> Interval:
        if not isinstance(self.delta, Interval):
            raise InvalidInputError("The certificate bounds neither epsilon nor delta.")
        return self.delta

    @property
    def question(self) -> Question:
        """What was asked: epsilon at a delta, or delta at an epsilon."""
        if isinstance(self.epsilon, Interval):
            return Question(delta=None if isinstance(self.delta, Interval) else self.delta)
        return Question(epsilon=self.epsilon)

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Everything but the digest, as plain data for JSON."""

    def hashed(self) -> dict[str, Any]:
        """The content that the digest is over."""
        return self.content()

    @called('certificate.save("model.certificate.json")')
    def save(self, path: str | Path) -> None:
        """Write the certificate as JSON, whole or not at all, and beside it the file of its matrix, if it needs one."""
        self.mechanism.write_companion(path)
        write_atomically(path, self.file_text())

    def file_text(self) -> str:
        """The text of the certificate's file, JSON."""
        return json.dumps(self.content() | {"digest": self.digest}, indent=2, ensure_ascii=False) + "\n"

    def text(self, *, requirements: bool = True) -> str:
        """The certificate as a reader wants it: the claim first, then what it rests on.

        Args:
            requirements: list what the run must do.
        """
        mechanism = self.mechanism
        bounds = self.bounds
        lines = []
        if isinstance(self.epsilon, Interval):
            lines.append(f"(epsilon, delta) = ({number(bounds.upper)}, {exact(self.delta)}) is certified")
            lines.append(f"  epsilon           {interval_text(bounds)}")
            lines.append(f"  delta             {exact(self.delta)}")
        else:
            lines.append(f"(epsilon, delta) = ({exact(self.epsilon)}, {number(bounds.upper)}) is certified")
            lines.append(f"  epsilon           {exact(self.epsilon)}")
            lines.append(f"  delta             {interval_text(bounds)}")
        lower_method = f", lower bound by {self.method.lower}" if self.method.lower else ""
        also = "".join(f", also {adjacency.value}" for adjacency in self.also_holds_for)
        if mechanism.unit.kind == "user":
            lines.append(f"  unit              {mechanism.unit.described}")
        lines += [
            f"  noise multiplier  {exact(mechanism.sigma)} clipping norms, not divided by the "
            f"sensitivity {self.sensitivity:g} of the strategy ({mechanism.strategy.kind})",
            *([] if self.generator is None else [f"  generator         {generator_text(self.generator)}"]),
            f"  method            upper bound by {self.method.upper}{lower_method}",
            f"  kind              {self.kind_text}",
            f"  adjacency         {self.adjacency.value}{also}",
        ]
        if self.bits is not None:
            lines.append("  bits              noise and sums are covered, if gradients are invariant; timing is not")
        if requirements:
            lines += ["  the run must", *(f"    - {requirement}" for requirement in self.requirements)]
        if self.cut_off:
            left = ", ".join(f"{cut.method} ({cut.side.value}, about {cut.seconds:.2g} s)" for cut in self.cut_off)
            lines.append(f"  no time for       {left}; more seconds may give a better bound")
        return "\n".join(lines)

    @property
    def kind_text(self) -> str:
        """The kind, and for Monte Carlo bounds what the failure probability is about."""
        claim = self.monte_carlo
        if claim is None:
            return self.kind.value
        if claim.statement is Statement.ESTIMATE_VERIFY_RELEASE:
            chance = f"{claim.failure_probability:g}"
            text = f"{self.kind.value}; delta includes the probability {chance} that the random test errs"
            if self.method.lower != self.method.upper:
                return text
            return f"{text}; the lower bound fails with probability at most {chance}"
        return f"{self.kind.value}; fails with probability at most {claim.failure_probability:g}"

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """What notebooks show: the text, escaped."""
        return preformatted(str(self))
