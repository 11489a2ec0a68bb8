"""Poisson and cyclic Poisson sampling with banded strategy matrices: which proposals there are, and which look best.

Proofs: docs/theory/monte-carlo/subsets.md.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

import numpy as np

from hockeystick.monte_carlo.far import family as far
from hockeystick.monte_carlo.far.subjects import why_not as why_not_far
from hockeystick.monte_carlo.moved import best_beta
from hockeystick.monte_carlo.proposals import Family, Proposal
from hockeystick.monte_carlo.subsets.participations import MAX_WINDOW, Participations, participations, runs_recursion
from hockeystick.monte_carlo.subsets.proposals import (
    MAX_REACH,
    CountSubsets,
    MeanSubsets,
    NaiveSubsets,
    count_orders,
    in_range,
    largest_of_counts,
    log_norm,
    smallest_ratio_bound,
)
from hockeystick.monte_carlo.subsets.trees import TreesAbove, TreesAdd, TreesBelow, forest_of, tree_proposals
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL, falling
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies.matrix.band import band_of
from hockeystick.types import Direction, Side

MAX_EXPONENT = 480.0
"""Of a sample of P: the factors of the recursion then stay in the range of doubles. Blocks of one row may have a sum of
16 sigma."""
MAX_CAP = 4
"""So few copies in an opportunity do not end up being everywhere."""
MAX_PATTERNS = 1e5
"""Of the counts of all opportunities that a block knows, in a far chain: its tables are many."""
FEW_PATTERNS = 6
"""Opportunities that a block knows, up to which the recursion is the better way."""
NEARER = (0.8, 1.2)
"""Other reaches that are worth a pilot, in proportion to the one that should be best."""


def _counts(pair: SubsetMixture, epsilon: float) -> Iterator[CountSubsets]:
    """The order with the smallest M, with several reaches."""
    opportunities = participations(pair)
    each = falling(lambda order: largest_of_counts(opportunities, order, epsilon), count_orders(pair))
    _, best = min(each, default=(inf, None))
    if best is None:
        return
    cap = max(min(best, MAX_CAP, int(MAX_PATTERNS ** (1.0 / opportunities.window)) - 1), 1)
    reach = _best_reach(opportunities, best, cap, epsilon)
    reaches = [reach, *(max(best, min(round(part * reach), MAX_REACH)) for part in NEARER)]
    wanted = {(more, cap): None for more in reaches if reach < MAX_REACH and in_range(opportunities, more, cap)}
    for more, most in {**wanted, (best, best): None}:
        yield CountSubsets(direction=Direction.REMOVE, pair=pair, order=best, reach=more, cap=most)


def _best_reach(opportunities: Participations, order: int, cap: int, epsilon: float) -> int:
    """The first number of copies at which outputs of the far chain have a loss of about epsilon on the average.

    The difference of log Z from one number to the next is about that loss, where few copies take part at a time;
    MAX_REACH where no number does it. O(log MAX_REACH) tables.
    """

    def far_enough(copies: int) -> bool:
        if not in_range(opportunities, copies + 1, cap):
            return True
        return log_norm(opportunities, copies + 1, cap) - log_norm(opportunities, copies, cap) >= epsilon

    return order + bisect_left(range(order, MAX_REACH), True, key=far_enough)


def propose(pair: SubsetMixture, direction: Direction, epsilon: float) -> Sequence[Proposal]:
    """Proposals with an M below that of the naive proposal, the most promising first; the naive proposal.

    Where the recursion does not run, or visits many patterns, one for each side instead.
    """
    if forest_of(pair) is not None:
        return tree_proposals(pair, direction, epsilon)
    if _one_sided(pair):
        return far.propose(pair, direction, epsilon)
    naive = NaiveSubsets(direction=direction, pair=pair)
    tilted: list[Proposal]
    if direction is Direction.REMOVE:
        tilted = list(_counts(pair, epsilon))
    else:
        opportunities = participations(pair)
        tilted = [MeanSubsets(direction=direction, pair=pair, beta=best_beta(opportunities.moments, epsilon))]
    return (*(proposal for proposal in tilted if proposal.weight_bound(epsilon) < naive.weight_bound(epsilon)), naive)


def quick(pair: SubsetMixture, direction: Direction, epsilon: float) -> Proposal | None:
    """The first proposal where there is one for each side, but for trees."""
    return far.first_proposal(pair, direction, epsilon) if forest_of(pair) is None and _one_sided(pair) else None


def _one_sided(pair: SubsetMixture) -> bool:
    return not runs_recursion(pair) or (_many_patterns(pair) and why_not_far(pair) is None)


def _many_patterns(pair: SubsetMixture) -> bool:
    """Whether bounds of one side each take less time than the recursion, whose chains of counts are of low orders."""
    return participations(pair).window > FEW_PATTERNS and not pair.batches_are_public


def why_not(pair: SubsetMixture, side: Side) -> str | None:
    """Why nothing is sampled for this pair."""
    if side is Side.LOWER and pair.why_not_from_below is not None:
        return pair.why_not_from_below
    if forest_of(pair) is not None:
        return None
    if not runs_recursion(pair):
        if pair.batches_are_public and pair.coins > 1:
            return "without subsampling it takes single examples"
        if pair.batches_are_public:
            return f"without subsampling it takes square strategy matrices of at most {MAX_WINDOW * pair.groups} bands"
        return why_not_far(pair)
    if participations(pair).largest_exponent(1) > MAX_EXPONENT:
        return (
            f"its recursion needs more noise: rows m of the strategy matrix, summed and divided by it, with "
            f"sum m (m + {FARTHEST_NORMAL:g}) <= {MAX_EXPONENT:g} from each opportunity to the next"
        )
    return None


def fingerprint(pair: SubsetMixture) -> Sequence[Any]:
    """The rate, the groups and the diagonals of C, or what stands for its entries."""
    matrix, column = pair.matrix, pair.matrix.toeplitz_column
    if column is not None:
        entries = column[: matrix.bands]
    elif matrix.rows == matrix.steps and pair.coins == 1:
        entries = band_of(matrix)
    else:
        entries = np.frombuffer(bytes.fromhex(matrix.digest), dtype=np.uint8)
    return (pair.sampling_prob, pair.groups, matrix.steps, entries)


FAMILY = Family(
    pair=SubsetMixture,
    kinds=(
        NaiveSubsets,
        CountSubsets,
        MeanSubsets,
        *far.COUNTED,
        TreesBelow,
        TreesAbove,
        TreesAdd,
    ),
    propose=propose,
    quick=quick,
    fingerprint=fingerprint,
    known_upper=lambda pair, direction: smallest_ratio_bound(pair) if direction is Direction.ADD else None,
    refusal=why_not,
)
