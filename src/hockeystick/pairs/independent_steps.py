"""Independent steps: deterministic batches and Poisson sampling."""

from dataclasses import dataclass

from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.samplers import Deterministic, Poisson

BINOMIAL_TAIL_ROUNDING = 1e-6
"""Far above the relative error of the binomial tail, which only has to be known roughly."""
SMALLEST_SLACK = 1e-300
"""A smaller tail may have lost its digits, or all of itself, to underflow."""


@dataclass(frozen=True, kw_only=True)
class IndependentSteps(DominatingPair):
    """``steps`` independent copies of ``(1-q) N(0, sigma^2) + q N(1, sigma^2)`` against ``N(0, sigma^2)``.

    Tightly dominates DP-SGD with Poisson batches at rate q (chua-2024, section 3) and, with q = 1 and one step for
    every participation, with batches that are fixed beforehand.

    Attributes:
        sampling_prob: q in (0, 1].
        steps: number of copies, at least 1.
    """

    sampling_prob: float
    steps: int

    @property
    def full_sensitivity(self) -> float:
        """sqrt(steps): the example may be in every batch."""
        return float(self.steps**0.5)

    @property
    def batches_are_public(self) -> bool:
        """True without subsampling."""
        return self.sampling_prob == 1.0


def from_deterministic(mechanism: Mechanism) -> IndependentSteps:
    """Fixed batches: the example is in one known step of every epoch, so only its ``epochs`` visits count."""
    sampler = require(mechanism.sampler, Deterministic)
    return IndependentSteps(noise_multiplier=mechanism.sigma, sampling_prob=1.0, steps=sampler.epochs)


def from_poisson(mechanism: Mechanism) -> IndependentSteps:
    """Poisson batches; truncation is accounted for by its total-variation distance.

    A run that keeps a random ``truncated_batch_size`` of the examples whenever more were drawn differs from the
    untruncated run only if some batch is too large. Batch sizes are Binomial(num_examples, q) for either of two
    zero-out neighbours, so the distance is at most ``steps * Pr[Binomial > truncated_batch_size]``.
    """
    sampler = require(mechanism.sampler, Poisson)
    slack = 0.0
    cap, size = sampler.truncated_batch_size, sampler.num_examples
    if cap is not None and size is not None and cap < size:
        from scipy.special import betainc

        tail = float(betainc(cap + 1, size - cap, sampler.sampling_prob))  # Pr[Binomial(size, q) > cap]
        slack = min(max(sampler.steps * tail * (1.0 + BINOMIAL_TAIL_ROUNDING), SMALLEST_SLACK), 1.0)
    return IndependentSteps(
        noise_multiplier=mechanism.sigma, sampling_prob=sampler.sampling_prob, steps=sampler.steps, slack=slack
    )
