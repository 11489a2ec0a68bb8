"""DP-SGD under cyclic Poisson sampling whose groups are drawn independently and kept secret."""

from dataclasses import dataclass

from hockeystick.mechanism import Mechanism
from hockeystick.pairs import averaged_steps
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.samplers import BallsInBins, CyclicPoisson


@dataclass(frozen=True, kw_only=True)
class SecretGroups(DominatingPair):
    """``P = E_g E_S N(1_S, sigma^2 I)`` against ``Q = N(0, sigma^2 I)``, the group g uniform; add swaps them.

    S holds each of the steps g, g + groups, ... independently with probability q. The groups of an example have no
    step in common, so the likelihood ratio is the mean over the groups of independent ratios, each a composition of
    thinned Gaussians. It dominates the mechanism with adaptively chosen gradients and is attained by constant ones
    (docs/theory/subsets/reductions.md, "Secret groups").

    Attributes:
        sampling_prob: q in (0, 1], the chance at a step of the group.
        groups: b >= 2.
        steps: batches in the run.
    """

    sampling_prob: float
    groups: int
    steps: int

    @property
    def full_sensitivity(self) -> float:
        """The root of the number of steps of the first group: the example may be in each of its batches."""
        return float((-(-self.steps // self.groups)) ** 0.5)


def as_balls_in_bins(sampler: CyclicPoisson) -> BallsInBins | None:
    """The sampler of the same batches where secret groups are replayed in whole rounds without subsampling, or None."""
    if not sampler.groups_are_secret or sampler.sampling_prob < 1.0 or sampler.steps % sampler.groups:
        return None
    return BallsInBins(bins=sampler.groups, epochs=sampler.steps // sampler.groups)


def from_cyclic_poisson(mechanism: Mechanism) -> IndependentSteps | AveragedSteps | SecretGroups:
    """Cyclic Poisson batches without correlated noise; of public groups the first has the most opportunities."""
    sampler = require(mechanism.sampler, CyclicPoisson)
    replayed = as_balls_in_bins(sampler)
    if replayed is not None:
        return averaged_steps.from_balls_in_bins(mechanism.model_copy(update={"sampler": replayed}))
    sigma, prob = mechanism.sigma, sampler.sampling_prob
    if sampler.groups_are_secret:
        return SecretGroups(noise_multiplier=sigma, sampling_prob=prob, groups=sampler.groups, steps=sampler.steps)
    opportunities = -(-sampler.steps // sampler.groups)
    return IndependentSteps(noise_multiplier=sigma, sampling_prob=prob, steps=opportunities)
