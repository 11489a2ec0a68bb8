"""The parts of a certificate: plain data, each with one meaning."""

from datetime import date
from enum import StrEnum
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from hockeystick.errors import InvalidInputError, shortened
from hockeystick.spec import Count, Examples, Extended, Spec
from hockeystick.types import Side

Bounded = Annotated[float, Field(ge=0.0)]
AttackRate = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0, le=1e300)]


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise InvalidInputError(f"must be one line of visible characters. Got {shortened(text)} instead")
    return text


Line = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_one_line)]
"""Words of a user: one line that shows what it says, so that it cannot pretend to be lines of the certificate."""
Name = Annotated[str, Field(pattern="^[a-z_]{1,40}$")]
Version = Annotated[str, Field(pattern=r"^[0-9A-Za-z.+_-]{1,40}$")]


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

    def __format__(self, how: str) -> str:
        """As text; raises InvalidInputError for the format of one number."""
        return str(self) if not how else f"{float(self):{how}}"

    def __float__(self) -> float:
        """Never: raises InvalidInputError, which names the two numbers."""
        raise InvalidInputError("An interval is two numbers: take its .upper, which is the guarantee, or its .lower.")


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

    method: Name
    side: Side
    seconds: Bounded


class AttackNumbers(Extended):
    """Upper bounds on what an attacker can gain who has to tell two neighbouring data sets apart.

    Attributes:
        advantage: true positive rate minus false positive rate, of any attack: delta at epsilon 0.
        bayes_success: chance of a right guess between two data sets that are equally likely, ``(1 + advantage) / 2``.
        tpr_at_fpr_0_1, tpr_at_fpr_0_01, tpr_at_fpr_0_001: true positive rate at a false positive rate of at most
            0.1, 0.01 and 0.001; also the chance to reconstruct a record that was guessed so often without the run.
        gdp_mu: the run is mu-GDP but for the certified delta: ``delta(epsilon)`` is at most that of N(mu, 1) against
            N(0, 1) plus the certified delta, at every epsilon. None where that delta is 0 or above 0.1, or where
            no epsilon below 700 reaches it.
        gdp_regret: what mu loses of the certificate's own profile, in both error rates of a test: an attacker looks
            stronger by at most so much, at the epsilons where the profile was read. None where mu is.
        basis: what they are computed from: "profile", the whole privacy profile of the method that certified, or
            "claim", the certified epsilon and delta and the Gaussian for known batches alone, which are looser. None in
            certificates of format 2, which do not say it.
    """

    LATER: ClassVar[frozenset[str]] = frozenset({"basis"})

    advantage: AttackRate
    bayes_success: AttackRate
    tpr_at_fpr_0_1: AttackRate
    tpr_at_fpr_0_01: AttackRate
    tpr_at_fpr_0_001: AttackRate
    gdp_mu: Bounded | None
    gdp_regret: AttackRate | None
    basis: Literal["profile", "claim"] | None = None


class Rates(Spec):
    """How often one example takes part, as it follows from the sampler.

    Attributes:
        steps: batches of the run.
        rate: chance of one example to be drawn for one batch, before truncation; in the long run, where the first steps
            differ, and for users of one example, where users may have several.
        rate_when_available: the same given that the example may be drawn at this step, where that is not always so.
        most_participations: the most batches that one example can be in.
        expected_batch_size: ``rate`` times the number of examples, where the user stated that; before truncation.
    """

    steps: Count
    rate: Annotated[float, Field(gt=0.0, le=1.0)]
    rate_when_available: Annotated[float, Field(gt=0.0, le=1.0)] | None
    most_participations: Count
    expected_batch_size: Positive | None


class Noise(Spec):
    """The noise in the units that people use.

    Attributes:
        multiplier: standard deviation of the entries of z in clipping norms.
        over_sensitivity: the multiplier divided by the largest column norm of the strategy matrix.
        standard_deviation: the multiplier times the clipping norm, where the user stated that.
        standard_deviation_of_mean: the same divided by the normaliser, where the user stated both.
    """

    multiplier: Positive
    over_sensitivity: Positive
    standard_deviation: Positive | None
    standard_deviation_of_mean: Positive | None


class ForeignNoise(Spec):
    """Whose normal numbers the noise is made of, where they are not hockeystick's.

    Attributes:
        name: the library, perhaps the device, and the type: a key of ``hockeystick.noise.GENERATORS``.
        lowest, highest: its smallest and its largest number, in standard deviations.
        floor: a lower bound on the delta of any run of the mechanism with these numbers, at every epsilon. It proves
            nothing about a delta above it.
    """

    name: Annotated[str, Field(pattern="^[a-z0-9-]{1,40}$")]
    lowest: float
    highest: float
    floor: Bounded


class Bits(Spec):
    """How a claim about real numbers becomes one about the bits of a run with exact noise, in sentences.

    Attributes:
        covered: what is proved of the bits.
        assumed: what the proof takes for granted.
        not_covered: what it says nothing about.
        lower_end: what the lower end of the interval is about.
        lower: the lower end for what a run releases, which is rounded, whatever its number of parameters; None where
            the bound is no threshold test.
    """

    covered: tuple[str, ...]
    assumed: tuple[str, ...]
    not_covered: tuple[str, ...]
    lower_end: str
    lower: Bounded | None


class Status(StrEnum):
    """What is known of an assumption."""

    HOLDS = "holds"
    """Proved, or checked by ``verify``."""
    ASSERTED = "asserted"
    """The user says so."""
    UNCHECKED = "unchecked"
    """Nobody has said or checked anything."""


class Assumption(Spec):
    """Something that the claim rests on.

    Attributes:
        name: by which :class:`Statements` can assert it.
        text: one sentence.
        status: what is known of it.
        evidence: where to look: a page, a field, or what the user says; None where there is none.
    """

    name: Name
    text: str
    status: Status
    evidence: str | None


class Actor(Spec):
    """Somebody in the trust model: who it is, whether the claim relies on it, and what it sees."""

    who: str
    trusted: bool
    sees: str


class Private(Spec):
    """A field that should not be published, and why."""

    field: str
    why: str


class Statements(Spec):
    """What the user says. ``verify`` checks that it fits the mechanism, and not whether it is true.

    >>> Statements(label="MNIST, run 7", date="2030-01-31", num_examples=60_000, clipping_norm=1.0).clipping_norm
    1.0

    Attributes:
        label: what the run is called.
        date: of the claim, as YYYY-MM-DD. There is no other date in a certificate, so that the same request gives the
            same certificate.
        num_examples: size of the data set.
        clipping_norm: l2 norm that gradients are clipped to.
        normaliser: what noisy sums are divided by; fixed before the run.
        tuning: what was tuned on the same data, and how.
        other_releases: what else was released that depends on the same data.
        asserted: names of assumptions that the user says hold, each with where that can be seen.
    """

    label: Line | None = None
    date: str | None = None
    num_examples: Examples | None = None
    clipping_norm: Positive | None = None
    normaliser: Positive | None = None
    tuning: Line | None = None
    other_releases: Line | None = None
    asserted: dict[Name, Line] = Field(default_factory=dict)

    @field_validator("date")
    @classmethod
    def _calendar_date(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                valid = date.fromisoformat(value).isoformat() == value
            except ValueError:
                valid = False
            if not valid:
                raise InvalidInputError(f"The 'date' field must be a date as YYYY-MM-DD. Got {value[:20]!r} instead")
        return value


class Origin(Spec):
    """How a certificate was made. Nobody can recompute it, and no claim rests on it.

    Attributes:
        hockeystick_version: what issued it.
        library_versions: of Python and of the libraries that compute.
        accuracy: settings with which the numbers are found again.
        cut_off: methods that there was no time for.
    """

    hockeystick_version: Version
    library_versions: dict[Name, Version]
    accuracy: Accuracy
    cut_off: tuple[CutOff, ...] = ()
