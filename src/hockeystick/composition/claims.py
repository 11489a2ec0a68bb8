"""What derived claims have in common: an interval, certificates embedded whole, a digest over all of it."""

import json
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from hockeystick.bounds import Question
from hockeystick.calls import called
from hockeystick.certificate import Accuracy, AnyCertificate, Interval, exact, interval_text, number
from hockeystick.certificate.parts import Bounded, Origin
from hockeystick.claim import FailureProbability, Statement
from hockeystick.errors import InvalidInputError, VerificationError, shortened
from hockeystick.files import MAX_CLAIM_BYTES, read_small_file, write_atomically
from hockeystick.spec import Sealed, parsed_object
from hockeystick.types import Adjacency, Kind

FIRST = "/1"
"""What the formats of early claims end with."""
BESIDE = ("hockeystick_version", "accuracy")
"""The fields of ``origin`` that stand beside the other fields in format 1."""


class DerivedClaim(Sealed):
    """A claim that follows from certificates, which it embeds whole.

    One of ``epsilon`` and ``delta`` was given and is a number, the other was bounded and is an interval. Claims of
    format 1 have the version and the accuracy beside their other fields. They are read into ``origin``, and written
    where they stood.

    Attributes:
        certificates: what the claim follows from, each of them once.
        adjacency, also_holds_for: the notion of neighbours that all of them share.
        kind, confidence, failure_probability: the failure probabilities of Monte Carlo certificates add up.
        requirements: what has to be done beyond the requirements of each certificate.
        origin: how the claim was made; among it the settings that reproduce the numbers.
        digest: SHA-256 of the rest. It shows accidents and naive edits; it is not a signature.
    """

    what: ClassVar[str] = "claim"

    format: str
    certificates: Annotated[tuple[AnyCertificate, ...], Field(min_length=1)]
    adjacency: Adjacency
    also_holds_for: tuple[Adjacency, ...]
    epsilon: Bounded | Interval
    delta: Bounded | Interval
    kind: Kind
    confidence: Annotated[float, Field(gt=0.0, le=1.0)]
    failure_probability: FailureProbability | None = None
    requirements: tuple[str, ...]
    origin: Origin
    digest: str = ""

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        if isinstance(self.epsilon, Interval) == isinstance(self.delta, Interval):
            raise InvalidInputError("The 'epsilon' and 'delta' fields must be one number and one interval")
        return self

    @property
    def accuracy(self) -> Accuracy:
        """Settings with which the numbers are found again."""
        return self.origin.accuracy

    @property
    def question(self) -> Question:
        """What was asked."""
        return Question(
            delta=None if isinstance(self.delta, Interval) else self.delta,
            epsilon=None if isinstance(self.epsilon, Interval) else self.epsilon,
        )

    @property
    def bounds(self) -> Interval:
        """The interval that was computed."""
        bounds = self.epsilon if isinstance(self.epsilon, Interval) else self.delta
        assert isinstance(bounds, Interval)
        return bounds

    def hashed(self) -> dict[str, Any]:
        """The content that the digest is over; certificates stand in by their own digests."""
        return self.content() | {"certificates": [certificate.content_digest() for certificate in self.certificates]}

    def content(self) -> dict[str, Any]:
        """Everything but the digest, as plain data for JSON, in the layout of the claim's format."""
        content = self.model_dump(mode="json", exclude={"digest"})
        if self.format.endswith(FIRST):
            made = content.pop("origin")
            content |= {name: made[name] for name in BESIDE}
        return content

    def check_digests(self) -> None:
        """Raises VerificationError when the claim, or a certificate in it, was altered."""
        for place, certificate in enumerate(self.certificates):
            if certificate.digest != certificate.content_digest():
                raise VerificationError(
                    f"The 'certificates.{place}' field was altered: its digest does not match its content."
                )
        if self.digest != self.content_digest():
            raise VerificationError(f"The {self.what} was altered: its digest does not match its content.")

    @called('claim.save("claim.json")')
    def save(self, path: str | Path) -> None:
        """Write the claim as JSON, whole or not at all, and the files of matrices, where it needs some, beside it."""
        for certificate in self.certificates:
            certificate.mechanism.write_companion(path)
        text = json.dumps(self.content() | {"digest": self.digest}, indent=2, ensure_ascii=False)
        write_atomically(path, text + "\n")

    @classmethod
    def parse_json(cls, document: str | bytes, name: str = "document") -> Self:
        """Validate a JSON document of either format; ``name`` is what errors call it."""
        values = parsed_object(document, name)
        if str(values.get("format")).endswith(FIRST):
            if "origin" in values:
                raise InvalidInputError(f"The 'origin' field of the {name} must be absent in format 1")
            made = {field: values.pop(field) for field in BESIDE if field in values}
            document = json.dumps(values | {"origin": {"library_versions": {}, **made}})
        return super().parse_json(document, name)

    @classmethod
    @called('hs.Composition.load("claim.json")')
    def load(cls, path: str | Path) -> Self:
        """Read a claim and check its digests.

        Raises: InvalidInputError for a file that does not say such a claim, VerificationError for one that was altered.
        """
        name = f"{cls.what} {shortened(str(path))}"
        claim = cls.parse_json(read_small_file(path, name, MAX_CLAIM_BYTES), name)
        claim.check_digests()
        for certificate in claim.certificates:
            certificate.mechanism.look_for_companion(path)
        return claim

    def headline(self) -> list[str]:
        """The claim and its interval, as the first lines of a text."""
        bounds = self.bounds
        if isinstance(self.epsilon, Interval):
            return [
                f"(epsilon, delta) = ({number(bounds.upper)}, {exact(self.delta)}) is certified",
                f"  epsilon           {interval_text(bounds)}",
                f"  delta             {exact(self.delta)}",
            ]
        return [
            f"(epsilon, delta) = ({exact(self.epsilon)}, {number(bounds.upper)}) is certified",
            f"  epsilon           {exact(self.epsilon)}",
            f"  delta             {interval_text(bounds)}",
        ]

    def foundations(self) -> list[str]:
        """Kind, adjacency and requirements, as the last lines of a text."""
        kind = self.kind.value
        if self.failure_probability is not None:
            kind += f"; fails with probability at most {self.failure_probability:g}, the sum over its certificates"
        also = "".join(f", also {adjacency.value}" for adjacency in self.also_holds_for)
        return [
            f"  kind              {kind}",
            f"  adjacency         {self.adjacency.value}{also}",
            "  you must",
            *(f"    - {requirement}" for requirement in self.requirements),
        ]


def shared_facts(certificates: tuple[AnyCertificate, ...]) -> dict[str, Any]:
    """The fields of a derived claim that follow from the certificates alone.

    Failure probabilities add up (union bound), each certificate counted once. Where a certificate's own delta holds
    the failure of its verification (estimate-verify-release), only a sampled lower bound is left that can fail.
    """
    notions = certificates[0].also_holds_for
    shared = [notion for notion in notions if all(notion in other.also_holds_for for other in certificates)]
    failures = [
        certificate.monte_carlo.failure_probability
        for certificate in certificates
        if certificate.monte_carlo is not None
        and (
            certificate.monte_carlo.statement is Statement.CONFIDENCE
            or certificate.method.lower == certificate.method.upper
        )
    ]
    total = sum(failures) * (1.0 + 1e-12)
    if total >= 1.0:
        raise InvalidInputError(
            f"The failure probabilities of the certificates must add up to less than 1. Got {total:g} instead."
        )
    sampled = any(certificate.kind is Kind.MONTE_CARLO for certificate in certificates)
    return {
        "adjacency": certificates[0].adjacency,
        "also_holds_for": tuple(shared),
        "kind": Kind.MONTE_CARLO if sampled else Kind.DETERMINISTIC,
        "confidence": 1.0 - total,
        "failure_probability": total if failures else None,
    }


def reading(given: object) -> str:
    """What reads the file of a claim, as the end of a message to who gave its path; nothing for anything else."""
    return "; hs.Certificate.load reads a file" if isinstance(given, str | Path) else ""


def unit_of(certificate: AnyCertificate) -> str:
    """Whose data a certificate protects: those of an "example", or of a "user" with so many examples at most."""
    mechanism = certificate.mechanism
    examples = getattr(mechanism.sampler, "examples_per_user", mechanism.unit.examples_per_user)
    return "example" if examples is None else f"user with at most {examples} example(s)"


def check_comparable(certificates: tuple[AnyCertificate, ...]) -> None:
    """Refuse certificates that are not about the same neighbours.

    Raises: InvalidInputError naming the two values, or a generator: nobody has proved what the floors of several runs
    or trials say together; VerificationError for a certificate that was altered.
    """
    for place, certificate in enumerate(certificates):
        if certificate.digest != certificate.content_digest():
            raise VerificationError(f"The certificate {place + 1} was altered: its digest does not match its content.")
        if certificate.generator is not None:
            raise InvalidInputError(
                f"The certificates must be about hockeystick's own noise: number {place + 1} is about that of "
                f"{certificate.generator.name!r}."
            )
    for name, values in (
        ("adjacency", [certificate.adjacency.value for certificate in certificates]),
        ("unit", [unit_of(certificate) for certificate in certificates]),
    ):
        other = next((place for place, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            raise InvalidInputError(
                f"The certificates must agree in their {name}: number 1 is about {values[0]!r}, "
                f"number {other + 1} about {values[other]!r}."
            )
