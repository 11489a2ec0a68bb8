"""Generalised MMCC: cyclic Poisson sampling with any strategy matrix, by conditional composition of blocks of rows.

The rows from one opportunity of a group up to the next are one block, dominated by a scalar mixture with the norms of
the columns' parts as sensitivities. For a b-banded C no block is informed by an earlier one: nothing is spent, and the
result is exact up to discretisation. The worst group is taken at every epsilon; for a Toeplitz C that is the first one.

Proof: docs/theory/subsets/mmcc.md, with what it corrects in choquette-choo-2024, Theorem D.1. The bound errs upward.
Cost: that of ``mmcc`` on the columns of a group, for each group of a matrix that is not Toeplitz.
"""

import numpy as np

from hockeystick.accountants.base import Accountant
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.types import Side
from hockeystick_papers.mmcc import worst_of_groups


def _analysed(pair: SubsetMixture) -> int:
    """The number of groups that have to be analysed."""
    return pair.groups_in_play if pair.matrix.toeplitz_column is None else 1


def _refusal(pair: SubsetMixture, side: Side) -> str | None:
    from hockeystick_papers.participations.rows import too_large

    if pair.groups == 1:
        return "it is for groups that take turns; mmcc is for Poisson sampling"
    return too_large(pair.matrix, pair.groups)


def _cost(pair: SubsetMixture) -> float:
    from hockeystick_papers.participations.rows import products

    opportunities = -(-pair.matrix.steps // pair.groups)
    return 0.5 + _analysed(pair) * (0.5 + 0.1 * min(opportunities, 20) + 1.5e-9 * products(pair.matrix, pair.groups))


def _example() -> SubsetMixture:
    matrix = ToeplitzMatrix(np.array([1.0, 0.5, 0.25]), 6)
    return SubsetMixture(noise_multiplier=3.0, matrix=matrix, groups=2, sampling_prob=0.25)


ACCOUNTANT = Accountant(
    name="generalized_mmcc",
    summary="mmcc by blocks of rows for cyclic Poisson sampling; exact where the bands fit into one round",
    sides=(Side.UPPER,),
    errs="upward: chances bound the posterior but for an event whose probability, by a union bound, is added",
    reference="docs/theory/subsets/mmcc.md; choquette-choo-2024, Theorem D.1 with a corrected budget",
    analyses={SubsetMixture: lambda pair, side, settings: worst_of_groups(pair, range(_analysed(pair)), settings)},
    refusal=_refusal,
    cost=_cost,
    example=_example,
    plans_effort=True,
)
