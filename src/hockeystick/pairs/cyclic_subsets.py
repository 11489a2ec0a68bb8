"""Correlated noise under cyclic Poisson sampling: the steps of one group, each with its own coin."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.samplers import CyclicPoisson
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.base import BLOCK, Array, Indices


@dataclass(frozen=True, kw_only=True, eq=False)
class CyclicSubsets(DominatingPair):
    """The worst of ``P_g = E_S N(C 1_S, sigma^2 I)`` against ``Q = N(0, sigma^2 I)`` over the groups g; add swaps them.

    In group g the set S holds each of the steps g, g + groups, g + 2 groups, ... independently with probability q. The
    profile is the largest over the groups, for each epsilon and direction: an upper bound has to cover all groups, a
    lower bound one. Each P_g dominates the mechanism with adaptively chosen gradients for the examples of that group,
    and constant gradients attain it (docs/theory/subsets/reductions.md).

    Attributes:
        matrix: C, with n columns.
        groups: b; groups whose turn never comes (b > n) take no part.
        sampling_prob: q in (0, 1], the chance at a step of the group.
    """

    matrix: StrategyMatrix
    groups: int
    sampling_prob: float

    def group_steps(self, group: int) -> Indices:
        """The steps at which the examples of a group may take part, ascending; group from 0 to :attr:`turns` - 1."""
        return np.arange(group, self.matrix.steps, self.groups)

    @property
    def turns(self) -> int:
        """How many groups have a turn: all of them unless the run is shorter than one round."""
        return min(self.groups, self.matrix.steps)

    @property
    def full_sensitivity(self) -> float:
        """``max_g |C 1_g|``: the example may be in every batch of its group."""
        return _largest_norm(self.matrix, self.turns)

    @property
    def sensitivity_error(self) -> float:
        """That of a sum of squares of sums of entries."""
        return 4.0 * self.matrix.rounding

    @property
    def batches_are_public(self) -> bool:
        """True without subsampling: the groups are public, and are the batches."""
        return self.sampling_prob == 1.0


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


def from_cyclic_poisson(mechanism: Mechanism) -> CyclicSubsets | SubsetMixture:
    """Cyclic Poisson batches with any strategy matrix; a single group is Poisson sampling."""
    sampler = require(mechanism.sampler, CyclicPoisson)
    sigma, matrix, prob = mechanism.sigma, mechanism.matrix, sampler.sampling_prob
    if sampler.groups == 1:
        return SubsetMixture(noise_multiplier=sigma, matrix=matrix, sampling_prob=prob)
    return CyclicSubsets(noise_multiplier=sigma, matrix=matrix, groups=sampler.groups, sampling_prob=prob)


def from_uncorrelated_cyclic_poisson(mechanism: Mechanism) -> IndependentSteps:
    """Cyclic Poisson batches without correlated noise: the turns of the first group, which has the most of them."""
    sampler = require(mechanism.sampler, CyclicPoisson)
    turns = -(-sampler.steps // sampler.groups)
    return IndependentSteps(noise_multiplier=mechanism.sigma, sampling_prob=sampler.sampling_prob, steps=turns)
