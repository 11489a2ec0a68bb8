"""The pairs of a user with several examples: copies of the example, for each sampler, and chains of single ones."""

from dataclasses import dataclass, replace

from hockeystick.mechanism import Mechanism
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.pairs.binomial_steps import binomial_step
from hockeystick.pairs.known_batches import KnownBatches
from hockeystick.pairs.mixture_steps import MixtureSteps
from hockeystick.pairs.occupancy import MOST_EXAMPLES, PlacedCopies, dealt
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.repeated_columns import RepeatedSubsets, repeated
from hockeystick.pairs.shuffled_batches import ShuffledBatches
from hockeystick.pairs.truncated_steps import TruncatedSteps, truncated
from hockeystick.pairs.waiting_copies import WaitingCopies
from hockeystick.samplers import (
    BallsInBins,
    BMinSep,
    CyclicPoisson,
    Deterministic,
    MultiAttribution,
    Poisson,
    RandomAllocation,
)
from hockeystick.strategies import Identity

MOST_SAMPLED_COPIES = 8
"""Examples in secret groups with subsampling: no more, as rare patterns have no proved worst one there."""

MOST_COLUMNS = 1_000_000
"""A matrix with more columns, one for each step and example, is not made."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Users(DominatingPair):
    """All examples of one user, at most k, become ghosts of zero gradient together, or are replaced by any others.

    Two analyses are always at hand for upper bounds, of which the smaller is taken at every epsilon and direction: that
    of ``copies``, where all k examples have one gradient, and k links of the chain of single examples, each of which
    is bounded by ``single`` (:mod:`hockeystick.laws.groups`). Lower bounds are those of ``copies`` and ``below``, as k
    concrete examples are one user, and of ``single``, as a user may have one example.

    Attributes:
        single: the pair of one example.
        examples: k; at least 2, or 1 for an example that is replaced.
        copies: a pair that bounds k examples at once, from both sides unless it says otherwise; None if there is none.
        below: a pair whose profile is proved to be at most that of the mechanism for k examples; None if there is none.
        replaced: whether others come in the place of the examples: two links of a chain, removing these, adding those.
    """

    single: DominatingPair
    examples: int
    copies: DominatingPair | None = None
    below: DominatingPair | None = None
    replaced: bool = False

    @property
    def members(self) -> tuple[DominatingPair, ...]:
        """The copies, where there are some and no others come in their place: whatever bounds them bounds the user."""
        if self.copies is None or self.replaced:
            return (self,)
        return (replace(self.copies, slack=self.slack),)

    @property
    def full_sensitivity(self) -> float:
        """k times that of one example, or what the copies can make together if that is less; twice that if replaced."""
        links = 2 if self.replaced else 1
        chained = links * self.examples * self.single.full_sensitivity * (1.0 + self.single.sensitivity_error)
        if self.copies is None:
            return chained
        return min(chained, links * self.copies.full_sensitivity * (1.0 + self.copies.sensitivity_error))

    @property
    def batches_are_public(self) -> bool:
        """Whether they are for the copies."""
        return not self.replaced and self.copies is not None and self.copies.batches_are_public


def from_deterministic(mechanism: Mechanism, single: DominatingPair) -> KnownBatches | None:
    """Fixed batches: all examples may be in the same ones, which is the worst by the triangle inequality.

    Where a batch is known to hold fewer examples than the user has, nothing attains that, and only the chain is left.
    """
    examples = mechanism.unit.examples
    if not _share_a_batch(require(mechanism.sampler, Deterministic), examples):
        return None
    return KnownBatches(
        noise_multiplier=mechanism.sigma,
        sensitivity=examples * single.full_sensitivity,
        error=single.sensitivity_error + 1e-15,
    )


def opposed(mechanism: Mechanism, single: DominatingPair) -> KnownBatches | None:
    """Fixed batches where examples of gradient 1, all in the same ones, are replaced by others of gradient -1.

    The shift is twice that of examples that are zeroed out.
    """
    examples = mechanism.unit.examples
    if not _share_a_batch(require(mechanism.sampler, Deterministic), examples):
        return None
    return KnownBatches(
        noise_multiplier=single.noise_multiplier,
        sensitivity=2.0 * examples * single.full_sensitivity,
        error=single.sensitivity_error + 1e-15,
    )


def _share_a_batch(sampler: Deterministic, examples: int) -> bool:
    """Whether so many examples of a user fit in one batch, as far as its size is known."""
    return sampler.batch_size is None or examples <= sampler.batch_size


def from_poisson(
    mechanism: Mechanism, single: DominatingPair
) -> MixtureSteps | TruncatedSteps | RepeatedSubsets | None:
    """Poisson batches: Binomial(k, q) of the examples are in each, before batches are cut."""
    sampler, examples = require(mechanism.sampler, Poisson), mechanism.unit.examples
    if isinstance(single, TruncatedSteps):
        return truncated(mechanism, examples) if examples <= MOST_EXAMPLES else None
    if isinstance(mechanism.strategy, Identity):
        step = binomial_step(examples, sampler.sampling_prob, 1.0, sampler.steps)
        return MixtureSteps(noise_multiplier=mechanism.sigma, steps=(step,))
    return _coins(mechanism, sampler.sampling_prob, attained=True)


def from_cyclic_poisson(mechanism: Mechanism, single: DominatingPair) -> MixtureSteps | PlacedCopies | None:
    """Cyclic Poisson batches without correlated noise: of public groups all examples are in the first at worst.

    With correlated noise the examples may be in any groups, whose columns overlap, and only the chain is left.
    """
    sampler, examples = require(mechanism.sampler, CyclicPoisson), mechanism.unit.examples
    if not isinstance(mechanism.strategy, Identity):
        return None
    opportunities = -(-sampler.steps // sampler.groups)
    if not sampler.groups_are_secret:
        step = binomial_step(examples, sampler.sampling_prob, 1.0, opportunities)
        return MixtureSteps(noise_multiplier=mechanism.sigma, steps=(step,))
    if examples > (MOST_EXAMPLES if sampler.sampling_prob == 1.0 else MOST_SAMPLED_COPIES):
        return None
    return PlacedCopies(
        noise_multiplier=mechanism.sigma,
        bins=sampler.groups,
        examples=examples,
        replays=opportunities,
        sampling_prob=sampler.sampling_prob,
    )


def from_balls_in_bins(mechanism: Mechanism, single: DominatingPair) -> PlacedCopies | None:
    """Balls in bins without correlated noise: every example has a bin of its own, which all epochs replay."""
    sampler, examples = require(mechanism.sampler, BallsInBins), mechanism.unit.examples
    if not isinstance(mechanism.strategy, Identity) or examples > MOST_EXAMPLES:
        return None
    return PlacedCopies(noise_multiplier=mechanism.sigma, bins=sampler.bins, examples=examples, replays=sampler.epochs)


def from_random_allocation(mechanism: Mechanism, single: DominatingPair) -> PlacedCopies | None:
    """Random allocation of one visit in each epoch, independent noise; all else is left to the chain."""
    sampler, examples = require(mechanism.sampler, RandomAllocation), mechanism.unit.examples
    if not isinstance(single, AveragedSteps) or sampler.participations > 1 or examples > MOST_EXAMPLES:
        return None
    return PlacedCopies(noise_multiplier=mechanism.sigma, bins=sampler.bins, examples=examples, epochs=sampler.epochs)


def from_shuffle(mechanism: Mechanism, single: DominatingPair) -> DominatingPair | None:
    """Shuffled batches, whose permutations are revealed: the examples rarely share a batch."""
    examples = mechanism.unit.examples
    if not isinstance(single, ShuffledBatches) or examples > min(MOST_EXAMPLES, single.batch_size * single.bins):
        return None
    return dealt(examples, single.batch_size, single.bins, single.epochs, mechanism.sigma)


def from_b_min_sep(mechanism: Mechanism, single: DominatingPair) -> RepeatedSubsets | None:
    """b-min-sep subsampling: Poisson at the rate of an available example takes at least as many at every step.

    Truncated batches, in which the examples of a user compete for places, are left to the chain.
    """
    sampler = require(mechanism.sampler, BMinSep)
    if sampler.truncated_batch_size is not None:
        return None
    return _coins(mechanism, sampler.participation_prob, attained=False)


def from_multi_attribution(mechanism: Mechanism, single: DominatingPair) -> RepeatedSubsets | None:
    """b-min-sep subsampling in which every example of a user keeps its own distance: as by example."""
    return _coins(mechanism, require(mechanism.sampler, MultiAttribution).participation_prob, attained=False)


def below_balls_in_bins(mechanism: Mechanism, single: DominatingPair) -> AveragedSteps | None:
    """The examples in different bins, as many as there are: sharing a bin is worse."""
    sampler = require(mechanism.sampler, BallsInBins)
    if not isinstance(mechanism.strategy, Identity):
        return None
    return AveragedSteps(
        noise_multiplier=mechanism.sigma,
        bins=sampler.bins,
        participations=min(mechanism.unit.examples, sampler.bins),
        replays=sampler.epochs,
    )


def below_random_allocation(mechanism: Mechanism, single: DominatingPair) -> AveragedSteps | None:
    """The visits of all examples at different steps of an epoch, as many as there are; for independent noise."""
    sampler = require(mechanism.sampler, RandomAllocation)
    if not isinstance(single, AveragedSteps):
        return None
    return AveragedSteps(
        noise_multiplier=mechanism.sigma,
        bins=sampler.bins,
        participations=min(mechanism.unit.examples * sampler.participations, sampler.bins),
        epochs=sampler.epochs,
    )


def below_separated(mechanism: Mechanism, single: DominatingPair) -> WaitingCopies | None:
    """b-min-sep subsampling in which every example keeps its own distance: all with one gradient."""
    if not isinstance(single, RenewalMixture):
        return None  # batches are cut: others decide whether an example stays
    return WaitingCopies(noise_multiplier=mechanism.sigma, one=single, examples=mechanism.unit.examples)


def _coins(mechanism: Mechanism, prob: float, *, attained: bool) -> RepeatedSubsets | None:
    if mechanism.sampler.steps * mechanism.unit.examples > MOST_COLUMNS:
        return None
    matrix = repeated(mechanism.matrix, mechanism.unit.examples)
    return RepeatedSubsets(noise_multiplier=mechanism.sigma, matrix=matrix, sampling_prob=prob, attained=attained)
