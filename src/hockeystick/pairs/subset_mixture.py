"""Correlated noise under Poisson and cyclic Poisson sampling: a mixture of Gaussians over subsets of the steps."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hockeystick.mechanism import Mechanism
from hockeystick.pairs import bin_mixture, independent_steps, secret_groups
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.pairs.visits import Visits
from hockeystick.pairs.visits import coins as visits_of_coins
from hockeystick.samplers import CyclicPoisson
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.base import BLOCK, Array, Indices


@dataclass(frozen=True, kw_only=True, eq=False)
class SubsetMixture(DominatingPair):
    """The worst of ``P_g = E_S N(C 1_S, sigma^2 I)`` against ``Q = N(0, sigma^2 I)`` over the groups g; add swaps them.

    In group g the set S holds each of the steps g, g + groups, g + 2 groups, ... independently with probability q. The
    profile is the largest over the groups, for each epsilon and direction: an upper bound has to cover all groups, a
    lower bound one. A single group is Poisson sampling. Each P_g dominates the mechanism with adaptively chosen
    gradients for the examples of that group, as C is causal and non-negative, and constant gradients attain it
    (docs/theory/subsets/reductions.md and monte-carlo/subsets.md; choquette-choo-2024, Lemma 4.5).

    Attributes:
        matrix: C, with n columns.
        sampling_prob: q in (0, 1], the chance at a step of the group.
        groups: b; groups beyond the last step (b > n) take no part.
        groups_are_public: whether the adversary may know the example's group; otherwise the truth is the mixture of all
            P_g, which the worst of them bounds from above and not from below.
    """

    matrix: StrategyMatrix
    sampling_prob: float
    groups: int = 1
    groups_are_public: bool = True

    def group_steps(self, group: int) -> Indices:
        """The steps at which the examples of a group may take part, ascending; group < :attr:`groups_in_play`."""
        return np.arange(group, self.matrix.steps, self.groups)

    @property
    def groups_in_play(self) -> int:
        """How many groups have a step: all of them unless the run is shorter than one round."""
        return min(self.groups, self.matrix.steps)

    @property
    def coins(self) -> int:
        """How many coins, with columns that are all the same, every step has."""
        return 1

    @property
    def visits(self) -> Visits:
        """When an example, or user, of a group takes part in the steps of the group."""
        return visits_of_coins(self.sampling_prob, self.coins)

    @property
    def step_matrix(self) -> StrategyMatrix:
        """C, of which every column stands for all coins of its step."""
        return self.matrix

    @property
    def why_not_from_below(self) -> str | None:
        """Why lower bounds on the worst group are none on the mechanism, or None."""
        return None if self.groups_are_public else "the groups are secret, and it assumes an adversary who knows them"

    @property
    def full_sensitivity(self) -> float:
        """``max_g |C 1_g|``: the example may be in every batch of its group."""
        return _largest_norm(self.matrix, self.groups_in_play)

    @property
    def sensitivity_error(self) -> float:
        """Relative rounding of a sum of squares of sums of entries."""
        return 4.0 * self.matrix.rounding

    @property
    def batches_are_public(self) -> bool:
        """True without subsampling, when public groups are the batches."""
        return self.sampling_prob == 1.0 and self.groups_are_public


@lru_cache(maxsize=4)
def _largest_norm(matrix: StrategyMatrix, groups: int) -> float:
    """Within the matrix's rounding. O(steps) where the columns of a group are orthogonal."""
    if matrix.bands <= groups:
        squares = np.bincount(np.arange(matrix.steps) % groups, weights=matrix.column_norms**2)
        return float(np.sqrt(squares.max()))
    if matrix.steps % groups == 0:
        return float(matrix.bin_norms(groups).max())
    return float(max(_norms_of_sums(matrix, groups, first).max() for first in range(0, groups, BLOCK)))


def _norms_of_sums(matrix: StrategyMatrix, groups: int, first: int) -> Array:
    """Norms of the sums of the columns of some groups from ``first`` on, the last round of which may be short."""
    which = np.arange(first, min(first + BLOCK, groups))
    sums = np.zeros((matrix.rows, which.size))
    for start in range(0, matrix.steps, groups):
        inside = int(np.searchsorted(start + which, matrix.steps))
        sums[:, :inside] += matrix.columns(start + which[:inside])
    norms: Array = np.sqrt(np.einsum("tg,tg->g", sums, sums))
    return norms


def from_poisson(mechanism: Mechanism) -> SubsetMixture:
    """Poisson batches, with any strategy matrix; the batches, and what truncation costs, are those of DP-SGD."""
    uncorrelated = independent_steps.from_poisson(mechanism)
    return SubsetMixture(
        noise_multiplier=uncorrelated.noise_multiplier,
        matrix=mechanism.matrix,
        sampling_prob=uncorrelated.sampling_prob,
        slack=uncorrelated.slack,
    )


def from_cyclic_poisson(mechanism: Mechanism) -> SubsetMixture | BinMixture:
    """Cyclic Poisson batches, with any strategy matrix; secret groups without subsampling are balls in bins."""
    sampler = require(mechanism.sampler, CyclicPoisson)
    replayed = secret_groups.as_balls_in_bins(sampler)
    if replayed is not None:
        return bin_mixture.from_balls_in_bins(mechanism.model_copy(update={"sampler": replayed}))
    return SubsetMixture(
        noise_multiplier=mechanism.sigma,
        matrix=mechanism.matrix,
        sampling_prob=sampler.sampling_prob,
        groups=sampler.groups,
        groups_are_public=not sampler.groups_are_secret,
    )
