"""MMCC: Poisson sampling with any strategy matrix, by conditional composition of its rows.

Outside an event of probability delta_1 the chance of each step, given the outputs before, has a fixed upper bound; with
these bounds as independent chances, and the row's entries as sensitivities, the rows compose as if they were
independent. See ``participations``: ``rows``, ``tails`` (the bounds on the chances), ``engine``.

Proof: docs/theory/subsets/mmcc.md, with what it corrects in choquette-choo-2024, Theorem 4.3. The bound errs upward.
Cost: the prefix inner products, which are kept for the next noise multiplier, and some tens of laws.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.types import Direction, Side


def worst_of_groups(
    pair: SubsetMixture, groups: Sequence[int | None], settings: Settings
) -> Mapping[Direction, Profile]:
    """The largest bound of any of these groups; None stands for all steps, by single rows."""
    from hockeystick_papers.participations.engine import blocks_profiles, planned_laws, worst_profiles
    from hockeystick_papers.participations.rows import described, different

    sensitivity = pair.full_sensitivity * (1.0 + pair.sensitivity_error)
    blocks = different([described(pair.matrix, pair.groups, group, settings.deadline.tick) for group in groups])
    deltas = settings.spending_deltas
    laws = planned_laws(settings.effort, len(blocks) * len(deltas))
    sigma, prob, resolution = pair.noise_multiplier, pair.sampling_prob, settings.resolution
    return worst_profiles(
        [
            blocks_profiles(group, sigma, prob, sensitivity, laws, deltas, resolution, settings.deadline)
            for group in blocks
        ]
    )


def _refusal(pair: SubsetMixture, side: Side) -> str | None:
    from hockeystick_papers.participations.rows import too_large

    if pair.groups > 1:
        return "it is for Poisson sampling; generalized_mmcc is for groups that take turns"
    return too_large(pair.matrix, 1)


def _cost(pair: SubsetMixture) -> float:
    from hockeystick_papers.participations.rows import products

    return 0.5 + 0.15 * min(pair.matrix.rows, 60) + 1.5e-9 * products(pair.matrix, 1)


def _example() -> SubsetMixture:
    return SubsetMixture(noise_multiplier=3.0, matrix=ToeplitzMatrix(np.array([1.0, 0.5]), 6), sampling_prob=0.25)


ACCOUNTANT = Accountant(
    name="mmcc",
    summary="bounds the chance of every participation given the earlier rows, then composes the rows",
    sides=(Side.UPPER,),
    errs="upward: chances bound the posterior but for an event whose probability, by a union bound, is added",
    reference="docs/theory/subsets/mmcc.md; choquette-choo-2024, Theorem 4.3",
    analyses={SubsetMixture: lambda pair, side, settings: worst_of_groups(pair, [None], settings)},
    refusal=_refusal,
    cost=_cost,
    example=_example,
    plans_effort=True,
)
