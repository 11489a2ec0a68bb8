"""The verdict of an audit: findings, each with the evidence for it and what it means."""

from typing import Annotated, Any, Literal

from pydantic import Field

from hockeystick.spec import Spec

Level = Annotated[float, Field(gt=0.0, lt=1.0)]


class Finding(Spec):
    """One thing that was looked at.

    Attributes:
        name: what was looked at, as one word of the page that describes the audit.
        broken: whether the evidence contradicts the claim.
        evidence: natural logarithm of the largest value that this statistic reached, a likelihood ratio of something
            else to what is claimed; for a bet on epsilon, of the one at the certificate's upper end. For guesses minus
            the logarithm of the chance, at most, of so many right ones at that upper end. None where nothing is left to
            chance (what was seen is impossible under the claim, or is as it has to be), or there is no such end.
        says: one sentence, what the finding means.
    """

    name: Annotated[str, Field(pattern="^[a-z_0-9]{1,40}$")]
    broken: bool
    evidence: float | None = None
    says: str


class EpsilonInterval(Spec):
    """What an audit of a mechanism or of canaries found, beside what the certificate says, all at one delta.

    Attributes:
        audited: lower bound on epsilon, which holds except with probability ``level`` of the verdict.
        lower: the certificate's lower bound, or None.
        upper: the certificate's upper bound, or None where there is no certificate.
        delta: of all three.
    """

    audited: Annotated[float, Field(ge=0.0)]
    lower: float | None
    upper: float | None
    delta: float


class Verdict(Spec):
    """The result of an audit: plain data, ``model_dump_json()`` for a file.

    A verdict without a broken finding says that this audit saw nothing, not that there is nothing to see.

    Attributes:
        about: what was audited.
        claimed: the claim, as plain data.
        level: false-alarm probability: the chance, at most, that code that does what is claimed gets a broken finding.
            0 where no chance is involved.
        samples: how many batches, numbers of noise, pairs of outputs or steps were looked at, or how
            many canaries.
        findings: broken ones first, then by their evidence.
        epsilon: of an audit of a mechanism or of canaries.
    """

    about: Literal["sampler", "noise", "mechanism", "replay", "canaries"]
    claimed: dict[str, Any]
    level: Annotated[float, Field(ge=0.0, lt=1.0)]
    samples: Annotated[int, Field(ge=0)]
    findings: tuple[Finding, ...]
    epsilon: EpsilonInterval | None = None

    @property
    def refuted(self) -> bool:
        """Whether the claim is contradicted."""
        return any(finding.broken for finding in self.findings)

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of the broken findings."""
        return tuple(finding.name for finding in self.findings if finding.broken)

    def __str__(self) -> str:
        verdict = "does not do what is claimed" if self.refuted else "nothing found against the claim"
        chance = f"false-alarm probability at most {self.level:g}" if self.level else "no chance involved"
        lines = [f"{self.about}: {verdict} ({_UNITS[self.about]}: {self.samples}; {chance})"]
        if self.epsilon is not None:
            e = self.epsilon
            lower = "none" if e.lower is None else f"{e.lower:.4f}"
            beside = "" if e.upper is None else f"; certified lower bound {lower}, upper bound {e.upper:.4f}"
            lines.append(f"  epsilon at delta = {e.delta:g}: at least {e.audited:.4f} by this audit{beside}")
        for finding in self.findings:
            if finding.broken:
                evidence = "" if finding.evidence is None else f" (evidence e^{finding.evidence:.1f})"
                lines.append(f"  {finding.name}: {finding.says}{evidence}")
        return "\n".join(lines)


_UNITS = {
    "sampler": "batches",
    "noise": "numbers",
    "mechanism": "pairs of outputs",
    "replay": "steps",
    "canaries": "canaries",
}
