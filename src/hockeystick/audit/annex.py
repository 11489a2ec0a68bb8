"""An addendum to a certificate: which of its assumptions were tested, how, and with what result."""

import secrets
from collections.abc import Sequence
from enum import StrEnum
from math import isclose
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hockeystick._version import __version__
from hockeystick.audit.addendum_format import FORMAT
from hockeystick.audit.canary_scores import CanaryScores, Seed
from hockeystick.audit.parts import PARTS, audit_part, check_parts
from hockeystick.audit.sampling import check_level
from hockeystick.audit.verdict import Level, Verdict
from hockeystick.calls import called
from hockeystick.certificate import Certificate, CertificateOfFormat1, Status
from hockeystick.certificate.parts import Name, Version
from hockeystick.certification.verification import DEFAULT_BUDGET
from hockeystick.certification.verification import verify as verify_certificate
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, HockeystickError, InvalidInputError, VerificationError, shortened
from hockeystick.files import read_small_file, write_atomically
from hockeystick.notebook import preformatted
from hockeystick.spec import Examples, Sealed, Spec, checked_count, expect_kind, identified

MOST_BYTES = 1 << 24
ROUNDED = 1e-6
"""How far evidence may differ, relatively, when another machine derives it again."""
LONGEST = 300
"""Characters of a sentence in a finding."""


Audit = Literal["sampler", "noise", "mechanism", "canaries"]


class Outcome(StrEnum):
    """What is known of an assumption."""

    HOLDS = "holds"
    """Proved, or checked by ``verify``: as in the certificate."""
    PASSED = "passed"
    """Tested, at least in part, and nothing was found against it. This does not prove it."""
    REFUTED = "refuted"
    """Tested, and contradicted by the evidence, except with the stated probability."""
    NOT_TESTED = "not_tested"
    """No audit in this addendum looks at it."""


TESTS: dict[str, tuple[str, ...]] = {
    "batches": ("sampler", "mechanism", "canaries"),
    "noise": ("noise", "mechanism", "canaries"),
}
"""The audits that look at an assumption of a certificate."""
LOOKED_AT = {
    "sampler": "the batches of hockeystick, drawn from the seed",
    "noise": "the noise of hockeystick, drawn from the seed",
    "mechanism": "batches and noise of hockeystick on worst-case examples, drawn from the seed",
    "canaries": "one run with canaries; the seed draws their coins, and the scores are what the auditor states",
}


class Evidence(Spec):
    """One audit, with all that decides its verdict.

    Attributes:
        audit: which one.
        seed: from which the audit drew.
        level: its false-alarm probability.
        samples: pairs of outputs that were allowed, of an audit of a mechanism.
        num_examples: size of the data set, of an audit of a sampler.
        canaries: the scores of canaries, of an audit with them.
        verdict: what was found.
    """

    audit: Audit
    seed: Seed
    level: Level
    samples: Annotated[int, Field(ge=1, le=10**9)] | None = None
    num_examples: Examples | None = None
    canaries: CanaryScores | None = None
    verdict: Verdict

    @model_validator(mode="after")
    def _whole(self) -> Self:
        given = {name for name in ("samples", "num_examples", "canaries") if getattr(self, name) is not None}
        if given != {_NEEDS[self.audit]} - {None}:
            raise InvalidInputError(f"The evidence of the audit {self.audit!r} must have {_NEEDS[self.audit]!r}")
        for finding in self.verdict.findings:
            if not finding.says.isprintable() or len(finding.says) > LONGEST:
                raise InvalidInputError(
                    f"The 'says' field of a finding must be one line of at most {LONGEST} visible characters. "
                    f"Got {shortened(finding.says)} instead"
                )
        return self

    def again(self, certificate: Certificate, deadline: Deadline | None = None) -> Verdict:
        """The verdict, derived again from the seed; a deadline ends it early."""
        if self.audit == "canaries":
            assert self.canaries is not None  # checked when it was made
            return self.canaries.verdict(certificate, level=self.level)
        return audit_part(
            self.audit,
            certificate.mechanism,
            num_examples=self.num_examples or 1,
            certificate=certificate,
            samples=self.samples or 1,
            level=self.level,
            seed=self.seed,
            deadline=deadline,
        )


_NEEDS: dict[Audit, str | None] = {
    "sampler": "num_examples",
    "noise": None,
    "mechanism": "samples",
    "canaries": "canaries",
}


class Check(Spec):
    """What is known of one assumption of the certificate.

    Attributes:
        assumption: its name there.
        outcome: what is known of it.
        by: the audits that looked at it.
        text: the assumption, as the certificate says it.
    """

    assumption: Name
    outcome: Outcome
    by: tuple[Name, ...]
    text: str


class Addendum(Sealed):
    """What audits found about the assumptions of one certificate, which is embedded whole.

    Everything but ``hockeystick_version`` is derived again by :meth:`verify`: the verdicts from their seeds, and the
    checks from the verdicts. What an audit of canaries was given, its scores, is the word of whoever made the run.

    Attributes:
        certificate: that the addendum is about.
        level: the chance, at most, that code that does what the certificate says is found refuted by any of the audits.
            It holds for seeds that were drawn once: one that was chosen among several proves nothing.
        checks: the assumptions of the certificate, in its order.
        evidence: the audits.
        hockeystick_version: what made it.
        digest: SHA-256 of the rest. It shows accidents and naive edits; it is not a signature.
    """

    format: Literal["hockeystick-addendum/1"] = "hockeystick-addendum/1"
    hockeystick_version: Version
    level: Level
    checks: tuple[Check, ...]
    evidence: Annotated[tuple[Evidence, ...], Field(min_length=1, max_length=len(LOOKED_AT))]
    certificate: Certificate
    digest: str = ""

    @property
    def refuted(self) -> bool:
        """Whether any audit contradicts the certificate."""
        return any(part.verdict.refuted for part in self.evidence)

    def hashed(self) -> dict[str, Any]:
        """The content that the digest is over; the certificate stands in by its own digest."""
        content = self.model_dump(mode="json", exclude={"digest", "certificate"})
        return content | {"certificate": self.certificate.content_digest()}

    def save(self, path: str | Path) -> None:
        """Write the addendum as JSON, whole or not at all, and the file of its matrix, if it needs one, beside it."""
        self.certificate.mechanism.write_companion(path)
        write_atomically(path, self.model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an addendum, and check its digests and that its checks follow from its verdicts.

        Raises: InvalidInputError for a file that is not an addendum, VerificationError for one that was altered.
        """
        name = f"addendum {shortened(str(path))}"
        addendum = cls.parse_json(read_small_file(path, name, MOST_BYTES), name)
        addendum._check_digests()
        addendum.certificate.mechanism.look_for_companion(path)
        return addendum

    def _check_digests(self) -> None:
        if self.certificate.digest != self.certificate.content_digest():
            raise VerificationError("The 'certificate' field was altered: its digest does not match its content.")
        if self.digest != self.content_digest():
            raise VerificationError("The addendum was altered: its digest does not match its content.")
        if self.checks != _checks(self.certificate, self.evidence):
            raise VerificationError("The 'checks' field does not follow from the evidence.")
        if self.level != sum(part.level for part in self.evidence):
            raise VerificationError("The 'level' field does not follow from the evidence.")

    def verify(self, *, deadline: Deadline | None = None) -> Self:
        """Verify the certificate, and derive every verdict again from its seed.

        Args:
            deadline: progress, and the seconds allowed; ten minutes unless said otherwise.

        Returns the addendum, for chaining.

        Raises: VerificationError, naming what does not follow; BudgetExceededError when the deadline passes before the
            verdict.
        """
        deadline = Deadline(DEFAULT_BUDGET) if deadline is None else deadline
        self._check_digests()
        verify_certificate(self.certificate, deadline=deadline)
        for place, part in enumerate(self.evidence):
            try:
                again = part.again(self.certificate, deadline)
            except BudgetExceededError:
                raise
            except HockeystickError as error:
                raise VerificationError(f"The 'evidence.{place}' field cannot be derived again: {error}") from None
            if deadline.remaining() <= 0.0:
                raise BudgetExceededError(
                    "The time budget is over before the addendum is derived again; allow more seconds."
                )
            if not _same(part.verdict.model_dump(mode="json"), again.model_dump(mode="json")):
                raise VerificationError(
                    f"The 'evidence.{place}.verdict' field does not follow from its seed {part.seed} with hockeystick "
                    f"{__version__}; the addendum is of version {self.hockeystick_version}."
                )
        return self

    def __str__(self) -> str:
        result = "refuted" if self.refuted else "nothing found against it"
        lines = [
            f"addendum to the certificate {self.certificate.digest[:16]}: {result} "
            f"(false-alarm probability at most {self.level:g}, of all audits together)",
            f"  {_one_line(self.certificate.sentence)}",
        ]
        for check in self.checks:
            by = f" ({', '.join(check.by)})" if check.by else ""
            known = check.outcome.value.replace("_", " ") + by
            lines.append(f"  {known:32}  {check.assumption}: {_one_line(check.text)}")
        lines.append("  An assumption that passed is not proved: the audits below found nothing against it.")
        for part in self.evidence:
            lines += [f"  evidence: {LOOKED_AT[part.audit]} (seed {part.seed})"]
            lines += [f"    {line}" for line in str(part.verdict).splitlines()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What notebooks show: the text, escaped."""
        return preformatted(str(self))


@called("hs.audit.addendum(certificate, num_examples=1000)")
def addendum(
    certificate: Certificate,
    *,
    num_examples: int | None = None,
    parts: Sequence[str] = PARTS,
    canaries: CanaryScores | None = None,
    samples: int = 20_000,
    level: float = 1e-3,
    seed: int | None = None,
) -> Addendum:
    """Audit what a certificate is about, and say which of its assumptions were tested, with the evidence.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.2, steps=5), noise_multiplier=1.0)
    >>> made = addendum(hs.certify(run, delta=0.01), num_examples=500, parts=["sampler", "noise"], seed=1)
    >>> [(check.assumption, check.outcome.value) for check in made.checks][:3]
    [('batches', 'passed'), ('noise', 'passed'), ('normaliser', 'not_tested')]
    >>> made.verify() is made
    True

    The audits of sampler, noise and mechanism look at the code of this library, without a model: what they find holds
    for runs that use it. Canaries look at one run of a model.

    Args:
        certificate: about epsilon, for the parts "mechanism" and canaries.
        num_examples: size of the data set; by default what the certificate states. For the part "sampler".
        parts: of ``PARTS``.
        canaries: of a run, from ``Canaries.record``.
        samples: pairs of outputs to draw, at most.
        level: false-alarm probability of all audits together, shared equally.
        seed: of the audits; None for a fresh one, which the addendum states.

    Raises: InvalidInputError for arguments out of range, and as the audits.
    """
    check_level(level)
    if not isinstance(certificate, Certificate | CertificateOfFormat1):
        raise InvalidInputError(
            f"The 'certificate' argument must be a Certificate, as hs.certify makes them. Got {shortened(certificate)}."
        )
    expect_kind("parts", parts, (tuple, list), "a tuple of names, such as ('noise',)", optional=False)
    unknown = [part for part in parts if part not in PARTS]
    if unknown or not (parts or canaries):
        raise InvalidInputError(f"The 'parts' argument must have some of {', '.join(PARTS)}. Got {shortened(parts)}.")
    chosen = secrets.randbelow(2**63) if seed is None else seed
    wanted = [part for part in PARTS if part in parts]
    share = level / (len(wanted) + (canaries is not None))
    size = _size(certificate, num_examples) if "sampler" in wanted else None
    check_parts(wanted, certificate.mechanism)
    evidence = []
    for part in wanted:
        verdict = audit_part(
            part,
            certificate.mechanism,
            num_examples=size or 1,
            certificate=certificate,
            samples=samples,
            level=share,
            seed=chosen,
        )
        evidence.append(
            Evidence(
                audit=part,
                seed=chosen,
                level=share,
                samples=samples if part == "mechanism" else None,
                num_examples=size if part == "sampler" else None,
                verdict=verdict,
            )
        )
    if canaries is not None:
        verdict = canaries.verdict(certificate, level=share)
        evidence.append(Evidence(audit="canaries", seed=canaries.seed, level=share, canaries=canaries, verdict=verdict))
    return _sealed(certificate, tuple(evidence))


def json_schema() -> dict[str, Any]:
    """The JSON schema of addenda; the same document is in the package, as ``addendum.schema.json``."""
    return identified(Addendum.model_json_schema(), FORMAT)


def _sealed(certificate: Certificate, evidence: tuple[Evidence, ...]) -> Addendum:
    """The addendum that follows from the evidence."""
    return Addendum(
        hockeystick_version=__version__,
        level=sum(part.level for part in evidence),
        checks=_checks(certificate, evidence),
        evidence=evidence,
        certificate=certificate,
    ).sealed()


def _checks(certificate: Certificate, evidence: Sequence[Evidence]) -> tuple[Check, ...]:
    if not isinstance(certificate, Certificate):
        raise InvalidInputError(
            "The 'certificate' argument must be of the present format, which names its assumptions."
        )
    checks = []
    for assumption in certificate.assumptions:
        tests = [test for test in evidence if test.audit in TESTS.get(assumption.name, ())]
        if any(test.verdict.refuted for test in tests):
            outcome = Outcome.REFUTED
        elif tests:
            outcome = Outcome.PASSED
        else:
            outcome = Outcome.HOLDS if assumption.status is Status.HOLDS else Outcome.NOT_TESTED
        by = tuple(test.audit for test in tests)
        checks.append(Check(assumption=assumption.name, outcome=outcome, by=by, text=assumption.text))
    return tuple(checks)


def _one_line(text: str) -> str:
    """The text in one line, so that it cannot pretend to be lines of the addendum."""
    return " ".join(text.split())


def _size(certificate: Certificate, num_examples: int | None) -> int:
    stated = certificate.statements.num_examples
    size = stated if num_examples is None else num_examples
    if size is None:
        raise InvalidInputError("The 'num_examples' argument is missing, and the certificate does not state it.")
    if stated not in (None, size):
        raise InvalidInputError(
            f"The 'num_examples' argument must be {stated}, as the certificate states. Got {shortened(size)} instead."
        )
    return checked_count("num_examples", size)


def _same(claimed: object, derived: object) -> bool:
    """Whether two verdicts say the same, numbers up to ``ROUNDED``."""
    if isinstance(claimed, dict) and isinstance(derived, dict):
        return claimed.keys() == derived.keys() and all(_same(claimed[key], derived[key]) for key in derived)
    if isinstance(claimed, list | tuple) and isinstance(derived, list | tuple):
        return len(claimed) == len(derived) and all(map(_same, claimed, derived))
    if isinstance(claimed, float) and isinstance(derived, float):
        return isclose(claimed, derived, rel_tol=ROUNDED, abs_tol=ROUNDED)
    return claimed == derived
