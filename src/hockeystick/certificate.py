"""Certificate: the claim, machine readable and as text, that anyone can recompute."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hockeystick.errors import InvalidInputError, VerificationError, shortened
from hockeystick.files import read_small_file, write_atomically
from hockeystick.mechanism import Mechanism
from hockeystick.monte_carlo.claim import MonteCarloClaim, Statement
from hockeystick.spec import Spec
from hockeystick.types import Adjacency, Kind, Side

FORMAT = "hockeystick-certificate/1"
MAX_CERTIFICATE_BYTES = 1 << 20

Bounded = Annotated[float, Field(ge=0.0)]


class Interval(Spec):
    """A two-sided bound: the truth lies in [lower, upper]."""

    lower: Bounded | None
    upper: Bounded

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.lower is not None and self.lower > self.upper:
            raise InvalidInputError(
                f"The 'lower' field must be at most upper = {self.upper!r}. Got {self.lower!r} instead"
            )
        return self

    @property
    def gap(self) -> float | None:
        """``upper / lower - 1``; None where there is no positive lower bound."""
        return self.upper / self.lower - 1.0 if self.lower else None


class Methods(Spec):
    """Which accountant gave each side."""

    upper: str
    lower: str | None


class Accuracy(Spec):
    """Settings that reproduce the numbers; they cannot make them wrong. No effort means the usual one."""

    nodes_per_unit: Annotated[int, Field(ge=1, le=2000)]
    smallest_delta: Annotated[float, Field(ge=1e-30, le=1.0)]
    effort: Annotated[float, Field(gt=0.0, le=1e6)] | None = None


class CutOff(Spec):
    """A method that the plan or the deadline had no time for, and about how many seconds it takes.

    Nobody recomputes it, so the method is a plain name: free text could pretend to be lines of the certificate.
    """

    method: Annotated[str, Field(pattern="^[a-z_]{1,40}$")]
    side: Side
    seconds: Bounded


class Certificate(Spec):
    """A certified (epsilon, delta) for one mechanism.

    One of ``epsilon`` and ``delta`` was given and is a number, the other was bounded and is an interval; its upper
    end is the guarantee, and the lower end says how far from the truth it can be.

    Attributes:
        mechanism: what has to be run, noise multiplier included.
        adjacency: zero-out, always; ``also_holds_for`` names others for which the same numbers are proved.
        kind, confidence: deterministic bounds hold with certainty (confidence 1).
        monte_carlo: for Monte Carlo bounds: the failure probability, what it is about, and the runs behind them.
        requirements: what the run must do for the claim to be about it.
        strategy_digest: SHA-256 of C where an optimiser found it, as another machine may find other last digits.
        hockeystick_version, cut_off: how the certificate was made; the claim does not rest on it.
        digest: SHA-256 of the rest. It shows accidents and naive edits; it is not a signature.
    """

    format: Literal["hockeystick-certificate/1"] = "hockeystick-certificate/1"
    hockeystick_version: Annotated[str, Field(pattern=r"^[0-9A-Za-z.+_-]{1,40}$")]
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
    requirements: tuple[str, ...]
    accuracy: Accuracy
    monte_carlo: MonteCarloClaim | None = None
    strategy_digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    cut_off: tuple[CutOff, ...] = ()
    digest: str = ""

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        if isinstance(self.epsilon, Interval) == isinstance(self.delta, Interval):
            raise InvalidInputError("The 'epsilon' and 'delta' fields must be one number and one interval")
        if self.mechanism.noise_multiplier is None:
            raise InvalidInputError("The 'mechanism.noise_multiplier' field is missing and has to be given")
        return self

    @property
    def bounds(self) -> Interval:
        """The interval that was computed."""
        return self.epsilon if isinstance(self.epsilon, Interval) else self._delta_interval()

    def _delta_interval(self) -> Interval:
        if not isinstance(self.delta, Interval):
            raise InvalidInputError("The certificate bounds neither epsilon nor delta.")
        return self.delta

    def sealed(self) -> Self:
        """The same certificate with its digest filled in."""
        return self.model_copy(update={"digest": self.content_digest()})

    def content_digest(self) -> str:
        """SHA-256 over the canonical JSON of everything but the digest."""
        content = self.model_dump(mode="json", exclude={"digest"})
        if self.monte_carlo is None:  # fields that older certificates do not have are left out where they say nothing
            del content["monte_carlo"]
        if self.accuracy.effort is None:
            del content["accuracy"]["effort"]
        if self.strategy_digest is None:
            del content["strategy_digest"]
        if not self.cut_off:
            del content["cut_off"]
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the certificate as JSON, whole or not at all."""
        write_atomically(path, self.model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a certificate and check its digest.

        Raises: InvalidInputError for a file that does not say a certificate, VerificationError for one that was
        altered.
        """
        name = f"certificate {shortened(str(path))}"
        certificate = cls.parse_json(read_small_file(path, name, MAX_CERTIFICATE_BYTES), name)
        if certificate.digest != certificate.content_digest():
            raise VerificationError(f"The {name} was altered: its digest does not match its content.")
        return certificate

    def __str__(self) -> str:
        return certificate_text(self)


def certificate_text(certificate: Certificate) -> str:
    """A certificate as a reader wants it: the claim first, then what it rests on."""
    mechanism = certificate.mechanism
    bounds = certificate.bounds
    lines = []
    if isinstance(certificate.epsilon, Interval):
        lines.append(f"(epsilon, delta) = ({number(bounds.upper)}, {exact(certificate.delta)}) is certified")
        lines.append(f"  epsilon           {interval_text(bounds)}")
        lines.append(f"  delta             {exact(certificate.delta)}")
    else:
        lines.append(f"(epsilon, delta) = ({exact(certificate.epsilon)}, {number(bounds.upper)}) is certified")
        lines.append(f"  epsilon           {exact(certificate.epsilon)}")
        lines.append(f"  delta             {interval_text(bounds)}")
    lower_method = f", lower bound by {certificate.method.lower}" if certificate.method.lower else ""
    also = "".join(f", also {adjacency.value}" for adjacency in certificate.also_holds_for)
    lines += [
        f"  noise multiplier  {exact(mechanism.sigma)} clipping norms (not divided by the sensitivity "
        f"{certificate.sensitivity:g} of {mechanism.strategy.kind})",
        f"  method            upper bound by {certificate.method.upper}{lower_method}",
        f"  kind              {kind_text(certificate)}",
        f"  adjacency         {certificate.adjacency.value}{also}",
        "  the run must",
        *(f"    - {requirement}" for requirement in certificate.requirements),
    ]
    if certificate.cut_off:
        left = ", ".join(f"{one.method} ({one.side.value}, about {one.seconds:.2g} s)" for one in certificate.cut_off)
        lines.append(f"  no time for       {left}; more seconds may give a better bound")
    return "\n".join(lines)


def kind_text(certificate: Certificate) -> str:
    """The kind, and for Monte Carlo bounds what the failure probability is about."""
    claim = certificate.monte_carlo
    if claim is None:
        return certificate.kind.value
    if claim.statement is Statement.ESTIMATE_VERIFY_RELEASE:
        text = f"{certificate.kind.value}; a verification error of {claim.failure_probability:g} is part of delta"
        if certificate.method.lower != certificate.method.upper:
            return text
        return f"{text}, and the lower bound fails with probability at most {claim.failure_probability:g}"
    return f"{certificate.kind.value}; fails with probability at most {claim.failure_probability:g}"


def interval_text(bounds: Interval) -> str:
    """``at most U, at least L (gap g)``."""
    if bounds.lower is None:
        return f"at most {number(bounds.upper)} (no lower bound)"
    gap = f" (gap {100 * bounds.gap:.2g} percent)" if bounds.gap is not None else ""
    return f"at most {number(bounds.upper)}, at least {number(bounds.lower, up=False)}{gap}"


def exact(value: object) -> str:
    """All digits of a number that was given: a rounded one would not be what is certified."""
    text = f"{value:g}"
    return text if float(text) == value else repr(value)


def number(value: float, *, up: bool = True) -> str:
    """Six significant digits, rounded to the safe side."""
    text = f"{value:.6g}"
    if (float(text) < value) if up else (float(text) > value):
        digits = f"{value:.17e}"
        exponent = int(digits.split("e")[1])
        step = 10.0 ** (exponent - 5)
        text = f"{value + step if up else value - step:.6g}"
    return text
