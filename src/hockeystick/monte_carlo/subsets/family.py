"""Poisson and cyclic Poisson sampling with banded strategy matrices: which proposals there are, and which look best.

Proofs: docs/theory/monte-carlo/subsets.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from hockeystick.bounds import Profile
from hockeystick.errors import InvalidInputError
from hockeystick.monte_carlo.proposals import Family, Proposal, rounded
from hockeystick.monte_carlo.subsets.count_kernels import log_chances
from hockeystick.monte_carlo.subsets.participations import Participations, participations
from hockeystick.monte_carlo.subsets.proposals import (
    CountSubsets,
    MeanSubsets,
    NaiveSubsets,
    largest_of_counts,
    log_largest_of_mean,
    log_norm,
    smallest_ratio_bound,
)
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies.matrix.band import band_of
from hockeystick.types import Direction, Side

MAX_WINDOW = 12
"""Every block of every sample visits 2^window patterns."""
MAX_EXPONENT = 480.0
"""Of a sample of P: the factors of the recursion then stay in the range of doubles. Blocks of one row may have a sum of
16 sigma."""
MAX_ORDER = 24
"""Largest order of a proposal by counts."""
MAX_REACH = 96
MAX_CAP = 4
"""So few copies in an opportunity do not end up being everywhere."""
MAX_PATTERNS = 1e5
"""Of the counts of all opportunities that a block knows, in a far chain: its tables are many."""
NEARER = (0.8, 1.2)
"""Other reaches that are worth a pilot, in proportion to the one that should be best."""
LEAST_LOG_CHANCE = -600.0
"""Chances of counts must not leave the range of doubles."""
MAX_TILTED_EXPONENT = 660.0
"""Of a sample of a proposal: times the largest running weight of the recursion it stays in the range of doubles."""
MAX_BETA = 1e4
"""Largest strength that is taken from outside."""
BETAS = np.array([rounded(beta) for beta in np.geomspace(1e-2, 1e3, 501)])
"""Strengths of the mean proposal that are tried."""


def count_orders(pair: SubsetMixture) -> Iterator[int]:
    """The orders of the proposal by counts, from 2 on; none without subsampling.

    Copies that are all in the same steps must leave the factors of the recursion in the range of doubles, and the
    tables of the chain must be small enough.
    """
    if pair.batches_are_public:
        return
    opportunities = participations(pair)
    for order in range(2, MAX_ORDER + 1):
        if opportunities.largest_exponent(order) > MAX_TILTED_EXPONENT or not _in_range(opportunities, order, order):
            return
        yield order


def _in_range(opportunities: Participations, copies: int, cap: int) -> bool:
    """Whether the chances and the table of a chain are in the range of doubles and of memory."""
    chances = log_chances(opportunities.prob, copies, cap + 1)
    return float(chances.min()) >= LEAST_LOG_CHANCE and log_norm(opportunities, copies, cap) < inf


def _counts(pair: SubsetMixture, epsilon: float) -> Iterator[CountSubsets]:
    """The order with the smallest M, with several reaches."""
    opportunities = participations(pair)
    best, least = 0, inf
    for order in count_orders(pair):
        largest = largest_of_counts(opportunities, order, epsilon)
        if largest > least:  # log Z is convex in the order, so it only gets worse
            break
        best, least = order, largest
    if not best:
        return
    cap = max(min(best, MAX_CAP, int(MAX_PATTERNS ** (1.0 / opportunities.window)) - 1), 1)
    reach = _best_reach(opportunities, best, cap, epsilon)
    reaches = [reach, *(max(best, min(round(part * reach), MAX_REACH)) for part in NEARER)]
    wanted = {(more, cap): None for more in reaches if reach < MAX_REACH and _in_range(opportunities, more, cap)}
    for more, most in {**wanted, (best, best): None}:
        yield CountSubsets(direction=Direction.REMOVE, pair=pair, order=best, reach=more, cap=most)


def _best_reach(opportunities: Participations, order: int, cap: int, epsilon: float) -> int:
    """The first number of copies at which outputs of the far chain have a loss of about epsilon on the average.

    The difference of log Z from one number to the next is about that loss, where few copies take part at a time;
    MAX_REACH where no number does it. O(log MAX_REACH) tables.
    """
    low, high = order, MAX_REACH
    while low < high:
        middle = (low + high) // 2
        if (
            not _in_range(opportunities, middle + 1, cap)
            or log_norm(opportunities, middle + 1, cap) - log_norm(opportunities, middle, cap) >= epsilon
        ):
            high = middle
        else:
            low = middle + 1
    return low


def propose(pair: SubsetMixture, direction: Direction, epsilon: float) -> Sequence[Proposal]:
    """Proposals with an M below that of the naive proposal, the most promising first; the naive proposal."""
    naive = NaiveSubsets(direction=direction, pair=pair)
    tilted: list[Proposal]
    if direction is Direction.REMOVE:
        tilted = list(_counts(pair, epsilon))
    else:
        opportunities = participations(pair)
        beta = float(min(BETAS, key=lambda beta: log_largest_of_mean(opportunities, float(beta), epsilon)))
        tilted = [MeanSubsets(direction=direction, pair=pair, beta=beta)]
    return (*(proposal for proposal in tilted if proposal.weight_bound(epsilon) < naive.weight_bound(epsilon)), naive)


def build(pair: SubsetMixture, direction: Direction, name: str, parameters: Mapping[str, float]) -> Proposal:
    """The proposal that evidence names."""
    remove, order = direction is Direction.REMOVE, parameters.get("order", 0.0)
    reach, cap = (parameters.get(key, 0.0) for key in ("reach", "cap"))
    beta = parameters.get("beta", 0.0)
    if name == NaiveSubsets.name and not parameters:
        return NaiveSubsets(direction=direction, pair=pair)
    if name == CountSubsets.name and remove and len(parameters) == 3 and _fits(pair, order, reach, cap):
        return CountSubsets(direction=direction, pair=pair, order=int(order), reach=int(reach), cap=int(cap))
    if name == MeanSubsets.name and not remove and 0.0 < beta <= MAX_BETA:
        return MeanSubsets(direction=direction, pair=pair, beta=beta)
    raise InvalidInputError(
        f"The 'proposal' field must be 'naive', 'counts' with an order of {[*count_orders(pair)]}, a cap up to it and "
        f"a reach from it to {MAX_REACH} for remove, or 'mean' with a positive beta for add. "
        f"Got {name!r} with {dict(parameters)} for {direction.value} instead."
    )


def _fits(pair: SubsetMixture, order: float, reach: float, cap: float) -> bool:
    """Whether there is such a proposal."""
    if not 1 <= cap <= order <= reach <= MAX_REACH or any(one != int(one) for one in (order, reach, cap)):
        return False
    return int(order) in count_orders(pair) and _in_range(participations(pair), int(reach), int(cap))


def why_not(pair: SubsetMixture, side: Side) -> str | None:
    """Why the recursion does not run for this pair."""
    matrix, groups = pair.matrix, pair.groups
    if side is Side.LOWER and pair.why_not_from_below is not None:
        return pair.why_not_from_below
    if matrix.rows != matrix.steps:
        return "its recursion needs a square strategy matrix"
    if groups > 1 and matrix.toeplitz_column is None:
        return "which group is the worst is known for Toeplitz matrices only"
    if matrix.bands > MAX_WINDOW * groups:
        return (
            f"its recursion visits 2^(bands / groups) patterns and takes at most {MAX_WINDOW * groups} bands, "
            f"not {matrix.bands}"
        )
    if participations(pair).largest_exponent(1) > MAX_EXPONENT:
        return (
            f"its recursion needs more noise: rows m of the strategy matrix, summed and divided by it, with "
            f"sum m (m + {FARTHEST_NORMAL:g}) <= {MAX_EXPONENT:g} from each opportunity to the next"
        )
    return None


def fingerprint(pair: SubsetMixture) -> Sequence[Any]:
    """The rate, the groups and the diagonals of C."""
    column = pair.matrix.toeplitz_column
    entries = band_of(pair.matrix) if column is None else column[: pair.matrix.bands]
    return (pair.sampling_prob, pair.groups, pair.matrix.steps, entries)


def known_upper(pair: SubsetMixture, direction: Direction) -> Profile | None:
    """Add ends where X cannot be small enough."""
    return smallest_ratio_bound(pair) if direction is Direction.ADD else None


FAMILY = Family(
    pair=SubsetMixture,
    propose=propose,
    build=build,
    fingerprint=fingerprint,
    known_upper=known_upper,
    refusal=why_not,
)
