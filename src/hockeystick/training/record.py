"""The record of a run: a document that may be published."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hockeystick.certificate import Certificate
from hockeystick.errors import InvalidInputError, VerificationError, counted, shortened
from hockeystick.files import MAX_CLAIM_BYTES, json_object, read_small_file, write_atomically
from hockeystick.mechanism import Mechanism
from hockeystick.samplers import SAMPLERS
from hockeystick.samplers.base import MAX_STEPS
from hockeystick.spec import Examples, Extended, Sealed, Spec

MAX_RECORD_BYTES = 1 << 21
Word = Annotated[str, Field(pattern="^[a-z0-9_]{1,40}$")]
NonNegative = Annotated[int, Field(ge=0, le=10**12)]
SLACK = 0.01
"""How far a sum may be above the clipping norms of its examples: far more than float32 rounds, less than a fault."""

SAMPLING = {name: says for scheme in SAMPLERS.values() for name, says in scheme.PROMISES.meanings.items()}
"""What samplers promise about their batches; a record names those of its own sampler."""
MEANINGS = SAMPLING | {
    "steps_in_order": "Every step was taken once, in order, from the first; no step went past the plan.",
    "one_noise_row_a_step": "Every step took exactly one row of noise, the next one, even if its batch was empty.",
    "number_of_examples": "The sum of every step had as many examples as the batch that was drawn for it.",
    "examples_of_the_batch": "The sum of every step was over the examples of the batch that was drawn for it.",
    "clipping": "The gradient of every example was clipped to the norm that the noise was multiplied by.",
    "norms": (
        "The norms of gradients were summed in float64 or with another proved error, and clipping left room for it: no "
        "clipped gradient was longer than the clipping norm, in the numbers that were summed."
    ),
    "clipping_norm": (
        "The noise multiplier and the set of trained parameters stayed the same, and so did the clipping norm, or it "
        "followed its rule from what was released."
    ),
    "finite_gradients": (
        "The gradients of all examples were finite numbers; a NaN in the data or in the loss makes one that is not."
    ),
    "noise_is_added": "The noise of every step was added to the sum of the clipped gradients of its batch.",
    "public_normaliser": "Noisy sums were divided by a number that does not depend on the batches.",
    "absent_clients": (
        "A client of a batch that gave no update counted as an update of zeros, and whether it gave one depended on no "
        "other client's data."
    ),
    "same_data": "An index meant the same example in every step.",
    "secrecy": "The state of the run, and which examples were in which batch, were kept secret.",
    "random_numbers": "The generators of the batches and of the noise are as good as random.",
    "repeated_steps_repeat": "Steps that were made again after a resume had the same data, weights and code.",
    "stop_is_public": "The number of steps depends on neither the data nor anything that was trained on them.",
    "batches_in_step": "Every batch that was handed out was used at its own step.",
    "exact_sums": (
        "The gradient of every example was clipped and rounded to whole numbers of a proved norm, zeros where it was "
        "not finite, and these were summed without error, as was the noise."
    ),
    "one_shape": "All physical batches had one shape, and were filled up where they had fewer examples.",
    "batch_invariance": (
        "The bits of an example's gradient depended on the weights and on the example alone, and not on the other "
        "examples of its physical batch."
    ),
    "change_of_others": (
        "When one example is left out of a step, the whole numbers of all others together changed by at most "
        "the stated rho of the clipping norm, and gradients were clipped so that the noise covers 1 + rho of it."
    ),
    "invariance_audited": (
        "An audit of the model computed the gradient of an example at every place of a physical batch of that size, "
        "beside other examples, and no bit changed."
    ),
    "independence_tried": (
        "Before the first step, the losses and the gradients of two examples were the same alone and in one batch, "
        "to a tolerance and without dropout."
    ),
}
"""What a promise means, in a sentence. Nothing else may be said in a record, so that no text can pretend to be one."""


ABOUT = {
    "batches": (
        *("steps_in_order", "number_of_examples", "examples_of_the_batch", "batches_in_step"),
        *SAMPLING,
        *("absent_clients", "same_data", "repeated_steps_repeat"),
    ),
    "noise": (
        *("one_noise_row_a_step", "noise_is_added", "clipping", "norms", "clipping_norm", "finite_gradients"),
        *("independence_tried", "exact_sums", "random_numbers"),
    ),
    "invariance": ("one_shape", "invariance_audited", "batch_invariance", "change_of_others"),
    "normaliser": ("public_normaliser",),
    "secrecy": ("secrecy",),
}
"""The promises that an assumption of a certificate comes down to, by its name."""
EXACTLY = ("exact_sums", "one_shape")
"""What a run with exact noise rests on besides, together with what its gradients depend on."""
BEYOND = ("same_data", "random_numbers", "repeated_steps_repeat")
"""What no run can check. It is named beside what was checked."""


class Status(StrEnum):
    """What is known of a promise."""

    CHECKED = "checked"
    """The run looked, at every step."""
    ASSERTED = "asserted"
    """The program that trained has to have done it; the run cannot see it."""
    VIOLATED = "violated"
    """It was broken, at the step that is named."""


class Check(Spec):
    """One promise and what is known of it."""

    name: Annotated[str, Field(pattern="^[a-z_]{1,40}$")]
    status: Status
    step: NonNegative | None = None

    @model_validator(mode="after")
    def _has_a_meaning(self) -> Self:
        if self.name not in MEANINGS:
            raise InvalidInputError(f"The 'name' field must be a promise that is known. Got {self.name!r} instead")
        return self


class RunRecord(Extended, Sealed):
    """What a run executed, what of it was checked, and the certificate that covers it.

    Attributes:
        mechanism: what was planned.
        num_examples: size of the dataset.
        steps: how many were taken; fewer than planned after an early stop.
        refused_steps: how often a step past the plan was asked for, and not given.
        resumed: how often the run continued from a saved state.
        expected_batch_size: the public normaliser.
        noise, noise_dtype: generator and type of the noise; None where another process added it.
        rho: by how much of the clipping norm the whole numbers of all other examples may change with one of them, where
            that was stated, and the noise covers it; None elsewhere.
        checks: the promises; see ``MEANINGS``.
        commitment: last link of the chain of commitments to the batches. It gives nothing about them away without the
            key in the run's state, with which an auditor can recompute it.
        certificate: of the planned mechanism, or of the executed steps; None where there is none, as after a violation.
        digest: SHA-256 of the rest. It shows accidents and naive edits; it is not a signature.
    """

    LATER: ClassVar[frozenset[str]] = frozenset({"rho"})

    format: Literal["hockeystick-run/1"] = "hockeystick-run/1"
    hockeystick_version: Annotated[str, Field(pattern=r"^[0-9A-Za-z.+_-]{1,40}$")]
    mechanism: Mechanism
    num_examples: Examples
    steps: NonNegative
    refused_steps: NonNegative = 0
    resumed: NonNegative = 0
    expected_batch_size: Annotated[float, Field(gt=0.0)]
    noise: Word | None
    noise_dtype: Word | None
    rho: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    checks: tuple[Check, ...]
    commitment: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    certificate: Certificate | None = None
    digest: str = ""

    @model_validator(mode="after")
    def _executes_the_plan(self) -> Self:
        sampler = self.mechanism.sampler
        if self.steps > sampler.steps:
            raise InvalidInputError(
                f"The 'steps' field must be at most the {sampler.steps} planned steps. Got {self.steps} instead"
            )
        declared = getattr(sampler, "num_examples", None)
        if declared not in (None, self.num_examples):
            raise InvalidInputError(
                f"The 'num_examples' field must be the sampler's num_examples = {declared}. "
                f"Got {self.num_examples} instead"
            )
        return self

    @model_validator(mode="after")
    def _no_certificate_after_a_violation(self) -> Self:
        if self.certificate is not None and self.violations:
            raise InvalidInputError("The 'certificate' field must be left out, as a promise was violated")
        return self

    @model_validator(mode="after")
    def _certificate_is_about_this_noise(self) -> Self:
        if self.certificate is not None and self.certificate.generator is not None:
            raise InvalidInputError(
                f"The 'certificate' field must be about hockeystick's own noise, which the run added. Got one about "
                f"that of {self.certificate.generator.name!r} instead"
            )
        return self

    @model_validator(mode="after")
    def _exact_noise_is_in_whole_numbers(self) -> Self:
        if self.noise_dtype is not None and (self.noise_dtype == "int32") != self.mechanism.exact:
            raise InvalidInputError(
                f"The 'noise_dtype' field must be 'int32' for an exact mechanism, and for no other. "
                f"Got {self.noise_dtype!r} instead"
            )
        return self

    @model_validator(mode="after")
    def _rho_is_about_a_promise(self) -> Self:
        if (self.rho is not None) != any(check.name == "change_of_others" for check in self.checks):
            raise InvalidInputError(
                "The 'rho' field must be given for exact sums whose integers change with others, and for them only"
            )
        return self

    @model_validator(mode="after")
    def _certificate_is_about_this_run(self) -> Self:
        certified = self.mechanism if self.certificate is None else self.certificate.mechanism
        if certified == self.mechanism:
            return self
        of_steps = self.mechanism.model_copy(update={"sampler": certified.sampler})
        alike = certified == of_steps and certified.sampler.steps == self.steps
        alike = alike and certified.sampler == self.mechanism.sampler.prefix(self.steps)
        if not alike or "stop_is_public" not in self.asserted:
            raise InvalidInputError(
                "The 'certificate' field must be about the planned mechanism, or about the steps that were taken where "
                "their number is said to be public"
            )
        return self

    @staticmethod
    def meaning(promise: str) -> str:
        """A promise in a sentence."""
        return MEANINGS[promise]

    @property
    def violations(self) -> tuple[str, ...]:
        """The promises that were broken."""
        return self._names(Status.VIOLATED)

    @property
    def checked(self) -> tuple[str, ...]:
        """The promises that the run looked at, at every step, and that were kept."""
        return self._names(Status.CHECKED)

    @property
    def asserted(self) -> tuple[str, ...]:
        """The promises that are taken on trust."""
        return self._names(Status.ASSERTED)

    def about(self, assumption: str) -> tuple[str, str] | None:
        """What the record knows of an assumption of its certificate: in a few words, and in sentences.

        "checked by the run" where the run checked all that a run can, "partly checked by the run", or "on trust". None
        for an assumption that no promise is about, such as who has which data.
        """
        promises = [check for check in self.checks if check.name in ABOUT.get(assumption, ())]
        if not promises:
            return None
        checked = [MEANINGS[check.name] for check in promises if check.status is Status.CHECKED]
        unseen = [check for check in promises if check.status is not Status.CHECKED]
        if not checked:
            return "on trust", " ".join(MEANINGS[check.name] for check in unseen)
        words = "checked by the run" if all(check.name in BEYOND for check in unseen) else "partly checked by the run"
        trusted = "".join(f" On trust: {MEANINGS[check.name]}" for check in unseen)
        return words, f"{' '.join(checked)}{trusted}".strip()

    def _names(self, status: Status) -> tuple[str, ...]:
        return tuple(check.name for check in self.checks if check.status is status)

    def save(self, path: str | Path) -> None:
        """Write the record as JSON, whole or not at all, and the file of its matrix, if it needs one, beside it."""
        self.mechanism.write_companion(path)
        write_atomically(path, self.model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a record and check its digests.

        Raises: InvalidInputError for a file that does not hold a record, VerificationError for one that was altered.
        """
        name = f"record {shortened(str(path))}"
        record = cls.parse_json(read_small_file(path, name, MAX_RECORD_BYTES), name)
        inner = record.certificate
        if record.digest != record.content_digest() or (inner is not None and inner.digest != inner.content_digest()):
            raise VerificationError(f"The {name} was altered: its digest does not match its content.")
        for described in (record, *(() if inner is None else (inner,))):
            described.mechanism.look_for_companion(path)
        return record

    @property
    def taken(self) -> str:
        """The steps that were taken, and of how many. A run without a planned end has the most that a sampler takes."""
        planned = self.mechanism.sampler.steps
        without = f"{self.steps} steps (no end planned)"
        return without if planned == MAX_STEPS else f"{self.steps} of {planned} planned steps"

    def __str__(self) -> str:
        lines = [f"a run of {self.taken} on {self.num_examples} examples, resumed {counted(self.resumed, 'time')}"]
        if self.violations:
            lines.append("NO CERTIFICATE: the run broke a promise")
        elif self.certificate is None:
            lines.append("no certificate was given")
        if self.rho is not None:
            lines.append(f"  rho         {self.rho!r} of the clipping norm, which the noise covers")
        if self.refused_steps:
            lines.append(f"  refused     {counted(self.refused_steps, 'step')} past the plan")
        for status in (Status.VIOLATED, Status.CHECKED, Status.ASSERTED):
            names = self._names(status)
            lines += [f"  {status.value}"] * bool(names) + [f"    - {MEANINGS[name]}" for name in names]
        lines.append(f"  commitment  {self.commitment}")
        return "\n".join([*lines, *([] if self.certificate is None else [str(self.certificate)])])


def is_record(path: str | Path) -> bool:
    """Whether a file says that it is the record of a run."""
    content = read_small_file(path, f"file {shortened(str(path))}", MAX_CLAIM_BYTES)
    return bool(json_object(content).get("format") == RunRecord.model_fields["format"].default)
