"""What a certificate says about the samples that it rests on."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from hockeystick.samples import Run
from hockeystick.spec import Count, Spec

FailureProbability = Annotated[float, Field(gt=0.0, lt=1.0)]


class Statement(StrEnum):
    """What the failure probability is about."""

    CONFIDENCE = "confidence"
    """The interval holds the truth, except with the failure probability over the draw of the samples."""
    ESTIMATE_VERIFY_RELEASE = "estimate_verify_release"
    """The whole procedure, which draws the samples and then runs what it accepted, is (epsilon, delta)-DP."""


class RunClaim(Spec):
    """A run, and how many of its chunks were used: the streams from 0 on."""

    run: Run
    chunks: Count


class MonteCarloClaim(Spec):
    """The runs of an estimation; their bounds follow from the stored chunks, or from drawing them again.

    Attributes:
        statement: what is claimed.
        failure_probability: of all bounds together.
        runs: every attempt, in the order in which they were made.
    """

    statement: Statement
    failure_probability: FailureProbability
    runs: tuple[RunClaim, ...]
