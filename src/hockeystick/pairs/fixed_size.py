"""Batches of exactly one size, drawn without replacement."""

from dataclasses import dataclass, replace
from math import sqrt

from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.samplers import FixedSize
from hockeystick.strategies import Identity


@dataclass(frozen=True, kw_only=True)
class FixedSizeSteps(DominatingPair):
    """Independent cohorts of one size: the example is drawn or else another, who has its place otherwise.

    Given what the other examples do, a step is ``(1-q) N(v) + q N(e)`` against ``(1-q) N(v) + q N(e')``: e is the
    gradient of the example, v that of the one whose place it takes, and e' is 0, or any other where it is replaced. The
    adversary chooses all three in the unit ball, afresh in every step (docs/theory/fixed-size.md). No pair of fixed
    distributions dominates all of that.

    Attributes:
        sampling_prob: q in (0, 1], the share of the examples in a batch.
        steps: number of steps, at least 1.
        cohort_steps: steps of one cohort, at most ``steps``; the last cohort may have fewer.
        replaced: whether another example comes in the place of the one that leaves.
    """

    sampling_prob: float
    steps: int
    cohort_steps: int = 1
    replaced: bool = False

    @property
    def full_sensitivity(self) -> float:
        """The example may be in every batch; if it is replaced, by one with the opposite gradient."""
        return (2.0 if self.replaced else 1.0) * sqrt(self.steps)

    @property
    def sensitivity_error(self) -> float:
        """The rounding of a product and of a root."""
        return 4.0 * UNIT_ROUNDOFF

    @property
    def batches_are_public(self) -> bool:
        """True when everybody is in every batch."""
        return self.sampling_prob == 1.0

    @property
    def cohort_noise(self) -> float:
        """Standard deviation of the noise in units of what all steps of a cohort can contribute."""
        return self.noise_multiplier / sqrt(self.cohort_steps)

    @property
    def most_cohorts(self) -> int:
        """Cohorts, the last one counted as a whole one."""
        return -(-self.steps // self.cohort_steps)

    @property
    def whole_cohorts(self) -> int:
        """Cohorts with all their steps."""
        return self.steps // self.cohort_steps


def from_fixed_size(mechanism: Mechanism) -> FixedSizeSteps:
    """The pair of an example that is zeroed out."""
    sampler = require(mechanism.sampler, FixedSize)
    return FixedSizeSteps(
        noise_multiplier=mechanism.sigma,
        sampling_prob=sampler.rate,
        steps=sampler.steps,
        cohort_steps=min(sampler.cohort_steps, sampler.steps),
    )


def replaced(mechanism: Mechanism, single: DominatingPair) -> DominatingPair | None:
    """The pair of an example that another one takes the place of; None for correlated noise."""
    if not isinstance(mechanism.strategy, Identity):
        return None
    return replace(from_fixed_size(mechanism), replaced=True)
