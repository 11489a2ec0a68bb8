"""What certificates of every format share."""

import hashlib
import json
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from hockeystick.bounds import Question
from hockeystick.certificate.parts import Accuracy, Bounded, CutOff, ForeignNoise, Interval, Methods
from hockeystick.certificate.text import certificate_text
from hockeystick.errors import InvalidInputError
from hockeystick.files import write_atomically
from hockeystick.mechanism import Mechanism
from hockeystick.monte_carlo.claim import MonteCarloClaim
from hockeystick.notebook import preformatted
from hockeystick.spec import Spec
from hockeystick.types import Adjacency, Kind

FORMATS_WITHOUT_MATRICES = ("hockeystick-certificate/1", "hockeystick-certificate/2")
"""Their certificates of optimised strategies hold a digest alone, which only the machine that issued them may find."""


class CertificateBase(Spec):
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

    def sealed(self) -> Self:
        """The same certificate with its digest filled in."""
        return self.model_copy(update={"digest": self.content_digest()})

    def content_digest(self) -> str:
        """SHA-256 over the canonical JSON of everything but the digest."""
        return hashlib.sha256(json.dumps(self.hashed(), sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the certificate as JSON, whole or not at all, and beside it the file of its matrix, if it needs one."""
        self.mechanism.write_companion(path)
        write_atomically(path, self.file_text())

    def file_text(self) -> str:
        """The text of the certificate's file, JSON."""
        return json.dumps(self.content() | {"digest": self.digest}, indent=2, ensure_ascii=False) + "\n"

    def __str__(self) -> str:
        return certificate_text(self)

    def _repr_html_(self) -> str:
        """What notebooks show: the text, escaped."""
        return preformatted(str(self))
