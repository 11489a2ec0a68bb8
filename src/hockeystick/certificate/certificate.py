"""The certificate, formats 2 and 3: the third holds the numbers of optimised matrices, and other words."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hockeystick.calls import called
from hockeystick.certificate.base import CertificateBase
from hockeystick.certificate.format_1 import FORMAT_1, CertificateOfFormat1
from hockeystick.certificate.parts import (
    Accuracy,
    Actor,
    Assumption,
    AttackNumbers,
    Bits,
    Bounded,
    CutOff,
    ForeignNoise,
    Noise,
    Origin,
    Private,
    Rates,
    Statements,
    Status,
)
from hockeystick.errors import InvalidInputError, VerificationError, shortened
from hockeystick.files import read_small_file
from hockeystick.spec import Extended, identified, parsed_object

FORMAT_2: Literal["hockeystick-certificate/2"] = "hockeystick-certificate/2"
FORMAT: Literal["hockeystick-certificate/3"] = "hockeystick-certificate/3"
"""The format of new certificates. No certificate of format 2 is issued any more, but all of them are read."""
MAX_CERTIFICATE_BYTES = 1 << 20
NOT_RECOMPUTED = ("statements", "origin")
"""The fields that are no claims: what the user says, and how the certificate was made."""


class Certificate(Extended, CertificateBase):
    """A certified (epsilon, delta) for one mechanism.

    One of ``epsilon`` and ``delta`` was given and is a number, the other was bounded and is an interval; its upper
    end is the guarantee, and the lower end says how far from the truth it can be.

    Every field is a claim, which :func:`~hockeystick.verify` derives again or rejects, except two: ``statements`` are
    the user's, and ``origin`` says how the certificate was made.

    Attributes:
        sentence: the claim in plain words.
        gap: ``upper / lower - 1``; None without a positive lower bound.
        without_amplification: the same bound for an adversary who knows all batches; None where it is not finite.
        numbers: what an attacker can gain at most, and what that is computed from.
        unit: whose data the claim protects.
        adjacency: zero-out, always; ``also_holds_for`` names others for which the same numbers are proved, and
            ``neighbours`` defines them in words.
        released, prefixes: what the adversary may see, in words.
        not_covered: what the claim is not about.
        actors: the trust model.
        mechanism: what has to be run, noise multiplier included. Where an optimiser found the strategy matrix, its
            numbers are in ``strategy.held`` (format 3), or the digest of a file with them.
        rates, noise: what follows from it.
        sensitivity: largest column norm of the strategy matrix.
        strategy_digest: SHA-256 of that matrix where an optimiser found it.
        generator: whose normal numbers the noise is made of, where that is not hockeystick; in format 3 alone.
        bits: of exact noise, what is proved of the bits of a run, what is assumed, and what is not covered; in format 3
            alone, and None where the noise is in floating point.
        method, references: the accountants that gave the two ends, and where their proofs are.
        kind, confidence: deterministic bounds hold with certainty (confidence 1).
        monte_carlo: for Monte Carlo bounds: the failure probability, what it is about, and the runs behind them.
        assumptions: what the claim rests on, and what is known of it.
        caveats: how a program may differ from the mechanism.
        recompute: the command that derives the claim again.
        keep_private: fields of this certificate that should not be published.
        statements: of the user.
        origin: how the certificate was made.
        digest: SHA-256 of the rest. It shows accidents and naive edits; it is not a signature.
    """

    LATER: ClassVar[frozenset[str]] = frozenset({"generator", "bits"})

    format: Literal["hockeystick-certificate/2", "hockeystick-certificate/3"] = "hockeystick-certificate/3"
    sentence: str
    gap: Bounded | None
    without_amplification: Bounded | None
    numbers: AttackNumbers
    unit: str
    neighbours: str
    released: str
    prefixes: str
    not_covered: tuple[str, ...]
    actors: tuple[Actor, ...]
    rates: Rates
    noise: Noise
    generator: ForeignNoise | None = None
    bits: Bits | None = None
    assumptions: tuple[Assumption, ...]
    caveats: tuple[str, ...]
    recompute: str
    keep_private: tuple[Private, ...]
    statements: Statements = Field(default_factory=Statements)
    origin: Origin

    @model_validator(mode="after")
    def _has_the_fields_of_its_format(self) -> Self:
        if self.format == FORMAT_2 and self.generator is not None:
            raise InvalidInputError(
                f"The 'generator' field belongs to format = {FORMAT!r}. Got {self.format!r} instead"
            )
        if self.mechanism.exact != (self.bits is not None):
            raise InvalidInputError("The 'bits' field must be given for an exact mechanism, and for no other")
        if self.generator is not None and self.bits is not None:
            raise InvalidInputError("The 'generator' field must be left out for an exact mechanism")
        if (self.format == FORMAT) != (self.numbers.basis is not None):
            raise InvalidInputError(
                f"The 'numbers.basis' field must be given with format = {FORMAT!r}, and only then. "
                f"Got format = {self.format!r} instead"
            )
        return self

    @property
    def requirements(self) -> tuple[str, ...]:
        """What the run must do: the assumptions that neither a proof nor ``verify`` settles."""
        return tuple(assumption.text for assumption in self.assumptions if assumption.status is not Status.HOLDS)

    @property
    def hockeystick_version(self) -> str:
        """The version that issued it."""
        return self.origin.hockeystick_version

    @property
    def accuracy(self) -> Accuracy:
        """Settings with which the numbers are found again."""
        return self.origin.accuracy

    @property
    def cut_off(self) -> tuple[CutOff, ...]:
        """Methods that there was no time for."""
        return self.origin.cut_off

    def content(self) -> dict[str, Any]:
        """Everything but the digest, in the order of reading."""
        content = self.model_dump(mode="json", exclude={"digest"})
        return {name: content[name] for name in READING_ORDER if name in content}

    @staticmethod
    @called('hs.Certificate.load("model.certificate.json")')
    def load(path: str | Path) -> "Certificate | CertificateOfFormat1":
        """Read a certificate of any format and check its digest.

        Raises: InvalidInputError for a file that does not say a certificate, VerificationError for one that was
        altered.
        """
        name = f"certificate {shortened(str(path))}"
        document = read_small_file(path, name, MAX_CERTIFICATE_BYTES)
        if Path(path).suffix == ".toml" and not document.lstrip().startswith(b"{"):
            raise InvalidInputError(
                f"The file {shortened(str(path))} is a plan, which claims nothing yet; 'hockeystick calibrate' and "
                "'hockeystick epsilon' write its certificate."
            )
        fields = parsed_object(document, name)
        declared = fields.get("format")
        if fields and fields.keys().isdisjoint({"format", "mechanism"}):
            raise InvalidInputError(
                f"The file {shortened(str(path))} is no certificate: it has neither a 'format' nor a 'mechanism' field."
            )
        if str(declared).startswith("hockeystick-run/"):
            raise InvalidInputError(
                f"The file {shortened(str(path))} is the record of a run; give its certificate, which Python's "
                "hockeystick.training.RunRecord.load(FILE).certificate.save(OTHER) writes to a file of its own."
            )
        kind = CertificateOfFormat1 if declared == FORMAT_1 else Certificate
        certificate: Certificate | CertificateOfFormat1 = kind.parse_json(document, name)
        if certificate.digest != certificate.content_digest():
            raise VerificationError(f"The {name} was altered: its digest does not match its content.")
        certificate.mechanism.look_for_companion(path)
        return certificate


AnyCertificate = Annotated[Certificate | CertificateOfFormat1, Field(discriminator="format")]
"""A certificate of any format."""
READING_ORDER = (
    "format",
    "sentence",
    "epsilon",
    "delta",
    "gap",
    "kind",
    "confidence",
    "without_amplification",
    "numbers",
    "unit",
    "adjacency",
    "also_holds_for",
    "neighbours",
    "released",
    "prefixes",
    "not_covered",
    "actors",
    "mechanism",
    "rates",
    "noise",
    "generator",
    "bits",
    "sensitivity",
    "strategy_digest",
    "method",
    "references",
    "assumptions",
    "caveats",
    "monte_carlo",
    "recompute",
    "keep_private",
    "statements",
    "origin",
)
"""The fields of a certificate file, in its order."""


def json_schema() -> dict[str, Any]:
    """The JSON schema of formats 2 and 3; the same document is in the package, as ``certificate.schema.json``."""
    schema = Certificate.model_json_schema()
    fields = schema["properties"]
    schema["properties"] = {name: fields[name] for name in (*READING_ORDER, "digest")}
    for name, field in schema["properties"].items():
        field["x-checked"] = "stated" if name in NOT_RECOMPUTED else "recomputed by verify"
    schema["if"] = {"properties": {"format": {"const": FORMAT}}}
    schema["then"] = {"properties": {"numbers": {"required": ["basis"]}}}
    schema["else"] = {
        "properties": {
            "generator": False,
            "numbers": {"properties": {"basis": False}},
            "mechanism": {"properties": {"strategy": {"properties": {"held": False}}}},
        }
    }
    return identified(schema, FORMAT)
